# SPDX-License-Identifier: MIT
"""Two servers on one store: what several clients were answered is a history of the sequential
engine (tests/linear). Units return after 1,000 hours, so the time of a call does not matter.
"""
import os
import random
import subprocess
import threading
import time

import pytest

from fleet import PATIENT, Fleet
from redis_server import Redis
from store_servers import Memcached

CALLERS, CALLS, KEYS = 4, 16, 2
ROUNDS = int(os.environ.get("STINT_LINEAR_ROUNDS", "6"))
VERBS = {"TAKE": 0, "TAKEUPTO": 1, "PEEK": 2, "CHARGE": 3}
OUTCOMES = {"allow": 0, "deny": 1, "never": 2}
LISTS_AT_ONCE, DENIALS_MAY_BE_OLD = 1, 2
SPECS = ["gcra 9/1000h burst=9", "window 9/1000h resolution=10", "window 9/1000h",
         "fixed_window 9/1000h align=first_use", "sliding_counter 9/1000h", "log 9/1000h",
         "buckets 9/1000h count_slack=2"]
NOTHING_CACHED = ("--deny-cache", "0")


def targets(spec, name, key, is_list):
    keys = [key, 1 - key] if is_list else [key]
    return [word for at in keys for word in ("QUOTA", spec, f"{name}:{at}")]


class Caller(threading.Thread):
    """Asks one server, on a connection of its own; `lines` are what linear_read expects."""

    def __init__(self, number, server, spec, name, seed, has_lists):
        super().__init__()
        self.number, self.server, self.spec, self.name = number, server, spec, name
        self.random, self.has_lists, self.lines = random.Random(seed), has_lists, []

    def run(self):
        with self.server.connect() as conn:
            for _ in range(CALLS):
                self.call(conn)

    def call(self, conn):
        draw = self.random
        is_list = self.has_lists and draw.random() < 0.5
        verb = "TAKE" if is_list else draw.choice(["TAKE", "TAKE", "TAKEUPTO", "PEEK", "CHARGE"])
        key, cost = draw.randrange(KEYS), draw.randint(1, 3)
        if not is_list:
            key = min(key, draw.randrange(KEYS))  # three of four calls meet on one
        begin = time.monotonic_ns()
        answer = conn.ask(f"STINT.{verb}", "COST", cost,
                          *targets(self.spec, self.name, key, is_list))
        end = time.monotonic_ns()
        assert isinstance(answer, list), answer
        said = dict(zip(answer[::2], answer[1::2]))
        self.lines.append(" ".join(map(str, (
            self.number, begin, end, VERBS[verb], key, int(is_list), cost,
            OUTCOMES[said["outcome"]], said["granted"], said["remaining"]))))


def record(servers, spec, name, seed, has_lists):
    callers = [Caller(number, servers[number % len(servers)], spec, name, seed + number, has_lists)
               for number in range(CALLERS)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    lines = [line for caller in callers for line in caller.lines]
    assert len(lines) == CALLERS * CALLS
    return lines


def verdicts(text):
    done = subprocess.run([os.environ["STINT_LINEAR_READ"]], input=text, capture_output=True,
                          text=True, timeout=120, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout.splitlines()


def check_store(store, flags, *options, has_lists):
    texts = []
    with store as running, Fleet(2, running.url, *PATIENT, *options) as fleet:
        for number in range(ROUNDS):
            for at, spec in enumerate(SPECS):
                lines = record(fleet.servers, spec, f"{at}.{number}", 100 * number + at, has_lists)
                texts.append("\n".join([f"history {flags} {spec}", *lines, "end\n"]))
    found = verdicts("".join(texts))
    assert len(found) == len(texts)
    for text, verdict in zip(texts, found):
        assert verdict.startswith("linearizable"), f"{verdict}:\n{text}"
    overlaps = sum(int(verdict.split()[-2]) for verdict in found)
    print(f"{len(found)} histories, {overlaps} calls overlap an earlier one")
    assert overlaps > len(found)
    return texts


@pytest.mark.parametrize("has_lists", [False, True], ids=["keys", "lists"])
def test_two_servers_on_one_redis(has_lists):
    check_store(Redis(), LISTS_AT_ONCE, *NOTHING_CACHED, has_lists=has_lists)


def test_a_denial_of_the_cache_is_one_of_the_store():
    """But what it says is left may be what was left when the store denied."""
    check_store(Redis(), LISTS_AT_ONCE | DENIALS_MAY_BE_OLD, has_lists=False)


def test_two_servers_on_one_memcached():
    check_store(Memcached(), 0, *NOTHING_CACHED, has_lists=False)


def test_servers_without_a_store_are_refused():
    """Each has a table of its own, and grants the limit once more: that is no history of one."""
    with Fleet(2, None) as fleet:
        lines = record(fleet.servers, "log 9/1000h", "alone", 1, False)
    assert verdicts("\n".join(["history 0 log 9/1000h", *lines, "end\n"]))[0].startswith("not ")
