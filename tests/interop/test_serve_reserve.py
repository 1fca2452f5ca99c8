# SPDX-License-Identifier: MIT
"""Reservations over gRPC as Kuadrant's gateways make them: grpcio, a thousand at once beside
ordinary traffic, in the table and in shared stores. Messages are put together by hand.
"""
import contextlib

import grpc
import pytest

from measure import metric
from redis_server import Redis
from rls_messages import (HEALTH, OK, OVER_LIMIT, SERVING, Response, ask_with, block, descriptor,
                          fields, number, one, request)
from server import Server
from store_servers import Memcached

SERVICE = "kuadrant.service.ratelimit.v1.RateLimitService"
BUDGET = 5000
RULES = f"""\
domain: llm
descriptors:
  - key: team
    rate_limit: {{unit: year, requests_per_unit: {BUDGET}, algorithm: fixed_window}} # no day ends
  - key: user
    rate_limit: {{unit: day, requests_per_unit: 100}}
"""
TEAM, USER = descriptor(("team", "red")), descriptor(("user", "ann"))


class Kuadrant:
    """The four methods on one channel; `reserve` and `commit` also as futures."""

    def __init__(self, channel):
        def method(name, read):
            return channel.unary_unary(f"/{SERVICE}/{name}", request_serializer=bytes,
                                       response_deserializer=read)
        self.check = method("CheckRateLimit", Response)
        self.report = method("Report", Response)
        self.reserve = method("Reserve", Held)
        self.commit = method("Commit", fields)


class Held:
    def __init__(self, message):
        found = fields(message)
        self.code, self.id = one(found, 1), one(found, 2, b"").decode()


def reserve(*descriptors, amount, ttl=60):
    return request("llm", *descriptors) + number(3, amount) + block(4, number(1, ttl))


def commit(*descriptors, held, actual):
    return request("llm", *descriptors) + block(3, held.id) + number(4, actual)


@contextlib.contextmanager
def channel_to(server):
    # Each its own connection: else grpcio shares one.
    options = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(f"127.0.0.1:{server.port('grpc')}", options) as channel:
        yield channel


def left(server, key):
    """Units that are left to a team or a user of these tests."""
    entry = {"key": key, "value": {"team": "red", "user": "ann"}[key]}
    status, answer = server.post("/v1/peek", {
        "domain": "llm", "descriptors": [{"entries": [entry]}], "cost": 0})
    assert status == 200
    return answer["remaining"]


def refused(call, message):
    with pytest.raises(grpc.RpcError) as error:
        call(message, timeout=20)
    return error.value.code(), error.value.details()


@contextlib.contextmanager
def in_table():
    yield ()


@contextlib.contextmanager
def in_redis():
    with Redis() as redis:
        yield ("--store", redis.url, "--store-timeout", "5s")


@contextlib.contextmanager
def in_memcached():
    with Memcached() as memcached:
        yield ("--store", memcached.url, "--store-timeout", "5s")


@pytest.fixture(scope="module", params=[in_table, in_redis, in_memcached])
def server(request):  # noqa: F811 (pytest's name)
    with request.param() as options, Server(*options, rules=RULES) as running:
        yield running


@pytest.fixture
def channel(server):
    with channel_to(server) as opened, server.connect() as client:
        for key, value in (("team", "red"), ("user", "ann")):
            client.ask("STINT.RESET", "DOMAIN", "llm", "DESCRIPTOR", "1", key, value)
        yield opened


def test_an_estimate_is_held_and_corrected(server, channel):
    def both():
        return left(server, "team"), left(server, "user")

    kuadrant = Kuadrant(channel)
    held = kuadrant.reserve(reserve(TEAM, USER, amount=60), timeout=20)
    assert held.code == OK and held.id
    assert both() == (BUDGET - 60, 40)
    assert kuadrant.reserve(reserve(TEAM, USER, amount=41), timeout=20).code == OVER_LIMIT
    assert ask_with(channel)(request("llm", USER, hits=41), timeout=20).code == OVER_LIMIT
    assert both() == (BUDGET - 60, 40)
    code, why = refused(kuadrant.commit, commit(USER, held=held, actual=0))
    assert code == grpc.StatusCode.INVALID_ARGUMENT and "other descriptors" in why
    done = kuadrant.commit(commit(USER, TEAM, held=held, actual=10), timeout=20)
    assert done == {1: [1]}
    assert both() == (BUDGET - 10, 90)
    code, why = refused(kuadrant.commit, commit(TEAM, USER, held=held, actual=10))
    assert code == grpc.StatusCode.NOT_FOUND and "nothing was charged" in why
    # What was used beyond the estimate is charged, too.
    held = kuadrant.reserve(reserve(TEAM, amount=100), timeout=20)
    assert kuadrant.commit(commit(TEAM, held=held, actual=350), timeout=20) == {1: [1]}
    assert left(server, "team") == BUDGET - 10 - 350


