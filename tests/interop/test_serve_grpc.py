# SPDX-License-Identifier: MIT
"""Envoy's rate limit service as clients of other makes see it: grpcio, and messages of our own.

What a feature of the YAML does is a row of a table; each is asked over gRPC and over /json, of
servers of their own, and both have to say the same.
"""
import json
import socket
import threading
import time
import urllib.error
import urllib.request

import grpc
import pytest

from npm_clients import node  # noqa: F401 (a fixture)
from rls_messages import (HEALTH, NOT_SERVING, OK, OVER_LIMIT, SERVICE_UNKNOWN, SERVING, ask_with,
                          block, descriptor, fields, number, one, request)
from server import Server

UNLIMITED = 2**32 - 1

RULES = """\
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 3, name: per-user}
  - key: user
    value: root
    rate_limit: {unlimited: true}
  - key: banned
    rate_limit: {unit: day, requests_per_unit: 0}
  - key: tenant
    descriptors:
      - key: path
        value: /a/*
        rate_limit: {unit: minute, requests_per_unit: 2}
      - key: path
        value: /a/b
        rate_limit: {unit: minute, requests_per_unit: 5}
      - key: path
        value: "*"
        rate_limit: {unit: minute, requests_per_unit: 1}
  - key: half
    rate_limit: {period: 30s, requests_per_unit: 4}
  - key: five
    rate_limit: {period: 5m, requests_per_unit: 4}
  - key: trial
    shadow_mode: true
    rate_limit: {unit: hour, requests_per_unit: 1}
  - key: soft
    quota_mode: true
    rate_limit: {unit: hour, requests_per_unit: 1}
  - key: soft2
    quota_mode: true
    rate_limit: {unit: hour, requests_per_unit: 2}
  - key: vip
    rate_limit: {unit: hour, requests_per_unit: 9, replaces: [{name: per-user}]}
  - key: files
    value: "img*"
    share_threshold: true
    rate_limit: {unit: hour, requests_per_unit: 2}
  - key: a_b
    rate_limit: {unit: hour, requests_per_unit: 1}
  - key: a
    value: b
    rate_limit: {unit: hour, requests_per_unit: 1}
  - key: month
    rate_limit: {unit: month, requests_per_unit: 7}
"""

USER = descriptor(("user", "u"))


def plain(*entries, **options):
    """A descriptor in both forms: bytes, and what /json takes."""
    value = {"entries": [{"key": key, "value": text} for key, text in entries]}
    if options.get("hits") is not None:
        value["hitsAddend"] = str(options["hits"])
    if options.get("negative"):
        value["isNegativeHits"] = True
    if options.get("override"):
        value["limit"] = {"requestsPerUnit": options["override"][0],
                          "unit": ["", "SECOND", "MINUTE", "HOUR"][options["override"][1]]}
    return descriptor(*entries, **options), value


def told(code, limit=None, unit=None, remaining=0, multiplier=1):
    return {"code": code, "limit": limit, "unit": unit, "remaining": remaining,
            "multiplier": multiplier}


