#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures the server on loopback, each row against a baseline of the same run."""

import argparse
import json
import os
import shutil
import socket
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent))
from run import check_kept, machine, print_table  # noqa: E402  (the same table and machine)
import grpc_rows  # noqa: E402
import hostile  # noqa: E402
import http_rows  # noqa: E402
from machinery import (KEYS, Servers, closed_loop, cpu_us, duel, judge, output,  # noqa: E402
                       redis_benchmark, row)

# ---- the rows ----


def throttle(key="key:__rand_int__"):
    return ["CL.THROTTLE", key, "99", "100", "60"]


def use_each_key(servers, server, *command):
    """Every key is there before anything is measured, as in a server that has run. Random keys do
    not do: redis-benchmark begins each run with the same ones."""
    closed_loop(servers.build, server.ports[0], KEYS, 64, *command)


def fill_throttle(servers, stint):
    use_each_key(servers, stint, *throttle("key:__next_int__"))


def pipelined_rows(servers, turns, requests):
    stint, redis = servers.stint("--keys", KEYS), servers.redis()
    fill_throttle(servers, stint)
    use_each_key(servers, redis, "INCR", "key:__next_int__")
    script = (HERE / "gcra.lua").read_text()
    sha = output("redis-cli", "-p", redis.ports[0], "SCRIPT", "LOAD", script).strip()
    rates = {"stint": [], "lua": []}

    def subject():
        cpu, rate = cpu_us(stint, lambda: redis_benchmark(stint.ports[0], requests, 16,
                                                          *throttle()))
        rates["stint"].append(rate)
        return cpu

    def baseline():
        return cpu_us(redis, lambda: redis_benchmark(redis.ports[0], requests, 16, "INCR",
                                                     "key:__rand_int__"))[0]

    def lua():
        rates["lua"].append(cpu_us(redis, lambda: redis_benchmark(
            redis.ports[0], requests // 4, 16, "EVALSHA", sha, "1", "gcra:__rand_int__", "100",
            "100", "60"))[1])
        return rates["lua"][-1]

    rows = [duel("CL.THROTTLE, 1 M random keys, pipeline 16, 1 worker", "redis-server INCR", turns,
                 subject, baseline, "<= 0.7")]
    rates["stint"].clear()
    values, baselines = [], []
    for _ in range(turns):
        lua()
        subject()
        values.append(rates["stint"][-1])
        baselines.append(rates["lua"][-1])
    rows.append(row("the same, requests per second", "GCRA in Lua on redis-server", values,
                    baselines, ">= 6", "requests/s"))
    servers.stop_all()
    return rows


def unpipelined_row(servers, turns, requests):
    stint, echo = servers.stint("--keys", KEYS), servers.echo()
    fill_throttle(servers, stint)
    rows = [duel("CL.THROTTLE unpipelined, 50 connections", "bare libuv echo", turns,
                 lambda: cpu_us(stint, lambda: redis_benchmark(
                     stint.ports[0], requests, 1, *throttle()))[0],
                 lambda: cpu_us(echo, lambda: redis_benchmark(
                     echo.ports[0], requests, 1, *throttle()))[0], "<= 1.15")]
    servers.stop_all()
    return rows


def latency_rows(servers, turns, seconds):
    """At half of what one connection set can draw from the echo, both at the same rate."""
    stint, echo = servers.stint("--keys", KEYS), servers.echo()
    fill_throttle(servers, stint)
    requests, spent = redis_benchmark(stint.ports[0], 200_000, 1, *throttle())
    rate = int(requests / spent / 2)
    found = {"stint": [], "echo": []}

    def ask(name, port, lines):
        text = output(servers.build / "bench/open_loop", port, 50, rate, seconds, lines)
        found[name].append(json.loads(text))

    for turn in range(turns + 1):
        ask("echo", echo.ports[0], 11)
        ask("stint", stint.ports[0], 6)
        if turn == 0:
            found = {"stint": [], "echo": []}
    servers.stop_all()
    return [row(f"latency at {rate} requests/s, {name}", "bare libuv echo",
                [each[field] for each in found["stint"]], [each[field] for each in found["echo"]],
                reach, "us")
            for name, field, reach in (("p50", "p50_us", "<= 1.2"), ("p99", "p99_us", "<= 2"),
                                       ("p99.9", "p999_us", None))]


