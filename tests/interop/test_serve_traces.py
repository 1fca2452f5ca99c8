# SPDX-License-Identifier: MIT
"""Traces of a running server: what arrives at a collector, and what a collector that is slow,
absent or hostile can do.
"""
import http.client
import json
import os
import socket
import ssl
import subprocess
import threading
import time

import grpc
import pytest

from collector import CLIENT, SERVER, Collector, GrpcCollector, reply
from measure import metric
from program import STINT
from redis_server import Redis
from rls_messages import descriptor, request
from rls_messages import PATH as RATE_LIMIT
from server import Server, free_port
from tls_authority import authority  # noqa: F401

RULES = """\
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 2, algorithm: fixed_window}
"""
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CONTEXT = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "a=1"}
NO_ENVIRONMENT = {name: "" for name in os.environ if name.startswith("OTEL_")}


def traced(url, *options, ratio=1, env=None, **others):
    where = ["--traces", url] if url else []
    return Server("--workers", 1, *where, *(["--traces-ratio", ratio] if ratio is not None else []),
                  *options, rules=RULES, env={**NO_ENVIRONMENT, **(env or {})}, **others)


@pytest.fixture(params=[Collector, GrpcCollector])
def collector(request):
    with request.param() as running:
        yield running


def take(server, user="ann", headers=None):
    """The status of a request over HTTP."""
    connection = http.client.HTTPConnection("127.0.0.1", server.http, timeout=20)
    body = {"domain": "edge", "descriptors": [{"entries": [{"key": "user", "value": user}]}]}
    connection.request("POST", "/v1/take", json.dumps(body),
                       {"Content-Type": "application/json", **(headers or {})})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


def counted(server):
    return {outcome: metric(server.http, "stint_trace_spans_total", outcome=outcome)
            for outcome in ("sent", "dropped", "refused", "lost")}


def wait_until(condition, seconds=20):
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.02)


# ---- What arrives ----

def test_each_protocol_has_its_spans(collector):
    with traced(collector.url, "--traces-attributes", "service.name=edge limiter",
                "--traces-attributes", "deployment.environment.name=test") as server:
        began = time.time_ns()
        assert [take(server, headers=CONTEXT) for _ in range(3)] == [200, 200, 429]
        with server.connect() as resp:
            assert resp.throttle("key", 2, 1, 60)[0] == 0
        with grpc.insecure_channel(f"127.0.0.1:{server.port('grpc')}") as channel:
            channel.unary_unary(RATE_LIMIT)(
                request("edge", descriptor(("user", "bob"))), timeout=20,
                metadata=list(CONTEXT.items()))
        first, _, denied, resp, call = collector.wait_for(5)
        wait_until(lambda: counted(server)["sent"] == 5)
        assert sum(counted(server).values()) == 5
    assert first.name == "POST /v1/take" and first.kind == SERVER
    assert {first.trace_id, denied.trace_id, call.trace_id} == {TRACE}
    assert {first.parent, denied.parent, call.parent} == {PARENT}
    assert first.state == call.state == "a=1" and resp.state == resp.parent == ""
    assert first.attributes == {
        "http.request.method": "POST", "http.route": "/v1/take",
        "http.response.status_code": 200, "stint.domain": "edge", "stint.rule": "user",
        "stint.outcome": "allow", "stint.limit": 2, "stint.remaining": 1}
    assert denied.attributes["stint.outcome"] == "deny" and not denied.has_failed
    assert denied.attributes["http.response.status_code"] == 429
    assert resp.name == "cl.throttle" and resp.attributes["rpc.system"] == "resp"
    assert call.name == RATE_LIMIT[1:] and call.attributes["rpc.grpc.status_code"] == 0
    assert call.attributes["rpc.method"] == "ShouldRateLimit"
    assert len({span.id for span in collector.spans}) == 5
    for span in collector.spans:
        assert began - 10**9 < span.begin <= span.end < time.time_ns() + 10**9
        assert span.resource["service.name"] == "edge limiter"
        assert span.resource["deployment.environment.name"] == "test"
        assert len(span.resource["service.instance.id"]) == 36
        assert span.resource["service.version"]
    assert {path for path, _ in collector.requests} == {collector.path}
    assert not any(b"ann" in body or b"bob" in body for body in collector.bodies)


