# SPDX-License-Identifier: MIT
"""Addresses of servers."""
from __future__ import annotations

import concurrent.futures
import ipaddress
import socket
import ssl
import threading
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

EXPECTED: Final = (
    "expected stint://HOST:7379, stints://HOST:PORT, unix:/PATH, http://HOST:PORT or https://HOST"
)
_SCHEMES: Final = {  # is_http, is_tls, default port
    "stint": (False, False, 7379),
    "stints": (False, True, 7379),
    "unix": (False, False, 0),
    "http": (True, False, 80),
    "https": (True, True, 443),
}

SockAddr = Any  # as socket.connect() takes it
Target = "tuple[int, SockAddr]"  # address family, address


@dataclass(frozen=True)
class Address:
    """Where a server is, and how it is spoken to. str() has no secret."""

    scheme: str
    host: str
    port: int
    path: str  # of a socket, or before /v1 of URLs
    user: str | None = None
    secret: str | None = field(default=None, repr=False)

    @property
    def is_http(self) -> bool:
        return _SCHEMES[self.scheme][0]

    @property
    def is_tls(self) -> bool:
        return _SCHEMES[self.scheme][1]

    @property
    def host_port(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        if self.scheme == "unix":
            return f"unix:{self.path}"
        return f"{self.scheme}://{self.host_port}{self.path}"


def _bad(url: str, why: str) -> ValueError:
    shown = url.rpartition("@")[2]  # without a secret
    return ValueError(f"url {shown!r}: {why}; {EXPECTED}")


def _port_of(url: str, parts: SplitResult, default: int) -> int:
    try:
        port = parts.port
    except ValueError:
        raise _bad(url, "the port is no number from 1 to 65535") from None
    if port == 0:
        raise _bad(url, "the port is 0")
    return default if port is None else port


def parse(url: str, token: str | None = None) -> Address:
    """An address from a URL; `token` is a secret that is not in it. ValueError for a bad one."""
    if not isinstance(url, str):
        raise TypeError(f"url: expected a str, found {type(url).__name__}")
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError as error:
        raise _bad(url, str(error)) from None
    scheme = parts.scheme
    if scheme not in _SCHEMES:
        raise _bad(url, f"the scheme {scheme!r} is unknown" if scheme else "it has no scheme")
    if parts.query or parts.fragment:
        raise _bad(url, "nothing after ? or # is known")
    user = unquote(parts.username) if parts.username else None
    secret = unquote(parts.password) if parts.password else None
    if token is not None and secret is not None:
        raise _bad(url, "it has a secret, and there is a token")
    secret = token if token is not None else secret
    if user is not None and secret is None:
        raise _bad(url, f"a user without a secret; write {scheme}://:SECRET@HOST")
    if secret is not None and (not secret or any(ord(c) <= 32 or ord(c) > 126 for c in secret)):
        raise ValueError("token: expected printable characters of ASCII without blanks")
    if scheme == "unix":
        if host or not parts.path.startswith("/"):
            raise _bad(url, "the path of the socket is not absolute")
        return Address(scheme, "", 0, unquote(parts.path), user, secret)
    if not host:
        raise _bad(url, "it has no host")
    path = parts.path.rstrip("/")
    if path and not _SCHEMES[scheme][0]:
        raise _bad(url, f"{scheme}:// has no path")
    if any(c <= " " or c > "~" for c in path):
        raise _bad(url, "the path has a character that has to be written as %XX")
    port = _port_of(url, parts, _SCHEMES[scheme][2])
    return Address(scheme, host, port, path, user, secret)


class Resolver:
    """Addresses behind a name; the one that was reached last comes first. Thread-safe.

    getaddrinfo() has no timeout, so it runs in a thread of its own, at most one for a resolver at
    a time; a caller waits for it as long as it can.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._pending: concurrent.futures.Future[list[tuple[int, SockAddr]]] | None = None
        self._last: SockAddr = None
        self._is_name = address.scheme != "unix" and not _is_numeric(address.host)

    def targets(self) -> concurrent.futures.Future[list[tuple[int, SockAddr]]]:
        """(family, address) of all addresses, at once if no name has to be looked up."""
        if self._is_name:
            with self._lock:
                if self._pending is None:
                    self._pending = concurrent.futures.Future()
                    threading.Thread(
                        target=self._look_up, args=(self._pending,), daemon=True,
                        name="stint-resolver",
                    ).start()
                return self._pending
        known: concurrent.futures.Future[list[tuple[int, SockAddr]]] = concurrent.futures.Future()
        if self._address.scheme == "unix":
            known.set_result([(int(socket.AF_UNIX), self._address.path)])
        else:
            known.set_result(self._ask(socket.AI_NUMERICHOST))
        return known

    def reached(self, target: SockAddr) -> None:
        self._last = target

    def forget(self) -> None:
        """In a child after fork(): the thread of a pending look-up was not copied."""
        self._lock = threading.Lock()
        self._pending = None

    def _ask(self, flags: int = 0) -> list[tuple[int, SockAddr]]:
        found = socket.getaddrinfo(
            self._address.host, self._address.port, type=socket.SOCK_STREAM, flags=flags
        )
        targets = list(dict.fromkeys((int(family), sockaddr) for family, _, _, _, sockaddr in found))
        return sorted(targets, key=lambda target: target[1] != self._last)

    def _look_up(self, pending: concurrent.futures.Future[list[tuple[int, SockAddr]]]) -> None:
        try:
            targets = self._ask()
        except (OSError, UnicodeError) as error:
            self._done(pending)
            pending.set_exception(error if isinstance(error, OSError) else OSError(str(error)))
        else:
            self._done(pending)
            pending.set_result(targets)

    def _done(self, pending: object) -> None:
        with self._lock:
            if self._pending is pending:
                self._pending = None


def _is_numeric(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def tls_context(address: Address, tls: ssl.SSLContext | None) -> ssl.SSLContext | None:
    """The context of an address: that of the caller, or the system's authorities."""
    if not address.is_tls:
        if tls is not None:
            raise ValueError(f"tls: {address} has no TLS; use stints:// or https://")
        return None
    if tls is not None:
        return tls
    return ssl.create_default_context()
