# SPDX-License-Identifier: MIT
"""Hostile requests, thousands of each kind: what is sent, and what must be answered to each."""
import gzip
import re
from dataclasses import dataclass

import frames
from attacked import IS_LONG, IS_SHORT
from clients import get, post, resp

REQUESTS = 300 if IS_SHORT else 20_000 if IS_LONG else 10_000  # of each kind
STATUS = re.compile(rb"HTTP/1\.[01] (\d{3}) ")
CALM = 11  # ENHANCE_YOUR_CALM
ANSWERS, GOAWAYS, NOTHING = "answers", "goaways", "nothing"


@dataclass(frozen=True)
class Request:
    """`says`: the status of each HTTP answer, or how each line of RESP's begins. `ends`: the server
    ends the connection behind the answer."""
    name: str
    frontend: str
    bytes: bytes
    says: object
    ends: bool = False


def answered(request, data):
    """How many answers there are; fails if one is not what was expected."""
    if request.frontend == "http":
        found = STATUS.findall(data)
    else:
        found = [line[:len(request.says)] for line in data.split(b"\r\n")[:-1]]
    expected = b"%d" % request.says if request.frontend == "http" else request.says
    assert set(found) <= {expected}, (request.name, data[:300])
    return len(found)


def of_length(n, first, more, last=b"\r\n\r\n"):
    """`first`, as many of `more` as fit n bytes, and `last`."""
    return first + more * ((n - len(first) - len(last)) // len(more)) + last


def auth(*fields, query=""):
    return get("/auth?domain=edge" + query, "User: hostile", *fields)


def numbered(n, form):
    return [form % i for i in range(n)]


JSON = b'{"quota": "10/1h", "key": "hostile"}'
NUL = b'{"quota": "100000000/1h", "key": "a\\u0000b"}'
HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
TAKE = post("/v1/take", f"Content-Length: {len(JSON)}") + JSON
CHUNKED = post("/v1/take", "Transfer-Encoding: chunked")


def http(name, data, status, ends=False):
    return Request(name, "http", data, status, ends)


HTTP = [
    # As many as fit 8 KiB, and each was once more than some part of a server had room for.
    http("7,000 parameters", get("/healthz?" + "&" * 7000), 200),
    http("145 parameters", auth(query="".join(numbered(145, "&a%d=b"))), 200),
    http("140 cookies", auth("Cookie: " + "; ".join(numbered(140, "a%d=b"))), 200),
    http("66 cookies of 40 bytes", auth(*["Cookie: a=" + "b" * 38] * 66), 200),
    http("131 tiny cookies", auth("Cookie: " + "a=b; " * 131), 200),
    http("135 fields", auth(*numbered(135, "X-%d: y")), 200),
    http("tiny fields", of_length(8192, HEAD, b"a:\r\n", b"\r\n"), 200),
    http("empty lines first", b"\r\n" * 1000 + HEAD + b"\r\n", 200),
    # More than fits.
    http("a head that is too long", of_length(9000, HEAD, b"a:\r\n"), 431, True),
    http("a line that is too long", of_length(9000, b"GET /", b"x"), 414, True),
    http("a field that is too long", of_length(9000, HEAD + b"A: ", b"x"), 431, True),
    http("empty lines alone", b"\r\n" * 4500, 414, True),
    http("a body that is too long", post("/v1/take", "Content-Length: 65537"), 413, True),
    http("a chunk that is too long", CHUNKED + b"fffffff\r\n", 413, True),
    http("chunk extensions", CHUNKED + b"1;a=" + b"b" * 9000, 431, True),
    http("tiny chunks", CHUNKED + b"00000000000000000000001\r\n \r\n" * 1000, 431, True),
    http("trailers", CHUNKED + b"0\r\n" + b"a: b\r\n" * 2000, 431, True),
    # What another recipient might read otherwise.
    http("two lengths", post("/v1/take", "Content-Length: 1", "Content-Length: 2"), 400, True),
    http("a length and chunks", post("/v1/take", "Content-Length: 1", "Transfer-Encoding: chunked"),
         400, True),
    http("a bare LF", b"GET / HTTP/1.1\nHost: localhost\n\n", 400, True),
    http("a bare CR", HEAD + b"A: b\rc\r\n\r\n", 400, True),
    http("a folded field", HEAD + b"A: b\r\n c\r\n\r\n", 400, True),
    http("a blank before the colon", HEAD + b"A : b\r\n\r\n", 400, True),
    http("two blanks", b"GET  / HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, True),
    http("a fragment", get("/healthz#a"), 400, True),
    http("a target without a host", get("http:///healthz"), 400, True),
    http("a NUL", HEAD + b"A: \0\r\n\r\n", 400, True),
    http("no Host", b"GET / HTTP/1.1\r\n\r\n", 400, True),
    http("two Hosts", HEAD + b"Host: a\r\n\r\n", 400, True),
    http("a field without a name", HEAD + b": b\r\n\r\n", 400, True),
    http("an unknown method", b"MAKE / HTTP/1.1\r\nHost: localhost\r\n\r\n", 501, True),
    http("an unknown version", b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n", 505, True),
    http("HTTP/2's preface", frames.PREFACE, 400, True),
    http("a ClientHello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 501, True),
    http("an unknown coding", post("/v1/take", "Transfer-Encoding: gzip"), 501, True),
    http("an unknown expectation", post("/v1/take", "Expect: tea", "Content-Length: 1"), 417, True),
    # What can be read, and is refused.
    http("no body", post("/v1/take", "Content-Length: 0"), 400),
    http("no JSON", post("/v1/take", "Content-Length: 1") + b"{", 400),
    http("deep JSON", post("/v1/take", "Content-Length: 60000") + b"[" * 60000, 400),
    http("a NUL in a key", post("/v1/take", f"Content-Length: {len(NUL)}") + NUL, 200),
    http("a page of another site", TAKE.replace(b"Host:", b"Origin: http://evil\r\nHost:"), 403),
    http("a name that was rebound", TAKE.replace(b"localhost", b"evil"), 421),
    http("no Content-Type", TAKE.replace(b"Content-Type: application/json\r\n", b""), 415),
    http("an unknown page", get("/none"), 404),
    http("an unknown quota", TAKE.replace(b"10/1h", b"10/1x"), 400),
]

LONG = b"x" * 4000


def line(name, data, says, ends=False):
    return Request(name, "resp", data, says, ends)


PROTOCOL = b"-ERR Protocol error: "
RESP = [
    line("a huge argument", b"*1\r\n$999999999\r\n", PROTOCOL, True),
    line("a huge number", b"*99999999999999999999\r\n", PROTOCOL, True),
    line("many arguments", b"*1000000\r\n", PROTOCOL, True),
    line("a negative length", b"*1\r\n$-5\r\n", PROTOCOL, True),
    line("deep arrays", b"*1\r\n" * 1000, PROTOCOL, True),
    line("a line without an end", b"x" * 70000, PROTOCOL, True),
    line("many words", b"x " * 5000 + b"\r\n", PROTOCOL, True),
    line("quotes", b"PING \"a\r\n", PROTOCOL, True),
    line("HTTP", get("/"), PROTOCOL, True),
    line("no end", b"*1\r\n$4\r\nPINGxx", PROTOCOL, True),
    line("an unknown command", resp(LONG, LONG, LONG), b"-ERR unknown command"),
    line("an unknown line", b"\0\x01\x02\xff\r\n", b"-ERR unknown command"),
    line("wrong arguments", resp("STINT.TAKE", *["x"] * 1000), b"-ERR "),
    line("an unknown quota", resp("STINT.TAKE", "QUOTA", LONG, "key"), b"-ERR "),
    line("a long key", resp("STINT.TAKE", "QUOTA", "10/1h", b"k" * 100000), b"-ERR "),
    line("many descriptors",
         resp("STINT.TAKE", "DOMAIN", "edge", *["DESCRIPTOR", 1, "a", "b"] * 900), b"-ERR "),
    line("a wrong secret", resp("AUTH", b"s" * 1000), b"-"),
    line("empty lines", b"\r\n" * 100 + b"PING\r\n", b"+PONG"),
    line("an empty array", b"*0\r\n" * 100 + b"PING\r\n", b"+PONG"),
]


@dataclass(frozen=True)
class Call:
    """Calls of a connection of gRPC. `expects`: that each is answered; that the connection is ended
    with GOAWAY for them all; or nothing, since hardly anything may be sent."""
    name: str
    make: object  # of a stream's number, its frames
    expects: str = ANSWERS
    window: int = 1 << 20
    n: int = 1000  # on one connection
    error: int = CALM
    opening: bytes = b""
    total: int = REQUESTS


def calls(path=frames.HEALTH, payload=b"", *fields, flags=frames.END_STREAM, **more):
    return lambda stream: frames.call(stream, path, payload, *fields, flags=flags, **more)


def same(data):
    return lambda stream: data


SHOULD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
KUADRANT = "/kuadrant.service.ratelimit.v1.RateLimitService/"
GZIP = ("grpc-encoding", "gzip")
BOMB = gzip.compress(bytes(8 << 20))

GRPC = [
    Call("health", calls()),
    Call("an unknown service", calls("/no.Such/Method")),
    Call("a path that is none", calls("*"), n=900),  # above a thousand it is abuse
    Call("no message", calls(SHOULD, b"\xff" * 100)),
    Call("deep groups", calls(SHOULD, b"\x0b" * 1000)),
    Call("no reservation", calls(KUADRANT + "Reserve", b"\x1a\xff" * 50)),
    Call("a commit of nothing", calls(KUADRANT + "Commit", b"\x1a\x30" + b"f" * 48)),
    Call("no gzip", calls(SHOULD, b"garbage", GZIP, is_compressed=True)),
    Call("a bomb", calls(SHOULD, BOMB, GZIP, is_compressed=True), n=100, total=500),
    Call("an unknown coding", calls(SHOULD, b"x", ("grpc-encoding", "tea"), is_compressed=True)),
    Call("a huge message", lambda stream: frames.begin(stream, SHOULD) + frames.frame(
        frames.DATA, frames.END_STREAM, stream, b"\0\x7f\xff\xff\xff")),
    Call("half a message", lambda stream: frames.begin(stream, SHOULD) + frames.frame(
        frames.DATA, frames.END_STREAM, stream, b"\0\0\0\0\x09x")),
    Call("reflection", calls(frames.REFLECTION, frames.FILE_OF_SERVICE), window=(1 << 31) - 1),
    Call("reflection, unread", calls(frames.REFLECTION, frames.FILE_OF_SERVICE, flags=0), NOTHING,
         window=0),
    Call("answers that may not be sent", calls(), NOTHING, window=0),
    Call("resets", lambda stream: frames.begin(stream, frames.HEALTH) + frames.frame(
        frames.RST_STREAM, 0, stream, b"\0\0\0\x08"), GOAWAYS, n=5000),
    Call("pings", same(frames.frame(frames.PING, payload=bytes(8))), GOAWAYS, n=5000),
    Call("settings", same(frames.settings()), GOAWAYS, n=5000),
    Call("window updates", same(frames.frame(frames.WINDOW_UPDATE, payload=b"\0\0\0\1")), GOAWAYS,
         n=5000),
    Call("empty data", same(frames.frame(frames.DATA, 0, 1)), GOAWAYS, n=5000,
         opening=frames.begin(1, frames.HEALTH)),
    Call("continuations", same(frames.frame(frames.CONTINUATION, 0, 1,
                                            frames.fields(("x", "y" * 100)))), GOAWAYS, n=1000,
         opening=frames.frame(frames.HEADERS, 0, 1, frames.head_of(frames.HEALTH)), error=None),
    Call("a huge frame", same(b"\xff\xff\xff" + bytes(6)), GOAWAYS, n=1, error=6, total=5000),
    Call("a field of 16 kB", calls(frames.HEALTH, b"", ("x", b"y" * 16200))),
]
