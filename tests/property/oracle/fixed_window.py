# SPDX-License-Identifier: MIT
"""`fixed_window`: one counter per window; windows by the epoch, the first use or a calendar."""

from datetime import datetime, timedelta

from .terms import ALIGN, Model

UNIX = datetime(1970, 1, 1)
SECOND = 1_000_000_000


def calendar_edges(align, utc_offset_s, wall_ns):
    """(begin, end) of the calendar window that holds a wall clock instant, both since 1970."""
    local_ns = wall_ns + utc_offset_s * SECOND
    day = (UNIX + timedelta(seconds=local_ns // SECOND)).replace(
        hour=0, minute=0, second=0, microsecond=0)
    if align == ALIGN["day"]:
        begin, end = day, day + timedelta(days=1)
    elif align == ALIGN["week"]:
        begin = day - timedelta(days=day.weekday())
        end = begin + timedelta(days=7)
    elif align == ALIGN["month"]:
        begin = day.replace(day=1)
        end = (begin + timedelta(days=32)).replace(day=1)
    else:
        begin = day.replace(month=1, day=1)
        end = begin.replace(year=begin.year + 1)
    return tuple(((edge - UNIX) // timedelta(seconds=1) - utc_offset_s) * SECOND
                 for edge in (begin, end))


class FixedWindow(Model):
    def __init__(self, terms):
        super().__init__(terms)
        self.begin = None  # of the window in which `count` units were used
        self.end = 0
        self.count = 0

    def edges(self, now):
        """The window that a use at `now` belongs to, were it the first."""
        terms = self.terms
        if terms.align == ALIGN["first_use"]:
            return now, now + terms.period_ns
        wall = now + terms.epoch_ns
        if terms.align == ALIGN["epoch"]:
            begin = wall // terms.period_ns * terms.period_ns
            end = begin + terms.period_ns
        else:
            begin, end = calendar_edges(terms.align, terms.utc_offset_s, wall)
        return begin - terms.epoch_ns, end - terms.epoch_ns

    def _used(self, now):
        return self.count if self.begin is not None and now < self.end else 0

    def room(self, now):
        return self.capacity - self._used(now)

    def spend(self, now, count):
        if not self._used(now):
            self.begin, self.end = self.edges(now)
            self.count = 0
        self.count += count

    def chargeable(self, now, count):
        return min(count, 2 * self.capacity - self._used(now))

    def wait(self, now, cost):
        return self.end - now

    def reset_after(self, now):
        return self.end - now if self._used(now) else 0

    def copy(self):
        twin = type(self)(self.terms)
        twin.begin, twin.end, twin.count = self.begin, self.end, self.count
        return twin
