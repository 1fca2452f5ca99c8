# SPDX-License-Identifier: MIT
"""A server that is none: whatever it sends, a question costs its timeout and bounded memory."""
from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
import tracemalloc

import pytest
from remote_server import PATIENCE_S, Listener, tables, until  # noqa: F401 (a fixture)

from stint.remote import AsyncTable

TIMEOUT_S = 0.4
MEMORY_MAX = 8 << 20

GRANTED = {"outcome": "allow", "granted": 1, "limit": 5, "remaining": 4, "retry_after_ms": 0,
           "reset_after_ms": 1000, "binding": 0, "at": "0"}


def resp(values=GRANTED):
    """A map as RESP2 has it."""
    out = [b"*%d\r\n" % (2 * len(values))]
    for name, value in values.items():
        out.append(b"$%d\r\n%s\r\n" % (len(name), name.encode()))
        out.append(b":%d\r\n" % value if isinstance(value, int)
                   else b"$%d\r\n%s\r\n" % (len(value), value.encode()))
    return b"".join(out)


def http(values=GRANTED, body=None, status="200 OK", fields=""):
    body = json.dumps(values).encode() if body is None else body
    return (f"HTTP/1.1 {status}\r\n{fields}Content-Length: {len(body)}\r\n\r\n").encode() + body


def without(name):
    return {key: value for key, value in GRANTED.items() if key != name}


def drip(data, seconds=0.01):
    def serve(sock):
        for i in range(len(data)):
            sock.sendall(data[i:i + 1])
            time.sleep(seconds)
    return serve


