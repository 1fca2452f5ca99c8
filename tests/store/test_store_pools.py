# SPDX-License-Identifier: MIT
"""A pool on a store chooses as the pool of the library does, which is asked the same beside it.

Its benches end at multiples of 2^16 ns. All instants and cooldowns here are multiples of 8,192 us,
which both can tell exactly, so no key is benched in one and not in the other; waits until a bench
is over may differ by such a step, and those of failures by two.
"""

import os
import subprocess
import threading
import time

import pytest
import redis as client_library
from hypothesis import given, strategies as st

import stint_abi as abi
from oracle import UseLog
from pool_calls import ORDERS, CPool, StorePool
from stint_pool import Pool
from stint_table import Table

TICK = 8192
S = 122 * TICK  # about a second
STEP = 132  # us
SPECS = ["window 3/10s", "window 20/10s resolution=12", "gcra 4/10s", "log 3/5s",
         "buckets 5/10s time_slack=1s count_slack=2", "fixed_window 2/10s", "sliding_counter 5/10s",
         "window 0/10s", "gcra 9/60s burst=2"]
QUOTAS = [abi.parse(spec) for spec in SPECS]
for quota_, spec_ in zip(QUOTAS, SPECS):
    quota_.spec = spec_
KEYS = st.lists(st.tuples(st.lists(st.integers(0, len(SPECS) - 1), min_size=1, max_size=3,
                                   unique=True), st.sampled_from([1, 1, 1, 2, 3, 7])),
                min_size=1, max_size=6)
