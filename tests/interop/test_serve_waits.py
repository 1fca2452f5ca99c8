# SPDX-License-Identifier: MIT
"""The frontends of a server whose quotas are in a real store that answers, is late, or is gone."""
import concurrent.futures
import http.client
import json
import signal
import socket
import ssl
import threading
import time
from pathlib import Path

import grpc
import pytest

from measure import metric
from redis_server import Redis, until
from rls_messages import OK, OVER_LIMIT, ask_with, descriptor, request
from server import Server

RULES = """
domain: d
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 100}
  - key: open
    rate_limit: {unit: hour, requests_per_unit: 1, on_store_error: allow}
  - key: here
    rate_limit: {unit: hour, requests_per_unit: 100000, store: none}
"""
LATE = "2s"  # longer than a store is late here, shorter than a test


@pytest.fixture(scope="module")
def redis():
    with Redis() as server:
        yield server


@pytest.fixture
def server(redis):
    redis.cli("FLUSHALL")
    with Server("--store", redis.url, "--store-timeout", LATE, "--workers", "1",
                rules=RULES) as server:
        yield server


def body(key, value, **more):
    entries = [{"key": key, "value": value}]
    return json.dumps({"domain": "d", "descriptors": [{"entries": entries}], **more})


def post(port, key, value, context=None, **more):
    kind = http.client.HTTPSConnection if context else http.client.HTTPConnection
    link = kind("localhost", port, timeout=30, **({"context": context} if context else {}))
    link.request("POST", "/v1/take", body(key, value, **more),
                 {"Content-Type": "application/json"})
    response = link.getresponse()
    found = json.loads(response.read())
    link.close()
    return response.status, found


def ask(channel, key, value, **more):
    return ask_with(channel)(request("d", descriptor((key, value))), **more)


def channel_to(server):
    return grpc.insecure_channel(f"127.0.0.1:{server.port('grpc')}")


# ---- A store that answers ----


def test_http_admits_what_the_rule_says_however_many_ask(server):
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: post(server.http, "user", "a")[0], range(150)))
    assert answers.count(200) == 100 and answers.count(429) == 50


def test_grpc_admits_what_the_rule_says_however_many_ask(server):
    with channel_to(server) as channel:
        futures = [ask_with(channel).future(request("d", descriptor(("user", "b"))), timeout=30)
                   for _ in range(150)]
        codes = [future.result().code for future in futures]
    assert codes.count(OK) == 100 and codes.count(OVER_LIMIT) == 50


def test_one_quota_for_all_frontends(server):
    resp = server.connect()
    for _ in range(40):
        assert post(server.http, "user", "c")[0] == 200
    with channel_to(server) as channel:
        assert [ask(channel, "user", "c").code for _ in range(60)] == [OK] * 60
        assert ask(channel, "user", "c").code == OVER_LIMIT
    assert post(server.http, "user", "c")[0] == 429
    resp.close()


def test_who_waits_for_units_is_answered_when_they_come(server):
    quota = {"quota": "fixed_window 1/1s align=first_use", "key": "w"}
    link = http.client.HTTPConnection("127.0.0.1", server.http, timeout=30)
    for more in ({}, {"wait_ms": 5000}):
        link.request("POST", "/v1/take", json.dumps({**quota, **more}),
                     {"Content-Type": "application/json"})
        response = link.getresponse()
        response.read()
        assert response.status == 200
    link.close()


def test_in_tls(redis, authority):
    certificate, key = authority.sign("server")
    context = ssl.create_default_context(cafile=authority.certificate)
    credentials = grpc.ssl_channel_credentials(Path(authority.certificate).read_bytes())
    redis.cli("FLUSHALL")
    with Server("--store", redis.url, "--store-timeout", LATE, "--grpc", "off", "--grpc-tls",
                "127.0.0.1:0", "--http-tls", "127.0.0.1:0", "--tls-certificate", certificate,
                "--tls-key", key, "--workers", "1", rules=RULES) as server:
        assert post(server.port("http-tls"), "user", "t", context)[0] == 200
        with grpc.secure_channel(f"localhost:{server.port('grpc-tls')}", credentials) as channel:
            futures = [ask_with(channel).future(request("d", descriptor(("user", "t"))),
                                                timeout=30) for _ in range(120)]
            codes = [future.result().code for future in futures]
    assert codes.count(OK) == 99 and codes.count(OVER_LIMIT) == 21


