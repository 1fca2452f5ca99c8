# SPDX-License-Identifier: MIT
"""The store over real servers of memcached: many at once on one key, restarts, evictions, slowness,
clocks that differ, several servers, passwords and TLS.

All processes of a test have one clock, but where they are told otherwise: so N is the most in any
window.
"""

import itertools
import os
import socket
import tempfile
import time

import pytest

from leases import most_in_a_window
from memcached import DECIDED, FAILED, REFUSED, Memcached, Node
from redis_server import until
from server import Server
from tls_authority import Authority

HOUR_100 = "window 100/1h"
RULES = """\
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 3}
"""


@pytest.fixture(scope="module")
def shared():
    """For tests that do not stop it, each with a prefix of its own."""
    with Memcached() as server:
        yield server


@pytest.fixture
def prefix(request):
    return request.node.name.replace("[", ".").replace("]", "") + ":"


def nodes_of(server, prefix, count, **options):
    return [Node(server.url, prefix, **options) for _ in range(count)]


def close(nodes):
    for node in nodes:
        node.__exit__()


def load_all(nodes, spec, key, count, parallel, cost=1):
    for node in nodes:
        node.begin_load(spec, key, count, parallel, cost)
    ended = [node.end_load() for node in nodes]
    grants = sorted(itertools.chain.from_iterable(grants for grants, _, _ in ended))
    return grants, sum(decided for _, decided, _ in ended), sum(failed for _, _, failed in ended)


# ---- Many at once ----


@pytest.mark.parametrize("algorithm, limit, options", [
    ("window", 20_000, ""), ("gcra", 20_000, ""), ("fixed_window", 20_000, ""),
    ("sliding_counter", 20_000, ""), ("log", 2_000, ""),
    ("buckets", 20_000, " count_slack=100")])
def test_processes_race_for_one_key_and_get_what_one_would(shared, prefix, algorithm, limit,
                                                           options):
    """Nothing comes back within the test, so the sum is exact: neither more, nor less. The time for
    a request is long enough for a busy machine, where processes may also miss each other: they get
    a new key until they have met."""
    nodes = nodes_of(shared, prefix, 4, timeout_ms=20_000)
    spec = f"{algorithm} {limit}/1000h{options}"
    keys = (f"hot{turn}" for turn in itertools.count())

    def races():
        grants, decided, failed = load_all(nodes, spec, next(keys), 10_000, 20)
        assert (sum(units for _, units in grants), decided, failed) == (limit, 40_000, 0)
        return sum(node.figures()["conflicts"] for node in nodes)

    try:
        until(races, "two processes change one key at once")
    finally:
        close(nodes)


def test_a_short_window_is_kept_while_it_moves(shared, prefix):
    nodes = nodes_of(shared, prefix, 3)
    try:
        grants, ends = [], time.monotonic() + 1.5
        while time.monotonic() < ends:
            more, _, failed = load_all(nodes, "window 60/300ms", "hot", 1000, 8)
            assert failed == 0
            grants = sorted(grants + more)
        assert most_in_a_window(grants, 300_000_000) <= 60
        assert sum(units for _, units in grants) > 60, "it must have moved"
    finally:
        close(nodes)


def test_who_waits_together_is_decided_together(shared, prefix):
    with Node(shared.url, prefix) as node:
        before = int(shared.stats()["cmd_get"])
        node.begin_load("window 1000/1h", "one", 1000, 500)
        grants, decided, failed = node.end_load()
        assert (len(grants), decided, failed) == (1000, 1000, 0)
        assert int(shared.stats()["cmd_get"]) - before < 50


def test_lists_race_and_none_gets_a_part(shared, prefix):
    """Three keys, of which each list takes two: what is granted of each key adds up."""
    keys, specs = ["a", "b", "c"], {"a": "window 40/1000h", "b": "gcra 30/1000h",
                                    "c": "fixed_window 50/1000h"}
    nodes = nodes_of(shared, prefix, 3)
    try:
        taken = dict.fromkeys(keys, 0)
        for turn in range(40):
            pairs = [(keys[(turn + i) % 3], keys[(turn + i + 1) % 3]) for i in range(3)]
            for node, pair in zip(nodes, pairs, strict=True):
                words = "".join(f"\t2\t{key}\t{specs[key]}" for key in pair)
                node.say(f"ask 0 - 0{words}")
            for node, pair in zip(nodes, pairs, strict=True):
                head, total = node.hear().split(" | ")[:2]
                assert int(head.split()[0]) == DECIDED
                if int(total.split()[0]) == 0:
                    for key in pair:
                        taken[key] += 2
        kept = sum(node.figures()["kept"] for node in nodes)
        left = {key: nodes[0].ask(specs[key], key, "peek", 0).sum for key in keys}
        for key in keys:
            limit = left[key].limit
            assert taken[key] <= limit
            # Units that could not be given back stay charged, and are counted.
            assert limit - left[key].remaining - taken[key] <= kept, key
        assert any(left[key].remaining <= 1 for key in keys), "nothing ran out"
    finally:
        close(nodes)


