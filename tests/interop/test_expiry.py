# SPDX-License-Identifier: MIT
"""Reservations that are never settled: over RESP and HTTP, in the table and in a store, as the
request says it or else the rule; and the limits that are not enforced are settled along."""
import bisect
import signal
import time

import pytest

from measure import metric
from redis_server import Redis
from server import Server
from store_servers import Memcached

PATIENT = ("--store-timeout", "2s")
LIFE_MS = 1500  # longer than a machine that is busy takes from a reservation to the next request
SOON_S = 20  # for a machine that has much else to do; as a rule it is a second


def rules(store="", plain=""):
    """Everything in one place; `candidate` has a candidate with the numbers of its limit."""
    def limit(key, more="", shadow=False, silent=False):
        text = f"""
  - key: {key}
    rate_limit: {{unit: hour, requests_per_unit: 100, algorithm: log{more}{store}}}"""
        text += "\n    shadow: {unit: hour, requests_per_unit: 100, algorithm: log}" * shadow
        return text + "\n    shadow_mode: true" * silent
    return ("domain: d\ndescriptors:" + limit("plain", plain) + limit("kept", ", on_expiry: keep") +
            limit("freed", ", on_expiry: release") + limit("floored", ", on_expiry: 7") +
            limit("candidate", ", on_expiry: release", shadow=True) +
            limit("silent", silent=True) + "\n")


STORES = {"redis": Redis, "memcached": Memcached}


@pytest.fixture(scope="module", params=["table", *STORES])
def servers(request):
    """Two that share a store, or one with its table, twice."""
    if request.param == "table":
        with Server(rules=rules()) as server:
            yield server, server
        return
    with STORES[request.param]() as store, \
            Server("--store", store.url, *PATIENT, rules=rules()) as first, \
            Server("--store", store.url, *PATIENT, rules=rules()) as second:
        yield first, second


@pytest.fixture(params=STORES)
def store(request):
    with STORES[request.param]() as started:
        yield started


def ask(server, verb, *words):
    with server.connect() as client:
        reply = client.ask(f"STINT.{verb}", *map(str, words))
    return dict(zip(reply[::2], reply[1::2])) if isinstance(reply, list) else reply


def of(key, value="x"):
    return ("DOMAIN", "d", "DESCRIPTOR", 1, key, value)


def left(server, *target):
    return ask(server, "PEEK", *target, "COST", 0)["remaining"]


def reserve(server, target, *words, cost=10):
    given = ask(server, "RESERVE", *target, "COST", cost, "LIFETIME", LIFE_MS, *words)
    assert given["outcome"] == "allow", given
    return given["ticket"]


def wait_until(is_so, seconds=SOON_S):
    ends = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < ends
        time.sleep(0.05)


def candidate_left(server, target):
    """What the candidate of the target would still allow."""
    def is_over(cost):
        return dict_of(ask(server, "EXPLAIN", *target, "COST", cost))["shadow_over"] == 1
    return bisect.bisect_left(range(1, 200), True, key=is_over)


def dict_of(explained):
    status = explained["statuses"][0]
    return dict(zip(status[::2], status[1::2]))


def expired(*servers):
    return {action: int(sum(metric(server.http, "stint_reservations_expired_total", action=action)
                            for server in dict.fromkeys(servers)))
            for action in ("keep", "floor", "release")}


# ---- What becomes of them ----

CASES = [  # key, words, what is left of 100 after 10 were reserved
    ("plain", (), 90), ("kept", (), 90), ("freed", (), 100), ("floored", (), 93),
    ("plain", ("ON_EXPIRY", "release"), 100), ("plain", ("ON_EXPIRY", 4), 96),
    ("plain", ("ON_EXPIRY", 0), 100), ("plain", ("ON_EXPIRY", 50), 90),
    ("freed", ("on_expiry", "KEEP"), 90), ("floored", ("ON_EXPIRY", "release"), 100),
]


def test_a_reservation_becomes_what_was_said(servers):
    first, second = servers
    before, tickets = expired(first, second), []
    for index, (key, words, _) in enumerate(CASES):
        tickets.append(reserve(first, of(key, f"v{index}"), *words))
        assert left(second, *of(key, f"v{index}")) == 90
    for index, (key, _, after) in enumerate(CASES):
        wait_until(lambda: left(second, *of(key, f"v{index}")) == after)
    for ticket in tickets:
        assert str(ask(second, "SETTLE", ticket, 0)).startswith("GONE")
    assert [left(first, *of(key, f"v{index}")) for index, (key, *_) in enumerate(CASES)] == \
        [after for *_, after in CASES]
    keep = 3 if first is second else 0  # a store forgets them by itself
    after = {action: before[action] + n for action, n in
             {"keep": keep, "floor": 3, "release": 4}.items()}
    wait_until(lambda: expired(first, second) == after)  # what a store counts is shown each second