def test_a_request_to_a_store_is_below_its_request(collector):
    with Redis() as redis, traced(collector.url, "--store", redis.url) as server:
        assert take(server) == 200
        store, whole = collector.wait_for(2)
        assert (store.name, store.kind) == ("take default", CLIENT)
        assert store.trace_id == whole.trace_id and store.parent == whole.id
        assert whole.begin <= store.begin <= store.end <= whole.end
        assert store.attributes["db.system.name"] == "redis"
        redis.kill()
        # Each failure is one of the connection, until requests are stopped without asking.
        wait_until(lambda: take(server, "eve") and any(
            span.has_failed and span.kind == CLIENT for span in collector.spans))


def test_only_a_share_is_traced(collector):
    with traced(collector.url, ratio="0.1") as server:
        with server.connect() as resp:
            for i in range(3000):
                resp.send("CL.THROTTLE", f"k{i}", 9, 9, 60)
            for _ in range(3000):
                resp.read()
        assert take(server, headers=CONTEXT) == 200
        assert take(server, headers={"traceparent": CONTEXT["traceparent"][:-1] + "0"}) == 200
    traced_by = [span.parent for span in collector.spans]
    assert traced_by.count(PARENT) == 1
    assert 180 < len(traced_by) < 430  # seven standard deviations below, eight above


@pytest.mark.parametrize("value", [
    "", "00", "00-" + "0" * 32 + "-" + PARENT + "-01", f"ff-{TRACE}-{PARENT}-01",
    f"00-{TRACE.upper()}-{PARENT}-01", "x" * 4000])
def test_a_wrong_context_begins_a_trace(collector, value):
    with traced(collector.url) as server:
        assert take(server, headers={"traceparent": value, "tracestate": "=," * 900}) == 200
    assert collector.spans[0].parent == "" and collector.spans[0].trace_id != TRACE


def test_texts_of_clients_cannot_spoil_a_batch(collector):
    with traced(collector.url) as server:
        with grpc.insecure_channel(f"127.0.0.1:{server.port('grpc')}") as channel:
            call = channel.unary_unary(RATE_LIMIT)
            domain = b"\xff\xfe" + b"x" * 1000
            call(request(domain, descriptor(("user", "bob"))), timeout=20)
        assert take(server) == 200
        first, _ = collector.wait_for(2)
    assert first.attributes["stint.domain"].startswith("\ufffd\ufffdxxx")


def test_the_last_spans_are_sent_at_the_end(collector):
    with traced(collector.url) as server:
        for _ in range(100):
            take(server)
        assert server.stop() == 0
        assert len(collector.spans) == 100


# ---- TLS and fields ----

def test_collectors_may_have_tls_and_want_fields(authority, tmp_path):  # noqa: F811
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.sign("collector"))
    context.load_verify_locations(authority.certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    certificate, key = authority.sign("limiter")
    with Collector(context=context) as collector:
        options = ["--traces-ca-file", authority.certificate, "--traces-cert-file", certificate,
                   "--traces-key-file", key, "--traces-headers", "Authorization=Bearer s3cret"]
        with traced(f"https://localhost:{collector.port}/tenant/x", *options) as server:
            with open(f"/proc/{server.pid}/cmdline", "rb") as line:
                assert b"s3cret" not in line.read()
            assert take(server) == 200
            collector.wait_for(1)
        path, headers = collector.requests[0]
        assert path == "/tenant/x" and headers["authorization"] == "Bearer s3cret"
        assert headers["content-type"] == "application/x-protobuf"
        with traced(f"https://localhost:{collector.port}") as server:
            server.wait_for("traces_fail")
            assert "not trusted" in server.log or "certificate" in server.log
            assert take(server) == 200


def test_collectors_over_grpc_may_have_tls_and_want_fields(authority):  # noqa: F811
    certificate, key = authority.sign("collector")
    with open(key, "rb") as one, open(certificate, "rb") as other, \
            open(authority.certificate, "rb") as root:
        credentials = grpc.ssl_server_credentials(
            [(one.read(), other.read())], root_certificates=root.read(), require_client_auth=True)
    certificate, key = authority.sign("limiter")
    with GrpcCollector(credentials=credentials) as collector:
        url = f"grpcs://localhost:{collector.port}"
        with traced(url, "--traces-ca-file", authority.certificate, "--traces-cert-file",
                    certificate, "--traces-key-file", key, "--traces-headers",
                    "API-Key=s3cret") as server:
            assert take(server) == 200
            collector.wait_for(1)
        assert collector.requests[0][1]["api-key"] == "s3cret"
        with traced(url) as server:
            server.wait_for("traces_fail")
            assert take(server) == 200


# ---- The environment ----

def settings(*options, env=None):
    done = subprocess.run([STINT, "serve", "--print-config", *options], capture_output=True,
                          text=True, check=False, env={**os.environ, **NO_ENVIRONMENT,
                                                       **(env or {})})
    found = dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line
                 and not line.startswith("#"))
    return found if done.returncode == 0 else done.stderr


ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318/"}
COMPAT = ["--compat", "envoyproxy", "--insecure"]