SAME = st.builds(lambda quota, n: [([quota], 1)] * n, st.sampled_from([0, 2, 5]), st.integers(2, 5))
STEPS = st.lists(st.one_of(
    *[st.tuples(st.just("next"), st.sampled_from([1, 1, 1, 1, 2, 0, 4]), st.booleans())] * 4,
    st.tuples(st.just("pass"), st.sampled_from([0, 1, 10, S // TICK, 5 * S // TICK, 2000, 9000])),
    st.tuples(st.just("give_back"), st.integers(0, 2**16), st.integers(1, 3)),
    st.tuples(st.just("report"), st.integers(0, 5),
              st.sampled_from(["ok", "cool", "cool", "back_off", "back_off", "out"]),
              st.sampled_from([1, 5 * S // TICK, 3000])),
    st.tuples(st.just("remove"), st.integers(0, 5)),
    st.tuples(st.just("add"), st.integers(0, 5)),
), min_size=1, max_size=40)


def near(ours, theirs_ns):
    """A wait of the store, in us, and one of the table."""
    if ours is None or theirs_ns == abi.NEVER_NS:
        return ours is None and theirs_ns == abi.NEVER_NS
    return ours <= -(-theirs_ns // 1000) <= ours + STEP


class Pair:
    """One pool in both. The table's is by turns a state for each key from the beginning."""

    def __init__(self, ours, table, keys):
        self.ours, self.theirs = ours, Pool(table, order=ours.order)
        self.table, self.now, self.grants = table, TICK, []
        self.kinds = {f"key{n}": key for n, key in enumerate(keys)}
        table.at(self.now * 1000)
        for name in self.kinds:
            self.add(name)
        for pool in (self.ours, self.theirs):
            scale = 1 if pool is self.ours else 1000
            pool.report("key0", "cool", TICK * scale, now=self.now * scale)
            pool.report("key0", "ok", now=self.now * scale)

    def add(self, name):
        quotas, weight = [QUOTAS[n] for n in self.kinds[name][0]], self.kinds[name][1]
        if name in self.ours.keys:
            return
        self.ours.keys[name] = (quotas, weight)
        self.theirs.add(name, quotas, weight)

    def remove(self, name):
        if name in self.ours.keys:
            self.ours.let_in(name, self.now)
            del self.ours.keys[name]
            self.theirs.remove(name)

    def next(self, cost, probe):
        ours, theirs = self.ours.next(cost, probe, self.now), self.theirs.next(cost, probe)
        assert ours.name == theirs.name, (ours, theirs)
        assert ours.probe == theirs.probe
        assert near(ours.wait, theirs.wait) and near(ours.retry_after,
                                                        theirs.decision.retry_after)
        assert (ours.outcome, ours.granted, ours.limit, ours.remaining) == theirs.decision[:4]
        assert ours.binding == theirs.decision.binding
        assert ours.reset_after == -(-theirs.decision.reset_after // 1000)
        assert ours.granted_at == self.now == theirs.granted_at // 1000
        if ours.name and cost:
            self.grants.append((ours.name, self.now, cost))

    def give_back(self, which, units):
        if not self.grants:
            return
        name, at, cost = self.grants.pop(which % len(self.grants))
        if name in self.ours.keys:
            back = self.ours.give_back(name, min(units, cost), at, self.now)
            assert back == self.theirs.give_back(name, min(units, cost), at * 1000)[1]

    def report(self, which, outcome, ticks):
        name = f"key{which % len(self.kinds)}"
        if name in self.ours.keys:
            cooldown = ticks * TICK if outcome == "cool" else 0
            self.ours.report(name, outcome, cooldown, self.now)
            self.theirs.report(name, outcome, cooldown * 1000)

    def check_status(self):
        for ours, theirs in zip(self.ours.status(self.now), self.theirs.each(), strict=True):
            assert (ours.name, ours.standing, ours.failures) == (theirs.name, theirs.standing,
                                                                 theirs.failures)
            assert near(ours.returns_after, theirs.returns_after), (ours, theirs)
            told = theirs.decision
            assert (ours.outcome, ours.limit, ours.remaining) == (told.outcome, told.limit,
                                                                  told.remaining)
            assert near(ours.retry_after, told.retry_after)
            assert ours.reset_after == -(-told.reset_after // 1000)


def play(client, order, keys, steps, ours=None):
    client.flushall()
    with Table(keys=64, keys16=64, keys_wide=64, wide_size=512) as table:
        pair = Pair(ours or StorePool(client, order=order), table, keys)
        for verb, *words in steps:
            if verb == "pass":
                pair.now += words[0] * TICK
                table.at(pair.now * 1000)
            elif verb in ("add", "remove"):
                getattr(pair, verb)(f"key{words[0] % len(keys)}")
            else:
                getattr(pair, verb)(*words)
            pair.check_status()
        pair.theirs.close()


@pytest.mark.parametrize("order", ORDERS)
@given(keys=KEYS, steps=STEPS)
def test_keys_of_all_kinds_are_chosen_the_same(redis, order, keys, steps):
    play(redis, order, keys, steps)


@pytest.mark.parametrize("order", ORDERS)
@given(keys=SAME, steps=STEPS)
def test_keys_of_one_kind_are_chosen_the_same(redis, order, keys, steps):
    play(redis, order, keys, steps)


@pytest.mark.parametrize("order", ORDERS)
@given(keys=KEYS, steps=STEPS)
def test_c_asks_a_pool_on_a_store_as_one_in_its_table(redis, order, keys, steps):
    pool = CPool(redis, order)
    play(redis, order, keys, steps, pool)
    assert redis.keys() in ([], [pool.key.encode()])
    pool.close()


def test_c_refuses_lists_that_no_store_keeps_and_replies_that_no_script_sends(redis):
    pool = CPool(redis)
    pool.keys = {"a": ([QUOTAS[0]], 1), "b": ([QUOTAS[2]], 2)}
    good = [0, 0, 7, 0, 0, 0, 1, 3, 2, 0, 9]
    assert pool.define() == "made"
    assert pool.say("read", "next", *good).split()[0] == "b", "the heaviest is the first by turns"
    for place, value in [(0, 2), (0, -2), (1, 5), (2, -1), (3, 2), (4, 4), (5, 1), (5, 3), (6, -1),
                         (7, 2**32), (8, 4), (9, -1), (10, -1), (0, -1)]:
        bad = [*good[:place], value, *good[place + 1:]]
        assert pool.say("read", "next", *bad) == "none", (place, value)
    assert pool.say("read", "next", *good[:-1]) == "none"
    row = [0, 0, 0, 0, 3, 3, 0, 0]
    assert pool.say("read", "status", *row, *row) != "none"
    for place, value in [(0, 5), (1, 256), (2, -2), (3, 3), (5, 4), (6, -1)]:
        bad = [*row[:place], value, *row[place + 1:]]
        assert pool.say("read", "status", *row, *bad) == "none", (place, value)
    assert pool.say("read", "status", *row) == pool.say("read", "back", 1, 2) == "none"
    assert pool.say("let_in", "c", "-") == "none"
    for line, why in [("pool 0\ta\t1\tgcra 5/1s\ta\t2\tgcra 5/1s", "twice"),
                      ("pool 0\ta\t1\tconcurrency 5 lease=1s", "concurrency"),
                      ("pool 0\ta\t1\twindow 5/1000500ns", "microseconds")]:
        assert why in pool.say(line)
    assert pool.say("pool 0\ta\t1\twindow 5/1s") == "made"
    pool.close()


def test_a_time_of_any_length_is_as_good_as_the_longest_number(redis):
    pool = CPool(redis)
    pool.keys = {"a": ([QUOTAS[0]], 1)}
    pool.next(now=7)
    for granted_at in (2**53 - 1, 2**53, 2**54):
        assert pool.give_back("a", 1, granted_at, now=7) in (0, 1)
    pool.close()


UNEVEN = st.lists(st.tuples(st.lists(st.sampled_from([0, 2, 3, 5]), min_size=1, max_size=1),
                            st.integers(1, 4)), min_size=3, max_size=6)
TAKES = st.lists(st.one_of(*[st.tuples(st.just("next"), st.just(1), st.just(False))] * 5,
                           st.tuples(st.just("pass"), st.sampled_from([30, 100, 300, 700]))),
                 min_size=15, max_size=60)


@given(keys=UNEVEN, steps=TAKES)
def test_turns_of_uneven_weights_pass_over_the_same_keys(redis, keys, steps):
    play(redis, "round_robin", keys, steps)


@pytest.mark.parametrize("order", ORDERS)
def test_a_hundred_keys_are_read_in_pieces_and_all_used_up(redis, order):
    """The last that is free is found, wherever it stands; none is used twice."""
    pool, now = StorePool(redis, order=order), S
    pool.keys = {f"key{n}": ([QUOTAS[n % 2]], 1 + n % 3) for n in range(100)}
    given = [pool.next(now=now).name for _ in range(50 * 3 + 50 * 20)]
    assert [given.count(name) for name in pool.keys] == [3, 20] * 50
    none = pool.next(now=now)
    assert none.name is None and none.outcome == "deny" and none.wait > 0
    assert pool.next(now=now + none.wait - 1).name is None
    assert pool.next(now=now + none.wait).name is not None


def test_no_keys_and_no_quota_that_could_ever_serve(redis):
    pool = StorePool(redis)
    assert pool.next(now=S)[:2] == (None, None)
    pool.keys = {"a": ([QUOTAS[7]], 1)}
    assert pool.next(now=S)[:6] == (None, None, S, False, 0, "never")
    assert redis.keys() == []


@pytest.mark.parametrize("order", ORDERS)
def test_eight_callers_pass_no_keys_limit(server, redis, order):
    """In the server's own time: at most N of each key in any window, and each key is used."""
    quota = abi.parse("window 20/300ms")
    admitted, lock, ends = {}, threading.Lock(), time.monotonic() + 1.5

    def ask():
        with server.connect() as own:
            pool, mine = StorePool(own, order=order), []
            pool.keys = {name: ([quota], 1) for name in "abc"}
            while time.monotonic() < ends:
                answer = pool.next()
                if answer.name:
                    mine.append((answer.name, answer.granted_at))
        with lock:
            for name, at in mine:
                admitted.setdefault(name, []).append(at)

    callers = [threading.Thread(target=ask) for _ in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert set(admitted) == set("abc")
    for times in admitted.values():
        uses = UseLog()
        for at in sorted(times):
            uses.add(at * 1000, 1)
        assert uses.most_in_any(quota.period_ns) <= quota.limit
        assert len(times) > quota.limit, "more than one window was asked for"


def test_the_hash_outlives_its_states_and_keeps_no_dead_ones(redis):
    pool = StorePool(redis)
    pool.keys = {"a": ([abi.parse("window 3/1h")], 1), "b": ([abi.parse("gcra 5/20ms")], 1)}
    for _ in range(2):
        pool.next()
    assert 3_600_000 < redis.pttl(pool.key) <= 2 * 3_900_000
    assert len(redis.hgetall(pool.key)) == 4  # two states, the turn, and when all expires
    # A key that is out is so until it is let in: nothing expires meanwhile.
    pool.report("a", "out")
    assert redis.pttl(pool.key) == -1
    ends = time.monotonic() + 20
    while pool.status()[1].reset_after:
        assert time.monotonic() < ends
    pool.report("a", "ok")
    assert 3_000_000 < redis.pttl(pool.key)
    fields = sorted(field.split(b",")[0] for field in redis.hkeys(pool.key))
    assert fields == [b"#", b"^", b"window"]
    pool.report("b", "out")
    pool.let_in("b")
    assert redis.pttl(pool.key) > 0 and pool.status()[1].standing == "free"


def test_what_cannot_be_understood_is_an_error_and_changes_nothing(redis):
    pool = StorePool(redis)
    pool.keys = {"a": ([QUOTAS[0]], 1), "b": ([QUOTAS[1]], 2)}
    pool.next(now=S)
    before = redis.hgetall(pool.key)
    good = ["next", "+5", 1, 0, 0, 0, "2,1", "2,1", 2, 1, "window", 5, S, 0, 0, 0, 1, "gcra", 5, S,
            0, 0, 0, "b", "a"]
    assert pool.store.call("pool", ["{pool}other"], *good)[0] == 0
    for place, word in [(0, "take"), (1, "x"), (1, "+-1"), (2, -1), (2, "1.5"), (2, 2**32), (4, 3),
                        (3, -2), (6, "1"), (6, "0,1"), (6, "2,1001"), (7, "3,1"), (7, "1"),
                        (8, "x"), (8, 0), (9, 9), (10, "concurrency"), (11, -1), (11, 2**32),
                        (12, 0),
                        (0, "report"), (0, "give_back"), (0, "let_in")]:
        with pytest.raises(client_library.ResponseError):
            pool.store.call("pool", [pool.key], *good[:place], word, *good[place + 1:])
    for outcome, cooldown in (("ok", 1), ("cool", 0), ("cool", 366 * 86400 * 10**6), ("out", 5)):
        with pytest.raises(client_library.ResponseError, match="STINT expected next"):
            pool.report("a", outcome, cooldown, S)
    assert redis.hgetall(pool.key) == before


class Loads:
    """Processes that ask the same pool as workers do."""

    def __init__(self, count, url, order, keys, spec, at_once):
        self.processes = [
            subprocess.Popen([os.environ["STINT_STORE_POOL_LOAD"], url, str(order), str(keys), spec,
                              str(at_once)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             text=True)
            for _ in range(count)]

    def end(self):
        """What each has said, as lists of words."""
        for process in self.processes:
            process.stdin.close()
        said = []
        for process in self.processes:
            said.append([line.split(maxsplit=1) for line in process.stdout])
            process.stdout.close()
            assert process.wait(60) == 0
        return said


@pytest.mark.parametrize("order", [0, 2])
def test_eight_processes_with_many_asks_at_once_pass_no_limit(server, redis, order):
    """As workers ask, through a router of their own; the scripts are lost in the middle."""
    quota, keys = abi.parse("window 30/250ms"), 5
    loads = Loads(8, f"unix:{server.socket}", order, keys, "window 30/250ms", 6)
    for _ in range(5):
        time.sleep(0.3)  # the server's time is real
        redis.script_flush()
    said = loads.end()
    uses = {f"k{n}": [] for n in range(keys)}
    for lines in said:
        assert not [line for line in lines if line[0] == "!"]
        for name, rest in lines:
            if name in uses:
                uses[name].append(int(rest))
    for name, times in uses.items():
        log = UseLog()
        for at in sorted(times):
            log.add(at, 1)
        assert log.most_in_any(quota.period_ns) <= quota.limit
        assert len(times) > 2 * quota.limit, name
    # What one process does, once all others are asked for nothing any more.
    alone = Loads(1, f"unix:{server.socket}", order, keys, "window 30/250ms", 1)
    time.sleep(0.5)
    (lines,) = alone.end()
    assert [name for name, _ in lines][-5:] == ["given_back", "status", "status", "refused",
                                                "forgotten"]
    out, let_in, refused, forgotten = (line[1].strip() for line in lines[-4:])
    assert out == "k0 4" and let_in in ("k0 0", "k0 1")  # free, or used up
    assert (refused, forgotten) == ("1 the pool has no such key", "1")


def test_a_store_that_is_not_there_is_an_error_in_time(tmp_path):
    loads = Loads(1, f"unix:{tmp_path}/nobody", 0, 2, "window 5/1s", 3)
    assert loads.processes[0].stdout.readline().startswith("! ")
    (lines,) = loads.end()
    assert {line[0] for line in lines[:2]} == {"!"}