def test_one_that_was_settled_does_not_expire(servers):
    first, second = servers
    before = expired(first, second)
    ticket = reserve(first, of("freed", "s"))
    assert ask(second, "SETTLE", ticket, 6)["granted"] == 4
    time.sleep(LIFE_MS / 1000 + 1.2)
    assert left(first, *of("freed", "s")) == 94
    assert expired(first, second) == before


def test_a_list_comes_back_as_each_rule_says(servers):
    first, second = servers
    target = ("DOMAIN", "d", "DESCRIPTOR", 1, "plain", "l", "COST", 10, "DESCRIPTOR", 1, "freed",
              "l", "COST", 20, "DESCRIPTOR", 1, "floored", "l", "COST", 5)
    ask(first, "RESERVE", *target, "LIFETIME", LIFE_MS)
    assert left(second, *of("freed", "l")) == 80
    wait_until(lambda: left(second, *of("freed", "l")) == 100)
    assert (left(first, *of("plain", "l")), left(first, *of("floored", "l"))) == (90, 95)


def test_over_http(servers):
    first, second = servers
    cases = {"release": 100, "keep": 90, 3: 97}
    given = {}
    for said in cases:
        target = {"domain": "d", "descriptors": [{"entries": [
            {"key": "plain", "value": f"web{said}"}]}]}
        status, given[said] = first.post("/v1/reserve", {
            **target, "cost": 10, "lifetime_ms": LIFE_MS, "on_expiry": said})
        assert (status, given[said]["remaining"]) == (200, 90), given
    for said, after in cases.items():  # the last one too: "keep" shows no change when it ends
        wait_until(lambda: left(second, *of("plain", f"web{said}")) == after)
    for said, after in cases.items():
        assert second.post("/v1/settle", {"ticket": given[said]["ticket"], "cost": 0})[0] == 410
        assert left(first, *of("plain", f"web{said}")) == after
    for wrong in ("drop", -1, 1.5, 4294967296, None, ["keep"], "7"):
        status, reply = first.post("/v1/reserve", {**target, "on_expiry": wrong})
        assert status == 400, (wrong, reply)
        assert '"keep", "release" or a whole number of units' in reply["detail"], reply
    assert left(first, *of("plain", "web3")) == 97


@pytest.mark.parametrize("words", [("ON_EXPIRY",), ("ON_EXPIRY", "drop"), ("ON_EXPIRY", "-1"),
                                   ("ON_EXPIRY", "4294967296"), ("ON_EXPIRY", ""),
                                   ("ON_EXPIRY", "keep", "ON_EXPIRY", "keep")])
def test_what_cannot_be_meant_is_refused(servers, words):
    first, _ = servers
    reply = ask(first, "RESERVE", *of("plain", "wrong"), "COST", 1, "LIFETIME", 1000, *words)
    assert isinstance(reply, RuntimeError) and "ON_EXPIRY" in str(reply), reply
    assert "ON_EXPIRY" in str(ask(first, "BOOK", *of("plain"), "MAXWAIT", 1, "ON_EXPIRY", "keep"))
    assert left(first, *of("plain", "wrong")) == 100


def test_a_reload_changes_new_reservations_alone(servers):
    first, second = servers
    reserve(first, of("plain", "r"))
    for turn, text in enumerate((rules(plain=", on_expiry: release"), rules()), start=1):
        for server in dict.fromkeys(servers):
            server.write_rules(text)
            server.tell(signal.SIGHUP)
            server.wait_for("reloaded", times=turn)
        if turn == 1:
            reserve(first, of("plain", "r"))
            assert left(second, *of("plain", "r")) == 80
    wait_until(lambda: left(second, *of("plain", "r")) == 90)
    time.sleep(LIFE_MS / 1000 + 0.3)
    assert left(second, *of("plain", "r")) == 90


# ---- Limits that are not enforced ----


