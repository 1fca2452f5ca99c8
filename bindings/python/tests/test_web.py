# SPDX-License-Identifier: MIT
"""The same rows, with the same answers, through every framework. Time is virtual."""

from __future__ import annotations

import asyncio
import functools

import pytest
import web

import stint
from stint.http import Request, Rule, address, first_of, header, is_preflight, path

PROBLEM = "application/problem+json"
POLICY = '"2/1m";q=2;w=60'
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
FIELDS = ("RateLimit-Policy", "RateLimit", "RateLimit-Limit", "RateLimit-Remaining",
          "RateLimit-Reset", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset",
          "Retry-After")


def ok(*values, names=FIELDS[:2]):
    """Passes, with these values of these fields, and no others."""
    return 200, dict(zip(names, values))


def refused(*values, names=FIELDS[:2], status=429, retry="63"):
    return status, {**dict(zip(names, values)), **({"Retry-After": retry} if retry else {})}


def get(*headers, **request):
    return {"headers": headers, **request}


def forwarded(*values, peer="127.0.0.1", name="X-Forwarded-For"):
    return get(*((name, value) for value in values), peer=peer)


LEFT_1, LEFT_0 = ok(POLICY, '"2/1m";r=1;t=63'), ok(POLICY, '"2/1m";r=0;t=63')
REFUSED = refused(POLICY, '"2/1m";r=0;t=63')
PASSES = ok()
PREFLIGHT = get(("Origin", "https://a.test"), ("Access-Control-Request-Method", "POST"),
                method="OPTIONS")


def numbers(names):
    return [ok("2", "1", "63", names=names), ok("2", "0", "63", names=names),
            refused("2", "0", "63", names=names)]


def two(**options):
    """Two requests a minute of an address, behind a proxy at 127.0.0.1."""
    options.setdefault("key", address("127.0.0.1"))
    return lambda limiter: Rule(limiter("2/1m"), **options)


