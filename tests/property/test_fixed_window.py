# SPDX-License-Identifier: MIT
"""fixed_window: at most 2N in any window, aligned to the epoch, the first use or a calendar."""

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given, strategies as st

import stint_abi as abi
from drive import Walk
from oracle import FixedWindow, Terms, UseLog
from oracle.fixed_window import calendar_edges
from oracle.terms import ALIGN
from strategies import DAY, MINUTE, S, START, YEAR, fixed_window_terms, kept, steps

VERBS = ("take", "take", "take", "take_upto", "peek")


class TwiceN(Walk):
    def bound(self):
        return 2 * self.terms.limit

    def justified(self, now, cost):
        return True


@given(drawn=kept(fixed_window_terms()), start=START, walk=steps(VERBS))
def test_fixed_window_is_its_law_and_within_twice_the_limit(drawn, start, walk):
    terms, quota = drawn
    run = TwiceN(terms, quota, model_or_law(terms), UseLog(), start)
    for step in walk:
        run.step(*step)


def model_or_law(terms):
    """From the first use, the start is stored in grains, which the law does not fix: no model."""
    return None if terms.align == ALIGN["first_use"] else FixedWindow(terms)


@given(drawn=kept(fixed_window_terms(count_denied=True)), start=START, walk=steps(backward=False))
def test_fixed_window_that_counts_denied_requests(drawn, start, walk):
    terms, quota = drawn
    run = TwiceN(terms, quota, model_or_law(terms), UseLog(), start)
    for step in walk:
        run.step(*step)


@given(drawn=kept(st.builds(lambda n, p: Terms("fixed_window", n, p, align=1),
                            st.integers(1, 10**6),
                            st.sampled_from([MINUTE, 3600 * S, DAY, 30 * DAY]))),
       start=START, walk=steps())
def test_a_window_of_the_first_use_lasts_its_period(drawn, start, walk):
    """From the first use for W, and at most the stored grain longer: never shorter."""
    terms, quota = drawn
    state = abi.State(quota)
    first = state.take(start, 1)
    assert terms.period_ns <= first.reset_after <= terms.period_ns + quota.derived.grain_ns
    state.take(start, terms.limit - 1)
    assert state.take(start + terms.period_ns - 1, 1).outcome == "deny"


@pytest.mark.parametrize("align", [ALIGN["epoch"], ALIGN["first_use"]])
def test_fixed_window_reaches_twice_the_limit(align):
    """The flaw that makes it inexact, stated and shown: N on each side of an edge."""
    terms = Terms("fixed_window", 100, MINUTE, align=align)
    quota = abi.quota_from_terms(terms)
    state, uses = abi.State(quota), UseLog()
    assert abi.lib.stint_max_in_any_window(abi.c.byref(quota)) == 200
    uses.add(0, state.take(0, 1).granted)
    edge = state.take(1, 0).reset_after + 1
    for now, cost in ((edge - 1, 99), (edge, 100)):
        uses.add(now, state.take(now, cost).granted)
    assert uses.most_in_any(MINUTE) == 199
    now = edge + MINUTE - 1
    if align == ALIGN["epoch"]:
        state = abi.State(quota)
        uses = UseLog()
        for now in (MINUTE - 1, MINUTE):
            uses.add(now, state.take(now, 100).granted)
        assert uses.most_in_any(MINUTE) == 200


@given(wall=st.integers(0, 200 * YEAR), offset=st.integers(-86399, 86399),
       align=st.sampled_from([2, 3, 4, 5]))
def test_the_calendar_of_the_oracle_is_the_calendar(wall, offset, align):
    """Edges against datetime's own fields, so that the oracle is not its own judge."""
    zone = timezone(timedelta(seconds=offset)) if abs(offset) < 86400 else timezone.utc
    begin, end = calendar_edges(align, offset, wall)
    assert begin <= wall < end
    for edge in (begin, end):
        local = datetime.fromtimestamp(edge // S, zone)
        assert (local.hour, local.minute, local.second) == (0, 0, 0)
        assert align != 3 or local.isoweekday() == 1
        assert align not in (4, 5) or local.day == 1
        assert align != 5 or local.month == 1


@pytest.mark.parametrize("align, wall, days", [
    ("month", datetime(2024, 2, 10), 29), ("month", datetime(2023, 2, 28, 23, 59, 59), 28),
    ("month", datetime(2100, 2, 1), 28), ("month", datetime(2000, 2, 29), 29),
    ("month", datetime(2026, 12, 31), 31), ("year", datetime(2024, 6, 1), 366),
    ("year", datetime(2023, 1, 1), 365), ("week", datetime(2026, 1, 1), 7),
    ("day", datetime(2026, 11, 21, 9), 1),
])
@pytest.mark.parametrize("offset", [0, 3600, -12 * 3600, 86399, -86399, 19800])
def test_calendar_windows_have_calendar_lengths(align, wall, days, offset):
    """A 30-day expiry on a calendar month is a bug class of the services; 28, 29, 31 are right."""
    epoch = (wall - datetime(1970, 1, 1)) // timedelta(seconds=1) * S
    begin, end = calendar_edges(ALIGN[align], offset, epoch)
    period = {"day": DAY, "week": 7 * DAY, "month": 28 * DAY, "year": YEAR}[align]
    terms = Terms("fixed_window", 1, period, align=ALIGN[align], utc_offset_s=offset,
                  epoch_ns=begin)
    state = abi.State(abi.quota_from_terms(terms))
    assert state.take(0).reset_after == end - begin
    assert offset or (end - begin) == days * DAY
    assert state.take(end - begin - 1).retry_after == 1
    assert state.take(end - begin).outcome == "allow"


def test_a_day_that_begins_elsewhere():
    """utc_offset moves the edge: a day in +01:00 ends at 23:00 UTC."""
    terms = Terms("fixed_window", 1, DAY, align=ALIGN["day"], utc_offset_s=3600)
    state = abi.State(abi.quota_from_terms(terms))
    assert state.take(0).reset_after == 23 * 3600 * S
