# SPDX-License-Identifier: MIT
"""Keys of requests: addresses behind proxies, and keys of several parts."""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import json
import os
import socket
import subprocess
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import reserved_port

import stint
from stint.http import (Proxies, Request, RequestError, Rule, address, first_of, format_address,
                        header, join, parse_address, path, user)

TRUSTED = ["127.0.0.1", "10.0.0.0/8", "2001:db8:ffff::/48"]


def request(*headers, peer="127.0.0.1", path="/", method="GET", user=None):
    def lines(name):
        return [value for key, value in headers if key.lower() == name.lower()]

    return Request(None, method, path, peer, lines, lambda: user)


def xff(*values):
    return [("X-Forwarded-For", value) for value in values]


def fwd(*values):
    return [("Forwarded", value) for value in values]


# The fields of a request from 127.0.0.1, and the address that counts. None: refused with 400.
PROXIED = [
    ([], "127.0.0.1"),
    (xff("192.0.2.1"), "192.0.2.1"),
    (xff("1.1.1.1, 192.0.2.1"), "192.0.2.1"),
    (xff("1.1.1.1, 192.0.2.1, 10.9.8.7"), "192.0.2.1"),
    (xff("1.1.1.1,192.0.2.1,10.9.8.7,127.0.0.1"), "192.0.2.1"),
    (xff("192.0.2.1", "10.0.0.1"), "192.0.2.1"),
    (xff("1.1.1.1", "192.0.2.1", "10.0.0.1, 10.0.0.2"), "192.0.2.1"),
    (xff("10.0.0.1, 10.0.0.2"), "10.0.0.1"),
    (xff("192.0.2.1:8080"), "192.0.2.1"),
    (xff("\t 192.0.2.1 \t"), "192.0.2.1"),
    (xff("::ffff:192.0.2.1"), "192.0.2.1"),
    (xff("::ffff:c000:0201"), "192.0.2.1"),
    (xff("[::ffff:192.0.2.1]:80"), "192.0.2.1"),
    (xff("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::"),
    (xff("[2001:db8:1:2:3::]:443"), "2001:db8:1:2::"),
    (xff("2001:db8:1:2:3:4:5:6%eth0"), "2001:db8:1:2::"),
    (xff("2001:db8:1:2:3:4:5:6, 2001:db8:ffff::1"), "2001:db8:1:2::"),
    (xff("::1"), "::"),
    # What is no address ends the search.
    (xff(""), "127.0.0.1"),
    (xff("unknown"), "127.0.0.1"),
    (xff("_hidden"), "127.0.0.1"),
    (xff("1.1.1.1, garbage"), "127.0.0.1"),
    (xff("1.1.1.1, garbage, 10.0.0.1"), "10.0.0.1"),
    (xff("1.1.1.1", "garbage"), "127.0.0.1"),
    (xff("1.1.1.1;2.2.2.2"), "127.0.0.1"),
    (xff("1.1.1.1 2.2.2.2"), "127.0.0.1"),
    (xff("01.2.3.4"), "127.0.0.1"),
    (xff("1.2.3"), "127.0.0.1"),
    (xff("1.2.3.4.5"), "127.0.0.1"),
    (xff("16909060"), "127.0.0.1"),
    (xff("0x1.2.3.4"), "127.0.0.1"),
    (xff("256.1.1.1"), "127.0.0.1"),
    (xff("[2001:db8::1"), "127.0.0.1"),
    (xff("[2001:db8::1]x"), "127.0.0.1"),
    (xff("2001:db8:::1"), "127.0.0.1"),
    (xff("'192.0.2.1'"), "127.0.0.1"),
    (xff('"192.0.2.1"'), "127.0.0.1"),
    (xff("for=192.0.2.1"), "127.0.0.1"),
    (xff("\xe9"), "127.0.0.1"),
    (xff("\xb2.1.1.1"), "127.0.0.1"),
    (xff("1" * 4000), "127.0.0.1"),
    (xff("1.1.1.1" + " " * 3000), "1.1.1.1"),
    # Empty elements are none.
    (xff(",,192.0.2.1,,"), "192.0.2.1"),
    (xff("192.0.2.1" + "," * 4000), "192.0.2.1"),
    (xff("192.0.2.1" + ", " * 2000), "192.0.2.1"),
    (xff("," * 4000), "127.0.0.1"),
    (xff(",", ",", "192.0.2.1", ",", ""), "192.0.2.1"),
    # RFC 7239.
    (fwd("for=192.0.2.1"), "192.0.2.1"),
    (fwd("for=1.1.1.1, for=192.0.2.1"), "192.0.2.1"),
    (fwd('For="[2001:db8:1:2::3]:4711"'), "2001:db8:1:2::"),
    (fwd("proto=https; for=192.0.2.1 ;by=10.0.0.1"), "192.0.2.1"),
    (fwd("for=1.1.1.1;for=192.0.2.1"), "192.0.2.1"),
    (fwd("for=192.0.2.1, for=10.0.0.1;host=a"), "192.0.2.1"),
    (fwd("for=192.0.2.1", "FOR=10.0.0.1"), "192.0.2.1"),
    (fwd("for=unknown"), "127.0.0.1"),
    (fwd("for=_secret, for=10.0.0.1"), "10.0.0.1"),
    (fwd("by=10.0.0.1"), "127.0.0.1"),
    (fwd("192.0.2.1"), "127.0.0.1"),
    (fwd('for="'), "127.0.0.1"),
    (fwd('for=""'), "127.0.0.1"),
    (fwd('for="192.0.2.1'), "127.0.0.1"),
    (fwd("for =192.0.2.1"), "127.0.0.1"),
    (fwd("for= 192.0.2.1"), "127.0.0.1"),
    (fwd(";" * 3000), "127.0.0.1"),
    (fwd('for="a,for=192.0.2.1"'), "127.0.0.1"),
    # A proxy writes one of them; the other is the client's.
    (xff("192.0.2.1") + fwd("for=192.0.2.2"), None),
    (xff("") + fwd(""), None),
]


def key_of(headers, peer="127.0.0.1", **options):
    return address(TRUSTED, **options)(request(*headers, peer=peer))


@pytest.mark.parametrize("headers, expected", PROXIED, ids=lambda value: ascii(value)[:60])
def test_the_address_behind_proxies(headers, expected):
    if expected is None:
        with pytest.raises(RequestError, match="both X-Forwarded-For and Forwarded"):
            key_of(headers)
    else:
        assert key_of(headers) == f"address:{expected}"


@pytest.mark.parametrize("headers, expected", PROXIED, ids=lambda value: ascii(value)[:60])
def test_fields_of_a_client_do_not_count(headers, expected):
    assert key_of(headers, peer="192.0.2.77") == "address:192.0.2.77"
    assert address()(request(*headers)) == "address:127.0.0.1"


@pytest.mark.parametrize("peer, trusted, expected", [
    ("192.0.2.7", [], "192.0.2.7"),
    ("::ffff:192.0.2.7", [], "192.0.2.7"),
    ("2001:db8:1:2:3:4:5:6", [], "2001:db8:1:2::"),
    ("fe80::1%eth0", [], "fe80::"),
    ("", [], "unix"),
    ("", "127.0.0.1", "unix"),
    ("", "unix", "1.1.1.1"),
    ("testclient", ["unix"], "unknown"),  # of test clients, or a server that trusts its clients
    ("::ffff:127.0.0.1", "127.0.0.1", "1.1.1.1"),
    ("127.0.0.1", "::ffff:127.0.0.0/96", None),
    ("127.0.0.1", "::ffff:127.0.0.1", "1.1.1.1"),
    ("8.8.8.8", "0.0.0.0/0", "1.1.1.1"),
    ("2001:db8::1", "::/0", "1.1.1.1"),
    ("2001:db8::1", "0.0.0.0/0", "2001:db8::"),
])
def test_peers(peer, trusted, expected):
    if expected is None:  # a mapped network has the lengths of IPv4
        with pytest.raises(ValueError, match="0 to 32"):
            address(trusted)
        return
    assert address(trusted)(request(*xff("1.1.1.1"), peer=peer)) == f"address:{expected}"


@pytest.mark.parametrize("networks", [
    "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/-1", "10.0.0.0/ 8", "10.0.0.0/8/8", "localhost", "",
    "::/129", "10.0.0.0/\xb2", "2001:db8::/x", ["10.0.0.0/8", "proxy"]])
def test_a_network_that_is_none(networks):
    with pytest.raises(ValueError, match="trusted proxy"):
        address(networks)


@pytest.mark.parametrize("bits", [{"v4_bits": 33}, {"v6_bits": -1}, {"v6_bits": 129}])
def test_bits_out_of_range(bits):
    with pytest.raises(ValueError, match="expected 0 to 32 and 0 to 128"):
        address(**bits)


HOSTILE = ["," * 65536, ", " * 32768, "10.0.0.1," * 7000, "a" * 65536, "[" * 65536, ":" * 65536,
           "for=" * 16384, ";" * 65536, '"' * 65536, "\xff" * 65536, "\0" * 65536,
           "10.0.0.1,\t" * 6000, "for=10.0.0.1;" * 5000, "for=10.0.0.1," * 5000]


@pytest.mark.parametrize("name", ["X-Forwarded-For", "Forwarded"])
def test_long_fields_take_bounded_work(name, monkeypatch):
    """A few addresses are read, however many are in the field."""
    parsed = []
    monkeypatch.setattr("stint.http.parse_address",
                        lambda text: parsed.append(text) or parse_address(text))
    for value in HOSTILE:
        for lines in ([value], [value] * 8):
            del parsed[:]
            key = key_of([(name, line) for line in lines])
            assert key in ("address:127.0.0.1", "address:10.0.0.1")
            assert len(parsed) <= 70


@settings(derandomize=True, max_examples=500)
@given(st.text(max_size=40) | st.ip_addresses().map(str)
       | st.from_regex(r"[0-9a-f:.\[\]%]{2,40}", fullmatch=True))
def test_an_address_is_what_python_takes_for_one(text):
    """Where both have an opinion: ipaddress knows no brackets and no ports."""
    with contextlib.suppress(ValueError):
        expected = ipaddress.ip_address(text.partition("%")[0])
        if "%" in text and not text.partition("%")[2]:
            return
        mapped = getattr(expected, "ipv4_mapped", None) or expected
        packed = parse_address(text)
        assert packed is not None
        assert ipaddress.ip_address(format_address(packed, 32, 128)) == mapped
        return
    packed = parse_address(text)
    if packed is not None:
        assert len(packed) == 16
        assert any(c in text for c in "[]:%")


@settings(derandomize=True, max_examples=300)
@given(st.ip_addresses(), st.ip_addresses(), st.integers(0, 128))
def test_networks_hold_what_python_says(inside, base, length):
    length = min(length, base.max_prefixlen)
    network = ipaddress.ip_network((base, length), strict=False)
    if getattr(base, "ipv4_mapped", None) or getattr(inside, "ipv4_mapped", None):
        return
    expected = inside.version == network.version and inside in network
    if base.version == 6 and inside.version == 4 and length <= 96:
        return  # ::/0 has the mapped addresses, too
    assert Proxies(f"{base}/{length}").trust(parse_address(str(inside))) == expected


# ---- The server's answer ------------------------------------------------------------------------

RULES = """
domain: web
descriptors:
  - key: remote_address
    rate_limit: {unit: hour, requests_per_unit: 1}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """stint serve with the same trusted proxies. STINT_BIN: the program."""
    program = os.environ.get("STINT_BIN")
    if not program:
        pytest.skip("STINT_BIN names no program")
    folder = tmp_path_factory.mktemp("server")
    (folder / "rules.yaml").write_text(RULES)
    trusted = [f"--http-trusted-proxies={network}" for network in TRUSTED]
    with reserved_port() as port, (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [program, "serve", "--rules", folder / "rules.yaml", "--http", f"127.0.0.1:{port}",
             "--http-descriptors", "address/32/64", "--http-domain", "web", *trusted],
            stdout=log, stderr=log)
        try:
            ends = time.monotonic() + 20
            while True:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                assert process.poll() is None and time.monotonic() < ends, \
                    (folder / "log").read_text()
                time.sleep(0.02)
            yield port
        finally:
            process.terminate()
            process.wait(20)


def ask(port, method, target, headers=(), body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    with contextlib.closing(connection):
        connection.putrequest(method, target)
        for name, value in headers:
            connection.putheader(name, value.encode("latin-1"))
        if body is not None:
            connection.putheader("Content-Type", "application/json")
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        reply = connection.getresponse()
        return reply.status, reply.read()


@pytest.mark.parametrize("headers, expected", PROXIED, ids=lambda value: ascii(value)[:60])
def test_the_server_takes_the_same_address(server, headers, expected):
    """After one request of /auth the key that is expected here has nothing left there."""
    if expected is None:
        assert ask(server, "GET", "/auth", headers)[0] == 400
        return
    target = {"domain": "web",
              "descriptors": [{"entries": [{"key": "remote_address", "value": expected}]}]}
    body = json.dumps(target).encode()
    assert ask(server, "POST", "/v1/reset", body=body)[0] == 200
    assert ask(server, "GET", "/auth", headers)[0] == 200
    outcome = json.loads(ask(server, "POST", "/v1/peek", body=body)[1])["outcome"]
    assert outcome == "deny"


# ---- Other keys ---------------------------------------------------------------------------------


@settings(derandomize=True, max_examples=500)
@given(st.lists(st.text("0123456789:,a\0é", max_size=6), max_size=4),
       st.lists(st.text("0123456789:,a\0é", max_size=6), max_size=4))
def test_different_parts_make_different_keys(one, other):
    assert (join(one) == join(other)) == (one == other)


@pytest.mark.parametrize("key, asked, expected", [
    (user(), request(user=7), "user:7"),
    (user(), request(user="ada"), "user:ada"),
    (user(), request(), None),
    (header("X-Key"), request(("x-KEY", "a"), ("X-Key", "b")), b"header:x-key:a, b"),
    (header("X-Key"), request(("X-Key", "\xc3\xa9")), "header:x-key:é".encode()),
    (header("X-Key"), request(("X-Key", "")), b"header:x-key:"),
    (header("X-Key"), request(), None),
    (path(), request(path="/a//b/./c/../d/"), b"path:/a/b/d"),
    (path(), request(path="/../../etc"), b"path:/etc"),
    (path(), request(path=""), b"path:/"),
    (path(), request(path="/\udce9"), b"path:/\xe9"),
    (path(), request(path="/é"), "path:/é".encode()),
])
def test_keys(key, asked, expected):
    assert key(asked) == expected


class Recorder:
    """A limiter that keeps the keys that it is given."""

    name, quotas = "recorder", ()

    def __init__(self):
        self.keys = []

    def take(self, key, cost=1):
        self.keys.append(key)
        raise OSError("recorded")


@pytest.mark.parametrize("key, expected", [
    ("all", "all"),
    (b"all", b"all"),
    (("a", "b,c"), b"1:a,3:b,c,"),
    (("a,1:b", "c"), b"5:a,1:b,1:c,"),
    (("a", lambda request: "b"), b"1:a,1:b,"),
    (lambda request: ("a", b"b"), b"1:a,1:b,"),
    (("a", ("b", "c")), b"1:a,8:1:b,1:c,,"),
    (("a", lambda request: None), None),
    (lambda request: None, None),
    (first_of(lambda request: None, "b"), "b"),
    (first_of(lambda request: None, ("a", lambda request: None), "c"), "c"),
    ((first_of(header("X-No"), "x"), "y"), b"1:x,1:y,"),
    (first_of(lambda request: None), None),
    (first_of(lambda request: "", "b"), ""),
])
def test_combined_keys(key, expected):
    recorder = Recorder()
    Rule(recorder, key).decide(request())
    assert recorder.keys == ([] if expected is None else [expected])


@pytest.mark.parametrize("key", [user, header, path, address, (address, "a"), first_of(user), 7])
def test_a_key_that_is_none(key):
    with pytest.raises(TypeError, match="call it|expected a function"):
        Rule(Recorder(), key)


@pytest.mark.parametrize("options, message", [
    ({"fields": "draft-12"}, "draft-11, draft-03, x-ratelimit, none"),
    ({"fields": ["none", "x"]}, "fields='x'"),
    ({"status": 200}, "400 to 599"),
    ({"limits": []}, "at least one limiter"),
])
def test_options_that_are_none(options, message):
    with pytest.raises(ValueError, match=message):
        Rule(**{"limits": Recorder(), **options})


def test_a_rule_holds_nothing(table):
    """It would not release the units when the response is sent."""
    with pytest.raises(ValueError, match=r"use limiter.hold\(\) around"):
        Rule(stint.Limiter(table, "9/1m", "concurrency 10 lease=30s"))


@pytest.mark.parametrize("spec, name", [
    ("100/1m", "100/1m"), ("100/60s", "100/1m"), ("5/90s", "5/90s"),
    ("gcra 10/1h burst=2", "10/1h"), ("7/1w", "7/7d"), ("1000/250ms", "1000/250ms"),
    ("9/1500us", "9/1500us"), ("1/1d", "1/1d"),
    ("fixed_window 5/1mo align=calendar", None),
])
def test_names_of_policies(spec, name, table):
    """Without a name of the limiter: the limit and the period, as one writes them."""
    policy = Rule(stint.Limiter(table, spec)).limits[0].policies[0]
    assert policy.name == (name or policy.name)
    assert policy.quoted == f'"{policy.name}"' and len(policy.name) < 12
    named = Rule([stint.Limiter(table, spec, name=text) for text in ('a"\\é\n', "b" * 200)])
    assert [limit.policies[0].quoted for limit in named.limits] == [
        r'"a\"\\??"', '"' + "b" * 100 + '"']


def test_a_list_of_policies_ends_where_it_is_too_long(table):
    """Both lists end before the first policy that exceeds 1,024 bytes in either."""
    limiters = [stint.Limiter(table, "9/1m", name=f"{i:02}-" + "x" * 60) for i in range(20)]
    fields = dict(Rule(limiters, "all").decide(request()).fields)
    lists = [fields[name].split(", ") for name in ("RateLimit-Policy", "RateLimit")]
    assert len(lists[0]) == len(lists[1]) == 13
    assert [item[:5] for item in lists[0]] == [item[:5] for item in lists[1]]
    assert all(960 < len(fields[name]) <= 1024 for name in ("RateLimit-Policy", "RateLimit"))