# What a rule is, the requests in order, and what each is answered.
ROWS = {
    "the third is refused": (two(), [get()] * 3, [LEFT_1, LEFT_0, REFUSED]),
    "each address has its own": (
        two(), [get(), get(peer="127.0.0.3"), get(), get()], [LEFT_1, LEFT_1, LEFT_0, REFUSED]),
    "every quota of a list": (
        lambda limiter: Rule(limiter("2/1s", "3/1m", name="api"), address()), [get()] * 3,
        [ok('"api:2/1s";q=2;w=1, "api:3/1m";q=3;w=60', '"api:2/1s";r=1;t=2, "api:3/1m";r=2;t=63'),
         ok('"api:2/1s";q=2;w=1, "api:3/1m";q=3;w=60', '"api:2/1s";r=0;t=2, "api:3/1m";r=1;t=63'),
         refused('"api:2/1s";q=2;w=1, "api:3/1m";q=3;w=60',
                 '"api:2/1s";r=0;t=2, "api:3/1m";r=1;t=63', retry="2")]),
    "several keys, all or none": (
        lambda limiter: Rule([limiter("1/1m", name="ip"),
                              (limiter("3/1m", name="token"), header("X-Token"), 2)], address()),
        [get(("X-Token", "a")), get(("X-Token", "b")), get(("X-Token", "a"), peer="127.0.0.3"),
         get(("X-Token", "b"), peer="127.0.0.3"), get(peer="127.0.0.4")],
        [ok('"ip";q=1;w=60, "token";q=3;w=60', '"ip";r=0;t=63, "token";r=1;t=63'),
         refused('"ip";q=1;w=60, "token";q=3;w=60', '"ip";r=0;t=63, "token";r=3'),
         refused('"token";q=3;w=60, "ip";q=1;w=60', '"token";r=1;t=63, "ip";r=1'),
         ok('"ip";q=1;w=60, "token";q=3;w=60', '"ip";r=0;t=63, "token";r=1;t=63'),
         ok('"ip";q=1;w=60', '"ip";r=0;t=63')]),
    "the same limit twice": (
        lambda limiter: Rule([limiter("3/1m"), (limiter("3/1m"), address(), 2)]), [get()] * 2,
        [ok('"3/1m #2";q=3;w=60, "3/1m";q=3;w=60', '"3/1m #2";r=0;t=63, "3/1m";r=2;t=63'),
         refused('"3/1m";q=3;w=60, "3/1m #2";q=3;w=60', '"3/1m";r=0;t=63, "3/1m #2";r=0;t=63')]),
    "draft-03": (two(fields="draft-03"), [get()] * 3, numbers(FIELDS[2:5])),
    "x-ratelimit": (two(fields="x-ratelimit"), [get()] * 3, numbers(FIELDS[5:8])),
    "two styles": (
        two(fields=["draft-11", "x-ratelimit"]), [get()],
        [ok(POLICY, '"2/1m";r=1;t=63', "2", "1", "63", names=FIELDS[:2] + FIELDS[5:8])]),
    "no fields": (two(fields="none"), [get()] * 3, [PASSES, PASSES, refused()]),
    "less than a second": (
        lambda limiter: Rule(limiter("gcra 10/1s burst=1"), address()), [get()] * 2,
        [ok('"10/1s";q=10;w=1', '"10/1s";r=0;t=1'),
         refused('"10/1s";q=10;w=1', '"10/1s";r=0;t=1', retry="1")]),
    "never": (two(cost=3), [get()], [refused(POLICY, '"2/1m";r=2', retry=None)]),
    "a limit of 0": (
        lambda limiter: Rule(limiter("0/1m"), address()), [get()],
        [refused('"0/1m";q=0;w=60', '"0/1m";r=0', retry=None)]),
    "a cost by request": (
        two(cost=lambda request: 2 if request.path == "/big" else 0),
        [get(), get(path="/big"), get(path="/big"), get()],
        [ok(POLICY, '"2/1m";r=2'), LEFT_0, REFUSED, LEFT_0]),
    "another status": (two(status=503), [get()] * 3,
                       [LEFT_1, LEFT_0, (503, REFUSED[1])]),
    "a dry run": (two(enforce=False), [get()] * 3, [PASSES] * 3),
    "exempt": (two(exempt=lambda request: request.path == "/health"),
               [get(path="/health")] * 3 + [get()], [PASSES] * 3 + [LEFT_1]),
    "preflights count": (two(), [PREFLIGHT] * 3, [LEFT_1, LEFT_0, REFUSED]),
    "preflights are exempt": (
        two(exempt=is_preflight), [PREFLIGHT] * 3 + [get(method="OPTIONS")],
        [PASSES] * 3 + [LEFT_1]),
    "no key, no limit": (two(key=header("X-Api-Key")), [get()] * 3, [PASSES] * 3),
    "a field as key": (
        two(key=header("X-Api-Key")),
        [get(("X-Api-Key", "a")), get(("x-api-key", "a")), get(("X-Api-Key", "b")),
         get(("X-API-KEY", "a"))], [LEFT_1, LEFT_0, LEFT_1, REFUSED]),
    "the first of several keys": (
        two(key=first_of(header("X-Api-Key"), address())),
        [get(("X-Api-Key", "a")), get(), get(("X-Api-Key", "a")), get(("X-Api-Key", "a"))],
        [LEFT_1, LEFT_1, LEFT_0, REFUSED]),
    "a tuple needs all parts": (
        two(key=("tenant", header("X-Tenant"), address())),
        [get(), get(("X-Tenant", "a")), get(("X-Tenant", "b")), get(("X-Tenant", "a")),
         get(("X-Tenant", "a"))], [PASSES, LEFT_1, LEFT_1, LEFT_0, REFUSED]),
    "a path in any spelling": (
        two(key=path()), [get(path="/a/b"), get(path="/a//c/%2E%2E/%62"), get(path="/a/b?c=d")],
        [LEFT_1, LEFT_0, REFUSED]),
    "one state of all": (two(key="all"), [get(), get(peer="127.0.0.3"), get()],
                         [LEFT_1, LEFT_0, REFUSED]),
    "from the proxy": (
        two(), [forwarded("192.0.2.1"), forwarded("192.0.2.2"), forwarded("192.0.2.1"),
                forwarded("1.1.1.1, 192.0.2.1"), forwarded("192.0.2.1", "127.0.0.1")],
        [LEFT_1, LEFT_1, LEFT_0, REFUSED, REFUSED]),
    "not from others": (
        two(), [forwarded("192.0.2.1", peer="127.0.0.2"), forwarded("192.0.2.2", peer="127.0.0.2"),
                forwarded("192.0.2.3", peer="127.0.0.2")], [LEFT_1, LEFT_0, REFUSED]),
    "a /64 of IPv6": (
        two(), [forwarded("2001:db8::1"), forwarded("[2001:db8::2]:443"),
                forwarded("2001:db8:0:1::1"), forwarded("2001:DB8:0:0:ffff::")],
        [LEFT_1, LEFT_0, LEFT_1, REFUSED]),
    "Forwarded": (
        two(), [forwarded("for=192.0.2.1", name="Forwarded"),
                forwarded('for=1.1.1.1;by=2.2.2.2, proto=https;For="192.0.2.1:8080"',
                          name="Forwarded"),
                forwarded("for=192.0.2.1", "for=127.0.0.1", name="forwarded")],
        [LEFT_1, LEFT_0, REFUSED]),
    "Forwarded with what a client has written": (
        two(), [forwarded(f'for=192.0.2.1;host="{host}"', name="Forwarded")
                for host in ("x,for=1.1.1.1;a=", "x;for=1.1.1.2", 'x\\",for=1.1.1.3;a=')],
        [LEFT_1, LEFT_0, REFUSED]),
    "both fields of a proxy": (
        two(), [get(("X-Forwarded-For", "192.0.2.1"), ("Forwarded", "for=192.0.2.2"),
                    peer="127.0.0.1")], [(400, {})]),
    "the field that counts": (
        two(key=address("127.0.0.1", field="X-Real-IP")),
        [get(("X-Real-IP", "192.0.2.1"), ("X-Forwarded-For", value), ("Forwarded", "for=2.2.2.2"),
             peer="127.0.0.1") for value in ("1.1.1.1", "1.1.1.2", "1.1.1.3")],
        [LEFT_1, LEFT_0, REFUSED]),
}


