# SPDX-License-Identifier: MIT
"""Hostile requests at the recipes of contrib/: no client over its limit reaches the application.

Clients are told apart by their addresses on loopback. The one that is over its limit sends each
request of a table; none may reach the application, and after each the honest client is served. The
application is a peer of bytes without limits of its own, and so is stint where a test needs an odd
one.
"""
import contextlib

import pytest

from proxies import ENVOY, OK, OPTIONS, PROXIES, TRAEFIK, Peer, envoy, traefik
from server import Server, free_port

OVER, HONEST, FRESH = "127.0.0.2", "127.0.0.3", "127.0.0.4"
LIMIT = 3
ROOT_LIMIT = 10000
RULES = f"""\
domain: DOMAIN
descriptors:
  - key: remote_address
    value: {OVER}
    rate_limit: {{unit: hour, requests_per_unit: 1, name: over}}
  - key: remote_address
    value: {FRESH}
    rate_limit: {{unit: hour, requests_per_unit: {LIMIT}, name: fresh}}
  - key: remote_address
    rate_limit: {{unit: hour, requests_per_unit: 100000, name: per-address}}
  - key: path
    value: /login
    rate_limit: {{unit: hour, requests_per_unit: 1, name: logins}}
  - key: path
    value: /
    rate_limit: {{unit: hour, requests_per_unit: {ROOT_LIMIT}, name: root}}
"""
ALL = [*PROXIES, TRAEFIK, ENVOY]
SEVERAL = [*PROXIES, ENVOY]


def request(*fields, target="/", method="GET", version="HTTP/1.1", host="Host: example.com",
            body="", connection="Connection: close"):
    lines = [f"{method} {target} {version}", *filter(None, [host, connection]), *fields, "", body]
    return "\r\n".join(lines).encode()


def cookies(number, length):
    """As many cookies, each of so many bytes with its separator, in one field."""
    return "Cookie: " + "; ".join(f"c{i:03}".ljust(length - 3, "=") + "1" for i in range(number))


def numbered(number, value="1"):
    return [f"X-F{i}: {value}" for i in range(number)]


def hiding(name, value="198.51.100.7"):
    """A field that the proxy is asked to take away as if it belonged to one connection alone."""
    return request(f"{name}: {value}", connection=f"Connection: close, {name}")


LONG = "a" * 9000
METHODS = ["HEAD", "OPTIONS", "POST", "PUT", "DELETE", "PATCH", "TRACE", "PROPFIND", "FOO",
           "M" * 7000]

