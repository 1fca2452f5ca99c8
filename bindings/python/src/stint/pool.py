# SPDX-License-Identifier: MIT
"""Pools of keys: several API keys, accounts or addresses, each with its own quotas."""

from __future__ import annotations

from . import _core
from .quota import NS_PER_S, Quota, quota_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from typing_extensions import Self

    from ._core import Decision
    from .table import Table

    Quotas = str | Quota | Iterable[str | Quota]

ORDERS = ("round_robin", "fill_first", "least_used")
STANDINGS = ("free", "used_up", "cooling", "backing_off", "out")
_OK, _COOL, _BACK_OFF, _OUT = range(4)
_NEVER_NS = 2**64 - 1


def _seconds(ns: int) -> float:
    return float("inf") if ns == _NEVER_NS else ns / NS_PER_S


class Lease:
    """A key that may be used now, or the wait until one may. True if there is a key.

    name: the key, or None. retry_after: seconds until the first key is free; math.inf if none ever
    is. granted_at_ns: for give_back(). probe: the key still cools down: try it, and report.
    decision: of the key, or of the one that is free first.
    """

    __slots__ = ("decision", "granted_at_ns", "name", "probe", "retry_after")

    def __init__(self, name: str | None, wait_ns: int, granted_at_ns: int, probe: bool,
                 decision: Decision) -> None:
        self.name = name
        self.retry_after = _seconds(wait_ns)
        self.granted_at_ns = granted_at_ns
        self.probe = probe
        self.decision = decision

    def __bool__(self) -> bool:
        return self.name is not None

    def __repr__(self) -> str:
        if self.name is None:
            return f"<stint.Lease of no key: retry_after={self.retry_after}>"
        return f"<stint.Lease {self.name!r}>"


class KeyStatus:
    """One key of a pool: its name, weight, standing ("free", "used_up", "cooling", "backing_off" or
    "out"), failures in turn, and seconds until a unit may be taken."""

    __slots__ = ("decision", "failures", "name", "returns_after", "standing", "weight")

    def __init__(self, name: str, weight: int, standing: int, failures: int,
                 returns_after_ns: int, decision: Decision) -> None:
        self.name = name
        self.weight = weight
        self.standing = STANDINGS[standing]
        self.failures = failures
        self.returns_after = _seconds(returns_after_ns)
        self.decision = decision

    def __repr__(self) -> str:
        return f"<stint.KeyStatus {self.name!r}: {self.standing}>"


class Pool(_core.Pool):
    """Names of keys, of which next() returns one whose quotas have the units.

    Pool(table, "openai", {"first": "60/1m", "second": ["60/1m", "1000/1d"]})
    Pool(table, "openai", ["first", "second"], quota="60/1m")

    name: processes with the same table and name share what is used. keys: names, never secrets:
    they are kept in the table's process and printed. order: "round_robin", "fill_first" (the first
    that has units) or "least_used". keys_max: names that fit, 1,024 by default, at most 65,536.

    Any thread and process may use a pool. Raises TableError when the table has too many pools,
    QuotaError for a name or a quota that cannot be.
    """

    __slots__ = ("name", "table")
    name: str
    table: Table

    def __new__(cls, table: Table, name: str, keys: Mapping[str, Quotas] | Iterable[str] = (), *,
                quota: Quotas | None = None, order: str = "round_robin",
                keys_max: int = 1024) -> Self:
        if order not in ORDERS:
            raise quota_error("MISMATCH",
                              f"order is {order!r}; expected one of {', '.join(ORDERS)}")
        self = super().__new__(cls, table, name, ORDERS.index(order), keys_max)
        self.name = name
        self.table = table
        quotas = keys if hasattr(keys, "items") else dict.fromkeys(keys, quota)
        for key, its in quotas.items():
            self.add(key, quota if its is None else its)
        return self

    def add(self, key: str, quota: Quotas | None, *, weight: int = 1) -> None:
        """Adds a key: printable text without blanks. What it has used already counts.

        quota: up to 4, charged all or none. weight: 1 to 1,000, turns in a round.
        """
        if quota is None:
            raise quota_error("MISMATCH", f"the key {key!r} has no quota; give one with quota=")
        quotas = (quota,) if isinstance(quota, (str, _core.Quota)) else tuple(quota)
        self._add(key, tuple(Quota(q) if isinstance(q, str) else q for q in quotas), weight)

    def remove(self, key: str) -> None:
        """Takes a key out of this process's list. GoneError if it is not there."""
        self._remove(key)

    def next(self, cost: int = 1, *, probe: bool = False) -> Lease:
        """Chooses a key and charges all its quotas, in one step.

        probe: if all keys cool down, try the one whose cooldown ends first.
        """
        return Lease(*self._next(cost, probe))

    def report(self, key: str, cooldown: float | None = None, *, ok: bool | None = None,
               out: bool = False) -> None:
        """The outcome of a call to the upstream service, for all that share the pool.

        cooldown: it answered 429 and this Retry-After, in seconds. ok=True: it worked, which ends a
        cooldown. ok=False: it failed without a time; the key backs off for 1 s, doubled each time.
        out=True: the key was refused (401, 403); it rests until it is reported ok.
        """
        if (cooldown is not None) + (ok is not None) + out != 1:
            raise TypeError("report() needs one of cooldown=, ok= and out=")
        outcome = _COOL if cooldown is not None else _OUT if out else _OK if ok else _BACK_OFF
        self._report(key, outcome, 0.0 if cooldown is None else cooldown)

    def give_back(self, key: str, cost: int = 1, granted_at_ns: int | None = None) -> int:
        """Gives back units that were not used; returns how many came back.

        granted_at_ns: that of the lease; None counts as granted now.
        """
        return self._give_back(key, cost, granted_at_ns)

    def status(self) -> list[KeyStatus]:
        """All keys of this process's list, oldest first."""
        return [KeyStatus(*row) for row in self._status()]

    def __repr__(self) -> str:
        return f"<stint.Pool {self.name!r}>"
