# SPDX-License-Identifier: MIT
"""Answers that are not read: what one client makes the server send, and what all of them make it
hold."""
import time

import pytest

import frames
from attacked import HONEST_S, IS_SHORT, MARGIN_S, PATIENT_S, honest_s, serving
from clients import FRONTENDS, KIND, Kind, Swarm, get, resp
from measure import KIB, MIB, metric, own_memory, until

MOST = 16 * MIB
MARGIN = 2 * MOST  # buffers that grow, and are freed, leave holes between those that stay
N = 50 if IS_SHORT else 200
SMALL = 64 * KIB  # what each of them asks for in one piece

# What makes the server hold much for each byte that is sent.
HELD = [
    Kind("metrics", ("http",), get("/metrics") * (SMALL // len(get("/metrics"))), reads="nothing"),
    Kind("documentation", ("resp",), resp("COMMAND", "DOCS") * (SMALL // 32), reads="nothing"),
    Kind("half a command", ("resp",), b"*2\r\n$4\r\nECHO\r\n$130000\r\n" + b"x" * 129000),
    Kind("half a body", ("http",), b"POST /v1/take HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
         b"application/json\r\nContent-Length: 65000\r\n\r\n" + b"x" * 64000),
    Kind("reflection", ("grpc",), frames.opening(window=0) + b"".join(
        frames.call(stream, frames.REFLECTION, frames.FILE_OF_SERVICE, flags=0)
        for stream in frames.streams(900)), reads="nothing"),
    Kind("calls", ("grpc",), frames.opening(window=0) + b"".join(
        frames.call(stream) for stream in frames.streams(1000)), reads="nothing"),
    Kind("half a message", ("grpc",), frames.opening() + frames.begin(1, frames.HEALTH) +
         frames.frame(frames.DATA, 0, 1, b"\0\0\0\xf0\x00" + bytes(16000)) * 3, reads="nothing"),
]


def refused(server):
    return metric(server.http, "stint_connections_refused_total", reason="memory")


@pytest.mark.parametrize("kind", HELD, ids=[kind.name for kind in HELD])
def test_all_connections_together_hold_a_bounded_memory(authority, kind):
    """Two hundred clients, the limits of time far away."""
    options = ["--connection-memory", "16MiB", "--output-size", "256KiB"]
    with serving(authority, *options, limit_s=PATIENT_S) as server:
        before = own_memory(server.pid)
        with Swarm(kind, server.port(kind.frontends[0]), N):
            most = 0
            ends = time.monotonic() + 2
            while time.monotonic() < ends:
                most = max(most, own_memory(server.pid) - before)
                assert max(honest_s(server, frontend) for frontend in FRONTENDS) < HONEST_S
            report = f"{kind.name}: {most / MIB:.1f} MiB, {refused(server):.0f} ended"
            assert IS_SHORT or most < MOST + MARGIN, report
            print(report)


def test_above_it_connections_are_ended_and_counted(authority):
    """One MiB is the least; twenty clients want more."""
    with serving(authority, "--connection-memory", "1MiB", limit_s=PATIENT_S) as server:
        with Swarm(HELD[2], server.resp, 20):
            assert until(lambda: refused(server) >= 10, MARGIN_S)
            assert max(honest_s(server, frontend) for frontend in FRONTENDS) < HONEST_S


def sent_bytes(server):
    return metric(server.http, "stint_sent_bytes_total", frontend="resp")


def test_a_client_that_does_not_read_is_sent_little(authority):
    """The kernel's buffers grow by themselves to 4 MiB, where nothing bounds them."""
    with serving(authority, limit_s=PATIENT_S) as server:
        with Swarm(KIND["docs-unread"], server.resp, 10):
            assert until(lambda: sent_bytes(server) > 0)
            time.sleep(1)
            assert sent_bytes(server) / 10 < 512 * KIB
