# SPDX-License-Identifier: MIT
"""`concurrency`: N places, each held until its deadline or until it is given back."""

from .terms import NEVER, Answer


class Concurrency:
    def __init__(self, terms):
        self.terms = terms
        self.capacity = terms.limit
        self.holders = {}  # holder -> [deadline, units]

    def held(self, now):
        return sum(units for deadline, units in self.holders.values() if deadline > now)

    def hold(self, now, cost, holder):
        """The answer to a hold; `holder` names it when it is allowed."""
        self.holders = {name: place for name, place in self.holders.items() if place[0] > now}
        free = self.capacity - self.held(now)
        if cost > self.capacity:
            return self._answer("never", 0, now, NEVER)
        if cost > free:
            return self._answer("deny", 0, now, self._enough_ended(cost - free) - now)
        if cost:
            self.holders[holder] = [now + self.terms.lease_ns, cost]
        return self._answer("allow", cost, now, 0)

    def _enough_ended(self, missing):
        """The earliest deadline by which so many units are free, were nothing given back before."""
        for deadline, units in sorted(self.holders.values()):
            missing -= units
            if missing <= 0:
                return deadline
        raise AssertionError("a cost within capacity fits once all leases have ended")

    def _answer(self, outcome, granted, now, retry_after):
        latest = max((now, *(deadline for deadline, _ in self.holders.values())))
        return Answer(outcome, granted, self.capacity, self.capacity - self.held(now), retry_after,
                      latest - now)

    def release(self, now, holder):
        alive = holder in self.holders and self.holders[holder][0] > now
        self.holders.pop(holder, None)
        return alive

    def renew(self, now, holder, renamed):
        if holder not in self.holders or self.holders[holder][0] <= now:
            return False
        units = self.holders.pop(holder)[1]
        self.holders[renamed] = [now + self.terms.lease_ns, units]
        return True
