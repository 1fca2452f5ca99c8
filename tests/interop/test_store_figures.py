# SPDX-License-Identifier: MIT
"""What a server tells of a shared store: on its pages, in INFO, in /readyz; and what it denies by
itself."""
import json
import urllib.error
import urllib.request

import pytest
import redis as client_library

from redis_server import until
from server import Server

RULES = """
domain: d
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 5, store: main, on_store_error: allow}
"""


@pytest.fixture
def server(redis):
    with Server("--workers", 1, "--store", f"main={redis.url}", "--store-timeout", "250ms",
                rules=RULES) as running:
        yield running


def get(server, path, body=None):
    """Status and text."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://{server.frontends['http'][0]}{path}", data,
                                     {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def take(server, user="a", **more):
    status, text = get(server, "/v1/take", {
        "domain": "d", "descriptors": [{"entries": [{"key": "user", "value": user}]}], **more})
    return status, json.loads(text)


def figure(server, name):
    found = [line.split()[-1] for line in get(server, "/metrics")[1].splitlines()
             if line.split(" ")[0] == name]
    assert len(found) == 1, f"{name}: {found}"
    return float(found[0])


def stats(server):
    return json.loads(get(server, "/v1/stats")[1])["stores"][0]


def served(server):
    """Whoever is allowed without the store has all five left."""
    until(lambda: take(server, "first")[1]["remaining"] < 5
          and get(server, "/readyz") == (200, "ready\n"), "the store is asked")


def test_a_key_that_is_denied_is_denied_without_the_store(server, redis):
    served(server)
    assert [take(server)[0] for _ in range(5)] == [200] * 5
    hit = 'stint_deny_cache_hits_total{store="main"}'
    until(lambda: take(server)[0] == 429 and figure(server, hit) > 0, "the cache denies")
    assert stats(server)["deny_cache_hits"] == figure(server, hit)
    # With a request id the store is asked: it may have been allowed before.
    before = figure(server, 'stint_store_latency_seconds_count{store="main"}')
    assert take(server, request_id="one")[0] == 429
    assert figure(server, 'stint_store_latency_seconds_count{store="main"}') > before


def test_a_store_that_is_away_is_told_of_everywhere(server, redis):
    served(server)
    assert get(server, "/readyz") == (200, "ready\n")
    redis.pause()
    until(lambda: (take(server)[0], stats(server)["state"])[1] == "stopped", "it is not asked")
    assert figure(server, 'stint_store_state{store="main"}') in (1, 2)
    assert figure(server, 'stint_store_errors_total{store="main",reason="late"}') > 0
    until(lambda: (take(server)[0], figure(
        server, 'stint_store_errors_total{store="main",reason="stopped"}'))[1] > 0, "at once")
    status, text = until(lambda: (take(server)[0], get(server, "/readyz"))[1]
                         if "main" in get(server, "/readyz")[1] else None, "it is named")
    assert status == 200 and text.startswith("ready\nstore main: unavailable for ")
    host, port = server.frontends["resp"][0].rsplit(":", 1)
    with client_library.Redis(host, int(port)) as client:
        info = client.execute_command("INFO", "stores")
    assert info["stores"] == 1 and info["store0"]["name"] == "main"
    assert info["store0"]["errors"] > 0
    redis.resume()
    until(lambda: (take(server)[0], stats(server)["state"])[1] == "asked", "it is asked again")
    until(lambda: get(server, "/readyz") == (200, "ready\n"), "and told of no more")
    assert figure(server, 'stint_store_state{store="main"}') == 0
