# SPDX-License-Identifier: MIT
"""Units above 4,294,967,295: refused at every entry with that number and what to do, never wrapped.

2^32 + 1 is the number that cut to 32 bits is 1; the others are past 32, 63 and 64 bits.
"""
import grpc
import pytest

from program import replay_decisions, stint
from rls_messages import ask_with, descriptor, request
from server import Server

MAX = 2**32 - 1
ABOVE = [2**32, 2**32 + 1, 2**63, 2**64 + 1]
RULES = """\
domain: d
descriptors:
  - key: k
    rate_limit: {unit: hour, requests_per_unit: 4294967295}
"""


@pytest.fixture(scope="module")
def server():
    with Server(rules=RULES) as running:
        yield running


def assert_says_so(text, largest=MAX):
    assert str(largest) in text and "count in larger units" in text, text


@pytest.mark.parametrize("above", ABOVE)
@pytest.mark.parametrize("spec", [
    "{}/1h", "window {}/1h", "gcra {}/1h", "gcra 100/1s burst={}", "fixed_window {}/1mo",
    "sliding_counter {}/1d", "log {}/1h", "buckets {}/1h count_slack=5",
    "buckets 100/1h count_slack={}", "concurrency {} lease=1m", "window 5/1h initial={}",
])
def test_a_spec(spec, above):
    assert_says_so(stint("explain", spec.format(above), code=2)[1])


def test_the_largest_is_taken():
    for algorithm in ("window", "gcra", "fixed_window", "sliding_counter"):
        spec = f"{algorithm} {MAX}/1h"
        stint("explain", spec)
        rows = replay_decisions("--quota", spec, given=f"0 k {MAX}\n1 k {MAX}\n")
        assert [row[3] for row in rows] == ["allow", "deny"]


@pytest.mark.parametrize("above", ABOVE)
@pytest.mark.parametrize("limit", [
    "requests_per_unit: {}", "requests_per_unit: 100, algorithm: gcra, burst: {}",
    "requests_per_unit: 100, algorithm: buckets, count_slack: {}"])
def test_rules(tmp_path, limit, above):
    path = tmp_path / "rules.yaml"
    path.write_text("domain: d\ndescriptors:\n  - key: k\n    rate_limit: {unit: hour, "
                    + limit.format(above) + "}\n")
    assert_says_so("".join(stint("rules", "check", path, code=1)))


@pytest.mark.parametrize("above", ABOVE)
@pytest.mark.parametrize("words", [
    ("STINT.TAKE", "QUOTA", "{}/1h", "k"),
    ("STINT.TAKE", "QUOTA", "10/1h", "k", "COST", "{}"),
    ("STINT.CHARGE", "QUOTA", "10/1h", "k", "COST", "{}"),
    ("STINT.RESERVE", "QUOTA", "10/1h", "k", "COST", "{}"),
    ("STINT.TAKE", "DOMAIN", "d", "DESCRIPTOR", 1, "k", "v", "COST", "{}"),
    ("STINT.SETTLE", "0" * 32, "{}"),
    ("STINT.SETQUOTA", "DOMAIN", "d", "DESCRIPTOR", 1, "k", "v", "TO", "{}/1h"),
    ("CL.THROTTLE", "k", "{}", 10, 60),
    ("CL.THROTTLE", "k", 10, 10, 60, "{}"),
])
def test_resp(server, words, above):
    with server.connect() as client:
        answer = client.ask(*(str(word).format(above) for word in words))
        if words[0] == "CL.THROTTLE" and above >= 2**63:
            assert "Couldn't parse as integer" in str(answer)  # as redis-cell has it
        else:  # max_burst is the burst less one
            assert_says_so(str(answer), MAX - (words[:3] == ("CL.THROTTLE", "k", "{}")))


ENTRY = [{"key": "k", "value": "v"}]


@pytest.mark.parametrize("above", ABOVE)
@pytest.mark.parametrize("path, body", [
    ("/v1/take", {"key": "k", "quota": "{}/1h"}),
    ("/v1/take", {"key": "k", "quota": "10/1h", "cost": "{}"}),
    ("/v1/charge", {"key": "k", "quota": "10/1h", "cost": "{}"}),
    ("/v1/settle", {"ticket": "0" * 32, "cost": "{}"}),
    ("/v1/take", {"domain": "d", "descriptors": [{"entries": ENTRY, "hits": "{}"}]}),
    ("/v1/take", {"domain": "d", "descriptors": [{"entries": ENTRY, "quota": "{}/1h"}]}),
    ("/json", {"domain": "d", "descriptors": [{"entries": ENTRY}], "hitsAddend": "{}"}),
    ("/json", {"domain": "d", "descriptors": [{"entries": ENTRY, "hitsAddend": "{}"}]}),
    ("/json", {"domain": "d", "descriptors": [
        {"entries": ENTRY, "limit": {"requestsPerUnit": "{}", "unit": "HOUR"}}]}),
])
def test_http(server, path, body, above):
    def filled(value):
        if isinstance(value, dict):
            return {name: filled(each) for name, each in value.items()}
        if isinstance(value, list):
            return [filled(each) for each in value]
        return above if value == "{}" else value.replace("{}", str(above))

    status, answer = server.post(path, filled(body))
    assert status == 400
    assert_says_so(str(answer))
    assert str(above) in str(answer)


@pytest.mark.parametrize("asked, name", [
    (request("d", descriptor(("k", "v")), hits=2**32 + 1), "hits_addend"),
    (request("d", descriptor(("k", "v"), hits=2**32)), "descriptors[0].hits_addend"),
    (request("d", descriptor(("k", "v"), hits=2**32 + 1)), "descriptors[0].hits_addend"),
    (request("d", descriptor(("k", "v"), hits=2**64 - 1)), "descriptors[0].hits_addend"),
    (request("d", descriptor(("k", "v"), override=(2**32 + 1, 3))), "requests_per_unit"),
])
def test_grpc(server, asked, name):
    with grpc.insecure_channel(f"127.0.0.1:{server.port('grpc')}") as channel:
        with pytest.raises(grpc.RpcError) as refused:
            ask_with(channel)(asked, timeout=20)
    assert name in refused.value.details()
    assert_says_so(refused.value.details())


def test_grpc_units_of_time_do_not_wrap_either(server):
    with grpc.insecure_channel(f"127.0.0.1:{server.port('grpc')}") as channel:
        with pytest.raises(grpc.RpcError) as refused:
            ask_with(channel)(request("d", descriptor(("k", "v"), override=(5, 2**32 + 3))),
                              timeout=20)
    assert "expected a unit" in refused.value.details()


@pytest.mark.parametrize("above", ABOVE[:2])
def test_the_rest_of_the_program(above):
    assert_says_so(stint("replay", "--quota", "10/1s", given=f"0 k {above}\n", code=None)[1])
    line = f'{{"t": "0", "k": "a", "c": {above}}}\n'
    assert_says_so(stint("replay", "--quota", "10/1s", "--format", "jsonl", "--key", "k", "--time",
                         "t", "--cost", "c", given=line, code=None)[1])
    assert_says_so(stint("take", "--quota", "10/1s", "--cost", above, "k", code=2)[1])
    assert_says_so(stint("rls", "ask", "--hits", above, "d", "k=v", code=2)[1])
