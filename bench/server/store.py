#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures limits on a shared Redis, each row against a baseline of the same run.

What a decision costs Redis is what INFO says of its processor time, since that is what a fleet of
servers shares: there Redis has a core of its own, and the server is with whoever asks it. With
leases and the cache of denials Redis has little to do, and the server is with it on the other core;
who asks is then bench/server/closed_loop.c, since redis-benchmark is slower than such a server.
bench/server/decide.c decides with no frontend between.
"""
import argparse
import itertools
import json
import re
import shutil
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from run import check_kept, machine, print_table  # noqa: E402  (its folder is named just above)
import store_scripts  # noqa: E402
from machinery import (KEYS, LOAD_CORE, SERVER_CORE, Servers, closed_loop,  # noqa: E402
                       free_port, judge, on_core, output, redis_benchmark, row)

MINUTE_US = 60_000_000
WORDS = {"window": ["take", 1, 0, 0, 100, MINUTE_US, 24]}
HOT_LIMIT = 1_000_000  # per second
LEASE_UNITS, LEASE_TERM_MS = 1000, 50
SHARE_LIMIT, SHARE_UNITS, SHARE_TERM_MS = 5000, 50, 50
HOT_KEYS, IN_FLIGHT = 8, 3200  # of decide; as many as 50 connections with pipelines of 64

SIZED = ("window", "gcra", "fixed_window", "sliding_counter")

RULES = f"""
domain: bench
descriptors:
  - key: each
    rate_limit: {{requests_per_unit: 100, unit: minute}}
  - key: hot
    rate_limit: {{requests_per_unit: {HOT_LIMIT}, unit: second}}
  - key: leased
    rate_limit: {{requests_per_unit: {HOT_LIMIT}, unit: second, lease: strict,
                 lease_units: {LEASE_UNITS}, lease_term: {LEASE_TERM_MS}ms}}
  - key: full
    rate_limit: {{requests_per_unit: {SHARE_LIMIT}, unit: second}}
  - key: full_leased
    rate_limit: {{requests_per_unit: {SHARE_LIMIT}, unit: second, lease: strict,
                 lease_units: {SHARE_UNITS}, lease_term: {SHARE_TERM_MS}ms}}
  - key: attacked
    rate_limit: {{requests_per_unit: 100, unit: minute}}
  - key: hour
    rate_limit: {{requests_per_unit: 1000, unit: hour}}
""" + "".join(f"""  - key: {name}
    rate_limit: {{requests_per_unit: 1000, unit: hour, algorithm: {name}}}
