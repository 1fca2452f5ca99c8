# SPDX-License-Identifier: MIT
"""`stint rls` against a gRPC server of another make, whose answers are known: grpcio's."""
import json
import socket
import subprocess
import time
from concurrent import futures

import grpc
import pytest

from program import STINT
from rls_messages import PATH, block, fields, number, one

ASK = ["--domain", "shop", "--descriptor", "user=ann,path=/a\\,b"]


def stint(*words):
    return subprocess.run([STINT, *map(str, words)], capture_output=True, text=True, timeout=120)


class Service(grpc.GenericRpcHandler):
    """Answers with what it is told to, and keeps what it was asked."""

    def __init__(self):
        self.asked, self.metadata, self.answer, self.status = [], [], number(1, 1), None
        self.health, self.delay = 1, 0

    def service(self, details):
        if details.method == PATH:
            return grpc.unary_unary_rpc_method_handler(self.should_rate_limit)
        if details.method == "/grpc.health.v1.Health/Check":
            return grpc.unary_unary_rpc_method_handler(self.check)
        return None

    def should_rate_limit(self, message, context):
        self.asked.append(message)
        self.metadata.append(dict(context.invocation_metadata()))
        time.sleep(self.delay)
        if self.status is not None:
            context.abort(*self.status)
        return self.answer

    def check(self, message, _):
        self.asked.append(message)
        return number(1, self.health)


