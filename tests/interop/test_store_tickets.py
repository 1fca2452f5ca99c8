# SPDX-License-Identifier: MIT
"""Tickets over quotas in a store: given by one server, settled by any other, good once."""
import base64
import socket
import threading
import time
from urllib.parse import unquote

import pytest

from measure import metric
from redis_server import Redis
from server import Server
from store_servers import Cluster, Memcached

PATIENT = ("--store-timeout", "2s")  # a loaded machine is no store that is away
RULES = """
domain: d
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 100}
  - key: open
    rate_limit: {unit: hour, requests_per_unit: 100, on_store_error: allow}
  - key: org
    rate_limit: {unit: minute, requests_per_unit: 1000, algorithm: gcra}
  - key: slow
    rate_limit: {unit: hour, requests_per_unit: 100, algorithm: gcra}
  - key: leased
    rate_limit: {unit: hour, requests_per_unit: 1000, lease: strict}
  - key: held
    rate_limit: {requests_per_unit: 1, algorithm: concurrency, lease: 300ms, store: none}
  - key: own
    rate_limit: {unit: hour, requests_per_unit: 100, store: none}
"""
PLACES = "concurrency 3 lease=20s"
STORES = {"redis": Redis, "memcached": Memcached}


@pytest.fixture
def servers(redis):
    with Server("--store", redis.url, *PATIENT, rules=RULES) as first, \
            Server("--store", redis.url, *PATIENT, rules=RULES) as second:
        yield first, second


@pytest.fixture(params=STORES)
def store(request):
    with STORES[request.param]() as started:
        yield started


@pytest.fixture
def pair(store):
    """Two servers, without what memcached does not keep."""
    rules = RULES.replace(", lease: strict", "")
    with Server("--store", store.url, *PATIENT, rules=rules) as first, \
            Server("--store", store.url, *PATIENT, rules=rules) as second:
        yield first, second


def ask(server, verb, *words):
    """The reply by its names."""
    with server.connect() as client:
        reply = client.ask(f"STINT.{verb}", *map(str, words))
    if not isinstance(reply, list):
        return reply
    return dict(zip(reply[::2], reply[1::2]))


def of(key, value="x"):
    return ("DOMAIN", "d", "DESCRIPTOR", 1, key, value)


def left(server, *target):
    return ask(server, "PEEK", *target, "COST", 0)["remaining"]


def refused(server, verb, *words):
    reply = ask(server, verb, *words)
    assert isinstance(reply, RuntimeError), reply
    return str(reply)


# ---- By users who may not forget ----


def test_nothing_of_a_server_needs_a_command_that_forgets():
    """The user of docs/distributed.md, with all that a server asks of a store but its pools."""
    may = "~stint:* &* +@all -flushall -flushdb -swapdb -debug"
    users = [("tests", "t", "~* &* +@all -flushall -flushdb -swapdb -debug"),
             ("stint", "sesame", may)]
    with Redis(acl=users) as redis:
        url = redis.url.replace("redis://", "redis://stint:sesame@")
        with Server("--store", url, *PATIENT, rules=RULES) as server:
            for target in (of("user"), of("org"), of("leased"), ("QUOTA", PLACES, "k")):
                given = ask(server, "RESERVE", *target, "COST", 2, "LIFETIME", 60_000)
                assert given["outcome"] == "allow"
                assert ask(server, "CANCEL", given["ticket"])["outcome"] == "allow"
                assert ask(server, "TAKE", *target, "COST", 1)["outcome"] == "allow"
                ask(server, "RESET", *target)
            for words in ("FLUSHALL",), ("FLUSHDB",), ("SWAPDB", "0", "1"):
                assert "NOPERM" in redis.cli(*words, check=False), words


# ---- By the rules, on one server ----


@pytest.mark.parametrize("target", [of("user"), of("slow"), ("QUOTA", "log 100/1h", "k")],
                         ids=lambda one: one[-2])
def test_what_one_server_reserved_another_settles(pair, target):
    check_settled_elsewhere(*pair, target)


def test_what_was_reserved_beside_a_lease_another_settles(servers):
    check_settled_elsewhere(*servers, of("leased"))


