# SPDX-License-Identifier: MIT
from __future__ import annotations

import math
import threading
from pathlib import Path

import pytest

import stint
from stint.testing import Clock


def names(pool: stint.Pool, count: int) -> list[str | None]:
    return [pool.next().name for _ in range(count)]


@pytest.mark.parametrize(("order", "expected"), [
    ("round_robin", ["a", "b", "c", "a", "b", "c"]),
    ("fill_first", ["b", "b", "a", "a", "c", "c"]),
    ("least_used", ["b", "a", "c", "b", "a", "c"]),
])
def test_orders(table: stint.Table, order: str, expected: list[str]) -> None:
    pool = stint.Pool(table, "pool", ["b", "a", "c"], quota="2/1m", order=order)
    assert names(pool, 7) == [*expected, None]


def test_a_lease(table: stint.Table, clock: Clock) -> None:
    clock.advance(3)
    pool = stint.Pool(table, "pool", {"a": "gcra 2/1m burst=2"})
    lease = pool.next(2)
    assert lease and lease.name == "a" and lease.retry_after == 0.0 and not lease.probe
    assert lease.granted_at_ns == 3 * 10**9 and lease.decision.remaining == 0
    assert repr(lease) == "<stint.Lease 'a'>"
    none = pool.next()
    assert not none and none.name is None and none.retry_after == 30.0
    assert "retry_after=30.0" in repr(none)
    assert pool.next(3).retry_after == math.inf
    assert pool.give_back("a", 1, lease.granted_at_ns) == 1
    assert pool.next().name == "a"


def test_keys_have_quotas_of_their_own(table: stint.Table) -> None:
    pool = stint.Pool(table, "pool", {"a": ["3/1m", "1/1h"], "b": stint.Quota("2/1m")})
    assert sorted(filter(None, names(pool, 5))) == ["a", "b", "b"]
    pool.add("c", "log 5/1s", weight=3)
    assert names(pool, 2) == ["c", "c"]
    pool.remove("c")
    assert names(pool, 1) == [None]
    assert [(key.name, key.weight, key.standing) for key in pool.status()] == [
        ("a", 1, "used_up"), ("b", 1, "used_up")]


def test_reports(table: stint.Table, clock: Clock) -> None:
    pool = stint.Pool(table, "pool", ["a", "b"], quota="100/1m")

    def standing(key: str) -> tuple[str, float]:
        return next((its.standing, its.returns_after) for its in pool.status() if its.name == key)

    pool.report("a", cooldown=7.5)
    assert standing("a") == ("cooling", pytest.approx(7.5, abs=1e-4))
    assert set(names(pool, 4)) == {"b"}
    pool.report("a", ok=True)
    assert standing("a") == ("free", 0.0)
    pool.report("b", out=True)
    assert standing("b") == ("out", math.inf) and set(names(pool, 4)) == {"a"}
    pool.report("a", ok=False)
    assert standing("a") == ("backing_off", pytest.approx(1, abs=1e-4))
    assert pool.status()[0].failures == 1
    assert not pool.next() and 1 <= pool.next().retry_after < 1.001
    assert pool.next(probe=True).name == "a" and pool.next(probe=True).probe
    assert "'a': backing_off" in repr(pool.status())
    clock.advance(pool.next().retry_after)
    assert pool.next().name == "a"


def test_processes_share_a_pool_by_its_name(shm: Path) -> None:
    with stint.Table(shm / "table", keys=100) as table, stint.Table(shm / "table") as same:
        one, other = (stint.Pool(its, "pool", ["a"], quota="2/1h") for its in (table, same))
        another = stint.Pool(same, "another", ["a"], quota="2/1h")
        assert one.next() and other.next() and not one.next() and not other.next()
        assert another.next()
        one.report("a", cooldown=9)
        assert other.status()[0].standing == "cooling"


