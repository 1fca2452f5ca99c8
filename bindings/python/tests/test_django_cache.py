# SPDX-License-Identifier: MIT
"""stint.django_cache: what Django promises of a cache of integers, and one counter for all."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from django.core.cache.backends.locmem import LocMemCache
from django.core.exceptions import ImproperlyConfigured
from hypothesis import given
from hypothesis import strategies as st
from turns import TURNS, together, turns

import stint
import stint.testing
from stint import _namespace
from stint.django_cache import StintCache


@pytest.fixture
def cache(table: stint.Table, monkeypatch: pytest.MonkeyPatch) -> StintCache:
    monkeypatch.setitem(_namespace._tables, "virtual", table)
    return StintCache("virtual", {"TIMEOUT": 60})


def test_values(cache: StintCache) -> None:
    assert cache.get("k") is None and cache.get("k", 7) == 7 and not cache.has_key("k")
    for value in (0, 1, -1, 2**30, -(2**30)):
        cache.set("k", value)
        assert cache.get("k") == value and "k" in cache
    assert not cache.add("k", 1) and cache.get("k") == -(2**30)
    assert cache.delete("k") and not cache.delete("k") and cache.get("k") is None
    assert cache.add("k", 5) and cache.get("k") == 5
    assert cache.set_many({"a": 1, "b": 0}) == []
    assert cache.get_many(["a", "b", "c"]) == {"a": 1, "b": 0}
    assert cache.get_or_set("c", lambda: 9) == 9 and cache.get_or_set("c", 1) == 9
    cache.delete_many(["a", "b"])
    assert cache.get_many(["a", "b", "c"]) == {"c": 9}


def test_incr_and_decr(cache: StintCache) -> None:
    cache.set("k", 0)
    assert [cache.incr("k"), cache.incr("k", 10), cache.incr("k", 0), cache.decr("k", 12)] == [
        1, 11, 11, -1,
    ]
    for missing in (1, 0, -1):
        with pytest.raises(ValueError, match="'none' not found"):
            cache.incr("none", missing)
        assert cache.get("none") is None
    with pytest.raises(ValueError, match="beyond"):
        cache.incr("k", 2**30 + 1)
    assert cache.get("k") == -1


def test_expiry(cache: StintCache, clock: stint.testing.Clock) -> None:
    cache.set("default", 1)
    cache.set("short", 1, timeout=10)
    cache.set("never", 1, timeout=None)
    cache.set("over", 1, timeout=0)
    assert cache.add("over", 1, timeout=-1)
    keys = ["default", "short", "never", "over"]
    expected = [(9.999, keys[:3]), (0.001, ["default", "never"]), (50, ["never"])]
    for step, present in expected:
        clock.advance(step)
        if "short" in present:
            cache.incr("short")  # does not move the expiry
        assert list(cache.get_many(keys)) == present
    clock.advance(300 * 24 * 3600)
    assert cache.get("never") == 1
    with pytest.raises(ValueError, match="not found"):
        cache.incr("short")


def test_touch(cache: StintCache, clock: stint.testing.Clock) -> None:
    cache.set("k", -3, timeout=10)
    assert cache.touch("k", 100) and not cache.touch("none")
    clock.advance(99)
    assert cache.get("k") == -3
    assert cache.touch("k", 0) and cache.get("k") is None


def test_versions_prefixes_and_clear(cache: StintCache) -> None:
    prefixed = StintCache("virtual", {"KEY_PREFIX": "p", "VERSION": 2})
    cache.set("k", 1)
    cache.set("k", 2, version=2)
    prefixed.set("k", 3)
    assert (cache.get("k"), cache.get("k", version=2), prefixed.get("k")) == (1, 2, 3)
    assert cache.incr_version("k", 2) == 3 and cache.get("k", version=3) == 1
    limiter = stint.Limiter(cache._table, "1/1m")
    assert limiter.take("k")
    for _ in range(2):
        cache.set("k", 1)
        cache.clear()
        assert [cache.get("k", version=v) for v in (1, 2, 3)] == [None] * 3
        assert prefixed.get("k") is None
    assert not limiter.take("k")


KEYS = st.sampled_from(["a", "b"])
VALUES = st.integers(-3, 3)
TIMEOUTS = st.sampled_from([-1, 0, 1, 2, 5, None])
CALL = st.one_of(
    st.tuples(st.sampled_from(["add", "set"]), KEYS, VALUES, TIMEOUTS),
    st.tuples(st.just("touch"), KEYS, TIMEOUTS),
    st.tuples(st.sampled_from(["incr", "decr"]), KEYS, VALUES),
    st.tuples(st.sampled_from(["get", "has_key", "delete"]), KEYS),
)


@given(calls=st.lists(st.tuples(st.integers(0, 6), CALL), max_size=40))
def test_results_are_those_of_djangos_cache_in_memory(
    calls: list[tuple[int, tuple[Any, ...]]]
) -> None:
    clock = stint.testing.Clock(start=1_000)
    with (
        stint.Table(keys=1000, clock=clock) as table,
        mock.patch.dict(_namespace._tables, {"virtual": table}),
        mock.patch("time.time", clock.now),
    ):
        ours, theirs = StintCache("virtual", {}), LocMemCache("model", {})
        theirs.clear()
        for quarters, (method, *arguments) in calls:
            clock.advance(quarters / 4)
            theirs.has_key(arguments[0])  # it drops a value that is over, which delete() counts
            results = []
            for cache in (ours, theirs):
                try:
                    results.append(getattr(cache, method)(*arguments))
                except ValueError:
                    results.append(ValueError)
            assert results[0] == results[1], (method, arguments)


@pytest.mark.parametrize("value", ["text", 1.0, True, None, b"1", 2**30 + 1, [1]])
def test_other_values_are_refused(cache: StintCache, value: Any) -> None:
    for call in (cache.set, cache.add):
        with pytest.raises(TypeError, match="cache of counters, for limiters.*RATELIMIT_USE_CACHE"):
            call("k", value)
    assert cache.get("k") is None


@pytest.mark.parametrize(
    ("location", "options", "message"),
    [("", {}, "needs LOCATION"), ("virtual", {"MAX_ENTRIES": 9}, "has MAX_ENTRIES; it knows keys")],
)
def test_settings(
    cache: StintCache, location: str, options: dict[str, int], message: str
) -> None:
    with pytest.raises(ImproperlyConfigured, match=message):
        StintCache(location, {"OPTIONS": options})


def count_often(start_ns: int, path: str) -> tuple[int, list[int]]:
    """Adds and increments keys, as django-ratelimit does: how often add won, and all counts."""
    cache = StintCache(path, {"OPTIONS": {"keys": 4 * TURNS}})
    wins, counts = 0, []
    for turn in turns(start_ns):
        for key in (f"key{turn}", "one"):
            added = cache.add(key, 1, 3600)
            wins += added
            counts.append(1 if added else cache.incr(key))
    return wins, counts


def test_add_and_incr_of_processes_and_threads_are_exact(tmp_path: Path) -> None:
    results = together(count_often, str(tmp_path / "app.stint"))
    counts = sorted(count for _, counts in results for count in counts)
    assert counts == sorted([*range(1, 5 * TURNS + 1), *list(range(1, 6)) * TURNS])
    assert sum(wins for wins, _ in results) == TURNS + 1


def set_forever(path: str) -> None:
    cache = StintCache(path, {})
    while True:
        cache.set("k", 1)


def test_a_killed_process_holds_no_key(tmp_path: Path) -> None:
    path = str(tmp_path / "app.stint")
    cache = StintCache(path, {})
    for _ in range(5):
        writer = multiprocessing.get_context("fork").Process(target=set_forever, args=(path,))
        writer.start()
        while cache.get("k") is None:
            assert writer.is_alive()
        writer.kill()
        writer.join()
        assert cache.delete("k") in (True, False)
        assert cache.add("k", 3) and cache.incr("k") == 4
        cache.delete("k")