def check_settled_elsewhere(first, second, target):
    whole, drained = left(first, *target), int("slow" in target)  # a unit that flows out meanwhile
    given = ask(first, "RESERVE", *target, "COST", 40, "LIFETIME", 60_000)
    assert (given["outcome"], left(second, *target)) == ("allow", whole - 40)
    assert 30 - drained <= ask(second, "SETTLE", given["ticket"], 10)["granted"] <= 30
    assert whole - 10 - drained <= left(first, *target) <= whole - 10
    assert refused(first, "SETTLE", given["ticket"], 10).startswith("GONE")
    given = ask(second, "RESERVE", *target, "COST", 5, "LIFETIME", 60_000)
    assert ask(first, "SETTLE", given["ticket"], 25)["granted"] == 20
    given = ask(second, "RESERVE", *target, "COST", 5, "LIFETIME", 60_000)
    assert 5 - drained <= ask(first, "CANCEL", given["ticket"])["granted"] <= 5
    assert refused(second, "CANCEL", given["ticket"]).startswith("GONE")
    assert whole - 35 - 3 * drained <= left(first, *target) <= whole - 35 + drained


@pytest.mark.parametrize("tag", ["values", "first", "domain"])
def test_a_ticket_is_over_all_quotas_of_its_request(store, tag):
    rules = RULES.replace("domain: d", f"domain: d\nstore_tag: {tag}")
    rules = rules.replace(", lease: strict", "")

    def both(cost):
        return ("DOMAIN", "d", "DESCRIPTOR", 1, "user", "x", "COST", cost,
                "DESCRIPTOR", 1, "open", "y", "COST", cost)

    with Server("--store", store.url, *PATIENT, rules=rules) as first, \
            Server("--store", store.url, *PATIENT, rules=rules) as second:
        given = ask(first, "RESERVE", *both(40), "LIFETIME", 60_000)
        assert (left(second, *of("user")), left(second, *of("open", "y"))) == (60, 60)
        ask(second, "SETTLE", given["ticket"], 15)
        assert (left(first, *of("user")), left(first, *of("open", "y"))) == (85, 85)
        assert ask(first, "RESERVE", *both(86), "LIFETIME", 60_000)["outcome"] == "deny"
        assert (left(first, *of("user")), left(first, *of("open", "y"))) == (85, 85)


def test_places_are_held_renewed_and_given_back(servers, redis):
    first, second = servers
    given = ask(first, "RESERVE", "QUOTA", PLACES, "k", "COST", 2, "LIFETIME", 5000)
    name = next(name for name in redis.cli("--scan").splitlines() if "id:" in name)
    assert int(redis.cli("PTTL", name)) <= 5000
    assert ask(second, "RENEW", given["ticket"]) == "OK"
    assert 15_000 < int(redis.cli("PTTL", name)) <= 20_000
    assert left(first, "QUOTA", PLACES, "k") == 1
    assert ask(second, "CANCEL", given["ticket"])["granted"] == 2
    assert left(first, "QUOTA", PLACES, "k") == 3
    assert refused(first, "RENEW", given["ticket"]).startswith("GONE")
    units = ask(first, "RESERVE", *of("user"), "LIFETIME", 60_000)
    assert "has no lease" in refused(first, "RENEW", units["ticket"])


@pytest.mark.parametrize("close", [("CANCEL",), ("SETTLE", 1)], ids=lambda words: words[0])
def test_places_whose_lease_has_ended_are_gone(servers, close):
    """Though their ticket is good for longer; at every port, in the store and in the table."""
    first, second = servers
    for index, target in enumerate((("QUOTA", "concurrency 1 lease=300ms", "k"), of("held"))):
        given = [ask(first, "RESERVE", *target, "COST", 1, "LIFETIME", 60_000)]
        time.sleep(0.4)
        given.append(ask(first, "RESERVE", *target, "COST", 1, "LIFETIME", 60_000))
        time.sleep(0.4)
        other = first if index else second
        assert refused(other, "RENEW", given[0]["ticket"]).startswith("GONE")
        assert refused(other, close[0], given[0]["ticket"], *close[1:]).startswith("GONE")
        body = {"ticket": given[1]["ticket"], **({"cost": 1} if close[1:] else {})}
        status, answer = other.post(f"/v1/{close[0].lower()}", body)
        assert status == 410, answer


def test_a_place_in_the_future_is_booked_and_cancelled(servers):
    first, second = servers
    assert ask(first, "BOOK", *of("org"), "COST", 1000, "MAXWAIT", 60_000)["starts_after_ms"] == 0
    given = ask(first, "BOOK", *of("org"), "COST", 200, "MAXWAIT", 60_000)
    assert 9000 < given["starts_after_ms"] <= 12_000
    assert ask(second, "BOOK", *of("org"), "COST", 900, "MAXWAIT", 20_000)["outcome"] == "deny"
    assert ask(second, "CANCEL", given["ticket"])["granted"] == 200
    again = ask(second, "BOOK", *of("org"), "COST", 200, "MAXWAIT", 60_000)
    assert again["starts_after_ms"] <= given["starts_after_ms"]
    assert ask(first, "BOOK", *of("user"), "COST", 1, "MAXWAIT", 1000)["outcome"] == "never"


