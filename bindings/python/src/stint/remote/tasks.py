# SPDX-License-Identifier: MIT
"""Limiters and pools of a server, for tasks of asyncio."""
from __future__ import annotations

import asyncio
import ssl
import time
from typing import Any, Generic, TypeVar

from .._core import GoneError
from ..limiter import Limited
from ..pool import KeyStatus, Lease
from ..quota import Quota
from .address import parse, tls_context
from .aio import AsyncPool
from .codec import Question
from .errors import ServerError
from .limiter import TIMEOUT, check_options
from .questions import (
    Descriptors,
    PoolQuestions,
    Quotas,
    Rules,
    Target,
    count,
    key_bytes,
    next_wait,
    no_ticket,
    units,
)
from .replies import RemoteCount, RemoteDecision

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator
    from types import TracebackType

    from typing_extensions import Self


class AsyncTable:
    """A server, for tasks of any event loop: RemoteTable, whose parameters it has.

    Each event loop has connections of its own. On one connection many questions are on their way
    at a time; over HTTP one.
    """

    def __init__(self, url: str, *, token: str | None = None, timeout: float = TIMEOUT,
                 tls: ssl.SSLContext | None = None, connections: int = 8,
                 request_ids: bool = True) -> None:
        check_options(timeout, connections)
        self.address = parse(url, token)
        self.request_ids = request_ids
        self._pool = AsyncPool(self.address, timeout, tls_context(self.address, tls), connections)

    def limiter(self, *quotas: str | Quota, name: str | None = None,
                on_error: str = "raise") -> AsyncLimiter:
        """A limiter of this server, as AsyncLimiter.connect() makes one."""
        return AsyncLimiter(self, *quotas, name=name, on_error=on_error)

    def rules(self, domain: str, *, on_error: str = "raise") -> AsyncRules:
        """The rules of a domain that the server has; the quotas are there."""
        return AsyncRules(self, domain, on_error=on_error)

    def pool(self, name: str, *, request_ids: bool | None = None) -> AsyncRemotePool:
        """A pool of keys that the server's config file defines, as RemoteTable.pool()."""
        return AsyncRemotePool(self, name, request_ids=request_ids)

    async def now(self) -> int:
        """The time that the server's decisions use, in ns: a virtual clock stands still."""
        return int(await self.ask(Question("clock")))

    async def count(self, key: str | bytes, amount: int = 1,
                    expiry: float | None = None) -> RemoteCount:
        """Adds to a counter that expires: stint.Table.count(), in whole milliseconds.

        It carries no request id, and is never repeated. Raises ServerError and QuotaError.
        """
        counted: RemoteCount = await self.ask(count(key, amount, expiry))
        return counted

    async def counter(self, key: str | bytes) -> RemoteCount:
        """The counter of a key, without a change."""
        read: RemoteCount = await self.ask(Question("counter", key=key_bytes(key)))
        return read

    async def reset_counter(self, key: str | bytes) -> None:
        """Forgets the counter of a key."""
        await self.ask(Question("reset_counter", key=key_bytes(key)))

    async def ask(self, question: Question) -> Any:
        return await self._pool.ask(question)

    async def close(self) -> None:
        """Closes the connections of this event loop, before it ends; a later question opens one."""
        await self._pool.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<stint.AsyncTable {self.address}>"


class AsyncReservation:
    """Units that a server charged as estimated: stint.Reservation, to be awaited."""

    __slots__ = ("_is_open", "_limiter", "decision", "ticket")

    def __init__(self, limiter: _Limiter[Any], decision: RemoteDecision) -> None:
        self._limiter = limiter
        self.decision, self.ticket = decision, decision.ticket
        self._is_open = decision.allowed

    def __bool__(self) -> bool:
        return self.decision.allowed

    async def settle(self, actual: int) -> RemoteDecision:
        """Corrects the charge to the units that were really used."""
        return await self._end("settle", cost=units(actual, "actual"))

    async def cancel(self) -> RemoteDecision:
        """Gives all units back."""
        return await self._end("cancel")

    async def _end(self, verb: str, **options: int) -> RemoteDecision:
        if self.ticket is None:
            if not self._is_open:
                raise no_ticket()
            self._is_open = False
            return self.decision
        question = self._limiter._target.of_ticket(verb, self.ticket, **options)
        decision = await self._limiter._decide(question)
        self._is_open = False
        return decision

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        if kind is not None:
            await self._cancel_if_open()

    async def _cancel_if_open(self) -> None:
        """At the end of a block: its own exception is the one that counts."""
        if self._is_open:
            try:
                await self.cancel()
            except (GoneError, ServerError):
                pass  # it stays charged as estimated, or is over


