# SPDX-License-Identifier: MIT
"""
Buckets of PyrateLimiter 4 in a stint table.

    bucket = StintBucket([Rate(10, Duration.SECOND)], stint.Table("/dev/shm/app.stint"))
    limiter = Limiter(bucket)                                 # all items share one limit
    limiter = Limiter(StintBucketFactory(rates, table))       # each name has a limit of its own

All rates of a bucket are charged or none. Every process that opens the table shares the limit.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyrate_limiter import AbstractBucket, BucketFactory, Rate, RateItem

import stint

_SPECS = {
    "window": "window {limit}/{interval}ms",
    "log": "log {limit}/{interval}ms",
    "gcra": "gcra {limit}/{interval}ms burst={burst}",
}
_NS_PER_MS = 1_000_000


def _quota(rate: Rate, algorithm: str) -> stint.Quota:
    if algorithm not in _SPECS:
        raise ValueError(f"algorithm {algorithm!r} is none of {', '.join(_SPECS)}")
    return stint.Quota(_SPECS[algorithm].format_map(vars(rate)))


class StintBucket(AbstractBucket):
    """
    A bucket in a stint table. Time is the table's time, for all processes.

    algorithm: `window` (default) is strict, has 16 bytes a rate, and a unit returns at most 1/24 of
    the interval late; `log` is exact, with 8 bytes a unit and limits up to 509; `gcra` refills
    continuously, with the `burst` of each rate. Buckets of equal keys, rates and algorithm share
    their units. A bucket of a table in a file can be pickled, for spawned processes. Any
    thread.
    """

    is_async = False

    def __init__(
        self,
        rates: Sequence[Rate],
        table: stint.Table,
        key: str = "pyrate",
        algorithm: str = "window",
    ) -> None:
        super().__init__()
        self.rates = list(rates)
        self.table = table
        self.key = key
        self.algorithm = algorithm
        quotas = [_quota(rate, algorithm) for rate in self.rates]
        self._limiter = stint.Limiter(table, *quotas)
        self._longest = stint.Limiter(table, quotas[-1])

    @property
    def _name(self) -> bytes:
        return b"pyrate\0" + self.key.encode("utf-8", "surrogatepass")

    def for_key(self, key: str) -> StintBucket:
        """A bucket with the same rates and units of its own."""
        bucket = object.__new__(type(self))
        bucket.__dict__.update(self.__dict__, key=key, failing_rate=None, _last_wait=None)
        return bucket

    def now(self) -> int:
        """The table's time in milliseconds."""
        return self.table.now() // _NS_PER_MS

    def put(self, item: RateItem) -> bool:
        """Takes the item's weight under all rates or none."""
        decision = self._limiter.take(self._name, item.weight)
        self.failing_rate = None if decision else self.rates[decision.binding]
        wait = None if decision else self._wait_ms(decision)
        self._last_wait = None if wait is None or wait < 0 else (item.weight, item.timestamp + wait)
        return decision.allowed

    @staticmethod
    def _wait_ms(decision: stint.Decision) -> int:
        if decision.outcome == "never":
            return -1
        return -(-decision.retry_after_ns // _NS_PER_MS)

    def waiting(self, item: RateItem) -> int:
        """Milliseconds until the item fits if no other is put; -1: it never does."""
        return self._wait_ms(self._limiter.peek(self._name, item.weight))

    def leak(self, current_timestamp: int | None = None) -> int:
        """Nothing to do: units expire by themselves."""
        return 0

    def flush(self) -> None:
        """Forgets all units, for every process."""
        self._limiter.reset(self._name)
        self.failing_rate = None
        self._last_wait = None

    def count(self) -> int:
        """The units in use under the rate with the longest interval."""
        decision = self._longest.peek(self._name, 0)
        return decision.limit - decision.remaining

    def peek(self, index: int) -> RateItem | None:
        """None: a table keeps counts, not items."""
        return None


class StintBucketFactory(BucketFactory):
    """One limit for each name of an item, in one table. The arguments are those of StintBucket."""

    def __init__(
        self, rates: Sequence[Rate], table: stint.Table, algorithm: str = "window"
    ) -> None:
        super().__init__()
        self._bucket = StintBucket(rates, table, algorithm=algorithm)

    def wrap_item(self, name: str, weight: int = 1) -> RateItem:
        return RateItem(name, self._bucket.now(), weight)

    def get(self, item: RateItem) -> StintBucket:
        return self._bucket.for_key(item.name)
