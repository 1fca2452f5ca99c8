# SPDX-License-Identifier: MIT
"""Reads states as docs/store-scripts.md lays them out, and says what they hold at an instant.

Written from the documentation, not from the scripts.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil

VERSIONS = {0x11: "window", 0x21: "buckets", 0x31: "log", 0x41: "gcra", 0x51: "fixed_window",
            0x61: "sliding_counter", 0x71: "concurrency", 0x91: "counter"}
WITH_DISPLACED = (0x12, 0x22, 0x32)  # one more than the version without


class Reader:
    def __init__(self, value):
        self.value, self.at, self.displaced = value, 0, 0
        version = self.number(1)
        self.name = VERSIONS[version - (version in WITH_DISPLACED)]
        self.has_displaced = version in WITH_DISPLACED
        if self.has_displaced and self.name != "window":
            self.displaced = int.from_bytes(value[-4:], "big")
            self.value = value[:-4]

    def number(self, size):
        assert self.at + size <= len(self.value), "the value is too short"
        self.at += size
        return int.from_bytes(self.value[self.at - size:self.at], "big")

    @property
    def is_at_end(self):
        return self.at == len(self.value)


@dataclass
class State:
    algorithm: str
    used: int          # units that count at the instant
    own_us: int        # the state's own time; 0 where it has none
    dies_us: Fraction  # from then on it is as if never used


def window(read, now, limit, period, resolution, *_):
    resolution = resolution or 24
    limit = read.number(4)
    bunch = ceil(Fraction(limit, resolution))
    short = limit - bunch * (ceil(Fraction(limit, bunch)) - 1)
    slot = read.number(7) * resolution + read.number(1)
    rest, place = read.number(4), read.number(1)
    displaced = read.number(1) if read.has_displaced else 0
    at_slot, n, used, dies = max(slot, now * resolution // period), 0, 0, 0
    bunches = []
    while not read.is_at_end:
        low = read.number(1)
        bunches.append(slot - (slot - low) % 256)
    assert bunches == sorted(bunches), "younger bunches before older ones"
    for n, of_slot in enumerate(bunches, 1):
        size = short if n == place else bunch
        if n == len(bunches):
            size -= rest
        if at_slot - of_slot <= resolution:
            used += size
        dies = ceil(Fraction((of_slot + resolution + 1) * period, resolution))
    own = ceil(Fraction(slot * period, resolution))
    if displaced and at_slot - bunches[0] <= resolution:
        used = limit  # the bunches displaced count as long as the oldest
    return used, own, dies or own


def buckets(read, now, limit, period, *_):
    first, closed, list_ = read.number(7), read.number(1), []
    while not read.is_at_end:
        list_.append((read.number(7), read.number(4)))
    own = first if closed or not list_ else list_[-1][0]
    alive = [count for last, count in list_ if last + period > max(now, own)]
    assert [last for last, _ in list_] == sorted(last for last, _ in list_)
    used = sum(alive) + (read.displaced if len(alive) == len(list_) else 0)
    return min(limit, used), own, list_[-1][0] + period if list_ else first


def log(read, now, limit, period, *_):
    own, units, entries = read.number(7), read.number(4), []
    while not read.is_at_end:
        entries.append((read.number(7), read.number(1) + 1))
    assert entries == sorted(entries, key=lambda entry: entry[0])
    assert sum(count for _, count in entries) == units
    alive = [count for instant, count in entries if instant + period > max(now, own)]
    used = sum(alive) + (read.displaced if len(alive) == len(entries) else 0)
    return min(limit, used), own, entries[-1][0] + period if entries else own


def counter(read, now, *_):
    ends, count = read.number(7), read.number(7)
    return count if now < ends else 0, 0, ends


def gcra(read, now, limit, period, *_):
    tat = read.number(7) + Fraction(read.number(2), 32000)
    interval = Fraction(ceil(Fraction(period * 32000, limit)), 32000)
    return ceil(max(Fraction(0), tat - now) / interval), 0, tat


def fixed_window(read, now, *_):
    ends, count = read.number(7), read.number(5)
    return count if now < ends else 0, 0, ends


def sliding_counter(read, now, limit, period, *_):
    number, previous, current = read.number(7), read.number(5), read.number(5)
    dies = (number + (2 if current else 1 if previous else 0)) * period
    if now // period > number:
        previous = current if now // period == number + 1 else 0
        current, number = 0, now // period
    elapsed = max(0, now - number * period)
    return current + ceil(Fraction(previous * (period - elapsed), period)), number * period, dies


def concurrency(read, now, limit, lease, *_):
    issued, used = (read.number(7), read.number(2)), 0
    dies = issued[0] + 1 - lease
    while not read.is_at_end:
        deadline, count, units = read.number(7), read.number(2), read.number(2)
        dies = deadline + Fraction(count // 16, 1000)
        if dies > now:
            used += units
        assert (deadline, count) <= issued
    return used, 0, dies


def decode(value, now, *words):
    """words: limit period x y z, as the scripts are given them."""
    read = Reader(value)
    used, own, dies = globals()[read.name](read, now, *words)
    assert read.is_at_end
    return State(read.name, used, own, dies)