# What the client sends that is over its limit.
FLOODS = {
    "as it should be": request(),
    "140 cookies": request(cookies(140, 8)),
    "131 tiny cookies": request(cookies(131, 5)),
    "66 cookies of 40 bytes": request(cookies(66, 40)),
    "140 Cookie fields": request(*["Cookie: a=b"] * 140),
    "95 fields": request(*numbered(95)),
    "135 fields": request(*numbered(135)),
    "1000 fields": request(*numbered(1000)),
    "a field of 9,000 bytes": request("X-Long: " + LONG),
    "two fields of 7,000 bytes": request("X-A: " + LONG[:7000], "X-B: " + LONG[:7000]),
    "a path of 9,000 bytes": request(target="/" + LONG),
    "a path of 7,000 bytes": request(target="/" + LONG[:7000]),
    "a path of 8,100 bytes": request(target="/" + LONG[:8100]),
    "a path of 6,100 bytes": request(target="/" + LONG[:6099]),
    "a path of 50,000 bytes": request(target="/" + LONG * 5 + LONG[:5000]),
    "145 parameters": request(target="/?" + "&".join(f"p{i}=1" for i in range(145))),
    "7,000 &": request(target="/?" + "&" * 7000),
    "5,000 &": request(target="/?" + "&" * 5000),
    "a Host of 3,000 bytes": request(host="Host: " + LONG[:3000]),
    "a Host of 6,500 bytes": request(host="Host: " + LONG[:6500]),
}
LIES = {
    "X-Forwarded-For": request("X-Forwarded-For: 198.51.100.7"),
    "many X-Forwarded-For": request(*["X-Forwarded-For: 198.51.100.7"] * 60),
    "a long X-Forwarded-For": request("X-Forwarded-For: " + ", ".join(["198.51.100.7"] * 200)),
    "X-Forwarded-For of loopback": request("X-Forwarded-For: 198.51.100.7, 127.0.0.1"),
    "Forwarded": request("Forwarded: for=198.51.100.7"),
    "X-Real-IP": request("X-Real-IP: 198.51.100.7", "X-Client-IP: 198.51.100.7",
                         "True-Client-IP: 198.51.100.7", "X-Envoy-External-Address: 198.51.100.7"),
    "X-Original-URI": request("X-Original-URI: /other"),
    "X-Forwarded-Uri": request("X-Forwarded-Uri: /other", "X-Forwarded-Method: GET"),
    "two URIs": request("X-Original-URI: /a", "X-Original-URI: /b", "X-Forwarded-Uri: /c"),
    "X-Original-Method": request("X-Original-Method: PUT", "X-HTTP-Method-Override: PUT"),
    "fields of stint": request("X-Stint-Outcome: allowed", "X-Stint-Path: /other", "RateLimit: x",
                               "RateLimit-Policy: x", "X-Stint: 1", "Stint-Status: 200"),
    "underscores": request("X_Forwarded_For: 198.51.100.7", "X_Original_URI: /other"),
    "Connection: X-Forwarded-For": hiding("X-Forwarded-For"),
    "Connection: Forwarded": hiding("Forwarded", "for=198.51.100.7"),
    "Connection names what a proxy sets": request(
        connection="Connection: close, X-Forwarded-For, X-Forwarded-Uri, X-Forwarded-Method, "
                   "X-Original-URI, X-Original-Method, X-Stint-Path, Host, Cookie"),
    "two Connection fields": request("Connection: X-Forwarded-For", "Connection: X-Original-URI"),
    "Authorization": request("Authorization: Bearer secret", "Proxy-Authorization: Basic YTpi"),
    "Origin of elsewhere": request("Origin: http://evil.example", "Sec-Fetch-Site: cross-site"),
    "conditions": request("If-None-Match: *", "If-Modified-Since: Thu, 01 Jan 2099 00:00:00 GMT",
                          "Range: bytes=0-0", "Cache-Control: only-if-cached"),
}
FORMS = {
    **{f"method {method[:8]}": request(method=method) for method in METHODS},
    "CONNECT": request(target="example.com:443", method="CONNECT"),
    "OPTIONS *": request(target="*", method="OPTIONS"),
    "an absolute target": request(target="http://example.com/page"),
    "an absolute target of another host": request(target="http://127.0.0.1:8080/auth"),
    "a query for stint": request(target="/page?domain=none"),
    "another query for stint": request(target="/page?deny_status=499&domain=none#x"),
    "a target that names the recipe's own": request(target="/.stint"),
    "/ask": request("Content-Length: 4", target="/ask", body="body"),
    "/auth": request("Content-Length: 4", target="/auth?domain=none&deny_status=599", body="body"),
    "HTTP/1.0": request(version="HTTP/1.0"),
    "HTTP/1.0 without Host": request(version="HTTP/1.0", host=""),
    "HTTP/1.1 without Host": request(host=""),
    "two Hosts": request("Host: other.example"),
    "HTTP/0.9": b"GET /\r\n\r\n",
    "HTTP/2 asked for": request("Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__",
                                connection="Connection: Upgrade, HTTP2-Settings"),
    "a WebSocket": request("Upgrade: websocket", "Sec-WebSocket-Version: 13",
                           "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
                           connection="Connection: Upgrade"),
    "Expect": request("Expect: 100-continue", "Content-Length: 4", method="POST", body="body"),
    "Expect of something": request("Expect: nothing"),
    "a body of GET": request("Content-Length: 4", body="body"),
    "a chunked body": request("Transfer-Encoding: chunked", method="POST",
                              body="4\r\nbody\r\n0\r\n\r\n"),
    "two lengths": request("Content-Length: 4", "Content-Length: 5", method="POST", body="body1"),
    "a length and chunks": request("Content-Length: 4", "Transfer-Encoding: chunked", method="POST",
                                   body="0\r\n\r\n"),
    "a folded field": request("X-A: 1\r\n 2"),
    "a space before the colon": request("X-Forwarded-For : 198.51.100.7"),
    "a NUL": request("X-A: \0"),
    "a bare LF": b"GET / HTTP/1.1\nHost: example.com\nConnection: close\n\n",
    "bytes above 127": request(target="/BYTES").replace(b"BYTES", b"\xff\xfe?\xf0\x9f"),
    "%00": request(target="/page%00"),
    "%0d%0a": request(target="/%0d%0aX-Forwarded-For:%20198.51.100.7%0d%0a"),
    "braces": request(target="/{http.request.header.X-A}%{ENV:PATH}${path}",
                      host="Host: {http.vars.for}"),
    "two at once": request(connection="Connection: keep-alive") + request(),
}
HOSTILE = {**FLOODS, **LIES, **FORMS}

