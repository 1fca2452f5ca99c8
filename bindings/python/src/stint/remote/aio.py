# SPDX-License-Identifier: MIT
"""Questions from tasks of asyncio: many on their way over few connections.

Replies belong to questions by their order. A question whose task was cancelled, or that came too
late, keeps its place in the order: its reply is read and dropped.
"""
from __future__ import annotations

import asyncio
import os
import ssl
import time
import weakref
from collections import deque
from typing import Any

from .address import Address, Resolver
from .breaker import Breaker
from .codec import REPLY_MAX, Codec, Question, codec_for
from .errors import ServerError
from .sync import LateError, LostError, forked, guarded, left_until, tls_failed, unreachable
from .wire import MISSING, WireError

_Slot = tuple[Question | None, "asyncio.Future[Any]"]


class Connection(asyncio.Protocol):
    """One connection: the questions on their way, in the order in which they were sent."""

    def __init__(self, pool: LoopPool) -> None:
        self._pool, self._codec = pool, pool.codec
        self._reader = pool.codec.reader()
        self._loop = pool.loop
        self._transport: asyncio.Transport | None = None
        self._slots: deque[_Slot] = deque()
        self._out: list[bytes] = []
        self._unread = True  # no byte of the reply to the first of _slots
        self.is_open, self.answered, self.made_at = False, False, time.monotonic()

    # ---- Of asyncio ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport, self.is_open = transport, True

    def connection_lost(self, exc: BaseException | None) -> None:
        self._end(LostError(str(exc) if exc else "the server closed the connection", True))

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            self._read()
        except WireError as error:
            self._end(ServerError(
                "PROTOCOL", f"{self._pool.address}: {self._codec.explain(error)}"))

    def _read(self) -> None:
        while not self._reader.is_between:
            if not self._slots:
                raise WireError("a reply without a question")
            question, future = self._slots[0]
            limit = question.limit if question else REPLY_MAX
            reply = self._reader.read(limit)
            if reply is MISSING:
                self._unread = False
                return
            result = self._codec.decode(question, reply)
            self._slots.popleft()
            self._unread = True
            self.answered = True
            if not future.done():
                future.set_result(result)
            if self._codec.closes(reply):
                self._end(LostError("the server closed the connection", True))
                return
            self._pool.has_capacity(self)

    # ---- Of the pool ----

    @property
    def load(self) -> int:
        return len(self._slots)

    def send(self, question: Question | None, data: bytes) -> asyncio.Future[Any]:
        """A future for the reply: the questions of one turn of the loop are sent together."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._slots.append((question, future))
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(data)
        return future

    def _flush(self) -> None:
        data, self._out = b"".join(self._out), []
        if self._transport is not None and self.is_open:
            self._transport.write(data)

    def retire(self) -> None:
        """No more questions: one of them came too late. Those on their way may be answered."""
        self._pool.forget(self)
        self.is_open = False
        if all(future.done() for _, future in self._slots):
            self._end(LostError("the connection was given up", True))

    def abort(self) -> None:
        self._end(LostError("the client was closed", False))

    def _end(self, error: Exception) -> None:
        """Every question gets the error; only the first one's reply can have begun."""
        self._pool.forget(self)
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        slots, self._slots = self._slots, deque()
        unread, self._unread = self._unread, True
        for _, future in slots:
            if not future.done():
                if isinstance(error, LostError):
                    future.set_exception(LostError(str(error), error.unread and unread))
                else:
                    future.set_exception(error)
            unread = True