def test_a_refused_list_takes_nothing(shared, prefix):
    with Node(shared.url, prefix) as node:
        full = node.ask("window 3/1h", "full", "take", 3)
        assert full.sum.remaining == 0
        answer = node.ask_list([(HOUR_100, "free", 5), ("window 3/1h", "full", 1)], "take")
        assert (answer.sum.outcome, answer.sum.granted, answer.sum.binding) == ("deny", 0, 1)
        assert [item.outcome for item in answer.items] == ["allow", "deny"]
        assert answer.items[0].remaining == 100 and answer.items[0].reset_after == 0
        never = node.ask_list([(HOUR_100, "free", 5), ("window 3/1h", "full", 4)], "take")
        assert never.sum.outcome == "never"
        twice = node.ask_list([(HOUR_100, "free", 2**32 - 1), (HOUR_100, "free", 1)], "take")
        assert twice.sum.outcome == "never"
        assert node.ask(HOUR_100, "free", "peek", 0).sum.remaining == 100


def test_what_is_refunded_with_its_time_comes_back(shared, prefix):
    with Node(shared.url, prefix) as node:
        taken = node.ask(HOUR_100, "k", "take", 10)
        assert abs(taken.at - time.time_ns()) < 5 * 10**9
        given = node.ask(HOUR_100, "k", "refund", 10, at_ns=taken.at)
        assert (given.sum.granted, given.sum.remaining) == (10, 100)
        node.ask(HOUR_100, "k", "charge", 7)
        assert node.ask(HOUR_100, "k", "take_upto", 200).sum.granted == 93
        assert node.ask(HOUR_100, "k", "reset", 0).sum.remaining == 100


# ---- What memcached forgets ----


def test_the_expiry_is_no_sooner_than_the_state_dies(shared, prefix):
    """By memcached's clock, which may be nearly two seconds late when a value is written."""
    with Node(shared.url, prefix) as node:
        for spec, least, most in [("window 10/10s", 13, 16), ("gcra 10/10s", 4, 7),
                                  ("window 10/60d", 60 * 86400, 63 * 86400)]:
            node.ask(spec, "ttl", "take", 1)
            name = spec.split()[0]
            law = {"window 10/10s": "window,10000000,24", "gcra 10/10s": "gcra",
                   "window 10/60d": "window,5184000000000,24"}[spec]
            ttl = ttl_of(shared, f"{prefix}{{ttl}}{law}:test:")
            assert least <= ttl <= most, (name, ttl)
        node.ask("window 10/1h", "virtual", "take", 1, 10**6)
        assert ttl_of(shared, f"{prefix}{{virtual}}window,3600000000,24:test:") == -1


def test_expiries_after_january_2038(prefix):
    """memcached reads an expiry as 32 bits: up to 30 days as seconds from now, else as calendar
    time, which ends there. What lasts longer than 30 days then stays until it is evicted."""
    ahead_s = 70 * 365 * 86400 - int(time.time())
    clock = ["env", f"LD_PRELOAD={os.environ['STINT_WRONG_CLOCK']}", f"WRONG_CLOCK_S={ahead_s}"]
    states = {"window 10/10s": ("window,10000000,24", range(11, 17)),
              "window 10/29d": ("window,2505600000000,24", range(29 * 86400, 32 * 86400)),
              "window 10/60d": ("window,5184000000000,24", [-1])}
    with Memcached(prefix=clock) as server, \
            Node(server.url, prefix, ahead_ns=ahead_s * 10**9) as node:
        assert int(server.stats()["time"]) > 2**31
        for spec, (form, ttls) in states.items():
            assert node.ask(spec, "ttl", "take", 10).sum.granted == 10
            assert ttl_of(server, f"{prefix}{{ttl}}{form}:test:") in ttls, spec
        for spec in states:
            assert node.ask(spec, "ttl", "take", 1).sum.granted == 0, spec
        until(lambda: node.ask("window 10/10s", "ttl", "take", 1).sum.granted == 1, "it expires")