# What another client sends while /login has used up its limit; each is /login for an application.
LOGIN = {
    **{target: request(target=target) for target in
       ["/login", "//login", "///login", "/./login", "/%6cogin", "/%6Cog%69n", "/x/../login",
        "/x/%2e%2e/login", "/x/.%2E/login", "/login?x", "/login?", "/login?/../other",
        "//login?a=/b", "http://example.com/login", "http://example.com//login",
        "HTTP://example.com/login?x"]},
    "POST": request("Content-Length: 4", target="/login", method="POST", body="body"),
    "HEAD": request(target="/login", method="HEAD"),
    **{name: request(f"{name}: /other", target="/login") for name in
       ["X-Original-URI", "X-Forwarded-Uri", "X-Original-URL", "X-Rewrite-URL", "X-Stint-Path"]},
    "two X-Original-URI": request("X-Original-URI: /a", "X-Original-URI: /b", target="/login"),
    "Connection: X-Original-URI": request("X-Original-URI: /other", target="/login",
                                          connection="Connection: close, X-Original-URI"),
    "Connection: X-Forwarded-Uri": request("X-Forwarded-Uri: /other", target="/login",
                                           connection="Connection: close, X-Forwarded-Uri"),
    "Connection: X-Stint-Path": request("X-Stint-Path: /other", target="/login",
                                        connection="Connection: close, X-Stint-Path"),
    "a long query": request(target="/login?" + LONG[:6000]),
}


# The same for "/", which an absolute target need not name. nginx passes the last one.
ROOT = {target: request(target=target) for target in
        ["/", "//", "/.", "/x/..", "/?x", "http://example.com", "http://example.com/",
         "http://example.com?x=1"]}


def domain_of(proxy):
    """That of its recipe."""
    return "edge" if proxy is envoy else "web"


def use_up(server, proxy, key, value, cost=1):
    status, _ = server.post("/v1/take", {"domain": domain_of(proxy), "cost": cost, "descriptors": [
        {"entries": [{"key": key, "value": value}]}]})
    assert status == 200


@contextlib.contextmanager
def behind(proxy, folder, servers=1, **options):
    """The proxy, the application and as many servers of stint, each without a unit left for the
    client that is over its limit, and for /login."""
    with contextlib.ExitStack() as stack:
        rules = RULES.replace("DOMAIN", domain_of(proxy))
        stints = [stack.enter_context(Server(*OPTIONS, rules=rules)) for _ in range(servers)]
        application = stack.enter_context(Peer())
        for server in stints:
            use_up(server, proxy, "remote_address", OVER)
            use_up(server, proxy, "path", "/login")
        protocol = "grpc" if proxy is envoy else "http"
        front = stack.enter_context(proxy(folder, [server.port(protocol) for server in stints],
                                          application.port, **options))
        wait_until_served(front)
        application.heads.clear()
        yield front, application, stints


