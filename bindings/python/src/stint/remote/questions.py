# SPDX-License-Identifier: MIT
"""What limiters and pools have in common, whether threads or tasks use them: their questions."""
from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Mapping
from math import ceil
from operator import index
from typing import Any, Final, Union
from urllib.parse import quote

from .._core import Quota as CoreQuota
from ..quota import Quota
from .codec import Descriptor, Question, Value, utf8
from .errors import ServerError, gone_error, quota_error
from .replies import NEVER_NS, TARGETS_MAX, UNITS_MAX, RemoteDecision

KEY_MAX: Final = 65536  # bytes
ENTRIES_MAX: Final = 32  # of a descriptor
RESERVED_FOR: Final = 3600.0  # seconds in which a reservation can be settled
HELD_POLL: Final = 0.05  # a holder may release at any time: waiters look again this often
ON_ERROR: Final = ("raise", "allow", "deny")
DENIED_FOR_NS: Final = 1_000_000_000  # retry_after of a denial by on_error
_TICKET_LEN: Final = 32  # of a table; tickets of stores are longer, and take no id
_MS_MAX: Final = 86_400_000 * 3650


class _Ids:
    """Request ids that are used once; a child after fork() has others than its parent."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        self._next = map((secrets.token_hex(8) + "-%x").__mod__, itertools.count())

    def __call__(self) -> str:
        return next(self._next)


new_id: Final = _Ids()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=new_id.renew)


def key_bytes(key: str | bytes) -> bytes:
    """A key as its bytes: those of stint.Limiter."""
    if isinstance(key, str):
        return utf8(key)
    if isinstance(key, bytes):
        return key
    raise TypeError(f"a key is str or bytes, not {type(key)!r}")


def units(value: int, name: str) -> int:
    number = index(value)
    if not 0 <= number <= UNITS_MAX:
        raise quota_error("RANGE", f"{name} is {number}; expected 0 to {UNITS_MAX}")
    return number


def milliseconds(seconds: float, name: str) -> int:
    """Seconds as whole milliseconds, rounded up."""
    if not 0 <= seconds * 1000 <= _MS_MAX:
        raise quota_error("RANGE", f"{name} is {seconds} s; expected 0 to {_MS_MAX // 1000} s")
    return ceil(round(seconds * 1000, 6))


def count(key: str | bytes, amount: int, expiry: float | None) -> Question:
    options: dict[str, Value] = {"key": key_bytes(key), "amount": index(amount)}
    if expiry is not None:
        options["expiry_ms"] = milliseconds(expiry, "expiry")
    elif index(amount) > 0:
        raise quota_error("RANGE", "a counter needs an expiry; give the seconds to its end")
    return Question("count", **options)


class Target:
    """What a limiter asks about, and its questions."""

    quotas: tuple[Quota, ...] = ()  # none: those of the server's rules
    is_held = False  # of concurrency: a holder may release at any time

    def __init__(self, on_error: str, request_ids: bool) -> None:
        if on_error not in ON_ERROR:
            raise ValueError(f"on_error is {on_error!r}; expected one of {', '.join(ON_ERROR)}")
        self.on_error, self._request_ids = on_error, request_ids

    def about(self, verb: str, key: Any, options: dict[str, Value]) -> Question:
        raise NotImplementedError

    def question(self, verb: str, key: Any, **options: Value) -> Question:
        return with_id(self.about(verb, key, options), self._request_ids)

    def of_ticket(self, verb: str, ticket: str, **options: Value) -> Question:
        question = Question(verb, self.quotas, ticket=ticket, **options)
        return with_id(question, self._request_ids and len(ticket) == _TICKET_LEN)

    def refund(self, key: Any, cost: int, granted_at_ns: int | None) -> Question:
        options: dict[str, Value] = {"cost": units(cost, "cost")}
        if granted_at_ns is not None:
            options["granted_at"] = str(index(granted_at_ns))
        return self.question("refund", key, **options)

    def reserve(self, key: Any, cost: int, expires: float | None) -> Question:
        lifetime_ms = milliseconds(RESERVED_FOR if expires is None else expires, "expires")
        return self.question("reserve", key, cost=units(cost, "cost"), lifetime_ms=lifetime_ms)

    def hold(self, key: Any, cost: int) -> Question:
        for quota in self.quotas:
            if quota.algorithm != "concurrency":
                raise quota_error("MISMATCH", f"{quota} is not of concurrency: only its units are "
                                  "held; use reserve() for others")
        return self.reserve(key, cost, None)

    def block(self, key: Any, seconds: float) -> Question:
        return self.question("block", key, for_ms=milliseconds(seconds, "seconds"))

    def without_server(self, question: Question) -> RemoteDecision | None:
        """The decision on a key that is too long for any server; None for others."""
        if len(question.key) <= KEY_MAX:
            return None
        return RemoteDecision("never", retry_after_ns=NEVER_NS, limit=self._limit,
                              quotas=self.quotas)

    def on_failure(self, question: Question, error: ServerError) -> RemoteDecision:
        """The decision that on_error makes; raises the error for "raise"."""
        if self.on_error == "raise":
            raise error
        allows = self.on_error == "allow"
        return RemoteDecision(
            "allow" if allows else "deny",
            granted=int(question.options.get("cost", 0)) if allows else 0,  # type: ignore[arg-type]
            limit=self._limit,
            retry_after_ns=0 if allows else DENIED_FOR_NS,
            quotas=self.quotas,
            error=error,
        )

    @property
    def _limit(self) -> int:
        return self.quotas[0].limit if self.quotas else 0


class Quotas(Target):
    """The quotas of a limiter, on a key."""

    def __init__(self, quotas: tuple[str | Quota, ...], name: str | None, on_error: str,
                 request_ids: bool) -> None:
        super().__init__(on_error, request_ids)
        if not 1 <= len(quotas) <= TARGETS_MAX:
            raise quota_error("RANGE", f"{len(quotas)} quotas; expected 1 to {TARGETS_MAX}")
        if name is not None and not isinstance(name, str):
            raise TypeError(f"name is str or None, not {type(name)!r}")
        self.quotas = tuple(_quota(quota) for quota in quotas)
        self.name = name
        self.is_held = any(quota.algorithm == "concurrency" for quota in self.quotas)
        self._specs = tuple(map(str, self.quotas))
        # The first colon ends the name, so that no two names share a key.
        self._prefix = b"" if name is None else f"{quote(name, safe='/ @+=,;!*()')}:".encode()

    def about(self, verb: str, key: str | bytes, options: dict[str, Value]) -> Question:
        return Question(verb, self.quotas, self._specs, self._prefix + key_bytes(key), **options)

    def __repr__(self) -> str:
        name = f" name={self.name!r}" if self.name is not None else ""
        return f"{', '.join(self._specs)}{name}"


# A descriptor: its entries in the order of the rules. As pairs, a key may come twice.
Entries = Union[Mapping[str, str], "tuple[tuple[str, str], ...]"]
Descriptors = Union[Entries, "list[Entries]"]


class Rules(Target):
    """The rules of a domain that a server has, on descriptors."""

    def __init__(self, domain: str, on_error: str, request_ids: bool) -> None:
        super().__init__(on_error, request_ids)
        if not isinstance(domain, str) or not domain:
            raise TypeError(f"domain is a str that is not empty, not {domain!r}")
        self.domain = domain

    def about(self, verb: str, key: Descriptors, options: dict[str, Value]) -> Question:
        several = key if isinstance(key, list) else [key]
        if not 1 <= len(several) <= TARGETS_MAX:
            raise quota_error("RANGE", f"{len(several)} descriptors; expected 1 to {TARGETS_MAX}")
        question = Question(verb, **options)
        question.domain, question.descriptors = self.domain, tuple(map(_descriptor, several))
        return question

    def __repr__(self) -> str:
        return f"domain {self.domain!r}"


def _descriptor(entries: Entries) -> Descriptor:
    pairs: Any = tuple(entries.items()) if isinstance(entries, Mapping) else entries
    if not isinstance(pairs, tuple) or not all(map(_is_entry, pairs)):
        raise TypeError("a descriptor is a dict of str, or a tuple of pairs of str, "
                        f"not {entries!r:.80}")
    if not 1 <= len(pairs) <= ENTRIES_MAX:
        raise quota_error("RANGE",
                          f"a descriptor of {len(pairs)} entries; expected 1 to {ENTRIES_MAX}")
    return pairs


def _is_entry(pair: Any) -> bool:
    return isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(x, str) for x in pair)


def with_id(question: Question, request_ids: bool) -> Question:
    if request_ids and question.verb.takes_id:
        question.options["request_id"] = new_id()
    return question


def _quota(quota: str | Quota) -> Quota:
    if isinstance(quota, CoreQuota):
        return quota
    if isinstance(quota, str):
        return Quota(quota)
    raise TypeError(f"a quota is str or stint.Quota, not {type(quota)!r}")


def next_wait(decision: RemoteDecision, left: float | None, is_held: bool) -> float | None:
    """Seconds to sleep before the next take of wait(); None: the decision is the last."""
    if decision or decision.outcome == "never":
        return None
    seconds = max(decision.retry_after, 0.001)
    if is_held:
        seconds = min(seconds, HELD_POLL)
        if left is not None:
            seconds = min(seconds, left)
    if left is not None and (left <= 0 or seconds > left):
        return None
    return seconds


def no_ticket() -> Exception:
    return gone_error("the reservation is not open: it was refused, settled or cancelled")


class PoolQuestions:
    """The questions of a pool of keys."""

    def __init__(self, name: str, request_ids: bool) -> None:
        if not isinstance(name, str) or not name:
            raise TypeError("the name of a pool is a str that is not empty")
        self.name, self._request_ids = name, request_ids

    def ask(self, verb: str, key: str | None = None, **options: Value) -> Question:
        if key is not None:
            if not isinstance(key, str):
                raise TypeError(f"the name of a key is str, not {type(key)!r}")
            options = {"key": key, **options}
        return with_id(Question(verb, pool=self.name, **options), self._request_ids)

    def next(self, cost: int, probe: bool) -> Question:
        return self.ask("pool_next", cost=units(cost, "cost"), probe=bool(probe))

    def report(self, key: str, cooldown: float | None, ok: bool | None, out: bool) -> Question:
        if (cooldown is not None) + (ok is not None) + out != 1:
            raise TypeError("report() needs one of cooldown=, ok= and out=")
        if cooldown is not None and cooldown > 0:
            cooldown_ms = milliseconds(cooldown, "cooldown")
            return self.ask("pool_report", key, outcome="cool", cooldown_ms=cooldown_ms)
        # A Retry-After of 0 s is a cooldown that is over.
        outcome = "out" if out else "ok" if ok or cooldown is not None else "back_off"
        return self.ask("pool_report", key, outcome=outcome)

    def give_back(self, key: str, cost: int, granted_at_ns: int | None) -> Question:
        options: dict[str, Value] = {"cost": units(cost, "cost")}
        if granted_at_ns is not None:
            options["granted_at"] = str(index(granted_at_ns))
        return self.ask("pool_give_back", key, **options)

    def add(self, key: str, quota: Any, weight: int) -> Question:
        quotas = (quota,) if isinstance(quota, (str, CoreQuota)) else tuple(quota)
        return self.ask("pool_add", key, quotas=[str(_quota(q)) for q in quotas],
                        weight=index(weight))
