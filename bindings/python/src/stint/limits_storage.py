# SPDX-License-Identifier: MIT
"""
A storage of the package `limits` (4.1 or later), and so of flask-limiter and slowapi, in stint.

Importing this module registers the schemes `stint` and `stints`, and `async+` with each:

    stint:///dev/shm/app.stint     a table in this file, shared by every process that opens it
    stint://                       memory shared with processes that are forked later
    stint://:SECRET@HOST:7379      a server of stint; stints:// with TLS. The secret is optional

Options, in the URI (`?keys=100000`) or as keywords (`storage_options`):

    keys            keys of a new table that are counted at the same time. Default 65,536; under
                    moving_window=log 1,024. With more, the lowest counts are forgotten first
    moving_window   `window` (default): 16 bytes a key, and a unit returns at most 1/24 of the
                    period late. `log`: exact, 4 KiB a key, limits up to 509
    table           a stint.Table to use, instead of one that the URI names

All strategies of `limits` keep their results. Any thread and any process may use a storage. Errors
are stint.Error.
"""

from __future__ import annotations

import asyncio
import re
import time
import urllib.parse
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import limits
from limits.aio import storage as aio
from limits.errors import ConfigurationError

try:
    from limits.storage import MovingWindowSupport, SlidingWindowCounterSupport, Storage
except ImportError as error:
    raise ImportError("stint.limits_storage needs limits 4.1 or later") from error

import stint

from ._namespace import Namespace, open_shared

if TYPE_CHECKING:
    from .remote import RemoteCount, RemoteLimiter, RemoteTable

_MOVING_WINDOWS = ("window", "log")
_LIMITERS_MAX = 1024
_NS_PER_S = 1_000_000_000


_Result = TypeVar("_Result")


def _no_elastic_expiry() -> NotImplementedError:
    return NotImplementedError(
        "stint has no fixed-window-elastic-expiry, a strategy of limits 4; use moving-window"
    )


def _item(key: str) -> limits.RateLimitItem | None:
    """The item of a key that RateLimitItem.key_for() made."""
    found = re.search(r"/(\d+)/(\d+)/(\w+)$", key)
    with suppress(ValueError):  # it only looks like one
        return limits.parse("{} per {} {}".format(*found.groups())) if found else None
    return None


class _TableCounters:
    """Counters of a table."""

    def __init__(self, table: stint.Table) -> None:
        self.table = table
        self.now, self.count = table.now, table.count
        self.counter, self.reset = table.counter, table.reset_counter
        names = Namespace(table, "limits")
        self.name, self.forget = names.key, names.forget

    def limiter(self, quota: str) -> stint.Limiter:
        return stint.Limiter(self.table, quota, name="limits")

    def check(self) -> bool:
        return not self.table.closed


class _ServerCounters:
    """Counters of a server: in its table, or in the store that several servers share."""

    now = staticmethod(time.time_ns)  # windows of time have names: clocks may differ a little

    def __init__(self, table: RemoteTable) -> None:
        self.table = table
        self.count, self.counter, self.reset = table.count, table.counter, table.reset_counter
        weakref.finalize(self, table.close)  # a storage of `limits` is never closed

    def name(self, key: str) -> bytes:
        return b"limits:" + key.encode("utf-8", "surrogatepass")

    def forget(self) -> None:
        raise NotImplementedError("a storage cannot forget all keys of a server, which are shared")

    def limiter(self, quota: str) -> RemoteLimiter:
        return self.table.limiter(quota, name="limits")

    def check(self) -> bool:
        with suppress(stint.Error):
            return self.table.now() >= 0
        return False


def _whole(name: str, value: object) -> int:
    try:
        number = int(str(value))
    except ValueError:
        number = 0
    if number < 1:
        raise ConfigurationError(f"{name}={value} is not a number above 0")
    return number


def _open(uri: str, **sizes: Any) -> _TableCounters | _ServerCounters:
    parts = urllib.parse.urlsplit(uri)
    if re.search(r":\d+$", parts.netloc) and parts.path in ("", "/") and not sizes:
        from .remote import RemoteTable

        return _ServerCounters(RemoteTable(f"{parts.scheme}://{parts.netloc}"))
    if parts.netloc or parts.scheme == "stints":
        raise ConfigurationError(
            f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path} is neither a file "
            "(stint:///dev/shm/app.stint, with three slashes) nor a server (stint://HOST:7379, "
            "with a port, and without keys)"
        )
    if parts.path in ("", "/"):
        return _TableCounters(stint.Table(**sizes))
    return _TableCounters(open_shared(urllib.parse.unquote(parts.path), **sizes))