def test_check_report_and_a_commit_without_an_id(server, channel):
    kuadrant = Kuadrant(channel)
    assert kuadrant.check(request("llm", USER, hits=100), timeout=20).code == OK
    assert kuadrant.report(request("llm", USER, hits=30), timeout=20).code == OK
    assert left(server, "user") == 70
    held = kuadrant.reserve(reserve(USER, amount=0), timeout=20)
    assert (held.code, held.id) == (OK, "")
    assert kuadrant.commit(commit(USER, held=held, actual=70), timeout=20) == {}
    assert left(server, "user") == 0
    assert kuadrant.reserve(reserve(USER, amount=0), timeout=20).code == OVER_LIMIT
    assert kuadrant.check(request("llm", USER), timeout=20).code == OVER_LIMIT


@pytest.mark.parametrize("message, word", [
    (reserve(TEAM, amount=1 << 32), "amount"),
    (reserve(TEAM, amount=1, ttl=366 * 86400), "ttl"),
    (reserve(TEAM, amount=1, ttl=(1 << 64) - 1), "ttl"),
    (reserve(amount=1), "descriptors"),
    (b"\xff\xff", "ReserveRequest"),
], ids=["amount", "ttl", "ttl below 0", "no descriptors", "no message"])
def test_what_cannot_be_meant_is_said_to_be_so(channel, message, word):
    code, why = refused(Kuadrant(channel).reserve, message)
    assert code == grpc.StatusCode.INVALID_ARGUMENT and word in why


def test_health_and_metrics_know_it(server, channel):
    call = channel.unary_unary(HEALTH + "Check", request_serializer=bytes,
                               response_deserializer=fields)
    assert one(call(block(1, SERVICE), timeout=20), 1) == SERVING

    def counted():
        return [metric(server.http, "stint_requests_total", frontend="grpc", verb=verb)
                for verb in ("peek", "charge", "reserve", "settle")]

    before, kuadrant = counted(), Kuadrant(channel)
    kuadrant.check(request("llm", USER), timeout=20)
    kuadrant.report(request("llm", USER), timeout=20)
    held = kuadrant.reserve(reserve(USER, amount=1), timeout=20)
    kuadrant.commit(commit(USER, held=held, actual=1), timeout=20)
    assert [now - then for now, then in zip(counted(), before)] == [1, 1, 1, 1]


# ---- A thousand at once ----

@pytest.mark.parametrize("store", [in_table, in_redis, in_memcached])
def test_a_thousand_reservations_of_one_budget(store):
    """10,000 units are asked of 5,000, over four connections, and ordinary calls beside them."""
    each, n = 8, 1000
    with store() as options, Server(*options, "--workers", "2", rules=RULES) as server, \
            contextlib.ExitStack() as channels:
        opened = [channels.enter_context(channel_to(server)) for _ in range(4)]
        asks = [ask_with(channel) for channel in opened]
        methods = [Kuadrant(channel) for channel in opened]
        message, plain = reserve(TEAM, amount=each), request("llm", TEAM, hits=2)
        reserved, taken = [], []
        for i in range(n):
            reserved.append(methods[i % 4].reserve.future(message, timeout=30))
            taken.append(asks[(i + 1) % 4].future(plain, timeout=30))
        held = [future.result() for future in reserved]
        granted = sum(each for one_held in held if one_held.code == OK)
        used = 2 * sum(future.result().code == OK for future in taken)
        assert all((one_held.code == OK) == bool(one_held.id) for one_held in held)
        assert BUDGET - each < granted + used <= BUDGET
        assert left(server, "team") == BUDGET - granted - used
        # Half of each is what was used; all commits at once, by whichever connection.
        done = [methods[i % 4].commit.future(commit(TEAM, held=one_held, actual=each // 2),
                                             timeout=30)
                for i, one_held in enumerate(held) if one_held.id]
        assert all(future.result() == {1: [1]} for future in done)
        assert left(server, "team") == BUDGET - granted // 2 - used


def test_a_reservation_outlives_the_server(tmp_path):
    options = ("--state", str(tmp_path / "state"))
    with Server(*options, rules=RULES) as first, channel_to(first) as channel:
        held = Kuadrant(channel).reserve(reserve(TEAM, amount=1000), timeout=20)
    with Server(*options, rules=RULES) as second, channel_to(second) as channel:
        assert left(second, "team") == BUDGET - 1000
        Kuadrant(channel).commit(commit(TEAM, held=held, actual=200), timeout=20)
        assert left(second, "team") == BUDGET - 200


@pytest.mark.parametrize("store", [in_redis, in_memcached])
def test_any_server_of_a_store_commits(store):
    with store() as options, Server(*options, rules=RULES) as first, \
            Server(*options, rules=RULES) as second:
        with channel_to(first) as channel:
            held = Kuadrant(channel).reserve(reserve(TEAM, amount=1000), timeout=20)
        with channel_to(second) as channel:
            Kuadrant(channel).commit(commit(TEAM, held=held, actual=1), timeout=20)
            assert left(second, "team") == BUDGET - 1