def ttl_of(server, key):
    with socket.create_connection((server.host, server.port), timeout=5) as link:
        link.sendall(f"mg {key} t\r\n".encode())
        answer = link.recv(4096).decode()
        assert answer.startswith("HD t"), (key, answer)
        return int(answer[4:])


def test_a_state_under_load_outlives_its_expiry(shared, prefix):
    """Each write moves it: what was taken early counts to the end of its window."""
    with Node(shared.url, prefix) as node:
        grants, ends = [], time.monotonic() + 4.5
        while time.monotonic() < ends:
            node.begin_load("window 20/1500ms", "k", 40, 4)
            grants += node.end_load()[0]
            time.sleep(0.02)
        assert most_in_a_window(grants, 1_500_000_000) <= 20
        assert len(grants) > 40


def test_after_a_restart_at_most_as_many_again(prefix):
    with Memcached() as server, Node(server.url, prefix) as node:
        assert sum(units for _, units in load_all([node], HOUR_100, "k", 300, 20)[0]) == 100
        server.restart()
        again = recover(node, HOUR_100, "k")
        grants = load_all([node], HOUR_100, "k", 300, 20)[0]
        assert again + sum(units for _, units in grants) == 100
        assert node.figures()["restarts"] == 1


def recover(node, spec, key, seconds=20):
    """Units that were granted until it answers again."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        answer = node.ask_list([(spec, key, 1)], "take")
        if answer.outcome == DECIDED:
            return answer.sum.granted
        time.sleep(0.02)
    raise AssertionError("it did not come back")


def test_a_server_that_was_only_away_has_not_restarted(prefix):
    """All connections are cut; the states are there still."""
    with Memcached("-o", "idle_timeout=1") as server, Node(server.url, prefix) as node:
        node.ask(HOUR_100, "k", "take", 60)
        before = int(server.stats()["idle_kicks"])
        until(lambda: int(server.stats()["idle_kicks"]) > before, "it cuts who says nothing")
        assert recover(node, HOUR_100, "k") == 1
        assert node.ask(HOUR_100, "k", "peek", 0).sum.remaining == 39
        assert node.figures()["restarts"] == 0


def test_eviction_forgets_states_and_each_grants_at_most_its_limit_again(prefix):
    """1 MB, flooded by other keys: what is evicted is free again, and nothing else happens."""
    with Memcached("-I", "512k", megabytes=1) as server, Node(server.url, prefix) as node:
        assert node.ask(HOUR_100, "victim", "take", 100).sum.granted == 100
        for number in range(20_000):
            node.say(f"ask 0 - 0\t1\tflood{number}{'x' * 100}\t{HOUR_100}")
            outcome = node.hear().split(" ", 1)[0]
            assert int(outcome) == DECIDED
        assert int(server.stats()["evictions"]) > 0
        again = sum(units for _, units in load_all([node], HOUR_100, "victim", 300, 20)[0])
        assert again in (0, 100)


def test_a_full_server_without_evictions_fails_and_grants_nothing(prefix):
    with Memcached("-M", "-I", "512k", megabytes=1) as server, Node(server.url, prefix) as node:
        failed = None
        for number in range(40_000):
            answer = node.ask_list([(HOUR_100, f"flood{number}{'x' * 100}", 1)], "take")
            if answer.outcome != DECIDED:
                failed = answer
                break
        assert failed is not None and failed.outcome == FAILED
        assert "out of memory" in failed.error


# ---- Slow and away ----


def test_nobody_waits_longer_than_the_timeout(prefix):
    with Memcached() as server, Node(server.url, prefix, timeout_ms=200) as node:
        recover(node, HOUR_100, "k")
        server.pause()
        begun = time.monotonic()
        answer = node.ask_list([(HOUR_100, "k", 1)], "take")
        assert answer.outcome == FAILED and "memcached" in answer.error
        assert time.monotonic() - begun < 5
        grants, decided, failed = load_all([node], HOUR_100, "k", 200, 50)
        assert (grants, decided, failed) == ([], 0, 200)
        server.resume()
        recover(node, HOUR_100, "k")
        left = node.ask(HOUR_100, "k", "peek", 0).sum.remaining
        assert left <= 98


def test_a_server_that_is_not_there():
    from server import free_port
    with Node(f"memcached://127.0.0.1:{free_port()}", timeout_ms=150) as node:
        answer = node.ask_list([(HOUR_100, "k", 1)], "take")
        assert answer.outcome == FAILED
        node.idle(400)
        answer = node.ask_list([(HOUR_100, "k", 1)], "take")
        assert answer.outcome == FAILED and "refused" in answer.error


# ---- Several servers ----


def test_keys_lie_on_several_servers_and_only_those_of_a_lost_one_fail(prefix):
    with Memcached() as first, Memcached() as second, Memcached() as third:
        servers = [first, second, third]
        url = "memcached://" + ",".join(f"127.0.0.1:{server.port}" for server in servers)
        keys = [f"key{number}" for number in range(60)]
        with Node(url, prefix, timeout_ms=500) as node:
            for key in keys:
                assert node.ask(HOUR_100, key, "take", 60).sum.granted == 60
            items = [int(server.stats()["curr_items"]) for server in servers]
            assert min(items) >= 5, items
            second.kill()
            outcomes = {}
            for key in keys:
                outcomes[key] = node.ask_list([(HOUR_100, key, 1)], "take").outcome
            assert 5 <= list(outcomes.values()).count(FAILED) <= 50
            # A list over both kinds fails, and takes nothing from the servers that are there.
            lost = next(key for key in keys if outcomes[key] == FAILED)
            there = next(key for key in keys if outcomes[key] == DECIDED)
            before = node.ask(HOUR_100, there, "peek", 0).sum.remaining
            answer = node.ask_list([(HOUR_100, there, 5), (HOUR_100, lost, 5)], "take")
            assert answer.outcome == FAILED
            assert node.ask(HOUR_100, there, "peek", 0).sum.remaining == before
        # Without it in the list, the keys of the others stay where they are.
        rest = f"memcached://127.0.0.1:{first.port},127.0.0.1:{third.port}"
        with Node(rest, prefix) as node:
            for key in keys:
                left = node.ask(HOUR_100, key, "peek", 0).sum.remaining
                assert left == (39 if outcomes[key] == DECIDED and key != there else left)
                assert left == 100 if outcomes[key] == FAILED else left <= 39


# ---- Clocks ----


def test_a_clock_that_is_ahead_is_noticed_by_the_others(shared, prefix):
    with Node(shared.url, prefix, ahead_ns=3 * 10**9) as ahead, Node(shared.url, prefix) as node:
        ends = time.monotonic() + 20
        while node.figures()["skew_told_ns"] == 0 and time.monotonic() < ends:
            ahead.idle(50)
            node.idle(50)
        seen = node.figures()
        assert 100_000_000 < seen["skew_ns"] <= 3 * 10**9
        assert seen["skew_told_ns"] <= seen["skew_ns"]
        assert ahead.figures()["skew_ns"] < 100_000_000


def test_a_server_logs_that_another_clock_is_ahead(shared):
    with Node(shared.url, "stint:", ahead_ns=60 * 10**9) as ahead:
        ahead.ask(HOUR_100, "k", "take", 1)
        with Server("--store", shared.url, rules=RULES) as server:
            for _ in range(40):
                ahead.idle(50)
            server.wait_for("clock_ahead")


def test_clocks_that_agree_are_not_told_of(shared, prefix):
    with Node(shared.url, prefix) as one, Node(shared.url, prefix) as other:
        for _ in range(30):
            one.idle(50)
            other.idle(50)
        assert one.figures()["skew_told_ns"] == other.figures()["skew_told_ns"] == 0


def test_no_more_than_the_limit_in_windows_shorter_by_the_skew(shared, prefix):
    """By each node's clock its grants are right; by one clock a window is shorter by the skew."""
    ahead_ns, window_ns = 100_000_000, 400_000_000
    nodes = [Node(shared.url, prefix), Node(shared.url, prefix, ahead_ns=ahead_ns)]
    try:
        true_time, ends = [], time.monotonic() + 2
        while time.monotonic() < ends:
            for node in nodes:
                node.begin_load("window 50/400ms", "hot", 500, 8)
            for node, ahead in zip(nodes, (0, ahead_ns), strict=True):
                true_time += [(at - ahead, units) for at, units in node.end_load()[0]]
        true_time.sort()
        assert len(true_time) > 100
        assert most_in_a_window(true_time, window_ns - ahead_ns) <= 50
    finally:
        close(nodes)