@pytest.fixture
def service():
    made = Service()
    server = grpc.server(futures.ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers((made,))
    made.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield made
    server.stop(0).wait()


def status(code, left, limit=None, unit=None, name="", multiplier=None, reset=None):
    out = number(1, code)
    if limit is not None:
        told = number(1, limit) + number(2, unit) + (block(3, name) if name else b"")
        out += block(2, told + (block(4, number(1, multiplier)) if multiplier else b""))
    out += number(3, left)
    if reset is not None:
        seconds, nanos = reset
        out += block(4, number(1, seconds) + number(2, nanos))
    return block(2, out)


def test_a_question_is_what_envoy_sends(service):
    done = stint("rls", "ask", *ASK, "--descriptor", "user=bob", service.address)
    assert (done.returncode, done.stdout, done.stderr) == (0, "OK\n", "")
    asked = fields(service.asked[0])
    assert asked[1] == [b"shop"] and set(asked) == {1, 2}
    first, second = [[(one(fields(each), 1), one(fields(each), 2)) for each in fields(every)[1]]
                     for every in asked[2]]
    assert first == [(b"user", b"ann"), (b"path", b"/a,b")] and second == [(b"user", b"bob")]


@pytest.mark.parametrize("hits", [0, 1, 7])
def test_hits_are_the_descriptors(service, hits):
    stint("rls", "ask", *ASK, "--hits", hits, "--refund", service.address)
    descriptor = fields(fields(service.asked[0])[2][0])
    assert one(fields(one(descriptor, 3, b"")), 1) == hits and one(descriptor, 4) == 1


def test_limits_are_told(service):
    service.answer = number(1, 2) + status(2, 0, 3, 3, "per-user", reset=(12, 500000000)) \
        + status(1, 2**32 - 1) + status(1, 0)
    done = stint("rls", "ask", *ASK, *["--descriptor", "user=bob"] * 2, service.address)
    assert done.returncode == 3
    assert done.stdout.splitlines() == [
        "OVER_LIMIT",
        "  user=ann,path=/a,b: OVER_LIMIT, 0 left of 3 per HOUR, per-user, more in 12 s 500 ms",
        "  user=bob: OK, unlimited",
        "  user=bob: OK, no limit: no rule of the domain matches, or the domain has no rules"]
    service.answer = number(1, 1) + status(1, 3, 4, 2, multiplier=5) \
        + block(3, block(1, "x-a") + block(2, "b"))
    done = stint("rls", "ask", *ASK, "--json", service.address)
    assert json.loads(done.stdout) == {
        "overallCode": "OK",
        "statuses": [{"code": "OK", "limitRemaining": 3, "currentLimit": {
            "name": "", "requestsPerUnit": 4, "unit": "MINUTE", "unitMultiplier": 5}}],
        "responseHeadersToAdd": [{"key": "x-a", "value": "b"}]}


def test_an_error_is_told_by_its_name(service):
    service.status = (grpc.StatusCode.INVALID_ARGUMENT, "näh: 100 %")
    done = stint("rls", "ask", *ASK, service.address)
    assert done.returncode == 1 and "INVALID_ARGUMENT: näh: 100 %" in done.stderr


def test_what_is_no_answer(service):
    service.answer = b"\xff\xff"
    done = stint("rls", "ask", *ASK, service.address)
    assert done.returncode == 1 and "no RateLimitResponse" in done.stderr


def test_no_answer_in_time(service):
    service.delay = 1
    done = stint("rls", "ask", *ASK, "--timeout", "100ms", service.address)
    assert done.returncode == 1
    assert "no answer came in time" in done.stderr or "DEADLINE_EXCEEDED" in done.stderr


def test_nobody_there():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        done = stint("rls", "ask", *ASK, f"127.0.0.1:{closed.getsockname()[1]}")
    assert done.returncode == 1 and "refused" in done.stderr


def test_who_speaks_something_else():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with futures.ThreadPoolExecutor(1) as pool:
            said = pool.submit(stint, "rls", "ask", *ASK, f"127.0.0.1:{other.getsockname()[1]}")
            peer, _ = other.accept()
            peer.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n" * 3)
            done = said.result()
            peer.close()
    assert done.returncode == 1 and "not HTTP/2" in done.stderr


def test_a_token_is_shown_to_this_machine_alone(service, tmp_path):
    token = tmp_path / "token"
    token.write_text("s3cret-s3cret\nmore\n")
    assert stint("rls", "ask", *ASK, "--token-file", token, service.address).returncode == 0
    assert service.metadata[0]["authorization"] == "Bearer s3cret-s3cret"
    # An address that no host has: what matters is that nothing is sent there.
    done = stint("rls", "ask", *ASK, "--token-file", token, "--timeout", "100ms", "192.0.2.1:8081")
    assert done.returncode == 1 and "expected --tls" in done.stderr


@pytest.mark.parametrize("health, code, word", [(1, 0, "SERVING"), (2, 3, "NOT_SERVING")])
def test_health(service, health, code, word):
    service.health = health
    done = stint("rls", "health", "--service", "ratelimit", service.address)
    assert (done.returncode, done.stdout) == (code, word + "\n")
    assert fields(service.asked[0]) == {1: [b"ratelimit"]}


def test_a_load_asks_as_often_as_was_said(service):
    done = stint("rls", "load", "--domain", "shop", "--descriptor", "user=u{}x", "--rate", 200,
                 "--duration", "500ms", "--keys", 10, "--connections", 2, "--json", service.address)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["sent"] == told["ok"] == len(service.asked) == 100 and told["unanswered"] == 0
    assert told["seconds"] > 0.45
    latency = told["latency_ns"]
    assert 0 < latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["max"]
    values = {one(fields(fields(fields(each)[2][0])[1][0]), 2) for each in service.asked}
    assert values <= {f"u{i}x".encode() for i in range(10)} and len(values) > 5


def test_a_load_tells_of_errors(service):
    service.status = (grpc.StatusCode.UNAVAILABLE, "not now")
    done = stint("rls", "load", *ASK, "--rate", 100, "--duration", "100ms", service.address)
    assert done.returncode == 1 and "UNAVAILABLE 10" in done.stdout and "not now" in done.stderr


@pytest.mark.parametrize("words, says", [
    (["ask"], "--domain"),
    (["ask", "--domain", "d"], "--descriptor"),
    (["ask", "--domain", "d", "--descriptor", "x"], "NAME=VALUE"),
    (["ask", *ASK, "a:1", "b:2"], "one SERVER"),
    (["ask", *ASK, "--ca-file", "x"], "--tls"),
    (["ask", *ASK, "nowhere"], "HOST:PORT"),
    (["load", *ASK, "--rate", "0"], "--rate"),
    (["halth"], "health"),
])
def test_bad_usage(words, says):
    done = stint("rls", *words)
    assert done.returncode == 2 and says in done.stderr
