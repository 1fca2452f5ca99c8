# SPDX-License-Identifier: MIT
"""stint.pyrate, under the Limiter of PyrateLimiter itself."""

from __future__ import annotations

import asyncio
import multiprocessing
import pickle
from pathlib import Path

import pytest
from pyrate_limiter import Duration, InMemoryBucket, Limiter, Rate, RateItem

import stint
import stint.testing
from stint.pyrate import StintBucket, StintBucketFactory

ALGORITHMS = ["window", "log", "gcra"]
RATES = [Rate(5, Duration.SECOND), Rate(8, Duration.MINUTE)]


def take(bucket: StintBucket, weight: int = 1) -> bool:
    return bucket.put(RateItem("item", bucket.now(), weight))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_rates_are_charged_all_or_none(
    table: stint.Table, clock: stint.testing.Clock, algorithm: str
) -> None:
    bucket = StintBucket(RATES, table, algorithm=algorithm)
    assert take(bucket, 4) and bucket.failing_rate is None and bucket.count() == 4
    assert not take(bucket, 2) and bucket.failing_rate is RATES[0]
    assert bucket.count() == 4  # the minute's rate has not been charged
    clock.advance(2)
    assert not take(bucket, 5) and bucket.failing_rate is RATES[1]
    assert take(bucket, 4) and bucket.failing_rate is None
    clock.advance(2)
    assert not take(bucket) and bucket.failing_rate is RATES[1]
    assert bucket.leak(bucket.now()) == 0 and bucket.peek(0) is None and bucket.count() == 8
    bucket.flush()
    assert bucket.failing_rate is None and bucket.count() == 0
    assert take(bucket, 5)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("weight", [1, 3, 5])
def test_an_item_fits_after_the_wait_and_not_before(
    table: stint.Table, clock: stint.testing.Clock, algorithm: str, weight: int
) -> None:
    bucket = StintBucket(RATES[:1], table, algorithm=algorithm)
    item = RateItem("item", bucket.now(), weight)
    assert bucket.waiting(item) == 0
    assert take(bucket, 2) and take(bucket, 3)
    assert not bucket.put(item)
    wait = bucket.waiting(item)
    assert wait > 0 and bucket.put_decision(item).retry_after_ms == wait
    clock.advance_ns((wait - 1) * 1_000_000)
    assert not take(bucket, weight) and bucket.waiting(item) == 1
    clock.advance_ns(1_000_000)
    assert bucket.waiting(item) == 0 and take(bucket, weight)


def test_weights(table: stint.Table) -> None:
    bucket = StintBucket(RATES, table)
    assert take(bucket, 0) and bucket.count() == 0
    assert not take(bucket, 6)
    item = RateItem("item", bucket.now(), 6)
    assert bucket.waiting(item) == -1 and bucket.put_decision(item).retry_after_ms is None
    assert not Limiter(bucket).try_acquire("item", 6)


def test_burst_of_gcra(table: stint.Table) -> None:
    bucket = StintBucket([Rate(10, Duration.SECOND, burst=2)], table, algorithm="gcra")
    assert [take(bucket) for _ in range(3)] == [True, True, False]
    assert not take(bucket, 3) and bucket.waiting(RateItem("item", bucket.now(), 3)) == -1


def test_a_name_of_a_factory_has_a_limit_of_its_own(table: stint.Table) -> None:
    limiter = Limiter(StintBucketFactory(RATES, table))
    hits = [limiter.try_acquire(name, blocking=False) for name in "aaaaaabbbbbb\ud800"]
    assert hits == [True] * 5 + [False] + [True] * 5 + [False] + [True]
    assert StintBucket(RATES, table, key="a").count() == 5
    other = Limiter(StintBucketFactory(RATES, table))
    assert not other.try_acquire("a", blocking=False)


def test_the_limiter_waits() -> None:
    """In real time: the sixth item waits for the first to be over."""
    with stint.Table() as table:
        bucket = StintBucket([Rate(5, 200)], table, algorithm="log")
        limiter = Limiter(bucket, buffer_ms=0)
        start = table.now()
        assert all(limiter.try_acquire("item") for _ in range(6))
        assert table.now() - start >= 200_000_000
        assert not limiter.try_acquire("item", weight=5, timeout=0)

        async def acquire() -> list[bool]:
            return await asyncio.gather(*(limiter.try_acquire_async("item") for _ in range(6)))

        start = table.now()
        assert all(asyncio.run(acquire()))
        assert table.now() - start >= 200_000_000


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_decorator(table: stint.Table, algorithm: str) -> None:
    limiter = Limiter(StintBucket(RATES, table, algorithm=algorithm))
    call = limiter.as_decorator(name="item", weight=2)(lambda value: value + 1)
    assert [call(1), call(2)] == [2, 3]
    with pytest.raises(RuntimeError, match="can never admit"):
        limiter.as_decorator(name="item", weight=9)(len)("")


TRIES = 50


def acquire_often(limiter: Limiter) -> int:
    return sum(limiter.try_acquire("item", blocking=False) for _ in range(TRIES))


def processes(limiters: list[Limiter]) -> list[int]:
    with multiprocessing.get_context("fork").Pool(len(limiters)) as pool:
        return pool.map(acquire_often, limiters)


def test_processes_share_a_file(tmp_path: Path) -> None:
    rates = [Rate(60, Duration.DAY), Rate(70, 2 * Duration.DAY)]
    bucket = StintBucket(rates, stint.Table(tmp_path / "app.stint"))
    same = pickle.loads(pickle.dumps(bucket))
    assert sum(processes([Limiter(bucket), Limiter(bucket), Limiter(same)])) == 60
    assert bucket.count() == 60
    assert sum(processes([Limiter(InMemoryBucket(rates))] * 2)) == 2 * TRIES


def test_errors(table: stint.Table) -> None:
    with pytest.raises(ValueError, match="algorithm 'fast' is none of window, log, gcra"):
        StintBucket(RATES, table, algorithm="fast")
    with pytest.raises(ValueError, match="Invalid rate list"):
        StintBucket([], table)
    with pytest.raises(stint.QuotaError):
        StintBucket([Rate(100_000, Duration.DAY)], table, algorithm="log")
    with pytest.raises(TypeError, match="forked"):
        pickle.dumps(StintBucket(RATES, table))