def test_a_candidate_and_a_shadow_are_settled_along(servers):
    first, second = servers
    target = (*of("candidate", "c"), "COST", 10, "DESCRIPTOR", 1, "silent", "c", "COST", 10)
    for used, after in ((3, 97), (10, 87), (14, 73), (None, 73)):
        given = ask(first, "RESERVE", *target, "LIFETIME", 60_000)
        if used is None:
            ask(second, "CANCEL", given["ticket"])
        else:
            ask(second, "SETTLE", given["ticket"], used)
        assert left(second, *of("candidate", "c")) == after
        assert candidate_left(second, of("candidate", "c")) == after
        assert left(second, *of("silent", "c")) == after
        assert str(ask(first, "SETTLE", given["ticket"], 0)).startswith("GONE")
        assert candidate_left(second, of("candidate", "c")) == after
    reserve(first, of("candidate", "c"))
    assert candidate_left(first, of("candidate", "c")) == 63
    wait_until(lambda: left(first, *of("candidate", "c")) == 73)
    wait_until(lambda: candidate_left(first, of("candidate", "c")) == 73)


def test_a_shadow_alone_gives_a_ticket(servers):
    first, second = servers
    ticket = reserve(first, of("silent", "alone"))
    assert left(second, *of("silent", "alone")) == 90
    assert ask(second, "SETTLE", ticket, 4)["granted"] == 6
    assert left(second, *of("silent", "alone")) == 96


def test_a_retry_gets_the_same_ticket_with_its_shadows(servers):
    first, second = servers
    words = (*of("candidate", "id"), "COST", 10, "LIFETIME", 60_000, "ID", "r1")
    given, again = ask(first, "RESERVE", *words), ask(first, "RESERVE", *words)
    if "memcached:" in " ".join(first.options):  # an id would be a second value
        assert "memcached cannot recognize a repeated id" in str(given)
        assert left(second, *of("candidate", "id")) == 100
        return
    assert (again["replayed"], again["ticket"]) == (1, given["ticket"])
    assert candidate_left(second, of("candidate", "id")) == 90
    ask(second, "SETTLE", again["ticket"], 1)
    assert (left(first, *of("candidate", "id")), candidate_left(first, of("candidate", "id"))) == \
        (99, 99)
    other = (*words[:-2], "ON_EXPIRY", "keep", *words[-2:])
    assert str(ask(first, "RESERVE", *other)).startswith("CONFLICT")


# ---- Stores ----


def test_a_killed_server_leaves_it_to_any_other(store):
    """Nobody closes it by himself then: it stays charged, until somebody comes with the ticket; in
    memcached for any request that charges its key."""
    with Server("--store", store.url, *PATIENT, rules=rules()) as second:
        with Server("--store", store.url, *PATIENT, rules=rules()) as first:
            tickets = [reserve(first, of("freed", key)) for key in ("k", "untouched")]
            first.kill()
        time.sleep(LIFE_MS / 1000 + 0.8)
        assert left(second, *of("freed", "k")) == (100 if isinstance(store, Memcached) else 90)
        for _ in range(2):
            assert str(ask(second, "SETTLE", tickets[0], 5)).startswith("GONE")
            assert left(second, *of("freed", "k")) == 100
        wait_until(lambda: expired(second)["release"] == 1)
        if isinstance(store, Memcached):
            assert ask(second, "TAKE", *of("freed", "untouched"), "COST", 1)["remaining"] == 99
            wait_until(lambda: expired(second)["release"] == 2)


def test_a_store_that_is_away_at_the_deadline_is_asked_again(store):
    with Server("--store", store.url, "--store-timeout", "300ms", rules=rules()) as server:
        reserve(server, of("freed", "away"))
        store.pause()
        time.sleep(LIFE_MS / 1000 + 1.5)
        store.resume()
        wait_until(lambda: ask(server, "PEEK", *of("freed", "away"), "COST", 0).get("remaining")
                   == 100)
        assert expired(server)["release"] <= 1  # 0: it was done, and the answer came too late


def test_a_live_limit_in_the_table_has_its_ticket_beside_a_shadow_in_a_store():
    text = rules(", store: none").replace(
        "\n  - key: silent\n    rate_limit: {unit: hour, requests_per_unit: 100, algorithm: log, "
        "store: none}", "\n  - key: silent\n    rate_limit: {unit: hour, requests_per_unit: 100, "
        "algorithm: log}")
    with Redis() as redis, Server("--store", redis.url, *PATIENT, rules=text) as server:
        target = (*of("plain", "t"), "COST", 10, "DESCRIPTOR", 1, "silent", "t", "COST", 10)
        given = ask(server, "RESERVE", *target, "LIFETIME", 60_000)
        assert len(given["ticket"]) == 32
        assert ask(server, "SETTLE", given["ticket"], 4)["granted"] == 6
        assert left(server, *of("plain", "t")) == 96
        assert left(server, *of("silent", "t")) == 100  # not asked: it is elsewhere
