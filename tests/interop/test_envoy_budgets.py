# SPDX-License-Identifier: MIT
"""Budgets behind Envoy itself: a request is checked with hits of 0, and what it has cost is charged
when its stream is done. A Lua filter stands for the model that counts tokens.

Also the routes for token quotas of envoyproxy/ratelimit's example: one service, and two of which
each request goes to one that has something left.
"""
import http.server
import json
import re
import threading
import time
import urllib.request

import pytest

from proxies import Proxy, find_envoy
from redis_server import until
from server import Server, free_port

TYPES = "type.googleapis.com/envoy.extensions.filters."
LIMIT = 1000
PERIOD_S = 5
ALGORITHMS = ["window", "fixed_window"]
# A budget of a year, so that no edge of a window falls into a test; services have a short one.
RULES = "domain: ai\ndescriptors:\n" + "".join(f"""\
  - {{key: algorithm, value: {name}, descriptors: [{{key: user, rate_limit: {{
      unit: year, calendar: fixed, requests_per_unit: {LIMIT}, algorithm: {name}}}}}]}}
""" for name in ALGORITHMS) + "".join(f"""\
  - key: {kind}
    value: {kind}_{n}
    quota_mode: true
    rate_limit: {{period: {PERIOD_S}s, requests_per_unit: {n}}}
    metadata: {{service_with_quota: {{name: {kind}_{n}}}}}
""" for kind in ("alone", "service") for n in (1, 2))

# What the model says of itself, where Envoy's budget finds it.
LUA = """
function envoy_on_response(handle)
  local used = handle:headers():get("x-tokens")
  if used then
    handle:streamInfo():dynamicMetadata():set("model", "tokens", tonumber(used))
  end
end
"""


