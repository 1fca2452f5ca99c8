# SPDX-License-Identifier: MIT
"""Counters that several servers share over one store: each count is given once, or an error is."""
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from redis_server import Redis, until
from server import Server
from store_servers import Cluster, Memcached
from test_serve import serve

HOUR_MS = 3_600_000
KEY_MAX = 65536
PATIENT = ("--store-timeout", "5s")  # where no error may come: the machine may be busy
ONE_WORKER = ("--workers", "1")


@contextmanager
def a_store(kind):
    with Redis() if kind == "redis" else Memcached() as running:
        yield running


@pytest.fixture(params=["redis", "memcached"])
def store(request):
    with a_store(request.param) as running:
        yield running


def counter(reply):
    assert reply[::2] == ["count", "expires_after_ms"], reply
    return tuple(reply[1::2])


def test_two_servers_have_one_counter(store):
    options = ("--store", store.url, *PATIENT)
    with Server(*options) as first, Server(*options) as second:
        resp = second.connect()
        count, left = counter(resp.ask("STINT.COUNT", "hits", 5, HOUR_MS))
        assert count == 5 and HOUR_MS - 60_000 < left <= HOUR_MS
        status, body = first.post("/v1/count", {"key": "hits", "amount": 2**32 - 1, "expiry_ms": 1})
        assert (status, body["count"]) == (200, 2**32 + 4)
        assert HOUR_MS - 60_000 < body["expires_after_ms"] <= HOUR_MS
        assert counter(resp.ask("STINT.COUNT", "hits", -7))[0] == 2**32 - 3
        assert counter(resp.ask("STINT.COUNT", "other", -7)) == (0, 0)
        first.stop()
        with Server(*options) as third:
            assert third.post("/v1/count", {"key": "hits"})[1]["count"] == 2**32 - 3
            assert third.post("/v1/count_reset", {"key": "hits"}) == (200, {"ok": True})
        assert counter(resp.ask("STINT.COUNT", "hits")) == (0, 0)


def test_a_counter_ends_by_the_clock_of_its_store(store):
    with Server("--store", store.url, *PATIENT) as server:
        resp = server.connect()
        assert counter(resp.ask("STINT.COUNT", "short", 3, 300)) == (3, 300)
        until(lambda: counter(resp.ask("STINT.COUNT", "short")) == (0, 0), "the counter ends")
        assert counter(resp.ask("STINT.COUNT", "short", 1, 60_000)) == (1, 60_000)


def test_counts_of_many_clients_are_each_given_once(store):
    def add(server):
        with server.connect() as resp:
            for _ in range(100):
                resp.send("STINT.COUNT", "many", 1, HOUR_MS)
            return [counter(resp.read())[0] for _ in range(100)]

    options = ("--store", store.url, *PATIENT)
    with Server(*options) as first, Server(*options) as second, ThreadPoolExecutor(4) as pool:
        got = list(pool.map(add, [first, second] * 2))
    assert sorted(sum(got, [])) == list(range(1, 401))
    assert all(own == sorted(own) for own in got)


def test_a_pipeline_is_answered_in_its_order(store):
    with Server("--store", store.url, *PATIENT) as server, server.connect() as resp:
        for words in ((5, HOUR_MS), (1, HOUR_MS), ("RESET",), (2, HOUR_MS), (-1,), ()):
            resp.send("STINT.COUNT", "key", *words)
        replies = [resp.read() for _ in range(6)]
    assert replies.pop(2) == "OK"
    assert [counter(reply)[0] for reply in replies] == [5, 6, 2, 1, 1]


def test_what_no_counter_takes_is_refused_as_in_the_table(store):
    long = "k" * (KEY_MAX + 1)
    asked = [(long, 1, 1000), (long,), (long, "RESET"), ("key", 1), ("key", 2**32, 1000),
             ("key", 1, 0), ("key", 1, HOUR_MS, "ID", "x")]
    with Server() as alone, Server("--store", store.url, *PATIENT) as shared:
        for words in asked:
            expected = alone.connect().ask("STINT.COUNT", *words)
            assert isinstance(expected, RuntimeError), words
            assert str(shared.connect().ask("STINT.COUNT", *words)) == str(expected)
        assert counter(shared.connect().ask("STINT.COUNT", "key")) == (0, 0)


