#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the scripts of lua/ cost a redis-server, against a plain GCRA script in the same run."""

import argparse
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.path.insert(0, str(HERE.parent.parent / "tools"))
import make_scripts  # noqa: E402  (its folder is named just above)
from run import print_table  # noqa: E402
from machinery import Servers, cpu_us, duel, output, redis_benchmark  # noqa: E402

LUA = HERE.parent.parent / "lua"
RANDOM = "__rand_int__"
MINUTE, HOUR = 60_000_000, 3_600_000_000
# What, the script, its words behind the key, keys, the plain script's burst and count; the goal.
ROWS = [
    ("window 100/1m, new keys", "window", [1, 100, MINUTE], True, 100, "<= 1.0"),
    ("window 1M/1m, one hot key", "window", [1, 10**6, MINUTE], False, 10**6, "<= 1.0"),
    ("window 5/1m, one key that is denied", "window", [1, 5, MINUTE], False, 5, None),
    ("gcra 100/1m, new keys", "gcra", [1, 100, MINUTE, 100], True, 100, None),
    ("fixed_window 100/1m, new keys", "fixed_window", [1, 100, MINUTE], True, 100, None),
    ("sliding_counter 100/1m, new keys", "sliding_counter", [1, 100, MINUTE], True, 100, None),
    ("buckets 500/10m, new keys", "buckets", ["take", 1, 0, 0, 500, 10 * MINUTE, MINUTE, 50], True,
     500, None),
    ("window 100/1m in a list of one, new keys", "list",
     ["take", 0, 0, "window", 1, 100, MINUTE, 24, 0, 0], True, 100, None),
]


class Redis:
    def __init__(self, server):
        self.server, self.port = server, server.ports[0]

    def cli(self, *words):
        return output("redis-cli", "-p", self.port, *map(str, words)).strip()

    def load(self, text):
        return self.cli("SCRIPT", "LOAD", text)

    def cost(self, requests, pipeline, sha, key, *words):
        self.cli("FLUSHALL")
        return cpu_us(self.server, lambda: redis_benchmark(
            self.port, requests, pipeline, "EVALSHA", sha, "1", key, *words))[0]


def time_rows(redis, turns, requests):
    plain = redis.load((HERE / "gcra.lua").read_text())
    for what, name, words, random, burst, reach in ROWS:
        sha = redis.load(make_scripts.script(LUA, name))
        key = f"key:{RANDOM}" if random else "key:000000000000"
        yield duel(what, "plain GCRA script", turns,
                   lambda: redis.cost(requests, 16, sha, key, *words),
                   lambda: redis.cost(requests, 16, plain, key, burst, burst, 60), reach)


def memory(redis):
    """(bytes of a window, of a sorted set) after 1,000 requests of 1,000 an hour."""
    sha, key = redis.load(make_scripts.script(LUA, "window")), "k" * 20
    redis.cli("FLUSHALL")
    redis_benchmark(redis.port, 1000, 16, "EVALSHA", sha, "1", key, "take", 1, 0, 0, 1000, HOUR, 24)
    redis_benchmark(redis.port, 1000, 16, "EVAL", "local t = redis.call('TIME') return redis.call("
                    "'ZADD', KEYS[1], t[1] * 1000 + 1, t[1] .. t[2] .. ARGV[1])", "1", "z" * 20,
                    RANDOM)
    return [int(redis.cli("MEMORY", "USAGE", name, "SAMPLES", 0)) for name in (key, "z" * 20)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="does everything run? No goals")
    arguments = parser.parse_args()
    turns, requests = (1, 5_000) if arguments.quick else (5, 40_000)
    with tempfile.TemporaryDirectory(prefix="stint-bench-") as scratch:
        servers = Servers(None, Path(scratch))
        try:
            redis = Redis(servers.redis())
            rows = list(time_rows(redis, turns, requests))
            window, zset = memory(redis)
        finally:
            servers.stop_all()
    print_table(rows)
    print(f"\nMEMORY USAGE after 1,000 requests of 1,000/h, key of 20 bytes: {window} bytes; "
          f"a sorted set of them {zset}, {zset / window:.0f} times as much")
    goals = [row["met"] for row in rows if "met" in row] + [window <= 150, zset >= 500 * window]
    if not arguments.quick:
        print(f"{sum(goals)} of {len(goals)} goals met")


if __name__ == "__main__":
    main()
