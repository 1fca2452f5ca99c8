# SPDX-License-Identifier: MIT
"""A server at all six ports, with the limits of time that a test can wait for, and its honest
clients."""
import contextlib
import os
import socket
import time

import frames
from clients import context_for, get, resp
from measure import metric
from server import Server

IS_SHORT = os.environ.get("STINT_ATTACK") == "short"  # a build with sanitizers: slower, and larger
IS_LONG = os.environ.get("STINT_LONG") == "1"
LIMIT_S = 1
PATIENT_S = 60  # a limit of time that is longer than any test: it ends no connection
# An honest client is served within this time, while no limit ends the hostile ones. It is long, so
# that a test fails because of a blocked server, and not because of a slow machine.
HONEST_S = 15
MARGIN_S = 15  # for a machine that stands still
RULES = """\
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 1000000}
"""
TIMES = ["idle-time", "request-time", "write-time", "http-idle-time", "http-request-time",
         "http-answer-time", "drain-time"]


def serving(authority, *options, limit_s=LIMIT_S):
    certificate, key = authority.sign("server")
    times = [word for name in TIMES for word in (f"--{name}", f"{limit_s}s")]
    ports = [word for frontend in ("resp", "http", "grpc")
             for word in (f"--{frontend}-tls", "127.0.0.1:0")]
    return Server(*ports, "--tls-certificate", certificate, "--tls-key", key, "--watch", "0",
                  "--workers", 1, "--connections", 20000, "--connections-per-address", 0,
                  "--http-domain", "edge", "--http-descriptors", "header:User",
                  *times, *options, rules=RULES)


def connect(server, port, timeout_s=20):
    """To the port of that name, in TLS where it is one of TLS."""
    frontend, _, tls = port.partition("-")
    sock = socket.create_connection(("127.0.0.1", server.port(port)), timeout_s)
    try:
        return context_for(frontend).wrap_socket(sock) if tls else sock
    except OSError:
        sock.close()
        raise


def receive(sock, is_whole):
    """What comes until it is whole."""
    data = b""
    while not is_whole(data):
        got = sock.recv(65536)
        if not got:
            raise ConnectionError(f"closed behind {data!r}")
        data += got
    return data


def has_answer(data):
    """Whether the answer to stream 1 has ended."""
    return any(kind == frames.HEADERS and flags & frames.END_STREAM and stream == 1
               for kind, flags, stream, _ in frames.parse(data)[0])


HONEST = {  # the request, and whether the answer is whole
    "resp": (resp("PING"), lambda data: data == b"+PONG\r\n"),
    "http": (get("/healthz"), lambda data: data.startswith(b"HTTP/1.1 200 ") and
             data.endswith(b"ok\n")),
    "grpc": (frames.opening() + frames.call(1), has_answer),
}


def honest_s(server, frontend):
    """How long a new client waits until it is served."""
    request, is_whole = HONEST[frontend]
    began = time.monotonic()
    with contextlib.closing(connect(server, frontend)) as sock:
        sock.sendall(request)
        receive(sock, is_whole)
    return time.monotonic() - began


def connections(server):
    """All of them but the one that asks."""
    return metric(server.http, "stint_connections") - 1