class Model(http.server.BaseHTTPRequestHandler):
    """/…/N has cost N tokens. Says which service it is."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = self.server.name.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        if (tokens := self.path.rpartition("/")[2]).isdigit():
            self.send_header("x-tokens", tokens)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def model(name):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
    server.name = name
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


# ---- Envoy's configuration -----------------------------------------------------------------------

def endpoint(port, **more):
    return {"endpoint": {"address": {"socket_address": {"address": "127.0.0.1",
                                                        "port_value": port}}}, **more}


def locality(name, port):
    return {"locality": {"region": name},
            "metadata": {"filter_metadata": {"budget.locality": {"name": name}}},
            "lb_endpoints": [endpoint(port, metadata={
                "filter_metadata": {"envoy.lb": {"service": name}}})]}


def limits(*each):
    """(actions, hits, when the stream is done) of a route."""
    kind = TYPES + "http.ratelimit.v3.RateLimitPerRoute"
    return {"envoy.filters.http.ratelimit": {"@type": kind, "rate_limits": [
        {"actions": actions, "hits_addend": hits, "apply_on_stream_done": done}
        for actions, hits, done in each]}}


def route(prefix, cluster, *each):
    return {"match": {"prefix": prefix}, "route": {"cluster": cluster},
            "typed_per_filter_config": limits(*each)}


def field(name):
    return {"request_headers": {"header_name": f"x-{name}", "descriptor_key": name}}


def fixed(key, value):
    return [{"generic_key": {"descriptor_key": key, "descriptor_value": value}}]


NONE, ONE = {"number": 0}, {"number": 1}
TOKENS = {"format": "%DYNAMIC_METADATA(model:tokens)%"}
BUDGET = [field("algorithm"), field("user")]
CHOSEN = [{"metadata": {"descriptor_key": "service", "source": "CLUSTER_LOCALITY_ENTRY",
                        "metadata_key": {"key": "budget.locality", "path": [{"key": "name"}]}}}]
ROUTES = [
    route("/model/", "model", (BUDGET, NONE, False), (BUDGET, TOKENS, True)),
    route("/free/", "model", (BUDGET, NONE, False)),
    route("/alone", "model", (fixed("alone", "alone_2"), NONE, False),
          (fixed("alone", "alone_2"), ONE, True)),
    route("/services", "services", (fixed("service", "service_1"), NONE, False),
          (fixed("service", "service_2"), NONE, False), (CHOSEN, ONE, True)),
]
SERVICE = "%DYNAMIC_METADATA(envoy.filters.http.ratelimit:metadata:service_with_quota:name)%"


def filters():
    def http_filter(name, kind, **config):
        return {"name": f"envoy.filters.http.{name}",
                "typed_config": {"@type": TYPES + f"http.{kind}", **config}}

    return [
        http_filter("ratelimit", "ratelimit.v3.RateLimit", domain="ai", timeout="5s",
                    failure_mode_deny=True, rate_limit_service={
                        "transport_api_version": "V3",
                        "grpc_service": {"envoy_grpc": {"cluster_name": "stint"},
                                         "timeout": "5s"}}),
        http_filter("header_mutation", "header_mutation.v3.HeaderMutation", mutations={
            "request_mutations": [{"append": {"header": {"key": "x-service", "value": SERVICE},
                                              "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}}]}),
        http_filter("header_to_metadata", "header_to_metadata.v3.Config", request_rules=[
            {"header": "x-service", "on_header_present": {
                "metadata_namespace": "envoy.lb", "key": "service", "type": "STRING"}}]),
        http_filter("lua", "lua.v3.Lua", default_source_code={"inline_string": LUA}),
        http_filter("router", "router.v3.Router"),
    ]


def configuration(port, stint, models):
    def cluster(name, endpoints, **more):
        return {"name": name, "type": "STATIC", "connect_timeout": "5s",
                "load_assignment": {"cluster_name": name, "endpoints": endpoints}, **more}

    manager = TYPES + "network.http_connection_manager.v3.HttpConnectionManager"
    options = "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
    return {"static_resources": {
        "listeners": [{
            "name": "web",
            "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
            "filter_chains": [{"filters": [{
                "name": "envoy.filters.network.http_connection_manager",
                "typed_config": {"@type": manager, "stat_prefix": "web", "route_config": {
                    "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": ROUTES}]},
                    "http_filters": filters()}}]}]}],
        "clusters": [
            cluster("stint", [{"lb_endpoints": [endpoint(stint)]}],
                    typed_extension_protocol_options={
                        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                            "@type": options,
                            "explicit_http_config": {"http2_protocol_options": {}}}}),
            cluster("model", [{"lb_endpoints": [endpoint(models[0].server_address[1])]}]),
            cluster("services", [locality(one.name, one.server_address[1]) for one in models],
                    lb_subset_config={"fallback_policy": "ANY_ENDPOINT",
                                      "subset_selectors": [{"keys": ["service"]}]}),
        ]}}


class Behind:
    """A server that goes by envoyproxy/ratelimit's habits, and Envoy before it and two models."""

    def __init__(self, folder, *options, rules=RULES):
        self.models = [model("service_1"), model("service_2")]
        self.server = Server("--compat", "envoyproxy", "--grpc-metadata", *options, rules=rules)
        port = free_port()
        config = folder / "envoy.json"
        config.write_text(json.dumps(configuration(port, self.server.port("grpc"), self.models)))
        self.front = Proxy([find_envoy(), "-c", config, "--log-level", "warn", "--concurrency", "1",
                            "--disable-hot-restart"], port, folder / "envoy.log")

    def left(self, **entries):
        asked = {"domain": "ai", "cost": 0, "descriptors": [
            {"entries": [{"key": key, "value": value} for key, value in entries.items()]}]}
        return self.server.post("/v1/peek", asked)[1]["remaining"]

    def ask(self, path, **fields):
        status, _, text = self.front.ask(path, headers={f"x-{key}": value
                                                        for key, value in fields.items()})
        return status, text

    def stop(self):
        self.front.__exit__()
        self.server.__exit__(None)
        for each in self.models:
            each.shutdown()
            each.server_close()