def wait_until_served(front):
    """Until health checks have found all servers."""
    in_a_row = 0
    for _ in range(400):
        in_a_row = in_a_row + 1 if front.ask("/warm", source=HONEST)[0] == 200 else 0
        if in_a_row == 4:
            return
        front.pause()
    raise AssertionError("the proxy has not found stint")


def find_holes(front, application, table, source):
    """What let something through, or hurt the honest client, and with which statuses."""
    holes = {}
    for name, data in table.items():
        status = front.send(data, source)
        reached = len(application.heads)
        honest = [front.ask("/page", source=HONEST)[0] for _ in range(3)]
        if reached or status // 100 == 2 and name not in ANSWERED or honest != [200] * 3:
            holes[name] = (status, f"{reached} reached the application", honest)
        application.heads.clear()
    return holes


# Apache answers these itself; nothing of the application is in them.
ANSWERED = ["OPTIONS *"]


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("proxy", SEVERAL)
def test_a_client_over_its_limit_never_gets_through(proxy, servers, tmp_path):
    with behind(proxy, tmp_path, servers) as (front, application, _):
        assert not find_holes(front, application, HOSTILE, OVER)


@pytest.mark.parametrize("proxy", SEVERAL)
def test_fail_open_opens_for_none_of_them(proxy, tmp_path):
    with behind(proxy, tmp_path, fail_open=True) as (front, application, _):
        assert not find_holes(front, application, HOSTILE, OVER)


@pytest.mark.parametrize("proxy", [TRAEFIK])
def test_a_client_over_its_limit_never_gets_through_traefik(proxy, tmp_path):
    with behind(proxy, tmp_path) as (front, application, _):
        assert not find_holes(front, application, HOSTILE, OVER)


@pytest.mark.parametrize("proxy", ALL)
def test_no_spelling_of_a_path_escapes_its_limit(proxy, tmp_path):
    with behind(proxy, tmp_path) as (front, application, _):
        assert not find_holes(front, application, LOGIN, HONEST)


@pytest.mark.parametrize("proxy", ALL)
def test_no_spelling_of_the_root_escapes_its_limit(proxy, tmp_path):
    with behind(proxy, tmp_path) as (front, application, stints):
        for server in stints:
            use_up(server, proxy, "path", "/", ROOT_LIMIT)
        assert not find_holes(front, application, ROOT, HONEST)


@pytest.mark.parametrize("proxy", ALL)
def test_hostile_requests_are_counted(proxy, tmp_path):
    """A client that has units left does not get more through than it has."""
    with behind(proxy, tmp_path) as (front, application, _):
        for data in HOSTILE.values():
            front.send(data, FRESH)
        assert len(application.heads) <= LIMIT


@pytest.mark.parametrize("proxy", ALL)
def test_cookies_are_no_reason_to_refuse(proxy, tmp_path):
    """They do not go to stint, so that it has no limit for them."""
    with behind(proxy, tmp_path) as (front, application, _):
        names = ["140 cookies", "131 tiny cookies", "66 cookies of 40 bytes", "95 fields",
                 "145 parameters"]
        statuses = {name: front.send(HOSTILE[name], HONEST) for name in names}
        assert statuses == dict.fromkeys(names, 200)
        assert len(application.heads) == len(names)


# ---- what goes to stint ----

SENT = {"accept", "host", "connection", "te", "user-agent", "accept-encoding", "x-forwarded-for",
        "x-forwarded-host", "x-forwarded-proto", "x-forwarded-port", "x-forwarded-method",
        "x-forwarded-uri", "x-original-uri", "x-original-method", "x-forwarded-server"}


