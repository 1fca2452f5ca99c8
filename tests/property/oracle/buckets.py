# SPDX-License-Identifier: MIT
"""`buckets` as a plain list of (first use, last use, count)."""

from .terms import Model


class Buckets(Model):
    """A use goes to the newest bucket until that is full or its time is over."""

    def __init__(self, terms):
        super().__init__(terms)
        self.list = []  # [first use, last use, count], oldest first

    def _now(self, now):
        return max(now, self.list[-1][1]) if self.list else now

    def alive(self, now):
        now = self._now(now)
        return [bucket for bucket in self.list if bucket[1] + self.terms.period_ns > now]

    def room(self, now):
        return self.capacity - sum(count for _, _, count in self.alive(now))

    def _takes_more(self, bucket, now):
        slack, size = self.terms.time_slack_ns, self.terms.count_slack
        return not (slack and now >= bucket[0] + slack) and not (size and bucket[2] >= size)

    def spend(self, now, count):
        now, self.list = self._now(now), self.alive(now)
        while count:
            if not self.list or not self._takes_more(self.list[-1], now):
                self.list.append([now, now, 0])
            newest = self.list[-1]
            room = self.terms.count_slack - newest[2] if self.terms.count_slack else count
            newest[1] = now
            newest[2] += min(room, count)
            count -= min(room, count)

    def wait(self, now, cost):
        missing = cost - self.remaining(now)
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
        by_count = uses.used_in(now, terms.period_ns) + cost > terms.limit - terms.count_slack + 1
        return (by_time or not terms.time_slack_ns) and (by_count or not terms.count_slack)

    def most_alive(self):
        """The bound on the number of buckets alive at once, from SEMANTICS."""
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
        return twin
