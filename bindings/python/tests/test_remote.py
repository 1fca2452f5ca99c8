# SPDX-License-Identifier: MIT
"""A limiter of a server decides as one of a table does: each protocol, threads and tasks."""
from __future__ import annotations

import asyncio
import itertools
import math
import pickle
import subprocess
from pathlib import Path

import pytest
from remote_server import PATIENCE_S, Server, server, tables, tokens  # noqa: F401 (fixtures)

import stint
from stint import testing
from stint.remote import AsyncLimiter, AsyncRules, RemoteRules, ServerError

SCHEMES = ["stint", "unix", "http"]
MS = 1_000_000
numbers = itertools.count()

# A step is a verb with its arguments, or the seconds by which the clock advances.
STEPS = {
    "window": (["100/1m"], [
        ("take", 60), ("take", 60), ("peek", 40), ("take", 40), ("take", 0), 30, ("take", 1), 32.5,
        ("take", 100), ("take", 101), ("take_upto", 7),
    ]),
    "fractions of milliseconds": (["gcra 7/1s burst=3"], [
        ("take", 3), ("take", 1), 0.0001, ("take", 1), 0.1428, ("take", 1), ("take_upto", 2), 5,
        ("peek", 3), ("take", 4),
    ]),
    "a list": (["5/10s", "8/1m resolution=10", "gcra 3/1s"], [
        ("take", 3), ("take", 3), 1, ("take", 2), 2, ("take", 1), ("take", 9), 10, ("take", 3), 1,
        ("take", 1), ("peek", 1), ("take_upto", 3),
    ]),
    "charges and refunds": (["10/1m", "fixed_window 30/1h"], [
        ("charge", 25), ("take", 1), ("refund", 4, 0), ("take", 4), ("charge", 5), ("refund", 2),
        61, ("take", 3), ("take", 0), ("refund", 9, 61_000_000_000),
    ]),
    "no units": (["0/1m"], [("take", 1), ("take", 0), ("peek", 4_294_967_295), ("charge", 2)]),
    "large": (["gcra 4000000000/1d burst=4000000000"], [
        ("take", 4_000_000_000), ("take", 1), 60, ("take_upto", 4_294_967_295)]),
    "exact": (["log 3/1s", "buckets 5/10s time_slack=1s"], [
        ("take", 1), 0.25, ("take", 2), ("take", 1), 0.75, ("take", 1), ("take", 1), 9.5,
        ("take", 2),
    ]),
    "counters": (["sliding_counter 10/1m", "fixed_window 20/1d align=calendar"], [
        ("take", 7), 45, ("take", 7), 20, ("take", 5), ("take", 2), 3600, ("take", 10)]),
    "blocks": (["3/1s"], [
        ("take", 1), ("block", 2.5), ("take", 1), ("peek", 1), 1, ("take", 1), 1.5, ("take", 1),
        ("block", 9), ("take", 1), ("reset",), ("take", 3), ("take", 1),
    ]),
    "reservations": (["10/1m", "gcra 20/1s"], [
        ("reserve", 6), ("settle", 2), ("reserve", 8), ("reserve", 1), ("settle", 1),
        ("reserve", 10), ("take", 1), ("cancel",), ("cancel",), ("settle", 3), ("reserve", 2, 5.0),
        6, ("settle", 1), ("take", 1),
    ]),
    "holders": (["concurrency 3 lease=30s"], [
        ("hold", 2), ("hold", 2), ("renew",), ("take", 1), ("cancel",), ("hold", 2), 31,
        ("renew",), ("hold", 3), ("cancel",), ("cancel",),
    ]),
}