def forever(*chunks):
    """The first chunk once, then the last one again and again."""
    def serve(sock):
        for chunk in chunks[:-1]:
            sock.sendall(chunk)
        for _ in range((64 << 20) // len(chunks[-1])):
            sock.sendall(chunks[-1])
    return serve


class Hostile(Listener):
    """A server that answers what it receives by a row: bytes, or a function that sends them."""

    def __init__(self, row):
        self.row, self.ended = row, 0
        super().__init__()

    def serve(self, sock, number):
        with contextlib.suppress(OSError):
            if self.row is None:
                sock.close()
                return
            while sock.recv(65536):
                if callable(self.row):
                    self.row(sock)
                else:
                    sock.sendall(self.row)
        self.ended += 1


BIG = b"x" * 65536
DEEP = 10_000
# What the server sends; the codes that the error may have; a part of its text.
RESP = {
    "it closes": (None, {"CLOSED"}, "before the reply"),
    "half a reply": (resp()[:60], {"TIMEOUT"}, "no reply within 0.4 s"),
    "nothing": (b"", {"TIMEOUT"}, "no reply within"),
    "a byte at a time": (drip(resp()), {"TIMEOUT"}, "no reply within"),
    "an endless string": (forever(b"$999999999999\r\n", BIG), {"PROTOCOL"}, "a string of 999999"),
    "an endless line": (forever(b"+", BIG), {"PROTOCOL"}, "a line of more than"),
    "endless elements": (forever(b"*9000\r\n", b"+abc\r\n" * 1000), {"PROTOCOL"}, "more than"),
    "many elements": (b"*2000000000\r\n", {"PROTOCOL"}, "an array of 2000000000 elements"),
    "nested arrays": (b"*1\r\n" * DEEP, {"PROTOCOL"}, "arrays in one another"),
    "a negative length": (b"$-7\r\n", {"PROTOCOL"}, "expected names and values"),
    "no number": (b"$1_0\r\n", {"PROTOCOL"}, "the length of a string"),
    "a long number": (b":" + b"9" * 5000 + b"\r\n", {"PROTOCOL"}, "a whole number"),
    "no end of a string": (b"*16\r\n$3\r\noutcome", {"PROTOCOL"}, "expected CR LF"),
    "a type of RESP3": (b"%1\r\n", {"PROTOCOL"}, "expected a reply of RESP"),
    "garbage": (bytes(range(255, 128, -1)), {"PROTOCOL"}, "expected a reply of RESP"),
    "HTTP": (http(), {"PROTOCOL"}, "use http://"),
    "an alert of TLS": (b"\x15\x03\x03\x00\x02\x02\x46", {"PROTOCOL"}, "use stints://"),
    "an integer": (b":1\r\n", {"PROTOCOL"}, "expected names and values"),
    "OK": (b"+OK\r\n", {"PROTOCOL"}, "expected names and values"),
    "a null": (b"$-1\r\n", {"PROTOCOL"}, "expected names and values"),
    "an odd number of elements": (b"*1\r\n$1\r\na\r\n", {"PROTOCOL"}, "names and values"),
    "names that are none": (b"*2\r\n:1\r\n:2\r\n", {"PROTOCOL"}, "names and values"),
    "another map": (resp({"clock": "real"}), {"PROTOCOL"}, "expected a decision"),
    "an unknown command": (b"-ERR unknown command 'STINT.TAKE'\r\n", {"PROTOCOL"},
                           "RESP port of a stint server"),
    "another program's error": (b"-LOADING \xff\xfe\r\n", {"PROTOCOL"}, "LOADING"),
    "an error without words": (b"-\r\n", {"PROTOCOL"}, "could not decide"),
}
HTTP = {
    "it closes": (None, {"CLOSED"}, "before the reply"),
    "half a reply": (http()[:-5], {"TIMEOUT"}, "no reply within"),
    "a byte at a time": (drip(http()), {"TIMEOUT"}, "no reply within"),
    "an endless field": (forever(b"HTTP/1.1 200 OK\r\nA: ", BIG), {"PROTOCOL"}, "fields of more"),
    "endless fields": (forever(b"HTTP/1.1 200 OK\r\n", b"A: b\r\n" * 999), {"PROTOCOL"}, "fields"),
    "a large body": (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", {"PROTOCOL"},
                     "a body of 99999999999 bytes"),
    "endless chunks": (forever(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                               b"400\r\n" + b" " * 1024 + b"\r\n"), {"PROTOCOL"}, "more than"),
    "endless small chunks": (forever(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                                     b"1;" + b"e" * 4000 + b"\r\n \r\n"), {"PROTOCOL"}, "more"),
    "a chunk without a length": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
                                 {"PROTOCOL"}, "length of a chunk"),
    "endless trailers": (forever(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
                                 b"A: b\r\n" * 999), {"PROTOCOL"}, "more than"),
    "two lengths": (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}x",
                    {"PROTOCOL"}, "two lengths"),
    "no length": (b"HTTP/1.1 200 OK\r\n\r\n{}", {"PROTOCOL"}, "without a length"),
    "endless interim replies": (forever(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 99),
                                {"PROTOCOL"}, "interim replies of more than"),
    "RESP": (b"-ERR Protocol error: this port does not speak HTTP\r\n", {"PROTOCOL"},
             "use stint://"),
    "HTTP/2": (b"\x00\x00\x12\x04\x00\x00\x00\x00\x00", {"PROTOCOL"}, "expected a reply of HTTP"),
    "HTTP/2.0": (b"HTTP/2.0 200 OK\r\n\r\n", {"PROTOCOL"}, "expected a reply of HTTP"),
    "HTML": (http(body=b"<html>hello</html>"), {"PROTOCOL"}, "expected JSON"),
    "nested arrays": (http(body=b"[" * 8000 + b"]" * 8000), {"PROTOCOL"}, "JSON"),
    "an array": (http(body=b"[]"), {"PROTOCOL"}, "expected an object of JSON"),
    "nothing": (http(body=b""), {"PROTOCOL"}, "expected an object of JSON"),
    "a long number": (http(body=b'{"outcome":' + b"9" * 60000 + b"}"), {"PROTOCOL"}, ""),
    "another page": (http(body=b"<html>", status="404 Not Found"), {"PROTOCOL"}, "404"),
    "a redirect": (http(body=b"", status="302 Found"), {"PROTOCOL"}, "302"),
    "a broken gateway": (http(body=b"bad", status="502 Bad Gateway"), {"PROTOCOL"}, "502"),
    "a proxy's 429": (http(body=b"slow down", status="429 Too Many Requests"), {"PROTOCOL"}, "429"),
    "a proxy's 503": (http(body=b"none", status="503 Service Unavailable"), {"UNAVAILABLE"}, "503"),
}
WRONG = [
    *(without(name) for name in ("outcome", "granted", "limit", "remaining", "binding", "at")),
    *({**GRANTED, name: value} for name, value in (
        ("outcome", "yes"), ("granted", -1), ("granted", "1"), ("limit", 2**32), ("binding", 1),
        ("binding", -1), ("retry_after_ms", -2), ("retry_after_ms", 2**60), ("at", ""),
        ("at", "-1"), ("at", "9" * 21), ("at", "\u0661"))),
]
for i, values in enumerate(WRONG):
    RESP[f"wrong {i}"] = (resp(values), {"PROTOCOL"}, "")
    HTTP[f"wrong {i}"] = (http(values), {"PROTOCOL"}, "")
