# SPDX-License-Identifier: MIT
"""The exact log: a multiset of uses. It is the `log` algorithm, and the judge of all others."""

from collections import deque

from .terms import Model


class UseLog:
    """Every use ever made, by effective time; the most used in a half-open window ending now."""

    def __init__(self):
        self.uses = []  # [time, count], times never decreasing
        self.clock = 0

    def effective(self, now):
        """A use cannot be earlier than one made before it."""
        return max(self.clock, now)

    def add(self, now, count):
        self.clock = self.effective(now)
        if count:
            self.uses.append([self.clock, count])

    def take_back(self, granted_at, count):
        """The units granted at that time were not used after all."""
        for use in reversed(self.uses):
            if use[0] == granted_at:
                taken = min(use[1], count)
                use[1] -= taken
                count -= taken
        if count:
            raise ValueError("more given back than was granted then")

    def used_in(self, now, length_num, length_den=1):
        """Units used in (now - length, now], for a length that need not be a whole number."""
        now = self.effective(now)
        total = 0
        for time, count in reversed(self.uses):
            if (now - time) * length_den >= length_num:
                break
            total += count
        return total

    def most_in_any(self, length):
        """The most units in any half-open window of that length, over the whole history."""
        most = total = first = 0
        for time, count in self.uses:
            total += count
            while self.uses[first][0] <= time - length:
                total -= self.uses[first][1]
                first += 1
            most = max(most, total)
        return most


class ExactLog(Model):
    """The `log` algorithm: the last N unit times, equal ones counted as often as they occur."""

    def __init__(self, terms):
        super().__init__(terms)
        self.units = deque()  # [time, count], oldest first
        self.displaced = 0  # units that count as long as the oldest in the log

    def _now(self, now):
        return max(now, self.units[-1][0]) if self.units else now

    def _alive(self, now):
        now = self._now(now)
        return [run for run in self.units if run[0] + self.terms.period_ns > now]

    def room(self, now):
        return max(0, self._vacant(now) - self._displaced(now))

    def _vacant(self, now):
        return self.capacity - sum(count for _, count in self._alive(now))

    def _displaced(self, now):
        return self.displaced if len(self._alive(now)) == len(self.units) else 0

    def displace(self, now, count):
        """The log keeps the newest N units."""
        kept = min(count, self.capacity)
        over = max(0, kept - self._vacant(now))
        own = self._now(now)
        self.displaced = self._displaced(now) + count - kept + over
        self.units = deque(self._alive(now))
        while over:
            taken = min(over, self.units[0][1])
            self.units[0][1] -= taken
            over -= taken
            if not self.units[0][1]:
                self.units.popleft()
        self.units.append([own, kept])

    def wait(self, now, cost):
        missing = cost - self._vacant(now)
        for time, count in self._alive(now):
            missing -= count
            if missing <= 0:
                return time + self.terms.period_ns - now
        raise AssertionError("a cost within capacity fits once all units are back")

    def spend(self, now, count):
        self.displaced = self._displaced(now)
        self.units = deque(self._alive(now))
        self.units.append([self._now(now), count])

    def refund(self, now, count, granted_at):
        """Exact entries only: the units recorded at granted_at, as many as are there.

        Displaced units are no younger than the oldest that are recorded; which of these two come
        back makes no difference, so these do.
        """
        back = 0
        if self._displaced(now) and granted_at <= self.units[0][0]:
            back = min(count, self.displaced)
            back = back if granted_at + self.terms.period_ns > self._now(now) else 0
            self.displaced -= back
        for run in self._alive(now):
            if run[0] == granted_at and back < count:
                taken = min(run[1], count - back)
                run[1] -= taken
                back += taken
        self.units = deque(run for run in self.units if run[1])
        return back

    def reset_after(self, now):
        alive = self._alive(now)
        return alive[-1][0] + self.terms.period_ns - now if alive else 0

    def copy(self):
        twin = ExactLog(self.terms)
        twin.units = deque(list(run) for run in self.units)
        twin.displaced = self.displaced
        return twin