class StintStorage(Storage, MovingWindowSupport, SlidingWindowCounterSupport):
    """
    A storage in a table or a server of stint. A fixed window is a counter that expires; a moving
    window is a strict quota; a sliding window counter is computed from two counters.
    """

    STORAGE_SCHEME = ["stint", "stints"]

    def __init__(
        self,
        uri: str | None = None,
        wrap_exceptions: bool = False,
        *,
        table: stint.Table | None = None,
        **options: Any,
    ) -> None:
        super().__init__(uri, wrap_exceptions=wrap_exceptions)
        uri = uri or "stint://"
        query = urllib.parse.urlsplit(uri).query
        try:
            options = {**dict(urllib.parse.parse_qsl(query, True, bool(query))), **options}
        except ValueError as error:
            raise ConfigurationError(f"the options {query}: {error}") from error
        sizes = {"keys": _whole("keys", options.pop("keys"))} if "keys" in options else {}
        self.moving_window = options.pop("moving_window", "window")
        if self.moving_window not in _MOVING_WINDOWS:
            raise ConfigurationError(
                f"moving_window={self.moving_window} is none of {', '.join(_MOVING_WINDOWS)}"
            )
        if options:
            raise ConfigurationError(
                f"{next(iter(options))} is none of the options keys, moving_window, table"
            )
        if self.moving_window == "log" and sizes:
            sizes["keys_wide"] = sizes["keys"]
        self._counters = _open(uri, **sizes) if table is None else _TableCounters(table)
        self._limiters: dict[tuple[int, int], stint.Limiter | RemoteLimiter] = {}

    @property
    def is_remote(self) -> bool:
        """Whether calls wait for a server."""
        return isinstance(self._counters, _ServerCounters)

    @property
    def base_exceptions(self) -> type[Exception]:
        return stint.Error

    # Counters: the strategy fixed-window

    def incr(
        self, key: str, expiry: int, amount: int = 1, *, elastic_expiry: bool = False
    ) -> int:
        """Adds to a counter, which expires `expiry` seconds after its first amount."""
        if elastic_expiry:
            raise _no_elastic_expiry()
        return self._counters.count(self._counters.name(key), amount, expiry).count

    def _counter(self, key: str) -> stint.Count | RemoteCount:
        return self._counters.counter(self._counters.name(key))

    def get(self, key: str) -> int:
        """A counter; 0 if there is none."""
        return self._counter(key).count

    def get_expiry(self, key: str) -> float:
        """When a counter expires, in seconds since 1970; now if there is none."""
        return time.time() + self._counter(key).expires_after

    def check(self) -> bool:
        """Whether the table is open, or the server answers."""
        return self._counters.check()

    def reset(self) -> int | None:
        """
        Forgets every key of this storage, in all processes that share the table.
        NotImplementedError for a server.
        """
        self._counters.forget()
        return None

    def clear(self, key: str) -> None:
        """Forgets one key: its counter and its windows."""
        name = self._counters.name(key)
        item = _item(key)
        if item is None:
            for limiter in list(self._limiters.values()):
                limiter.reset(name)
        else:
            self.clear_sliding_window(key, item.get_expiry())
            with suppress(stint.QuotaError):  # a limit that no moving window can have
                self._limiter(item.amount, item.get_expiry()).reset(name)
        self._counters.reset(name)

    # The strategy moving-window

    def _limiter(self, limit: int, expiry: int) -> stint.Limiter | RemoteLimiter:
        limiter = self._limiters.get((limit, expiry))
        if limiter is None:
            quota = f"{self.moving_window} {limit}/{expiry}s when_full=evict"
            limiter = self._counters.limiter(quota)
            if len(self._limiters) >= _LIMITERS_MAX:
                self._limiters.clear()
            self._limiters[limit, expiry] = limiter
        return limiter

    def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        """Takes an amount if no window of `expiry` seconds then has more than the limit."""
        return self._limiter(limit, expiry).take(self._counters.name(key), amount).allowed

    def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:
        """
        The start of the window (seconds since 1970) and the units in it. The next unit returns
        `expiry` seconds after the start.
        """
        limiter, name = self._limiter(limit, expiry), self._counters.name(key)
        now = time.time()
        free = limiter.peek(name, 0).remaining
        if free >= limit:
            return now, 0
        more = limiter.peek(name, free + 1)
        return now + more.retry_after - expiry, limit - more.remaining

    # The strategy sliding-window-counter: windows are multiples of the period of the table's time

    def _windows(self, key: str, expiry: int) -> tuple[bytes, bytes, int]:
        """The counters of the previous and the current window, and the ns left of the current."""
        index, gone = divmod(self._counters.now(), expiry * _NS_PER_S)
        name = self._counters.name(key)
        return b"%b\0%d" % (name, index - 1), b"%b\0%d" % (name, index), expiry * _NS_PER_S - gone

    def acquire_sliding_window_entry(
        self, key: str, limit: int, expiry: int, amount: int = 1
    ) -> bool:
        """
        Takes an amount if it fits beside the current window and the part of the previous one that
        is not over. Of callers at once, those that find it full give their amount back.
        """
        previous, current, left_ns = self._windows(key, expiry)
        counters = self._counters
        weighted = counters.counter(previous).count * left_ns // (expiry * _NS_PER_S)
        if weighted + counters.counter(current).count + amount > limit:
            return False
        if weighted + counters.count(current, amount, 2 * expiry).count <= limit:
            return True
        counters.count(current, -amount)
        return False

    def get_sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        """The count of the previous window, the seconds left of it; the same of the current one."""
        previous, current, left_ns = self._windows(key, expiry)
        left = left_ns / _NS_PER_S
        previous_count = self._counters.counter(previous).count
        current_count = self._counters.counter(current).count
        return previous_count, left if previous_count else 0.0, current_count, left + expiry

    def clear_sliding_window(self, key: str, expiry: int) -> None:
        """Forgets the counters of both windows."""
        for name in self._windows(key, expiry)[:2]:
            self._counters.reset(name)