HTTP["a fraction"] = (http({**GRANTED, "granted": 1.0}), {"PROTOCOL"}, "granted")
HTTP["a truth"] = (http({**GRANTED, "granted": True}), {"PROTOCOL"}, "granted")
ROWS = [(scheme, name) for scheme, rows in (("stint", RESP), ("http", HTTP)) for name in rows]


@pytest.mark.parametrize(("scheme", "name"), ROWS)
def test_replies_that_are_none(tables, scheme, name):
    row, codes, text = {"stint": RESP, "http": HTTP}[scheme][name]
    with Hostile(row) as server:
        # What is to be found out has all the time that a busy machine needs.
        timeout = TIMEOUT_S if codes == {"TIMEOUT"} else PATIENCE_S
        table = tables.open(f"{scheme}://{server.address}", timeout=timeout)
        limiter = table.limiter("5/1s", on_error="deny")
        tracemalloc.start()
        try:
            decision = limiter.take("k")
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert not decision and not decision.from_server
        assert decision.error.code in codes and text in str(decision.error), decision.error
        assert len(str(decision.error)) < 500
        assert peak < MEMORY_MAX
        assert server.accepted == 1, "a fresh connection's failure is no reason to repeat"
        table.close()
        until(lambda: server.ended or server.row is None, "the connection is closed")


@pytest.mark.parametrize("scheme", ["stint", "http"])
def test_the_right_reply_in_pieces(tables, scheme):
    """The rows above fail for their faults: the reply as it should be is read from any pieces."""
    whole = {"stint": resp(), "http": http()}[scheme]
    body = json.dumps(GRANTED).encode()
    chunked = (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
               + b"".join(b"1;a=b\r\n%c\r\n" % byte for byte in body)
               + b"0\r\nTrailer: x\r\n\r\n")
    for data in (whole, chunked) if scheme == "http" else (whole,):
        with Hostile(drip(data, 0.0005)) as server:
            limiter = tables.open(f"{scheme}://{server.address}").limiter("5/1s")
            decision = limiter.take("k")
            assert decision and decision.from_server and decision.remaining == 4


@pytest.mark.parametrize("scheme", ["stint", "http"])
def test_more_replies_than_questions(tables, scheme):
    """What is left of a connection belongs to no question."""
    one = {"stint": resp(), "http": http()}[scheme]
    other = {"stint": resp, "http": http}[scheme]({**GRANTED, "remaining": 3})
    with Hostile(one + other) as server:
        limiter = tables.open(f"{scheme}://{server.address}").limiter("5/1s", on_error="deny")
        for _ in range(5):
            decision = limiter.take("k")
            assert not decision.from_server or decision.remaining == 4


