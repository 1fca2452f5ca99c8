# SPDX-License-Identifier: MIT
"""A redis-server as a process of a test, and the scripts of lua/ called as docs/store-scripts.md
says."""

import shutil
import subprocess
import tempfile
import time
from collections import namedtuple
from pathlib import Path

import redis

import make_scripts
import stint_abi as abi

LUA = Path(abi.ROOT) / "lua"
STARTS_S = 20
OUTCOMES = ("allow", "deny", "never")
NAMES = {number: name for name, number in abi.ALGORITHMS.items()}
SCRIPTS = {name: make_scripts.script(LUA, name)
           for name in make_scripts.NAMES}

# A reply: as abi.Decision, in us and with None for a wait that never ends; then what else it tells.
# each: the six figures of every quota of a list.
Reply = namedtuple("Reply", "outcome granted limit remaining retry_after reset_after "
                            "binding now holders each replayed")


class RedisServer:
    """In memory alone; stopped by its own pid, its folder removed."""

    def __init__(self, *options):
        self.folder = tempfile.mkdtemp(prefix="stint-store-")
        self.socket = f"{self.folder}/socket"
        self.process = subprocess.Popen(
            ["redis-server", "--port", "0", "--unixsocket", self.socket, "--save", "",
             "--appendonly", "no", "--dir", self.folder, *options],
            stdout=subprocess.DEVNULL)

    def connect(self):
        return redis.Redis(unix_socket_path=self.socket)

    def __enter__(self):
        ends = time.monotonic() + STARTS_S
        while True:  # a server that starts is waited for in real time: there is no other
            try:
                with self.connect() as client:
                    client.ping()
                return self
            except redis.ConnectionError:
                assert self.process.poll() is None and time.monotonic() < ends, "it did not start"
                time.sleep(0.02)

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(STARTS_S)
        shutil.rmtree(self.folder, ignore_errors=True)


def us(ns):
    """A length of time of a quota, which is made in whole microseconds."""
    assert ns % 1000 == 0, f"{ns} ns are not whole microseconds"
    return ns // 1000


def words_of(quota):
    """limit period x y z."""
    options = {
        "window": (quota.resolution,),
        "buckets": (us(quota.time_slack_ns), quota.count_slack),
        "gcra": (quota.burst, int(quota.count_denied)),
        "fixed_window": (quota.align, quota.utc_offset_s, int(quota.count_denied)),
        "sliding_counter": (int(quota.count_denied),),
    }.get(NAMES[quota.algorithm], ())
    return (quota.limit, us(quota.period_ns), *options, *(0,) * (3 - len(options)))


def figures_of(values):
    outcome, granted, limit, remaining, retry, reset = values
    return (OUTCOMES[outcome], granted, limit, remaining, None if retry < 0 else retry, reset)


def reply_of(values, n_listed=0):
    replayed = values[0] == 4
    sum_ = [0 if replayed else values[0], *values[1:6]]
    (binding, now), rest = values[6:8], values[8:]
    each, holders = rest[:6 * n_listed], rest[6 * n_listed:]
    return Reply(*figures_of(sum_), binding, now, list(zip(holders[::2], holders[1::2])),
                 [figures_of(each[at:at + 6]) for at in range(0, len(each), 6)], replayed)


def instant(now):
    """Virtual time; None is the server's."""
    return "0" if now is None else f"+{now}"


class Store:
    """The scripts over one connection, by their hashes."""

    def __init__(self, client, names=tuple(SCRIPTS)):
        self.client = client
        self.hashes = {name: client.script_load(SCRIPTS[name]) for name in names}

    def call(self, name, keys, *words):
        return self.client.evalsha(self.hashes[name], len(keys), *keys, *words)

    def ask(self, quota, key, verb, cost, now=None, at=0, id=None):
        """id: (its key, the body's 16 digits, ms)."""
        name, keys, words = NAMES[quota.algorithm], [key], words_of(quota)
        if id:
            name, keys, words = f"{name}_once", [key, id[0]], (*words, *id[1:])
        elif verb == "take" and words[3:] == (0, 0):
            return reply_of(self.call(name, keys, cost, *words[:3], instant(now)))
        return reply_of(self.call(name, keys, verb, cost, instant(now), at, *words))

    def count(self, key, amount, expiry_us, now=None, verb=None):
        """(count, expires after so many us) of a counter."""
        verb = verb or ("charge" if amount > 0 else "refund" if amount < 0 else "peek")
        reply = reply_of(self.call("counter", [key], verb, abs(amount), instant(now), 0,
                                   abi.U32_MAX, expiry_us))
        assert reply.outcome == "allow"
        if verb == "reset":
            return 0, reply.reset_after
        ((counted, zero),) = reply.holders
        assert zero == 0 and reply.remaining == max(0, abi.U32_MAX - counted)
        return counted, reply.reset_after

    def ask_list(self, items, verb, now=None, at=0, id=None):
        """items: (quota, key, cost)."""
        words = [word for quota, _, cost in items
                 for word in (NAMES[quota.algorithm], cost, *words_of(quota))]
        name, keys = "list", [key for _, key, _ in items]
        if id:
            name, keys, words = "list_once", [*keys, id[0]], [*words, *id[1:]]
        return reply_of(self.call(name, keys, verb, instant(now), at, *words), len(items))

    def roll(self, namespace, credit, tokens, window, bucket_window, best_effort, now=None):
        """(granted, remaining, retry_after, reset_after)"""
        return self.call("rolling_window", [namespace], credit, tokens, window, bucket_window,
                         best_effort, instant(now))


def in_us(decision):
    """What C decided, as a reply tells it: waits rounded up."""
    retry = decision.retry_after
    return (*decision[:4], None if retry == abi.NEVER_NS else -(-retry // 1000),
            -(-decision.reset_after // 1000))
