# SPDX-License-Identifier: MIT
"""The script of a pool, called as docs/store-scripts.md says, and as C calls it."""

import os
import subprocess
from collections import namedtuple

import redis as client_library

import stint_abi as abi
from store import NAMES, OUTCOMES, SCRIPTS, Store, instant, words_of

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


def rounded_wait(ns):
    assert ns == abi.NEVER_NS or ns % 1000 == 0
    return None if ns == abi.NEVER_NS else ns // 1000


class CPool(StorePool):
    """The same, in words of backend/redis/pool_backend.h, and its readings of the replies."""

    def __init__(self, client, order="round_robin"):
        self.client, self.order, self.keys, self.known = client, order, {}, None
        self.key = "stint:{a%20pool}pool"
        self.process = subprocess.Popen([os.environ["STINT_STORE_POOL_WORDS"]], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(20) == 0
        self.process.stdout.close()

    def say(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().rstrip("\n")

    def define(self):
        described = "".join(f"\t{name}\t{weight}\t" + "|".join(quota.spec for quota in quotas)
                            for name, (quotas, weight) in self.keys.items())
        if described != self.known:
            said = self.say(f"pool {ORDERS.index(self.order)}{described}")
            self.known = described if said == "made" else None
            return said
        return "made"

    def ask(self, what, *words):
        assert self.define() == "made"
        line = self.say(*words)
        if line == "none":
            return None
        asked = [b"" if word == "-" else bytes.fromhex(word) for word in line.split(" ")]
        try:
            values = self.client.execute_command(*asked)
        except client_library.exceptions.NoScriptError:
            self.client.script_load(SCRIPTS["pool"])
            values = self.client.execute_command(*asked)
        if what is None:
            return values
        read = self.say("read", what, *values)
        assert read != "none", values
        return read.split()

    @staticmethod
    def now_of(now):
        return "-" if now is None else now * 1000

    def next(self, cost=1, probe=False, now=None):
        name, *numbers = self.ask("next", "next", self.now_of(now), cost, int(probe))
        wait, at, probed, outcome, granted, limit, remaining, retry, reset, binding = map(
            int, numbers)
        return Next(name if name != "-" else None, rounded_wait(wait), at // 1000, bool(probed),
                    binding, OUTCOMES[outcome], granted, limit, remaining, rounded_wait(retry),
                    reset // 1000)

    def give_back(self, name, units, granted_at, now=None):
        return int(self.ask("back", "give_back", name, units, granted_at * 1000,
                            self.now_of(now))[0])

    def report(self, name, outcome, cooldown=0, now=None):
        return self.ask(None, "report", name, REPORTS.index(outcome), cooldown * 1000,
                        self.now_of(now))

    def let_in(self, name, now=None):
        return self.ask(None, "let_in", name, self.now_of(now))

    def status(self, now=None):
        rows = zip(*[iter(self.ask("status", "status", self.now_of(now)))] * 12)
        found = []
        for name, weight, *numbers in rows:
            assert int(weight) == self.keys[name][1]
            standing, failures, returns, outcome, _, limit, remaining, retry, reset, _ = map(
                int, numbers)
            found.append(Standing(name, STANDINGS[standing], failures, rounded_wait(returns),
                                  OUTCOMES[outcome], limit, remaining, rounded_wait(retry),
                                  reset // 1000))
        return found
