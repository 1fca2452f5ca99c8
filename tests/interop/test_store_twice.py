# SPDX-License-Identifier: MIT
"""Stores whose master is lost twice within a window, or goes on although others have given it up:
the bounds of docs/distributed.md, with as much lost as can be."""
import time

import pytest

from admissions import S, by_key, most_in_any_window
from crowd import admissions, between
from fleet import (KEYS, LIMIT, WINDOW, Fleet, check_bound, check_waits, fleet_rules,
                   wait_until_calm, wait_until_served)
from network import Network, why_not
from redis_server import Redis, until
from store_servers import GIVES_UP_MS, Sentinels

LONG_S = 120


def units(seen):
    """{key: units that it was granted}."""
    return {key: sum(one.units for one in own) for key, own in by_key(admissions(seen)).items()}


def is_used_up(seen, life):
    """That master grants no key any more. A unit that it granted between the loss of its replica
    and its own end would be known to the next one, with all before it. A grant whose answer came
    too late was charged and is not seen, so a few may be missing."""
    granted = units(seen)
    since_ns = time.time_ns() - S
    late = [one for one in seen[-5000:] if one.sent_ns >= since_ns]
    return len(granted) == len(KEYS) and min(granted.values()) >= life * LIMIT * 0.9 and \
        {one.key for one in late} == set(KEYS) and all(one.outcome == "deny" for one in late)


def lose_all(leader):
    """What a replica has of it is nothing: the most that a failover can lose. A replica that does
    not follow yet would copy everything again after it is emptied."""
    for replica in leader.others:
        until(lambda own=replica: own.info("master_port") == str(leader.port) and
              own.info("master_link_status") == "up", "the replica follows", 20)
        replica.cli("CONFIG", "SET", "replica-read-only", "no")
        replica.cli("FLUSHALL")
        replica.cli("CONFIG", "SET", "replica-read-only", "yes")
    leader.kill()


def test_two_failovers_within_a_window():
    """N by each of three masters, of which none knows what the one before it had granted."""
    rules = fleet_rules(window_s=LONG_S, on_store_error="deny")
    with Sentinels(replicas=2) as store, Fleet(2, store.url, rules=rules) as fleet:
        with fleet.crowd(rate=1500) as crowd:
            for life in (1, 2, 3):
                until(lambda own=life: is_used_up(crowd.snapshot(), own),
                      f"the limit of master {life} is used up", 30, 0.1)
                if life < 3:
                    leader = store.leader()
                    leader.others = [one for one in (store.master, *store.replicas)
                                     if one is not leader and one.is_running()]
                    lose_all(leader)
                    store.switched_from(leader)
            wait_until_calm(crowd)
            time.sleep(0.5)
        switches = store.switches()
    # On a machine that is busy a new master may be taken for lost as well.
    assert 2 <= switches <= 3
    check_bound(crowd.seen, limit=(1 + switches) * LIMIT, window_ns=LONG_S * S)
    check_waits(crowd.seen)


# ---- Two masters at once ----


class Parted:
    """A master on one machine; its replica and the sentinels on another."""

    def __init__(self, network, **settings):
        self.here, self.there = network.machines
        self.settings = settings

    def redis(self, machine, *lines, **settings):
        return Redis(*lines, host=machine.store_address, prefix=machine.prefix, wait=False,
                     protected_mode="no", **settings)

    def __enter__(self):
        self.servers = []
        try:
            self.begin()
        except BaseException as fault:
            self.__exit__(type(fault))
            raise
        return self

    def add(self, server):
        self.servers.append(server)
        server.wait()
        return server

    def begin(self):
        address = self.here.store_address
        self.old = self.add(self.redis(self.here))
        self.new = self.add(self.redis(self.there, replicaof=f"{address} {self.old.port}",
                                       repl_diskless_sync_delay=0))
        until(lambda: self.new.info("master_link_status") == "up", "the replica follows")
        for name, value in self.settings.items():
            self.old.cli("CONFIG", "SET", name.replace("_", "-"), value)
        self.sentinel = self.add(self.redis(
            self.there, f"sentinel monitor main {address} {self.old.port} 1",
            f"sentinel down-after-milliseconds main {GIVES_UP_MS}", program="redis-sentinel"))
        self.sentinel.cli("SENTINEL", "DEBUG", "PUBLISH-PERIOD", 100, "INFO-PERIOD", 500,
                          "PING-PERIOD", 200)
        until(lambda: "slaves=1" in self.sentinel.info("master0"), "the sentinel knows the replica")

    def __exit__(self, kind, *_):
        for server in reversed(self.servers):
            server.__exit__(kind)

    @property
    def url(self):
        return f"redis-sentinel://{self.sentinel.host}:{self.sentinel.port}/main"


def granted_by(seen, frontend):
    return [one for one in seen if one.frontend == frontend and one.outcome == "allow"]


def most_of_a_key(seen, since_ns):
    """The most units of one key in one window."""
    found = by_key(admissions(between(seen, since_ns))).values()
    return max((most_in_any_window(own, WINDOW).units for own in found), default=0)


def part(wanted=0, **settings):
    """(what was seen, when the cable was cut, when the replica was master, when it was mended):
    a server of stint beside each of two masters that do not reach each other, until so many units
    of one key were granted in one window."""
    rules = fleet_rules(on_store_error="deny")
    with Network(2) as network, Parted(network, **settings) as store:
        with Fleet(2, store.url, rules=rules, machines=network.machines) as fleet, \
                fleet.crowd(rate=1200) as crowd:
            wait_until_served(crowd, 2)
            store.here.cut()
            cut_ns = time.time_ns()
            until(lambda: store.new.info("role") == "master", "the replica is master", 20)
            until(lambda: len(granted_by(between(crowd.snapshot(), time.time_ns() - S), 1)) > 50,
                  "it is asked", 20)
            new_ns = time.time_ns()
            time.sleep(3)
            until(lambda: most_of_a_key(crowd.snapshot(), new_ns) >= wanted, "both grant", 20, 0.5)
            store.here.mend()
            mended_ns = time.time_ns()
            until(lambda: store.old.info("role") == "slave", "the old master follows", 20)
            wait_until_served(crowd, 2, 20)
    return crowd.seen, cut_ns, new_ns, mended_ns


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_a_master_that_others_have_given_up_goes_on():
    # They do not know of each other: more than N, or this would be no test.
    seen, _, new_ns, mended_ns = part(wanted=1.5 * LIMIT + 1)
    check_bound(seen, limit=2 * LIMIT)
    check_waits(seen)
    both = between(seen, new_ns, mended_ns)
    for frontend in (0, 1):
        check_bound([one for one in both if one.frontend == frontend])


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_a_master_that_no_replica_follows_stops():
    """min-replicas-to-write: it grants for as long as its replica may be late, and no longer."""
    lag_s = 1
    seen, cut_ns, _, mended_ns = part(min_replicas_to_write=1, min_replicas_max_lag=lag_s)
    check_bound(seen, limit=2 * LIMIT)
    check_waits(seen)
    # It looks once a second, by a clock of whole seconds.
    late = between(granted_by(seen, 0), cut_ns + (lag_s + 3) * S, mended_ns)
    assert not late, len(late)
    assert granted_by(between(seen, cut_ns, cut_ns + S), 0)