# ---- A store that is late ----


class Paused:
    def __init__(self, redis):
        self.redis = redis

    def __enter__(self):
        self.redis.pause()

    def __exit__(self, *_):
        self.redis.resume()
        until(lambda: self.redis.cli("PING", check=False) == "PONG", "redis goes on")


def test_others_are_answered_while_some_wait(redis, server):
    post(server.http, "user", "a")  # it is connected
    with channel_to(server) as channel, Paused(redis):
        late = ask_with(channel).future(request("d", descriptor(("user", "a"))), timeout=30)
        waiting = threading.Thread(target=post, args=(server.http, "user", "a"))
        waiting.start()
        assert post(server.http, "here", "x")[0] == 200
        assert ask(channel, "here", "x").code == OK
        assert not late.done() and waiting.is_alive()
        redis.resume()
        assert late.result().code == OK
        waiting.join()


def test_nobody_waits_longer_than_the_store_may(redis, server):
    post(server.http, "user", "a")
    with channel_to(server) as channel, Paused(redis):
        begun = time.monotonic()
        shut = ask_with(channel).future(request("d", descriptor(("user", "a"))), timeout=30)
        opened = ask_with(channel).future(request("d", descriptor(("open", "a"))), timeout=30)
        status, found = post(server.http, "user", "a")
        assert status == 429 and found["outcome"] == "deny"
        assert shut.result().code == OVER_LIMIT and opened.result().code == OK
        assert time.monotonic() - begun < 12


def test_a_deadline_of_the_caller_is_kept(redis, server):
    post(server.http, "user", "a")
    with channel_to(server) as channel, Paused(redis):
        with pytest.raises(grpc.RpcError) as fault:
            ask(channel, "user", "a", timeout=0.2)
        assert fault.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        assert ask(channel, "here", "x", timeout=20).code == OK


def test_callers_who_leave_do_no_harm(redis, server):
    post(server.http, "user", "a")
    with Paused(redis):
        for _ in range(50):
            link = socket.create_connection(("127.0.0.1", server.http), timeout=20)
            text = body("user", "gone").encode()
            link.sendall(b"POST /v1/take HTTP/1.1\r\nHost: localhost\r\n"
                         b"Content-Type: application/json\r\n"
                         b"Content-Length: %d\r\n\r\n%s" % (len(text), text))
            link.close()
        channel = channel_to(server)
        for _ in range(50):
            ask_with(channel).future(request("d", descriptor(("user", "gone")))).cancel()
        channel.close()
        assert post(server.http, "here", "x")[0] == 200
    assert until(lambda: post(server.http, "user", "z")[0] == 200, "the store is asked again")


def test_who_has_closed_his_side_still_hears(redis, server):
    post(server.http, "user", "a")
    with Paused(redis):
        link = socket.create_connection(("127.0.0.1", server.http), timeout=20)
        text = body("user", "half").encode()
        link.sendall(b"POST /v1/take HTTP/1.1\r\nHost: localhost\r\n"
                     b"Content-Type: application/json\r\n"
                     b"Connection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))
        link.shutdown(socket.SHUT_WR)
        time.sleep(0.3)
    answer = b""
    while more := link.recv(4096):
        answer += more
    link.close()
    assert answer.startswith(b"HTTP/1.1 200 ")


def test_a_server_that_ends_answers_those_who_wait(redis):
    with Server("--store", redis.url, "--store-timeout", LATE, "--workers", "1",
                rules=RULES) as server:
        post(server.http, "user", "a")
        with channel_to(server) as channel, Paused(redis):
            before = metric(server.http, "stint_store_asks_total")
            late = ask_with(channel).future(request("d", descriptor(("open", "e"))), timeout=30)
            found = []
            waiting = threading.Thread(
                target=lambda: found.append(post(server.http, "open", "e")[0]))
            waiting.start()
            until(lambda: metric(server.http, "stint_store_asks_total") >= before + 2,
                  "both ask the store")
            server.tell(signal.SIGTERM)
            assert late.result().code == OK
            waiting.join()
            assert found == [200]
            assert server.wait() == 0
