# SPDX-License-Identifier: MIT
"""gcra: equal to the rational law within its stated rounding; its worst case reached, no more."""

from fractions import Fraction

import pytest
from hypothesis import assume, given, strategies as st

import stint_abi as abi
from drive import Walk
from oracle import Gcra, RationalGcra, Terms, model_of
from strategies import LIFE, MINUTE, S, START, gcra_terms, kept, steps

VERBS = ("take", "take", "take", "take_upto", "peek", "charge")


@given(drawn=kept(gcra_terms()), start=START, walk=steps(VERBS))
def test_gcra_is_its_law_to_the_tick(drawn, start, walk):
    terms, quota = drawn
    run = Walk(terms, quota, Gcra(terms), None, start)
    for step in walk:
        run.step(*step)


@given(drawn=kept(gcra_terms(count_denied=True)), start=START, walk=steps())
def test_gcra_that_counts_denied_requests(drawn, start, walk):
    terms, quota = drawn
    run = Walk(terms, quota, Gcra(terms), None, start)
    for step in walk:
        run.step(*step)


@given(drawn=kept(gcra_terms()), start=START, walk=steps())
def test_gcra_never_admits_what_the_rational_law_would_not(drawn, start, walk):
    """T is rounded up: never faster than N/W, and slower by less than N/(32 W)."""
    terms, quota = drawn
    run, exact = Walk(terms, quota, None, None, start), RationalGcra(terms)
    spent, rounding = 0, Gcra(terms).interval - exact.interval
    assert 0 <= rounding < 1
    for step in walk:
        answer = run.step(*step)
        now = run.times.now
        # Each unit is charged less than 1/32 ns too much; so is each unit of the tolerance, which
        # gives it back. The difference is bounded by the units that are still owed.
        before = exact.copy()
        if answer.outcome == "allow" and answer.granted:
            excess = before._ahead(now) + answer.granted * exact.interval \
                - exact.capacity * exact.interval
            assert excess <= rounding * exact.capacity, "faster than the law"
            exact.spend(now, answer.granted)
            spent += answer.granted
        kept_longer = Fraction(rounding * exact.capacity, exact.interval)
        assert answer.remaining <= exact.remaining(now) + 1 + kept_longer


@given(drawn=kept(gcra_terms()), start=START, walk=steps(most=60))
def test_gcra_stays_within_its_worst_case(drawn, start, walk):
    """b + ceil(W/T) - 1 in any half-open window, also with a clock that runs backwards."""
    terms, quota = drawn
    run, bound = Walk(terms, quota, None, None, start), Gcra(terms).most_in_any_window()
    assert abi.lib.stint_max_in_any_window(abi.c.byref(quota)) == bound
    admitted = []
    for step in walk:
        answer = run.step(*step)
        if answer.granted:
            admitted.append((run.times.now, answer.granted))
    admitted.sort()
    for first, (begin, _) in enumerate(admitted):
        inside = sum(n for time, n in admitted[first:] if time < begin + terms.period_ns)
        assert inside <= bound


@pytest.mark.parametrize("limit, period, burst", [
    (100, MINUTE, 20), (5, S, 5), (7, S, 3), (3, MINUTE, 3), (1, S, 1), (1000, S, 1),
    (60, MINUTE, 60),
])
def test_gcra_worst_case_is_reached(limit, period, burst):
    """The whole burst, then each unit at the first instant it is allowed."""
    terms = Terms("gcra", limit, period, burst=burst)
    state, admitted = abi.State(abi.quota_from_terms(terms)), []
    now = 0
    while now < period:
        answer = state.take(now)
        if answer.outcome == "allow":
            admitted.append(now)
        else:
            now += answer.retry_after
    assert len(admitted) == Gcra(terms).most_in_any_window()


@pytest.mark.parametrize("limit, period", [
    (1, 86400 * S), (1, S), (3, S), (7, S), (999, S), (1_000_003, S), (10**6, S), (30_000_000, S),
    (10**9 // 100, S), (100, MINUTE), (86401, 86400 * S),
])
@pytest.mark.parametrize("calls_per_unit", [1, 3])
def test_long_run_grants_the_rate_and_drops_no_fraction(limit, period, calls_per_unit):
    """B6: over a long time, burst + floor(time / T) exactly, however often the caller asks."""
    terms = Terms("gcra", limit, period, burst=1)
    state, interval = abi.State(abi.quota_from_terms(terms)), Gcra(terms).interval
    step = max(1, interval // 32 // calls_per_unit)
    granted, turns = 0, min(20_000, LIFE // step)
    now = 0
    for _ in range(turns):
        granted += state.take(now).granted
        now += step
    last = (turns - 1) * step
    # A caller who asks on a grid loses at most one step per unit; at the retry instant, nothing.
    assert granted <= 1 + Fraction(32 * last, interval)
    assert granted >= 1 + Fraction(32 * last, interval + 32 * step) - 1

    state, now, granted = abi.State(abi.quota_from_terms(terms)), 0, 0
    for _ in range(5_000):
        answer = state.take(now, 1)
        granted += answer.granted
        now += answer.retry_after
        if now > LIFE:
            break
    else:
        assert granted == 2_500
    # burst 1 on whole nanoseconds: each grant begins a new interval, rounded up to 1 ns.
    assert now <= granted * -(-interval // 32)


@pytest.mark.parametrize("limit, period", [(1, S), (7, S), (1_000_003, S), (30_000_000, S),
                                           (1, 86400 * S), (500_000_000, 17 * S)])
def test_a_saturated_bucket_grants_exactly_the_rate(limit, period):
    """B6: with room for a burst no wait is lost: floor(time / T) + burst, to the unit."""
    burst = 1000
    terms = Terms("gcra", limit, period, burst=burst)
    state, interval = abi.State(abi.quota_from_terms(terms)), Gcra(terms).interval
    now, granted = 0, 0
    for turn in range(3000):
        now += (interval * (turn % 900)) // 32
        if now > LIFE:
            break
        granted += state.ask(now, "take_upto", 2**32 - 1).granted
        assert granted == burst + 32 * now // interval


@given(drawn=kept(gcra_terms()), idle=st.integers(0, 2**58))
def test_no_idle_time_and_no_cost_overflows(drawn, idle):
    """B5: the whole range of burst, cost and elapsed time, against integers without a width."""
    terms, quota = drawn
    model, state = model_of(terms), abi.State(quota)
    for now, cost in ((0, model.capacity), (idle, abi.U32_MAX), (idle, model.capacity),
                      (idle, 1), (min(2 * idle, 2**58), model.capacity // 2 + 1)):
        assume(now <= LIFE)
        expected = model.take(now, cost)
        if expected.outcome == "deny" and now + expected.retry_after > LIFE:
            break
        assert state.take(now, cost) == tuple(expected)