FREE = told(OK)
# Each row: its name, then questions and what is answered: the overall code, and each status.
ROWS = [
    ("a limit, and what is left", [
        ([plain(("user", "u"))], {}, OK, [told(OK, 3, "HOUR", 2)]),
        ([plain(("user", "u"))], {"hits": 2}, OK, [told(OK, 3, "HOUR", 0)]),
        ([plain(("user", "u"))], {}, OVER_LIMIT, [told(OVER_LIMIT, 3, "HOUR", 0)]),
        ([plain(("user", "v"))], {}, OK, [told(OK, 3, "HOUR", 2)])]),
    ("what is more than there is takes nothing", [
        ([plain(("user", "u"))], {"hits": 4}, OVER_LIMIT, [told(OVER_LIMIT, 3, "HOUR", 3)]),
        ([plain(("user", "u"))], {"hits": 3}, OK, [told(OK, 3, "HOUR", 0)])]),
    ("the descriptor's hits go before the request's; 0 asks", [
        ([plain(("user", "u"), hits=0)], {"hits": 2}, OK, [told(OK, 3, "HOUR", 3)]),
        ([plain(("user", "u"), hits=2)], {}, OK, [told(OK, 3, "HOUR", 1)]),
        ([plain(("user", "u"), hits=2, negative=True)], {}, OK, [told(OK, 3, "HOUR", 3)])]),
    ("unlimited", [([plain(("user", "root"))], {}, OK, [told(OK, remaining=UNLIMITED)])]),
    ("no rule", [([plain(("other", "x"))], {}, OK, [FREE])]),
    ("no such domain", [([plain(("user", "u"))], {"domain": "none"}, OK, [FREE])]),
    ("none at all", [([plain(("banned", "x"))], {}, OVER_LIMIT, [told(OVER_LIMIT, 0, "DAY", 0)])]),
    ("the depth has to match", [
        ([plain(("tenant", "t"))], {}, OK, [FREE]),
        ([plain(("user", "u"), ("more", "x"))], {}, OK, [FREE])]),
    ("exact before wildcard, wildcards in their order", [
        ([plain(("tenant", "t"), ("path", "/a/b"))], {}, OK, [told(OK, 5, "MINUTE", 4)]),
        ([plain(("tenant", "t"), ("path", "/a/c"))], {}, OK, [told(OK, 2, "MINUTE", 1)]),
        ([plain(("tenant", "t"), ("path", "/z"))], {}, OK, [told(OK, 1, "MINUTE", 0)])]),
    ("a period that is no unit", [
        ([plain(("half", "x"))], {}, OK, [told(OK, 4, "SECOND", 3, 30)]),
        ([plain(("five", "x"))], {}, OK, [told(OK, 4, "MINUTE", 3, 5)])]),
    ("a calendar's month", [([plain(("month", "x"))], {}, OK, [told(OK, 7, "MONTH", 6)])]),
    ("shadow mode forces OK", [
        ([plain(("trial", "x"))], {}, OK, [told(OK, 1, "HOUR", 0)]),
        ([plain(("trial", "x"))], {}, OK, [told(OK, 1, "HOUR", 0)])]),
    ("quota mode: only all of them", [
        ([plain(("soft", "x")), plain(("soft2", "x"))], {}, OK,
         [told(OK, 1, "HOUR", 0), told(OK, 2, "HOUR", 1)]),
        ([plain(("soft", "x")), plain(("soft2", "x"))], {}, OK,
         [told(OVER_LIMIT, 1, "HOUR", 0), told(OK, 2, "HOUR", 0)]),
        ([plain(("soft", "x")), plain(("soft2", "x"))], {}, OVER_LIMIT,
         [told(OVER_LIMIT, 1, "HOUR", 0), told(OVER_LIMIT, 2, "HOUR", 0)])]),
    ("one replaces the other", [
        ([plain(("user", "u")), plain(("vip", "x"))], {}, OK, [FREE, told(OK, 9, "HOUR", 8)]),
        ([plain(("user", "u"))], {}, OK, [told(OK, 3, "HOUR", 2)])]),
    ("a shared threshold", [
        ([plain(("files", "img1"))], {}, OK, [told(OK, 2, "HOUR", 1)]),
        ([plain(("files", "img2"))], {}, OK, [told(OK, 2, "HOUR", 0)]),
        ([plain(("files", "img3"))], {}, OVER_LIMIT, [told(OVER_LIMIT, 2, "HOUR", 0)])]),
    ("a refusal leaves its siblings alone", [
        ([plain(("banned", "x")), plain(("user", "u"))], {}, OVER_LIMIT,
         [told(OVER_LIMIT, 0, "DAY", 0), told(OK, 3, "HOUR", 3)]),
        ([plain(("user", "u"))], {}, OK, [told(OK, 3, "HOUR", 2)])]),
    ("names that would join to the same", [
        ([plain(("a_b", "")), plain(("a", "b"))], {}, OK,
         [told(OK, 1, "HOUR", 0), told(OK, 1, "HOUR", 0)]),
        ([plain(("user", "x_y"))], {}, OK, [told(OK, 3, "HOUR", 2)]),
        ([plain(("user", "x")), plain(("user", "x_"))], {}, OK,
         [told(OK, 3, "HOUR", 2), told(OK, 3, "HOUR", 2)])]),
    ("an override", [
        ([plain(("user", "u"), override=(1, 1))], {}, OK, [told(OK, 1, "SECOND", 0)])]),
    ("a value with a NUL, and one of 60 KiB", [
        ([plain(("user", "a\0b"))], {}, OK, [told(OK, 3, "HOUR", 2)]),
        ([plain(("user", "a\0c"))], {}, OK, [told(OK, 3, "HOUR", 2)]),
        ([plain(("user", "x" * 60000))], {}, OK, [told(OK, 3, "HOUR", 2)])]),
]