# ---- Who may ask, and who is asked ----


def test_long_and_strange_names(shared, prefix):
    with Node(shared.url, prefix) as node:
        for key in ("x" * 300, "x" * 299 + "y", "a b", "ä€\x7f", "{}:%", "x" * 60000):
            assert node.ask(HOUR_100, key, "take", 30).sum.remaining == 70, key[:20]
            assert node.ask(HOUR_100, key, "take", 30).sum.remaining == 40, key[:20]


def test_a_value_that_is_no_state_is_taken_for_used_up(shared, prefix):
    """Nobody knows what was used, so the key is denied, once for each damage, and comes back."""
    with Node(shared.url, prefix) as node:
        key = f"{prefix}{{alien}}gcra:test:"
        for value in ("hello", "x" * 5000, "I\0\0" + "\xff" * 12):
            with socket.create_connection((shared.host, shared.port), timeout=5) as link:
                data = value.encode("latin-1")
                link.sendall(f"ms {key} {len(data)}\r\n".encode() + data + b"\r\n")
                assert link.recv(100).startswith(b"HD")
            assert node.ask("gcra 5/10s", "alien", "take", 1).sum.outcome == "deny", value[:10]
            assert node.ask("gcra 5/10s", "alien", "take", 1).sum.outcome == "deny"
        assert node.figures()["damaged"] == 3
        assert node.ask("gcra 5/10s", "alien", "reset", 0).sum.outcome == "allow"
        assert node.ask("gcra 5/10s", "alien", "take", 1).sum.outcome == "allow"


