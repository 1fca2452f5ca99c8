# SPDX-License-Identifier: MIT
"""What a quota promises, and the verbs that every model answers alike."""

from collections import namedtuple
from dataclasses import dataclass, fields

NEVER = 2**64 - 1

ALIGN = {"epoch": 0, "first_use": 1, "day": 2, "week": 3, "month": 4, "year": 5}

# A field that is None is not determined by the law, and is not compared.
Answer = namedtuple("Answer", "outcome granted limit remaining retry_after reset_after")


@dataclass(frozen=True)
class Terms:
    """A quota, in the words of the public header."""

    algorithm: str
    limit: int
    period_ns: int
    burst: int = 0
    resolution: int = 0
    time_slack_ns: int = 0
    count_slack: int = 0
    lease_ns: int = 0
    align: int = 0
    utc_offset_s: int = 0
    epoch_ns: int = 0
    count_denied: bool = False

    def fields(self):
        return {field.name: getattr(self, field.name) for field in fields(self)}


class Model:
    """Take, peek, take_upto and charge, told by a few plain questions that each law answers."""

    def __init__(self, terms):
        self.terms = terms
        self.capacity = terms.limit

    # What a law has to answer. `now` may be earlier than the state's own time.

    def room(self, now):
        """Units that are free now; below zero in debt."""
        raise NotImplementedError

    def remaining(self, now):
        return max(0, self.room(now))

    def fits(self, now, cost):
        """0 asks without taking; in debt, where there is less room than 0, it is denied too."""
        return cost <= self.room(now)

    def wait(self, now, cost):
        """The least wait after which `cost` fits, when it does not fit now."""
        raise NotImplementedError

    def spend(self, now, count):
        """Record `count` > 0 units as used."""
        raise NotImplementedError

    def reset_after(self, now):
        """Until the state is the same as never used."""
        raise NotImplementedError

    def chargeable(self, now, count):
        """How many of `count` units the state can hold; the strict ones hold the newest N."""
        return min(count, self.capacity)

    def displace(self, now, count):
        """Record `count` > 0 units, whether they fit or not."""
        self.spend(now, self.chargeable(now, count))

    # The verbs.

    def _answer(self, outcome, granted, now, retry_after):
        return Answer(outcome, granted, self.capacity, self.remaining(now), retry_after,
                      self.reset_after(now))

    def take(self, now, cost):
        if cost <= self.capacity and self.fits(now, cost):
            if cost:
                self.spend(now, cost)
            return self._answer("allow", cost, now, 0)
        if cost > self.capacity:
            return self._answer("never", 0, now, NEVER)
        if self.terms.count_denied:
            if charged := self.chargeable(now, cost):
                self.spend(now, charged)
        return self._answer("deny", 0, now, self.wait(now, cost))

    def take_upto(self, now, cost):
        granted = min(cost, self.remaining(now))
        if granted or cost == 0:
            return self.take(now, granted)
        if self.capacity == 0:
            return self._answer("never", 0, now, NEVER)
        return self._answer("deny", 0, now, self.wait(now, 1))

    def charge(self, now, cost):
        granted = self.chargeable(now, cost)
        if granted:
            self.displace(now, cost)
        return self._answer(None, granted, now, None)

    def ask(self, now, verb, cost, at=0):
        if verb == "peek":
            return self.copy().take(now, cost)
        verbs = {"take": self.take, "take_upto": self.take_upto, "charge": self.charge}
        return verbs[verb](now, cost)

    def copy(self):
        raise NotImplementedError
