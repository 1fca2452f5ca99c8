# SPDX-License-Identifier: MIT
"""B4, B5, B9, B11, B12, B21: zero, the largest, the ends of time, and what a new state holds."""

import pytest
from hypothesis import assume, given, strategies as st

import stint_abi as abi
from drive import check_is_new
from oracle import Terms
from strategies import LIFE, MINUTE, S, START, TERMS, YEAR, kept

ALL = list(TERMS)


def simple(algorithm, limit, **more):
    if algorithm == "buckets":
        more.setdefault("time_slack_ns", 6 * S)
    return Terms(algorithm, limit, MINUTE, **more)


@pytest.mark.parametrize("algorithm", ALL)
def test_a_limit_of_zero_never_grants_and_never_divides(algorithm):
    """B12: 0 denies every cost above 0 with NEVER, for good, and asking for 0 is allowed."""
    quota = abi.quota_from_terms(simple(algorithm, 0))
    state = abi.State(quota)
    for now in (0, 1, MINUTE, LIFE):
        assert state.take(now, 0).outcome == "allow"
        for cost in (1, 2, abi.U32_MAX):
            answer = state.take(now, cost)
            assert (answer.outcome, answer.retry_after) == ("never", abi.NEVER_NS)
            assert state.ask(now, "take_upto", cost).granted == 0
            assert state.ask(now, "charge", cost).granted == 0
    assert abi.lib.stint_max_in_any_window(abi.c.byref(quota)) == 0


@pytest.mark.parametrize("algorithm", ALL)
@given(data=st.data(), start=START)
def test_a_fresh_state_grants_exactly_its_capacity(algorithm, data, start):
    """B4, B11: full from the first instant, at now = 0 and 1 too; not one unit more."""
    _, quota = data.draw(kept(TERMS[algorithm]()))
    capacity = abi.State(quota).peek(start, 0).limit
    assert abi.State(quota).peek(start, 0).remaining == capacity
    assert abi.State(quota).take(start, capacity).outcome == "allow"
    if capacity < abi.U32_MAX:
        assert abi.State(quota).take(start, capacity + 1).outcome == "never"
    state = abi.State(quota)
    assert state.dies_at() == 0
    state.take(start, capacity)
    assert state.take(start, 1).outcome != "allow"


