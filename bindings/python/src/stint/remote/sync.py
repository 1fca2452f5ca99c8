# SPDX-License-Identifier: MIT
"""Questions from threads: a pool of connections, and one deadline for a whole question."""
from __future__ import annotations

import concurrent.futures
import os
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from .address import Address, Resolver
from .breaker import Breaker
from .codec import REPLY_MAX, Codec, Question, codec_for
from .errors import ServerError
from .wire import MISSING, WireError

_RECEIVED = 65536  # bytes of a recv()


class LostError(Exception):
    """The connection ended; `unread`: before any byte of the reply."""

    def __init__(self, why: str, unread: bool) -> None:
        super().__init__(why)
        self.unread = unread


class LateError(Exception):
    """The deadline has passed."""


@contextmanager
def guarded(breaker: Breaker, address: Address, timeout: float) -> Iterator[None]:
    """Around one question: its ServerError, or that it is late, counts for the breaker."""
    breaker.enter()
    try:
        yield
    except ServerError as error:
        breaker.failed(error)
        raise
    except LateError:
        late = ServerError("TIMEOUT", late_text(address, timeout))
        breaker.failed(late)
        raise late from None
    breaker.answered()


def left_until(deadline: float) -> float:
    """Seconds; LateError if there are none."""
    left = deadline - time.monotonic()
    if left <= 0.0:
        raise LateError
    return left