def test_threads_share_a_pool(table: stint.Table) -> None:
    pool = stint.Pool(table, "pool", ["a", "b", "c"], quota="100/1m")
    taken: list[str | None] = []
    threads = [threading.Thread(target=lambda: taken.extend(names(pool, 60))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [taken.count(name) for name in ("a", "b", "c", None)] == [100, 100, 100, 180]


@pytest.mark.parametrize(("keys", "keywords", "code"), [
    (["a"], {}, "MISMATCH"),
    ({"a": None}, {}, "MISMATCH"),
    (["a"], {"quota": "concurrency 1 lease=1s"}, "MISMATCH"),
    (["a"], {"quota": []}, "RANGE"),
    (["a"], {"quota": ["1/1s"] * 5}, "RANGE"),
    (["a b"], {"quota": "1/1s"}, "SYNTAX"),
    (["x" * 256], {"quota": "1/1s"}, "RANGE"),
    ([""], {"quota": "1/1s"}, "RANGE"),
    (["a"], {"quota": "1/1s", "order": "random"}, "MISMATCH"),
    (["a"], {"quota": "1/1s", "keys_max": 10**6}, "RANGE"),
])
def test_pools_that_cannot_be(table: stint.Table, keys: list[str], keywords: dict[str, object],
                              code: str) -> None:
    with pytest.raises(stint.QuotaError) as caught:
        stint.Pool(table, "pool", keys, **keywords)  # type: ignore[arg-type]
    assert caught.value.code == code


def test_calls_that_cannot_be(table: stint.Table) -> None:
    pool = stint.Pool(table, "pool", ["a", "b"], quota="5/1m", keys_max=2)
    with pytest.raises(stint.TableError) as full:
        pool.add("c", "1/1s")
    assert full.value.code == "FULL"
    with pytest.raises(stint.QuotaError) as twice:
        stint.Pool(table, "pool", ["a"], quota="5/1m").add("a", "5/1m")
    assert twice.value.code == "MISMATCH"
    for gone in (lambda: pool.remove("c"), lambda: pool.report("c", ok=True),
                 lambda: pool.give_back("c")):
        with pytest.raises(stint.GoneError) as caught:
            gone()
        assert caught.value.code == "GONE"
    for reported in ({}, {"ok": True, "cooldown": 1}, {"ok": True, "out": True}):
        with pytest.raises(TypeError, match="one of"):
            pool.report("a", **reported)  # type: ignore[arg-type]
    for wrong in (lambda: pool.next(-1), lambda: pool.next(2**32),
                  lambda: pool.add("c", "1/1s", weight=2000),
                  lambda: pool.report("a", cooldown=-1), lambda: pool.report("a", cooldown=1e9),
                  lambda: pool.give_back("a", -1), lambda: pool.give_back("a", 1, 2**60)):
        with pytest.raises(stint.Error):
            wrong()
    for weight in (2**32 + 5, 2**32, -1, 1001):
        with pytest.raises(stint.QuotaError, match=f"weight (is )?{weight}") as outside:
            pool.add("b2", "1/1s", weight=weight)
        assert outside.value.code == "RANGE"
    for name in ("é" * 126, "a" + "é" * 126):  # the message is cut within a character
        with pytest.raises(stint.GoneError):
            pool.remove(name)
    for wrong in (lambda: pool.next("1"), lambda: pool.next(1.5), lambda: pool.add(3, "1/1s"),
                  lambda: pool.add("c", 3), lambda: stint.Pool("table", "pool"),
                  lambda: stint.Pool(table, None), lambda: pool.report("a", cooldown="soon")):
        with pytest.raises(TypeError):
            wrong()  # type: ignore[no-untyped-call]


def test_a_table_has_so_many_pools(clock: Clock) -> None:
    with stint.Table(keys=16, pools=2, clock=clock) as table:
        pools = [stint.Pool(table, name) for name in ("a", "b", "a")]
        with pytest.raises(stint.TableError) as caught:
            stint.Pool(table, "c")
        assert caught.value.code == "FULL" and len(pools) == 3