@pytest.mark.parametrize("scheme", ["stint", "http"])
def test_a_server_that_is_gone_is_not_asked_each_time(tables, scheme):
    with Hostile(b"") as server:
        limiter = tables.open(f"{scheme}://{server.address}", timeout=TIMEOUT_S).limiter(
            "5/1s", on_error="allow")
        codes = [limiter.take("k").error.code for _ in range(200)]
        assert codes[:3] == ["TIMEOUT"] * 3
        assert codes.count("UNAVAILABLE") > 180, "most questions were decided without a try"
        unavailable = [limiter.take("k").error for _ in range(3)]
        assert any("the next try is in" in str(e) and "no reply within" in str(e)
                   for e in unavailable)
        server.row = {"stint": resp(), "http": http()}[scheme]
        until(lambda: limiter.take("k").from_server, "the server answers again")
        assert limiter.take("k").from_server


@pytest.mark.parametrize("refused", [b"-WRONGPASS no such token\r\n", b"-ERR AUTH\r\n", b":1\r\n"])
def test_a_greeting_that_is_refused(tables, refused):
    with Hostile(refused) as server:
        table = tables.open(f"stint://:secret@{server.address}", timeout=TIMEOUT_S)
        limiter = table.limiter("5/1s", on_error="allow")
        with contextlib.suppress(Exception):
            decision = limiter.take("k")
            assert not decision.from_server
            assert decision.error.code in ("AUTH", "PROTOCOL"), decision.error
        until(lambda: server.ended, "the connection is closed")


def test_an_idle_connection_that_was_closed(tables):
    """Closed by the server meanwhile: noticed, and the question goes over another connection."""
    def once(sock):
        sock.sendall(resp())
        sock.shutdown(socket.SHUT_RDWR)

    with Hostile(once) as server:
        limiter = tables.open(f"stint://{server.address}").limiter("5/1s")
        for i in range(5):
            assert limiter.take("k").from_server
            until(lambda n=i + 1: server.ended == n, "the connection is closed")
        assert server.accepted == 5


def closes_on_the_second(sock):
    """Replies to one question, and closes when the next one has arrived."""
    sock.sendall(resp())
    sock.recv(65536)
    sock.shutdown(socket.SHUT_RDWR)


def test_repeated_questions_of_many_tasks():
    """Over HTTP each connection has one question at a time, also when questions are repeated."""
    crowded = []

    def serve(sock):
        """Replies to one question, and closes with the next."""
        sock.sendall(http())
        crowded.append(sock.recv(65536).count(b"POST") > 1)
        sock.shutdown(socket.SHUT_RDWR)

    async def main(address):
        async with AsyncTable(f"http://{address}", timeout=PATIENCE_S, connections=3) as table:
            limiter = table.limiter("5/1s", on_error="deny")
            decisions = []
            for _ in range(4):
                decisions += await asyncio.gather(*(limiter.take("k") for _ in range(20)))
                assert len(table._pool._of_loop()._open) <= 3
            assert {decision.remaining for decision in decisions if decision} == {4}

    with Hostile(serve) as server:
        asyncio.run(main(server.address))
    assert not any(crowded)


@pytest.mark.parametrize(("verb", "args", "ids", "repeats"), [
    ("take", (), True, True), ("take", (), False, False), ("peek", (), False, True),
    ("reserve", (1,), True, True), ("charge", (1,), False, False),
])
def test_a_connection_that_closes_with_the_question(tables, verb, args, ids, repeats):
    """A reused connection that ends before the reply: repeated if that cannot charge twice."""
    with Hostile(closes_on_the_second) as server:
        table = tables.open(f"stint://{server.address}", request_ids=ids)
        limiter = table.limiter("5/1s", on_error="deny")
        assert limiter.peek("k").from_server and server.accepted == 1
        result = getattr(limiter, verb)("k", *args)
        decision = getattr(result, "decision", result)
        assert decision.from_server == repeats
        assert server.accepted == 1 + repeats
        if not repeats:
            assert decision.error.code == "CLOSED"
