# SPDX-License-Identifier: MIT
"""Several servers on one Redis that fails in each way in which one does, while they are asked.

Of each: no key is granted more than what is stated, nobody waits much longer than the timeout, and
all is well again without anybody's help. Real time throughout, and windows of two seconds, so that
a fault lies within one.
"""
import time

import pytest

from admissions import S, by_key, most_in_any_window
from crowd import Request, admissions, between, by_rule, errors, outcomes
from fleet import (KEYS, LIMIT, WINDOW, WINDOW_S, Fleet, check_bound, check_waits, fleet_rules,
                   wait_until_calm, wait_until_served)
from measure import MIB, metric, own_memory
from redis_server import Redis, Tls, until
from tls_authority import Authority

STRICT = {"on_store_error": "deny"}
AWAY_S = 1.5
# Where nobody is to be told an error: on a machine that is busy 50 ms may pass without any fault.
PATIENT = ("--store-timeout", "1s")


@pytest.fixture
def fleet(redis):
    """Three servers; what they cannot ask, they deny."""
    with Fleet(3, redis.url, rules=fleet_rules(**STRICT)) as servers:
        yield servers


def store_errors(fleet):
    return sum(metric(server.http, "stint_store_errors_total") for server in fleet.servers)


def settle(crowd, fleet):
    """All servers grant again, and then a window passes, so that what was granted is seen."""
    took = wait_until_served(crowd, len(fleet.servers))
    time.sleep(WINDOW_S + 0.5)
    return took


# ---- Nothing fails ----


def test_eight_servers_grant_what_one_would(redis):
    with Fleet(8, redis.url, *PATIENT) as fleet:
        with fleet.crowd(connections=2, rate=3000) as crowd:
            wait_until_served(crowd, 8)
            time.sleep(2 * WINDOW_S)
        assert store_errors(fleet) == 0
    check_bound(crowd.seen)
    check_waits(crowd.seen)
    assert not errors(crowd.seen)
    # All of it, too: a store that is asked eight times as often as needed still gives N.
    for key, own in by_key(admissions(crowd.seen)).items():
        assert most_in_any_window(own, WINDOW).units >= 0.9 * LIMIT, key


def test_weighted_takes_of_several_quotas(redis):
    """Lists whose keys share a slot, or do not: all or none, and both limits hold."""
    text = """
domain: fleet
descriptors:
  - key: user
    rate_limit: {requests_per_unit: 50, period: 2s}
  - key: all
    rate_limit: {requests_per_unit: 200, period: 2s}
"""
    pairs = [Request(key, "DOMAIN", "fleet", "DESCRIPTOR", 1, "user", key, "DESCRIPTOR", 1,
                     "all", "all", units=3) for key in KEYS]
    with Fleet(3, redis.url, rules=text) as fleet:
        with fleet.crowd(pairs, rate=1500) as crowd:
            wait_until_served(crowd, 3)
            time.sleep(2 * WINDOW_S)
    check_bound(crowd.seen)
    check_bound([one._replace(key="all") for one in crowd.seen], limit=200)


def test_it_is_the_limit_that_is_shared_and_not_the_process(redis):
    """One after another, each ending before the next begins: states are in the store alone."""
    seen = []
    for _ in range(3):
        with Fleet(1, redis.url, *PATIENT, rules=fleet_rules(window_s=3600)) as fleet:
            with fleet.crowd(rate=2000) as crowd:
                until(lambda own=crowd: len(own.seen) > 600, "600 answers of this one")
            seen += crowd.seen
    check_bound(seen, window_ns=3600 * S)
    # All of the limits, but for answers that were on their way when the crowd went.
    assert not errors(seen) and outcomes(seen)["allow"] > 0.95 * LIMIT * len(KEYS)


# ---- It stands still ----