def test_a_server_without_numbers_of_values_is_never_written_blindly(prefix):
    with Memcached("-C") as server, Node(server.url, prefix) as node:
        first = node.ask_list([(HOUR_100, "k", 60)], "take")
        second = node.ask_list([(HOUR_100, "k", 60)], "take")
        assert first.outcome == DECIDED  # a new key is added
        assert second.outcome == FAILED and "without -C" in second.error


def test_passwords(prefix):
    with tempfile.NamedTemporaryFile("w", suffix=".users") as users:
        users.write("ann:hush\n")
        users.flush()
        os.chmod(users.name, 0o644)
        with Secured("-Y", users.name) as server:
            check_passwords(server, prefix)


def check_passwords(server, prefix):
    host = f"127.0.0.1:{server.port}"
    with Node(f"memcached://ann:hush@{host}", prefix) as node:
        assert node.ask(HOUR_100, "k", "take", 1).sum.granted == 1
    for user in ("", "ann:wrong@"):
        with Node(f"memcached://{user}{host}", prefix, timeout_ms=300) as node:
            answer = node.ask_list([(HOUR_100, "k", 1)], "take")
            assert answer.outcome == FAILED and "hush" not in answer.error


class Secured(Memcached):
    """One that strangers cannot ask."""

    def wait(self):
        until(self.is_open, "memcached listens")

    def is_open(self):
        try:
            socket.create_connection((self.host, self.port), timeout=5).close()
            return True
        except OSError:
            return False


def test_tls(tmp_path, prefix):
    authority = Authority(tmp_path, "authority")
    cert, key = map(str, authority.sign("server"))
    os.chmod(key, 0o644)
    os.chmod(tmp_path, 0o755)
    with Secured("-Z", "-o", f"ssl_chain_cert={cert},ssl_key={key}") as server:
        url = f"memcacheds://127.0.0.1:{server.port}"
        with Node(url, prefix, ca_file=authority.certificate) as node:
            assert node.ask(HOUR_100, "k", "take", 40).sum.remaining == 60
            assert node.ask(HOUR_100, "k", "take", 40).sum.remaining == 20
        other = Authority(tmp_path, "other")
        with Node(url, prefix, timeout_ms=400, ca_file=other.certificate) as node:
            assert node.ask_list([(HOUR_100, "k", 1)], "take").outcome == FAILED


def test_what_it_cannot_do_is_refused_in_a_sentence(shared, prefix):
    with Node(shared.url, prefix) as node:
        answer = node.ask_list([("concurrency 5 lease=10s", "k", 1)], "take")
        assert answer.outcome == REFUSED and "supports no concurrency" in answer.error
        node.say(f"once 0\t1\tk\t{HOUR_100}")
        outcome, _, *told = node.hear().split(" ")
        assert int(outcome) == REFUSED and "id," in told
