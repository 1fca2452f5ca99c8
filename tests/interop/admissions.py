# SPDX-License-Identifier: MIT
"""Judges from outside whether a limit held: from what callers saw alone, and never too harshly.

A caller knows when it sent and when it was answered; its units were charged at some instant
between. So an interval that lies within a window counts there, whenever that instant was, and
nothing else does: what is claimed here is so at the times that are kindest to the server. Where
the answer tells the instant itself (`at`), the count is exact.

Times are of the machine's clock, CLOCK_REALTIME, since that is what a store on it counts by.
"""
import bisect
import math
from collections import defaultdict, namedtuple

US = 1000
S = 1_000_000_000

# One take that was granted. at_ns: when, as the server told; None: it did not.
Admission = namedtuple("Admission", "key units sent_ns answered_ns at_ns", defaults=(None,))
# The fullest window: from its first unit on.
Worst = namedtuple("Worst", "units from_ns to_ns")


class Sums:
    """Sums over a prefix of places, while single places grow (a Fenwick tree)."""

    def __init__(self, size):
        self.tree = [0] * (size + 1)

    def add(self, place, value):
        place += 1
        while place < len(self.tree):
            self.tree[place] += value
            place += place & -place

    def before(self, place):
        total = 0
        while place:
            total += self.tree[place]
            place -= place & -place
        return total


def fullest(spans, length_ns):
    """Worst over all half-open windows of that length: units of the spans (from, to, units) that
    lie wholly in one."""
    ends = sorted(to for _, to, _ in spans)
    sums, worst = Sums(len(ends)), Worst(0, 0, 0)
    # From the last beginning to the first: what has been added began no earlier than this one.
    for begin, end, units in sorted(spans, reverse=True):
        sums.add(bisect.bisect_left(ends, end), units)
        found = sums.before(bisect.bisect_left(ends, begin + length_ns))
        if found > worst.units:
            worst = Worst(found, begin, begin + length_ns)
    return worst


def most_in_any_window(admissions, window_ns, windows=1):
    """The most units that were surely granted in any `windows` windows in a row.

    A store cuts its time to microseconds, so what it takes for a whole window may be one less.
    """
    spans = [(one.sent_ns, one.answered_ns, one.units) for one in admissions]
    return fullest(spans, windows * window_ns - US)


def most_by_server_time(admissions, window_ns, windows=1):
    """The same by the instants that the server told: exact for its clock."""
    spans = [(one.at_ns, one.at_ns, one.units) for one in admissions if one.at_ns is not None]
    return fullest(spans, windows * window_ns)


def by_key(admissions):
    found = defaultdict(list)
    for one in admissions:
        found[one.key].append(one)
    return found


def excess(admissions, limit, window_ns, windows=4):
    """A sentence for each key that surely was granted more than `limit` in some window: also over
    two, three and four windows in a row, where those between them may hide it in one."""
    faults = []
    for key, own in sorted(by_key(admissions).items()):
        for count in range(1, windows + 1):
            for how, judge in (("as callers saw it", most_in_any_window),
                               ("by the server's own times", most_by_server_time)):
                worst = judge(own, window_ns, count)
                if worst.units > limit * count:
                    faults.append(f"{key}: {worst.units} of {limit * count} in "
                                  f"{count * window_ns / S:g} s from {worst.from_ns}, {how}")
    return faults


def strangers(admissions, slack_ns=2 * US):
    """Those whose told instant is not between asking and the answer: for the same clock, a lie."""
    return [one for one in admissions if one.at_ns is not None and not
            one.sent_ns - slack_ns <= one.at_ns <= one.answered_ns + slack_ns]


def percentile(values, share):
    """The least of the values that at least that share does not pass."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)] if values else 0
