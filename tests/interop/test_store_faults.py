# SPDX-License-Identifier: MIT
"""Several servers on one Redis that fails in each way in which one does, while they are asked.

Of each: no key is granted more than what is stated, nobody waits much longer than the timeout, and
all is well again without anybody's help. Real time throughout, and windows of two seconds, so that
a fault lies within one.
"""
import time

import pytest

from admissions import S, by_key, most_in_any_window
from crowd import Request, admissions, between, by_rule, errors, outcomes, within
from fleet import (KEYS, LIMIT, PATIENT, WINDOW, WINDOW_S, Fleet, by_store, check_bound,
                   check_waits, fleet_rules, wait_for_answers, wait_until_calm, wait_until_granted,
                   wait_until_only_by_store, wait_until_served)
from measure import MIB, metric, own_memory
from redis_server import Redis, Tls, until
from tls_authority import Authority

STRICT = {"on_store_error": "deny"}
AWAY_S = 1.5
PAUSES = 20
ANSWERS_S = 0.2  # what was granted before a pause has arrived
TOGETHER_NS = 80_000_000


@pytest.fixture
def fleet(redis):
    """Three servers; what they cannot ask, they deny."""
    with Fleet(3, redis.url, rules=fleet_rules(**STRICT)) as servers:
        yield servers


def store_errors(fleet):
    return sum(metric(server.http, "stint_store_errors_total") for server in fleet.servers)


def settle(crowd, fleet):
    """All servers grant again, and then a window passes, so that what was granted is seen."""
    wait_until_served(crowd, len(fleet.servers))
    time.sleep(WINDOW_S + 0.5)


def wait_until_away(fleet, server, expected):
    """Until that server says that its store is unavailable, and the status that it has by that."""
    until(lambda: "store default: unavailable" in fleet.readiness(server)[1], "it is unavailable")
    status, text = fleet.readiness(server)
    assert status == expected, text


# ---- Nothing fails ----


