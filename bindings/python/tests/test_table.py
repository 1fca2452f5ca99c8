# SPDX-License-Identifier: MIT
from __future__ import annotations

import gc
import math
import os
import sys
import threading
import tracemalloc
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
from support import finish, fork

import stint
from stint.testing import Clock

# ---- Opening and closing ------------------------------------------------------------------------


def test_a_table_in_a_file(shm: Path) -> None:
    path = shm / "table"
    with stint.Table(path, keys=100) as table:
        assert table.path == str(path) and not table.closed and str(path) in repr(table)
        assert stint.Limiter(table, "5/1h").take("key", 3)
        before = table.now()
    assert table.closed and "closed" in repr(table)
    table.close()
    with stint.Table(str(path), keys=10**6, must_exist=True) as again:
        assert again.now() >= before and again.info()["restored"]
        assert again.info()["slots16"] < 1000, "the file keeps its sizes"
        assert stint.Limiter(again, "5/1h").take("key").remaining == 1
    with stint.Table(os.fsencode(path), read_only=True) as shown:
        assert shown.info()["live16"] == 1
        with pytest.raises(stint.QuotaError):
            stint.Limiter(shown, "5/1h")


@pytest.mark.parametrize(("make", "code"), [
    (lambda path: stint.Table(path / "a" / "b"), "SYSTEM"),
    (lambda path: stint.Table(path), "SYSTEM"),
    (lambda path: stint.Table(path / "none", must_exist=True), "SYSTEM"),
    (lambda path: stint.Table(path / "none", read_only=True), "SYSTEM"),
    (lambda path: stint.Table(path / "text"), "CORRUPT"),
    (lambda path: stint.Table(path / "empty"), "CORRUPT"),
    (lambda path: stint.Table(path / "large", keys=2**32), "SYSTEM"),
    (lambda path: stint.Table(path / "large", keys=2**62), "RANGE"),
    (lambda path: stint.Table(path / "wide", wide_size=2**31), "RANGE"),
    (lambda path: stint.Table(path / "many", pools=2**31), "RANGE"),
    (lambda path: stint.Table(path / "real", clock=Clock()), "MISMATCH"),
    (lambda path: stint.Table(read_only=True), "MISMATCH"),
])
def test_tables_that_cannot_be_opened(shm: Path, make: Callable[[Path], stint.Table],
                                      code: str) -> None:
    (shm / "text").write_text("This is not a table. " * 1000)
    (shm / "empty").touch()
    stint.Table(shm / "real", keys=16).close()
    with pytest.raises(stint.TableError) as caught:
        make(shm)
    assert caught.value.code == code and isinstance(caught.value, OSError)


def test_an_error_shows_a_path_that_is_no_text() -> None:
    with pytest.raises(stint.TableError, match=r"/\\xff") as caught:
        stint.Table(b"/no such folder/\xff")
    assert caught.value.code == "SYSTEM"


@pytest.mark.parametrize("keywords", [
    {"keys": -1}, {"keys16": -1}, {"keys": 2**64}, {"keys": 1.5}, {"keys": "many"},
    {"tickets": 2**32}, {"nothing": 1},
])
def test_options_that_cannot_be(keywords: dict[str, object]) -> None:
    with pytest.raises((stint.QuotaError, TypeError)):
        stint.Table(**keywords)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", [1, 1.5, object(), "a\0b"])
