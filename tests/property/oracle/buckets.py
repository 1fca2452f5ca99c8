# SPDX-License-Identifier: MIT
"""`buckets` as a plain list of (first use, last use, count)."""

from .terms import Model


class Buckets(Model):
    """A use goes to the newest bucket until that is full or its time is over."""

    def __init__(self, terms):
        super().__init__(terms)
        self.list = []  # [first use, last use, count], oldest first
        self.displaced = 0  # units that come back with the oldest bucket
        self.own = 0  # the latest use
        self.closed = False  # the newest bucket takes no more: a newer one was emptied

    def _now(self, now):
        return max(now, self.own)

    def alive(self, now):
        now = self._now(now)
        return [bucket for bucket in self.list if bucket[1] + self.terms.period_ns > now]

    def room(self, now):
        return max(0, self._vacant(now) - self._displaced(now))

    def _vacant(self, now):
        return self.capacity - sum(count for _, _, count in self.alive(now))

    def _displaced(self, now):
        return self.displaced if len(self.alive(now)) == len(self.list) else 0

    def displace(self, now, count):
        """What does not fit displaces the oldest units."""
        kept = min(count, self.capacity)
        over = max(0, kept - self._vacant(now))
        self.displaced = self._displaced(now) + count - kept + over
        self.list = self.alive(now)
        while over:
            taken = min(over, self.list[0][2])
            self.list[0][2] -= taken
            over -= taken
            if not self.list[0][2]:
                self.list.pop(0)
        self.spend(now, kept)

    def refund(self, now, count, granted_at):
        """The displaced, whole buckets, oldest first; in part the newest, if the use was in it."""
        granted_at, own, alive = min(granted_at, now), self._now(now), self.alive(now)
        if granted_at + self.terms.period_ns <= own or not alive:
            return 0
        dead, missing = self.list[:len(self.list) - len(alive)], count
        if not dead:
            back = min(missing, self.displaced)
            self.displaced -= back
            missing -= back
        while alive and alive[0][2] <= missing:
            missing -= alive.pop(0)[2]
        if alive and missing and not self.closed and (
                len(alive) == 1 or granted_at > alive[-1][0] or granted_at >= self.own):
            back = min(missing, alive[-1][2])
            missing -= back
            alive[-1][2] -= back
            if not alive[-1][2]:
                alive.pop()
                self.closed = bool(dead or alive)
        self.list = dead + alive
        self.closed = self.closed and bool(self.list)
        return count - missing

    def _takes_more(self, bucket, now):
        slack, size = self.terms.time_slack_ns, self.terms.count_slack
        timed_out = slack and now >= bucket[0] + slack
        return not self.closed and not timed_out and not (size and bucket[2] >= size)

    def spend(self, now, count):
        self.displaced = self._displaced(now)
        now, self.list = self._now(now), self.alive(now)
        self.own = now
        while count:
            if not self.list or not self._takes_more(self.list[-1], now):
                if len(self.list) == self.most_alive():  # there is none: the oldest is displaced
                    self.displaced += self.list.pop(0)[2]
                self.list.append([now, now, 0])
                self.closed = False
            newest = self.list[-1]
            room = self.terms.count_slack - newest[2] if self.terms.count_slack else count
            newest[1] = now
            newest[2] += min(room, count)
            count -= min(room, count)

    def wait(self, now, cost):
        missing = cost - self._vacant(now)
        for _, last, count in self.alive(now):
            missing -= count
            if missing <= 0:
                return last + self.terms.period_ns - now
        raise AssertionError("a cost within capacity fits once all buckets are back")

    def reset_after(self, now):
        alive = self.alive(now)
        return alive[-1][1] + self.terms.period_ns - now if alive else 0

    def denial_is_justified(self, uses, now, cost):
        terms = self.terms
        by_time = uses.used_in(now, terms.period_ns + terms.time_slack_ns) + cost > terms.limit
        if self._displaced(now):
            slack = 2 * max(0, terms.count_slack - 1)
            used = uses.used_in(now, terms.period_ns + terms.time_slack_ns)
            return used + cost > terms.limit - slack
        by_count = uses.used_in(now, terms.period_ns) + cost > terms.limit - terms.count_slack + 1
        return (by_time or not terms.time_slack_ns) and (by_count or not terms.count_slack)

    def most_alive(self):
        """The bound on the number of buckets alive at once: docs/semantics.md, 4.4."""
        terms = self.terms
        if not terms.time_slack_ns:
            return -(-terms.limit // terms.count_slack)
        by_time = -(-terms.period_ns // terms.time_slack_ns)
        if not terms.count_slack:
            return min(by_time + 1, terms.limit)
        if terms.count_slack >= 2 and terms.limit > by_time:
            return by_time + -(-(terms.limit - by_time) // terms.count_slack)
        return min(terms.limit, by_time + -(-terms.limit // terms.count_slack))

    def copy(self):
        twin = type(self)(self.terms)
        twin.list = [list(bucket) for bucket in self.list]
        twin.displaced, twin.own, twin.closed = self.displaced, self.own, self.closed
        return twin
