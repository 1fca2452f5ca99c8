# SPDX-License-Identifier: MIT
"""
A storage of the package `limits`, and so of flask-limiter and slowapi, in a stint table.

Importing this module registers the schemes `stint` and `async+stint`:

    stint:///dev/shm/app.stint     a table in this file, shared by every process that opens it
    stint://                       memory shared with processes that are forked later

Options, in the URI (`?keys=100000`) or as keywords (`storage_options`):

    keys            keys of a new table that are counted at the same time. Default 65,536
    moving_window   `window` (default): 16 bytes a key, and a unit returns at most 1/24 of the
                    period late. `log`: exact, 8 bytes a unit, limits up to 509
    table           a stint.Table to use, instead of one that the URI names

All strategies of `limits` keep their results. Any thread and any process may use a storage.
"""

from __future__ import annotations

import re
import time
import urllib.parse
from contextlib import suppress
from typing import Any

import limits
from limits.aio import storage as aio
from limits.errors import ConfigurationError
from limits.storage import MovingWindowSupport, SlidingWindowCounterSupport, Storage

import stint

from ._namespace import Namespace, open_shared

_MOVING_WINDOWS = ("window", "log")
_LIMITERS_MAX = 1024
_NS_PER_S = 1_000_000_000


def _whole(name: str, value: object) -> int:
    try:
        number = int(str(value))
    except ValueError:
        number = 0
    if number < 1:
        raise ConfigurationError(f"{name}={value} is not a number above 0")
    return number


def _open(uri: str, **sizes: Any) -> stint.Table:
    parts = urllib.parse.urlsplit(uri)
    if parts.netloc:
        raise ConfigurationError(
            f"{uri} has no path: three slashes come before the path of a file, as in "
            "stint:///dev/shm/app.stint"
        )
    if parts.path in ("", "/"):
        return stint.Table(**sizes)
    return open_shared(urllib.parse.unquote(parts.path), **sizes)


