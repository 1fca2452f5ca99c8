# SPDX-License-Identifier: MIT
"""Several servers on memcached: the same limits by swaps of one value, while it stands still and
forgets. All nodes have one clock here, so N is the most in any window.
"""
import socket
import subprocess
import time

import pytest

from admissions import S
from crowd import between, by_rule, outcomes, within
from fleet import (LIMIT, WINDOW_S, Fleet, check_bound, check_waits, fleet_rules, wait_for_answers,
                   wait_until_calm, wait_until_granted, wait_until_served)
from measure import metric
from program import STINT
from redis_server import until
from store_servers import Memcached

RULES = fleet_rules(on_store_error="deny")


@pytest.fixture
def memcached():
    with Memcached() as server:
        yield server


def settle(crowd, fleet):
    wait_until_served(crowd, len(fleet.servers))
    time.sleep(WINDOW_S + 0.5)


@pytest.mark.parametrize("algorithm", ["window", "gcra", "fixed_window"])
def test_eight_servers_grant_what_one_would(memcached, algorithm):
    most = {"window": LIMIT, "gcra": 2 * LIMIT, "fixed_window": 2 * LIMIT}[algorithm]
    with Fleet(8, memcached.url, rules=fleet_rules(algorithm=algorithm)) as fleet:
        with fleet.crowd(connections=2, rate=1500) as crowd:
            wait_until_served(crowd, 8)
            time.sleep(2 * WINDOW_S)
            wait_until_granted(crowd, 0.8 * LIMIT)
    check_bound(crowd.seen, limit=most, tells=False)
    check_waits(crowd.seen)


def test_one_hot_key_that_all_fight_for(memcached):
    """Swaps that fail because others were faster are tried again, and grant nothing twice."""
    with Fleet(8, memcached.url, rules=fleet_rules(limit=500)) as fleet:
        with fleet.crowd(by_rule("fleet", "user", ["one"]), connections=2, rate=2000) as crowd:
            wait_until_served(crowd, 8)
            time.sleep(2 * WINDOW_S)
            wait_until_granted(crowd, 250, keys=1)
            until(lambda: sum(metric(server.http, "stint_store_conflicts_total")
                              for server in fleet.servers) > 0, "some swaps fail")
    check_bound(crowd.seen, limit=500, tells=False)


def test_a_memcached_that_stands_still(memcached):
    with Fleet(3, memcached.url, rules=RULES) as fleet, fleet.crowd(rate=900) as crowd:
        settle(crowd, fleet)
        memcached.pause()
        stopped_ns = time.time_ns()
        time.sleep(1.5)
        resumed_ns = wait_for_answers(crowd, stopped_ns + S // 2)
        memcached.resume()
        settle(crowd, fleet)
        wait_until_calm(crowd)
    check_bound(crowd.seen, tells=False)
    check_waits(crowd.seen)
    away = within(crowd.seen, stopped_ns + S // 2, resumed_ns)
    assert len(away) > 100 and outcomes(away)["allow"] == 0


def test_a_restart_forgets_all(memcached):
    """N in each of its lives, so 2 N in a window that has two."""
    with Fleet(3, memcached.url, rules=RULES) as fleet, fleet.crowd(rate=900) as crowd:
        settle(crowd, fleet)
        kill_ns = time.time_ns()
        memcached.kill()
        killed_ns = time.time_ns()
        memcached.start()
        memcached.wait()
        settle(crowd, fleet)
        wait_until_calm(crowd)
        failovers = [metric(server.http, "stint_store_failovers_total") for server in fleet.servers]
    assert failovers == [1, 1, 1]
    # A request that is open at the kill may be granted in either life.
    check_bound([one for one in crowd.seen if one.answered_ns < kill_ns], tells=False)
    check_bound(between(crowd.seen, killed_ns), tells=False)
    check_bound(crowd.seen, limit=2 * LIMIT, tells=False)
    check_waits(crowd.seen)


def fill(memcached, names):
    """With values that nobody asks for again; of the size of states, since memcached evicts within
    a class of sizes."""
    with socket.create_connection((memcached.host, memcached.port), timeout=20) as link:
        link.sendall(b"".join(b"set other-%s 0 0 %d noreply\r\n%s\r\n" % (
            str(name).encode(), 60, b"x" * 60) for name in names))
        link.sendall(b"version\r\n")
        assert link.recv(1000).startswith(b"VERSION")


def test_what_is_evicted_is_free_again():
    """In 2 MB, others' values push states out. Each state that goes may be granted its N once more:
    keys that are asked all the time stay, one that rests starts anew."""
    rule = "{requests_per_unit: 50, period: 1h, on_store_error: deny}"
    text = RULES + f"  - key: slow\n    rate_limit: {rule}\n"
    with Memcached(megabytes=2) as memcached, Fleet(2, memcached.url, rules=text) as fleet, \
            fleet.servers[0].connect() as client:
        def left():
            reply = client.ask("STINT.PEEK", "DOMAIN", "fleet", "DESCRIPTOR", 1, "slow", "rests")
            return dict(zip(reply[::2], reply[1::2]))["remaining"]

        def comes_to(units):
            """A store that answers late on a busy machine leaves 0 for that request."""
            ends = time.monotonic() + 5
            while left() != units and time.monotonic() < ends:
                time.sleep(0.05)
            return left() == units
        assert comes_to(49)  # as it is to come to in the end
        while left() == 49:  # after one more; a take that is late may be done, or not
            client.ask("STINT.TAKE", "DOMAIN", "fleet", "DESCRIPTOR", 1, "slow", "rests",
                       "COST", 40)
        assert comes_to(9)
        # memcached keeps for a while what was asked twice, and looks at its age now and then: where
        # it has kept the state that rests, looking at it was one more ask.
        with fleet.crowd(rate=600) as crowd:
            wait_until_served(crowd, 2)
            is_evicted = False
            for turns in (40, 80, 160):
                for turn in range(turns):
                    fill(memcached, range(500 * turn, 500 * turn + 500))
                    time.sleep(0.1)
                is_evicted = is_evicted or comes_to(49)
                if is_evicted:
                    break
        assert int(memcached.stats()["evictions"]) > 5000 and is_evicted
    check_bound(crowd.seen, tells=False)
    check_waits(crowd.seen)


def test_a_rule_that_it_cannot_keep_is_refused_at_the_start(memcached, tmp_path):
    rules = tmp_path / "rules.yaml"
    rules.write_text("domain: d\ndescriptors:\n  - key: job\n    rate_limit: "
                     "{algorithm: concurrency, requests_per_unit: 3, lease: 5s}\n")
    done = subprocess.run([STINT, "serve", "--rules", rules, "--store", memcached.url, "--resp",
                           "off", "--grpc", "off", "--http", "127.0.0.1:0"], timeout=20,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "memcached supports no concurrency: a slot needs a holder" in done.stderr