class AsyncHold(AsyncReservation):
    """Units of a concurrency quota that a server holds: stint.Hold, to be awaited."""

    __slots__ = ()

    async def renew(self) -> None:
        """Moves the end of the lease to a whole lease from now. GoneError once it has ended."""
        if self.ticket is None:
            if not self._is_open:
                raise no_ticket()
            return
        await self._limiter.table.ask(self._limiter._target.of_ticket("renew", self.ticket))

    release = AsyncReservation.cancel

    async def __aenter__(self) -> Self:
        if not self.decision.allowed:
            raise Limited(self.decision)  # type: ignore[arg-type]
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        await self._cancel_if_open()


_Key = TypeVar("_Key")
_R = TypeVar("_R", bound=AsyncReservation)


class Opening(Generic[_R]):
    """A reservation that is being made: `await` it, or use it in `async with`."""

    __slots__ = ("_made", "_opening")

    def __init__(self, opening: Coroutine[Any, Any, _R]) -> None:
        self._opening = opening
        self._made: _R | None = None

    def __await__(self) -> Generator[Any, Any, _R]:
        return self._opening.__await__()

    async def __aenter__(self) -> _R:
        self._made = await self._opening
        await self._made.__aenter__()
        return self._made

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        assert self._made is not None
        await self._made.__aexit__(kind, error, trace)