def seen(decision):
    """What a decision says, in the resolution of the protocols."""
    rounded = [ns if ns == 2**64 - 1 else -(-ns // MS) * MS
               for ns in (decision.retry_after_ns, decision.reset_after_ns)]
    assert decision.allowed == bool(decision) == (decision.outcome == "allow")
    assert decision.retry_after == math.inf or decision.retry_after < 10**9
    return (decision.outcome, decision.granted, decision.limit, decision.remaining, *rounded,
            decision.binding, decision.at_ns, str(decision.quota))


def run(limiter, steps, advance, key="key ✓"):
    """What each step of a list returns or raises."""
    results, opened = [], None
    for step in steps:
        if not isinstance(step, tuple):
            advance(step)
            continue
        verb, *args = step
        try:
            if verb in ("settle", "cancel", "renew"):
                result = getattr(opened, verb)(*args)
            else:
                result = getattr(limiter, verb)(key, *args)
        except stint.GoneError as error:
            result = error.code
        if verb in ("reserve", "hold"):
            opened = result if result.decision else opened
            result = result.decision
        results.append((step, result if result is None or isinstance(result, str)
                        else seen(result)))
    return results


@pytest.mark.parametrize("name", ["limiter", None])
@pytest.mark.parametrize("row", STEPS)
def test_decisions_are_those_of_a_table(tables, row, name):
    quotas, steps = STEPS[row]
    clock = testing.Clock()
    with stint.Table(clock=clock) as table:
        expected = run(stint.Limiter(table, *quotas, name=name), steps, clock.advance)
    assert any(result and result[0] in ("deny", "never") for _, result in expected)
    for scheme in SCHEMES:
        with Server() as running:
            table = tables.open(running.url(scheme))
            limiter = table.limiter(*quotas, name=name)
            assert run(limiter, steps, running.advance) == expected, scheme
            assert table.now() == int(sum(s for s in steps if not isinstance(s, tuple)) * 1e9)
            table.close()


# ---- Keys, names, arguments ----

@pytest.mark.parametrize("scheme", SCHEMES)
def test_keys_and_names_are_distinct(server, tables, scheme):
    table = tables.open(server.url(scheme))
    mark = f"{next(numbers)}"
    named = [table.limiter("1/1h", name=name)
             for name in (mark, f"{mark}:", f"{mark}:a", f"{mark}%3A", "é" + mark)]
    for limiter in named:
        for key in ("", "a", "a:a", "ü", "\ud800", "a\0b", "a\r\nb", '"', "x" * 9000):
            if scheme == "http" and key == "\ud800":
                with pytest.raises(ValueError, match="over HTTP a key is UTF-8"):
                    limiter.take(key)
                continue
            assert limiter.take(key) and not limiter.take(key), (limiter.name, key)
    assert table.limiter("1/1h").take(f"{mark}:b")
    assert not named[0].take("b"), "the key of a named limiter is NAME:KEY for other clients"
    assert named[0].take(b"bytes") and not named[0].take("bytes")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_long_keys(server, tables, scheme):
    limiter = tables.open(server.url(scheme)).limiter("1/1h")
    longest = f"{next(numbers)}".ljust(65536, "k")
    decision = limiter.take(longest + "k")
    assert decision.outcome == "never" and decision.retry_after == math.inf
    if scheme == "http":
        with pytest.raises(stint.QuotaError, match="expected at most 65536"):
            limiter.take(longest)
    else:
        assert limiter.take(longest) and not limiter.take(longest)
    assert limiter.take(f"{next(numbers)}")


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("options", [(), ("--argument-size", "4KiB", "--http-body-size", "4KiB")])
def test_no_key_makes_on_error_allow(tables, scheme, options):
    """Clients choose keys: none may be so long or odd that the server seems to be gone."""
    with Server(*options) as running:
        table = tables.open(running.url(scheme))
        for n in (1, 32):
            limiter = table.limiter(*(f"{i}/1h" for i in range(1, n + 1)), on_error="allow")
            for key in (*("x" * n for n in (3000, 5000, 33_000, 65_536, 65_537, 10_000_000)),
                        "\0" * 11_000, "\r\n" * 9, "\udcff", b"\xff" * 9, "{", ""):
                for _ in range(2):
                    try:
                        decision = limiter.take(key)
                    except ValueError:  # QuotaError is one
                        continue
                    assert decision.error is None, decision.error
                assert limiter.take("usual").from_server


ARGUMENTS = [
    (lambda limiter: limiter.take(3), TypeError, "a key is str or bytes"),
    (lambda limiter: limiter.take("k", 1.5), TypeError, "float"),
    (lambda limiter: limiter.take("k", -1), stint.QuotaError, "cost is -1"),
    (lambda limiter: limiter.take("k", 2**32), stint.QuotaError, "cost is 4294967296"),
    (lambda limiter: limiter.block("k", -1), stint.QuotaError, "seconds is -1"),
    (lambda limiter: limiter.reserve("k", 1, math.inf), stint.QuotaError, "expires is inf"),
    (lambda limiter: limiter.hold("k"), stint.QuotaError, "not of concurrency"),
]


@pytest.mark.parametrize(("call", "kind", "text"), ARGUMENTS)
def test_bad_arguments(server, tables, call, kind, text):
    limiter = tables.open(server.url("stint")).limiter("5/1s", on_error="allow")
    with pytest.raises(kind, match=text):
        call(limiter)


def test_quotas_that_cannot_be(server, tables):
    table = tables.open(server.url("stint"))
    for quotas in ((), ("5/1s",) * 33, ("5/1x",)):
        with pytest.raises(stint.QuotaError):
            table.limiter(*quotas)
    with pytest.raises(ValueError, match="expected one of raise, allow, deny"):
        table.limiter("5/1s", on_error="open")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_quota_that_the_server_refuses(tables, scheme):
    with Server("--quotas", "1") as running:
        table = tables.open(running.url(scheme))
        results = []
        for i in range(40):
            try:
                results.append(table.limiter(f"{i + 1}/1m").take("k"))
            except ServerError as error:
                results.append(error)
        full = [error for error in results if isinstance(error, ServerError)]
        assert full and {error.code for error in full} == {"FULL"}
        assert "full" in str(full[0]).lower() or "quota" in str(full[0])
        wide = table.limiter("log 8000/1m", on_error="allow")
        with pytest.raises(stint.QuotaError, match="the server refused the request: .*bytes"):
            wide.take("k")


URLS = [
    ("redis://x", "the scheme 'redis' is unknown"),
    ("localhost:7379", "the scheme 'localhost' is unknown"),
    ("", "it has no scheme"),
    ("stint://", "it has no host"),
    ("stint://h:0", "the port is 0"),
    ("stint://h:99999", "the port is no number"),
    ("stint://h/0", "stint:// has no path"),
    ("stint://h?db=1", "nothing after"),
    ("unix:relative", "not absolute"),
    ("unix://host/path", "not absolute"),
    ("stint://user@h", "a user without a secret"),
    ("stint://:a%0Ab@h", "printable"),
    ("http://h/a b", "%XX"),
    ("stint://[::1", "Invalid IPv6"),
]


@pytest.mark.parametrize(("url", "text"), URLS)
def test_bad_urls(tables, url, text):
    with pytest.raises(ValueError, match=text) as caught:
        stint.Limiter.connect(url, "5/1s")
    assert "%0A" not in str(caught.value)


def test_secrets_are_never_shown(tables):
    limiter = stint.Limiter.connect("stint://u:hidden@127.0.0.1:1", "5/1s")
    with pytest.raises(ServerError) as caught:
        limiter.take("k")
    with pytest.raises(ValueError, match="there is a token") as also:
        stint.Limiter.connect("stint://u:hidden@127.0.0.1:1", "5/1s", token="hidden")
    for text in (repr(limiter), repr(limiter.table), repr(limiter.table.address),
                 str(caught.value), str(also.value)):
        assert "hidden" not in text


# ---- Names, IPv6, TLS, tokens ----

def test_names_and_ipv6(tables):
    with Server("--resp", "[::1]:0") as running:
        host, port = "localhost", running.address("resp").rpartition(":")[2]
        six = next(a for a in running.ports["resp"] if a.startswith("["))
        for url in (f"stint://{host}:{port}", f"stint://{six}"):
            assert tables.open(url).limiter("5/1s").take("k")
        with pytest.raises(ServerError, match="cannot be resolved") as caught:
            tables.open("stint://name.invalid:7379").limiter("5/1s").take("k")
        assert caught.value.code == "UNREACHABLE"


def openssl(*args):
    subprocess.run(["openssl", *map(str, args)], check=True, capture_output=True, timeout=60)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """Certificate and key of localhost, by an authority of their own."""
    folder = tmp_path_factory.mktemp("tls")
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl("req", "-x509", *key, "-keyout", folder / "ca.key", "-out", folder / "ca.pem",
            "-days", 1, "-subj", "/CN=authority")
    openssl("req", *key, "-keyout", folder / "key", "-out", folder / "csr", "-subj", "/CN=server")
    (folder / "names").write_text("subjectAltName=DNS:localhost\n")
    openssl("x509", "-req", "-in", folder / "csr", "-CA", folder / "ca.pem", "-CAkey",
            folder / "ca.key", "-CAcreateserial", "-days", 1, "-extfile", folder / "names",
            "-out", folder / "pem")
    return folder


@pytest.fixture(scope="module")
def tls_server(certificates):
    with Server("--resp-tls", "127.0.0.1:0", "--http-tls", "127.0.0.1:0", "--tls-certificate",
                str(certificates / "pem"), "--tls-key", str(certificates / "key")) as running:
        yield running


def trusting(folder: Path):
    import ssl

    return ssl.create_default_context(cafile=str(folder / "ca.pem"))


@pytest.mark.parametrize("scheme", ["stints", "https"])
def test_tls(tls_server, certificates, tables, scheme):
    url = tls_server.url(scheme).replace("127.0.0.1", "localhost")
    table = tables.open(url, tls=trusting(certificates))
    limiter = table.limiter("3/1h", name=f"tls {next(numbers)}")
    assert [bool(limiter.take("k")) for _ in range(5)] == [True] * 3 + [False] * 2
    for wrong, options, text in (
        (url, {}, "certificate is refused.*cafile"),
        (tls_server.url(scheme), {"tls": trusting(certificates)}, "certificate is refused"),
        (url.replace(scheme, scheme[:-1]), {}, None),
        (tls_server.url(scheme[:-1]).replace(scheme[:-1], scheme), {}, "TLS handshake failed"),
    ):
        with pytest.raises(ServerError, match=text) as caught:
            tables.open(wrong, **options).limiter("3/1h").take("k")
        assert caught.value.code in (("TLS",) if text else ("CLOSED", "PROTOCOL")), caught.value


@pytest.mark.parametrize("scheme", ["stint", "http"])
def test_tokens(tmp_path, tables, scheme):
    path = tokens(tmp_path, app="ask", root="ask,administer")
    with Server("--tokens", path, "--auth-guesses", "0") as running:
        def limiter(token=None, secret=""):
            return tables.open(running.url(scheme, secret), token=token).limiter("3/1h")

        assert limiter("secret-of-app").take("k") and limiter(secret="secret-of-app").take("k")
        limiter("secret-of-root").reset("k")
        for wrong, call in (
            (limiter(), "take"), (limiter("wrong"), "take"), (limiter("secret-of-app"), "reset"),
        ):
            with pytest.raises(ServerError, match="token") as caught:
                getattr(wrong, call)("k")
            assert caught.value.code == "AUTH"
            assert "secret-of" not in str(caught.value)
        if scheme == "stint":
            named = running.url(scheme, "secret-of-app").replace("://:", "://app:")
            assert tables.open(named).limiter("3/1h").take("k")


# ---- on_error ----

def test_without_a_server(tables):
    table = tables.open("unix:/nowhere/stint")
    with pytest.raises(ServerError, match="unix:/nowhere/stint: cannot connect") as caught:
        table.limiter("5/1m").take("k")
    assert caught.value.code == "UNREACHABLE" and isinstance(caught.value, stint.Error)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.code, str(again)) == (caught.value.code, str(caught.value))
    for on_error in ("allow", "deny"):
        limiter = table.limiter("5/1m", on_error=on_error)
        allows = on_error == "allow"
        for decision in (limiter.take("k", 3), limiter.take_upto("k", 3), limiter.peek("k", 3),
                         limiter.charge("k", 3), limiter.refund("k", 3)):
            assert decision.outcome == on_error and bool(decision) == allows
            assert not decision.from_server
            assert decision.error.code in ("UNREACHABLE", "UNAVAILABLE")
            assert decision.granted == (3 if allows else 0) and decision.limit == 5
            assert decision.retry_after == (0 if allows else 1)
            assert decision.quota == stint.Quota("5/1m")
        reservation = limiter.reserve("k", 3)
        assert bool(reservation) == allows and reservation.ticket is None
        if allows:
            assert not reservation.settle(2).from_server
        with pytest.raises(stint.GoneError):
            reservation.settle(2)
        if not allows:
            with pytest.raises(stint.Limited):
                limiter.check("k")
        assert limiter.wait("k", timeout=0.5).allowed == allows
        for administers in (limiter.reset, lambda key, its=limiter: its.block(key, 1)):
            with pytest.raises(ServerError):
                administers("k")


