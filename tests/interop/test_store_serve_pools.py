# SPDX-License-Identifier: MIT
"""Pools of keys in a store, handed out by several servers: no key above its quota, by whomever."""
import collections
import subprocess
import threading
import time

import pytest

from program import STINT
from server import Server

LIMIT, S = 5, 1_000_000_000
CLIENTS, LASTS_S = 6, 4
CONFIG = """\
pools:
  - {name: search, store: default, quota: %d/1s, keys: [alpha, beta, gamma]}
  - {name: hourly, store: default, order: fill_first, quota: 2/1h, keys: [one, two]}
  - {name: own, quota: 1/1h, keys: [k]}
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "stint.yaml"
    path.write_text(CONFIG % LIMIT)
    return path


@pytest.fixture
def servers(redis, config):
    options = ("--store", redis.url, "--config", config, "--workers", 2,
               "--store-timeout", "500ms")  # late is no fault here, on a machine that is busy
    with Server(*options) as first, Server(*options) as second:
        yield first, second


def pool(client, *words):
    reply = client.ask("STINT.POOL", *words)
    return dict(zip(reply[::2], reply[1::2]))


def take_by_resp(server, ends, found):
    with server.connect() as client:
        while time.monotonic() < ends:
            given = pool(client, "NEXT", "search", "WAIT", "100")
            if given["key"] is not None:
                found.append((given["key"], int(given["at"])))


def take_by_http(server, ends, found):
    while time.monotonic() < ends:
        status, given = server.post("/v1/pools/search/next", {"wait_ms": 100})
        assert status in (200, 429), given
        if status == 200:
            found.append((given["key"], int(given["at"])))


def test_no_key_passes_its_quota_through_any_server(servers):
    found, faults, ends = [], [], time.monotonic() + LASTS_S

    def run(take, server):
        try:
            take(server, ends, found)
        except Exception as fault:  # told by the test's own thread
            faults.append(fault)

    takes = (take_by_resp, take_by_http)
    threads = [threading.Thread(target=run, args=(takes[i // 2 % 2], servers[i % 2]))
               for i in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    times = collections.defaultdict(list)
    for key, at in found:
        times[key].append(at)
    assert sorted(times) == ["alpha", "beta", "gamma"]
    for key, of_key in times.items():
        of_key.sort()
        for i, at in enumerate(of_key[LIMIT:]):
            assert at - of_key[i] >= S, (key, of_key[i:i + LIMIT + 1])
        assert len(of_key) >= 2 * LIMIT  # they are used in every second, too


def test_what_one_server_is_told_the_other_knows(servers):
    first, second = servers
    with first.connect() as one, second.connect() as two:
        assert [pool(c, "NEXT", "hourly")["key"] for c in (one, two, one)] == ["one", "one", "two"]
        last = pool(two, "NEXT", "hourly")
        assert last["key"] == "two"
        assert pool(one, "NEXT", "hourly")["key"] is None
        assert one.ask("STINT.POOL", "GIVEBACK", "hourly", "two", "AT", last["at"]) == 1
        status, given = second.post("/v1/pools/hourly/next", {})
        assert status == 200 and given["key"] == "two"
        back = {"key": "two", "granted_at": given["at"]}
        assert first.post("/v1/pools/hourly/give_back", back) == (200, {"given_back": 1})
        too_late = {"key": "two", "granted_at": "20000000000000000000"}
        assert first.post("/v1/pools/hourly/give_back", too_late)[0] == 400
        assert pool(two, "NEXT", "hourly")["key"] == "two"
        assert one.ask("STINT.POOL", "REPORT", "hourly", "one", "OUT") == "OK"
        status = {key[1]: key[3] for key in two.ask("STINT.POOL", "STATUS", "hourly")}
        assert status == {"one": "out", "two": "used_up"}
        assert two.ask("STINT.POOL", "REMOVE", "hourly", "one") == "OK"  # lifts it for all
        status = {key[1]: key[3] for key in one.ask("STINT.POOL", "STATUS", "hourly")}
        assert status == {"one": "used_up", "two": "used_up"}
        assert two.ask("STINT.POOL", "ADD", "hourly", "three", "QUOTA", "1/1h") == "OK"
        assert pool(two, "NEXT", "hourly")["key"] == "three"
        assert pool(one, "NEXT", "hourly")["key"] is None  # has not been told of that key
        assert one.ask("STINT.POOL", "LIST") == ["search", "hourly", "own"]
        assert pool(one, "NEXT", "own")["key"] == pool(two, "NEXT", "own")["key"] == "k"


def test_without_its_store_no_key_is_handed_out(servers, redis):
    first, _ = servers
    with first.connect() as client:
        assert pool(client, "NEXT", "search")["key"] is not None
        redis.pause()
        try:
            reply = client.ask("STINT.POOL", "NEXT", "search")
            assert str(reply).startswith("UNAVAILABLE"), reply
            assert first.post("/v1/pools/search/next", {})[0] == 503
            assert pool(client, "NEXT", "own")["key"] == "k"
        finally:
            redis.resume()


@pytest.mark.parametrize("store, options, place, said", [
    ("other", ["--store", "redis://127.0.0.1:1"], "2:5", "there is no store `other`"),
    ("default", [], "2:5", "there is no store `default`"),
    ("default", ["--store", "memcached://127.0.0.1:1"], "2:5", "memcached has no scripts"),
    ('""', ["--store", "redis://127.0.0.1:1"], "2:22", "expected the name of a store"),
])
def test_stores_that_keep_no_pool_are_told_of(tmp_path, store, options, place, said):
    config = tmp_path / "stint.yaml"
    config.write_text("pools:\n  - {name: a, store: %s, quota: 1/1s, keys: [k]}\n" % store)
    done = subprocess.run([STINT, "serve", "--config", config, "--resp", "127.0.0.1:0", "--http",
                           "off", *options], capture_output=True, timeout=30)
    told = done.stderr.decode()
    assert done.returncode == 1
    assert f"{config}:{place}: " in told and said in told, told


def test_a_printed_store_is_read_again(redis, config, tmp_path):
    first = subprocess.run([STINT, "serve", "--print-config", "--config", config, "--store",
                            redis.url], check=True, capture_output=True, timeout=30).stdout.decode()
    assert first.count('store: "default"\n') == 2
    again = tmp_path / "again.yaml"
    again.write_text(first)
    with Server("--config", again, "--store", redis.url, "--store-timeout", "2s") as server, \
            server.connect() as client:
        assert pool(client, "NEXT", "hourly")["key"] == "one"