def test_eight_servers_grant_what_one_would(redis):
    with Fleet(8, redis.url, *PATIENT) as fleet:
        with fleet.crowd(connections=2, rate=3000) as crowd:
            wait_until_served(crowd, 8)
            time.sleep(2 * WINDOW_S)
            # All of it, too: a store that is asked eight times as often as needed still gives N.
            wait_until_granted(crowd, 0.9 * LIMIT)
        assert store_errors(fleet) == 0
    check_bound(crowd.seen)
    check_waits(crowd.seen)
    assert not errors(crowd.seen)


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
    with Fleet(3, redis.url, *PATIENT, rules=text) as fleet:
        with fleet.crowd(pairs, rate=1500) as crowd:
            wait_until_served(crowd, 3)
            time.sleep(2 * WINDOW_S)
            until(lambda: len(admissions(crowd.snapshot())) >= 100, "100 of them are granted")
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
            # It is needed: quotas that callers bring along have no other answer than an error.
            wait_until_away(fleet, server, 503)
        resumed_ns = wait_for_answers(crowd, stopped_ns + S // 2)
        redis.resume()
        settle(crowd, fleet)
        wait_until_calm(crowd)
    assert store_errors(fleet) > 0
    until(lambda: all(fleet.readiness(server) == (200, "ready\n") for server in fleet.servers),
          "all are ready")
    check_bound(crowd.seen)
    check_waits(crowd.seen)
    away = within(crowd.seen, stopped_ns + S // 2, resumed_ns)
    assert len(away) > 100 and outcomes(away)["allow"] == 0


def test_a_store_that_stands_still_where_all_is_allowed_then(redis):
    with Fleet(2, redis.url, "--store-on-error", "allow", rules=fleet_rules()) as fleet:
        with fleet.crowd(rate=900) as crowd:
            settle(crowd, fleet)
            redis.pause()
            stopped_ns = time.time_ns()
            time.sleep(AWAY_S)
            # Nobody needs it, so the servers stay in service.
            wait_until_away(fleet, fleet.servers[0], 200)
            resumed_ns = wait_for_answers(crowd, stopped_ns + S // 2)
            redis.resume()
            wait_until_only_by_store(crowd, len(fleet.servers))
            wait_until_calm(crowd)
    check_waits(crowd.seen)
    away = within(crowd.seen, stopped_ns + S // 2, resumed_ns)
    assert len(away) > 100 and outcomes(away)["allow"] == len(away)
    # Of all that the store grants the limit holds as ever. A server of a busy machine may allow a
    # few more at any time: those for which the store has answered too late.
    check_bound(by_store(crowd.seen))


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
            wait_until_granted(crowd, 0.8 * LIMIT)
        assert store_errors(fleet) == 0
    check_bound(crowd.seen)
    check_waits(crowd.seen)
    assert not errors(crowd.seen)


def test_a_store_that_is_full(redis, fleet):
    """noeviction, as it should be: what it refuses to write is not granted."""
    with fleet.crowd(rate=900) as crowd:
        settle(crowd, fleet)
        redis.cli("CONFIG", "SET", "maxmemory", 1)
        full_ns = time.time_ns()
        time.sleep(AWAY_S)
        room_ns = wait_for_answers(crowd, full_ns + S // 10)
        redis.cli("CONFIG", "SET", "maxmemory", 0)
        settle(crowd, fleet)
        wait_until_calm(crowd)
    check_bound(crowd.seen)
    check_waits(crowd.seen)
    full = within(crowd.seen, full_ns + S // 10, room_ns)
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


def is_used_up(seen):
    """Nearly all of each key was granted, and now nothing is any more."""
    units = [sum(one.units for one in own) for own in by_key(admissions(seen)).values()]
    return len(units) == len(KEYS) and min(units) >= 0.9 * LIMIT and \
        outcomes(seen[-200:])["allow"] == 0


def test_a_restart_with_all_but_the_last_second_written_down():
    """appendfsync everysec: N, and what was granted in the second before kill -9 once more. While
    a disk is busy Redis holds back what it writes, for two seconds of a clock of whole seconds that
    it reads ten times a second: for less than three."""
    rules = fleet_rules(window_s=3600, **STRICT)
    with Redis(appendonly="yes", appendfsync="everysec") as kept:
        # A take that the server gives up is charged and not seen: the timeout is a longer one.
        with Fleet(2, kept.url, "--store-timeout", "1s", rules=rules) as servers, \
                servers.crowd(rate=200) as crowd:
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
            until(lambda: is_used_up(crowd.snapshot()), "all of it is used up", 30, 0.2)
    for key, own in by_key(admissions(crowd.seen)).items():
        lost = sum(one.units for one in own if any(
            at - 3 * S < one.answered_ns and one.sent_ns < at for at in kills_ns))
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


def shares(seen, since_ns):
    """{key: the most that was granted of it in one window} since then."""
    found = by_key(admissions(between(seen, since_ns)))
    return {key: most_in_any_window(own, WINDOW).units for key, own in found.items()}


def least_of_shares(seen, since_ns, nodes):
    """The units of all keys together that the server gave that gave the fewest."""
    return min(sum(shares([one for one in seen if one.frontend == frontend], since_ns).values())
               for frontend in range(nodes))


def pause_for_all(crowd, fleet, redis):
    """Pauses the store while it answers all servers, and says when that began and when it paused.

    On a busy machine one server may have lost the store before, by its timeout: while the others go
    on, N by the store and N by shares are what is promised, and that is not what is tried here. So
    the last answers to all of them are close together: 2 units of each key, which all shares leave
    of N; else it pauses again.
    """
    for _ in range(PAUSES):
        began_ns = time.time_ns()
        settle(crowd, fleet)
        redis.pause()
        paused_ns = time.time_ns()
        time.sleep(ANSWERS_S)
        answers = by_store(between(crowd.snapshot(), began_ns))
        last = [max((one.at_ns for one in answers if one.frontend == frontend), default=began_ns)
                for frontend in range(len(fleet.servers))]
        if max(last) - min(last) < TOGETHER_NS:
            return began_ns, paused_ns
        redis.resume()
    raise AssertionError(f"a server had lost the store before each of {PAUSES} pauses")


def test_shares_while_a_store_stands_still(redis):
    """local: nothing while what the store has granted still counts, then each server its part of N;
    N across the failure. Across the return the store knows nothing of the shares: 2 N."""
    nodes = 3
    share = LIMIT // nodes
    text = fleet_rules(on_store_error="local", local_for="20s", local_then="deny")
    with Fleet(nodes, redis.url, "--store-nodes", nodes, rules=text) as fleet:
        with fleet.crowd(rate=1500) as crowd:
            began_ns, paused_ns = pause_for_all(crowd, fleet, redis)
            time.sleep(2 * WINDOW_S + 1.5)
            until(lambda: least_of_shares(crowd.snapshot(), paused_ns, nodes) >=
                  0.8 * share * len(KEYS), "all of all shares is granted", 12, 0.5)
            resumed_ns = time.time_ns()
            redis.resume()
            wait_until_only_by_store(crowd, nodes)
            settle(crowd, fleet)
            wait_until_calm(crowd)
    away = [one for one in between(crowd.seen, began_ns) if one.answered_ns < resumed_ns]
    check_bound(away, tells=False)
    check_bound(crowd.seen, limit=2 * LIMIT, tells=False)
    check_waits(crowd.seen)
    # The first window after the last answer of the store: nothing. Then its share, and no more.
    assert len(within(away, paused_ns, paused_ns + WINDOW)) > 100
    for frontend in range(nodes):
        own = [one for one in away if one.frontend == frontend]
        last_ns = max(one.sent_ns for one in by_store(own))
        assert outcomes(within(own, paused_ns, last_ns + WINDOW))["allow"] == 0
        assert max(shares(own, paused_ns).values()) <= share


def test_a_share_does_not_last_for_ever(redis):
    """local_for is over: what local_then says holds. Few enough ask that the share suffices."""
    text = fleet_rules(on_store_error="local", local_start="empty", local_for="3s",
                       local_then="deny")
    with Fleet(1, redis.url, rules=text) as fleet, fleet.crowd(rate=300) as crowd:
        settle(crowd, fleet)
        redis.pause()
        paused_ns = time.time_ns()
        until(lambda: outcomes(within(crowd.snapshot(), paused_ns))["allow"] > 50,
              "a share is granted")
        until(lambda: outcomes(crowd.snapshot()[-100:])["deny"] == 100, "the share has ended")
        ended_ns = time.time_ns()
        resumed_ns = wait_for_answers(crowd, ended_ns)
        redis.resume()
        settle(crowd, fleet)
    late = within(crowd.seen, ended_ns, resumed_ns)
    assert len(late) > 100 and outcomes(late)["allow"] == 0
    check_waits(crowd.seen)