# ---- What tasks alone have ----

def test_a_limiter_in_several_loops(server):
    limiter = AsyncLimiter.connect(server.url("stint"), "100/1h", name=f"loops {next(numbers)}",
                                   timeout=20)

    async def main():
        decisions = [await limiter.take("k")]
        await limiter.close()
        decisions += [await limiter.take("k"), await limiter.take_async("k")]
        await limiter.close()
        return [decision.remaining for decision in decisions]

    assert [asyncio.run(main()) for _ in range(2)] == [[99, 98, 97], [96, 95, 94]]


def test_reservations_in_async_with(server):
    async def main():
        limiter = AsyncLimiter.connect(server.url("stint"), "100/1h", name=f"r{next(numbers)}",
                                       timeout=20)
        async with limiter.reserve("k", 50) as reservation:
            assert (await limiter.peek("k", 0)).remaining == 50
            await reservation.settle(10)
        assert (await limiter.peek("k", 0)).remaining == 90
        with pytest.raises(KeyError):
            async with limiter.reserve("k", 50):
                raise KeyError
        assert (await limiter.peek("k", 0)).remaining == 90
        async with limiter.reserve("k", 95) as refused:
            assert not refused
        async with limiter.reserve("k", 20):
            pass
        assert (await limiter.peek("k", 0)).remaining == 70
        held = AsyncLimiter.connect(server.url("stint"), "concurrency 1 lease=30s",
                                    name=limiter.name, timeout=20)
        async with held.hold("k") as hold:
            await hold.renew()
            with pytest.raises(stint.Limited):
                async with held.hold("k"):
                    raise AssertionError("held twice")
        assert await held.take("k")
        for each in (limiter, held):
            await each.close()

    asyncio.run(main())