@pytest.mark.parametrize("proxy", [*PROXIES, TRAEFIK])
def test_only_a_few_fields_go_to_stint(proxy, tmp_path):
    with Peer() as stint, Peer() as application, \
            proxy(tmp_path, [stint.port], application.port) as front:
        data = request("Cookie: a=secret", "Authorization: secret", "X-Forwarded-For: secret",
                       "X-Forwarded-Uri: secret", "X-Api-Key: secret", "Content-Type: secret",
                       "Content-Length: 6", *numbered(30, "secret"), "User-Agent: secret",
                       "X-Forwarded-Prefix: secret", "Forwarded: secret", "Accept: secret",
                       target="/x?y=1", method="POST", body="secret")
        assert front.send(data, HONEST) == 200
        assert b"secret" in application.heads[0]
        (head,) = stint.heads
        line, *fields = head.decode().rstrip("\r\n").split("\r\n")
        fields = {name.lower(): value for name, value in (field.split(": ", 1) if ": " in field
                                                          else (field.rstrip(":"), "")
                                                          for field in fields)}
        assert line.startswith("GET /auth") and "secret" not in head.decode()
        assert set(fields) <= SENT
        assert fields["x-forwarded-for"] == HONEST
        assert fields["x-forwarded-host"] == "example.com"
        assert fields.get("x-original-uri", fields.get("x-forwarded-uri")) == "/x?y=1"
        assert fields.get("x-original-method", fields.get("x-forwarded-method")) == "POST"


@pytest.mark.parametrize("proxy", PROXIES)
def test_what_goes_to_stint_has_a_greatest_length(proxy, tmp_path):
    """Below the 8 KiB that stint reads; above, the proxy itself refuses."""
    with Peer() as stint, Peer() as application, \
            proxy(tmp_path, [stint.port], application.port) as front:
        assert front.send(request(target="/" + LONG[:6100]), HONEST) == 200
        assert len(stint.heads[0]) < 7000
        for table in (FLOODS, LIES, FORMS):
            for data in table.values():
                front.send(data, HONEST)
        assert max(map(len, stint.heads)) < 7000
        stint.heads.clear()
        assert front.send(request(target="/" + LONG[:6200]), HONEST) == 414
        assert not stint.heads


KEYS = """\
domain: web
descriptors:
  - key: x-api-key
    rate_limit: {unit: hour, requests_per_unit: 2, name: keys}
"""


@pytest.mark.parametrize("proxy", [*PROXIES, TRAEFIK])
def test_a_field_that_is_named_goes_to_stint(proxy, tmp_path):
    options = ["--http-domain", "web", "--http-descriptors", "header:x-api-key",
               "--http-trusted-proxies", "127.0.0.1"]
    with Server(*options, rules=KEYS) as server, Peer() as application, \
            proxy(tmp_path, [server.http], application.port, client_field=True) as front:
        for key in ("one", "two"):
            named = request(f"X-Api-Key: {key}")
            assert [front.send(named, HONEST) for _ in range(3)] == [200, 200, 429]
        application.heads.clear()
        # It counts for the length. Traefik has none of its own: there stint refuses.
        for length in [9000] if proxy is traefik else [6500, 9000]:
            assert front.send(request("X-Api-Key: " + LONG[:length]), HONEST) // 100 != 2
        assert not application.heads


# ---- what stint answers ----

def answer(status, *fields, body=""):
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *fields, "",
             body]
    return "\r\n".join(lines).encode()


