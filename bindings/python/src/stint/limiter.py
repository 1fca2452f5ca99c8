# SPDX-License-Identifier: MIT
"""Limiters: what a program asks before it does something."""

from __future__ import annotations

import time

from . import _core
from .quota import NS_PER_S, Quota, quota_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Any

    from typing_extensions import Self

    from ._core import Decision
    from .remote import RemoteLimiter
    from .table import Table

RESERVED_FOR = 3600.0  # seconds in which a reservation can be settled, unless `expires` is given
# A holder may release at any time, before the end of its lease: waiters look again this often.
HELD_POLL = 0.05


class Limited(Exception):
    """Raised by Limiter.check() when units are refused; `decision` says why and for how long."""

    def __init__(self, decision: Decision) -> None:
        super().__init__(decision)
        self.decision = decision

    def __str__(self) -> str:
        quota = f" by {self.decision.quota}" if self.decision.quota is not None else ""
        if self.decision.outcome == "never":
            return f"refused{quota}: more units than the quota ever grants"
        return f"refused{quota}: retry after {self.decision.retry_after:.3f} s"


class _Ticketed:
    """Units that were granted under a ticket, which is good once."""

    __slots__ = ("_is_open", "_limiter", "decision", "ticket")

    def __init__(self, limiter: Limiter, decision: Decision, ticket: tuple[int, int]) -> None:
        self._limiter = limiter
        self.decision = decision
        self.ticket = ticket
        self._is_open = decision.allowed

    def __bool__(self) -> bool:
        return self.decision.allowed

    def cancel(self) -> Decision:
        """Gives all units back. GoneError if they expired, and the second time."""
        self._is_open = False
        return self._limiter._cancel(*self.ticket)

    def _cancel_if_open(self) -> None:
        try:
            if self._is_open:
                self.cancel()
        except _core.GoneError:
            pass  # it expired meanwhile: nothing is left to give back


class Reservation(_Ticketed):
    """Units that were charged as estimated, to be settled once the real cost is known.

    True if the units were granted. In a with-statement an exception cancels it; leaving without
    settle() keeps the estimate. settle() and cancel() raise GoneError when it was closed already or
    has expired, and for one that was refused.
    """

    __slots__ = ()

    def settle(self, actual: int) -> Decision:
        """Corrects the charge to the units that were really used; the decision is that of the
        refund or charge that was made."""
        decision = self._limiter._settle(*self.ticket, actual)
        self._is_open = False
        return decision

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if kind is not None:
            self._cancel_if_open()


class Hold(_Ticketed):
    """Units of a concurrency quota that are held until release(), or until their lease ends.

    True if the units are held. A with-statement releases them at its end; it raises Limited if they
    were refused.
    """

    __slots__ = ()

    def renew(self) -> None:
        """Moves the end of the lease to a whole lease from now. GoneError once it has ended."""
        self._limiter._renew(*self.ticket)

    release = _Ticketed.cancel

    def __enter__(self) -> Self:
        if not self.decision.allowed:
            raise Limited(self.decision)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._cancel_if_open()


