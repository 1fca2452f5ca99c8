# SPDX-License-Identifier: MIT
"""Who is told at once that a store is not asked: those whose own server is gone, and nobody else;
whoever asks for decisions, and whoever asks for keys of pools."""
import time
from collections import Counter

import pytest

from admissions import S
from crowd import between, by_rule, outcomes
from fleet import Fleet, fleet_rules, wait_until_served
from measure import metric
from redis_server import Redis, until
from store_servers import Cluster, Memcached

STATE = "stint_store_state"
STOPPED = "requests to it are stopped for a while"
RULES = fleet_rules(limit=100000, window_s=3600, on_store_error="deny")
POOLS = "pools:\n  - {name: search, store: default, quota: 1000/1h, keys: [alpha, beta]}\n"
MANY = [f"user-{number}" for number in range(40)]
# Longer than a busy machine delays an answer, of which only several in a row open a breaker.
TIMEOUT = "500ms"


def figure(server, name, **labels):
    return metric(server.http, name, store="default", **labels)


def failures(server):
    """Requests that were stopped, and those that failed otherwise."""
    stopped = figure(server, "stint_store_errors_total", reason="stopped")
    return stopped, figure(server, "stint_store_errors_total") - stopped


@pytest.mark.parametrize("kind", ["cluster", "memcached"])
def test_keys_of_servers_that_are_well_are_never_stopped(kind):
    """A server of three stands still, and four callers ask for hardly anything but its keys: for
    most of the time all of them wait for it, and nothing goes well anywhere."""
    if kind == "cluster":
        with Cluster(replicas=0) as store:
            one_of_several(store.url, store.masters[1])
        return
    with Memcached() as first, Memcached() as second, Memcached() as third:
        hosts = ",".join(f"127.0.0.1:{one.port}" for one in (first, second, third))
        one_of_several(f"memcached://{hosts}", second)


def granted(seen):
    return {one.key for one in seen if one.outcome == "allow"}


def asked_often(crowd, keys, since_ns, times):
    """Until each of the keys was asked for so often since then."""
    def enough():
        counts = Counter(one.key for one in between(crowd.snapshot(), since_ns))
        return all(counts[key] >= times for key in keys)
    until(enough, f"{times} answers for each key", 30, 0.1)


def one_of_several(url, victim):
    with Fleet(1, url, "--store-timeout", TIMEOUT, rules=RULES) as fleet:
        server = fleet.servers[0]
        with fleet.crowd(by_rule("fleet", "user", MANY), rate=400) as crowd:
            wait_until_served(crowd, 1)
            until(lambda: granted(crowd.snapshot()) == set(MANY), "all keys are granted")
            victim.pause()
            begin_ns = time.time_ns() + S // 4
            asked_often(crowd, MANY, begin_ns, 3)
        lost = set(MANY) - granted(between(crowd.seen, begin_ns))
        assert 3 <= len(lost) <= 30, lost
        spared = sorted(set(MANY) - lost)[:2]
        with fleet.crowd(by_rule("fleet", "user", [*lost, *lost, *spared]), rate=400) as crowd:
            until(lambda: figure(server, STATE) == 2, "the server that stands still is given up")
            begin_ns, before = time.time_ns(), failures(server)
            asked_often(crowd, spared, begin_ns, 20)
        stopped, waited = (now - then for now, then in zip(failures(server), before))
        until(lambda: fleet.readiness(server) == (200, "ready\n"), "the others answer")
        victim.resume()
        with fleet.crowd(by_rule("fleet", "user", lost), rate=200) as again:
            until(lambda: granted(again.snapshot()) == lost, "they are granted again")
            until(lambda: figure(server, STATE) == 0, "it is asked as ever")
    well = [one for one in crowd.seen if one.key in spared]
    # Some of a busy machine's answers are late; none is stopped, which would be many in a row.
    assert outcomes(well)["allow"] > 0.8 * len(well), outcomes(well)
    gone = between([one for one in crowd.seen if one.key in lost], begin_ns)
    assert outcomes(gone)["deny"] == len(gone) > 50
    # Now and then one tries whether the server is back, and waits for the timeout.
    assert stopped > 4 * waited, (stopped, waited)


def test_pools_of_a_store_that_stands_still(tmp_path):
    config = tmp_path / "stint.yaml"
    config.write_text(POOLS)
    with Redis() as redis, Fleet(1, redis.url, "--config", config, rules=RULES) as fleet:
        server = fleet.servers[0]
        with server.connect() as client:
            client.ask("STINT.POOL", "NEXT", "search")
            assert figure(server, "stint_store_asks_total") == 1
            assert figure(server, "stint_store_latency_seconds_count") == 1
            redis.pause()
            refused = []

            def refused_at_once():
                refused.append(str(client.ask("STINT.POOL", "NEXT", "search")))
                return sum(STOPPED in answer for answer in refused)
            until(lambda: refused_at_once() > 30, "requests are stopped", 30, 0)
            stopped, waited = failures(server)
            # Only the others went to the store.
            assert figure(server, "stint_store_latency_seconds_count") == 1 + waited
            redis.resume()
            until(lambda: "UNAVAILABLE" not in str(client.ask("STINT.POOL", "NEXT", "search")),
                  "keys are handed out again", 30)
    assert all("UNAVAILABLE" in answer for answer in refused), refused[:3]
    # Some waited for the store first, and now and then one tries whether it is back.
    assert stopped + waited == len(refused) and stopped == sum(STOPPED in one for one in refused)
    assert stopped > 30 and waited >= 3


@pytest.mark.parametrize("spoil", ["'RPUSH', KEYS[1], 'x'", "'SET', KEYS[1], 'junk'"])
def test_a_key_that_cannot_be_read_stops_no_other(redis, spoil):
    """Nothing else is asked, so that no success stands between its errors."""
    with Fleet(1, redis.url, rules=RULES) as fleet:
        server = fleet.servers[0]
        with fleet.crowd(by_rule("fleet", "user", ["bad"]), connections=1, rate=50) as crowd:
            wait_until_served(crowd, 1)
            name, = redis.cli("--scan", "--pattern", "*bad*").split()
            redis.cli("EVAL", f"redis.call('DEL', KEYS[1]) redis.call({spoil})", 1, name)
            until(lambda: figure(server, "stint_store_errors_total", reason="state") >= 30,
                  "errors of that key")
            assert figure(server, STATE) == 0 and fleet.readiness(server)[0] == 200
            with fleet.crowd(by_rule("fleet", "user", ["good"]), connections=1, rate=5) as other:
                until(lambda: len(other.seen) >= 10, "answers for another key")
            assert set(outcomes(other.seen)) == {"allow"}
        assert failures(server)[0] == 0