def test_an_id_gives_the_same_ticket_again(servers):
    first, second = servers
    words = (*of("user"), "COST", 40, "LIFETIME", 5000, "ID", "r1")
    given = ask(first, "RESERVE", *words)
    assert ask(second, "RESERVE", *words) == {**given, "replayed": 1}
    ask(second, "SETTLE", given["ticket"], 15)
    # What was used is not charged anew for whoever comes late.
    assert ask(first, "RESERVE", *words) == {**given, "replayed": 1}
    assert left(first, *of("user")) == 85
    assert "expected no id" in refused(first, "SETTLE", given["ticket"], 1, "ID", "s1")


def test_a_ticket_ends_and_stays_charged_as_estimated(pair, store):
    first, second = pair
    given = ask(first, "RESERVE", *of("user"), "COST", 40, "LIFETIME", 50)
    time.sleep(0.1)  # the store's clock is a real one
    assert refused(second, "SETTLE", given["ticket"], 0).startswith("GONE")
    assert left(first, *of("user")) == 60
    if isinstance(store, Redis):
        assert not any("id:" in name for name in store.cli("--scan").splitlines())


def test_tickets_over_http(pair):
    first, second = pair
    target = {"domain": "d", "descriptors": [{"entries": [{"key": "user", "value": "web"}]}]}
    status, given = first.post("/v1/reserve", {**target, "cost": 7, "lifetime_ms": 60_000})
    assert status == 200
    status, settled = second.post("/v1/settle", {"ticket": given["ticket"], "cost": 2})
    assert (status, settled["granted"], settled["remaining"]) == (200, 5, 98)
    assert first.post("/v1/settle", {"ticket": given["ticket"], "cost": 2})[0] == 410
    assert first.post("/v1/cancel", {"ticket": "A" * 40})[0] == 400


# ---- What cannot be ----


def test_what_gets_no_ticket_is_said_before_anything_is_charged(servers):
    first, _ = servers
    for verb, more, words, sentence in (
            ("RESERVE", ("LIFETIME", 1000), ("user", "own"), "a ticket belongs to one store"),
            ("RESERVE", ("LIFETIME", 1000), ("leased", "user"), "cannot include one with a lease"),
            ("BOOK", ("MAXWAIT", 1000), ("org", "user"), "needs a single quota"),
            ("BOOK", ("MAXWAIT", 1000), ("leased",), "without a lease")):
        lists = [word for key in words for word in ("DESCRIPTOR", 1, key, "x")]
        assert sentence in refused(first, verb, "DOMAIN", "d", *lists, *more)
    long = [word for number in range(8) for word in ("QUOTA", "log 5/1h", f"{number}" * 500)]
    assert "too long for a ticket" in refused(first, "RESERVE", *long, "LIFETIME", 1000)
    for key in ("user", "own", "leased", "org"):
        assert left(first, *of(key)) in (100, 1000)


def test_what_is_no_ticket_is_refused_and_harms_nothing(pair):
    first, second = pair
    ticket = ask(first, "RESERVE", *of("user"), "COST", 9, "LIFETIME", 60_000)["ticket"]
    raw = base64.b64decode(ticket)
    for at in range(len(raw)):
        for changed in (raw[:at], raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1:]):
            text = base64.b64encode(changed).decode()
            fault = refused(second, "CANCEL", text)
            assert fault.startswith("ERR"), (at, fault)
    assert refused(first, "CANCEL", "A" * 5000).startswith("ERR")
    assert refused(first, "CANCEL", raw.hex()).startswith("ERR")
    assert left(second, *of("user")) == 91
    assert ask(second, "CANCEL", ticket)["granted"] == 9


def test_a_ticket_of_another_store_is_named(redis):
    only = RULES.replace(", store: none", "")
    with Server("--store", redis.url, *PATIENT, rules=RULES) as first, \
            Server("--store", f"other={redis.url}", *PATIENT, rules=only) as second:
        given = ask(first, "RESERVE", *of("user"), "COST", 9, "LIFETIME", 60_000)
        assert 'the store "default"' in refused(second, "CANCEL", given["ticket"])
        assert ask(first, "CANCEL", given["ticket"])["granted"] == 9


