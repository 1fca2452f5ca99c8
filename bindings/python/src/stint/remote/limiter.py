# SPDX-License-Identifier: MIT
"""Limiters and pools of a server, for threads."""
from __future__ import annotations

import ssl
import time
from typing import Any, Generic, TypeVar

from .._core import GoneError
from ..limiter import Limited
from ..pool import KeyStatus, Lease
from ..quota import Quota
from .address import parse, tls_context
from .codec import Question
from .errors import ServerError
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
from .sync import Pool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

TIMEOUT = 0.05

_Key = TypeVar("_Key")


class RemoteTable:
    """A server: what its limiters and pools share, connections and the back-off after errors.

    url: stint://HOST:7379 (RESP), stints:// (with TLS), unix:/PATH (RESP over a Unix socket),
    http:// or https://HOST:PORT. token: a secret of the server's token file; also in the URL, as
    stint://:SECRET@HOST. timeout: seconds for a whole question, from the connection to the last
    byte of the reply, also after a retry. tls: of the client, for other authorities than the
    system's or a client certificate. connections: the most that are open. request_ids: questions
    that charge carry an id, so that one whose connection ended can be repeated without charging
    twice; a server over memcached accepts none.

    Any thread may use it, and a child after fork(), with connections of its own.
    """

    def __init__(self, url: str, *, token: str | None = None, timeout: float = TIMEOUT,
                 tls: ssl.SSLContext | None = None, connections: int = 8,
                 request_ids: bool = True) -> None:
        check_options(timeout, connections)
        self.address = parse(url, token)
        self.request_ids = request_ids
        self._pool = Pool(self.address, timeout, tls_context(self.address, tls), connections)

    def limiter(self, *quotas: str | Quota, name: str | None = None,
                on_error: str = "raise") -> RemoteLimiter:
        """A limiter of this server, as Limiter.connect() makes one."""
        return RemoteLimiter(self, *quotas, name=name, on_error=on_error)

    def rules(self, domain: str, *, on_error: str = "raise") -> RemoteRules:
        """The rules of a domain that the server has; the quotas are there."""
        return RemoteRules(self, domain, on_error=on_error)

    def pool(self, name: str, *, request_ids: bool | None = None) -> RemotePool:
        """A pool of keys that the server's config file defines.

        request_ids: those of the table by default; False for a pool that the server has in a store.
        """
        return RemotePool(self, name, request_ids=request_ids)

    def now(self) -> int:
        """The time that the server's decisions use, in ns: a virtual clock stands still."""
        return int(self.ask(Question("clock")))

    def count(self, key: str | bytes, amount: int = 1,
              expiry: float | None = None) -> RemoteCount:
        """Adds to a counter that expires: stint.Table.count(), in whole milliseconds.

        It carries no request id, and is never repeated. Raises ServerError and QuotaError.
        """
        counted: RemoteCount = self.ask(count(key, amount, expiry))
        return counted

    def counter(self, key: str | bytes) -> RemoteCount:
        """The counter of a key, without a change."""
        read: RemoteCount = self.ask(Question("counter", key=key_bytes(key)))
        return read

    def reset_counter(self, key: str | bytes) -> None:
        """Forgets the counter of a key."""
        self.ask(Question("reset_counter", key=key_bytes(key)))

    def ask(self, question: Question) -> Any:
        return self._pool.ask(question)

    def close(self) -> None:
        """Closes the connections that no question uses; a later question opens one again."""
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<stint.RemoteTable {self.address}>"


def check_options(timeout: float, connections: int) -> None:
    if not 0 < timeout <= 3600:
        raise ValueError(f"timeout is {timeout} s; expected more than 0, at most 3600")
    if not 1 <= connections <= 4096:
        raise ValueError(f"connections is {connections}; expected 1 to 4096")