@pytest.fixture
def limiter(table):
    return functools.partial(stint.Limiter, table)


@pytest.fixture(params=web.FRAMEWORKS)
def framework(request):
    return request.param


def serve(framework, rule):
    return web.FRAMEWORKS[framework](rule)


def present(reply):
    return {name: reply.field(name) for name in FIELDS if reply.field(name) is not None}


@pytest.mark.parametrize("row", ROWS)
def test_every_framework_answers_the_same(framework, row, limiter):
    make_rule, requests, expected = ROWS[row]
    ask = serve(framework, make_rule(limiter))
    replies = [ask(**request) for request in requests]
    assert [(reply.status, present(reply)) for reply in replies] == expected


def test_a_refusal_is_a_problem(framework, limiter):
    ask = serve(framework, Rule(limiter("2/1m", "5/1h", name="login"), address(), cost=2))
    ask()
    reply = ask()
    # REST framework renders it as the view renders everything.
    assert reply.field("Content-Type") == ("application/json" if framework == "drf" else PROBLEM)
    assert reply.problem() == {
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Quota exceeded", "status": 429,
        "detail": "The units are not free now; retry after 63 s.",
        "violated-policies": ["login:2/1m"], "outcome": "deny", "granted": 0, "limit": 2,
        "remaining": 0, "retry_after_ms": 62500, "reset_after_ms": 62500}
    # Until the units return, to the nanosecond.
    assert ask().status == 429


@pytest.mark.parametrize("accept, is_json", [
    ("*/*", True), ("application/json", True), (PROBLEM, True), ("application/*;q=0.5", True),
    (BROWSER, False), ("text/plain", False), ("application/json;q=0, text/plain;q=0.1", False),
    ("application/json;q=x", False), (",;=,;q=1", False),
])
def test_the_client_chooses_the_body(framework, accept, is_json, limiter):
    if framework == "drf":
        pytest.skip("the view's renderers choose")
    ask = serve(framework, Rule(limiter("0/1m"), address()))
    reply = ask(headers=[("Accept", accept)])
    kind = reply.field("Content-Type")
    if is_json:
        assert kind == PROBLEM and reply.problem()["outcome"] == "never"
    else:
        assert kind == "text/plain; charset=utf-8"
        assert reply.body == b"Quota exceeded. The cost is larger than the quota ever allows.\n"


def test_head_has_no_body(framework, limiter):
    if framework == "drf":
        pytest.skip("the server removes it")
    reply = serve(framework, Rule(limiter("0/1m"), address()))(method="HEAD")
    assert (reply.status, reply.body) == (429, b"")


