# SPDX-License-Identifier: MIT
"""docs/openapi.json held against the server: every path, method, status and member it speaks of.

The examples below are sent for real. What is sent must fit the document where the server takes it,
and not fit where the server refuses its shape; what comes back must fit the schema of its status.
The document's own lists are held against the routes in src/conn, so neither can gain one alone.
"""
import http.client
import json
import random
import re
import urllib.parse

import jsonschema
import pytest

from program import SOURCE
from server import Server

DOCUMENT = json.loads((SOURCE / "docs/openapi.json").read_text())
RULES = """\
domain: shop
descriptors:
  - key: ip
    rate_limit: {unit: minute, requests_per_unit: 3, name: per-ip}
  - key: free
    rate_limit: {unlimited: true}
  - key: org
    rate_limit: {unit: hour, requests_per_unit: 1000, algorithm: gcra}
    shadow_mode: true
  - key: kind
    rate_limit: {unit: day, requests_per_unit: 10}
    shadow: {unit: hour, requests_per_unit: 1}
"""
IP = {"domain": "shop", "descriptors": [{"entries": [{"key": "ip", "value": "1"}]}]}
MANY = {"domain": "shop", "descriptors": [
    {"entries": [{"key": "free", "value": "x"}]}, {"entries": [{"key": "none"}]},
    {"entries": [{"key": "org", "value": "o"}], "hits": 2, "is_refund": False},
    {"entries": [{"key": "kind", "value": "a"}], "quota": "7/1h"}]}
OWN = {"quota": "log 10/1m", "key": "k"}
ITEMS = {"items": [{"quota": "5/1m", "key": "u"}, {"quota": "gcra 9/1s", "key": "o", "cost": 2}]}
LEASE = {"quota": "concurrency 2 lease=30s", "key": "c"}
NO_TICKET = "0" * 32

