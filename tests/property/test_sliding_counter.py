# SPDX-License-Identifier: MIT
"""sliding_counter: the weighted estimate in integers; at most 2N - 1, which is reached."""

from hypothesis import given, strategies as st

import stint_abi as abi
from drive import Walk
from oracle import SlidingCounter, Terms, UseLog
from strategies import MINUTE, START, kept, sliding_counter_terms, steps

VERBS = ("take", "take", "take", "take_upto", "peek")


class TwiceNLessOne(Walk):
    def bound(self):
        return max(self.terms.limit, 2 * self.terms.limit - 1)

    def justified(self, now, cost):
        return True


@given(drawn=kept(sliding_counter_terms()), start=START, walk=steps(VERBS))
def test_sliding_counter_is_its_law_and_below_twice_the_limit(drawn, start, walk):
    terms, quota = drawn
    run = TwiceNLessOne(terms, quota, SlidingCounter(terms), UseLog(), start)
    for step in walk:
        run.step(*step)


@given(drawn=kept(sliding_counter_terms(count_denied=True)), start=START,
       walk=steps(backward=False))
def test_sliding_counter_that_counts_denied_requests(drawn, start, walk):
    terms, quota = drawn
    run = TwiceNLessOne(terms, quota, SlidingCounter(terms), UseLog(), start)
    for step in walk:
        run.step(*step)


@given(limit=st.integers(1, 500))
def test_sliding_counter_reaches_twice_the_limit_less_one(limit):
    """N at the last instant of a window, then each unit at the first instant it is allowed."""
    terms = Terms("sliding_counter", limit, MINUTE)
    quota = abi.quota_from_terms(terms)
    state, uses = abi.State(quota), UseLog()
    now = MINUTE - 1
    uses.add(now, state.take(now, limit).granted)
    while now < 2 * MINUTE - 1:
        answer = state.take(now)
        if answer.outcome == "allow":
            uses.add(now, 1)
        else:
            now += answer.retry_after
    most = max(limit, 2 * limit - 1)
    assert uses.most_in_any(MINUTE) == most
    assert abi.lib.stint_max_in_any_window(abi.c.byref(quota)) == most
