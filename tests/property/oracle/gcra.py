# SPDX-License-Identifier: MIT
"""The generic cell rate algorithm, as stated (in 1/32 ns, T rounded up) and in exact fractions."""

from fractions import Fraction

from .terms import NEVER, Model

TICKS = 32
WORD_MAX = 2**64 - 1


class Gcra(Model):
    """TAT' = max(TAT, now) + c*T; allow iff TAT' <= now + b*T. All in integer ticks."""

    def __init__(self, terms):
        super().__init__(terms)
        self.capacity = (terms.burst or terms.limit) if terms.limit else 0
        self.interval = self._interval()
        self.tat = 0

    def _interval(self):
        if not self.terms.limit:
            return 0
        return -(-TICKS * self.terms.period_ns // self.terms.limit)

    def _ahead(self, now):
        return max(0, self.tat - TICKS * now)

    def room(self, now):
        if not self.capacity:
            return 0
        return (self.capacity * self.interval - self._ahead(now)) // self.interval

    def wait(self, now, cost):
        missing = self._ahead(now) + cost * self.interval - self.capacity * self.interval
        return -(-missing // TICKS)

    def spend(self, now, count):
        self.tat = max(self.tat, TICKS * now) + count * self.interval

    def chargeable(self, now, count):
        base = max(self.tat, TICKS * now)
        deepest = TICKS * now + 2 * self.capacity * self.interval
        room = min(deepest, WORD_MAX) - base  # debt as deep as one word can hold
        return max(0, min(count, room // self.interval)) if self.capacity else 0

    def reset_after(self, now):
        return -(-self._ahead(now) // TICKS)

    def refund(self, now, count, granted_at):
        """n*T less the time since the grant; the whole units in it are what came back.

        Nothing from a state in debt: a place that has not begun looks like that, and has been
        promised to whoever booked it.
        """
        if self._ahead(now) > self.capacity * self.interval:
            return 0
        back = max(0, count * self.interval - TICKS * (now - granted_at))
        back = min(back, self._ahead(now))
        self.tat -= back
        return min(count, back // self.interval)

    def book(self, now, cost, max_wait):
        """A place in the future: starts after the wait that take would name, if that is near."""
        if cost > self.capacity:
            return self._answer("never", 0, now, NEVER)
        start = max(0, self.wait(now, cost))
        if start > max_wait:
            return self._answer("deny", 0, now, start - max_wait)
        if cost:
            self.spend(now, cost)
        return self._answer("allow", cost, now, start)

    def most_in_any_window(self):
        """b + ceil(W/T) - 1, with the T that is used."""
        return self.capacity + -(-TICKS * self.terms.period_ns // self.interval) - 1

    def copy(self):
        twin = type(self)(self.terms)
        twin.tat = self.tat
        return twin


class RationalGcra(Gcra):
    """The same law with T = W/N exactly: what the rounding is measured against."""

    def _interval(self):
        return Fraction(TICKS * self.terms.period_ns, self.terms.limit) if self.terms.limit else 0