@pytest.mark.parametrize("options, env, expected", [
    ([], {}, {"traces": "null", "traces_ratio": "0.01", "traces_follow": "true"}),
    ([], ENDPOINT, {"traces": '"http://c:4318/v1/traces"'}),
    ([], {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://t:1", **ENDPOINT},
     {"traces": '"http://t:1/"'}),
    ([], {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://t:1/x"}, {"traces": '"https://t:1/x"'}),
    ([], {**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, {"traces": '"grpc://c:4318"'}),
    ([], {**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
          "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"},
     {"traces": '"http://c:4318/v1/traces"'}),
    ([], {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://t/x",
          "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, {"traces": '"grpcs://t"'}),
    (["--traces", "http://mine"], {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
     {"traces": '"http://mine"'}),
    ([], {**ENDPOINT, "OTEL_SDK_DISABLED": "true"}, {"traces": '"off"'}),
    ([], {**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}, {"traces": '"off"'}),
    (["--traces", "off"], ENDPOINT, {"traces": '"off"'}),
    (["--traces", "http://mine"], ENDPOINT, {"traces": '"http://mine"'}),
    ([], {**ENDPOINT, "STINT_TRACES": "http://mine"}, {"traces": '"http://mine"'}),
    (["--traces", "http://mine"], {"OTEL_SERVICE_NAME": "a b"},
     {"traces_attributes": '["service.name=a b"]'}),
    ([], {**ENDPOINT, "OTEL_RESOURCE_ATTRIBUTES": "a=1, b=x%2Cy%25,service.name=other",
          "OTEL_SERVICE_NAME": "n"},
     {"traces_attributes": '["service.name=n", "a=1", "b=x,y%", "service.name=other"]'}),
    ([], {**ENDPOINT, "OTEL_EXPORTER_OTLP_HEADERS": "api-key=s3cret,b=c"},
     {"traces_headers": '["api-key=***", "b=***"]'}),
    ([], {**ENDPOINT, "OTEL_EXPORTER_OTLP_TIMEOUT": "2500"}, {"traces_timeout": "2s500ms"}),
    ([], {**ENDPOINT, "OTEL_TRACES_SAMPLER": "always_on"},
     {"traces_ratio": "1", "traces_follow": "false"}),
    ([], {**ENDPOINT, "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
          "OTEL_TRACES_SAMPLER_ARG": "0.25"}, {"traces_ratio": "0.25", "traces_follow": "true"}),
    ([], {**ENDPOINT, "OTEL_EXPORTER_OTLP_CERTIFICATE": "/ca", "OTEL_EXPORTER_OTLP_CLIENT_KEY":
          "/k", "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": "/c"},
     {"traces_ca_file": '"/ca"', "traces_key_file": '"/k"', "traces_cert_file": '"/c"'}),
    (COMPAT, ENDPOINT, {"traces": '"off"'}),
    (COMPAT, {"TRACING_ENABLED": "true"},
     {"traces": '"http://localhost:4318"', "traces_ratio": "1",
      "traces_attributes": '["service.name=RateLimit"]'}),
    (COMPAT, {"TRACING_ENABLED": "true", "TRACING_EXPORTER_PROTOCOL": "grpc"},
     {"traces": '"grpc://localhost:4317"'}),
    (COMPAT, {"TRACING_ENABLED": "true", "TRACING_EXPORTER_PROTOCOL": "grpc",
              "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317"}, {"traces": '"grpc://c:4317"'}),
    (COMPAT, {"TRACING_ENABLED": "true", "TRACING_SAMPLING_RATE": "0.1",
              "TRACING_SERVICE_NAME": "rl", "TRACING_SERVICE_NAMESPACE": "ns",
              "TRACING_SERVICE_INSTANCE_ID": "pod-1", "TRACING_EXPORTER_PROTOCOL": "http",
              "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_TRACES_SAMPLER": "always_on",
              **ENDPOINT},
     {"traces": '"http://c:4318/v1/traces"', "traces_ratio": "0.1",
      "traces_attributes":
      '["service.name=rl", "service.namespace=ns", "service.instance.id=pod-1"]'}),
])
def test_the_environment(options, env, expected):
    found = settings(*options, env=env)
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize("options, env, message", [
    ([], {**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"},
     "OTEL_EXPORTER_OTLP_PROTOCOL: expected http/protobuf or grpc"),
    ([], {**ENDPOINT, "OTEL_TRACES_SAMPLER": "jaeger_remote"}, "OTEL_TRACES_SAMPLER: expected"),
    ([], {**ENDPOINT, "OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "2"},
     "OTEL_TRACES_SAMPLER: expected a share from 0 to 1"),
    ([], {**ENDPOINT, "OTEL_EXPORTER_OTLP_TIMEOUT": "10s"}, "OTEL_EXPORTER_OTLP_TIMEOUT: expected"),
    ([], {"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER: expected otlp or none"),
    (COMPAT, {"TRACING_ENABLED": "maybe"}, "TRACING_ENABLED: expected true or false"),
    (COMPAT, {"TRACING_ENABLED": "true", "TRACING_EXPORTER_PROTOCOL": "zipkin"},
     "TRACING_EXPORTER_PROTOCOL: expected http or grpc"),
    (COMPAT, {"TRACING_ENABLED": "true", "TRACING_SAMPLING_RATE": "1.5"},
     "TRACING_SAMPLING_RATE: expected a share from 0 to 1"),
])
def test_a_wrong_environment(options, env, message):
    assert message in settings(*options, env=env)


@pytest.mark.parametrize("options, message", [
    (["--traces", "c:4318"], "the scheme is http, https, grpc or grpcs"),
    (["--traces", "http://u:s3cret@c"], "a password goes into traces_headers"),
    (["--traces", "http://c", "--traces-headers", "s3cret"], "traces_headers: expected NAME=VALUE"),
    (["--traces", "http://c", "--traces-headers", "a b=c"], "traces_headers: expected NAME=VALUE"),
    (["--traces", "http://c", "--traces-headers", "a=s3cret\r\nb: c"],
     "traces_headers: expected NAME=VALUE"),
    (["--traces", "http://c", "--traces-headers", "Content-Type=s3cret"],
     "traces_headers: expected NAME=VALUE"),
    (["--traces", "grpc://c/v1/traces"], "gRPC has no path"),
    (["--traces", "http://c", "--traces-attributes", "x"],
     "traces_attributes: expected NAME=VALUE"),
    (["--traces", "https://c", "--traces-ca-file", "/none"], "/none"),
    (["--traces", "http://c", "--traces-key-file", "/k"], "traces_key_file goes with"),
])
def test_wrong_settings(options, message):
    with Server(*options, env=NO_ENVIRONMENT, wait=False) as server:
        assert server.wait() == 1
        assert message in server.log and "s3cret" not in server.log
        server.process.returncode = 0


# ---- Collectors that fail ----

def test_without_a_collector_decisions_go_on(collector):
    port = free_port()
    with traced(f"http://127.0.0.1:{port}") as server:
        server.wait_for("traces_fail")
        for _ in range(50):
            take(server)
        assert counted(server)["sent"] == 0
        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began < 5
        assert server.log.count("traces_fail") == 1


def test_a_full_ring_drops_and_decisions_go_on():
    n = 6000
    with traced(f"http://127.0.0.1:{free_port()}") as server:
        with server.connect() as resp:
            for _ in range(n):
                resp.send("CL.THROTTLE", "key", n, 1, 60)
            assert [resp.read()[0] for _ in range(n)] == [0] * n
        dropped = counted(server)["dropped"]
        assert 0 < dropped < n - 1000


def test_a_busy_collector_is_asked_again():
    def answer(handler, refused=[]):
        refused.append(handler)
        return reply(handler, 503, Retry_After="1") if len(refused) < 2 else reply(handler)

    with Collector(answer) as collector, traced(collector.url) as server:
        take(server)
        assert len(collector.wait_for(1)) == 1
        wait_until(lambda: counted(server)["sent"] == 1)
        server.wait_for("status 503")
        server.wait_for("traces_sent")


def test_a_busy_collector_is_asked_again_over_grpc():
    def answer(context, refused=[]):
        refused.append(context)
        if len(refused) < 2:
            context.abort(grpc.StatusCode.UNAVAILABLE, "not now")
        return b""

    with GrpcCollector(answer) as collector, traced(collector.url) as server:
        take(server)
        assert len(collector.wait_for(1)) == 1
        wait_until(lambda: counted(server)["sent"] == 1)
        assert 'it answers UNAVAILABLE \\"not now\\"' in server.log
        server.wait_for("traces_sent")


def test_what_a_collector_refuses_over_grpc_is_not_sent_again():
    def answer(context):
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no")

    with GrpcCollector(answer) as collector, traced(collector.url) as server:
        take(server)
        wait_until(lambda: counted(server)["refused"] == 1)
        time.sleep(1.2)
        assert len(collector.requests) == 1
        assert "it answers INVALID_ARGUMENT" in server.log


@pytest.mark.parametrize("status, body", [(400, b""), (404, b"no"), (413, b"")])
def test_what_a_collector_refuses_is_not_sent_again(status, body):
    with Collector(lambda handler: reply(handler, status, body)) as collector, \
            traced(collector.url) as server:
        take(server)
        wait_until(lambda: counted(server)["refused"] == 1)
        time.sleep(1.2)
        assert len(collector.requests) == 1
        server.wait_for(f"status {status}")


PARTIAL = b"\x0a\x08\x08\x01\x12\x04full"


@pytest.mark.parametrize("kind, answer", [
    (Collector, lambda handler: reply(handler, 200, PARTIAL)),
    (GrpcCollector, lambda context: PARTIAL)])
def test_a_collector_may_refuse_some(kind, answer):
    with kind(answer) as collector, traced(collector.url) as server:
        take(server)
        wait_until(lambda: counted(server)["refused"] == 1)
        server.wait_for("it refuses spans: full")


def endless(handler):
    handler.send_response(200)
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(b"x" * 65536)
    except OSError:
        return 0


def silent(handler):
    time.sleep(30)
    return 0


def garbage(handler):
    handler.wfile.write(b"\0" * 100000)
    handler.close_connection = True
    return 0


@pytest.mark.parametrize("scheme", ["http", "grpc"])
@pytest.mark.parametrize("answer", [endless, silent, garbage])
def test_a_hostile_collector_is_bounded(answer, scheme):
    with Collector(answer) as collector, \
            traced(f"{scheme}://127.0.0.1:{collector.port}", "--traces-timeout", "1s") as server:
        assert take(server) == 200
        server.wait_for("traces_fail")
        assert [take(server, "bob") for _ in range(3)] == [200, 200, 429]
        with open(f"/proc/{server.pid}/status", encoding="ascii") as status:
            resident = next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
        assert resident < 200_000
        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began < 8


def test_a_collector_that_accepts_and_closes_is_not_hurried():
    accepted = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        def close_all():
            try:
                while True:
                    connection, _ = listening.accept()
                    accepted.append(connection)
                    connection.close()
            except OSError:
                pass

        threading.Thread(target=close_all, daemon=True).start()
        with traced(f"http://127.0.0.1:{listening.getsockname()[1]}") as server:
            take(server)
            time.sleep(3)
            assert take(server) == 200
        listening.shutdown(socket.SHUT_RDWR)
    assert 1 <= len(accepted) < 12


def test_a_connection_that_was_idle_may_be_closed(collector):
    with traced(collector.url) as server:
        take(server)
        wait_until(lambda: counted(server)["sent"] == 1)
        collector.close_idle()
        time.sleep(0.2)
        take(server)
        wait_until(lambda: counted(server)["sent"] == 2)
        assert "traces_fail" not in server.log