def test_reservations_in_with(server):
    limiter = stint.Limiter.connect(server.url("http"), "100/1h", name=f"r{next(numbers)}",
                                    timeout=20)
    with limiter.reserve("k", 50) as reservation:
        reservation.settle(10)
    with pytest.raises(KeyError), limiter.reserve("k", 50):
        raise KeyError
    assert limiter.peek("k", 0).remaining == 90
    limiter.close()


# ---- Counters ----

COUNTS = [
    ("count", 2, 10.0), 4, ("count", 3, 99.0), ("counter",), ("count", -4), ("count", -9), 7,
    ("counter",), ("count", 0), ("count", 1, 0.0015), ("reset_counter",), ("counter",),
    ("count", 4_294_967_295, 3.5e6),
]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_counters_are_those_of_a_table(tables, scheme):
    def run(table, advance):
        results = []
        for step in COUNTS:
            if isinstance(step, int):
                advance(step)
                continue
            verb, *args = step
            counted = getattr(table, verb)("key ✓", *args)
            if counted is not None:
                wait_ms = math.ceil(counted.expires_after_ns / MS)
                assert math.ceil(counted.expires_after * 1000 - 1e-6) == wait_ms
                counted = (counted.count, wait_ms)
            results.append((step, counted))
        return results

    clock = testing.Clock()
    with Server() as running, stint.Table(clock=clock) as local:
        table = tables.open(running.url(scheme))
        assert run(table, running.advance) == run(local, clock.advance)
        for args in (("k", 1), ("k", 2**32, 1), ("k", 1, -1), ("k" * 65537, 1, 1)):
            for each in (local, table):
                with pytest.raises(stint.QuotaError):
                    each.count(*args)