# method, path, body (None: none), expected status. "{ticket}" and "{at}" are of the last answer.
GOOD = [
    ("POST", "/v1/take", {**IP, "cost": 1, "request_id": "r1", "wait_ms": 0}, 200),
    ("POST", "/v1/take", {**IP, "cost": 1, "request_id": "r1", "wait_ms": 0}, 200),
    ("POST", "/v1/take", {**IP, "cost": 2, "request_id": "r1"}, 409),
    ("POST", "/v1/take", MANY, 200),
    ("POST", "/v1/take", ITEMS, 200),
    ("POST", "/v1/take", {**IP, "cost": 3}, 429),
    ("POST", "/v1/take", {**OWN, "cost": 11}, 429),
    ("POST", "/v1/peek", {**IP, "cost": 9}, 200),
    ("POST", "/v1/take_upto", {**OWN, "cost": 4}, 200),
    ("POST", "/v1/refund", {**OWN, "cost": 2, "granted_at": "{at}"}, 200),
    ("POST", "/v1/reserve", {**OWN, "cost": 3, "lifetime_ms": 5000}, 200),
    ("POST", "/v1/settle", {"ticket": "{ticket}", "cost": 1}, 200),
    ("POST", "/v1/settle", {"ticket": NO_TICKET, "cost": 1}, 410),
    ("POST", "/v1/reserve", {**OWN, "cost": 1}, 200),
    ("POST", "/v1/cancel", {"ticket": "{ticket}"}, 200),
    ("POST", "/v1/cancel", {"ticket": NO_TICKET}, 410),
    ("POST", "/v1/reserve", LEASE, 200),
    ("POST", "/v1/renew", {"ticket": "{ticket}"}, 200),
    ("POST", "/v1/renew", {"ticket": NO_TICKET}, 410),
    ("POST", "/v1/charge", OWN, 200),
    ("POST", "/v1/book", {"quota": "gcra 1/1s burst=1", "key": "b", "max_wait_ms": 5000}, 200),
    ("POST", "/v1/book", {"quota": "gcra 1/1s burst=1", "key": "b", "max_wait_ms": 5000}, 200),
    ("POST", "/v1/book", {"quota": "gcra 1/1s burst=1", "key": "b", "max_wait_ms": 5}, 429),
    ("POST", "/v1/explain", MANY, 200),
    ("GET", "/v1/explain?domain=shop&ip=1", None, 200),
    ("POST", "/v1/block", {**IP, "for_ms": 60000}, 200),
    ("POST", "/v1/explain", IP, 200),
    ("POST", "/v1/take", IP, 429),
    ("POST", "/v1/reset", IP, 200),
    ("POST", "/v1/count", {"key": "k", "amount": 3, "expiry_ms": 60000}, 200),
    ("POST", "/v1/count", {"key": "k", "amount": -1}, 200),
    ("POST", "/v1/count", {"key": "k"}, 200),
    ("POST", "/v1/count_reset", {"key": "k"}, 200),
    ("PUT", "/v1/overrides", {**IP, "quota": "7/1m"}, 200),
    ("DELETE", "/v1/overrides?domain=shop&ip=1", None, 200),
    ("GET", "/v1/pools", None, 200),
    ("POST", "/v1/pools/{name}/add", {"key": "one", "quotas": ["1/1m"], "weight": 2}, 404),
    ("POST", "/v1/pools/{name}/next", {"cost": 1, "probe": False, "wait_ms": 0}, 404),
    ("POST", "/v1/pools/{name}/give_back", {"key": "one", "cost": 1, "granted_at": "5"}, 404),
    ("POST", "/v1/pools/{name}/report", {"key": "one", "outcome": "cool", "cooldown_ms": 5}, 404),
    ("GET", "/v1/pools/{name}/status", None, 404),
    ("POST", "/v1/pools/{name}/remove", {"key": "one"}, 404),
    ("GET", "/v1/top?n=5&order=denied", None, 200),
    ("GET", "/v1/top", None, 200),
    ("GET", "/v1/stats", None, 200),
    ("POST", "/v1/reload", None, 200),
    ("GET", "/v1/clock", None, 200),
    ("POST", "/v1/clock", {"set": "1"}, 409),
    ("POST", "/v1/clock", {"advance": "1h30m"}, 409),
    ("POST", "/json", {"domain": "shop", "hitsAddend": 1, "descriptors": [
        {"entries": [{"key": "ip", "value": "9"}], "hits_addend": "3", "limit": {
            "requestsPerUnit": 8, "unit": "HOUR"}, "isNegativeHits": False},
        {"entries": [{"key": "free"}]}, {"entries": [{"key": "none"}]}]}, 200),
    ("POST", "/json", {"domain": "shop", "descriptors": [
        {"entries": [{"key": "ip", "value": "9"}], "hits_addend": 9}]}, 429),
    ("GET", "/auth?domain=shop", None, 200),
    ("GET", "/auth?domain=shop&deny_status=403", None, 200),
    ("GET", "/auth?domain=shop&deny_status=200", None, 400),
    ("GET", "/healthz", None, 200),
    ("GET", "/readyz", None, 200),
    ("GET", "/metrics", None, 200),
    ("GET", "/healthcheck", None, 200),
    ("GET", "/stats", None, 404),
    ("GET", "/rlconfig", None, 200),
    ("GET", "/", None, 200),
    ("GET", "/openapi.json", None, 200),
]
# Bodies that fit no schema, and that the server refuses.
BAD = [
    ("POST", "/v1/take", {}),
    ("POST", "/v1/take", {**IP, **OWN}),
    ("POST", "/v1/take", {**IP, "max_wait_ms": 1}),
    ("POST", "/v1/take", {**IP, "cost": -1}),
    ("POST", "/v1/take", {**IP, "cost": 4294967296}),
    ("POST", "/v1/take", {**IP, "cost": "1"}),
    ("POST", "/v1/take", {**IP, "request_id": ""}),
    ("POST", "/v1/take", {**IP, "request_id": "x" * 129}),
    ("POST", "/v1/take", {**IP, "wait_ms": 86400001}),
    ("POST", "/v1/take", {"domain": "", "descriptors": IP["descriptors"]}),
    ("POST", "/v1/take", {"domain": "d", "descriptors": []}),
    ("POST", "/v1/take", {"domain": "d", "descriptors": IP["descriptors"] * 33}),
    ("POST", "/v1/take", {"domain": "d", "descriptors": [{"entries": []}]}),
    ("POST", "/v1/take", {"domain": "d", "descriptors": [{"entries": [{"value": "v"}]}]}),
    ("POST", "/v1/take", {"domain": "d", "descriptors": [{"entries": [{"key": ""}]}]}),
    ("POST", "/v1/take", {"items": [{"quota": "1/1s"}]}),
    ("POST", "/v1/peek", {**IP, "request_id": "r"}),
    ("POST", "/v1/settle", {"ticket": NO_TICKET}),
    ("POST", "/v1/settle", {"ticket": "0", "cost": 1}),
    ("POST", "/v1/refund", {**OWN, "granted_at": 5}),
    ("POST", "/v1/refund", {**OWN, "granted_at": "x"}),
    ("POST", "/v1/book", OWN),
    ("POST", "/v1/block", IP),
    ("POST", "/v1/reset", {**IP, "cost": 1}),
    ("POST", "/v1/count", {"amount": 1, "expiry_ms": 1}),
    ("POST", "/v1/count", {"key": "k", "amount": 1}),
    ("POST", "/v1/count", {"key": "k", "amount": 1, "expiry_ms": 0}),
    ("POST", "/v1/count", {"key": "k", "amount": 1, "expiry_ms": 315360000001}),
    ("POST", "/v1/count", {"key": "k", "amount": 4294967296, "expiry_ms": 1}),
    ("POST", "/v1/count", {"key": "k", "amount": -4294967296}),
    ("POST", "/v1/count", {"key": "k", "amount": "1", "expiry_ms": 1}),
    ("POST", "/v1/count", {"key": 1}),
    ("POST", "/v1/count_reset", {"key": "k", "amount": 1}),
    ("PUT", "/v1/overrides", IP),
    ("PUT", "/v1/overrides", {**IP, "quota": ""}),
    ("POST", "/v1/pools/{name}/next", {"key": "k"}),
    ("POST", "/v1/pools/{name}/report", {"key": "k", "outcome": "bad"}),
    ("POST", "/v1/pools/{name}/add", {"key": "k", "quotas": []}),
    ("POST", "/v1/clock", {}),
    ("POST", "/v1/clock", {"set": 1}),
    ("POST", "/v1/clock", {"set": "-1"}),
    ("POST", "/v1/clock", {"set": "1", "advance": "1s"}),
    ("POST", "/v1/clock", {"advance": "1s1m"}),
    ("POST", "/v1/clock", {"advance": ""}),
    ("POST", "/v1/clock", {"advance": 1}),
    ("POST", "/json", {"domain": "d"}),
    ("POST", "/json", {"domain": "d", "descriptors": [{"entries": [{"key": "k"}], "limit": {}}]}),
]


