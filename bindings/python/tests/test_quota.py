# SPDX-License-Identifier: MIT
from __future__ import annotations

import copy
import math
import pickle

import pytest

import stint


@pytest.mark.parametrize(("keywords", "spec"), [
    ({"limit": 100, "period": 60}, "100/1m"),
    ({"limit": 100, "period": 0.25}, "100/250ms"),
    ({"limit": 5, "period": "1h"}, "5/1h"),
    ({"limit": 100, "period": 60, "algorithm": "gcra", "burst": 20}, "gcra 100/1m burst=20"),
    ({"limit": 9, "period": 1, "resolution": 12}, "9/1s resolution=12"),
    ({"limit": 10, "algorithm": "concurrency", "lease": 30.0}, "concurrency 10 lease=30s"),
    ({"limit": 7, "period": "1mo", "algorithm": "fixed_window", "align": "calendar"},
     "fixed_window 7/1mo align=calendar"),
    ({"limit": 7, "period": 60, "algorithm": "gcra", "count_denied": True},
     "gcra 7/1m count_denied=true"),
])
def test_keywords_make_the_quota_of_the_spec(keywords: dict[str, object], spec: str) -> None:
    assert stint.Quota(**keywords) == stint.Quota(spec)


ATTRIBUTES = ("spec", "limit", "period", "algorithm", "burst", "strict", "most", "size")


@pytest.mark.parametrize(ATTRIBUTES, [
    ("100/1m", 100, 60.0, "window", 100, True, 100, 16),
    ("window 100/1m resolution=12", 100, 60.0, "window", 100, True, 100, 8),
    ("gcra 100/60s burst=20", 100, 60.0, "gcra", 20, False, 119, 8),
    ("token_bucket 100/60s", 100, 60.0, "gcra", 100, False, 199, 8),
    ("fixed_window 100/60s", 100, 60.0, "fixed_window", 100, False, 200, 8),
    ("sliding_counter 100/60s", 100, 60.0, "sliding_counter", 100, False, 199, 16),
    ("log 100/60s", 100, 60.0, "log", 100, True, 100, 824),
    ("concurrency 10 lease=30s", 10, 30.0, "concurrency", 10, False, 10, 96),
])
def test_attributes(spec: str, limit: int, period: float, algorithm: str, burst: int, strict: bool,
                    most: int, size: int) -> None:
    quota = stint.Quota(spec)
    assert (quota.limit, quota.period, quota.algorithm, quota.burst, quota.strict,
            quota.max_in_any_window, quota.state_size) == (
        limit, period, algorithm, burst, strict, most, size)
    assert quota.period_ns == period * 10**9


def test_a_quota_is_its_spec() -> None:
    quota = stint.Quota("100/60s")
    assert str(quota) == "window 100/1m resolution=24"
    assert quota == stint.Quota(str(quota)) and hash(quota) == hash(stint.Quota(str(quota)))
    assert quota != stint.Quota("101/60s") and quota != "100/60s"
    assert repr(quota) == "stint.Quota('window 100/1m resolution=24')"
    for again in (pickle.loads(pickle.dumps(quota)), copy.copy(quota), copy.deepcopy(quota)):
        assert again == quota and type(again) is stint.Quota
    with pytest.raises(AttributeError):
        quota.limit = 3  # type: ignore[misc]


@pytest.mark.parametrize(("spec", "code", "words"), [
    ("", "SYNTAX", ["expected"]),
    ("widnow 100/60s", "SYNTAX", ['did you mean "window"?']),
    ("100/60 apples", "SYNTAX", ["apples"]),
    ("100/1s burst=3", "MISMATCH", ["burst"]),
    ("4294967296/1s", "RANGE", ["4294967296"]),
    ("log 100000/1s", "RANGE", []),
    ("100/4000d", "RANGE", []),
])
def test_a_spec_that_is_none_says_why(spec: str, code: str, words: list[str]) -> None:
    with pytest.raises(stint.QuotaError) as caught:
        stint.Quota(spec)
    assert caught.value.code == code
    assert all(word in str(caught.value) for word in words)
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, stint.Error)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.code) == (str(caught.value), code)


@pytest.mark.parametrize("make", [
    lambda: stint.Quota(), lambda: stint.Quota(period=60), lambda: stint.Quota("1/1s", limit=1),
    lambda: stint.Quota("1/1s", burst=1), lambda: stint.Quota(100),
    lambda: stint.Quota("1/1s\0"),
])
def test_arguments_that_make_no_quota(make: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        make()  # type: ignore[operator]


@pytest.mark.parametrize("seconds", [math.inf, math.nan, 1e300, 10**400])
def test_durations_out_of_range(seconds: float) -> None:
    for keywords in ({"period": seconds}, {"algorithm": "concurrency", "lease": seconds}):
        with pytest.raises(stint.QuotaError):
            stint.Quota(limit=1, **keywords)  # type: ignore[arg-type]


@pytest.mark.parametrize(("spec", "words"), [
    ("100/1m", ["window 100/1m", "At most 100 units in any 1m", "16 bytes"]),
    ("gcra 100/1m burst=20", ["119"]),
    ("concurrency 10 lease=30s", ["10", "96 bytes"]),
])
def test_explain_has_the_worst_case(spec: str, words: list[str]) -> None:
    text = stint.explain(spec)
    assert text == stint.Quota(spec).explain()
    assert all(word in text for word in words)
