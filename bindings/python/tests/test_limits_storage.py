# SPDX-License-Identifier: MIT
"""stint.limits_storage, under the strategies of `limits` itself."""

from __future__ import annotations

import asyncio
import multiprocessing
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import limits
import limits.aio.strategies
import limits.strategies
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from limits.errors import ConfigurationError, StorageError
from limits.storage import MemoryStorage, storage_from_string
from remote_server import Server, until
from turns import TURNS, together, turns

import stint
import stint.testing
from stint.limits_storage import AsyncStintStorage, StintStorage

STRATEGIES = limits.strategies.STRATEGIES
START_S = 1_000


class World:
    """A storage in virtual time, which is also the time of `limits`."""

    def __init__(self, **options: Any) -> None:
        self.clock = stint.testing.Clock()
        self.table = stint.Table(clock=self.clock)
        self.clock.advance(START_S)
        self.storage = StintStorage(table=self.table, **options)

    def time(self) -> float:
        return self.table.now() / 1e9


@pytest.fixture(params=["window", "log"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    world = World(moving_window=request.param)
    with mock.patch("time.time", world.time):
        yield world


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_hit_test_stats_and_clear(world: World, strategy: str) -> None:
    limiter = STRATEGIES[strategy](world.storage)
    item = limits.parse("10 per 4 second")
    assert [limiter.hit(item, "a", cost=3) for _ in range(4)] == [True, True, True, False]
    if strategy == "fixed-window":  # it counts what it denies, in every storage
        assert limiter.get_window_stats(item, "a") == (START_S + 4, 0)
        assert not limiter.test(item, "a")
    else:
        assert limiter.get_window_stats(item, "a").remaining == 1
        assert limiter.test(item, "a") and not limiter.test(item, "a", cost=2)
        assert not limiter.hit(item, "a", cost=2) and limiter.hit(item, "a")
        assert not limiter.hit(item, "a") and not limiter.test(item, "a")
    assert limiter.get_window_stats(item, "b").remaining == 10
    assert not limiter.hit(item, "b", cost=11)
    limiter.clear(item, "a")
    assert limiter.get_window_stats(item, "a").remaining == 10
    assert limiter.hit(item, "a", cost=10)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_units_return_at_the_reset_time(world: World, strategy: str) -> None:
    limiter = STRATEGIES[strategy](world.storage)
    item = limits.parse("1 per 6 second")
    assert limiter.hit(item, "a")
    reset_time = limiter.get_window_stats(item, "a").reset_time
    world.clock.advance(reset_time - world.time() - 0.001)
    assert not limiter.test(item, "a")
    world.clock.advance(0.002)
    if strategy == "sliding-window-counter":  # the reset begins a window in which it counts less
        world.clock.advance(6)
    assert limiter.test(item, "a") and limiter.hit(item, "a")


def test_counters(world: World) -> None:
    storage = world.storage
    assert (storage.get("k"), storage.get_expiry("k")) == (0, START_S)
    assert [storage.incr("k", 10), storage.incr("k", 99, amount=4)] == [1, 5]
    assert (storage.get("k"), storage.get_expiry("k")) == (5, START_S + 10)
    world.clock.advance(9.999)
    assert storage.get("k") == 5
    world.clock.advance(0.001)
    assert (storage.get("k"), storage.get_expiry("k")) == (0, START_S + 10)
    assert storage.incr("k", 10) == 1
    for key in ("k", "k/1/1/week", "k/99999999999/1/day"):
        storage.incr(key, 10)
        storage.clear(key)
        assert storage.get(key) == 0 and storage.check()


def test_reset_forgets_every_key_of_the_storage_alone(world: World) -> None:
    other = stint.Limiter(world.table, "1/1m")
    assert other.take("k")
    other_storage = StintStorage(table=world.table)
    for _ in range(2):
        assert world.storage.incr("k", 60) == 1
        assert [world.storage.acquire_entry("k", 1, 60) for _ in range(2)] == [True, False]
        assert world.storage.acquire_sliding_window_entry("k", 1, 60)
        assert other_storage.get("k") == 1
        assert world.storage.reset() is None
        assert other_storage.get("k") == 0
    assert world.storage.get_sliding_window("k", 60)[::2] == (0, 0)
    assert not other.take("k")


def test_clear_of_a_window_that_another_process_filled(world: World) -> None:
    item = limits.parse("2 per minute")
    assert STRATEGIES["moving-window"](world.storage).hit(item, "a", "b", cost=2)
    fresh = STRATEGIES["moving-window"](
        StintStorage(table=world.table, moving_window=world.storage.moving_window)
    )
    fresh.clear(item, "a", "b")
    assert fresh.hit(item, "a", "b", cost=2)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_flood_of_keys_frees_no_denied_key_and_denies_no_new_one(strategy: str) -> None:
    storage = StintStorage(keys=200)
    limiter = STRATEGIES[strategy](storage)
    item = limits.parse("10 per 365 day")
    storage.incr("k", 60)
    storage.reset()
    assert limiter.hit(item, "denied", cost=10)
    assert all(limiter.hit(item, f"made up {i}") for i in range(5_000))
    assert not limiter.hit(item, "denied") and not limiter.test(item, "denied")
    assert storage.get("k") == 0  # the reset is not forgotten either


# The same calls at the same times as the memory storage of `limits`: the results are equal. A step
# has a share of 2**-20 s, so that no two calls are exactly a period apart: there the memory storage
# includes both ends of a moving window, and stint one.
STEPS = st.lists(st.tuples(st.integers(0, 24), st.integers(1, 4)), max_size=40)


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(steps=STEPS)
def test_results_are_those_of_the_memory_storage(
    strategy: str, steps: list[tuple[int, int]]
) -> None:
    world = World(moving_window="log")
    with mock.patch("time.time", world.time):
        ours, theirs = (STRATEGIES[strategy](s) for s in (world.storage, MemoryStorage()))
        item = limits.parse("5 per 2 second")
        for sixteenths, cost in steps:
            world.clock.advance(sixteenths / 16 + 2**-20)
            assert ours.test(item, "k", cost=cost) == theirs.test(item, "k", cost=cost)
            assert ours.hit(item, "k", cost=cost) == theirs.hit(item, "k", cost=cost)
            got, expected = (s.get_window_stats(item, "k") for s in (ours, theirs))
            assert got.remaining == expected.remaining
            assert got.reset_time == pytest.approx(expected.reset_time, abs=1e-6)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(steps=STEPS)
def test_a_moving_window_never_has_more_than_the_limit(steps: list[tuple[int, int]]) -> None:
    world = World()
    limiter = STRATEGIES["moving-window"](world.storage)
    granted: list[tuple[float, int]] = []
    for sixteenths, cost in steps:
        world.clock.advance(sixteenths / 16)
        now = world.time()
        fits = limiter.test(limits.parse("5 per 2 second"), "k", cost=cost)
        assert limiter.hit(limits.parse("5 per 2 second"), "k", cost=cost) == fits
        if fits:
            granted.append((now, cost))
        assert sum(units for at, units in granted if at > now - 2) <= 5


def hit_often(start_ns: int, uri: str, strategy: str) -> list[bool]:
    limiter = STRATEGIES[strategy](storage_from_string(uri))
    return [limiter.hit(limits.parse("1 per 365 day"), f"key{turn}") for turn in turns(start_ns)]


@pytest.mark.parametrize(
    ("strategy", "moving_window"),
    [*((strategy, "window") for strategy in STRATEGIES), ("moving-window", "log")],
)
def test_processes_and_threads_share_a_file(
    tmp_path: Path, strategy: str, moving_window: str
) -> None:
    uri = f"stint://{tmp_path}/app.stint?keys={4 * TURNS}&moving_window={moving_window}"
    passed = together(hit_often, uri, strategy)
    passes = {sum(hits) for hits in zip(*passed, strict=True)}
    # A process that is stopped for 10 ms while it writes a log leaves the key full.
    assert passes - {0} == {1} if moving_window == "log" else passes == {1}


@pytest.mark.parametrize(("options", "keys"), [("", 1024), ("&keys=3000", 3000)])
def test_a_log_counts_so_many_keys(options: str, keys: int) -> None:
    storage = storage_from_string(f"stint://?moving_window=log{options}")
    assert all(storage.acquire_entry(f"k{n}", 2, 3600, 2) for n in range(keys))
    assert not any(storage.acquire_entry(f"k{n}", 2, 3600, 1) for n in range(keys))


def test_a_spawned_process_shares_a_file(tmp_path: Path) -> None:
    uri = f"stint://{tmp_path}/app.stint"
    code = (
        "import limits.storage, stint.limits_storage\n"
        f"limits.storage.storage_from_string({uri!r}).incr('k', 60)"
    )
    storage = storage_from_string(uri)
    for count in (1, 2):
        subprocess.run([sys.executable, "-c", code], check=True)
        assert storage.get("k") == count


def test_forked_children_share_memory() -> None:
    storage = storage_from_string("stint://")
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=storage.incr, args=("k", 60)) for _ in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join()
        assert child.exitcode == 0
    assert storage.get("k") == 4


@pytest.mark.parametrize("strategy", limits.aio.strategies.STRATEGIES)
def test_asyncio(strategy: str) -> None:
    async def scenario() -> None:
        storage = storage_from_string("async+stint://")
        assert isinstance(storage, AsyncStintStorage)
        limiter = limits.aio.strategies.STRATEGIES[strategy](storage)
        item = limits.parse("10 per 365 day")
        hits = await asyncio.gather(*(limiter.hit(item, "k") for _ in range(25)))
        assert sum(hits) == 10
        assert not await limiter.test(item, "k")
        assert (await limiter.get_window_stats(item, "k")).remaining == 0
        assert (await limiter.get_window_stats(item, "k")).reset_time > time.time()
        await limiter.clear(item, "k")
        assert await limiter.hit(item, "k")
        assert await storage.check() and await storage.reset() is None
        assert (await limiter.get_window_stats(item, "k")).remaining == 10
        assert await storage.incr("c", 60, amount=2) == await storage.get("c") == 2
        assert await storage.get_expiry("c") > time.time()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("uri", "options", "message"),
    [
        ("stint://app.stint", {}, "stint://app.stint is neither a file.*three slashes"),
        ("stint://:secret@app/x", {}, "stint://app/x is neither"),
        ("stint://localhost:7379?keys=9", {}, "without keys"),
        ("stints:///tmp/x", {}, "stints:///tmp/x is neither"),
        ("stint:///tmp/x?keys=many", {}, "keys=many is not a number above 0"),
        ("stint://", {"keys": 0}, "keys=0 is not a number above 0"),
        ("stint://?moving_window=fast", {}, "moving_window=fast is none of window, log"),
        ("stint://", {"kyes": 1}, "kyes is none of the options keys, moving_window, table"),
        ("stint://?=1", {}, " is none of the options"),
        ("stint://?keys", {}, "bad query field"),
    ],
)
@pytest.mark.parametrize("scheme", ["", "async+"])
def test_what_is_wrong_with_a_uri_is_said(
    scheme: str, uri: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        storage_from_string(scheme + uri, **options)


@pytest.mark.parametrize(("wrap", "error"), [(False, stint.Error), (True, StorageError)])
def test_errors_of_the_engine(tmp_path: Path, wrap: bool, error: type[Exception]) -> None:
    storage = StintStorage(wrap_exceptions=wrap)
    calls: list[Callable[[], object]] = [
        lambda: storage.incr("k", 0),
        lambda: storage.incr("k", 60, amount=2**32),
        lambda: storage.acquire_entry("k", 2**32, 60),
        lambda: storage.acquire_entry("k", 10, 0),
    ]
    for call in calls:
        with pytest.raises(error):
            call()
    (tmp_path / "text").write_text("not a table" * 1000)
    with pytest.raises(stint.Error, match="text"):
        storage_from_string(f"stint://{tmp_path}/text")


# ---- A server -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(clock="real") as server:
        yield server


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_server_has_the_same_results(server: Server, strategy: str) -> None:
    storages = [storage_from_string(server.url("stint")) for _ in range(2)]
    limiters = [STRATEGIES[strategy](storage) for storage in storages]
    item = limits.parse("10 per 365 day")
    for _ in range(2):
        assert limiters[0].hit(item, "k", cost=4)
        assert sum(limiter.hit(item, "k") for limiter in limiters * 5) == 6
        for limiter in limiters:
            assert not limiter.test(item, "k") and not limiter.hit(item, "k")
            stats = limiter.get_window_stats(item, "k")
            assert stats.remaining == 0 and stats.reset_time > time.time()
            assert limiter.test(item, "other") and not limiter.hit(item, "other", cost=11)
            limiter.clear(item, "other")
        limiters[1].clear(item, "k")
        assert limiters[0].get_window_stats(item, "k").remaining == 10


def test_a_server_under_asyncio(server: Server) -> None:
    async def scenario() -> None:
        storage = storage_from_string("async+" + server.url("stint"))
        item = limits.parse("10 per 364 day")
        assert await storage.check()
        for strategy in limits.aio.strategies.STRATEGIES.values():
            limiter = strategy(storage)
            hits = await asyncio.gather(*(limiter.hit(item, "k") for _ in range(25)))
            assert sum(hits) == 10
            await limiter.clear(item, "k")

    asyncio.run(scenario())


def test_counters_of_a_server_need_no_limit_in_their_names(server: Server) -> None:
    storage = storage_from_string(server.url("stint"))
    assert storage.incr("any name", 60, 2**32 - 1) == 2**32 - 1
    assert storage.incr("any name", 1, 5) == storage.get("any name") == 2**32 + 4
    assert 50 < storage.get_expiry("any name") - time.time() <= 60.1
    storage.clear("any name")
    assert storage.get("any name") == 0


def test_servers_of_one_store_share_their_counters(tmp_path: Path) -> None:
    if shutil.which("redis-server") is None:
        pytest.skip("needs redis-server")
    redis = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", f"{tmp_path}/redis",
                              "--save", "", "--dir", str(tmp_path)], stdout=subprocess.DEVNULL)
    try:
        until((tmp_path / "redis").exists, "redis-server listens")
        options = ("--store", f"unix:{tmp_path}/redis", "--store-timeout", "5s")
        with Server(*options, clock="real") as first, Server(*options, clock="real") as second:
            for strategy in STRATEGIES:
                limiters = [STRATEGIES[strategy](storage_from_string(server.url("stint")))
                            for server in (first, second)]
                item = limits.parse("10 per 363 day")
                assert sum(limiter.hit(item, strategy) for limiter in limiters * 8) == 10
                assert not any(limiter.test(item, strategy) for limiter in limiters)
    finally:
        redis.terminate()
        redis.wait()


def test_what_a_server_cannot_do(server: Server) -> None:
    storage = storage_from_string(server.url("stint"))
    with pytest.raises(NotImplementedError, match="forget all keys of a server"):
        storage.reset()
    gone = storage_from_string("stint://127.0.0.1:1", wrap_exceptions=True)
    assert storage.check() and not gone.check()
    with pytest.raises(StorageError):
        gone.incr("k", 60)