# ---- Pools ----

POOLS = """
pools:
  - name: keys
    keys:
      - {name: first, quotas: [2/1m]}
      - {name: second, quotas: [1/1m]}
"""


@pytest.mark.parametrize("scheme", SCHEMES)
def test_pools(tmp_path, tables, scheme):
    config = tmp_path / "config.yaml"
    config.write_text(POOLS)
    with Server("--config", str(config)) as running:
        pool = tables.open(running.url(scheme)).pool("keys")
        leases = [pool.next() for _ in range(4)]
        assert sorted(filter(None, (lease.name for lease in leases))) == ["first", "first",
                                                                          "second"]
        assert not leases[3] and 0 < leases[3].retry_after <= 65
        assert pool.give_back("first", 1, leases[0].granted_at_ns) == 1
        pool.report("first", cooldown=120)
        assert {status.name: status.standing for status in pool.status()} == {
            "first": "cooling", "second": "used_up"}
        pool.report("second", ok=False)
        assert pool.next(probe=True).name == "first"
        pool.report("first", ok=True)
        pool.report("second", out=True)
        pool.add("third", ["5/1m", "9/1h"], weight=2)
        assert [status.weight for status in pool.status() if status.name == "third"] == [2]
        pool.remove("third")
        for call in (lambda: pool.report("third", ok=False), lambda: pool.remove("third")):
            with pytest.raises(stint.GoneError):
                call()
        running.advance(3600)
        assert pool.next().name == "first"
        for i in range(500):
            pool.add(f"key-{i:03}-{'x' * 60}", "1/1m")
        assert len(pool.status()) == 502
        with pytest.raises(stint.QuotaError):
            pool.next(cost=-1)


