# SPDX-License-Identifier: MIT
"""The store over memcached as Python asks it: through the program store_memcached, line by line."""

import os
import subprocess
import sys
from collections import namedtuple

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "interop"))

import stint_abi as abi  # noqa: E402
from store import OUTCOMES  # noqa: E402
from store_servers import Memcached  # noqa: E402,F401

WAITS, DECIDED, FAILED, REFUSED, CONFLICT, GONE = range(6)
VERBS = {"take": 0, "take_upto": 1, "peek": 2, "charge": 3, "refund": 4, "reset": 7,
         "reserve": 0, "settle": 10, "cancel": 11, "expire": 13}

# What was decided, in ns; `items` are decisions, too. None where it was not decided.
Decision = namedtuple("Decision", "outcome granted limit remaining retry_after reset_after binding")
Answer = namedtuple("Answer", "outcome at sum items error")


def in_whole_us(decision):
    """As store.in_us() has a decision of C's; of memcached's all times are whole already."""
    never = decision.retry_after == abi.NEVER_NS
    assert never or decision.retry_after % 1000 == 0
    assert decision.reset_after % 1000 == 0
    return (*decision[:4], None if never else decision.retry_after // 1000,
            decision.reset_after // 1000)


def decision(text):
    outcome, *numbers = map(int, text.split())
    return Decision(OUTCOMES[outcome], *numbers)


class Node:
    """A process that asks a store; its clock may be ahead, and it waits so long for an answer."""

    def __init__(self, url, prefix="t:", ahead_ns=0, timeout_ms=2000, ca_file=None):
        words = [url, prefix, ahead_ns, timeout_ms, *([ca_file] if ca_file else [])]
        self.process = subprocess.Popen(
            [os.environ["STINT_STORE_MEMCACHED"], *map(str, words)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self):
        line = self.process.stdout.readline()
        assert line, f"it has ended: {self.process.wait()}"
        return line.rstrip("\n")

    def ask_list(self, items, verb, now_us=None, at_ns=0, ticket=None):
        """items: (SPEC, key, cost), the cost as COST/KEPT where it may expire; ticket: (id, us)."""
        words = "".join(f"\t{cost}\t{key}\t{spec}" for spec, key, cost in items)
        now = "-" if now_us is None else now_us * 1000
        more = f" {ticket[0]} {ticket[1] * 1000}" if ticket else ""
        self.say(f"ask {VERBS[verb]} {now} {at_ns}{more}{words}")
        head, *decisions = self.hear().split(" | ")
        outcome, at, *error = head.split(" ", 2)
        if int(outcome) != DECIDED:
            return Answer(int(outcome), None, None, [], "".join(error))
        total, *each = map(decision, decisions)
        return Answer(DECIDED, int(at), total, each, "")

    def ask(self, spec, key, verb, cost, now_us=None, at_ns=0):
        answer = self.ask_list([(spec, key, cost)], verb, now_us, at_ns)
        assert answer.outcome == DECIDED, answer.error
        assert answer.items == [answer.sum]
        return answer

    def count(self, key, amount, expiry_us, now_us=None, verb=None):
        """(count, expires after so many us) of a counter."""
        verb = verb or ("charge" if amount > 0 else "refund" if amount < 0 else "peek")
        now = "-" if now_us is None else now_us * 1000
        self.say(f"ask {VERBS[verb]} {now} 0\t{abs(amount)}\t{key}\tcounter {expiry_us}")
        head, *decisions = self.hear().split(" | ")
        assert int(head.split(" ", 1)[0]) == DECIDED, head
        *_, decided, counted = decisions
        return int(counted), in_whole_us(decision(decided))[5]

    def begin_load(self, spec, key, count, parallel, cost=1):
        self.say(f"load {count} {parallel} {cost} {key}\t{spec}")

    def end_load(self):
        """(time, units) of each grant; how many were decided; how many failed."""
        grants = []
        while True:
            word, first, second = self.hear().split()
            if word == "done":
                return grants, int(first), int(second)
            grants.append((int(first), int(second)))

    def idle(self, ms):
        self.say(f"idle {ms}")
        assert self.hear() == "idle"

    def figures(self):
        self.say("figures")
        names = ("asks", "conflicts", "lost", "kept", "restarts", "skew_ns", "damaged",
                 "skew_told_ns")
        return dict(zip(names, map(int, self.hear().split()), strict=True))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            assert self.process.wait(20) == 0
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            self.process.stdout.close()


def spec_of(quota):
    """The quota as text, as the program reads it."""
    text = abi.c.create_string_buffer(256)
    abi.lib.stint_quota_format(abi.c.byref(quota), text, len(text))
    return text.value.decode()
