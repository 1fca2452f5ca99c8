#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The protocol of README.md for `limits` and its store in memory."""
import array
import gc
import json
import sys
import time

from limits import RateLimitItemPerSecond, storage, strategies

STRATEGIES = {"fixed-window": strategies.FixedWindowRateLimiter,
              "moving-window": strategies.MovingWindowRateLimiter}


def say(**answer):
    print(json.dumps(answer), flush=True)


def limiter(form):
    return STRATEGIES[form](storage.MemoryStorage())


def key_text(index):
    return f"user:{index:011}"


def turn(hit, item, keys):
    wall, cpu = time.perf_counter(), time.process_time()
    granted = sum(hit(item, key) for key in keys)
    say(operations=len(keys), granted=granted, cpu_s=time.process_time() - cpu,
        wall_s=time.perf_counter() - wall)


def keyed(form, item, n_keys, path, operations):
    hit = limiter(form).hit
    keys = [key_text(index) for index in range(n_keys)]
    for key in keys:
        hit(item, key)
    indices = array.array("I")
    with open(path, "rb") as file:
        indices.frombytes(file.read())
    gc.freeze()
    say(ready=True)
    at = 0
    for _ in sys.stdin:
        chosen = [keys[indices[(at + i) % len(indices)]] for i in range(operations)]
        at += operations
        turn(hit, item, chosen)


def one(form, item, operations):
    hit = limiter(form).hit
    say(ready=True)
    for _ in sys.stdin:
        turn(hit, item, ["one"] * operations)


def memory(form, item, n_keys):
    kept = []
    say(ready=True)
    for _ in sys.stdin:
        kept.append(limiter(form))
        for index in range(n_keys):
            kept[-1].hit(item, key_text(index))
        gc.collect()
        say(keys=n_keys)


def ask(form, item):
    hit = limiter(form).hit
    say(ready=True)
    for line in sys.stdin:
        _, key, n = line.split()
        say(granted=sum(hit(item, key) for _ in range(int(n))))


def main():
    form, row, n_keys, path, _, operations, limit, period_ms = sys.argv[1:]
    item = RateLimitItemPerSecond(int(limit), int(period_ms) // 1000)
    if row == "keyed":
        keyed(form, item, int(n_keys), path, int(operations))
    elif row == "one":
        one(form, item, int(operations))
    elif row == "memory":
        memory(form, item, int(n_keys))
    else:
        ask(form, item)


if __name__ == "__main__":
    main()
