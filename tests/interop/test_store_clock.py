# SPDX-License-Identifier: MIT
"""Clocks that are wrong: that of a Redis, set back and put right while it is asked, and those of
servers on one memcached. What callers saw is judged by the true clock.

tests/store/wrong_clock.c shows a process another time; how much another, a file says.
"""
import os
import time

from admissions import S
from fleet import LIMIT, Fleet, check_bound, check_waits, fleet_rules, wait_until_served
from measure import metric
from redis_server import Redis, until
from store_servers import Memcached

WINDOW_S, STEP_S = 4, 2
WINDOW, STEP = WINDOW_S * S, STEP_S * S
RULES = fleet_rules(window_s=WINDOW_S, on_store_error="deny")


class Clock:
    """That of the processes whose commands have its prefix."""

    def __init__(self, path, ahead_s=0):
        self.path = path
        path.write_bytes(bytes(8))
        self.show(ahead_s)

    def show(self, ahead_s):
        with open(self.path, "r+b") as out:
            out.write(int(ahead_s * S).to_bytes(8, "little", signed=True))

    @property
    def prefix(self):
        # In a build with sanitizers their runtime would want to be the first.
        sanitizer = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
        return ["env", f"LD_PRELOAD={os.environ['STINT_WRONG_CLOCK']}", f"WRONG_CLOCK={self.path}",
                f"ASAN_OPTIONS={sanitizer}"]


def ahead_s(redis):
    """By how much its clock is ahead of ours."""
    return int(redis.cli("TIME").split()[0]) - time.time()


def without_instants(seen):
    """The store's instants are by its own clock."""
    return [one._replace(at_ns=None) for one in seen]


def test_the_clock_of_a_store_is_set_back_and_put_right(tmp_path):
    clock = Clock(tmp_path / "clock")
    with Redis(prefix=clock.prefix) as redis, Fleet(2, redis.url, rules=RULES) as fleet:
        assert abs(ahead_s(redis)) < 1.5
        with fleet.crowd(rate=600) as crowd:
            wait_until_served(crowd, 2)
            time.sleep(WINDOW_S / 2)
            clock.show(-STEP_S)
            until(lambda: ahead_s(redis) < -STEP_S / 2, "its clock is set back")
            wait_until_served(crowd, 2)
            time.sleep(STEP_S)
            right_ns = time.time_ns()
            clock.show(0)
            until(lambda: ahead_s(redis) > -STEP_S / 2, "its clock is right")
            wait_until_served(crowd, 2)
            time.sleep(WINDOW_S / 2)
    seen = without_instants(crowd.seen)
    before = [one for one in seen if one.answered_ns < right_ns]
    # Units come back no earlier for it: it is as if time stood still for their keys.
    check_bound(before, window_ns=WINDOW)
    # Put right, it leaps: what was taken just before comes back so much early.
    check_bound(seen, window_ns=WINDOW - STEP)
    check_bound(seen, limit=2 * LIMIT, window_ns=WINDOW)
    check_waits(seen)


class Here:
    """As a machine of network.py, but for its clock: this one."""

    client_address = "127.0.0.1"

    def __init__(self, prefix=()):
        self.prefix = list(prefix)


def skew(fleet, at):
    return metric(fleet.servers[at].http, "stint_store_clock_skew_seconds")


def test_clocks_of_servers_differ_on_memcached(tmp_path):
    """One is ahead by a part of the window: that much less of it is there to be kept to."""
    ahead_s = 1
    clock = Clock(tmp_path / "clock", ahead_s)
    machines = [Here(), Here(clock.prefix)]
    with Memcached() as store, Fleet(2, store.url, rules=RULES, machines=machines) as fleet:
        with fleet.crowd(rate=600) as crowd:
            wait_until_served(crowd, 2)
            time.sleep(2 * WINDOW_S)
            # The one that is behind finds the other ahead, by a note that it may have left a while
            # ago: on a busy machine by less, for a time.
            until(lambda: ahead_s / 2 < skew(fleet, 0) < ahead_s + 0.5, "the clock ahead is seen")
            assert skew(fleet, 1) < ahead_s / 2
    seen = without_instants(crowd.seen)
    assert {one.frontend for one in seen if one.outcome == "allow"} == {0, 1}
    check_bound(seen, window_ns=WINDOW - ahead_s * S)
    check_bound(seen, limit=2 * LIMIT, window_ns=WINDOW)
    check_waits(seen)