class _Limiter(Generic[_Key]):
    """The methods of limiters of a server, for each kind of target."""

    table: AsyncTable
    _target: Target

    async def _decide(self, question: Question) -> RemoteDecision:
        decision = self._target.without_server(question)
        if decision is not None:
            return decision
        try:
            decided: RemoteDecision = await self.table.ask(question)
            return decided
        except ServerError as error:
            return self._target.on_failure(question, error)

    async def take(self, key: _Key, cost: int = 1) -> RemoteDecision:
        """Takes the whole cost from every quota, or nothing."""
        return await self._decide(self._target.question("take", key, cost=units(cost, "cost")))

    async def take_upto(self, key: _Key, cost: int) -> RemoteDecision:
        """Takes as many units as are free, at most `cost`; `granted` says how many."""
        question = self._target.question("take_upto", key, cost=units(cost, "cost"))
        return await self._decide(question)

    async def peek(self, key: _Key, cost: int = 1) -> RemoteDecision:
        """The decision that take() would return; changes nothing."""
        return await self._decide(self._target.question("peek", key, cost=units(cost, "cost")))

    async def charge(self, key: _Key, cost: int) -> RemoteDecision:
        """Records units that were used already."""
        return await self._decide(self._target.question("charge", key, cost=units(cost, "cost")))

    async def refund(self, key: _Key, cost: int,
                     granted_at_ns: int | None = None) -> RemoteDecision:
        """Gives back units that were granted and not used; granted_at_ns: at_ns of the decision."""
        return await self._decide(self._target.refund(key, cost, granted_at_ns))

    async def check(self, key: _Key, cost: int = 1) -> RemoteDecision:
        """As take(), but raises Limited when the units are refused."""
        decision = await self.take(key, cost)
        if not decision:
            raise Limited(decision)  # type: ignore[arg-type]
        return decision

    def reserve(self, key: _Key, estimate: int,
                expires: float | None = None) -> Opening[AsyncReservation]:
        """Charges an estimate: `await` it, or `async with limiter.reserve(…) as r`.

        expires: seconds in which it can be settled, 1 h by default.
        """
        question = self._target.reserve(key, estimate, expires)
        return Opening(self._open(AsyncReservation, question))

    def hold(self, key: _Key, cost: int = 1) -> Opening[AsyncHold]:
        """Holds units of concurrency quotas until the end of an `async with`."""
        return Opening(self._open(AsyncHold, self._target.hold(key, cost)))

    async def _open(self, kind: type[_R], question: Question) -> _R:
        return kind(self, await self._decide(question))

    async def wait(self, key: _Key, cost: int = 1,
                   timeout: float | None = None) -> RemoteDecision:
        """Sleeps until the units are granted; other tasks run meanwhile.

        Returns a refusal at once if they can never be granted, or not within `timeout` seconds.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            decision = await self.take(key, cost)
            left = None if end is None else end - time.monotonic()
            seconds = next_wait(decision, left, self._target.is_held)
            if seconds is None:
                return decision
            await asyncio.sleep(seconds)

    async def reset(self, key: _Key) -> None:
        """Forgets what the key has used of these quotas, and removes a block of the key.

        Needs the role administer. Raises ServerError, whatever on_error is.
        """
        await self.table.ask(self._target.question("reset", key))

    async def block(self, key: _Key, seconds: float) -> None:
        """Denies the key for so long. As reset()."""
        await self.table.ask(self._target.block(key, seconds))

    async def close(self) -> None:
        """Closes the connections of the table in this event loop."""
        await self.table.close()

    # What frameworks look for: a method of this name is awaited.
    take_async = take
    wait_async = wait

    def __repr__(self) -> str:
        return f"<stint.{type(self).__name__} {self._target!r} of {self.table.address}>"


class AsyncLimiter(_Limiter["str | bytes"]):
    """One to 32 quotas on the keys of a server: RemoteLimiter, whose parameters it has.

    The methods are those of stint.Limiter, to be awaited. Tasks of any event loop may use it.
    """

    def __init__(self, table: AsyncTable, *quotas: str | Quota, name: str | None = None,
                 on_error: str = "raise") -> None:
        self.table = table
        self._target = Quotas(quotas, name, on_error, table.request_ids)
        self.quotas, self.name, self.on_error = self._target.quotas, name, on_error

    @staticmethod
    def connect(url: str, *quotas: str | Quota, name: str | None = None, on_error: str = "raise",
                token: str | None = None, timeout: float = TIMEOUT,
                tls: ssl.SSLContext | None = None, connections: int = 8,
                request_ids: bool = True) -> AsyncLimiter:
        """A limiter with a table of its own; nothing is sent before the first question."""
        table = AsyncTable(url, token=token, timeout=timeout, tls=tls, connections=connections,
                           request_ids=request_ids)
        return AsyncLimiter(table, *quotas, name=name, on_error=on_error)


class AsyncRules(_Limiter[Descriptors]):
    """The rules of one domain that a server has: RemoteRules, to be awaited."""

    def __init__(self, table: AsyncTable, domain: str, *, on_error: str = "raise") -> None:
        self.table = table
        self._target = Rules(domain, on_error, table.request_ids)
        self.domain, self.on_error = domain, on_error

    @staticmethod
    def connect(url: str, domain: str, *, on_error: str = "raise", **options: Any) -> AsyncRules:
        """The rules with a table of its own, whose options are those of AsyncTable."""
        return AsyncRules(AsyncTable(url, **options), domain, on_error=on_error)


class AsyncRemotePool:
    """The keys of a pool that a server has: RemotePool, to be awaited."""

    def __init__(self, table: AsyncTable, name: str, *, request_ids: bool | None = None) -> None:
        self.table, self.name = table, name
        self._questions = PoolQuestions(
            name, table.request_ids if request_ids is None else request_ids)

    async def next(self, cost: int = 1, *, probe: bool = False) -> Lease:
        """Chooses a key and charges all its quotas, in one step."""
        lease: Lease = await self.table.ask(self._questions.next(cost, probe))
        return lease

    async def report(self, key: str, cooldown: float | None = None, *, ok: bool | None = None,
                     out: bool = False) -> None:
        """The outcome of a call to the upstream service, for all that share the pool."""
        await self.table.ask(self._questions.report(key, cooldown, ok, out))

    async def give_back(self, key: str, cost: int = 1, granted_at_ns: int | None = None) -> int:
        """Gives back units that were not used; returns how many came back."""
        return int(await self.table.ask(self._questions.give_back(key, cost, granted_at_ns)))

    async def status(self) -> list[KeyStatus]:
        """All keys of the pool, oldest first."""
        statuses: list[KeyStatus] = await self.table.ask(self._questions.ask("pool_status"))
        return statuses

    async def add(self, key: str, quota: Any, *, weight: int = 1) -> None:
        """Adds a key until the server ends. Needs the role administer."""
        await self.table.ask(self._questions.add(key, quota, weight))

    async def remove(self, key: str) -> None:
        """Removes a key until the server ends. Needs the role administer."""
        await self.table.ask(self._questions.ask("pool_remove", key))

    def __repr__(self) -> str:
        return f"<stint.AsyncRemotePool {self.name!r} of {self.table.address}>"