class StintStorage(Storage, MovingWindowSupport, SlidingWindowCounterSupport):
    """
    A storage in a stint table. A fixed window is a counter that expires; a moving window is a
    strict quota of stint; a sliding window counter is computed from two counters.
    """

    STORAGE_SCHEME = ["stint"]

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
            raise ConfigurationError(f"{uri}: {error}") from error
        sizes = {"keys": _whole("keys", options.pop("keys"))} if "keys" in options else {}
        moving_window = str(options.pop("moving_window", "window"))
        if moving_window not in _MOVING_WINDOWS:
            raise ConfigurationError(
                f"moving_window={moving_window} is none of {', '.join(_MOVING_WINDOWS)}"
            )
        if options:
            raise ConfigurationError(
                f"{next(iter(options))} is none of the options keys, moving_window, table"
            )
        self.moving_window = moving_window
        if moving_window == "log" and sizes:
            sizes["keys_wide"] = sizes["keys"]
        self.table = _open(uri, **sizes) if table is None else table
        self._names = Namespace(self.table, "limits")
        self._limiters: dict[tuple[int, int], stint.Limiter] = {}

    @property
    def base_exceptions(self) -> type[Exception]:
        return stint.Error

    # Counters: the strategy fixed-window

    def incr(
        self, key: str, expiry: int, amount: int = 1, *, elastic_expiry: bool = False
    ) -> int:
        """Adds to a counter, which expires `expiry` seconds after its first amount."""
        if elastic_expiry:  # of limits 4
            raise NotImplementedError("fixed-window-elastic-expiry; use the strategy moving-window")
        return self.table.count(self._names.key(key), amount, expiry).count

    def get(self, key: str) -> int:
        """A counter; 0 if there is none."""
        return self.table.counter(self._names.key(key)).count

    def get_expiry(self, key: str) -> float:
        """When a counter expires, in seconds since 1970; now if there is none."""
        return time.time() + self.table.counter(self._names.key(key)).expires_after

    def check(self) -> bool:
        """Whether the table can be used: always, once it is open."""
        return self.table.now() >= 0

    def reset(self) -> int | None:
        """Forgets every key of this storage, in all processes that share the table."""
        self._names.forget()
        return None

    def clear(self, key: str) -> None:
        """Forgets one key: its counter and its moving windows."""
        name = self._names.key(key)
        self.table.reset_counter(name)
        if item := re.search(r"/(\d+)/(\d+)/(\w+)$", key):  # RateLimitItem.key_for
            with suppress(ValueError):  # a key that only looks like one of an item
                limit = limits.parse("{} per {} {}".format(*item.groups()))
                self._limiter(limit.amount, limit.get_expiry())
        for limiter in list(self._limiters.values()):
            limiter.reset(name)

    # The strategy moving-window

    def _limiter(self, limit: int, expiry: int) -> stint.Limiter:
        limiter = self._limiters.get((limit, expiry))
        if limiter is None:
            quota = f"{self.moving_window} {limit}/{expiry}s when_full=evict"
            limiter = stint.Limiter(self.table, quota, name="limits")
            if len(self._limiters) >= _LIMITERS_MAX:
                self._limiters.clear()
            self._limiters[limit, expiry] = limiter
        return limiter

    def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        """Takes an amount if no window of `expiry` seconds then has more than the limit."""
        return self._limiter(limit, expiry).take(self._names.key(key), amount).allowed

    def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:
        """
        The start of the window (seconds since 1970) and the units in it. The next unit returns
        `expiry` seconds after the start.
        """
        limiter, name = self._limiter(limit, expiry), self._names.key(key)
        now = time.time()
        free = limiter.peek(name, 0).remaining
        if free >= limit:
            return now, 0
        more = limiter.peek(name, free + 1)
        return now + more.retry_after - expiry, limit - more.remaining

    # The strategy sliding-window-counter: windows are multiples of the period of the table's time

    def _windows(self, key: str, expiry: int) -> tuple[bytes, bytes, int]:
        """The counters of the previous and the current window, and the ns left of the current."""
        index, gone = divmod(self.table.now(), expiry * _NS_PER_S)
        name = self._names.key(key)
        return b"%b\0%d" % (name, index - 1), b"%b\0%d" % (name, index), expiry * _NS_PER_S - gone

    def acquire_sliding_window_entry(
        self, key: str, limit: int, expiry: int, amount: int = 1
    ) -> bool:
        """
        Takes an amount if it fits beside the current window and the part of the previous one that
        is not over. Of callers at once, those that find it full give their amount back.
        """
        previous, current, left_ns = self._windows(key, expiry)
        weighted = self.table.counter(previous).count * left_ns // (expiry * _NS_PER_S)
        if weighted + self.table.counter(current).count + amount > limit:
            return False
        if weighted + self.table.count(current, amount, 2 * expiry).count <= limit:
            return True
        self.table.count(current, -amount, 2 * expiry)
        return False

    def get_sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        """The count of the previous window, the seconds left of it; the same of the current one."""
        previous, current, left_ns = self._windows(key, expiry)
        left = left_ns / _NS_PER_S
        previous_count = self.table.counter(previous).count
        current_count = self.table.counter(current).count
        return previous_count, left if previous_count else 0.0, current_count, left + expiry

    def clear_sliding_window(self, key: str, expiry: int) -> None:
        """Forgets the counters of both windows."""
        for name in self._windows(key, expiry)[:2]:
            self.table.reset_counter(name)


class AsyncStintStorage(
    aio.Storage, aio.MovingWindowSupport, aio.SlidingWindowCounterSupport
):
    """StintStorage for asyncio. A call does not wait: it takes about a microsecond."""

    STORAGE_SCHEME = ["async+stint"]

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
        self.table = self._storage.table

    @property
    def base_exceptions(self) -> type[Exception]:
        return stint.Error

    async def incr(
        self, key: str, expiry: int, amount: int = 1, *, elastic_expiry: bool = False
    ) -> int:
        return self._storage.incr(key, expiry, amount, elastic_expiry=elastic_expiry)

    async def get(self, key: str) -> int:
        return self._storage.get(key)

    async def get_expiry(self, key: str) -> float:
        return self._storage.get_expiry(key)

    async def check(self) -> bool:
        return self._storage.check()

    async def reset(self) -> int | None:
        return self._storage.reset()

    async def clear(self, key: str) -> None:
        self._storage.clear(key)

    async def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        return self._storage.acquire_entry(key, limit, expiry, amount)

    async def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:
        return self._storage.get_moving_window(key, limit, expiry)

    async def acquire_sliding_window_entry(
        self, key: str, limit: int, expiry: int, amount: int = 1
    ) -> bool:
        return self._storage.acquire_sliding_window_entry(key, limit, expiry, amount)

    async def get_sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        return self._storage.get_sliding_window(key, expiry)

    async def clear_sliding_window(self, key: str, expiry: int) -> None:
        self._storage.clear_sliding_window(key, expiry)