def test_a_store_that_stands_still(redis, fleet):
    with fleet.crowd(rate=900) as crowd:
        settle(crowd, fleet)
        redis.pause()
        stopped_ns = time.time_ns()
        time.sleep(AWAY_S)
        for server in fleet.servers:
            status, text = fleet.readiness(server)
            # It is needed: quotas that callers bring along have no other answer than an error.
            assert status == 503 and "store default: unavailable" in text
        resumed_ns = time.time_ns()
        redis.resume()
        settle(crowd, fleet)
        wait_until_calm(crowd)
    assert store_errors(fleet) > 0
    until(lambda: all(fleet.readiness(server) == (200, "ready\n") for server in fleet.servers),
          "all are ready")
    check_bound(crowd.seen)
    check_waits(crowd.seen)
    away = between(crowd.seen, stopped_ns + S // 2, resumed_ns - S // 4)
    assert len(away) > 100 and outcomes(away)["allow"] == 0


def test_a_store_that_stands_still_where_all_is_allowed_then(redis):
    with Fleet(2, redis.url, "--store-on-error", "allow", rules=fleet_rules()) as fleet:
        with fleet.crowd(rate=900) as crowd:
            settle(crowd, fleet)
            redis.pause()
            stopped_ns = time.time_ns()
            time.sleep(AWAY_S)
            # Nobody needs it, so the servers stay in service.
            status, text = fleet.readiness(fleet.servers[0])
            assert status == 200 and "store default: unavailable" in text
            resumed_ns = time.time_ns()
            redis.resume()
            settle(crowd, fleet)
            wait_until_calm(crowd)
            time.sleep(WINDOW_S)
    check_waits(crowd.seen)
    away = between(crowd.seen, stopped_ns + S // 2, resumed_ns - S // 4)
    assert len(away) > 100 and outcomes(away)["allow"] == len(away)
    # Before, and once the store is back, the limit holds as ever.
    before = [one for one in crowd.seen if one.answered_ns < stopped_ns]
    check_bound(before)
    check_bound(between(crowd.seen, crowd.seen[-1].sent_ns - WINDOW))


def test_what_waits_for_a_store_that_stands_still_takes_no_more_and_more_memory(redis, fleet):
    """Asked as fast as it goes, sixteen at once on each of sixty connections, for two seconds."""
    requests = by_rule("fleet", "user", [f"u{number}" for number in range(5000)])
    with fleet.crowd(requests, connections=20, rate=None, depth=16) as crowd:
        wait_until_served(crowd, 3)
        time.sleep(0.5)
        before = [own_memory(server.pid) for server in fleet.servers]
        redis.pause()
        time.sleep(2)
        paused = [own_memory(server.pid) for server in fleet.servers]
        redis.resume()
        wait_until_served(crowd, 3)
    growth = [after - own for own, after in zip(before, paused)]
    assert max(growth) < 32 * MIB, growth


# ---- It forgets ----


def test_scripts_that_are_flushed_are_brought_again(redis):
    with Fleet(3, redis.url, *PATIENT) as fleet:
        with fleet.crowd(rate=900) as crowd:
            wait_until_served(crowd, 3)
            for _ in range(30):
                redis.cli("SCRIPT", "FLUSH")
                time.sleep(0.1)
        assert store_errors(fleet) == 0
    check_bound(crowd.seen)
    check_waits(crowd.seen)
    assert not errors(crowd.seen)
    for key, own in by_key(admissions(crowd.seen)).items():
        assert most_in_any_window(own, WINDOW).units >= 0.8 * LIMIT, key


def test_a_store_that_is_full(redis, fleet):
    """noeviction, as it should be: what it refuses to write is not granted."""
    with fleet.crowd(rate=900) as crowd:
        settle(crowd, fleet)
        redis.cli("CONFIG", "SET", "maxmemory", 1)
        full_ns = time.time_ns()
        time.sleep(AWAY_S)
        room_ns = time.time_ns()
        redis.cli("CONFIG", "SET", "maxmemory", 0)
        settle(crowd, fleet)
        wait_until_calm(crowd)
    check_bound(crowd.seen)
    check_waits(crowd.seen)
    full = between(crowd.seen, full_ns + S // 10, room_ns)
    assert len(full) > 100 and outcomes(full)["allow"] == 0


def test_a_restart_with_all_written_down():
    """appendfsync always: kill -9 loses nothing that was answered."""
    with Redis(appendonly="yes", appendfsync="always") as kept:
        with Fleet(3, kept.url, rules=fleet_rules(**STRICT)) as servers:
            with servers.crowd(rate=900) as crowd:
                settle(crowd, servers)
                kept.restart(is_killed=True)
                settle(crowd, servers)
                wait_until_calm(crowd)
    check_bound(crowd.seen)
    check_waits(crowd.seen)


def test_a_restart_with_all_but_the_last_second_written_down():
    """appendfsync everysec: N, and what was granted in the second before kill -9 once more."""
    window_s = 60
    rules = fleet_rules(window_s=window_s, **STRICT)
    with Redis(appendonly="yes", appendfsync="everysec") as kept:
        with Fleet(2, kept.url, rules=rules) as servers, servers.crowd(rate=300) as crowd:
            kills_ns = []
            for part in (0.3, 0.6):  # not all of the limits is used up when it dies
                until(lambda own=part: len(admissions(crowd.snapshot())) >
                      own * LIMIT * len(KEYS), "a part of the limits is used up", 30)
                kept.kill()
                kills_ns.append(time.time_ns())
                kept.start()
                kept.wait()
                wait_until_served(crowd, 2)
            wait_until_calm(crowd)
            until(lambda: outcomes(crowd.snapshot()[-200:])["allow"] == 0, "all of it is used up",
                  30)
    for key, own in by_key(admissions(crowd.seen)).items():
        lost = sum(one.units for one in own if any(
            killed_ns - S < one.answered_ns and one.sent_ns < killed_ns for killed_ns in kills_ns))
        assert 0.9 * LIMIT <= sum(one.units for one in own) <= LIMIT + lost, key
    check_waits(crowd.seen)


def test_a_restart_with_nothing_written_down(redis, fleet):
    """Each of its lives grants N in a window: one that has two of them, 2 N, and no more."""
    with fleet.crowd(rate=900) as crowd:
        settle(crowd, fleet)
        kill_ns = time.time_ns()
        redis.kill()
        killed_ns = time.time_ns()
        redis.start()
        redis.wait()
        settle(crowd, fleet)
        wait_until_calm(crowd)
    # A request that is open at the kill may be granted in either life.
    check_bound([one for one in crowd.seen if one.answered_ns < kill_ns])
    check_bound(between(crowd.seen, killed_ns))
    check_bound(crowd.seen, limit=2 * LIMIT)
    check_waits(crowd.seen)


# ---- Ways in ----


def test_users_and_passwords():
    with Redis("user fleet on >hush ~stint:* +@all", requirepass="other") as server:
        url = f"redis://fleet:hush@127.0.0.1:{server.port}/2"
        with Fleet(2, url) as fleet, fleet.crowd(rate=900) as crowd:
            wait_until_served(crowd, 2)
            # Whoever is thrown out comes again, and says who he is.
            server.cli("-a", "other", "CLIENT", "KILL", "TYPE", "normal")
            settle(crowd, fleet)
        assert "hush" not in "".join(server.log for server in fleet.servers)
    check_bound(crowd.seen)
    check_waits(crowd.seen)


def test_tls_with_certificates_of_both(tmp_path):
    authority = Authority(tmp_path, "authority")
    tls = Tls(authority, "server")
    certificate, key = authority.sign("client")
    options = ["--store-ca-file", tls.ca, "--store-cert-file", certificate, "--store-key-file", key]
    with Redis(tls=tls) as server:
        with Fleet(2, f"rediss://127.0.0.1:{server.port}", *options) as fleet:
            with fleet.crowd(rate=900) as crowd:
                settle(crowd, fleet)
                server.restart()
                settle(crowd, fleet)
    check_bound(crowd.seen, limit=2 * LIMIT)  # it has forgotten all at its restart
    check_waits(crowd.seen)


# ---- Shares ----


def test_shares_while_a_store_stands_still(redis):
    """local: nothing while what the store has granted still counts, then each server its part of N;
    N across the failure. Across the return the store knows nothing of the shares: 2 N."""
    nodes = 3
    text = fleet_rules(on_store_error="local", local_for="20s", local_then="deny")
    with Fleet(nodes, redis.url, "--store-nodes", nodes, rules=text) as fleet:
        with fleet.crowd(rate=1500) as crowd:
            settle(crowd, fleet)
            redis.pause()
            paused_ns = time.time_ns()
            time.sleep(2 * WINDOW_S + 1.5)
            resumed_ns = time.time_ns()
            redis.resume()
            time.sleep(1)
            settle(crowd, fleet)
            wait_until_calm(crowd)
    away = [one for one in crowd.seen if one.answered_ns < resumed_ns]
    check_bound(away, tells=False)
    check_bound(crowd.seen, limit=2 * LIMIT, tells=False)
    check_waits(crowd.seen)
    # The first window after the last answer of the store: nothing. Then all of all shares.
    full = between(away, paused_ns + S // 2, paused_ns + WINDOW - S // 10)
    assert len(full) > 100 and outcomes(full)["allow"] == 0
    shared = between(away, paused_ns + WINDOW + S // 2)
    share = LIMIT // nodes
    for frontend in range(nodes):
        own = by_key(admissions([one for one in shared if one.frontend == frontend]))
        worst = [most_in_any_window(granted, WINDOW).units for granted in own.values()]
        assert len(own) == len(KEYS) and max(worst) <= share
        assert sum(worst) >= 0.8 * share * len(KEYS)


def test_a_share_does_not_last_for_ever(redis):
    """local_for is over: what local_then says holds."""
    text = fleet_rules(on_store_error="local", local_start="empty", local_for="1s",
                       local_then="deny")
    with Fleet(1, redis.url, rules=text) as fleet, fleet.crowd(rate=600) as crowd:
        settle(crowd, fleet)
        redis.pause()
        paused_ns = time.time_ns()
        time.sleep(2.5)
        resumed_ns = time.time_ns()
        redis.resume()
        settle(crowd, fleet)
    assert outcomes(between(crowd.seen, paused_ns + S // 4, paused_ns + S))["allow"] > 50
    late = between(crowd.seen, paused_ns + 3 * S // 2, resumed_ns - S // 4)
    assert len(late) > 100 and outcomes(late)["allow"] == 0
    check_waits(crowd.seen)