@pytest.mark.parametrize("algorithm", ALL)
@given(data=st.data(), start=START)
def test_an_oversize_cost_does_not_hide_what_is_left(algorithm, data, start):
    """A NEVER speaks of the cost; remaining and reset_after still speak of the state."""
    _, quota = data.draw(kept(TERMS[algorithm]()))
    state = abi.State(quota)
    capacity = state.peek(start, 0).limit
    assume(capacity < abi.U32_MAX)
    state.take(start, max(1, capacity // 3))
    looked, never = state.peek(start, 0), state.peek(start, capacity + 1)
    assert (never.outcome, never.granted, never.retry_after) == ("never", 0, abi.NEVER_NS)
    assert (never.limit, never.remaining, never.reset_after) == (
        looked.limit, looked.remaining, looked.reset_after)


@pytest.mark.parametrize("algorithm", ALL)
@pytest.mark.parametrize("now", [abi.NOW_MAX + 1, 2**63, 2**64 - 1])
def test_past_the_end_of_time_nothing_is_granted(algorithm, now):
    state = abi.State(abi.quota_from_terms(simple(algorithm, 10)))
    before = state.raw()
    assert state.take(now, 1).outcome == "never"
    assert state.ask(now, "take_upto", 1).granted == 0
    assert state.ask(now, "charge", 1).granted == 0
    assert state.raw() == before


@pytest.mark.parametrize("algorithm", ALL)
@given(data=st.data(), back=st.integers(0, 2**59), start=START)
def test_a_clock_that_steps_back_mints_nothing_and_locks_out_no_longer_than_the_law(
        algorithm, data, back, start):
    """B1, B2: with an older now the state answers as at its own time, and waits no longer."""
    terms, quota = data.draw(kept(TERMS[algorithm]()))
    state = abi.State(quota)
    capacity = state.peek(start, 0).limit
    state.take(start, capacity)
    dies_at = state.dies_at()
    earlier = max(0, start - back)
    answer = state.take(earlier, 1)
    assert answer.outcome != "allow" and state.dies_at() == dies_at
    if answer.outcome == "deny":  # never: it would fit only after the life of a quota
        assert earlier + answer.retry_after <= dies_at


@pytest.mark.parametrize("algorithm", [name for name in ALL if name != "gcra"])
@given(data=st.data(), start=START, ahead=st.integers(0, 10 * YEAR))
def test_a_filled_state_denies_until_its_time_and_is_then_new(algorithm, data, start, ahead):
    """What a newcomer inherits; gcra keeps debt, not denial, and is left to its own test."""
    _, quota = data.draw(kept(TERMS[algorithm]()))
    until = min(start + ahead, LIFE)
    assume(until > 0)
    state = abi.State(quota)
    state.fill(until)
    dies_at = state.dies_at()
    assert dies_at >= until
    assert state.peek(until - 1, 1).outcome == "deny"
    if dies_at <= LIFE:
        check_is_new(state, dies_at)


@pytest.mark.parametrize("algorithm", ALL)
@given(data=st.data(), start=START)
def test_initial_units_are_what_a_new_state_has(algorithm, data, start):
    """B21: full, empty, or a number; then it fills up as if the rest had just been used."""
    terms, quota = data.draw(kept(TERMS[algorithm]()))
    capacity = abi.State(quota).peek(start, 0).limit
    initial = data.draw(st.sampled_from([0, 1, capacity // 2, capacity - 1, capacity,
                                         abi.K.STINT_INITIAL_FULL]))
    assume(0 <= initial)
    quota.initial, quota.initial_set = initial, True
    abi.check(quota)
    state = abi.State(quota, init_at=start)
    free = min(initial, capacity)
    assert state.peek(start, 0).remaining == free
    if free < capacity:
        assert state.take(start, free + 1).outcome != "allow"
    assert free == 0 or state.take(start, free).outcome == "allow"
    if state.size in (8, 16):
        assert abi.Cell(quota, init_at=start).peek(start, 0).remaining == free


@pytest.mark.parametrize("fields", [
    {"period_ns": 0}, {"period_ns": 999}, {"period_ns": 10 * YEAR + 1}, {"period_ns": 2**64 - 1},
    {"resolution": 9}, {"resolution": 113}, {"resolution": 2**32 - 1}, {"algorithm": 8},
    {"algorithm": 255}, {"align": 6}, {"when_full": 5}, {"utc_offset_s": 86400},
    {"burst": 5}, {"time_slack_ns": S}, {"count_slack": 2}, {"lease_ns": S}, {"count_denied": True},
    {"align": 1}, {"initial": 101, "initial_set": True},
])
def test_a_quota_that_makes_no_sense_is_refused_with_a_sentence(fields):
    quota = abi.Quota(limit=100, period_ns=MINUTE)
    for name, value in fields.items():
        setattr(quota, name, value)
    with pytest.raises(abi.Refused) as refusal:
        abi.check(quota)
    assert refusal.value.code in (abi.K.STINT_E_RANGE, abi.K.STINT_E_MISMATCH)
    assert len(str(refusal.value)) >= 15


@given(limit=st.integers(1, 2**32 - 1), burst=st.integers(0, 2**32 - 1),
       period=st.integers(1000, 10 * YEAR))
def test_gcra_refuses_exactly_the_rates_that_would_be_off(limit, burst, period):
    """B5: a rate off by more than 0.1 % is refused when it is made, and no other one is."""
    ticks = 32 * period
    loss = -(-ticks // limit) * limit - ticks
    long_burst = -(-ticks // limit) * (burst or limit) > 32 * (abi.NOW_MAX + 1 - LIFE)
    try:
        abi.quota_from_terms(Terms("gcra", limit, period, burst=burst))
        assert loss * 1000 <= ticks and not long_burst
    except abi.Refused:
        assert loss * 1000 > ticks - 1000 or long_burst