def test_a_silent_store_is_an_error_and_never_a_count(store):
    with Server("--store", store.url, *ONE_WORKER) as server, server.connect() as resp:
        acknowledged = 0
        until(lambda: not isinstance(resp.ask("STINT.COUNT", "hits"), RuntimeError), "it answers")
        for _ in range(10):
            acknowledged += not isinstance(resp.ask("STINT.COUNT", "hits", 1, HOUR_MS),
                                           RuntimeError)
        tried = 10
        store.pause()
        for _ in range(5):
            reply = resp.ask("STINT.COUNT", "hits", 1, HOUR_MS)
            assert isinstance(reply, RuntimeError) and str(reply).startswith("UNAVAILABLE ")
            tried += 1
        status, problem = server.post("/v1/count", {"key": "hits", "amount": 1, "expiry_ms": 9})
        assert status == 503 and problem["detail"]
        tried += 1
        store.resume()
        reply = until(lambda: (found := resp.ask("STINT.COUNT", "hits"),
                               not isinstance(found, RuntimeError) and found)[1], "it is back")
        assert acknowledged <= counter(reply)[0] <= tried


def test_a_cluster_has_each_counter_on_one_of_its_masters():
    with Cluster() as cluster:
        options = ("--store", cluster.url, *PATIENT)
        with Server(*options) as first, Server(*options) as second:
            clients = [first.connect(), second.connect()]
            for expected in range(1, 5):
                for key in range(12):
                    reply = clients[expected % 2].ask("STINT.COUNT", f"key{key}", 1, HOUR_MS)
                    assert counter(reply)[0] == expected
            assert clients[0].ask("STINT.COUNT", "key1", "RESET") == "OK"
            assert counter(clients[1].ask("STINT.COUNT", "key1")) == (0, 0)


def test_a_store_that_is_gone_is_an_error_until_it_is_back():
    with Redis() as redis:
        with Server("--store", redis.url, *ONE_WORKER) as server, server.connect() as resp:
            until(lambda: not isinstance(resp.ask("STINT.COUNT", "hits", 1, HOUR_MS),
                                         RuntimeError), "it is counted")
            redis.kill()
            reply = resp.ask("STINT.COUNT", "hits", 1, HOUR_MS)
            assert isinstance(reply, RuntimeError) and str(reply).startswith("UNAVAILABLE ")
            assert server.process.poll() is None


def test_a_full_store_counts_nothing():
    with Redis(maxmemory="1", maxmemory_policy="noeviction") as redis:
        with Server("--store", redis.url, *PATIENT) as server, server.connect() as resp:
            reply = resp.ask("STINT.COUNT", "hits", 1, HOUR_MS)
            assert isinstance(reply, RuntimeError) and "out of memory" in str(reply)
            redis.cli("CONFIG", "SET", "maxmemory", "0")
            assert counter(resp.ask("STINT.COUNT", "hits")) == (0, 0)


# ---- Which store ----


@pytest.mark.parametrize("stores, chosen, where", [
    (["{}"], None, "store"),
    (["{}"], "none", "table"),
    (["{}"], "default", "store"),
    (["red={}"], None, "table"),
    (["red={}"], "red", "store"),
])
def test_the_store_of_counters(stores, chosen, where):
    with Redis() as redis:
        options = [word for store in stores for word in ("--store", store.format(redis.url))]
        if chosen is not None:
            options += ["--store-counters", chosen]
        with Server(*options, *PATIENT) as server, server.connect() as resp:
            assert counter(resp.ask("STINT.COUNT", "a:{b}", 1, HOUR_MS))[0] == 1
        names = redis.cli("KEYS", "*").split()
    assert names == (["stint:{a:%7Bb%7D}counter::"] if where == "store" else [])


@pytest.mark.parametrize("options", [[], ["--store", "red=redis://127.0.0.1:1"]])
def test_a_store_of_counters_that_is_none(options):
    told = serve(*options, "--store-counters", "blue")
    assert "store_counters" in told and "blue" in told and "none for the table" in told