def test_a_store_that_is_away(pair, store):
    first, _ = pair
    given = ask(first, "RESERVE", *of("open"), "COST", 9, "LIFETIME", 60_000)
    store.pause()
    free = ask(first, "RESERVE", *of("open"), "COST", 9, "LIFETIME", 60_000)
    assert free["outcome"] == "allow" and "ticket" not in free
    assert not refused(first, "SETTLE", given["ticket"], 1).startswith("GONE")
    store.resume()
    ends = time.monotonic() + 20  # a store that comes back is waited for in real time
    while "ticket" not in ask(first, "RESERVE", *of("open"), "COST", 1, "LIFETIME", 60_000):
        assert time.monotonic() < ends
        time.sleep(0.05)


# ---- Many ----


def test_of_all_who_settle_a_ticket_one_does(pair):
    tickets = [ask(pair[0], "RESERVE", *of("user", f"u{number}"), "COST", 50, "LIFETIME", 60_000)
               ["ticket"] for number in range(30)]
    wins = []

    def settle(server, used):
        with server.connect() as client:
            for number, ticket in enumerate(tickets):
                reply = client.ask("STINT.SETTLE", ticket, str(used))
                if isinstance(reply, list):
                    wins.append((number, used))
                else:
                    assert str(reply).startswith("GONE")

    threads = [threading.Thread(target=settle, args=(pair[used % 2], used))
               for used in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(number for number, _ in wins) == list(range(30))
    for number, used in wins:
        assert left(pair[0], *of("user", f"u{number}")) == 100 - used


def test_reservations_of_many_at_once_never_pass_the_budget(pair):
    """200 of 7 units each, of 100, by 20 connections to two servers."""
    granted, many = [], ("QUOTA", "log 100/1h", "many")

    def reserve(server):
        with server.connect() as client:
            for _ in range(10):
                reply = client.ask("STINT.RESERVE", *many, "COST", "7", "LIFETIME", "60000")
                assert isinstance(reply, list), reply
                reply = dict(zip(reply[::2], reply[1::2]))
                if reply["outcome"] == "allow":
                    granted.append(reply["ticket"])

    threads = [threading.Thread(target=reserve, args=(pair[i % 2],)) for i in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(granted) == len(set(granted)) == 14
    assert left(pair[0], *many) == 2
    for ticket in granted:
        assert ask(pair[1], "SETTLE", ticket, 3)["granted"] == 4
    assert left(pair[0], *many) == 100 - 14 * 3


def test_a_ticket_over_several_masters():
    """Each slot has its part of the ticket; what one denies, the others take back."""
    with Cluster(replicas=0) as cluster, \
            Server("--store", cluster.url, *PATIENT, rules=RULES) as first, \
            Server("--store", cluster.url, *PATIENT, rules=RULES) as second:
        users = [f"u{number}" for number in range(6)]
        all_of = [word for user in users for word in ("DESCRIPTOR", 1, "user", user, "COST", 40)]
        given = ask(first, "RESERVE", "DOMAIN", "d", *all_of, "LIFETIME", 60_000)
        assert [left(second, *of("user", user)) for user in users] == [60] * 6
        assert ask(second, "SETTLE", given["ticket"], 10)["granted"] == 30
        assert [left(first, *of("user", user)) for user in users] == [90] * 6
        assert refused(first, "CANCEL", given["ticket"]).startswith("GONE")
        ask(first, "TAKE", *of("user", users[3]), "COST", 60)
        assert ask(first, "RESERVE", "DOMAIN", "d", *all_of, "LIFETIME",
                   60_000)["outcome"] == "deny"
        ends = time.monotonic() + 20  # what goes back is on its way
        while [left(second, *of("user", user)) for user in users] != [90] * 3 + [30] + [90] * 2:
            assert time.monotonic() < ends
            time.sleep(0.02)


# ---- Over memcached ----


def servers_on(*stores, rules):
    options = [word for name, store in stores for word in ("--store", f"{name}={store.url}")]
    return Server(*options, *PATIENT, rules=rules)


def test_a_ticket_is_of_redis_or_of_memcached():
    rules = """
domain: d
descriptors:
  - key: far
    rate_limit: {unit: hour, requests_per_unit: 100, store: far}
  - key: near
    rate_limit: {unit: hour, requests_per_unit: 100, store: near}
"""
    with Redis() as far, Memcached() as near, \
            servers_on(("far", far), ("near", near), rules=rules) as server:
        both = ("DOMAIN", "d", "DESCRIPTOR", 1, "far", "x", "DESCRIPTOR", 1, "near", "x")
        refusal = refused(server, "RESERVE", *both, "LIFETIME", 60_000)
        assert "a ticket belongs to one store" in refusal
        for key in ("far", "near"):
            assert left(server, *of(key)) == 100
            given = ask(server, "RESERVE", *of(key), "COST", 9, "LIFETIME", 60_000)
            assert ask(server, "SETTLE", given["ticket"], 2)["granted"] == 7
            assert left(server, *of(key)) == 98


def test_a_memcached_that_was_killed_has_forgotten_its_tickets():
    rules = RULES.replace(", lease: strict", "")
    with Memcached() as memcached, \
            Server("--store", memcached.url, *PATIENT, rules=rules) as server:
        ticket = ask(server, "RESERVE", *of("user"), "COST", 40, "LIFETIME", 60_000)["ticket"]
        memcached.restart()
        ends = time.monotonic() + 20
        while not (fault := refused(server, "SETTLE", ticket, 10)).startswith("GONE"):
            assert time.monotonic() < ends, fault
            time.sleep(0.05)
        assert refused(server, "CANCEL", ticket).startswith("GONE")


def test_of_several_memcacheds_each_keeps_its_part():
    """What the lost one kept is gone; the rest is settled, once."""
    rules = RULES.replace(", lease: strict", "")
    users = [f"u{number}" for number in range(12)]
    all_of = [word for user in users for word in ("DESCRIPTOR", 1, "user", user, "COST", 40)]
    with Memcached() as one, Memcached() as other:
        url = f"memcached://{one.host}:{one.port},{other.host}:{other.port}"
        with Server("--store", url, *PATIENT, rules=rules) as first, \
                Server("--store", url, *PATIENT, rules=rules) as second:
            given = ask(first, "RESERVE", "DOMAIN", "d", *all_of, "LIFETIME", 60_000)
            assert [left(second, *of("user", user)) for user in users] == [60] * 12
            ask(second, "TAKE", *of("user", users[3]), "COST", 60)
            assert ask(first, "RESERVE", "DOMAIN", "d", *all_of, "LIFETIME",
                       60_000)["outcome"] == "deny"
            assert [left(second, *of("user", user)) for user in users if user != users[3]] == \
                [60] * 11
            other.ask("flush_all")
            assert ask(second, "SETTLE", given["ticket"], 10)["granted"] == 30
            left_of = [left(first, *of("user", user)) for user in users]
            assert set(left_of) <= {90, 30, 100} and left_of.count(100) < 12
            assert refused(first, "CANCEL", given["ticket"]).startswith("GONE")
            assert [left(first, *of("user", user)) for user in users] == left_of


def test_a_damaged_record_is_none_and_its_key_is_used_up():
    rules = RULES.replace(", lease: strict", "")
    with Memcached() as memcached, \
            Server("--store", memcached.url, *PATIENT, rules=rules) as server:
        plain = value_of(memcached, *of("user", "plain"), server)
        for place in (len(plain) - 4, -7):  # of the first byte of a record, and of what is kept
            user = f"u{place}"
            ticket = ask(server, "RESERVE", *of("user", user), "COST", 9, "LIFETIME",
                         60_000)["ticket"]
            key, value = entry_of(memcached, user)
            assert len(value) == len(plain) + 48 + 2
            damaged = bytearray(value)
            damaged[place] ^= 4
            store_value(memcached, key, bytes(damaged))
            assert refused(server, "SETTLE", ticket, 0).startswith("GONE")
            assert left(server, *of("user", user)) == 0
        # What is shown is copied each second.
        ends = time.monotonic() + 20
        while metric(server.http, "stint_store_damaged_total", store="default") != 2:
            assert time.monotonic() < ends
            time.sleep(0.05)


def value_of(memcached, *target_and_server):
    *target, server = target_and_server
    ask(server, "TAKE", *target, "COST", 1)
    return entry_of(memcached, target[-1])[1]


def entry_of(memcached, word):
    """The key that has this word in its name, and its value."""
    lines = memcached.ask("lru_crawler metadump all", b"END\r\n").splitlines()
    names = [unquote(line.split()[0].removeprefix("key=")) for line in lines if word in line]
    name, = [name for name in names if "!" not in name]
    with socket.create_connection((memcached.host, memcached.port), timeout=5) as link:
        link.sendall(f"mg {name} v\r\n".encode())
        head, _, rest = link.recv(65536).partition(b"\r\n")
        assert head.startswith(b"VA "), (name, head)
        return name, rest[:int(head.split()[1])]


def store_value(memcached, key, value):
    with socket.create_connection((memcached.host, memcached.port), timeout=5) as link:
        link.sendall(f"ms {key} {len(value)}\r\n".encode() + value + b"\r\n")
        assert link.recv(64).startswith(b"HD")
