# SPDX-License-Identifier: MIT
"""Ten thousand hostile requests of each kind: each is answered, and the server does not grow.

Of requests that end their connection there are a quarter as many; with STINT_LONG=1 there are
twenty thousand of all."""
import contextlib
import socket

import pytest

import frames
from asked import ANSWERS, GRPC, HTTP, NOTHING, REQUESTS, RESP, answered
from attacked import (HONEST_S, IS_LONG, IS_SHORT, MARGIN_S, connect, connections, honest_s,
                      serving)
from measure import KIB, MIB, own_memory, until
from tls_authority import Authority

N = REQUESTS
N_CONNECTIONS = N if IS_LONG else max(N // 4, 300)  # of requests that end theirs
PIPELINE = 100    # requests on a connection, before their answers are read
AT_ONCE = 50      # connections, where each has one request
GROWTH_MAX = 2 * MIB  # of 20,000: a hundred bytes each


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving(Authority(tmp_path_factory.mktemp("tls"), "authority"), limit_s=20) as running:
        yield running


def assert_no_growth(server, ask, n=N, warm_up=None):
    """`ask` is given how many requests it is to send."""
    def memory_after(n):
        ask(n)
        assert until(lambda: connections(server) == 0, MARGIN_S)
        return own_memory(server.pid)

    before = memory_after(warm_up or n // 10)
    grown = memory_after(n) - before
    most = max(GROWTH_MAX * n / 20_000, GROWTH_MAX / 4)
    assert IS_SHORT or grown < most, f"{grown / KIB:.0f} KiB for {n} requests"
    assert honest_s(server, "resp") < HONEST_S


def ask_pipelined(server, request, n):
    """On one connection, which goes on."""
    with contextlib.closing(connect(server, request.frontend)) as sock:
        for _ in range(-(-n // PIPELINE)):
            sock.sendall(request.bytes * PIPELINE)
            data = b""
            while answered(request, data) < PIPELINE:
                got = sock.recv(1 << 20)
                assert got, f"closed without an answer behind {data[-300:]!r}"
                data += got
            assert answered(request, data) == PIPELINE


def ask_singly(server, request, n):
    """Each on a connection of its own, which the server ends behind the answer."""
    for _ in range(-(-n // AT_ONCE)):
        with contextlib.ExitStack() as stack:
            socks = [stack.enter_context(contextlib.closing(connect(server, request.frontend)))
                     for _ in range(AT_ONCE)]
            for sock in socks:
                sock.sendall(request.bytes)
            for sock in socks:
                assert answered(request, read_to_end(sock)) == 1, "closed without an answer"


def read_to_end(sock):
    data = b""
    while got := sock.recv(65536):
        data += got
    return data


@pytest.mark.parametrize("request_", HTTP + RESP, ids=lambda each: f"{each.frontend}, {each.name}")
def test_requests_are_answered_and_leave_nothing(server, request_):
    ask, n = (ask_singly, N_CONNECTIONS) if request_.ends else (ask_pipelined, N)
    assert_no_growth(server, lambda n: ask(server, request_, n), n)


def read_frames(sock, is_enough):
    """All frames until GOAWAY, or until there are enough, which is told the streams that have ended
    and the newest frames; fails if the connection ends before."""
    found, more, done, rest = [], [], set(), b""
    while not is_enough(done, more) and not any(kind == frames.GOAWAY for kind, *_ in more):
        got = sock.recv(1 << 20)
        assert got, f"closed without an answer; frames: {found[-5:]}"
        more, rest = frames.parse(rest + got)
        found += more
        done |= ended(more)
    return found


def ended(found):
    """The streams that the server has answered to the end."""
    return {stream for kind, flags, stream, _ in found
            if (kind == frames.HEADERS and flags & frames.END_STREAM) or
            kind == frames.RST_STREAM}


def ask_answered(sock, call):
    """In pipelines, on streams that follow each other."""
    size = min(PIPELINE, call.n)
    for first in range(0, call.n, size):
        numbers = frames.streams(size, first)
        sock.sendall(b"".join(map(call.make, numbers)))
        found = read_frames(sock, lambda done, _: len(done) >= size)
        assert ended(found) == set(numbers), (call.name, found[-5:])


def ask_flooding(sock, call):
    """The server may end the connection before it has all."""
    with contextlib.suppress(ConnectionError):
        sock.sendall(b"".join(map(call.make, frames.streams(call.n))))
    if call.expects == NOTHING:
        sock.sendall(frames.frame(frames.PING, payload=b"whatever"))
        found = read_frames(sock, lambda _, more: any(kind == frames.PING for kind, *_ in more))
        assert all(kind != frames.GOAWAY for kind, *_ in found), found[-5:]
        return
    with contextlib.suppress(ConnectionError):
        found = read_frames(sock, lambda *_: False)
        error = int.from_bytes(found[-1][3][4:8], "big")
        assert found[-1][0] == frames.GOAWAY and call.error in (None, error), found[-5:]


@pytest.mark.parametrize("call", GRPC, ids=lambda call: call.name)
def test_calls_are_answered_and_leave_nothing(server, call):
    def ask(n):
        for _ in range(-(-n // call.n)):
            with socket.create_connection(("127.0.0.1", server.port("grpc")), 20) as sock:
                sock.sendall(frames.opening(window=call.window) + frames.frame(
                    frames.WINDOW_UPDATE, payload=b"\x3f\xff\xff\xff") + call.opening)
                (ask_answered if call.expects == ANSWERS else ask_flooding)(sock, call)

    # Connections whose calls are not answered stay for a second, and are many at once.
    assert_no_growth(server, ask, call.total, call.total if call.expects == NOTHING else None)