def operation(method, path):
    return DOCUMENT["paths"][path.partition("?")[0]][method.lower()]


def resolved(node):
    while "$ref" in node:
        _, *names = node["$ref"].split("/")
        node = DOCUMENT
        for name in names:
            node = node[name]
    return node


def errors(schema, value):
    """What in the value does not fit; the document's other schemas are known to it."""
    checker = jsonschema.Draft202012Validator({**schema, "components": DOCUMENT["components"]})
    return [error.message for error in checker.iter_errors(value)]


def body_schema(method, path):
    return operation(method, path)["requestBody"]["content"]["application/json"]["schema"]


@pytest.fixture(scope="module")
def server():
    with Server("--keys-wide", 64, "--wide-size", 1024, rules=RULES) as running:
        yield running


def send(server, method, path, body, headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", server.http, timeout=20)
    if headers is None:
        headers = {"Content-Type": "application/json"} if body is not None else {}
    data = json.dumps(body) if body is not None else None
    connection.request(method, path.replace("{name}", "p"), data, headers)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, dict(answer.getheaders()), text


def check_answer(method, path, status, fields, text):
    responses = operation(method, path)["responses"]
    assert str(status) in responses, f"{method} {path}: {status} is not in the document: {text}"
    response = resolved(responses[str(status)])
    for name, header in response.get("headers", {}).items():
        if name in fields:
            value = fields[name]
            schema = resolved(header)["schema"]
            found = int(value) if schema["type"] == "integer" else value
            assert not errors(schema, found), f"{name}: {value}"
    content = response.get("content", {})
    if not content:
        assert text == b""
        return
    kind = fields["Content-Type"].partition(";")[0]
    assert kind in content, f"{method} {path} {status}: {kind}"
    value = json.loads(text) if kind.endswith("json") else text.decode()
    assert not errors(content[kind]["schema"], value), f"{method} {path} {status}: {value}"


UNREACHABLE = """\
pools: [{name: p, store: default, quota: 5/1m, keys: [a, b]}]
"""


def test_a_pool_whose_store_is_unreachable(tmp_path):
    config = tmp_path / "stint.yaml"
    config.write_text(UNREACHABLE)
    asked = [("POST", "next", {}), ("POST", "give_back", {"key": "a"}), ("GET", "status", None),
             ("POST", "report", {"key": "a", "outcome": "out"}), ("POST", "remove", {"key": "a"})]
    with Server("--config", config, "--store", "redis://127.0.0.1:1") as running:
        for method, verb, body in asked:
            path = "/v1/pools/{name}/" + verb
            status, fields, text = send(running, method, path, body)
            assert status == 503, (verb, status, text)
            check_answer(method, path, status, fields, text)


def filled(body, last):
    text = json.dumps(body)
    for name in ("ticket", "at"):
        text = text.replace("{%s}" % name, str(last.get(name)))
    return json.loads(text)


def test_each_example_fits_both_ways(server):
    last = {}
    for method, path, body, expected in GOOD:
        if body is not None:
            body = filled(body, last)
            assert not errors(body_schema(method, path), body), (method, path, body)
        status, fields, text = send(server, method, path, body)
        assert status == expected, f"{method} {path} {body}: {status} {text}"
        check_answer(method, path, status, fields, text)
        if fields.get("Content-Type") == "application/json" and text.startswith(b"{\"outcome"):
            last = json.loads(text)


def test_what_fits_no_schema_is_refused(server):
    for method, path, body in BAD:
        assert errors(body_schema(method, path), body), f"the document takes {path} {body}"
        status, fields, text = send(server, method, path, body)
        assert status == 400, f"{method} {path} {body}: {status} {text}"
        check_answer(method, path, status, fields, text)


# ---- Generated bodies ----------------------------------------------------------------------------

QUOTAS = ["5/1m", " gcra 9/1s burst=20 ", "fixed_window 7/1mo align=calendar", "log 3/1h30m",
          "buckets 8/10m time_slack=1m", "window\t6/1.5h"]
ODD = [None, True, -1, 0, 1.0, 1e0, 1.5, 4294967295, 4294967296, 10**30, "", "1", "1.0", "x",
       "5/1m", "5 / 1m", "5/1M", "Window 5/1m", "5/1m burst = 5", "5/1m,6/1m", "quota 5/1m", [],
       ["x"], {}, {"key": "k"}, "é", "0" * 32]
PATHS = ["take", "peek", "take_upto", "reserve", "refund", "charge", "book", "reset", "explain",
         "settle", "cancel", "renew"]


def sample(schema, name, rng):
    """A value that fits a schema of the document."""
    schema = resolved(schema)
    if name in ("quota", "quotas"):
        return rng.choice(QUOTAS)
    if name in ("wait_ms", "is_refund"):
        return 0 if name == "wait_ms" else False
    if name == "ticket":
        return NO_TICKET
    if name == "granted_at":
        return str(rng.randrange(10**6))
    if "properties" in schema:
        needed = schema.get("required", [])
        targets = [["domain", "descriptors"], ["quota", "key"], ["items"]]
        chosen = rng.choice(targets) if "oneOf" in schema else None
        return {member: sample(inner, member, rng) for member, inner in schema["properties"].items()
                if member in needed or (chosen and member in chosen) or
                (rng.random() < 0.4 and not (chosen and any(member in row for row in targets)))}
    if "oneOf" in schema:
        return sample(rng.choice(schema["oneOf"]), name, rng)
    if "enum" in schema:
        return rng.choice(schema["enum"])
    if schema["type"] == "array":
        return [sample(schema["items"], name, rng) for _ in range(rng.randrange(1, 4))]
    if schema["type"] == "integer":
        return rng.choice([schema["minimum"], schema["minimum"] + 1, 2.0, schema["maximum"]])
    return rng.choice(["a", "ip", "x y", "é"])


def changed(value, rng):
    """One place of a body made different; the body may still fit."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        name = rng.choice(sorted(value))
        kind = rng.random()
        if kind < 0.15:
            return {key: inner for key, inner in value.items() if key != name}
        if kind < 0.25:
            return {**value, rng.choice(["cost", "key", "domain", "Cost", "wait"]): rng.choice(ODD)}
        return {**value, name: changed(value[name], rng)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = rng.randrange(len(value))
        return value[:at] + [changed(value[at], rng)] + value[at + 1:]
    return rng.choice(ODD)


def test_generated_bodies_are_taken_and_refused_as_the_document_says(server):
    """Both ways: what fits is not refused, and what is not refused fits."""
    rng = random.Random(20261122)
    connection = http.client.HTTPConnection("127.0.0.1", server.http, timeout=20)
    counts = {True: 0, False: 0}
    for turn in range(1500):
        path = "/v1/" + rng.choice(PATHS)
        body = sample(body_schema("POST", path), None, rng)
        if turn % 2 == 1:
            body = changed(body, rng)
        if not isinstance(body, dict) or body.get("wait_ms", 0) not in (0, None, True, ""):
            continue
        fits = not errors(body_schema("POST", path), body)
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        counts[fits] += 1
        assert fits or answer.status == 400, (path, body, answer.status, text)
        assert not fits or answer.status != 400, (path, body, text)
    assert min(counts.values()) > 200, counts
    connection.close()


def test_numbers_of_json_are_those_of_proto3(server):
    for written in ("2", "2.0", "2e0", "20e-1", '"2"', '"2.0"', '"2e0"', "1.5", '"1.5"', '""',
                    '" 2"', '"02"', "4294967296", "-1", '"x"'):
        for name in ("hitsAddend", "requestsPerUnit", "requests_per_unit"):
            limit = '"unit": 3' if name == "hitsAddend" else f'"unit": "HOUR", "{name}": {written}'
            hits = f'"{name}": {written},' if name == "hitsAddend" else ""
            text = (f'{{"domain": "shop", {hits} "descriptors": [{{"limit": {{{limit}}},'
                    f'"entries": [{{"key": "ip", "value": {json.dumps(written)}}}]}}]}}')
            connection = http.client.HTTPConnection("127.0.0.1", server.http, timeout=20)
            connection.request("POST", "/json", text, {"Content-Type": "application/json"})
            status = connection.getresponse().status
            connection.close()
            is_two = written.strip('"') in ("2", "2.0", "2e0", "20e-1")
            assert (status in (200, 429)) == is_two, (text, status)


def test_links_name_operations():
    operations = {op["operationId"] for item in DOCUMENT["paths"].values()
                  for method, op in item.items() if method != "parameters"}
    links = [link for item in DOCUMENT["paths"].values() for method, op in item.items()
             if method != "parameters" for response in op["responses"].values()
             for link in response.get("links", {}).values()]
    assert len(links) >= 6 and {link["operationId"] for link in links} <= operations


ANY_HOST = {"/healthz", "/readyz", "/healthcheck"}
ANY_TYPE = {"/json"}


def test_each_operation_refuses_pages_foreign_hosts_and_other_types(server):
    """Whatever the document has, so that no route is added without them."""
    for method, path, body, _ in GOOD:
        bare = path.partition("?")[0]
        typed = {"Content-Type": "application/json"} if body is not None else {}
        changes = method != "GET" or bare == "/auth"
        tries = [({**typed, "Host": "evil.test"}, 421, bare not in ANY_HOST),
                 ({**typed, "Origin": "http://evil.test"}, 403, changes),
                 ({**typed, "Sec-Fetch-Site": "same-site"}, 403, changes),
                 ({"Content-Type": "text/plain"}, 415, body is not None and bare not in ANY_TYPE),
                 ({}, 415, body is not None and bare not in ANY_TYPE)]
        for headers, refusal, is_refused in tries:
            status, fields, text = send(server, method, path, body, headers)
            assert (status == refusal) == is_refused, (method, path, headers, status, text)
            if is_refused:
                check_answer(method, path, status, fields, text)
    status, fields, text = send(server, "POST", "/v1/reload", {}, {})
    assert status == 415
    check_answer("POST", "/v1/reload", status, fields, text)


def test_every_operation_has_an_example():
    shown = {(method.lower(), path.partition("?")[0]) for method, path, *_ in GOOD}
    there = {(method, path) for path, item in DOCUMENT["paths"].items() for method in item
             if method != "parameters"}
    assert there == shown


def test_routes_and_document_have_the_same_paths(server):
    source = "".join(file.read_text() for file in (SOURCE / "src/frontend/http").glob("*.c"))
    routes = {}
    for path, methods in re.findall(r'^    \{"(/[^"]*)", ([A-Z_ |]+),', source, re.M):
        methods = methods.replace("ROUTE_", "").lower()
        routes.setdefault(path, set()).update(methods.split(" | "))
    pools = re.findall(r'^    \{"(\w+)", ROUTE_(GET|POST), ACCESS', source, re.M)
    assert len(pools) == 6 and routes.pop("/v1/pools/") == {"get", "post"}
    for name, method in pools:
        routes["/v1/pools/{name}/" + name] = {method.lower()}
    assert routes.pop("/auth") == {"any"}
    routes["/auth"] = {"get"}
    document = {path: set(item) - {"parameters"} for path, item in DOCUMENT["paths"].items()}
    assert document == routes
    # And the server itself: a method that is not there is a 405 that names those that are.
    for path, methods in document.items():
        if path == "/auth":
            continue
        status, fields, _ = send(server, "PATCH", path, None)
        assert status == 405, path
        allowed = set(fields["Allow"].lower().split(", ")) - {"options", "head"}
        assert allowed == methods, (path, allowed)
        status, fields, _ = send(server, "OPTIONS", path, None)
        assert status == 204 and set(fields["Allow"].lower().split(", ")) >= methods, path


def test_members_of_bodies_are_those_of_the_source():
    """Each member that a reader knows stands in a schema, and the other way round."""
    def names(file, table):
        text = (SOURCE / file).read_text()
        block = re.search(table + r"\[\] = \{(.*?)\n *\};", text, re.S)[1]
        return set(re.findall(r'\{"(\w+)"', block))

    schemas = DOCUMENT["components"]["schemas"]
    verbs = ["Take", "Peek", "Reserve", "Settle", "Cancel", "Renew", "Refund", "Charge", "Book",
             "Block", "Reset", "Override", "Count", "CountReset"]
    assert names("src/proto/http/http_call.c", "call_members") == set().union(
        *(schemas[verb]["properties"] for verb in verbs))
    assert names("src/proto/http/http_call.c", "descriptor_members") == set(
        schemas["Descriptor"]["properties"])
    assert names("src/proto/http/http_call.c", "item_members") == set(schemas["Item"]["properties"])
    entries = names("src/proto/http/http_call.c", "entry_members")
    assert entries == set(schemas["Entry"]["properties"])
    pool = ["PoolNext", "PoolGiveBack", "PoolReport", "PoolAdd", "PoolRemove"]
    assert names("src/frontend/http/http_pools.c", "pool_members") == set().union(
        *(schemas[verb]["properties"] for verb in pool))


def test_the_server_answers_with_the_document(server):
    _, _, text = send(server, "GET", "/openapi.json", None)
    assert json.loads(text) == DOCUMENT
    assert urllib.parse.urlparse(DOCUMENT["servers"][0]["url"]).port == 8080


def test_the_document_is_openapi():
    assert DOCUMENT["openapi"].startswith("3.1.")
    for schema in DOCUMENT["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)
    text = json.dumps(DOCUMENT)
    for target in set(re.findall(r'"\$ref": "([^"]+)"', text)):
        assert resolved({"$ref": target})