def memory_rows(servers, connections):
    rows = []
    for name, quota, sizes, most in (
            ("window", "window 100/1h", ("--keys", 1, "--keys16", KEYS), 48e6),
            ("window resolution=10", "window 100/1h resolution=10", ("--keys", KEYS, "--keys16", 1),
             24e6)):
        stint = servers.stint(*sizes)
        fill(stint.ports[0], quota)
        own, resident = stint.memory()
        rows.append(judge({"program": "server", "what": f"1 M live keys, {name}: memory",
                           "unit": "MB", "value": own / 1e6,
                           "note": f"{resident / 1e6:.1f} MB with program and libraries"},
                          f"<= {most / 1e6:.0f} MB", own / 1e6))
        servers.stop_all()
    for at, what in enumerate(("RESP", "HTTP")):
        # Another server for each: memory of connections that were closed is used again.
        stint = servers.stint("--connections", connections + 100, "--connections-per-address", 0)
        port, before = stint.ports[at], stint.memory()[0]
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(connections)]
        for each in idle[:: max(1, connections // 100)]:
            each.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" if what == "HTTP"
                         else b"PING\r\n")
            each.recv(4096)
        time.sleep(0.5)
        used = (stint.memory()[0] - before) / connections / 1024
        rows.append(judge({"program": "server", "what": f"an idle connection, {what}",
                           "unit": "KiB", "value": used}, "<= 16 KiB", used))
        for each in idle:
            each.close()
        servers.stop_all()
    return rows


def fill(port, quota):
    """A million keys, each asked once, in pipelines of a thousand. A few find no place in a table
    of just this size: one in 10,000 at most, or it is not what was asked for."""
    denied = 0
    with socket.create_connection(("127.0.0.1", port)) as link:
        for first in range(0, KEYS, 1000):
            words = [["STINT.TAKE", "QUOTA", quota, f"key:{n}"] for n in range(first, first + 1000)]
            link.sendall(b"".join(
                b"*%d\r\n" % len(each) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w.encode())
                                                  for w in each) for each in words))
            answers, seen = b"", 0
            while seen < 1000:
                data = link.recv(1 << 20)
                if not data or b"-ERR" in data:
                    sys.exit(f"a take failed: {data[:200]}")
                denied += data.count(b"deny")
                answers = answers[-16:] + data
                seen += data.count(b"outcome")
    if denied > KEYS // 10_000:
        sys.exit(f"{denied} keys found no place")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=Path, help="a build folder, compiled: ninja -C BUILD bench")
    parser.add_argument("--quick", action="store_true", help="does everything run? No goals")
    parser.add_argument("--only",
                        help="pipelined, unpipelined, http, grpc, latency, grpc-latency, hostile "
                             "or memory")
    parser.add_argument("--json", type=Path, help="where to write (BUILD/bench/server.json)")
    arguments = parser.parse_args()
    for tool in ("redis-server", "redis-benchmark", "nginx", "wrk", "nghttpd", "h2load",
                 "taskset"):
        if shutil.which(tool) is None:
            sys.exit(f"{tool} is needed: tools/setup.sh bench-server installs it")
    build, quick = arguments.build.resolve(), arguments.quick
    path = arguments.json or build / "bench/server.json"
    check_kept(path)
    turns = 1 if quick else 5
    with tempfile.TemporaryDirectory(prefix="stint-bench-") as scratch:
        os.chmod(scratch, 0o755)  # nginx's worker is another user
        servers = Servers(build, Path(scratch))
        parts = {
            "pipelined": lambda: pipelined_rows(servers, turns, 20_000 if quick else 2_000_000),
            "unpipelined": lambda: unpipelined_row(servers, turns, 5_000 if quick else 300_000),
            "http": lambda: http_rows.rows(servers, turns, 1 if quick else 4),
            "grpc": lambda: grpc_rows.cost(servers, turns, 5_000 if quick else 400_000),
            "latency": lambda: latency_rows(servers, 1 if quick else 9, 0.5 if quick else 3),
            "grpc-latency": lambda: grpc_rows.latency(servers, 1 if quick else 9,
                                                      0.5 if quick else 3),
            "hostile": lambda: hostile.rows(servers, 1 if quick else 5, 0.5 if quick else 2,
                                            10 if quick else 100),
            "memory": lambda: memory_rows(servers, 100 if quick else 2000),
        }
        rows = []
        try:
            for name, run in parts.items():
                if arguments.only in (None, name):
                    print(name, flush=True)
                    rows += run()
        finally:
            servers.stop_all()
    where = machine(build)
    if quick:
        for each in rows:
            each.pop("met", None)
    print(f"\n{where['cpu']}, {where['cores']} cores, Linux {where['kernel']}, "
          f"{where['compiler']}\n")
    print_table([dict({"ratio_q1": 0, "ratio_q3": 0}, **each) for each in rows])
    path.write_text(json.dumps({"machine": where, "quick": quick, "rows": rows}, indent=1) + "\n")
    goals = [each["met"] for each in rows if "met" in each]
    print(f"\n{sum(goals)} of {len(goals)} goals met; JSON: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
