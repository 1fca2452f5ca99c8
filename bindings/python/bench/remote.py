# SPDX-License-Identifier: MIT
"""Questions a second to a server, beside redis-py and INCR in the same run.

    python bench/remote.py [--quick]

Needs the package, redis-py, redis-server and the program stint (STINT_BIN, or a build of the
checkout). All candidates ask over loopback, in rounds in which they take turns; rates are medians
of the rounds, ratios are medians of the rounds' ratios to redis-py. Processor time is that of the
client alone: on a machine that others use it says more than wall time.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import redis
import redis.asyncio

import stint
from stint.remote import AsyncTable, RemoteTable

SPEC = "1000000/1m"
CHECKOUT = Path(__file__).resolve().parents[3]
sys.path.append(str(CHECKOUT / "bindings/python/tests"))
from support import reserved_port  # noqa: E402  (its folder is named just above)

TOGETHER = 100  # tasks that ask at the same time
REDIS = "redis-py, INCR"


def wait_for(port: int) -> None:
    for _ in range(2000):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.01)
    raise SystemExit(f"nothing listens at 127.0.0.1:{port}")


class Result:
    """Figures of a candidate: one of each for a round."""

    def __init__(self) -> None:
        self.rates: list[float] = []
        self.cpu_us: list[float] = []
        self.waits_us: list[float] = []

    def add(self, n: int, wall_s: float, cpu_s: float, waits_s: list[float]) -> None:
        self.rates.append(n / wall_s)
        self.cpu_us.append(cpu_s / n * 1e6)
        self.waits_us += [wait * 1e6 for wait in waits_s]


def ask_in_turn(ask: Callable[[str], Any], n: int, result: Result) -> None:
    waits = []
    began, cpu = time.perf_counter(), time.process_time()
    for i in range(n):
        before = time.perf_counter()
        ask(f"key {i % 1000}")
        waits.append(time.perf_counter() - before)
    result.add(n, time.perf_counter() - began, time.process_time() - cpu, waits)


async def ask_together(ask: Callable[[str], Awaitable[Any]], n: int, result: Result) -> None:
    waits: list[float] = []

    async def some(first: int) -> None:
        for i in range(first, n, TOGETHER):
            before = time.perf_counter()
            await ask(f"key {i % 1000}")
            waits.append(time.perf_counter() - before)

    began, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(some(first) for first in range(TOGETHER)))
    result.add(n, time.perf_counter() - began, time.process_time() - cpu, waits)


def show(title: str, results: dict[str, Result]) -> None:
    base = results[REDIS]
    print(f"\n{title}")
    print(f"  {'':34}{'questions/s':>12}{'ratio':>8}{'cpu µs':>9}{'ratio':>8}{'p50 µs':>9}"
          f"{'p99 µs':>9}")
    for name, result in results.items():
        ratio = statistics.median(a / b for a, b in zip(result.rates, base.rates, strict=True))
        cpu = statistics.median(a / b for a, b in zip(result.cpu_us, base.cpu_us, strict=True))
        percent = statistics.quantiles(result.waits_us, n=100)
        print(f"  {name:34}{statistics.median(result.rates):12,.0f}{ratio:8.2f}"
              f"{statistics.median(result.cpu_us):9.1f}{cpu:8.2f}{percent[49]:9.0f}"
              f"{percent[98]:9.0f}")


def in_turn(urls: dict[str, str], redis_port: int, rounds: int, n: int) -> None:
    client = redis.Redis(port=redis_port, socket_timeout=5)
    tables = {f"stint, {name}": RemoteTable(url, timeout=5) for name, url in urls.items()}
    tables["stint, RESP, no request ids"] = RemoteTable(urls["RESP"], timeout=5, request_ids=False)
    asks: dict[str, Callable[[str], Any]] = {REDIS: client.incr}
    asks |= {name: table.limiter(SPEC).take for name, table in tables.items()}
    results = {name: Result() for name in asks}
    for _ in range(rounds):
        for name, ask in asks.items():
            ask_in_turn(ask, n, results[name])
    show("one thread, one question after the other", results)
    for table in tables.values():
        table.close()
    client.close()


async def together(urls: dict[str, str], redis_port: int, rounds: int, n: int) -> None:
    client = redis.asyncio.Redis(port=redis_port, max_connections=8 * TOGETHER)
    tables = {f"stint, {name}": AsyncTable(url, timeout=5) for name, url in urls.items()}
    asks: dict[str, Callable[[str], Awaitable[Any]]] = {REDIS: client.incr}
    asks |= {name: table.limiter(SPEC).take for name, table in tables.items()}
    results = {name: Result() for name in asks}
    for _ in range(rounds):
        for name, ask in asks.items():
            await ask_together(ask, n, results[name])
    show(f"asyncio, {TOGETHER} tasks at a time", results)
    for table in tables.values():
        await table.close()
    await client.aclose()


def main() -> None:
    parser = argparse.ArgumentParser(description="questions a second, beside redis-py and INCR")
    parser.add_argument("--quick", action="store_true", help="fewer questions")
    options = parser.parse_args()
    rounds, n = (3, 1000) if options.quick else (7, 5000)
    program = os.environ.get("STINT_BIN") or CHECKOUT / "build-release/src/cmd/stint"
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as held:
        resp, http, redis_port = (held.enter_context(reserved_port()) for _ in range(3))
        unix = f"{folder}/resp"
        children = [
            subprocess.Popen([program, "serve", "--resp", f"127.0.0.1:{resp}", "--resp",
                              f"unix:{unix}", "--http", f"127.0.0.1:{http}", "--grpc", "off"],
                             stderr=subprocess.DEVNULL),
            subprocess.Popen(["redis-server", "--port", str(redis_port), "--save", "", "--dir",
                              folder], stdout=subprocess.DEVNULL),
        ]
        try:
            for port in (resp, http, redis_port):
                wait_for(port)
            print(f"stint {stint.__version__}, Python {sys.version.split()[0]}, "
                  f"redis-py {redis.__version__}, {rounds} rounds of {n} questions")
            urls = {"RESP": f"stint://127.0.0.1:{resp}", "RESP, Unix socket": f"unix:{unix}",
                    "HTTP": f"http://127.0.0.1:{http}"}
            in_turn(urls, redis_port, rounds, n)
            asyncio.run(together(urls, redis_port, rounds, n))
        finally:
            for child in children:
                child.terminate()
            for child in children:
                child.wait()


if __name__ == "__main__":
    main()