LARGE = "RateLimit-Policy: " + "x" * 40000
ANSWERS = {  # refusals, under fail-open, too
    "denied": answer("429 Too Many Requests", "Retry-After: 1"),
    "denied with 403": answer("403 Forbidden"),
    "400": answer("400 Bad Request"),
    "401": answer("401 Unauthorized"),
    "404": answer("404 Not Found"),
    "414": answer("414 URI Too Long"),
    "431": answer("431 Request Header Fields Too Large"),
    "302": answer("302 Found", "Location: /auth"),
    "304": answer("304 Not Modified"),
    "300 with a body": answer("300 Multiple Choices", body="x" * 100),
}
UNAVAILABLE = {  # under fail-open requests pass
    "500": answer("500 Internal Server Error"),
    "503": answer("503 Service Unavailable", "Retry-After: 1"),
    "507": answer("507 Insufficient Storage"),
    "nothing": b"",
}
BROKEN = {  # whatever a fail-open makes of them, by default they are refusals
    "no HTTP": b"+OK\r\n",
    "half a head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "no status": b"HTTP/1.1 \r\n\r\n",
    "a status of four digits": b"HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n",
    "100 and nothing": b"HTTP/1.1 100 Continue\r\n\r\n",
    "too large a denial": answer("429 Too Many Requests", LARGE),
    "too large a failure": answer("503 Service Unavailable", LARGE),
}


def ask_with(proxy, folder, answers, **options):
    """The status for each answer of stint, and how many requests reached the application."""
    found = {}
    with Peer() as stint, Peer() as application, \
            proxy(folder, [stint.port], application.port, **options) as front:
        for name, data in answers.items():
            stint.answer = data
            status = front.send(request(), HONEST)
            found[name] = (status, len(application.heads))
            application.heads.clear()
        stint.answer = OK
        if proxy is not envoy:  # which speaks gRPC
            assert front.send(request(), HONEST) == 200
    return found


@pytest.mark.parametrize("proxy", ALL)
def test_only_2xx_lets_a_request_pass(proxy, tmp_path):
    found = ask_with(proxy, tmp_path, {**ANSWERS, **UNAVAILABLE, **BROKEN})
    assert {name: each for name, each in found.items() if each[1] or each[0] // 100 in (0, 2)} == {}


@pytest.mark.parametrize("proxy", PROXIES)
def test_fail_open_opens_only_without_stint(proxy, tmp_path):
    found = ask_with(proxy, tmp_path, {**ANSWERS, **UNAVAILABLE}, fail_open=True)
    assert {name for name, each in found.items() if each[1]} == set(UNAVAILABLE)
    assert {found[name][0] for name in UNAVAILABLE} == {200}


@pytest.mark.parametrize("fail_open", [False, True])
@pytest.mark.parametrize("proxy", SEVERAL)
def test_what_stops_is_no_answer(proxy, fail_open, tmp_path):
    with behind(proxy, tmp_path, fail_open=fail_open) as (front, application, stints):
        assert front.send(request(), OVER) == 429
        stints[0].stop()
        statuses = {front.send(request(), OVER) for _ in range(3)}
        assert statuses == {200} if fail_open else all(status >= 500 for status in statuses)
        assert len(application.heads) == (3 if fail_open else 0)


@pytest.mark.parametrize("fail_open", [False, True])
@pytest.mark.parametrize("proxy", SEVERAL)
def test_what_is_late_is_no_answer(proxy, fail_open, tmp_path):
    with Peer(answer=None) as stint, Peer() as application, \
            proxy(tmp_path, [stint.port], application.port, patient=False,
                  fail_open=fail_open) as front:
        status = front.send(request(), HONEST)
        assert status == 200 if fail_open else status >= 500
        assert len(application.heads) == fail_open


@pytest.mark.parametrize("proxy", [TRAEFIK])
def test_traefik_refuses_without_stint(proxy, tmp_path):
    with Peer() as application, proxy(tmp_path, [free_port()], application.port) as front:
        assert front.send(request(), HONEST) == 500
        assert not application.heads


@pytest.mark.parametrize("proxy", SEVERAL)
def test_of_two_servers_one_may_stop(proxy, tmp_path):
    with behind(proxy, tmp_path, 2) as (front, application, stints):
        stints[0].stop()
        wait_until_served(front)
        application.heads.clear()
        assert {front.send(request(), HONEST) for _ in range(20)} == {200}
        assert {front.send(request(), OVER) for _ in range(20)} == {429}
        assert len(application.heads) == 20