class RemoteReservation:
    """Units that a server charged as estimated: stint.Reservation. One thread at a time.

    Where on_error allowed the units without the server, settle() and cancel() ask nothing.
    """

    __slots__ = ("_is_open", "_limiter", "decision", "ticket")

    def __init__(self, limiter: _Limiter[Any], decision: RemoteDecision) -> None:
        self._limiter = limiter
        self.decision, self.ticket = decision, decision.ticket
        self._is_open = decision.allowed

    def __bool__(self) -> bool:
        return self.decision.allowed

    def settle(self, actual: int) -> RemoteDecision:
        """Corrects the charge to the units that were really used."""
        return self._end("settle", cost=units(actual, "actual"))

    def cancel(self) -> RemoteDecision:
        """Gives all units back."""
        return self._end("cancel")

    def _end(self, verb: str, **options: int) -> RemoteDecision:
        if self.ticket is None:
            if not self._is_open:
                raise no_ticket()
            self._is_open = False
            return self.decision
        decision = self._limiter._of_ticket(verb, self.ticket, **options)
        self._is_open = False
        return decision

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if kind is not None:
            self._cancel_if_open()

    def _cancel_if_open(self) -> None:
        """At the end of a block: its own exception is the one that counts."""
        if self._is_open:
            try:
                self.cancel()
            except (GoneError, ServerError):
                pass  # it stays charged as estimated, or is over


class RemoteHold(RemoteReservation):
    """Units of a concurrency quota that a server holds: stint.Hold. One thread at a time."""

    __slots__ = ()

    def renew(self) -> None:
        """Moves the end of the lease to a whole lease from now. GoneError once it has ended."""
        if self.ticket is None:
            if not self._is_open:
                raise no_ticket()
            return
        self._limiter.table.ask(self._limiter._target.of_ticket("renew", self.ticket))

    release = RemoteReservation.cancel

    def __enter__(self) -> Self:
        if not self.decision.allowed:
            raise Limited(self.decision)  # type: ignore[arg-type]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._cancel_if_open()