# ---- The rules of a server ----

RULES = """
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 10}
  - key: plan
    value: free
    descriptors:
      - key: tokens
        rate_limit: {unit: minute, requests_per_unit: 20}
  - key: jobs
    rate_limit: {algorithm: concurrency, requests_per_unit: 2, lease: 30s}
  - key: vip
    rate_limit: {unlimited: true}
"""
USER, TOKENS, JOBS = {"user": "é"}, {"plan": "free", "tokens": "42"}, {"jobs": "42"}
# The same limits of a limiter of a table, whose key is then "key ✓".
OF_RULES = {
    "one": (USER, ["10/1m"], [
        ("take", 6), ("take", 6), ("peek", 4), ("take", 4), ("take", 0), 62.5, ("take", 10),
        ("take", 11), ("charge", 3), ("refund", 2, 62_500_000_000), ("take_upto", 7),
        ("block", 2.5), ("take", 0), ("reset",), ("take", 10),
    ]),
    "several": ([USER, TOKENS], ["10/1m", "20/1m"], [
        ("take", 10), ("take", 1), ("charge", 8), 62.5, ("take", 3), ("peek", 8), ("take_upto", 9),
    ]),
    "reservations": ([USER, TOKENS], ["10/1m", "20/1m"], [
        ("reserve", 6), ("settle", 2), ("reserve", 8), ("reserve", 1), ("settle", 1),
        ("reserve", 10), ("take", 1), ("cancel",), ("cancel",), ("settle", 3), ("reserve", 2, 5.0),
        6, ("settle", 1), ("take", 1),
    ]),
    "holders": (JOBS, ["concurrency 2 lease=30s"], [
        ("hold", 2), ("hold", 1), ("renew",), ("take", 1), ("cancel",), ("hold", 1), 31,
        ("renew",), ("hold", 2), ("cancel",), ("cancel",),
    ]),
}


@pytest.fixture
def rules_file(tmp_path):
    path = tmp_path / "rules.yaml"
    path.write_text(RULES)
    return str(path)


