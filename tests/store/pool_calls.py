# SPDX-License-Identifier: MIT
"""The script of a pool, called as docs/store-scripts.md says."""

from collections import namedtuple

from store import NAMES, OUTCOMES, Store, instant, words_of

ORDERS = ("round_robin", "fill_first", "least_used")
REPORTS = ("ok", "cool", "back_off", "out")
STANDINGS = ("free", "used up", "cooling", "backing off", "out")

# name is None where no key is free; waits are in us, None for one that never ends.
Next = namedtuple("Next", "name wait granted_at probe binding outcome granted limit remaining "
                          "retry_after reset_after")
Standing = namedtuple("Standing", "name standing failures returns_after outcome limit remaining "
                                  "retry_after reset_after")


def wait_of(us):
    return None if us < 0 else us


class StorePool:
    """keys: {name: (quotas, weight)}, in the order in which they were added."""

    def __init__(self, client, key="{pool}pool", order="round_robin"):
        self.store, self.key, self.order, self.keys = Store(client, ["pool"]), key, order, {}

    def names(self):
        if self.order != "round_robin":
            return list(self.keys)
        return sorted(self.keys, key=lambda name: (-self.keys[name][1], name))

    def call(self, verb, names, now, cost=0, at=0, probe=False):
        groups = []
        for name in names:
            if self.keys[name][0] not in groups:
                groups.append(self.keys[name][0])
        numbers = [groups.index(self.keys[name][0]) + 1 for name in names]
        weights = [self.keys[name][1] for name in names]
        words = [word for quotas in groups
                 for word in (len(quotas), *(part for quota in quotas for part in
                                             (NAMES[quota.algorithm], *words_of(quota))))]
        return self.store.call(
            "pool", [self.key], verb, instant(now), cost, at, ORDERS.index(self.order), int(probe),
            "" if set(weights) <= {1} else ",".join(map(str, weights)),
            "" if len(groups) <= 1 else ",".join(map(str, numbers)), len(groups), *words, *names)

    def next(self, cost=1, probe=False, now=None):
        names = self.names()
        index, wait, at, probed, binding, outcome, *rest, retry, reset = self.call(
            "next", names, now, cost, probe=probe)
        return Next(names[index] if index >= 0 else None, wait_of(wait), at, bool(probed), binding,
                    OUTCOMES[outcome], *rest, wait_of(retry), reset)

    def give_back(self, name, units, granted_at, now=None):
        return self.call("give_back", [name], now, units, granted_at)[0]

    def report(self, name, outcome, cooldown=0, now=None):
        return self.call("report", [name], now, REPORTS.index(outcome), cooldown)

    def let_in(self, name, now=None):
        return self.call("let_in", [name], now)

    def status(self, now=None):
        names = list(self.keys)
        values = self.call("status", names, now)
        assert len(values) == 8 * len(names)
        return [Standing(name, STANDINGS[standing], failures, wait_of(returns), OUTCOMES[outcome],
                         limit, remaining, wait_of(retry), reset)
                for name, (standing, failures, returns, outcome, limit, remaining, retry, reset)
                in zip(names, zip(*[iter(values)] * 8))]
