# SPDX-License-Identifier: MIT
"""What only a real server shows: its time, expiry, memory, lost scripts, callers at once.

Real time is what these tests are about: a server's clock cannot be set.
"""

import threading
import time

import pytest
import redis as client_library

import stint_abi as abi
from decode import decode
from oracle import UseLog
from store import NAMES, SCRIPTS, Store, instant, words_of

SPECS = ["window 5/10s", "window 1000/1h", "gcra 7/10s burst=4", "log 6/10s",
         "buckets 8/10s time_slack=1s count_slack=2", "fixed_window 5/1h",
         "fixed_window 5/10s align=first_use", "sliding_counter 9/1h", "concurrency 4 lease=3s"]


def server_us(redis):
    seconds, micros = redis.time()
    return seconds * 10**6 + micros


@pytest.mark.parametrize("spec", SPECS)
def test_a_key_expires_when_its_state_dies(redis, spec):
    """To the millisecond, rounded up; also after takes that leave the time of death as it is."""
    store, quota = Store(redis), abi.parse(spec)
    for cost in (1, 1, 2):
        reply = store.ask(quota, "key", "take", cost)
        assert reply.outcome == "allow"
        dies = decode(redis.get("key"), reply.now, *words_of(quota)).dies_us
        assert -(-dies // 1) == reply.now + reply.reset_after
        assert redis.execute_command("PEXPIRETIME", "key") == -(-dies // 1000)
    before = server_us(redis)
    assert before - 60 * 10**6 < reply.now <= before


MOVING = ["window 100000/1s", "window 5/100ms", "gcra 100000/1s", "log 8000/500ms",
          "buckets 100000/500ms time_slack=5ms", "fixed_window 100000/50ms",
          "fixed_window 100000/50ms align=first_use", "sliding_counter 100000/50ms"]


@pytest.mark.parametrize("spec", MOVING)
def test_the_expiry_moves_with_the_death_of_the_state(redis, spec):
    """Asked again and again until the state has died later four times."""
    store, quota, seen = Store(redis), abi.parse(spec), set()
    ends = time.monotonic() + 20
    while len(seen) < 5:
        assert time.monotonic() < ends
        reply = store.ask(quota, "key", "take", 1)
        value = redis.get("key")
        if reply.granted and value:
            dies = decode(value, reply.now, *words_of(quota)).dies_us
            expires = redis.execute_command("PEXPIRETIME", "key")
            assert expires in (-(-dies // 1000), -2), "it may have died since"
            seen.add(expires)


@pytest.mark.parametrize("spec", SPECS)
def test_what_is_given_back_at_once_leaves_no_key_or_one_that_dies_in_time(redis, spec):
    store, quota = Store(redis), abi.parse(spec)
    reply = store.ask(quota, "key", "take", 2)
    store.ask(quota, "key", "refund", 2, at=reply.now)
    value = redis.get("key")
    assert value is None or redis.pttl("key") > 0
    if spec.startswith(("window", "gcra")):
        assert value is None
    store.ask(quota, "key", "take", 1)
    store.ask(quota, "key", "reset", 0)
    assert redis.get("key") is None


def test_virtual_time_leaves_no_ttl(redis):
    store = Store(redis)
    for spec in SPECS:
        store.ask(abi.parse(spec), spec, "take", 1, 0)
        assert redis.ttl(spec) == -1


@pytest.mark.parametrize("spec", SPECS)
def test_a_refused_take_writes_nothing(redis, spec):
    store, quota = Store(redis), abi.parse(spec)
    store.ask(quota, "key", "take_upto", 2**32 - 1)
    before = redis.get("key"), redis.execute_command("PEXPIRETIME", "key")
    redis.config_resetstat()
    for verb, cost in (("take", quota.limit), ("peek", 1), ("take", quota.limit + 1), ("take", 0)):
        store.ask(quota, "key", verb, cost)
    assert (redis.get("key"), redis.execute_command("PEXPIRETIME", "key")) == before
    assert not {"cmdstat_set", "cmdstat_del"} & redis.info("commandstats").keys()


@pytest.mark.parametrize("spec", [spec for spec in SPECS if "concurrency" not in spec])
def test_eight_callers_admit_no_more_than_one_would(server, redis, spec):
    """On one key, in the server's own time: at most N in any window, whatever their order."""
    quota = abi.parse(spec.replace("10s", "300ms").replace("1s", "30ms").replace("1h", "300ms"))
    admitted, lock = [], threading.Lock()
    ends = time.monotonic() + 1.2

    def ask():
        with server.connect() as own:
            store, mine = Store(own), []
            # However slow the machine: until all together were granted more than one window's.
            while time.monotonic() < ends or len(mine) <= quota.limit // 8:
                reply = store.ask(quota, "hot", "take", 1)
                if reply.granted:
                    mine.append(reply.now)
        with lock:
            admitted.extend(mine)

    callers = [threading.Thread(target=ask) for _ in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    uses = UseLog()
    for instant_us in sorted(admitted):
        uses.add(instant_us * 1000, 1)
    bound = abi.lib.stint_max_in_any_window(abi.c.byref(quota))
    if abi.lib.stint_is_strict(abi.c.byref(quota)):
        assert bound == quota.limit
    assert quota.limit < len(admitted), "more than one window was asked for"
    assert uses.most_in_any(quota.period_ns) <= bound


def test_a_lost_script_is_sent_again(redis):
    store, quota = Store(redis), abi.parse("window 5/10s")
    assert store.ask(quota, "key", "take", 1).remaining == 4
    redis.script_flush()
    with pytest.raises(client_library.exceptions.NoScriptError):
        store.ask(quota, "key", "take", 1)
    words = ["take", 1, "0", 0, *words_of(quota)]
    assert redis.eval(SCRIPTS["window"], 1, "key", *words)[3] == 3
    assert store.ask(quota, "key", "take", 1).remaining == 2, "EVAL has put it back"


ANYTHING = ["", "x", "-1", "1.5", "nan", "inf", "4294967296", "1e300"]


@pytest.mark.parametrize("algorithm", abi.ALGORITHMS)
def test_what_cannot_be_understood_is_an_error_and_changes_nothing(redis, algorithm):
    store = Store(redis)
    options = [10**6, 0, 0] if algorithm == "buckets" else [0, 0, 0]
    good = ["take", "1", instant(5), "0", "100", "60000000", *options]
    store.call(algorithm, ["key"], *good)
    before = redis.get("key")
    for place in (0, 1, 2, 4, 5):
        for word in ANYTHING:
            if (place, word) in {(2, "4294967296"), (5, "4294967296")}:
                continue  # an instant, a length
            bad = [*good[:place], word, *good[place + 1:]]
            with pytest.raises(client_library.ResponseError):
                store.call(algorithm, ["key"], *bad)
    for wrong in (good[:4], [], ["refund", "1", instant(5), "x", *good[4:]]):
        with pytest.raises(client_library.ResponseError):
            store.call(algorithm, ["key"], *wrong)
    short = ["1", "100", "60000000", options[0], instant(5)]
    for place in range(3):
        for word in ANYTHING:
            if (place, word) != (2, "4294967296"):  # a length
                with pytest.raises(client_library.ResponseError):
                    store.call(algorithm, ["key"], *short[:place], word, *short[place + 1:])
    for now in ANYTHING:
        if now != "4294967296":  # an instant
            with pytest.raises(client_library.ResponseError):
                store.call(algorithm, ["key"], *short[:4], now)
    with pytest.raises(client_library.ResponseError):
        store.call(algorithm, ["key", "another"], *short)
    assert redis.get("key") == before


SHORT = ("window 100/1m", "window 7/1s resolution=10", "window 1000/1m", "window 1/1m",
         "buckets 500/10m time_slack=1m", "log 9/1s", "gcra 10/1s burst=4", "fixed_window 9/1s",
         "sliding_counter 9/1s", "concurrency 4 lease=3s")


@pytest.mark.parametrize("spec", SHORT)
def test_a_take_in_few_words_is_the_same_take(redis, spec):
    """Bursts and pauses, costs that fit, that do not, and that never will; replies and states."""
    store, quota, now = Store(redis), abi.parse(spec), 10**15
    name, words = NAMES[quota.algorithm], words_of(quota)
    period = words[1]
    for step in range(400):
        now += (0, 1, period // 7000, period // 900)[step % 7 % 4]
        cost = (1, 1, 2, 0, quota.limit // 3, quota.limit, quota.limit + 1)[step * step % 7]
        short = store.call(name, ["short"], cost, *words[:3], instant(now))
        long = store.call(name, ["long"], "take", cost, instant(now), 0, *words)
        assert short == long, (step, cost)
        assert redis.get("short") == redis.get("long")
    assert store.call(name, ["fresh"], 1, *words[:3])[:4] == \
        store.call(name, ["fresh too"], "take", 1, "0", 0, *words)[:4]


@pytest.mark.parametrize("algorithm", abi.ALGORITHMS)
def test_a_state_of_another_law_is_an_error(redis, algorithm):
    store = Store(redis)
    options = [10**6, 0, 0] if algorithm == "buckets" else [0, 0, 0]
    for value in (b"", b"x", b"hello, world; this is somebody else's"):
        redis.set("key", value)
        with pytest.raises(client_library.ResponseError):
            store.call(algorithm, ["key"], "take", 1, "0", 0, 100, 60000000, *options)
        assert redis.get("key") == value
    redis.delete("key")
    redis.lpush("key", "a list")
    with pytest.raises(client_library.ResponseError, match="WRONGTYPE"):
        store.call(algorithm, ["key"], "take", 1, "0", 0, 100, 60000000, *options)


def bytes_of(redis, key):
    return redis.memory_usage(key, samples=0)


def test_a_key_takes_few_bytes(redis):
    """1,000 requests of 1,000 per hour, under a key of 20 bytes; beside them a set of requests."""
    store, key = Store(redis), "k" * 20
    sizes = {}
    for algorithm in ("window", "gcra", "fixed_window", "sliding_counter"):
        spec = f"{algorithm} 1000/1h"
        for _ in range(1000):
            assert store.ask(abi.parse(spec), key, "take", 1).outcome == "allow"
        sizes[spec] = bytes_of(redis, key)
        redis.delete(key)
    print(sizes)
    assert max(sizes.values()) <= 150
    # Spread over two hours: every bunch is alive.
    for number in range(1000):
        assert store.ask(abi.parse("window 1000/1h"), key, "take", 1,
                         number * 3_600_000).outcome == "allow"
    redis.pexpire(key, 10**6)
    assert bytes_of(redis, key) <= 150
    for number in range(1000):
        redis.zadd("zset".ljust(20), {f"{1700000000000 + number}-{number}": 1700000000000 + number})
    times = bytes_of(redis, "zset".ljust(20)) / max(sizes.values())
    print(f"a sorted set takes {times:.0f} times as much")
    assert times >= 500
