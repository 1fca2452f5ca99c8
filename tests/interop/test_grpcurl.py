# SPDX-License-Identifier: MIT
"""grpcurl, which knows no message of its own: all that it can ask, it has from reflection."""
import json
import subprocess

import pytest

from builds import INTEROP, go_program
from server import Server

RULES = """\
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 2, name: per-user}
"""
SERVICE = "envoy.service.ratelimit.v3.RateLimitService"
RESERVES = "kuadrant.service.ratelimit.v1.RateLimitService"
QUESTION = {"domain": "shop", "descriptors": [{"entries": [{"key": "user", "value": "ann"}]}]}


@pytest.fixture(scope="module")
def program():
    return go_program(INTEROP / "grpcurl", "grpcurl", "github.com/fullstorydev/grpcurl/cmd/grpcurl")


@pytest.fixture
def grpcurl(program):
    with Server("--grpc", "127.0.0.1:0", rules=RULES) as server:
        def run(*words, question=None, code=0):
            data = [] if question is None else ["-d", json.dumps(question)]
            done = subprocess.run(
                [program, "-plaintext", *data, f"127.0.0.1:{server.port('grpc')}", *words],
                capture_output=True, text=True, timeout=60)
            assert done.returncode == code, done.stderr
            return done.stdout if code == 0 else done.stderr
        yield run


def test_all_services_are_listed(grpcurl):
    assert grpcurl("list").split() == [
        SERVICE, "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection", RESERVES]


def test_messages_are_described(grpcurl):
    text = grpcurl("describe", "envoy.service.ratelimit.v3.RateLimitResponse.DescriptorStatus")
    assert ".google.protobuf.Duration duration_until_reset = 4;" in text
    text = grpcurl("describe", "envoy.extensions.common.ratelimit.v3.RateLimitDescriptor")
    assert "bool is_negative_hits = 4;" in text
    assert "not found" in grpcurl("describe", "no.such.Thing", code=1).lower()


def test_a_limit_is_asked_past(grpcurl):
    codes = []
    for _ in range(3):
        answer = json.loads(grpcurl(f"{SERVICE}/ShouldRateLimit", question=QUESTION))
        codes.append(answer["overallCode"])
    assert codes == ["OK", "OK", "OVER_LIMIT"]
    status = answer["statuses"][0]
    assert status["currentLimit"] == {"name": "per-user", "requestsPerUnit": 2, "unit": "HOUR"}
    assert float(status["durationUntilReset"].rstrip("s")) > 3590


def test_a_reservation_is_made_and_committed(grpcurl):
    assert "rpc Commit" in grpcurl("describe", RESERVES)
    held = json.loads(grpcurl(f"{RESERVES}/Reserve",
                              question={**QUESTION, "amount": "2", "ttl": "30s"}))
    assert held["code"] == "OK"
    assert json.loads(grpcurl(f"{RESERVES}/Reserve", question={**QUESTION, "amount": "1"})) \
        == {"code": "OVER_LIMIT"}
    done = {**QUESTION, "reservationId": held["reservationId"], "actualAmount": "1"}
    assert json.loads(grpcurl(f"{RESERVES}/Commit", question=done)) \
        == {"reservationReleased": True}
    assert "NotFound" in grpcurl(f"{RESERVES}/Commit", question=done, code=69)
    assert json.loads(grpcurl(f"{RESERVES}/CheckRateLimit", question=QUESTION))[
        "overallCode"] == "OK"
    grpcurl(f"{RESERVES}/Report", question=QUESTION)
    assert json.loads(grpcurl(f"{RESERVES}/CheckRateLimit", question=QUESTION))[
        "overallCode"] == "OVER_LIMIT"


def test_health_and_errors(grpcurl):
    assert json.loads(grpcurl("grpc.health.v1.Health/Check")) == {"status": "SERVING"}
    assert "InvalidArgument" in grpcurl(f"{SERVICE}/ShouldRateLimit", question={}, code=67)
