# SPDX-License-Identifier: MIT
"""Rows of honest clients while hostile ones are connected to the same server.

A hundred requests a second on each of 50 connections: little, so that what is measured is what the
hostile ones do to it, and enough that one percent of a turn is a hundred requests. The hostile
clients are on the core of the load, which waits while they send. So the baseline has the same
clients, connected to a port where their bytes stay unread.
"""
import json
import socket
import subprocess
import sys
from pathlib import Path

from machinery import LOAD_CORE, free_port, on_core, output, row

CLIENTS = Path(__file__).resolve().parents[2] / "tests/attack/clients.py"
RATE = 5_000
# Each stays connected for as long as the server lets it: those that are idle, half a request, and
# those that do not read.
KINDS = {
    "resp": ["idle", "half-command", "slow-bulk", "pings-unread", "docs-unread"],
    "http": ["idle", "half-head", "slow-head", "slow-body", "healthz-unread", "metrics-unread"],
    "grpc": ["idle", "half-preface", "half-call", "window-0", "reflection-unread"],
}


def rows(servers, turns, seconds, n):
    found = []
    for frontend, kinds in KINDS.items():
        for kind in kinds:
            found.append(one(servers, frontend, kind, turns, seconds, n))
    return found


def one(servers, frontend, kind, turns, seconds, n):
    grpc = free_port()
    stint = servers.stint("--connections-per-address", 0, "--keys", 100_000, grpc=grpc)
    port = {"resp": stint.ports[0], "http": stint.ports[1], "grpc": grpc}[frontend]

    def p99_us():
        text = output(servers.build / "bench/open_loop", stint.ports[0], 50, RATE, seconds, 6)
        return json.loads(text)["p99_us"]

    def p99_beside(at):
        command = on_core(LOAD_CORE, sys.executable, CLIENTS, at, n, kind, "--tick", 0.5)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as hostile:
            if hostile.stdout.readline() != b"connected\n":
                sys.exit(f"{kind}: no hostile clients")
            found = p99_us()
            hostile.stdin.close()
        return found

    elsewhere, attacked = [], []
    p99_us()
    for _ in range(turns):
        # The kernel accepts them, and whatever they send until its buffers are full.
        with socket.create_server(("127.0.0.1", 0), backlog=n) as sink:
            elsewhere.append(p99_beside(sink.getsockname()[1]))
        attacked.append(p99_beside(port))
    servers.stop_all()
    return row(f"honest p99 beside {n} hostile connections: {kind}@{frontend}",
               "the same clients elsewhere", attacked, elsewhere, "<= 2", "us")
