# SPDX-License-Identifier: MIT
"""B23: a live quota changes up or down, and what was used under the old one is not forgotten."""

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings, strategies as st

import stint_abi as abi
from oracle import UseLog
from strategies import LIFE, MINUTE, S, START, TERMS, Times, cost_of, kept, steps

ALGORITHMS = list(TERMS)
STRICT = ("window", "buckets", "log")


def bound_of(quota):
    return abi.lib.stint_max_in_any_window(abi.c.byref(quota))


class Uses:
    """Every use of a key, and those since the change, judged by the clock of the uses."""

    def __init__(self, quota, start, terms):
        self.state, self.log, self.since = abi.State(quota), UseLog(), None
        self.times = Times(terms, start)

    def walk(self, steps_):
        for gap, amount, _, cost_kind, cost_amount in steps_:
            now = self.times.step(gap, amount)
            looked = self.state.peek(now, 0)
            answer = self.state.take(now, cost_of(cost_kind, cost_amount, looked.limit,
                                                  looked.remaining))
            self.times.heard(answer)
            if answer.granted:
                self.log.add(now, answer.granted)
                if self.since is not None:
                    self.since.add(now, answer.granted)

    def change(self, quota):
        self.state = self.state.converted(quota, self.times.now)
        self.since = UseLog()


def with_limit(terms, limit):
    """The same quota with another limit, its slack as a share of the limit."""
    count = terms.count_slack and max(1, -(-limit // 50))
    return replace(terms, limit=limit, burst=0, count_slack=count)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(data=st.data(), start=START, before=steps(backward=False, most=25),
       after=steps(backward=False, most=25))
def test_a_change_of_limit_keeps_the_larger_bound_and_then_the_new_one(
        algorithm, data, start, before, after):
    """Period unchanged: any window within the larger of the two bounds, later ones in the new.

    A TAT does not know what has flowed back: for gcra the bounds add up (docs/decisions/0010).
    """
    terms, quota = data.draw(kept(TERMS[algorithm]()))
    factor = data.draw(st.sampled_from([0.01, 0.2, 0.5, 0.9, 1.0, 1.1, 2.0, 7.5]))
    limit = max(1, min(2**32 - 1, int(terms.limit * factor)))
    try:
        changed = abi.quota_from_terms(with_limit(terms, limit))
    except abi.Refused:
        assume(False)
    uses = Uses(quota, start, terms)
    uses.walk(before)
    uses.change(changed)
    uses.walk(after)
    join = sum if algorithm == "gcra" else max
    assert uses.log.most_in_any(terms.period_ns) <= join((bound_of(quota), bound_of(changed)))
    assert uses.since.most_in_any(terms.period_ns) <= bound_of(changed)


@pytest.mark.parametrize("to_algorithm", ALGORITHMS)
@pytest.mark.parametrize("from_algorithm", ALGORITHMS)
@settings(max_examples=settings().max_examples // 4)
@given(data=st.data(), start=START, before=steps(backward=False, most=20),
       after=steps(backward=False, most=20))
def test_a_change_of_algorithm_or_period_carries_what_is_held(
        from_algorithm, to_algorithm, data, start, before, after):
    """The bound holds for windows after the change; nothing held is given out a second time."""
    terms, quota = data.draw(kept(TERMS[from_algorithm]()))
    new_terms, changed = data.draw(kept(TERMS[to_algorithm]()))
    uses = Uses(quota, start, terms)
    uses.walk(before)
    now = uses.times.now
    uses.change(changed)
    uses.times = Times(new_terms, now)
    uses.times.now = now  # also past the middle of a table's life, where histories begin at most
    shorter = min(terms.period_ns, new_terms.period_ns)
    if from_algorithm in STRICT and to_algorithm in STRICT:
        used = uses.log.used_in(now, shorter)
        carried = uses.state.peek(now, 0)
        assert carried.remaining <= max(0, carried.limit - used)
    uses.walk(after)
    if from_algorithm in STRICT and to_algorithm in STRICT:
        # Both states know all uses of the shorter period, so no window of it holds more.
        assert uses.log.most_in_any(shorter) <= max(terms.limit, new_terms.limit)
    assert uses.since.most_in_any(new_terms.period_ns) <= bound_of(changed)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(data=st.data(), start=START, before=steps(backward=False, most=20))
def test_a_change_to_the_same_quota_frees_nothing(algorithm, data, start, before):
    terms, quota = data.draw(kept(TERMS[algorithm]()))
    uses = Uses(quota, start, terms)
    uses.walk(before)
    now = uses.times.now
    same = uses.state.converted(quota, now)
    period = terms.period_ns
    for wait in (0, 1, period // 3, period - 1, period, 2 * period):
        later = now + wait
        if later <= LIFE:
            assert same.peek(later, 0).remaining <= uses.state.peek(later, 0).remaining
    assert same.peek(now, 0).remaining == uses.state.peek(now, 0).remaining


def test_a_raised_limit_is_there_at_once_and_a_lowered_one_too():
    for algorithm in STRICT:
        more = " count_slack=2" if algorithm == "buckets" else ""
        ten, twenty = (abi.parse(f"{algorithm} {n}/1m{more}") for n in (10, 20))
        state = abi.State(ten)
        state.take(0, 10)
        raised = state.converted(twenty, S)
        assert raised.take(S, 10).outcome == "allow"
        assert raised.take(S, 1).outcome == "deny"
        lowered = raised.converted(ten, 2 * S)
        assert lowered.take(2 * S, 1).outcome == "deny"
        assert lowered.take(3 * MINUTE, 10).outcome == "allow"