class Connection:
    """One connection, used by one thread at a time."""

    def __init__(self, sock: socket.socket, codec: Codec) -> None:
        self.sock, self.is_new, self.is_broken = sock, True, False
        self._codec = codec
        self._reader = codec.reader()

    def close(self) -> None:
        self.is_broken = True
        try:
            self.sock.close()
        except OSError:
            pass

    def is_idle(self) -> bool:
        """Whether the connection is open and the server has sent nothing."""
        try:
            self.sock.settimeout(0.0)
            self.sock.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except (OSError, ValueError):
            pass
        return False

    def exchange(self, question: Question | None, data: bytes, deadline: float) -> Any:
        """Sends a question, or the greeting; the value of its reply, or the exception it is."""
        unread = True
        limit = question.limit if question else REPLY_MAX
        try:
            self.sock.settimeout(left_until(deadline))
            self.sock.sendall(data)
            while True:
                self.sock.settimeout(left_until(deadline))
                received = self.sock.recv(_RECEIVED)
                if not received:
                    raise LostError("the server closed the connection", unread)
                unread = False
                self._reader.feed(received)
                reply = self._reader.read(limit)
                if reply is not MISSING:
                    break
        except (TimeoutError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise LateError from None
        except ssl.SSLError as error:
            raise LostError(f"TLS: {error.reason or error}", unread) from None
        except OSError as error:
            raise LostError(error.strerror or str(error), unread) from None
        if not self._reader.is_between or self._codec.closes(reply):
            self.close()
        return self._codec.decode(question, reply)


class Pool:
    """The connections of one server. Thread-safe; a child after fork() opens its own."""

    def __init__(self, address: Address, timeout: float, tls: ssl.SSLContext | None,
                 connections: int) -> None:
        self._address, self.timeout, self._tls, self._max = address, timeout, tls, connections
        self._codec = codec_for(address)
        self._resolver = Resolver(address)
        self._breaker = Breaker(str(address), timeout)
        self._begin()
        forked(self)

    def _begin(self) -> None:
        self._free = threading.Condition(threading.Lock())
        self._idle: list[Connection] = []
        self._all: set[Connection] = set()
        self._n = 0  # connections, and those that are being made

    def after_fork(self) -> None:
        """In the child: the parent's connections are closed here, and go on in the parent."""
        inherited = list(self._all)
        self._begin()
        self._resolver.forget()
        self._breaker.forget()
        for connection in inherited:
            connection.close()

    def close(self) -> None:
        """Closes the connections that no question uses. A later question opens one again."""
        with self._free:
            idle, self._idle = self._idle, []
        for connection in idle:
            self._drop(connection)

    # ---- Questions ----

    def ask(self, question: Question) -> Any:
        """The reply, decoded. ServerError if there is none; QuotaError, GoneError by the server."""
        deadline = time.monotonic() + self.timeout
        data = self._codec.encode(question)
        with guarded(self._breaker, self._address, self.timeout):
            result = self._ask(question, data, deadline)
        if isinstance(result, Exception):
            raise result
        return result

    def _ask(self, question: Question, data: bytes, deadline: float) -> Any:
        connection = self._acquire(deadline)
        try:
            return self._exchange(connection, question, data, deadline)
        except LostError as error:
            is_stale = error.unread and not connection.is_new
            if not (is_stale and question.may_repeat):
                raise ServerError("CLOSED", f"{self._address}: {error} before the reply") from None
        # A connection that had been idle ended just now: once more over a fresh one.
        connection = self._acquire(deadline, fresh=True)
        try:
            return self._exchange(connection, question, data, deadline)
        except LostError as error:
            raise ServerError("CLOSED", f"{self._address}: {error} before the reply") from None

    def _exchange(self, connection: Connection, question: Question, data: bytes,
                  deadline: float) -> Any:
        try:
            result = connection.exchange(question, data, deadline)
        except WireError as error:
            self._drop(connection)
            raise ServerError("PROTOCOL",
                              f"{self._address}: {self._codec.explain(error)}") from None
        except BaseException:  # also a timeout of a green thread: its reply is still to come
            self._drop(connection)
            raise
        self._release(connection)
        return result

    # ---- Connections ----

    def _acquire(self, deadline: float, fresh: bool = False) -> Connection:
        """An idle connection that is open, or a new one; waits until there may be one more."""
        while True:
            with self._free:
                while not self._idle and self._n >= self._max:
                    self._free.wait(left_until(deadline))
                connection = self._idle.pop() if self._idle else None
                if connection is None:
                    self._n += 1
            if connection is None:
                break
            if not fresh and connection.is_idle():
                connection.is_new = False
                return connection
            self._drop(connection)
        try:
            connection = self._connect(deadline)
        except BaseException:
            self._give_slot()
            raise
        with self._free:
            self._all.add(connection)
        return connection

    def _give_slot(self) -> None:
        with self._free:
            self._n -= 1
            self._free.notify()

    def _release(self, connection: Connection) -> None:
        if connection.is_broken:
            self._drop(connection)
            return
        with self._free:
            if connection not in self._all:
                return  # of the process before a fork()
            self._idle.append(connection)
            self._free.notify()

    def _drop(self, connection: Connection) -> None:
        connection.close()
        with self._free:
            if connection not in self._all:
                return
            self._all.discard(connection)
            self._n -= 1
            self._free.notify()

    def _connect(self, deadline: float) -> Connection:
        try:
            targets = self._resolver.targets().result(left_until(deadline))
        except concurrent.futures.TimeoutError:
            raise LateError from None
        except OSError as error:
            raise ServerError(
                "UNREACHABLE", f"{self._address}: the name cannot be resolved: "
                f"{error.strerror or error}") from None
        refused: OSError | None = None
        for i, (family, sockaddr) in enumerate(targets):
            # An address that does not answer leaves time for those after it.
            part = left_until(deadline) / (len(targets) - i)
            try:
                return self._open(family, sockaddr, time.monotonic() + part, deadline)
            except (OSError, LateError) as error:
                refused = error if isinstance(error, OSError) else refused
        if refused is None:
            raise LateError
        raise ServerError("UNREACHABLE", unreachable(self._address, refused)) from None

    def _open(self, family: int, sockaddr: Any, until: float, deadline: float) -> Connection:
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.settimeout(left_until(until))
            try:
                sock.connect(sockaddr)
            except TimeoutError:
                raise LateError from None
            if family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._resolver.reached(sockaddr)
            if self._tls is not None:
                sock.settimeout(left_until(deadline))
                sock = self._wrap(sock, self._tls)
            connection = Connection(sock, self._codec)
            self._greet(connection, deadline)
            return connection
        except BaseException:
            sock.close()
            raise

    def _wrap(self, sock: socket.socket, context: ssl.SSLContext) -> ssl.SSLSocket:
        try:
            return context.wrap_socket(sock, server_hostname=self._address.host)
        except TimeoutError:
            raise LateError from None
        except (ssl.SSLError, ssl.CertificateError, OSError) as error:
            raise ServerError("TLS", tls_failed(self._address, error)) from None

    def _greet(self, connection: Connection, deadline: float) -> None:
        greeting = self._codec.greeting()
        if greeting is None:
            return
        try:
            refused = connection.exchange(None, greeting, deadline)
        except WireError as error:
            raise ServerError("PROTOCOL",
                              f"{self._address}: {self._codec.explain(error)}") from None
        except LostError as error:
            raise ServerError("CLOSED", f"{self._address}: {error} before the reply") from None
        if refused is not None:
            raise refused


def late_text(address: Address, timeout: float) -> str:
    return (f"{address}: no reply within {timeout:g} s; the server is overloaded or stopped, "
            "or the timeout is too short for its network")


def unreachable(address: Address, error: OSError) -> str:
    reason = error.strerror or str(error)
    return f"{address}: cannot connect: {reason}; check that `stint serve` listens there"


def tls_failed(address: Address, error: Exception) -> str:
    """What failed in a handshake, and what to do."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (f"{address}: the server's certificate is refused: {error.verify_message}; "
                "pass tls=ssl.create_default_context(cafile=…) with its authority")
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
    return f"{address}: the TLS handshake failed: {reason}; check that this port has TLS"


class _Forked(Protocol):
    def after_fork(self) -> None: ...


_forked: weakref.WeakSet[_Forked] = weakref.WeakSet()
forked = _forked.add  # whose after_fork() a child calls


def _after_fork() -> None:
    for each in list(_forked):
        each.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