class Limiter(_core.Limiter):
    """One to 32 quotas on the keys of a table; a request is charged to all of them or to none.

    Limiter(table, "100/1m", "1000/1h", name="login")

    quotas: SPECs or Quota objects. name: the limiter's states are its own, and stay when a limit
    changes; all processes give the same name. Without a name, limiters with equal quotas share
    states. Raises QuotaError for a quota that the table cannot keep, TableError when the table has
    too many different ones.

    Any thread and process may use a limiter. It never waits, except in wait() and wait_async(), and
    for a process that is stopped while it changes a state above 16 bytes: up to 10 ms.
    """

    __slots__ = ()
    if TYPE_CHECKING:
        @property
        def quotas(self) -> tuple[Quota, ...]: ...
        @property
        def table(self) -> Table: ...

    def __new__(cls, table: Table, *quotas: str | Quota, name: str | None = None) -> Self:
        checked = tuple(Quota(q) if isinstance(q, str) else q for q in quotas)
        label = name if isinstance(name, str) else ", ".join(map(str, checked))
        return super().__new__(cls, table, checked, name, label)

    @staticmethod
    def connect(url: str, *quotas: str | Quota, **options: Any) -> RemoteLimiter:
        """A limiter of a server, with the same methods: see stint.remote.connect().

        connect("stint://127.0.0.1:7379", "100/1m", name="login", timeout=0.05, on_error="allow")
        """
        from .remote import connect

        return connect(url, *quotas, **options)

    def check(self, key: str | bytes, cost: int = 1) -> Decision:
        """As take(), but raises Limited when the units are refused."""
        decision = self.take(key, cost)
        if not decision:
            raise Limited(decision)
        return decision

    def reserve(self, key: str | bytes, estimate: int,
                expires: float | None = None) -> Reservation:
        """Charges an estimate, to be corrected by settle() or cancel() of the Reservation.

        expires: seconds in which it can be settled, 1 h by default. One that is never settled stays
        charged as estimated.
        """
        lifetime = RESERVED_FOR if expires is None else expires
        decision, slot, nonce = self._reserve(key, estimate, lifetime)
        return Reservation(self, decision, (slot, nonce))

    def hold(self, key: str | bytes, cost: int = 1) -> Hold:
        """Holds units of concurrency quotas until the end of a with-statement.

        A holder that crashes loses them when the lease of the quota ends. QuotaError for other
        algorithms.
        """
        for quota in self.quotas:
            if quota.algorithm != "concurrency":
                raise quota_error("MISMATCH", f"{quota} is not of concurrency: only units of "
                                              "such a quota are held; use reserve() for others")
        decision, slot, nonce = self._reserve(key, cost, RESERVED_FOR)
        return Hold(self, decision, (slot, nonce))

    def wait(self, key: str | bytes, cost: int = 1, timeout: float | None = None) -> Decision:
        """Sleeps until the units are granted.

        Returns a refusal at once if they can never be granted, or not within `timeout` seconds.
        """
        clock = self.table.clock
        sleep = time.sleep if clock is None else clock.advance
        waits = self._waits(key, cost, timeout)
        for decision, seconds in waits:
            if seconds is None:
                return decision
            sleep(seconds)
        raise AssertionError("unreachable")

    async def wait_async(self, key: str | bytes, cost: int = 1,
                         timeout: float | None = None) -> Decision:
        """As wait(), for asyncio: other tasks run meanwhile."""
        from asyncio import sleep

        clock = self.table.clock
        for decision, seconds in self._waits(key, cost, timeout):
            if seconds is None:
                return decision
            if clock is None:
                await sleep(seconds)
            else:
                await sleep(0)
                clock.advance(seconds)
        raise AssertionError("unreachable")

    def _waits(self, key: str | bytes, cost: int,
               timeout: float | None) -> Iterator[tuple[Decision, float | None]]:
        """Takes, and yields each decision with the seconds to sleep; None ends the wait."""
        if timeout is not None and not timeout >= 0:
            raise quota_error("RANGE", f"timeout is {timeout} s; expected 0 or more, or None")
        now = self.table.now
        end_ns = None if timeout is None else now() + timeout * NS_PER_S
        is_held = any(quota.algorithm == "concurrency" for quota in self.quotas)
        while True:
            decision = self.take(key, cost)
            if decision or decision.outcome == "never":
                yield decision, None
                return
            seconds = decision.retry_after
            left = None if end_ns is None else (end_ns - decision.at_ns) / NS_PER_S
            if is_held:
                seconds = min(seconds, HELD_POLL)
                if left is not None:
                    seconds = min(seconds, left)
            if left is not None and (left <= 0 or seconds > left):
                yield decision, None
                return
            yield decision, seconds

    def __repr__(self) -> str:
        name = f" name={self.name!r}" if self.name is not None else ""
        return f"<stint.Limiter {', '.join(map(str, self.quotas))}{name}>"

    def __reduce__(self) -> tuple[object, ...]:
        return _remake, (self.table, self.quotas, self.name)


def _remake(table: Table, quotas: tuple[Quota, ...], name: str | None) -> Limiter:
    return Limiter(table, *quotas, name=name)
