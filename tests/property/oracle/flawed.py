# SPDX-License-Identifier: MIT
"""Forms in circulation that break a law, each re-implemented so that a test can be seen to fail."""

from .buckets import Buckets
from .exact_log import ExactLog
from .gcra import TICKS, Gcra
from .sliding_counter import SlidingCounter
from .window import Window


class ComparesTheValueBeforeTheCost(Gcra):
    """The tolerance is meant for the value after the cost: one unit too many."""

    def fits(self, now, cost):
        return self._ahead(now) <= self.capacity * self.interval


class ClampsToNowLessTolerance(Gcra):
    """An idle key saves up a second burst beside the first."""

    def _ahead(self, now):
        return max(-self.capacity * self.interval, self.tat - TICKS * now)

    def spend(self, now, count):
        self.tat = TICKS * now + self._ahead(now) + count * self.interval


class TruncatesTheInterval(Gcra):
    """T in whole nanoseconds, rounded down: the rate is too high, or without any limit."""

    def _interval(self):
        return self.terms.period_ns // self.terms.limit * TICKS

    def room(self, now):
        return super().room(now) if self.interval else 2**32 - 1


class KeepsSecondsIn32Bits(Gcra):
    """The arrival time in whole seconds: whatever is owed within the second is forgotten."""

    def spend(self, now, count):
        super().spend(now, count)
        self.tat = self.tat // (TICKS * 10**9) % 2**32 * (TICKS * 10**9)


class RefundsWhatHasFlowedBack(Gcra):
    """Gives back n*T whenever it is asked, also once the same units have refilled by themselves."""

    def refund(self, now, count, granted_at):
        self.tat -= count * self.interval


class ReleasesAtCreation(Buckets):
    """A bucket comes back W after its first use, when its later uses are younger than that."""

    def alive(self, now):
        return [bucket for bucket in self.list if bucket[0] + self.terms.period_ns > self._now(now)]


class KeepsTheCloseTimeOfAFilledBucket(Buckets):
    """Comes back at first use + O + W even where it was filled at once: denies O too long."""

    def alive(self, now):
        return [bucket for bucket in self.list
                if bucket[0] + self.terms.time_slack_ns + self.terms.period_ns > self._now(now)]

    def wait(self, now, cost):
        return self.list[0][0] + self.terms.time_slack_ns + self.terms.period_ns - now


class RefillsWithinTheWindow(Gcra):
    """A bucket that refills all the time, told as "N in any W": what came back is used again."""


class ComparesTheCountBeforeTheUse(ExactLog):
    """Denies where more than N uses are there already, not where one more would be too many."""

    def room(self, now):
        return max(0, self._vacant(now) + 1)


class InvertsTheWeight(SlidingCounter):
    """previous * elapsed/W: the last window counts for nothing when it should count in full."""

    def weight(self, elapsed):
        return elapsed


class CountsBeforeItAsks(SlidingCounter):
    """Refused requests count too, so that a client at its limit is kept out by its own retries."""

    def take(self, now, cost):
        fits = self.fits(now, cost)
        self.spend(now, cost)
        return self._answer("allow" if fits else "deny", cost if fits else 0, now, 0)


class IsASetOfTimes(ExactLog):
    """One entry per instant: calls in the same nanosecond are counted once."""

    def room(self, now):
        return self.capacity - len({time for time, _ in self._alive(now)})


class RefundsTheNewest(ExactLog):
    """Takes the unused units out of the newest record, whichever use is given back."""

    def refund(self, now, count, granted_at):
        for run in reversed(self.units):
            taken = min(run[1], count)
            run[1] -= taken
            count -= taken
        self.units = type(self.units)(run for run in self.units if run[1])


class WrapsTheSlotNumber(Window):
    """The slot number in too few bits: a dead state is alive again when it comes round."""

    BITS = 16

    def slot(self, now):
        return super().slot(now) % 2**self.BITS

    def _at(self, now):
        slot = self.slot(now)
        alive = [b for b in self.bunches if (slot - b[0]) % 2**self.BITS <= self.slots]
        return slot, alive, self.left if alive else 0


class LeavesTheBunchWhereItWasOpened(Window):
    """A bunch used over many slots stays charged to its first: free too early for its last use."""

    def spend(self, now, count):
        slots = [bunch[0] for bunch in self._at(now)[1]]
        super().spend(now, count)
        for bunch, slot in zip(self.bunches, slots):
            bunch[0] = slot


class TruncatesTheWait(Gcra):
    """A wait in whole seconds, rounded down: the caller comes back too early."""

    def wait(self, now, cost):
        return super().wait(now, cost) // 10**9 * 10**9
