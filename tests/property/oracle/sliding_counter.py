# SPDX-License-Identifier: MIT
"""`sliding_counter`: estimate = previous * (1 - elapsed/W) + current, in integers scaled by W."""

from .terms import Model


class SlidingCounter(Model):
    def __init__(self, terms):
        super().__init__(terms)
        self.number = 0  # of the window that `current` counts
        self.previous = 0
        self.current = 0

    def _at(self, now):
        """(window number, previous, current, elapsed) at the effective time."""
        period = self.terms.period_ns
        number = now // period
        if number < self.number:
            number, elapsed = self.number, 0
        else:
            elapsed = now % period
        ahead = number - self.number
        previous, current = {0: (self.previous, self.current),
                             1: (self.current, 0)}.get(ahead, (0, 0))
        return number, previous, current, elapsed

    def weight(self, elapsed):
        return self.terms.period_ns - elapsed

    def _estimate(self, now):
        """Times W, so that nothing is rounded."""
        _, previous, current, elapsed = self._at(now)
        return previous * self.weight(elapsed) + current * self.terms.period_ns

    def room(self, now):
        return self._room(now, self.capacity)

    def _room(self, now, capacity):
        return (capacity * self.terms.period_ns - self._estimate(now)) // self.terms.period_ns

    def spend(self, now, count):
        self.number, self.previous, current, _ = self._at(now)
        self.current = current + count

    def chargeable(self, now, count):
        return max(0, min(count, self._room(now, 2 * self.capacity)))

    def wait(self, now, cost):
        """The estimate never rises by itself: the first instant that fits is found by halving."""
        low = now
        high = (self.number + 3) * self.terms.period_ns
        while high - low > 1:
            middle = (low + high) // 2
            if self.fits(middle, cost):
                high = middle
            else:
                low = middle
        return high - now

    def reset_after(self, now):
        number, previous, current, _ = self._at(now)
        if current:
            return (number + 2) * self.terms.period_ns - now
        return (number + 1) * self.terms.period_ns - now if previous else 0

    def copy(self):
        twin = type(self)(self.terms)
        twin.number, twin.previous, twin.current = self.number, self.previous, self.current
        return twin
