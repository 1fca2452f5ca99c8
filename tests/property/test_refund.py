# SPDX-License-Identifier: MIT
"""Refunds: truthful ones never let more through than was used, and never lift above capacity."""

import pytest
from hypothesis import assume, given, strategies as st

import stint_abi as abi
from drive import check_remaining
from oracle import ExactLog, FixedWindow, Gcra, Terms, UseLog, model_of
from strategies import (AMOUNT, COSTS, GAPS, LIFE, S, START, TERMS, Times, cost_of, kept,
                        log_terms)

FORWARD = GAPS[:-2]
MOVES = st.lists(st.tuples(st.sampled_from(FORWARD), AMOUNT, st.sampled_from(COSTS), AMOUNT,
                           st.booleans(), AMOUNT), min_size=2, max_size=40)


def bound_of(quota):
    return abi.lib.stint_max_in_any_window(abi.c.byref(quota))


class RefundWalk:
    """Takes, and gives back a drawn part of a drawn earlier grant, once and with its right time."""

    def __init__(self, terms, quota, start):
        self.terms, self.state = terms, abi.State(quota)
        self.times, self.uses, self.grants = Times(terms, start), UseLog(), []

    def move(self, gap, amount, cost_kind, cost_amount, gives_back, which):
        now = self.times.step(gap, amount)
        if gives_back and self.grants:
            self.refund(now, *self._unused(which))
        else:
            self.take(now, cost_kind, cost_amount)

    def take(self, now, cost_kind, cost_amount):
        looked = self.state.peek(now, 0)
        cost = cost_of(cost_kind, cost_amount, looked.limit, looked.remaining)
        answer = self.state.take(now, cost)
        self.times.heard(answer)
        if answer.granted:
            self.uses.add(now, cost)
            self.grants.append((now, cost))
        return answer

    def _unused(self, which):
        granted_at, granted = self.grants.pop(which % len(self.grants))
        return granted_at, 1 + which % granted

    def refund(self, now, granted_at, count):
        before = self.state.peek(now, 0)
        answer = self.state.ask(now, "refund", count, granted_at)
        assert 0 <= answer.granted <= count
        assert before.remaining <= answer.remaining <= answer.limit
        check_remaining(self.state, now, answer)
        self.count_as_unused(now, granted_at, count, answer.granted)
        if self.terms.algorithm in ("window", "buckets", "log"):
            assert answer.remaining == before.remaining + answer.granted
        return answer

    def count_as_unused(self, now, granted_at, count, came_back):
        """Units that did not come back stay charged, so for the bound they stay used."""
        del now, count
        self.uses.take_back(granted_at, came_back)


@pytest.mark.parametrize("algorithm", ["window", "buckets", "log", "fixed_window",
                                       "sliding_counter"])
@given(data=st.data(), start=START, moves=MOVES)
def test_truthful_refunds_keep_the_bound(algorithm, data, start, moves):
    terms, quota = data.draw(kept(TERMS[algorithm]()))
    walk = RefundWalk(terms, quota, start)
    for move in moves:
        walk.move(*move)
    assert walk.uses.most_in_any(terms.period_ns) <= bound_of(quota)


@given(data=st.data(), start=START, moves=MOVES)
def test_gcra_returns_the_units_less_what_has_flowed_back(data, start, moves):
    """TAT falls by n*T - (now - granted_at), not below now; the bound holds for what was used."""
    terms, quota = data.draw(kept(TERMS["gcra"]()))
    model = Gcra(terms)

    class GcraWalk(RefundWalk):
        def take(self, now, cost_kind, cost_amount):
            answer = super().take(now, cost_kind, cost_amount)
            if answer.granted:
                model.spend(now, answer.granted)
            return answer

        def count_as_unused(self, now, granted_at, count, came_back):
            self.uses.take_back(granted_at, count)
            assert came_back == model.refund(now, count, granted_at)

    walk = GcraWalk(terms, quota, start)
    for move in moves:
        walk.move(*move)
        now = walk.times.now
        assert walk.state.peek(now, 0).reset_after == model.reset_after(now)
    assert walk.uses.most_in_any(terms.period_ns) <= model.most_in_any_window()


