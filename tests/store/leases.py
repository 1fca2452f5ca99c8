# SPDX-License-Identifier: MIT
"""The scripts of leased units as docs/store-scripts.md says, and what is to come of them."""

import bisect
from collections import namedtuple

import stint_abi as abi
from store import NAMES, Store, instant, reply_of, words_of

LEASED = 64  # leases of one key
INEXACT = [abi.ALGORITHMS[name] for name in ("gcra", "fixed_window", "sliding_counter")]
Lease = namedtuple("Lease", "end units")


class Leases(Store):
    """lease_ALGORITHM, with the keys KEY and KEY!leases."""

    def ask_leased(self, quota, key, verb, cost, now=None, at=0, term=0, settled=()):
        """settled: (lease, units left of it)."""
        words = [*words_of(quota), term]
        for lease, left in settled:
            words += [lease.end, lease.units, left]
        return reply_of(self.call(f"lease_{NAMES[quota.algorithm]}", [key, f"{key}!leases"], verb,
                                  cost, instant(now), at, *words))

    def lease(self, quota, key, units, now=None, least=1, term=0, settled=()):
        """(reply, lease or None)"""
        reply = self.ask_leased(quota, key, "lease", units, now, least, term, settled)
        end = reply.holders[0][0] if reply.holders else 0
        return reply, Lease(end, reply.granted) if end else None

    def still_out(self, key):
        value = self.client.get(f"{key}!leases") or b"\x81"
        assert value[0] == 0x81
        return [Lease(int.from_bytes(value[at:at + 7], "big"),
                      int.from_bytes(value[at + 7:at + 11], "big"))
                for at in range(1, len(value), 11)]


class Model:
    """What the script is to decide, over a state that C keeps."""

    def __init__(self, quota):
        self.state, self.leases, self.now = abi.State(quota), [], 0

    @property
    def out(self):
        return sum(lease.units for lease in self.leases)

    def settle(self, now, settled=()):
        while self.leases and self.leases[0].end <= now:
            ended = self.leases.pop(0)
            charged = self.state.ask(ended.end * 1000, "charge", ended.units).granted
            assert charged == ended.units, "a lease is always charged whole"
        for lease, left in settled:
            if lease in self.leases:
                self.leases.remove(lease)
                if left < lease.units:
                    used = lease.units - left
                    assert self.state.ask(now * 1000, "charge", used).granted == used

    def room(self, now):
        """(what a single caller could have, the capacity)"""
        seen = self.state.peek(now * 1000, 0)
        return max(0, seen.remaining - self.out), seen.limit

    def answer(self, verb, cost, now, at=0, settled=()):
        """(outcome, granted, remaining) of a verb that leases nothing."""
        self.settle(now, settled)
        room, capacity = self.room(now)
        if cost == 0 and verb in ("take", "peek", "take_upto"):
            return self.state.peek(now * 1000, 0).outcome, 0, room
        if verb in ("take", "peek"):
            if cost > capacity:
                return "never", 0, room
            if cost > room:
                return "deny", 0, room
            if verb == "take":
                self.state.ask(now * 1000, "take", cost)
            return "allow", cost, room - cost
        if verb == "take_upto":
            if cost and not room:
                return "deny", 0, 0
            granted = min(cost, room)
            self.state.ask(now * 1000, "take", granted)
            return "allow", granted, room - granted
        if verb == "charge":
            granted = cost
            if self.state.quota.algorithm in INEXACT:  # whose debt leaves room for what is out
                most = self.state.copy().ask(now * 1000, "charge", cost + self.out).granted
                granted = min(cost, max(0, most - self.out))
            granted = self.state.ask(now * 1000, "charge", granted).granted
            return "allow", granted, self.room(now)[0]
        if verb == "refund":
            granted = self.state.ask(now * 1000, "refund", cost, at * 1000).granted
            return "allow", granted, self.room(now)[0]
        if verb == "reset":
            self.state = abi.State(self.state.quota)
            return "allow", 0, self.room(now)[0]
        assert verb == "return"
        return "allow", 0, room

    def lease(self, units, least, term, now, settled=()):
        self.settle(now, settled)
        room, capacity = self.room(now)
        if least > capacity:
            return "never", 0, room
        if room < least:
            return "deny", 0, room
        if len(self.leases) == LEASED:
            return "allow", 0, room
        granted = min(max(units, least), max(least, room // (2 * (len(self.leases) + 1))))
        if term:
            end, ends = now + term, {lease.end for lease in self.leases}
            while end in ends:
                end += 1
            bisect.insort(self.leases, Lease(end, granted), key=lambda one: one.end)
        else:
            self.state.ask(now * 1000, "take", granted)
        return "allow", granted, room - granted


def most_in_a_window(uses, period):
    """uses: (time, units). Over all half-open windows of the period."""
    uses, most, total, first = sorted(uses), 0, 0, 0
    for time, units in uses:
        total += units
        while uses[first][0] <= time - period:
            total -= uses[first][1]
            first += 1
        most = max(most, total)
    return most