class _Limiter(Generic[_Key]):
    """The methods of limiters of a server, for each kind of target."""

    table: RemoteTable
    _target: Target

    def _decide(self, question: Question) -> RemoteDecision:
        decision = self._target.without_server(question)
        if decision is not None:
            return decision
        try:
            decided: RemoteDecision = self.table.ask(question)
            return decided
        except ServerError as error:
            return self._target.on_failure(question, error)

    def _of_ticket(self, verb: str, ticket: str, **options: int) -> RemoteDecision:
        return self._decide(self._target.of_ticket(verb, ticket, **options))

    def take(self, key: _Key, cost: int = 1) -> RemoteDecision:
        """Takes the whole cost from every quota, or nothing.

        Raises TypeError for another key, QuotaError for a cost out of range and for what the server
        refuses, and under on_error="raise" ServerError.
        """
        return self._decide(self._target.question("take", key, cost=units(cost, "cost")))

    def take_upto(self, key: _Key, cost: int) -> RemoteDecision:
        """Takes as many units as are free, at most `cost`; `granted` says how many."""
        return self._decide(self._target.question("take_upto", key, cost=units(cost, "cost")))

    def peek(self, key: _Key, cost: int = 1) -> RemoteDecision:
        """The decision that take() would return; changes nothing."""
        return self._decide(self._target.question("peek", key, cost=units(cost, "cost")))

    def charge(self, key: _Key, cost: int) -> RemoteDecision:
        """Records units that were used already."""
        return self._decide(self._target.question("charge", key, cost=units(cost, "cost")))

    def refund(self, key: _Key, cost: int,
               granted_at_ns: int | None = None) -> RemoteDecision:
        """Gives back units that were granted and not used; granted_at_ns: at_ns of the decision."""
        return self._decide(self._target.refund(key, cost, granted_at_ns))

    def check(self, key: _Key, cost: int = 1) -> RemoteDecision:
        """As take(), but raises Limited when the units are refused."""
        decision = self.take(key, cost)
        if not decision:
            raise Limited(decision)  # type: ignore[arg-type]
        return decision

    def reserve(self, key: _Key, estimate: int,
                expires: float | None = None) -> RemoteReservation:
        """Charges an estimate, to be corrected by settle() or cancel() of the reservation.

        expires: seconds in which it can be settled, 1 h by default.
        """
        question = self._target.reserve(key, estimate, expires)
        return RemoteReservation(self, self._decide(question))

    def hold(self, key: _Key, cost: int = 1) -> RemoteHold:
        """Holds units of concurrency quotas until the end of a with-statement."""
        return RemoteHold(self, self._decide(self._target.hold(key, cost)))

    def wait(self, key: _Key, cost: int = 1,
             timeout: float | None = None) -> RemoteDecision:
        """Sleeps until the units are granted.

        Returns a refusal at once if they can never be granted, or not within `timeout` seconds.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            decision = self.take(key, cost)
            left = None if end is None else end - time.monotonic()
            seconds = next_wait(decision, left, self._target.is_held)
            if seconds is None:
                return decision
            time.sleep(seconds)

    def reset(self, key: _Key) -> None:
        """Forgets what the key has used of these quotas, and removes a block of the key.

        Needs the role administer. Raises ServerError, whatever on_error is.
        """
        self.table.ask(self._target.question("reset", key))

    def block(self, key: _Key, seconds: float) -> None:
        """Denies the key for so long. As reset()."""
        self.table.ask(self._target.block(key, seconds))

    def close(self) -> None:
        """Closes the connections of the table; a later question opens one again."""
        self.table.close()

    def __repr__(self) -> str:
        return f"<stint.{type(self).__name__} {self._target!r} of {self.table.address}>"


class RemoteLimiter(_Limiter["str | bytes"]):
    """One to 32 quotas on the keys of a server: the methods of stint.Limiter.

    name: keys are prefixed with it and a colon, so that equal quotas of other limiters have other
    states. on_error: what is decided if the server is not: "raise" a ServerError, "allow", or
    "deny" for a second. A quota that the server refuses is always a QuotaError.

    Any thread may use it, and a child after fork().
    """

    def __init__(self, table: RemoteTable, *quotas: str | Quota, name: str | None = None,
                 on_error: str = "raise") -> None:
        self.table = table
        self._target = Quotas(quotas, name, on_error, table.request_ids)
        self.quotas, self.name, self.on_error = self._target.quotas, name, on_error


class RemoteRules(_Limiter[Descriptors]):
    """The rules of one domain that a server has: RemoteLimiter, whose keys are descriptors.

    A descriptor is a dict such as {"user": "42"}, its entries in the order of the rules, or a tuple
    of pairs. Of a list of descriptors all are charged, or none. What no rule matches is allowed:
    see is_limited of the decision. Changed rules hold from the next question on.

    wait() sleeps as long as the decision says, also for rules of concurrency, whose holders may
    release before. hold() is for such rules alone: it gives all units back at the end.
    """

    def __init__(self, table: RemoteTable, domain: str, *, on_error: str = "raise") -> None:
        self.table = table
        self._target = Rules(domain, on_error, table.request_ids)
        self.domain, self.on_error = domain, on_error

    @staticmethod
    def connect(url: str, domain: str, *, on_error: str = "raise", **options: Any) -> RemoteRules:
        """The rules with a table of its own, whose options are those of RemoteTable."""
        return RemoteRules(RemoteTable(url, **options), domain, on_error=on_error)


class RemotePool:
    """The keys of a pool that a server has: the methods of stint.Pool.

    Raises ServerError if the server does not answer, GoneError for an unknown pool or key,
    QuotaError for what the server refuses. Any thread may use it.
    """

    def __init__(self, table: RemoteTable, name: str, *, request_ids: bool | None = None) -> None:
        self.table, self.name = table, name
        self._questions = PoolQuestions(
            name, table.request_ids if request_ids is None else request_ids)

    def next(self, cost: int = 1, *, probe: bool = False) -> Lease:
        """Chooses a key and charges all its quotas, in one step."""
        lease: Lease = self.table.ask(self._questions.next(cost, probe))
        return lease

    def report(self, key: str, cooldown: float | None = None, *, ok: bool | None = None,
               out: bool = False) -> None:
        """The outcome of a call to the upstream service, for all that share the pool."""
        self.table.ask(self._questions.report(key, cooldown, ok, out))

    def give_back(self, key: str, cost: int = 1, granted_at_ns: int | None = None) -> int:
        """Gives back units that were not used; returns how many came back."""
        return int(self.table.ask(self._questions.give_back(key, cost, granted_at_ns)))

    def status(self) -> list[KeyStatus]:
        """All keys of the pool, oldest first."""
        statuses: list[KeyStatus] = self.table.ask(self._questions.ask("pool_status"))
        return statuses

    def add(self, key: str, quota: Any, *, weight: int = 1) -> None:
        """Adds a key until the server ends. Needs the role administer."""
        self.table.ask(self._questions.add(key, quota, weight))

    def remove(self, key: str) -> None:
        """Removes a key until the server ends. Needs the role administer."""
        self.table.ask(self._questions.ask("pool_remove", key))

    def __repr__(self) -> str:
        return f"<stint.RemotePool {self.name!r} of {self.table.address}>"