@given(data=st.data(), start=START, moves=MOVES)
def test_log_returns_exact_entries(data, start, moves):
    """With granted_at the very entries come back: the log is as if they had never been."""
    terms, quota = data.draw(kept(log_terms()))
    model = ExactLog(terms)

    class LogWalk(RefundWalk):
        def take(self, now, cost_kind, cost_amount):
            answer = super().take(now, cost_kind, cost_amount)
            if answer.granted:
                model.spend(now, answer.granted)
            return answer

        def count_as_unused(self, now, granted_at, count, came_back):
            super().count_as_unused(now, granted_at, count, came_back)
            assert came_back == model.refund(now, count, granted_at)

    walk = LogWalk(terms, quota, start)
    for move in moves:
        walk.move(*move)
        now = walk.times.now
        for cost in (1, terms.limit, max(1, terms.limit // 2)):
            assert walk.state.peek(now, cost) == tuple(model.ask(now, "peek", cost))


@given(data=st.data(), start=START, moves=MOVES)
def test_fixed_window_returns_to_the_window_of_the_grant_only(data, start, moves):
    terms, quota = data.draw(kept(st.builds(
        lambda limit, period: Terms("fixed_window", limit, period),
        st.integers(1, 1000), st.sampled_from([S, 60 * S, 3600 * S]))))
    model = FixedWindow(terms)

    class EdgeWalk(RefundWalk):
        def count_as_unused(self, now, granted_at, count, came_back):
            super().count_as_unused(now, granted_at, count, came_back)
            same = model.edges(now) == model.edges(granted_at)
            assert came_back == (count if same else 0)

    walk = EdgeWalk(terms, quota, start)
    for move in moves:
        walk.move(*move)


@pytest.mark.parametrize("algorithm", list(TERMS))
@given(data=st.data(), start=START, count=st.integers(0, 2**32 - 1), at=st.integers(0, 2**64 - 1))
def test_no_refund_lifts_above_capacity(algorithm, data, start, count, at):
    """B7, B9: whatever is claimed, whenever it is claimed to have been granted."""
    terms, quota = data.draw(kept(TERMS[algorithm]()))
    state = abi.State(quota)
    assert state.ask(start, "refund", count, at).granted == 0, "an unused state has nothing to give"
    state.take(start, max(1, quota.limit // 2))
    for _ in range(3):
        answer = state.ask(start, "refund", count, at)
        assert answer.granted <= count and answer.remaining <= answer.limit
        check_remaining(state, start, answer)


@pytest.mark.parametrize("algorithm", list(TERMS))
@given(data=st.data(), start=START, count=st.integers(1, 2**32 - 1), late=st.integers(0, 10**9))
def test_a_dead_state_has_nothing_to_give_back(algorithm, data, start, count, late):
    """Whenever the units are said to have been granted: they have come back by themselves."""
    terms, quota = data.draw(kept(TERMS[algorithm]()))
    state = abi.State(quota)
    state.take(start, max(1, quota.limit // 2))
    now = state.dies_at() + late
    assume(now <= LIFE)
    for granted_at in (start, abi.NEVER_NS, now, 0):
        answer = state.ask(now, "refund", count, granted_at)
        assert (answer.granted, answer.remaining) == (0, answer.limit)


@pytest.mark.parametrize("algorithm", list(TERMS))
@given(data=st.data(), start=START)
def test_what_was_granted_just_now_comes_back_whole(algorithm, data, start):
    """A refund without a time counts as granted just now: everything taken at once returns."""
    terms, quota = data.draw(kept(TERMS[algorithm]()))
    state = abi.State(quota)
    capacity = state.peek(start, 0).limit
    state.take(start, capacity)
    answer = state.ask(start, "refund", capacity, abi.NEVER_NS)
    assert (answer.granted, answer.remaining) == (capacity, capacity)


@pytest.mark.parametrize("algorithm", list(TERMS))
@given(data=st.data(), start=START, moves=MOVES)
def test_a_refused_refund_leaves_the_bytes_unchanged(algorithm, data, start, moves):
    """What cannot be returned stays charged until its time, and nothing else has changed either."""
    terms, quota = data.draw(kept(TERMS[algorithm]()))
    walk = RefundWalk(terms, quota, start)
    for move in moves:
        walk.move(*move)
        now, before = walk.times.now, walk.state.raw()
        if walk.state.ask(now, "refund", 0, now).granted == 0:
            assert walk.state.raw() == before
        state = walk.state.copy()
        answer = state.ask(now, "refund", 1, max(0, now - 3 * terms.period_ns))
        if answer.granted == 0 and terms.algorithm != "gcra":
            assert state.peek(now, 0).remaining == walk.state.peek(now, 0).remaining


def test_models_agree_that_refunding_the_newest_is_wrong():
    """The oracle itself: with the law's own refund the log stays within N in the worst run."""
    model = model_of(Terms("log", 2, 100))
    model.spend(0, 1)
    model.spend(50, 1)
    assert model.refund(60, 1, 0) == 1
    assert model.remaining(60) == 1 and model.units[0][0] == 50
