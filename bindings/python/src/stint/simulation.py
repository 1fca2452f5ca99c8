# SPDX-License-Identifier: MIT
"""A quota over a trace, in virtual time: what it would have decided."""

from __future__ import annotations

from . import _core
from .limiter import Limiter
from .quota import NS_PER_S, Quota, quota_error
from .table import Table
from .testing import Clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    Request = tuple[float, str | bytes] | tuple[float, str | bytes, int]


class Simulation:
    """The decisions on a trace, in its order, and their sums.

    decisions: a list of Decision. requests, allowed, denied: numbers of requests. granted, refused:
    units. keys: different keys; keys_denied: those that were refused at least once.
    """

    __slots__ = ("allowed", "decisions", "denied", "granted", "keys", "keys_denied", "quotas",
                 "refused", "requests")

    def __init__(self, quotas: tuple[Quota, ...],
                 answers: Iterator[tuple[str | bytes, int, _core.Decision]]) -> None:
        self.quotas = quotas
        self.decisions: list[_core.Decision] = []
        self.granted = self.refused = 0
        keys, keys_denied = set(), set()
        for key, cost, decision in answers:
            self.decisions.append(decision)
            self.granted += decision.granted
            self.refused += cost - decision.granted
            keys.add(key)
            if not decision:
                keys_denied.add(key)
        self.requests = len(self.decisions)
        self.allowed = sum(map(bool, self.decisions))
        self.denied = self.requests - self.allowed
        self.keys, self.keys_denied = len(keys), len(keys_denied)

    def __repr__(self) -> str:
        return (f"<stint.Simulation of {', '.join(map(str, self.quotas))}: {self.allowed} of "
                f"{self.requests} requests allowed, {self.granted} units granted, "
                f"{self.keys_denied} of {self.keys} keys denied>")


def simulate(quota: str | Quota | Iterable[str | Quota], trace: Iterable[Request], *,
             keys: int = 1_000_000) -> Simulation:
    """Decides over a trace as a limiter would have.

    quota: a SPEC or Quota, or several, charged all or none. trace: (seconds, key) or
    (seconds, key, cost), in order of time; seconds since any origin, such as the Unix epoch. keys:
    different keys that fit. QuotaError for a trace that goes back.

        stint.simulate("3/1m", [(0, "a"), (1, "a"), (2, "a"), (3, "a")]).denied      # 1
    """
    specs = (quota,) if isinstance(quota, (str, Quota)) else tuple(quota)
    limited = tuple(Quota(spec) if isinstance(spec, str) else spec for spec in specs)
    return Simulation(limited, _answers(limited, trace, keys))


def _answers(quotas: tuple[Quota, ...], trace: Iterable[Request],
             keys: int) -> Iterator[tuple[str | bytes, int, _core.Decision]]:
    clock: Clock | None = None
    for number, (seconds, key, *costs) in enumerate(trace):
        at_ns = round(seconds * NS_PER_S)
        if clock is None:  # windows that follow the calendar see the time of the trace
            clock = Clock(epoch_ns=at_ns)
            limiter = Limiter(Table(keys=keys, clock=clock), *quotas)
        if at_ns < clock.epoch_ns + clock.now_ns:
            raise quota_error("RANGE", f"request {number} is at {seconds} s, before the one ahead "
                                       "of it; sort the trace by time")
        clock.advance_ns(at_ns - clock.epoch_ns - clock.now_ns)
        cost = costs[0] if costs else 1
        yield key, cost, limiter.take(key, cost)