class LoopPool:
    """The connections of one server in one event loop; used from its thread alone."""

    def __init__(self, owner: AsyncPool, loop: asyncio.AbstractEventLoop) -> None:
        self.address, self.codec, self.loop = owner.address, owner.codec, loop
        self.pid = os.getpid()
        self._owner = owner
        self._open: list[Connection] = []
        self._connecting: asyncio.Task[Connection] | None = None
        self._waiting: deque[asyncio.Future[None]] = deque()

    def close(self) -> None:
        for connection in list(self._open):
            connection.abort()
        if self._connecting is not None:
            self._connecting.cancel()

    def forget(self, connection: Connection) -> None:
        if connection in self._open:
            self._open.remove(connection)
            self._wake()

    def has_capacity(self, connection: Connection) -> None:
        if self._waiting and connection.load < self.codec.depth:
            self._wake()

    def _wake(self) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                return

    async def acquire(self, deadline: float, since: float = 0.0) -> Connection:
        """A connection with the fewest questions on their way; one more while all are busy.

        since: of those that were made after this time.
        """
        while True:
            fresh = [connection for connection in self._open if connection.made_at >= since]
            best = min(fresh, key=lambda connection: connection.load, default=None)
            if best is not None and best.load < self.codec.depth:
                return best
            if len(self._open) >= self._owner.connections:
                idle = [each for each in self._open if each.load == 0 and each not in fresh]
                for connection in idle[:1]:
                    connection.abort()
            if len(self._open) < self._owner.connections:
                if not (await self._one_more(deadline)).is_open:
                    raise LostError("the server closed the connection", False)
                continue
            future: asyncio.Future[None] = self.loop.create_future()
            self._waiting.append(future)
            await self._within(future, deadline)

    async def _one_more(self, deadline: float) -> Connection:
        """A new connection, which all questions wait for that need one now."""
        task = self._connecting
        if task is None:
            task = self.loop.create_task(self._connect(time.monotonic() + self._owner.timeout))
            self._connecting = task
            task.add_done_callback(self._connected)
        connection: Connection = await self._within(asyncio.shield(task), deadline)
        return connection

    def _connected(self, task: asyncio.Task[Connection]) -> None:
        self._connecting = None
        if not task.cancelled():
            task.exception()  # the questions that wait for it have it

    async def _within(self, future: asyncio.Future[Any], deadline: float) -> Any:
        """The result of a future; LateError if it comes too late."""
        timer = self.loop.call_later(left_until(deadline), _expire, future)
        try:
            return await future
        finally:
            timer.cancel()

    async def _connect(self, deadline: float) -> Connection:
        try:
            pending = asyncio.wrap_future(self._owner.resolver.targets())
            pending.add_done_callback(lambda done: done.cancelled() or done.exception())
            targets = await self._within(asyncio.shield(pending), deadline)
        except OSError as error:
            raise ServerError(
                "UNREACHABLE", f"{self.address}: the name cannot be resolved: "
                f"{error.strerror or error}") from None
        refused: OSError | None = None
        for i, (_, sockaddr) in enumerate(targets):
            until = time.monotonic() + left_until(deadline) / (len(targets) - i)
            try:
                connection = await self._reach(sockaddr, until, deadline)
            except (OSError, LateError) as error:
                refused = error if isinstance(error, OSError) else refused
                continue
            self._owner.resolver.reached(sockaddr)
            self._open.append(connection)
            return connection
        if refused is None:
            raise LateError
        raise ServerError("UNREACHABLE", unreachable(self.address, refused)) from None

    async def _reach(self, sockaddr: Any, until: float, deadline: float) -> Connection:
        connection = Connection(self)
        tls = self._owner.tls
        made: Any
        if self.address.scheme == "unix":
            made = self.loop.create_unix_connection(lambda: connection, sockaddr)
        else:
            made = self.loop.create_connection(
                lambda: connection, sockaddr[0], sockaddr[1],
                ssl=tls, server_hostname=self.address.host if tls else None)
        task = asyncio.ensure_future(made, loop=self.loop)
        try:
            await self._within(asyncio.shield(task), until if tls is None else deadline)
        except (ssl.SSLError, ssl.CertificateError) as error:
            raise ServerError("TLS", tls_failed(self.address, error)) from None
        except BaseException as error:
            task.cancel()
            connection.abort()
            if tls is not None and isinstance(error, (ConnectionResetError, EOFError)):
                raise ServerError("TLS", tls_failed(self.address, error)) from None
            raise
        await self._greet(connection, deadline)
        return connection

    async def _greet(self, connection: Connection, deadline: float) -> None:
        greeting = self.codec.greeting()
        if greeting is None:
            return
        try:
            refused = await self._within(connection.send(None, greeting), deadline)
        except LostError as error:
            raise ServerError("CLOSED", f"{self.address}: {error} before the reply") from None
        except BaseException:
            connection.abort()
            raise
        if refused is not None:
            connection.abort()
            raise refused


def _expire(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_exception(LateError())


class AsyncPool:
    """The connections of one server, by event loop. A loop uses only those that it has made."""

    def __init__(self, address: Address, timeout: float, tls: ssl.SSLContext | None,
                 connections: int) -> None:
        self.address, self.timeout, self.tls, self.connections = address, timeout, tls, connections
        self.codec: Codec = codec_for(address)
        self.resolver = Resolver(address)
        self._breaker = Breaker(str(address), timeout)
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopPool] = (
            weakref.WeakKeyDictionary())
        forked(self)

    def after_fork(self) -> None:
        """In the child: its loops make connections of their own."""
        self.resolver.forget()
        self._breaker.forget()

    def _of_loop(self) -> LoopPool:
        loop = asyncio.get_running_loop()
        pool = self._loops.get(loop)
        if pool is None or pool.pid != os.getpid():
            pool = self._loops[loop] = LoopPool(self, loop)
        return pool

    async def close(self) -> None:
        """Closes the connections of this loop. A later question opens one again."""
        pool = self._loops.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            pool.close()

    async def ask(self, question: Question) -> Any:
        """The reply, decoded. ServerError if there is none; QuotaError, GoneError by the server."""
        deadline = time.monotonic() + self.timeout
        data = self.codec.encode(question)
        with guarded(self._breaker, self.address, self.timeout):
            result = await self._ask(question, data, deadline)
        if isinstance(result, Exception):
            raise result
        return result

    async def _ask(self, question: Question, data: bytes, deadline: float) -> Any:
        pool, was_used = self._of_loop(), False
        try:
            connection = await pool.acquire(deadline)
            was_used = connection.answered
            return await self._exchange(connection, question, data, deadline)
        except LostError as error:
            if not (error.unread and was_used and question.may_repeat):
                raise ServerError("CLOSED", f"{self.address}: {error} before the reply") from None
        # A connection that had been used ended just now: once more over a fresh one.
        try:
            connection = await pool.acquire(deadline, since=time.monotonic())
            return await self._exchange(connection, question, data, deadline)
        except LostError as error:
            raise ServerError("CLOSED", f"{self.address}: {error} before the reply") from None

    async def _exchange(self, connection: Connection, question: Question, data: bytes,
                        deadline: float) -> Any:
        left = left_until(deadline)
        future = connection.send(question, data)
        timer = connection._loop.call_later(left, _expire, future)
        try:
            return await future
        except LateError:
            connection.retire()
            raise
        finally:
            timer.cancel()