@pytest.mark.parametrize("row", OF_RULES)
def test_rules_decide_as_a_table_does(tables, rules_file, row):
    """The same quotas in the rules of a server, and in a table."""
    target, quotas, steps = OF_RULES[row]
    clock = testing.Clock()
    with stint.Table(clock=clock) as table:
        expected = [(step, result if result is None or isinstance(result, str) else result[:-1])
                    for step, result in run(stint.Limiter(table, *quotas), steps, clock.advance)]
    assert any(result and result[0] in ("deny", "never") for _, result in expected)
    for scheme in SCHEMES:
        with Server("--rules", rules_file) as running:
            rules = tables.open(running.url(scheme)).rules("shop")
            found = run(rules, steps, running.advance, target)
            assert [(step, result if result is None or isinstance(result, str) else result[:-1])
                    for step, result in found] == expected, scheme


@pytest.mark.parametrize("scheme", SCHEMES)
def test_rules_that_do_not_match_limit_nothing(tables, rules_file, scheme):
    with Server("--rules", rules_file) as running:
        table = tables.open(running.url(scheme))
        rules, other = table.rules("shop"), table.rules("other")
        for of, target in ((rules, {"vip": "1"}), (rules, {"nothing": "1"}), (other, USER),
                           (rules, {"tokens": "42", "plan": "free"})):
            decision = of.take(target, 5)
            assert decision and decision.granted == 5 and not decision.is_limited
            assert decision.limit == decision.remaining == 2**32 - 1 and decision.quota is None
            reservation = of.reserve(target, 7)
            assert reservation and reservation.settle(3).allowed
        both = rules.take([{"vip": "1"}, USER])
        assert (both.is_limited, both.remaining, both.binding) == (True, 9, 1)
        assert rules.take((("user", "é"),)).remaining == 8
        assert rules.take({"user": "è"}).remaining == 9


def test_descriptors_that_are_none(server, tables):
    table = tables.open(server.url("stint"))
    rules = table.rules("shop")
    for wrong in ("user", b"user", {}, [], (), {"user": 42}, {"user": b"42"}, [{"user": "1"}, "x"],
                  ("user", "42"), [("user", "42")], {"a": "b"}.items(), None, 5, [[USER]],
                  [{str(i): "x"} for i in range(33)], {str(i): "x" for i in range(33)}):
        with pytest.raises((TypeError, stint.QuotaError)):
            rules.take(wrong)
    assert rules.take([{str(i): "x" for i in range(32)}] * 32)
    with pytest.raises(stint.QuotaError, match="too long"):
        rules.take({"user": "x" * (1 << 20)})
    for wrong in ("", None, 5):
        with pytest.raises(TypeError):
            table.rules(wrong)
    with pytest.raises(ValueError, match="on_error"):
        table.rules("shop", on_error="ignore")
    away = tables.open("stint://127.0.0.1:1").rules("shop", on_error="deny")
    assert not away.take(USER) and away.take(USER).error.code == "UNREACHABLE"


def test_the_longest_reply_about_rules(tmp_path, tables):
    """As many descriptors as there may be, of rules with long paths."""
    long = {f"entry {i:03} {'x' * 100}": "v" for i in range(13)}
    path = tmp_path / "rules.yaml"
    nested = "rate_limit: {unit: minute, requests_per_unit: 99}"
    for key in reversed(long):
        nested = f"descriptors: [{{key: {key}, {nested}}}]"
    path.write_text(f"domain: shop\n{nested}\n")
    with Server("--rules", str(path)) as running:
        for scheme in SCHEMES:
            rules = tables.open(running.url(scheme)).rules("shop")
            assert rules.take([long] * 32).limit == 99


def test_connecting_to_rules(rules_file):
    with Server("--rules", rules_file) as running:
        with RemoteRules.connect(running.url("stint"), "shop", timeout=PATIENCE_S).table as table:
            assert table.rules("shop").take(USER).remaining == 9
            assert "domain 'shop'" in repr(table.rules("shop"))

        async def main():
            rules = AsyncRules.connect(running.url("http"), "shop", timeout=PATIENCE_S)
            assert (await rules.take_async(USER)).remaining == 8
            assert (await rules.wait(USER)).remaining == 7
            async with rules.hold(JOBS) as hold:
                assert hold
            await rules.close()

        asyncio.run(main())