def test_paths_that_cannot_be(path: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        stint.Table(path)  # type: ignore[arg-type]


def test_keys_size_what_the_default_algorithm_uses(clock: Clock) -> None:
    with stint.Table(keys=50_000, clock=clock) as table:
        limiter = stint.Limiter(table, "1/1h")
        refused = sum(not limiter.take(f"key {number}") for number in range(50_000))
        assert refused < 50, "of a thousand keys, hardly one finds its slots in use"
        assert table.info()["live16"] == 50_000 - refused
    with stint.Table(keys=16, keys16=1000, clock=clock) as table:
        info = table.info()
        assert info["slots8"] < 100 and info["slots16"] >= 1000


def test_a_full_table_admits_no_more_than_the_quota(clock: Clock) -> None:
    with stint.Table(keys=16, clock=clock) as table:
        strict = stint.Limiter(table, "1/1h")
        refused = [key for key in range(1000) if not strict.take(str(key))]
        assert len(refused) > 900 and table.info()["evictions_inherit"] > 0
        assert not any(strict.take(str(key)) for key in range(1000)), "none is forgotten"
        assert not stint.Limiter(table, "1/1h when_full=deny").take("new").stored


def test_every_call_on_a_closed_table_says_so() -> None:
    table = stint.Table(keys=16)
    limiter = stint.Limiter(table, "5/1s")
    holder = stint.Limiter(table, "concurrency 5 lease=1s")
    pool = stint.Pool(table, "pool", ["key"], quota="1/1s")
    reserved, held = limiter.reserve("key", 1), holder.hold("key")
    table.close()
    calls: list[Callable[[], object]] = [
        lambda: table.count("key", 1, 1), lambda: table.counter("key"),
        lambda: table.reset_counter("key"),
        lambda: limiter.take("key"), lambda: limiter.take_upto("key", 1),
        lambda: limiter.peek("key"), lambda: limiter.charge("key", 1),
        lambda: limiter.refund("key", 1), lambda: limiter.reset("key"),
        lambda: limiter.block("key", 1), lambda: limiter.reserve("key", 1),
        lambda: limiter.check("key"), lambda: limiter.wait("key"), lambda: reserved.settle(1),
        reserved.cancel, held.renew, held.release, table.now, table.info,
        lambda: stint.Limiter(table, "1/1s"), lambda: stint.Pool(table, "pool"),
        pool.next, pool.status, lambda: pool.add("more", "1/1s"), lambda: pool.remove("key"),
        lambda: pool.report("key", ok=True), lambda: pool.give_back("key"),
    ]
    for call in calls:
        with pytest.raises(stint.TableError, match="closed") as caught:
            call()
        assert caught.value.code == "MISMATCH"


class Closing:
    """A number that closes the table when it is read."""

    def __init__(self, table: stint.Table) -> None:
        self.table = table

    def __index__(self) -> int:
        self.table.close()
        return 1

    def __float__(self) -> float:
        return float(self.__index__())


@pytest.mark.parametrize("call", [
    lambda limiter, pool, n: limiter.take("key", n),
    lambda limiter, pool, n: limiter.refund("key", 1, n),
    lambda limiter, pool, n: limiter.block("key", n),
    lambda limiter, pool, n: limiter.reserve("key", 1, n),
    lambda limiter, pool, n: limiter._settle(1, 1, n),
    lambda limiter, pool, n: limiter.table.count("key", n, 1),
    lambda limiter, pool, n: limiter.table.count("key", 1, n),
    lambda limiter, pool, n: limiter.table._set_now(n),
    lambda limiter, pool, n: pool.next(n),
    lambda limiter, pool, n: pool._report("first", 1, n),
    lambda limiter, pool, n: pool.give_back("first", n),
    lambda limiter, pool, n: pool.give_back("first", 1, n),
])
def test_an_argument_that_closes_the_table(call: Callable[..., object], clock: Clock) -> None:
    table = stint.Table(clock=clock)
    limiter = stint.Limiter(table, "100/1m")
    pool = stint.Pool(table, "pool", ["first"], quota="100/1m")
    with pytest.raises(stint.TableError, match="closed"):
        call(limiter, pool, Closing(table))


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_child_closes_a_table_that_a_thread_of_its_parent_reads(clock: Clock) -> None:
    table = stint.Table(keys=200_000, clock=clock)
    has_begun, is_over = threading.Event(), threading.Event()

    def read() -> None:
        while not is_over.is_set():
            table.info()
            has_begun.set()

    thread = threading.Thread(target=read)
    thread.start()
    try:
        has_begun.wait()
        for _ in range(20):
            finish(fork(table.close))
    finally:
        is_over.set()
        thread.join()
    table.close()


def test_info_while_other_threads_close(clock: Clock) -> None:
    """A table that is read is not unmapped."""
    for _ in range(20):
        table = stint.Table(keys=200_000, clock=clock)
        outcomes: list[object] = []

        def read(table: stint.Table = table, outcomes: list[object] = outcomes) -> None:
            try:
                outcomes.append(table.info()["live16"])
            except stint.TableError as error:
                outcomes.append(error.code)

        threads = [threading.Thread(target=read) for _ in range(3)]
        for thread in threads:
            thread.start()
        while not table.closed:
            try:
                table.close()
            except stint.TableError as error:
                assert error.code == "BUSY"
        for thread in threads:
            thread.join()
        assert all(outcome in (0, "MISMATCH") for outcome in outcomes)


# ---- Counters -----------------------------------------------------------------------------------


def test_counters(table: stint.Table, clock: Clock) -> None:
    first = table.count("key", expiry=10)
    assert (first.count, first.expires_after, first.expires_after_ns) == (1, 10.0, 10**10)
    clock.advance(4)
    assert table.count("key", 41, 99).expires_after == 6.0, "a later amount does not move it"
    assert table.count(b"key", amount=-2).count == 40 and table.count("key", -99).count == 0
    assert repr(table.counter("key")) == "<stint.Count 0: expires_after_ns=6000000000>"
    clock.advance(6)
    assert (table.counter("key").count, table.counter("key").expires_after) == (0, 0.0)
    assert table.count("key", 7, expiry=0.5).count == 7
    table.reset_counter("key")
    assert table.counter("key").count == 0
    assert stint.Limiter(table, "5/1m").take("key"), "a quota's state is another"


@pytest.mark.parametrize(("arguments", "error"), [
    (("key",), stint.QuotaError), (("key", 1), stint.QuotaError), (("key", 1, 0), stint.QuotaError),
    (("key", 1, -1), stint.QuotaError), (("key", 1, 1e10), stint.QuotaError),
    (("key", 2**32, 1), stint.QuotaError), (("key", 2**70, 1), stint.QuotaError),
    (("x" * 70_000, 1, 1), stint.QuotaError), ((1, 1, 1), TypeError), (("key", 1.5, 1), TypeError),
    (("key", 1, "soon"), TypeError), ((), TypeError),
])
def test_counts_that_cannot_be(table: stint.Table, arguments: tuple[object, ...],
                               error: type[Exception]) -> None:
    with pytest.raises(error):
        table.count(*arguments)  # type: ignore[arg-type]
    assert table.counter("key").count == 0


# ---- The clock ----------------------------------------------------------------------------------


def test_a_clock_moves_when_it_is_advanced() -> None:
    clock = Clock(10, epoch_ns=1000)
    with stint.Table(keys=16, clock=clock) as first, stint.Table(keys=16, clock=clock) as second:
        assert first.clock is clock and first.now() == second.now() == 10 * 10**9
        assert first.info()["epoch_ns"] == 1000 and first.info()["virtual_clock"]
        clock.advance(0.25)
        clock.advance_ns(5)
        assert first.now() == second.now() == clock.now_ns == 10_250_000_005
        assert clock.now() == 10.250000005
        for seconds in (-1, math.nan, math.inf):
            with pytest.raises((ValueError, OverflowError)):
                clock.advance(seconds)
        second.close()
        clock.advance(1)
        assert first.now() == 11_250_000_005
    with pytest.raises(stint.QuotaError):
        clock.advance(1e9)
        stint.Table(keys=16, clock=clock)


def test_a_clock_keeps_no_table(clock: Clock) -> None:
    table = stint.Table(keys=16, clock=clock)
    gone = weakref.ref(table)
    del table
    gc.collect()
    assert gone() is None
    clock.advance(1)


def test_real_time_passes() -> None:
    with stint.Table(keys=16) as table:
        first = table.now()
        assert table.clock is None and table.now() >= first


# ---- Memory -------------------------------------------------------------------------------------


def raises(call: Callable[..., object], *args: object, **keywords: object) -> None:
    with pytest.raises((stint.Error, TypeError, ValueError, stint.Limited)):
        call(*args, **keywords)


def everything(table: stint.Table, path: str) -> None:
    """Calls of every function, also of those that fail."""
    limiter = stint.Limiter(table, "50/1s", "log 50/1s", name="memory")
    key, cost = "k\u00e4y", 1
    for verb in (limiter.take, limiter.take_upto, limiter.peek, limiter.charge, limiter.refund):
        decision = verb(key, cost)
        for name in dir(decision):
            getattr(decision, name)
        raises(verb, None, 1)
        raises(verb, "a\ud800", "b")
        raises(verb, key, -1)
        raises(verb, key, 1, 2, 3)
        raises(verb, key, cost, key=1)
    table.count("a\ud800", 1, 1), table.reset_counter("a\ud800"), repr(table.counter(key))
    raises(table.count, "x" * 70_000, 1, 1)
    raises(table.count, "key", 2**70, 1)
    repr(decision), hash(decision), decision == limiter.take(key), decision.__reduce__()
    limiter.refund("a\ud800", 1, 1)
    raises(limiter.refund, "a\ud800", 1, -1)
    limiter.block("a\ud800", 1)
    limiter.reset("a\ud800")
    raises(limiter.block, "x" * 70_000, 1)
    reserved = limiter.reserve("another", 1)
    reserved.settle(0)
    raises(reserved.settle, 0)
    raises(limiter.reserve, "a\ud800", 1, -1)
    raises(limiter.check, key, 2**31)
    with stint.Limiter(table, "concurrency 9 lease=1s").hold(key) as held:
        held.renew()
    raises(held.renew)
    raises(stint.Limiter, table)
    raises(stint.Limiter, table, "1/1s", 3)
    raises(stint.Limiter, table, "log 9999/1s")
    quota = stint.Quota("gcra 9/1s")
    for name in dir(quota):
        getattr(quota, name)
    quota.explain(), hash(quota), repr(quota), quota == stint.Quota("9/1s"), quota == 3
    raises(stint.Quota, "nothing")
    stint.Decision("deny", quotas=(quota,), at_ns=2**40, retry_after_ns=2**40)
    raises(stint.Decision, "deny", -1)
    raises(stint.Decision, "maybe")
    table.now(), table.info(), repr(table)
    raises(table._set_now, -1)
    raises(stint.Table, "/nonexistent/table")
    raises(stint.Table, nothing=1)
    with stint.Table(path, keys=16, keys_wide=16, tickets=16) as another:
        raises(stint.Limiter, another, "log 9999/1s")
    raises(another.now)
    pool = stint.Pool(table, "pool", {"a": "9/1s", "b": ["9/1s", "9/1h"]})
    lease = pool.next()
    pool.give_back("a", 1, lease.granted_at_ns)
    pool.report("a", cooldown=0.001), pool.report("a", ok=True), pool.status()
    raises(pool.add, "a", "1/1s")
    raises(pool.add, "c", [3])
    raises(pool.remove, "c")
    raises(pool.report, "c", ok=True)
    raises(pool.next, -1)
    pool.remove("a")
    raises(stint.Pool, table, "a name with blanks\n", order="least_used")


def test_nothing_leaks(shm: Path) -> None:
    """References are given up, and neither Python's memory nor the process grows with calls."""
    with stint.Table(keys=100) as table:
        types = [stint.Decision, stint.Count, stint.Quota, stint.Limiter, stint.Table, stint.Pool,
                 stint.QuotaError, stint.TableError, stint.GoneError]

        def run(times: int) -> tuple[list[int], int, int]:
            for _ in range(times):
                everything(table, str(shm / "table"))
            gc.collect()
            # Of immortal objects the count says nothing; the others are counted exactly.
            references = [sys.getrefcount(each) for each in types + [table]]
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            return references, tracemalloc.get_traced_memory()[0], pages

        tracemalloc.start()
        try:
            run(20)
            references, memory, pages = run(20)
            references_later, memory_later, pages_later = run(200)
        finally:
            tracemalloc.stop()
        assert references_later == references
        assert memory_later - memory < 20_000, "bytes, of 200 rounds of a hundred calls"
        assert pages_later - pages < 256, "pages of 4 KiB: 5 KiB a round would be a leak"


def test_decisions_outlive_limiter_and_table() -> None:
    table = stint.Table(keys=16)
    limiter = stint.Limiter(table, "5/1s")
    decision = limiter.take("key")
    gone = weakref.ref(table)
    del table, limiter
    gc.collect()
    assert gone() is None
    assert decision.quota == stint.Quota("5/1s") and decision.remaining == 4


def test_cycles_are_collected() -> None:
    class Own(stint.Limiter):
        pass

    table = stint.Table(keys=16)
    limiter = Own(table, "5/1s")
    limiter.last = limiter.take("key")  # type: ignore[attr-defined]
    limiter.itself = limiter  # type: ignore[attr-defined]
    gone = weakref.ref(table)
    del table, limiter
    gc.collect()
    assert gone() is None