class Broken:
    """A limiter that fails, as one of a server without an answer."""

    name = "broken"
    quotas = (stint.Quota("2/1m"),)

    def __init__(self, error):
        self.error = error

    def take(self, key, cost=1):
        raise self.error

    peek = refund = take


@pytest.mark.parametrize("error", [stint.Error("no reply in time"), OSError(104, "reset")])
def test_no_answer_is_a_refusal(framework, error, limiter, caplog):
    counted = limiter("2/1m")
    rule = Rule([counted, Broken(error)], address())
    reply = serve(framework, rule)()
    assert reply.status == 503 and present(reply) == {}
    assert reply.problem()["detail"] == "Limits cannot be checked now."
    assert repr(error) in caplog.text
    assert counted.peek("address:127.0.0.2", 0).remaining == 2
    # A dry run refuses nothing.
    assert serve(framework, Rule(Broken(error), address(), enforce=False))().status == 200


def failure(ask):
    """The status, or what is raised to the framework's test client."""
    try:
        return ask().status
    except Exception as error:
        return type(error)


def raises(kind):
    def function(request):
        raise kind("of the application")

    return function


@pytest.mark.parametrize("options", [
    {"key": raises(KeyError)}, {"key": raises(ValueError)}, {"key": lambda request: 42},
    {"key": lambda request: ("a", 1)}, {"respond": raises(OSError), "cost": 3},
    {"cost": lambda request: -1}, {"cost": lambda request: 2**32}, {"cost": lambda request: "1"},
    {"exempt": raises(stint.Error)}, {"key": raises(OSError)},
], ids=range(10))
def test_an_error_of_a_function_does_not_pass(framework, options, limiter, caplog):
    """It is the framework's. A cost that the limiter refuses is its error."""
    options.setdefault("key", address())
    ask = serve(framework, Rule(limiter("2/1m"), **options))
    assert failure(ask) in (KeyError, ValueError, TypeError, UnicodeEncodeError, stint.Error,
                            OSError, 500, 503)


def test_a_key_of_64_kib_is_refused(framework, limiter):
    ask = serve(framework, Rule(limiter("2/1m"), lambda request: "k" * 65_537))
    assert (ask().status, ask().field("Retry-After")) == (429, None)


ASYNC = [name for name in web.FRAMEWORKS
         if name.startswith(("asgi", "starlette", "fastapi", "aiohttp", "django-async"))]


async def slow_key(request):
    return "one"


async def slow_cost(request):
    return 2


async def slow_exempt(request):
    return request.path == "/health"


class AsyncLimiter:
    """A limiter of another process: its verbs are awaited, and it has no table to look into."""

    def __init__(self, limiter):
        self.limiter, self.name, self.quotas = limiter, limiter.name, limiter.quotas

    async def take_async(self, key, cost=1):
        return self.limiter.take(key, cost)

    async def peek_async(self, key, cost=1):
        return self.limiter.peek(key, cost)

    async def refund_async(self, key, cost=1, granted_at_ns=None):
        return self.limiter.refund(key, cost, granted_at_ns)

    def take(self, key, cost=1):
        raise AssertionError("it has an async one")


@pytest.mark.parametrize("framework", ASYNC)
def test_functions_and_limiters_may_be_async(framework, limiter):
    remote = AsyncLimiter(limiter("4/1m"))
    rule = Rule([(remote, slow_key, slow_cost), limiter("9/1m")], slow_key, exempt=slow_exempt)
    ask = serve(framework, rule)
    assert [ask(path=path).status for path in ("/", "/health", "/", "/")] == [200, 200, 200, 429]
    assert limiter("9/1m").peek("one", 0).remaining == 7


@pytest.mark.parametrize("framework", sorted(set(web.FRAMEWORKS) - set(ASYNC)))
@pytest.mark.parametrize("options", [
    {"key": slow_key}, {"key": "a", "cost": slow_cost}, {"key": "a", "exempt": slow_exempt}])
def test_a_framework_without_async_says_so(framework, options, limiter, caplog):
    """A coroutine is true: it must not pass for an exemption."""
    ask = serve(framework, Rule(limiter("2/1m"), **options))
    assert failure(ask) in (TypeError, 500)


