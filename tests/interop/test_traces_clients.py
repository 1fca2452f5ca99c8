# SPDX-License-Identifier: MIT
"""Traces beside programs of other makes: OpenTelemetry's own messages read what the server sends,
and Envoy's trace goes on in the server.
"""
import base64
import json
import subprocess
import time

from builds import INTEROP, venv
from collector import SERVER, Collector
from proxies import application, envoy  # noqa: F401 (a fixture)
from redis_server import Redis
from test_envoy import LIMIT, RULES, wait_for_stint
from test_serve_traces import CONTEXT, NO_ENVIRONMENT, PARENT, TRACE, take, traced
from server import Server

TRACING = """\
                stat_prefix: web
                tracing:
                  provider:
                    name: envoy.tracers.opentelemetry
                    typed_config:
                      "@type": type.googleapis.com/envoy.config.trace.v3.OpenTelemetryConfig
                      service_name: front
                      http_service:
                        http_uri:
                          uri: http://127.0.0.1:{port}/v1/traces
                          cluster: collector
                          timeout: 5s
"""
CLUSTER = """\
  clusters:
    - name: collector
      type: STATIC
      load_assignment:
        cluster_name: collector
        endpoints:
          - lb_endpoints:
              - endpoint:
                  address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
"""


def hexadecimal(text):
    return base64.b64decode(text).hex()


def test_opentelemetry_reads_the_spans():
    python = venv(INTEROP / "otlp") / "bin/python"
    with Collector() as collector, Redis() as redis, \
            traced(collector.url, "--store", redis.url) as server:
        assert take(server, headers=CONTEXT) == 200
        collector.wait_for(2)
        (body,) = collector.bodies
    told = subprocess.run([python, INTEROP / "otlp/spans.py"], input=body, capture_output=True,
                          check=True, timeout=60).stdout
    (of_resource,) = json.loads(told)["resourceSpans"]
    (of_scope,) = of_resource["scopeSpans"]
    assert of_scope["scope"]["name"] == "stint"
    store, whole = of_scope["spans"]
    assert hexadecimal(whole["traceId"]) == hexadecimal(store["traceId"]) == TRACE
    assert hexadecimal(whole["parentSpanId"]) == PARENT and whole["traceState"] == "a=1"
    assert store["parentSpanId"] == whole["spanId"]
    assert (whole["kind"], store["kind"]) == ("SPAN_KIND_SERVER", "SPAN_KIND_CLIENT")
    assert (whole["flags"], store["flags"]) == (0x301, 0x101)
    assert int(whole["startTimeUnixNano"]) <= int(store["startTimeUnixNano"])
    texts = {each["key"]: each["value"] for each in whole["attributes"]}
    assert texts["http.response.status_code"] == {"intValue": "200"}
    assert texts["stint.outcome"] == {"stringValue": "allow"}


def test_envoys_trace_goes_on(application, tmp_path):  # noqa: F811
    with Collector() as collector, \
            Server("--traces", collector.url, "--traces-ratio", "0", rules=RULES.format(
                limit=LIMIT), env=NO_ENVIRONMENT) as server:
        edits = [("                stat_prefix: web\n", TRACING.format(port=collector.port)),
                 ("  clusters:\n", CLUSTER.format(port=collector.port))]
        with envoy(tmp_path, [server.port("grpc")], application, replace=edits) as front:
            wait_for_stint(front)
            ends, pairs = time.monotonic() + 30, []
            while not pairs:
                assert time.monotonic() < ends, [span.name for span in collector.spans]
                front.ask("/page")
                spans = list(collector.spans)
                fronts = {span.id: span for span in spans
                          if span.resource["service.name"] == "front"}
                pairs = [(span, fronts[span.parent]) for span in spans
                         if span.resource["service.name"] == "stint" and span.parent in fronts]
                time.sleep(0.2)
    for ours, theirs in pairs:
        assert ours.trace_id == theirs.trace_id and ours.kind == SERVER
        assert ours.attributes["rpc.method"] == "ShouldRateLimit"
        assert ours.attributes["stint.domain"] == "edge"