@pytest.fixture(scope="module")
def behind(tmp_path_factory):
    both = Behind(tmp_path_factory.mktemp("envoy"))
    yield both
    both.stop()


# ---- Tokens --------------------------------------------------------------------------------------

COSTS = {  # of requests in turn: those that pass, each behind a check
    "it is used up to the unit": [137, 411, 99, 352, 1],
    "the last one overdraws it": [700, 700],
    "one overdraws it by all that there is": [5000],
    "what costs nothing is nothing": [0, 999, 0, 1],
}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("case", COSTS)
def test_a_budget_of_tokens_is_kept_to_the_unit(behind, algorithm, case):
    user, used = {"algorithm": algorithm, "user": case}, 0
    for tokens in COSTS[case]:
        assert behind.ask(f"/model/{tokens}", **user)[0] == 200, f"{tokens} after {used}"
        used += tokens
        # Envoy charges when all is sent; the answer is not read.
        until(lambda: behind.left(**user) == max(0, LIMIT - used), f"{used} are charged")
    assert [behind.ask("/model/10", **user)[0] for _ in range(5)] == [429] * 5
    assert behind.left(**user) == 0


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_route_that_only_checks(behind, algorithm):
    user = {"algorithm": algorithm, "user": "free"}
    assert [behind.ask("/free/500", **user)[0] for _ in range(5)] == [200] * 5
    assert behind.left(**user) == LIMIT
    assert behind.ask("/model/1000", **user)[0] == 200
    until(lambda: behind.left(**user) == 0, "all is charged")
    assert behind.ask("/free/500", **user)[0] == 429


# ---- The example of envoyproxy/ratelimit ---------------------------------------------------------

# Which services answer before a route is refused: a limit of 2, and limits of 1 and 2. Theirs lets
# one request more pass for each limit, as docs/migrate-from-envoyproxy-ratelimit.md says.
EXAMPLES = {"/alone": ["service_1"] * 2, "/services": ["service_1"] + ["service_2"] * 2}
THEIRS = {"/alone": ["service_1"] * 3, "/services": ["service_1"] * 2 + ["service_2"] * 3}
# What stint has counted of a route.
HITS = re.compile(r'^ratelimit_service_rate_limit_total_hits\{.*key1="(\w+)_\w+_\d"\} (\d+)$', re.M)


def charged(behind, path):
    """Units of all services of a route, from the first on."""
    kind = path[1:].removesuffix("s")
    with urllib.request.urlopen(behind.server.url("/metrics"), timeout=20) as page:
        return sum(int(n) for name, n in HITS.findall(page.read().decode()) if name == kind)


def passes(behind, path):
    """Who answers in turn, each charged before the next is asked, until a request is refused."""
    answered, before = [], charged(behind, path)
    for _ in range(10):
        status, text = behind.ask(path)
        if status != 200:
            assert status == 429
            return answered
        answered.append(text)
        until(lambda: charged(behind, path) - before == len(answered), f"{answered} are charged")


def test_the_example_for_token_quotas(behind):
    for turn in range(2):
        time.sleep(turn * PERIOD_S * 25 / 24)  # all of it is back, with the slack of a 24th
        for path, services in EXAMPLES.items():
            assert passes(behind, path) == services, f"{path}, turn {turn}"


def test_the_example_as_theirs(tmp_path):
    """The same numbers, where a check passes until more than the limit is used."""
    lasting = RULES.replace(f"period: {PERIOD_S}s", "unit: year, calendar: fixed")
    behind = Behind(tmp_path, "--grpc-hits", "add", "--default-algorithm", "fixed_window",
                    rules=lasting)
    try:
        for path, services in THEIRS.items():
            assert passes(behind, path) == services, path
    finally:
        behind.stop()