class AsyncStintStorage(aio.Storage, aio.MovingWindowSupport, aio.SlidingWindowCounterSupport):
    """
    StintStorage for asyncio. With a table a call does not wait: it takes a few microseconds. Calls
    of a server run in threads.
    """

    STORAGE_SCHEME = ["async+stint", "async+stints"]

    def __init__(
        self,
        uri: str | None = None,
        wrap_exceptions: bool = False,
        *,
        table: stint.Table | None = None,
        **options: Any,
    ) -> None:
        super().__init__(uri, wrap_exceptions=wrap_exceptions)
        self._storage = StintStorage((uri or "").removeprefix("async+"), table=table, **options)

    async def _call(self, method: Callable[..., _Result], *args: Any) -> _Result:
        if self._storage.is_remote:
            return await asyncio.to_thread(method, *args)
        return method(*args)

    @property
    def base_exceptions(self) -> type[Exception]:
        return stint.Error

    async def incr(
        self, key: str, expiry: int, amount: int = 1, *, elastic_expiry: bool = False
    ) -> int:
        if elastic_expiry:
            raise _no_elastic_expiry()
        return await self._call(self._storage.incr, key, expiry, amount)

    async def get(self, key: str) -> int:
        return await self._call(self._storage.get, key)

    async def get_expiry(self, key: str) -> float:
        return await self._call(self._storage.get_expiry, key)

    async def check(self) -> bool:
        return await self._call(self._storage.check)

    async def reset(self) -> int | None:
        return await self._call(self._storage.reset)

    async def clear(self, key: str) -> None:
        await self._call(self._storage.clear, key)

    async def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        return await self._call(self._storage.acquire_entry, key, limit, expiry, amount)

    async def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:
        return await self._call(self._storage.get_moving_window, key, limit, expiry)

    async def acquire_sliding_window_entry(
        self, key: str, limit: int, expiry: int, amount: int = 1
    ) -> bool:
        return await self._call(
            self._storage.acquire_sliding_window_entry, key, limit, expiry, amount
        )

    async def get_sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        return await self._call(self._storage.get_sliding_window, key, expiry)

    async def clear_sliding_window(self, key: str, expiry: int) -> None:
        await self._call(self._storage.clear_sliding_window, key, expiry)