@pytest.mark.parametrize("way", ["cancelled", "closed"])
def test_a_request_that_is_cancelled_gives_its_units_back(limiter, way):
    """Those of a table: a server cannot be awaited any more."""
    first, cancelled = limiter("9/1m", name="first"), limiter("9/1m", name="cancelled")
    remote = AsyncLimiter(limiter("9/1m", name="remote"))

    class Slow(AsyncLimiter):
        async def take_async(self, key, cost=1):
            await asyncio.sleep(3600)

    rule = Rule([first, remote, Slow(cancelled)], "key")

    async def run():
        decision = rule.decide_async(Request(None, "GET", "/", "1.2.3.4", list, None))
        if way == "closed":
            decision.send(None)
            return decision.close()
        task = asyncio.create_task(decision)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert first.peek("key", 0).remaining == 9
    assert remote.limiter.peek("key", 0).remaining == 8


def test_two_rules_of_a_request(limiter):
    """The lists of both are in the reply; of the numbers those of the inner rule."""
    styles = ["draft-11", "x-ratelimit"]
    for make in web.NESTED:
        inner = Rule(limiter("1/1m", name=f"{make.__name__} in"), address(), fields=styles)
        outer = Rule(limiter("9/1m", name=f"{make.__name__} out"), address(), fields=styles)
        ask = make(outer, inner)
        for status, left in ((200, 8), (429, 7)):
            reply = ask()
            assert reply.status == status
            assert reply.field("RateLimit-Policy") == (
                f'"{make.__name__} in";q=1;w=60, "{make.__name__} out";q=9;w=60')
            assert reply.field("RateLimit") == (
                f'"{make.__name__} in";r=0;t=63, "{make.__name__} out";r={left};t=63')
            assert reply.field("X-RateLimit-Limit") == "1"


OWN = {
    "asgi": lambda request, verdict: web.starlette.responses.JSONResponse({"wait": True}, 420),
    "flask": lambda request, verdict: ({"wait": True}, 420),
    "django": lambda request, verdict: web.django.http.JsonResponse({"wait": True}, status=420),
    "aiohttp": lambda request, verdict: web.web.json_response({"wait": True}, status=420),
    "drf": lambda request, verdict: {"wait": True},
    "wsgi": lambda request, verdict: web.flask.Response('{"wait": true}', 420),
}


def test_an_own_response(framework, limiter):
    kind = framework.partition("-")[0]
    kind = "asgi" if kind in ("starlette", "fastapi") else kind
    rule = Rule(limiter("1/1m"), address(), status=420, respond=OWN[kind])
    ask = serve(framework, rule)
    assert ask().status == 200
    reply = ask()
    assert (reply.status, reply.problem()) == (420, {"wait": True})
    assert present(reply) == refused('"1/1m";q=1;w=60', '"1/1m";r=0;t=63')[1]


class Guess:
    """What a limiter of a server returns where its on_error decided."""

    binding = 0
    limit, remaining, reset_after_ns, error = 2, 0, 0, OSError("no reply in time")

    def __init__(self, outcome, wait_ns):
        self.outcome, self.retry_after_ns = outcome, wait_ns

    def __bool__(self):
        return self.outcome == "allow"


class Guesses(Broken):
    def __init__(self, *guess):
        self.guess = Guess(*guess)

    def take(self, key, cost=1):
        return self.guess

    peek = take

    def refund(self, *arguments):
        raise AssertionError("nothing was charged")


@pytest.mark.parametrize("styles", ["draft-11", "draft-03"])
@pytest.mark.parametrize("guess, status, retry", [(("allow", 0), 200, None),
                                                  (("deny", 10**9), 429, "1")])
def test_a_decision_of_on_error_has_no_figures(framework, guess, status, retry, styles, limiter):
    reply = serve(framework, Rule(Guesses(*guess), "all", fields=styles))()
    policy = {"RateLimit-Policy": '"broken";q=2;w=60'} if styles == "draft-11" else {}
    assert (reply.status, present(reply)) == (
        status, policy | ({"Retry-After": retry} if retry else {}))
    if retry:
        assert reply.problem()["remaining"] is None
    # Nothing of it is given back when another limit refuses.
    rule = Rule([Guesses("allow", 0), limiter("0/1m")], "all")
    assert serve(framework, rule)().status == 429