@pytest.fixture(scope="module")
def server():
    with Server("--grpc", "127.0.0.1:0", rules=RULES) as one_server:
        yield one_server


@pytest.fixture
def channel(server):
    with grpc.insecure_channel(f"127.0.0.1:{server.port('grpc')}") as opened:
        yield opened


def over_grpc(server, descriptors, options):
    with grpc.insecure_channel(f"127.0.0.1:{server.port('grpc')}") as opened:
        answer = ask_with(opened)(request(options.get("domain", "shop"),
                                          *[each for each, _ in descriptors],
                                          hits=options.get("hits", 0)), timeout=20)
    return answer.code, [
        {"code": each.code, "limit": each.limit, "unit": each.unit, "remaining": each.remaining,
         "multiplier": each.multiplier} for each in answer.statuses]


def over_json(server, descriptors, options):
    body = {"domain": options.get("domain", "shop"),
            "descriptors": [each for _, each in descriptors]}
    if "hits" in options:
        body["hitsAddend"] = options["hits"]
    asked = urllib.request.Request(server.url("/json"), json.dumps(body).encode(),
                                   {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(asked, timeout=20) as answer:
            text = answer.read()
    except urllib.error.HTTPError as refused:
        assert refused.code == 429, refused.read()
        text = refused.read()
    answer, codes = json.loads(text), {"UNKNOWN": 0, "OK": OK, "OVER_LIMIT": OVER_LIMIT}
    statuses = []
    for each in answer["statuses"]:
        limit = each.get("currentLimit")
        statuses.append({
            "code": codes[each["code"]], "remaining": each.get("limitRemaining", 0),
            "limit": None if limit is None else limit.get("requestsPerUnit", 0),
            "unit": None if limit is None else limit.get("unit", "UNKNOWN"),
            "multiplier": 1 if limit is None else limit.get("unitMultiplier", 1)})
    return codes[answer["overallCode"]], statuses


@pytest.mark.parametrize("ask", [over_grpc, over_json], ids=["grpc", "json"])
@pytest.mark.parametrize("questions", [row for _, row in ROWS], ids=[name for name, _ in ROWS])
def test_each_feature_of_the_rules(ask, questions):
    with Server("--grpc", "127.0.0.1:0", rules=RULES) as own:
        for descriptors, options, code, statuses in questions:
            assert ask(own, descriptors, options) == (code, statuses)


def test_when_more_is_there(server, channel):
    """duration_until_reset: until `remaining` next grows; not where nothing is used."""
    ask = ask_with(channel)
    asked = descriptor(("half", "reset"))
    assert ask(request("shop", descriptor(("half", "reset"), hits=0)), timeout=20) \
        .statuses[0].reset is None
    answer = ask(request("shop", asked, hits=4), timeout=20)
    assert 0 < answer.statuses[0].reset <= 30 * 25 / 24
    denied = ask(request("shop", asked), timeout=20)
    assert denied.code == OVER_LIMIT and 0 < denied.statuses[0].reset <= 30 * 25 / 24
    never = ask(request("shop", asked, hits=5), timeout=20)
    assert never.code == OVER_LIMIT and never.statuses[0].reset is None


@pytest.mark.parametrize("message, status", [
    (request("", USER), grpc.StatusCode.INVALID_ARGUMENT),
    (request("shop"), grpc.StatusCode.INVALID_ARGUMENT),
    (request("shop", b""), grpc.StatusCode.INVALID_ARGUMENT),
    (request("shop", descriptor(("", "x"))), grpc.StatusCode.INVALID_ARGUMENT),
    (request("shop", descriptor(("user", "u"), override=(5, 0))), grpc.StatusCode.INVALID_ARGUMENT),
    (request("shop", descriptor(("user", "u"), override=(5, 99))),
     grpc.StatusCode.INVALID_ARGUMENT),
    (b"\xff\xff\xff", grpc.StatusCode.INVALID_ARGUMENT),
    (request("shop", USER)[:-1], grpc.StatusCode.INVALID_ARGUMENT),
    (request("shop", *[USER] * 100), grpc.StatusCode.INVALID_ARGUMENT),
    (request("shop", descriptor(("user", "x" * 70000))), grpc.StatusCode.INVALID_ARGUMENT),
], ids=["no domain", "no descriptors", "no entries", "empty key", "unit 0", "unit 99", "no message",
        "cut off", "too many", "too long"])
def test_what_cannot_be_meant_is_said_to_be_so(channel, message, status):
    with pytest.raises(grpc.RpcError) as refused:
        ask_with(channel)(message, timeout=20)
    assert refused.value.code() == status
    assert len(refused.value.details()) > 10
    # The connection goes on.
    assert ask_with(channel)(request("shop", descriptor(("user", "root"))), timeout=20).code == OK


def test_fields_that_nobody_knows_are_skipped(channel):
    extra = number(99, 5) + block(98, b"more")
    message = request("shop", descriptor(("user", "extra")) + extra) + extra
    assert ask_with(channel)(message, timeout=20).code == OK


def test_no_such_method(channel):
    call = channel.unary_unary("/envoy.service.ratelimit.v3.RateLimitService/Nothing",
                               request_serializer=bytes, response_deserializer=bytes)
    with pytest.raises(grpc.RpcError) as refused:
        call(b"", timeout=20)
    assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_gzip_is_answered_with_gzip(server):
    target = f"127.0.0.1:{server.port('grpc')}"
    with grpc.insecure_channel(target, compression=grpc.Compression.Gzip) as zipped:
        ask = ask_with(zipped)
        many = [descriptor(("half", f"gzip-{i}")) for i in range(16)]
        answer, call = ask.with_call(request("shop", *many), timeout=20)
        assert answer.codes == [OK] * 16
        assert dict(call.initial_metadata()).get("grpc-encoding") in ("gzip", None)


def test_two_threads_on_one_channel_take_the_limit_and_no_more(server, channel):
    """All or nothing, under many at once: the sibling of a refusal stays whole."""
    ask, codes = ask_with(channel), []
    both = request("shop", descriptor(("user", "race")), descriptor(("half", "race")))

    def run():
        for _ in range(20):
            codes.append(ask(both, timeout=20).code)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes.count(OK) == 3 and len(codes) == 80
    left = ask(request("shop", descriptor(("half", "race"), hits=0)), timeout=20)
    assert left.statuses[0].remaining == 1


def test_grpc_js(server, node):  # noqa: F811
    replies = json.loads(node("rls.js", f"127.0.0.1:{server.port('grpc')}"))
    assert replies["codes"] == [OK, OK, OK, OVER_LIMIT, OVER_LIMIT]
    assert sorted(replies["together"]) == [OK] * 4 + [OVER_LIMIT] * 196
    assert replies["empty"]["code"] == 3 and "domain" in replies["empty"]["details"]
    assert replies["late"]["code"] == 4


# ---- Health --------------------------------------------------------------------------------------

def check(channel, service="", method="Check"):
    call = channel.unary_unary(HEALTH + method, request_serializer=bytes,
                               response_deserializer=fields)
    return call(block(1, service) if service else b"", timeout=20)


@pytest.mark.parametrize("service", ["", "envoy.service.ratelimit.v3.RateLimitService",
                                     "ratelimit"])
def test_health(channel, service):
    assert one(check(channel, service), 1) == SERVING


def test_health_of_what_is_not_there(channel):
    with pytest.raises(grpc.RpcError) as refused:
        check(channel, "nobody")
    assert refused.value.code() == grpc.StatusCode.NOT_FOUND


def test_health_of_all(channel):
    services = [fields(each) for each in check(channel, method="List")[1]]
    assert {one(each, 1, b"").decode(): one(fields(one(each, 2)), 1) for each in services}[""] \
        == SERVING


def test_health_is_watched_until_the_server_drains():
    with Server("--grpc", "127.0.0.1:0", rules=RULES) as own:
        with grpc.insecure_channel(f"127.0.0.1:{own.port('grpc')}") as opened:
            watch = opened.unary_stream(HEALTH + "Watch", request_serializer=bytes,
                                        response_deserializer=fields)
            known, unknown = watch(b"", timeout=30), watch(block(1, "nobody"), timeout=30)
            assert one(next(known), 1) == SERVING
            assert one(next(unknown), 1) == SERVICE_UNKNOWN
            own.tell(15)
            assert one(next(known), 1) == NOT_SERVING
            known.cancel()
            unknown.cancel()
        assert own.wait() == 0


# ---- Faults --------------------------------------------------------------------------------------

def test_clients_that_vanish_in_the_middle(server, channel):
    """Cancelled calls and closed channels; the server goes on, and loses nobody's answer."""
    for turn in range(20):
        gone = grpc.insecure_channel(f"127.0.0.1:{server.port('grpc')}",
                                     options=[("grpc.use_local_subchannel_pool", 1)])
        calls = [ask_with(gone).future(request("shop", descriptor(("user", f"gone-{turn}"))),
                                       timeout=20) for _ in range(50)]
        for call in calls[::2]:
            call.cancel()
        gone.close()
    assert ask_with(channel)(request("shop", descriptor(("user", "root"))), timeout=20).code == OK


def test_a_thousand_calls_at_once_on_one_connection(channel):
    ask = ask_with(channel)
    calls = [ask.future(request("shop", descriptor(("half", "many"))), timeout=60)
             for _ in range(1000)]
    codes = [call.result().code for call in calls]
    assert codes.count(OK) == 4 and codes.count(OVER_LIMIT) == 996


def test_draining_answers_what_was_asked():
    """No call is lost, none answered twice: each is decided, or refused as unavailable."""
    with Server("--grpc", "127.0.0.1:0", rules=RULES) as own:
        with grpc.insecure_channel(f"127.0.0.1:{own.port('grpc')}") as opened:
            ask, stop, outcomes = ask_with(opened), threading.Event(), []

            def load():
                while not stop.is_set():
                    try:
                        outcomes.append(ask(request("shop", descriptor(("user", "root"))),
                                            timeout=20).code)
                    except grpc.RpcError as error:
                        outcomes.append(error.code())
                        time.sleep(0.01)  # it is gone: real time, so as not to spin

            threads = [threading.Thread(target=load) for _ in range(4)]
            for thread in threads:
                thread.start()
            while len(outcomes) < 200:
                time.sleep(0.01)
            own.tell(15)
            assert own.wait() == 0
            stop.set()
            for thread in threads:
                thread.join()
    assert set(outcomes) <= {OK, grpc.StatusCode.UNAVAILABLE}
    assert outcomes.count(OK) >= 200


def test_a_thousand_connections(server, channel):
    """Each says no more than that it speaks HTTP/2, and is answered with SETTINGS."""
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
    sockets = []
    try:
        for _ in range(1000):
            sockets.append(socket.create_connection(("127.0.0.1", server.port("grpc")), 20))
            sockets[-1].sendall(preface)
        for each in sockets:
            answer = each.recv(9, socket.MSG_WAITALL)
            assert len(answer) == 9 and answer[3] == 4
        assert ask_with(channel)(request("shop", USER), timeout=20).code in (OK, OVER_LIMIT)
    finally:
        for each in sockets:
            each.close()