""" for name in SIZED)


class Redis:
    def __init__(self, server):
        self.server, self.port = server, server.ports[0]

    def cli(self, *words):
        return output("redis-cli", "-p", self.port, *map(str, words)).strip()

    def cpu_us(self):
        text = self.cli("INFO", "CPU")
        return sum(float(re.search(rf"used_cpu_{kind}:([\d.]+)", text)[1])
                   for kind in ("user", "sys")) * 1e6

    def figure(self, name):
        return int(re.search(rf"(?m)^{name}:(\d+)", self.cli("INFO", "ALL"))[1])


class Bench:
    def __init__(self, servers, arguments):
        self.servers, self.quick = servers, arguments.quick
        self.turns = 1 if arguments.quick else 5
        self.core = LOAD_CORE
        (servers.scratch / "rules.yaml").write_text(RULES)

    def requests(self, many):
        return many // 100 if self.quick else many

    def begin(self, *options):
        """A Redis, and a server on it. Thousands wait for the one script at a time: measured is
        how long it takes for all, not how many give up."""
        self.redis = Redis(self.servers.redis())
        self.stint = self.start(*options)

    def start(self, *options):
        resp, http = free_port(), free_port()
        return self.servers.start(
            [*on_core(self.core, self.servers.build / "src/cmd/stint"), "serve", "--workers", 1,
             "--store", f"redis://127.0.0.1:{self.redis.port}",
             "--rules", self.servers.scratch / "rules.yaml", "--resp", f"127.0.0.1:{resp}",
             "--http", f"127.0.0.1:{http}", "--grpc", "off", "--log-level", "warn",
             "--store-timeout", "5s", *options],
            [resp, http])

    def end(self):
        self.servers.stop_all()

    def figure(self, stint, name, *labels):
        """The sum of the series of that name that have these labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{stint.ports[1]}/metrics",
                                    timeout=20) as answer:
            text = answer.read().decode()
        found = re.findall(rf"(?m)^{name}(\{{[^}}]*\}})? (\S+)$", text)
        return sum(float(value) for shown, value in found if all(each in shown for each in labels))

    def ask(self, stint, requests, pipeline, entry, value, load=redis_benchmark):
        """(Redis' processor time per decision in us, decisions per second)."""
        faults = self.figure(stint, "stint_store_errors_total")
        try:
            return self.ask_all(stint, requests, pipeline, entry, value, load)
        finally:
            faults = self.figure(stint, "stint_store_errors_total") - faults
            if faults > requests / 1000:  # leases that were asked for ahead of their time
                reasons = {reason: self.figure(stint, "stint_store_errors_total", reason)
                           for reason in ("late", "lost", "unreachable", "overload", "stopped",
                                          "refused", "other")}
                sys.exit(f"{faults:.0f} of {requests} were not decided by the store: {reasons}")

    def ask_all(self, stint, requests, pipeline, entry, value, load):
        before = self.redis.cpu_us()
        _, spent = load(stint.ports[0], requests, pipeline, "STINT.TAKE", "DOMAIN", "bench",
                        "DESCRIPTOR", 1, entry, value)
        return (self.redis.cpu_us() - before) / requests, requests / spent

    def light(self, *arguments):
        """A load that costs less than a server which need not ask its store."""
        return closed_loop(self.servers.build, *arguments)

    def decide(self, entry, requests):
        """Decisions per second of a program that is nothing but a service over the store."""
        told = json.loads(output(self.servers.build / "bench/decide", self.redis.port,
                                 self.servers.scratch / "rules.yaml", "bench", entry, HOT_KEYS,
                                 IN_FLIGHT, requests))
        if told["allowed"] < 0.999 * told["answered"]:
            sys.exit(f"decide: {told['answered'] - told['allowed']} were denied: {told}")
        return told["answered"] / told["seconds"]

    def script(self, requests, pipeline, sha, key, words):
        before, began = self.redis.cpu_us(), time.monotonic()
        redis_benchmark(self.redis.port, requests, pipeline, "EVALSHA", sha, "1", key, *words)
        spent = time.monotonic() - began
        return (self.redis.cpu_us() - before) / requests, requests / spent

    def turns_of(self, *runs):
        """What each run gave in each turn; they take turns at being first, one turn to warm up."""
        found = [[] for _ in runs]
        for turn in range(self.turns + 1):
            order = range(len(runs)) if turn % 2 else reversed(range(len(runs)))
            for place in order:
                given = runs[place]()
                if turn:
                    found[place].append(given)
        return found

    # ---- the rows ----

    def decision_rows(self):
        """A million random keys of `window`, 100 per minute."""
        self.begin()
        many = self.requests(160_000)
        sha = self.redis.cli("SCRIPT", "LOAD", store_scripts.make_scripts.script(
            store_scripts.LUA, "window"))
        rows = []
        for pipeline in (16, 1):
            count = many if pipeline > 1 else many // 4
            ours, plain = self.turns_of(
                lambda: self.ask(self.stint, count, pipeline, "each", "key:__rand_int__"),
                lambda: self.script(count, pipeline, sha, "stint:{key:__rand_int__}window:bench",
                                    WORDS["window"]))
            name = f"window, 1 M random keys, pipelines of {pipeline}, 50 connections"
            rows.append(row(f"{name}: Redis CPU per decision", "EVALSHA of the same script",
                            [cpu for cpu, _ in ours], [cpu for cpu, _ in plain],
                            "<= 1.1" if pipeline > 1 else None, "us of Redis' CPU"))
            rows.append(row(f"{name}: throughput", "EVALSHA of the same script",
                            [rate for _, rate in ours], [rate for _, rate in plain], None,
                            "requests/s"))
        self.end()
        return rows

    def script_rows(self):
        redis = store_scripts.Redis(self.servers.redis())
        # The first two have a goal: keys that are new, and one that is hot.
        rows = list(itertools.islice(store_scripts.time_rows(
            redis, self.turns, 5_000 if self.quick else 40_000), 2))
        window, zset = store_scripts.memory(redis)
        rows.append(judge({"program": "server", "what": "bytes of a key, 1,000 of 1,000 per hour, "
                           "a key of 20 bytes", "unit": "bytes", "value": window,
                           "baseline": "sorted set", "baseline_value": zset,
                           "ratio": zset / window}, ">= 500 times less", zset / window))
        rows.append(judge({"program": "server", "what": "the same, MEMORY USAGE", "unit": "bytes",
                           "value": window}, "<= 150 bytes", window))
        self.end()
        return rows

    def key_rows(self):
        """A key as the server names it."""
        self.begin()
        redis_benchmark(self.stint.ports[0], 1000, 16, "STINT.TAKE", "DOMAIN", "bench",
                        "DESCRIPTOR", 1, "hour", "203.0.113.9")
        (name,) = [name for name in self.redis.cli("--scan").splitlines() if "203.0.113.9" in name]
        used = int(self.redis.cli("MEMORY", "USAGE", name, "SAMPLES", 0))
        rows = [{"program": "server", "what": f"the same, as the server names it: {name}",
                 "unit": "bytes", "value": used}]
        rows += [self.size_row(algorithm) for algorithm in SIZED]
        self.end()
        return rows

    def size_row(self, algorithm):
        """What a live key takes of Redis' memory: with its place in both tables, that of keys and
        that of expiries."""
        self.redis.cli("FLUSHALL")
        before = self.redis.figure("used_memory")
        self.ask(self.stint, self.requests(300_000), 16, algorithm, "203.__rand_int__")
        count = int(self.redis.cli("DBSIZE"))
        return {"program": "server", "unit": "bytes",
                "what": f"memory per key, {count} keys of {algorithm}, values of 16 bytes",
                "value": (self.redis.figure("used_memory") - before) / count}

    def lease_rows(self):
        self.core = SERVER_CORE
        self.begin()
        rows = []
        for pipeline in (64, 16, 1):
            count = self.requests(1_000_000 if pipeline > 1 else 100_000)
            leased, plain = self.turns_of(
                lambda: self.ask(self.stint, count, pipeline, "leased", "one", self.light),
                lambda: self.ask(self.stint, count // 10, pipeline, "hot", "one", self.light))
            name = f"one hot key through RESP, pipelines of {pipeline}, lease: strict"
            rows.append(row(f"{name}: throughput", "without leases", [rate for _, rate in leased],
                            [rate for _, rate in plain], ">= 20" if pipeline == 64 else None,
                            "requests/s"))
            rows.append(row(f"{name}: Redis CPU per decision", "without leases",
                            [cpu for cpu, _ in leased], [cpu for cpu, _ in plain],
                            "<= 0.05" if pipeline == 64 else None, "us of Redis' CPU"))
        rows.append(self.share_row())
        rows.append(self.decide_row())
        self.end()
        return rows

    def decide_row(self):
        count = self.requests(4_000_000)
        leased, plain = self.turns_of(lambda: self.decide("leased", count),
                                      lambda: self.decide("hot", count // 20))
        return row(f"{HOT_KEYS} hot keys decided with no frontend between, {IN_FLIGHT} in flight, "
                   "lease: strict: throughput", "without leases", leased, plain, ">= 20",
                   "decisions/s")

    def share_row(self):
        """Of a limit that is asked for far beyond, by units granted over some seconds."""
        def granted(rule):
            return self.figure(self.stint, "stint_units_total", f'rule="{rule}"')

        def share(rule):
            seconds = 1 if self.quick else 4
            self.ask_for(rule, 1.5)  # until it is full
            before, began = granted(rule), time.monotonic()
            asked = self.ask_for(rule, seconds)
            units, spent = granted(rule) - before, time.monotonic() - began
            if asked < 1.5 * SHARE_LIMIT * spent and not self.quick:
                sys.exit(f"{rule}: only {asked / spent:.0f} requests per second")
            return units / (spent * SHARE_LIMIT)

        leased, plain = self.turns_of(lambda: share("full_leased"), lambda: share("full"))
        least = 1 / (1 + SHARE_TERM_MS / 1000)
        return row(f"of {SHARE_LIMIT} per second, B = {SHARE_UNITS}, terms of {SHARE_TERM_MS} ms: "
                   "share that is granted", "without leases", leased, plain,
                   f">= {least:.3f} W/(W+term)", "of N")

    def ask_for(self, rule, seconds):
        ends, asked = time.monotonic() + seconds, 0
        while time.monotonic() < ends:
            asked += self.light(self.stint.ports[0], 10_000, 64, "STINT.TAKE", "DOMAIN",
                                "bench", "DESCRIPTOR", 1, rule, "one")[0]
        return asked

    def attack_rows(self):
        """A key that is asked for far more often than it may."""
        self.core = SERVER_CORE
        self.begin()
        without = self.start("--deny-cache-max", "0")
        rows = []
        for pipeline in (64, 16, 1):
            count = self.requests(1_000_000 if pipeline > 1 else 100_000)
            ours, plain = self.turns_of(
                lambda: self.ask(self.stint, count, pipeline, "attacked", "one", self.light),
                lambda: self.ask(without, count // 10, pipeline, "attacked", "one", self.light))
            rows.append(row(f"99 % denied, pipelines of {pipeline}: throughput",
                            "without the denial cache", [rate for _, rate in ours],
                            [rate for _, rate in plain], ">= 10" if pipeline == 64 else None,
                            "requests/s"))
            rows.append(row(f"99 % denied, pipelines of {pipeline}: Redis CPU per decision",
                            "without the denial cache", [cpu for cpu, _ in ours],
                            [cpu for cpu, _ in plain], None, "us of Redis' CPU"))
        self.end()
        return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=Path, help="a build folder, compiled: ninja -C BUILD bench")
    parser.add_argument("--quick", action="store_true", help="does everything run? No goals")
    parser.add_argument("--only", help="decision, script, key, lease or attack")
    parser.add_argument("--json", type=Path, help="where to write (BUILD/bench/store.json)")
    arguments = parser.parse_args()
    for tool in ("redis-server", "redis-benchmark", "redis-cli", "taskset"):
        if shutil.which(tool) is None:
            sys.exit(f"{tool} is needed: tools/setup.sh bench-server installs it")
    build = arguments.build.resolve()
    path = arguments.json or build / "bench/store.json"
    check_kept(path)
    rows = []
    with tempfile.TemporaryDirectory(prefix="stint-bench-") as scratch:
        servers = Servers(build, Path(scratch))
        bench = Bench(servers, arguments)
        try:
            for name in ("decision", "script", "key", "lease", "attack"):
                if arguments.only in (None, name):
                    print(name, flush=True)
                    rows += getattr(bench, f"{name}_rows")()
        finally:
            servers.stop_all()
    where = machine(build)
    if arguments.quick:
        for each in rows:
            each.pop("met", None)
    print(f"\n{where['cpu']}, {where['cores']} cores, Linux {where['kernel']}, "
          f"{where['compiler']}\n")
    print_table([dict({"ratio_q1": 0, "ratio_q3": 0}, **each) for each in rows])
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"machine": where, "quick": arguments.quick, "rows": rows},
                               indent=1) + "\n")
    goals = [each["met"] for each in rows if "met" in each]
    print(f"\n{sum(goals)} of {len(goals)} goals met; JSON: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
