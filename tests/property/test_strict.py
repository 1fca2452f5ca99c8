# SPDX-License-Identifier: MIT
"""window, buckets and log: never over N in any window, and no denial without its stated cause."""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

import stint_abi as abi
from drive import Walk
from oracle import Terms, UseLog, model_of
from strategies import MINUTE, S, START, STRICT, TERMS, kept, steps

sys.path.insert(0, str(Path(os.environ["STINT_SOURCE"]) / "tools"))
import drawings  # noqa: E402

VERBS = ("take", "take", "take", "take_upto", "peek", "charge")


@pytest.mark.parametrize("algorithm", STRICT)
@given(data=st.data(), start=START, walk=steps(VERBS))
def test_strict_is_never_over_and_every_denial_is_justified(algorithm, data, start, walk):
    """With weights, backward clocks, idle years and instants one tick around every edge.

    Charges need not fit; then nothing is free until enough of what was used is over.
    """
    terms, quota = data.draw(kept(TERMS[algorithm]()))
    run = Walk(terms, quota, model_of(terms), UseLog(), start)
    for step in walk:
        run.step(*step)
    assert run.is_over or run.uses.most_in_any(terms.period_ns) <= terms.limit


@pytest.mark.parametrize("algorithm", STRICT)
@given(data=st.data(), start=START)
def test_exactly_n_units_fit_from_a_fresh_state(algorithm, data, start):
    """N in pieces of any size and not one more, also where a bunch does not divide N."""
    terms, quota = data.draw(kept(TERMS[algorithm]()))
    state, left = abi.State(quota), terms.limit
    for _ in range(12):
        piece = data.draw(st.integers(1, max(1, left // 3)))
        if piece <= left:
            assert state.take(start, piece).remaining == left - piece
            left -= piece
    if left:
        assert state.take(start, left).outcome == "allow"
    last = state.take(start, 1)
    assert (last.outcome, last.remaining) == ("deny", 0)


@pytest.mark.parametrize("spec, terms", [
    ("window 15/1m", Terms("window", 15, MINUTE)),
    ("window 100/1m resolution=12", Terms("window", 100, MINUTE, resolution=12)),
    ("window 100/1m", Terms("window", 100, MINUTE)),
    ("window 101/1m resolution=100", Terms("window", 101, MINUTE, resolution=100)),
    ("buckets 500/10m time_slack=1m count_slack=50",
     Terms("buckets", 500, 10 * MINUTE, time_slack_ns=MINUTE, count_slack=50)),
    ("buckets 20/10s time_slack=1s", Terms("buckets", 20, 10 * S, time_slack_ns=S)),
    ("buckets 20/10s count_slack=3", Terms("buckets", 20, 10 * S, count_slack=3)),
    ("log 5/1s", Terms("log", 5, S)),
])
def test_strict_under_a_greedy_caller_for_many_windows(spec, terms):
    """A caller who always comes back exactly at retry_after gets no more than N anywhere."""
    run = Walk(terms, abi.parse(spec), model_of(terms), UseLog())
    now, cost = 0, 0
    for turn in range(1500):
        cost = (cost * 7 + turn) % max(2, terms.limit // 3) + 1
        answer = run.ask(now, "take", cost)
        denied = answer.outcome == "deny"
        now += answer.retry_after if denied else (turn % 5) * terms.period_ns // 97
    assert run.uses.most_in_any(terms.period_ns) <= terms.limit
    assert run.uses.most_in_any(terms.period_ns) >= terms.limit // 2


def test_small_limits_get_every_unit():
    """B20: a user who writes 15 gets 15 in each minute, not 29 and not 14."""
    for algorithm in ("window", "log"):
        state = abi.State(abi.parse(f"{algorithm} 15/1m"))
        for minute in range(5):
            at = minute * (MINUTE + MINUTE // 24 + 1)
            assert [state.take(at).outcome for _ in range(16)] == ["allow"] * 15 + ["deny"]


@given(steps_ns=st.lists(st.integers(0, 2), min_size=1, max_size=60), start=START)
def test_calls_in_the_same_nanosecond_are_all_counted(steps_ns, start):
    """The log is a multiset of times: equal times are as many uses as there were calls."""
    state, uses, now = abi.State(abi.parse("log 7/1us")), UseLog(), start
    for step in steps_ns:
        now += step
        if state.take(now).outcome == "allow":
            uses.add(now, 1)
        assert uses.used_in(now, 1000) <= 7
    assert uses.most_in_any(1000) == min(7, len(steps_ns))


def test_bucket_trace_reaches_twenty_and_grants_again_at_the_period():
    """The trace of docs/semantics.md, 4.4, and 500 at once back after W, not W + O."""
    terms = Terms("buckets", 500, 10 * MINUTE, time_slack_ns=MINUTE, count_slack=50)
    quota, model = abi.quota_from_terms(terms), model_of(terms)
    state = abi.State(quota)
    uses = [(0, 1), (59 * S, 1)] + [(n * MINUTE, 1) for n in range(1, 10)] + [(10 * MINUTE, 451)]
    for now, cost in uses:
        assert state.take(now, cost) == tuple(model.take(now, cost))
    assert len(model.alive(10 * MINUTE)) == model.most_alive() == 20

    state = abi.State(quota)
    assert state.take(0, 500).outcome == "allow"
    assert state.take(10 * MINUTE - 1).outcome == "deny"
    assert state.take(10 * MINUTE, 500).outcome == "allow"


@given(data=st.data(), start=START, walk=steps(("take", "charge"), backward=False))
def test_no_more_buckets_are_alive_than_the_state_has_room_for(data, start, walk):
    terms, quota = data.draw(kept(TERMS["buckets"]()))
    run = Walk(terms, quota, model_of(terms), None, start)
    assert quota.derived.max_buckets >= 1
    for step in walk:
        run.step(*step)
        assert len(run.model.alive(run.times.now)) <= run.model.most_alive()
    assert run.model.most_alive() <= quota.derived.max_buckets


def test_the_window_that_is_drawn_has_the_bits_of_the_state():
    """docs/drawings/window.svg shows them, drawn by tools/drawings.py from a model of its own."""
    cell = abi.Cell(abi.parse("window 30/1m resolution=10"), 0)
    window, bits = drawings.Window(), 2 * drawings.RESOLUTION + 1
    for now_s, cost in drawings.REQUESTS:
        decision = cell.take(now_s * S, cost)
        assert (decision.outcome, decision.remaining) == window.take(now_s, cost)
        if decision.outcome == "allow":
            slot = now_s * drawings.RESOLUTION // drawings.PERIOD_S
            string = int.from_bytes(cell.raw(), "little") & ((1 << bits) - 1)
            assert f"{string:b}" == window.string(slot).replace(" ", "")
