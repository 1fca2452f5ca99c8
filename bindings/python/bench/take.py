# SPDX-License-Identifier: MIT
"""Time of a decision from Python, beside baselines of the same run.

    python bindings/python/bench/take.py [--quick]

Needs the package, `limits[redis]`, redis-server and a C compiler. Each figure is the median of
rounds in which all candidates take turns; ratios are medians of the rounds' ratios to
limiter.take(key). Processor time is that of the calling thread: on a machine that others use, wall
time says more about them. Redis spends time in a process of its own: there only wall time is whole.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import random
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import build_backend
import limits
import limits.storage
import limits.strategies

import stint

SPEC = "100/1m"
KEYS = 1_000_000
OURS = "limiter.take(key)"
IN_C = "stint_take() in C"


class Baseline:
    """The loop in C, compiled as the package is."""

    def __init__(self, folder: Path, path: Path) -> None:
        engine = build_backend.join_engine(folder)
        library = folder / "bench.so"
        compiler = shlex.split(os.environ.get("CC", "cc"))
        subprocess.run([*compiler, *build_backend.FLAGS, f"-I{engine}", "-shared",
                        engine / "stint.c", Path(__file__).with_suffix(".c"), "-o", library],
                       check=True)
        self.library = ctypes.CDLL(str(library))
        if self.library.bench_open(os.fsencode(path), SPEC.encode()) != 0:
            raise SystemExit("the loop in C cannot open the table")

    def prepared(self, keys: list[str]) -> Callable[[], object]:
        """A take of each key, from C."""
        encoded = [key.encode() for key in keys]
        pointers = (ctypes.c_char_p * len(keys))(*encoded)
        lengths = (ctypes.c_size_t * len(keys))(*map(len, encoded))
        count = ctypes.c_size_t(len(keys))
        return lambda: self.library.bench_take(pointers, lengths, count)


def loop(call: Callable[[str], object], keys: list[str]) -> Callable[[], object]:
    def run() -> None:
        for key in keys:
            call(key)

    return run


def seconds_of(run: Callable[[], object], calls: int) -> tuple[float, float]:
    """Seconds of one of its calls: of this thread's processor, and in all."""
    wall, cpu = time.perf_counter(), time.thread_time()
    run()
    return (time.thread_time() - cpu) / calls, (time.perf_counter() - wall) / calls


@contextmanager
def redis_server() -> Iterator[str]:
    """A Redis at a free port of the loopback; its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with subprocess.Popen(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save",
                           "", "--appendonly", "no"], stdout=subprocess.DEVNULL) as server:
        try:
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except ConnectionRefusedError:
                    time.sleep(0.01)
            yield f"redis://127.0.0.1:{port}"
        finally:
            server.terminate()


def hits(storage: limits.storage.Storage) -> Callable[[str], object]:
    """The moving window of `limits`: its one strategy that is exact for any window."""
    strategy = limits.strategies.MovingWindowRateLimiter(storage)
    item = limits.RateLimitItemPerMinute(100)
    return lambda key: strategy.hit(item, key)


def decisions(rounds: int, calls: int) -> None:
    """One limit, a million keys."""
    rng = random.Random(1)
    names = [f"user:{number}" for number in range(KEYS)]
    with (tempfile.TemporaryDirectory(dir="/dev/shm") as shm,
          tempfile.TemporaryDirectory() as build, redis_server() as url):
        path = Path(shm) / "table"
        table = stint.Table(path, keys=KEYS * 2)
        in_c = Baseline(Path(build), path)
        limiter = stint.Limiter(table, SPEC)
        two = stint.Limiter(table, SPEC, "1000/1h")
        memory = hits(limits.storage.storage_from_string("memory://"))
        redis = hits(limits.storage.storage_from_string(url))
        for run in (in_c.prepared(names), loop(limiter.take, names), loop(two.take, names)):
            run()  # all keys are live, and all pages mapped
        times: dict[str, list[tuple[float, float]]] = {}
        for _ in range(rounds):
            keys = rng.choices(names, k=calls)
            few = keys[:max(100, calls // 100)]
            for name, run, count in [
                (IN_C, in_c.prepared(keys), calls),
                (OURS, loop(limiter.take, keys), calls),
                ("the same, one hot key", loop(limiter.take, keys[:1] * calls), calls),
                ("the same, two quotas", loop(two.take, keys), calls),
                ("a call of len()", loop(len, keys), calls),
                ("limits, memory", loop(memory, keys), calls),
                ("limits, Redis", loop(redis, few), len(few)),
            ]:
                times.setdefault(name, []).append(seconds_of(run, count))
    print(f"{'one decision, 1 M keys':24}{'processor':>12}{'ratio':>8}{'wall':>12}{'ratio':>8}")
    for name, its in times.items():
        print(f"{name:24}" + "".join(
            f"{statistics.median(one[kind] for one in its) * 1e6:>9.3f} us"
            f"{statistics.median(a[kind] / b[kind] for a, b in zip(its, times[OURS])):>8.2f}"
            for kind in (0, 1)))
    above = statistics.median(a[0] - b[0] for a, b in zip(times[OURS], times[IN_C]))
    print(f"{OURS} above the take in C: {above * 1e6:.3f} us of processor time")


def processes(calls: int) -> None:
    """Eight processes on one key."""
    table = stint.Table(keys=16)
    limiter = stint.Limiter(table, SPEC)
    rates = []
    for _ in range(5):
        begin = time.perf_counter()
        children = []
        for _ in range(8):
            if not (pid := os.fork()):
                for _ in range(calls):
                    limiter.take("hot")
                os._exit(0)
            children.append(pid)
        for pid in children:
            os.waitpid(pid, 0)
        rates.append(8 * calls / (time.perf_counter() - begin))
    print(f"8 processes, one key: {statistics.median(rates) / 1e6:.2f} M decisions/s "
          f"on {os.cpu_count()} cores")


def start_and_size(rounds: int) -> None:
    """Import and wheel."""
    cumulative = []
    for _ in range(rounds):
        lines = subprocess.run([sys.executable, "-X", "importtime", "-c", "import stint"],
                               stderr=subprocess.PIPE, text=True, check=True).stderr.splitlines()
        cumulative.append(int(lines[-1].split("|")[1]))
    print(f"import stint: {min(cumulative) / 1000:.1f} ms at best, "
          f"{statistics.median(cumulative) / 1000:.1f} ms in the median")
    with tempfile.TemporaryDirectory() as folder:
        wheel = Path(folder) / build_backend.build_wheel(folder)
        print(f"{wheel.name}: {wheel.stat().st_size / 1024:.0f} KiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and calls")
    quick = parser.parse_args().quick
    rounds, calls = (5, 50_000) if quick else (9, 200_000)
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    decisions(rounds, calls)
    processes(calls)
    start_and_size(rounds)


if __name__ == "__main__":
    main()
