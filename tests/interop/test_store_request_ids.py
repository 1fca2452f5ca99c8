# SPDX-License-Identifier: MIT
"""Requests with an id on limits in stores: done once where the store can know, and refused with one
sentence, before anybody is charged, where it cannot."""

import pytest

from fleet import Fleet
from redis_server import Redis
from store_servers import Memcached

NEEDS = "send no id, or use Redis or Valkey"
RULES = """
domain: d
store_tag: domain
descriptors:
  - key: user
    rate_limit: {requests_per_unit: 50, unit: hour}
  - key: group
    rate_limit: {requests_per_unit: 50, unit: hour, lease: strict}
  - key: everybody
    rate_limit: {requests_per_unit: 50, unit: hour, store: mem}
"""
VERBS = {"TAKE": -1, "TAKEUPTO": -1, "CHARGE": -1, "REFUND": 1}


@pytest.fixture(scope="module")
def server():
    with Redis() as redis, Memcached() as memcached:
        with Fleet(1, redis.url, "--store", f"mem={memcached.url}", "--store-timeout", "1s",
                   rules=RULES) as fleet:
            yield fleet.servers[0]


def words(*pairs):
    found = ["DOMAIN", "d"]
    for key, value in pairs:
        found += ["DESCRIPTOR", 1, key, value]
    return found


def left(client, key, value):
    reply = client.ask("STINT.PEEK", *words((key, value)), "COST", 0)
    return dict(zip(reply[::2], reply[1::2]))["remaining"]


@pytest.mark.parametrize("verb", VERBS)
def test_memcached_refuses_ids_at_every_frontend(server, verb):
    key = f"alone-{verb}"
    with server.connect() as client:
        told = str(client.ask(f"STINT.{verb}", *words(("everybody", key)), "ID", "x"))
        assert "ERR" in told and NEEDS in told and "\n" not in told
        assert left(client, "everybody", key) == 50
    body = {"domain": "d", "descriptors": [{"entries": [{"key": "everybody", "value": key}]}],
            "request_id": "x"}
    name = {"TAKEUPTO": "take_upto"}.get(verb, verb.lower())
    status, problem = server.post(f"/v1/{name}", body)
    assert status == 400 and NEEDS in problem["detail"]
    assert told.endswith(problem["detail"])


@pytest.mark.parametrize("verb", VERBS)
def test_what_one_store_refuses_no_other_is_charged(server, verb):
    key = f"mixed-{verb}"
    with server.connect() as client:
        told = client.ask(f"STINT.{verb}", *words(("user", key), ("everybody", key)), "ID", "x")
        assert NEEDS in str(told)
        assert [left(client, one, key) for one in ("user", "everybody")] == [50, 50]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("leased", [False, True])
def test_the_same_id_moves_units_once(server, verb, leased):
    """Of all limits of a request, though their keys and ids lie together."""
    key = f"once-{verb}-{leased}"
    pairs = [("user", key), ("user", key + "-too")] + ([("group", key)] if leased else [])
    with server.connect() as client:
        def ask(cost):
            return client.ask(f"STINT.{verb}", *words(*pairs), "ID", f"id-{key}", "COST", cost)

        client.ask("STINT.CHARGE", "DOMAIN", "d", "COST", 20, *words(*pairs)[2:])
        first, again = ask(3), ask(3)
        assert "replayed" not in first and "replayed" in again, (first, again)
        assert first[:4] == again[:4]
        expected = 30 + 3 * VERBS[verb]
        assert [left(client, one, value) for one, value in pairs[:2]] == [expected] * 2
        assert "CONFLICT" in str(ask(4))
