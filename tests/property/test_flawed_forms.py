# SPDX-License-Identifier: MIT
"""Every flawed form of docs/algorithms.md breaks the property, and the library keeps it."""

import random

import pytest

import stint_abi as abi
from oracle import Gcra, RationalGcra, Terms, UseLog, flawed
from strategies import MINUTE, S

KEY_COOLDOWN = Terms("buckets", 500, 10 * MINUTE, time_slack_ns=MINUTE, count_slack=50)


def library(terms):
    return abi.State(abi.quota_from_terms(terms))


def admitted_at_once(limiter, now, tries):
    return sum(limiter.take(now, 1).granted for _ in range(tries))


def most_in_any_window(limiter, terms, script):
    uses = UseLog()
    for now, cost in script:
        uses.add(now, limiter.take(now, cost).granted)
    return uses.most_in_any(terms.period_ns)


def test_gcra_comparing_the_trial_value_admits_one_more():
    terms = Terms("gcra", 100, MINUTE, burst=20)
    assert admitted_at_once(flawed.ComparesTheValueBeforeTheCost(terms), 0, 50) == 21
    assert admitted_at_once(library(terms), 0, 50) == 20


@pytest.mark.parametrize("burst", [1, 2, 20])
def test_gcra_clamping_to_now_less_tolerance_doubles_the_burst_after_idling(burst):
    terms = Terms("gcra", 100, MINUTE, burst=burst)
    assert admitted_at_once(flawed.ClampsToNowLessTolerance(terms), 3600 * S, 100) == 2 * burst
    limiter = library(terms)
    assert admitted_at_once(limiter, 0, 100) == burst
    assert admitted_at_once(limiter, 3600 * S, 100) == burst


def granted_in_a_second(limiter):
    """Everything that can be had by asking each microsecond, from 0 to 1 s."""
    most = limiter.terms.burst
    return sum(limiter.take_upto(now, most).granted for now in range(0, S + 1, 1_000_000))


class Upto:
    """take_upto of the library under the model's name."""

    def __init__(self, terms):
        self.terms, self.state = terms, library(terms)

    def take_upto(self, now, cost):
        return self.state.ask(now, "take_upto", cost)


@pytest.mark.parametrize("limit, too_fast", [
    (1_000_003, 1.0009), (600_000_000, 1.6), (1_000_000_001, 1.9)])
def test_gcra_truncating_the_interval_runs_fast(limit, too_fast):
    """0.1 % at 1,000,003/s, 67 % at 600 M/s, no limit at all above 10^9/s."""
    terms = Terms("gcra", limit, S, burst=max(1, limit // 500))
    allowed = terms.burst + limit
    assert granted_in_a_second(flawed.TruncatesTheInterval(terms)) > allowed * too_fast * 0.998
    try:
        assert granted_in_a_second(Upto(terms)) <= allowed
    except abi.Refused as refusal:
        assert refusal.code == abi.K.STINT_E_RANGE and "0.1" in str(refusal)
        assert limit > 32_000_000


def test_gcra_in_32_bit_seconds_forgets_what_is_owed_within_the_second():
    terms = Terms("gcra", 100, S, burst=10)
    script = [(now * S // 50, 10) for now in range(100)]
    bound = Gcra(terms).most_in_any_window()
    assert most_in_any_window(flawed.KeepsSecondsIn32Bits(terms), terms, script) > bound
    assert most_in_any_window(library(terms), terms, script) <= bound


@pytest.mark.parametrize("years", [0, 1, 4, 7])
def test_no_time_is_kept_in_32_bits(years):
    """Seconds, milliseconds or microseconds in 32 bits would wrap within these years."""
    for spec in ("gcra 10/1h", "window 10/1h", "log 10/1h", "fixed_window 10/1h",
                 "sliding_counter 10/1h", "buckets 10/1h time_slack=1m count_slack=2"):
        state = abi.State(abi.parse(spec))
        begin = years * 365 * 86400 * S + 3600 * S * 3
        begin -= begin % (3600 * S)
        assert admitted_at_once(state, begin, 12) == 10
        for wrap in (2**31 * 1000, 2**32 * 1000, 2**31 * 10**6, 2**32 * 10**6, 2**32):
            assert admitted_at_once(state.copy(), begin + max(wrap, 3 * 3600 * S), 12) == 10


def test_releasing_a_bucket_at_its_creation_admits_nearly_twice_the_limit():
    """One key early, the others late in the same sub-window: 199 of 100."""
    terms = Terms("buckets", 100, 10 * S, time_slack_ns=S)
    script = [(0, 1), (S - 1, 99), (10 * S, 100)]
    assert most_in_any_window(flawed.ReleasesAtCreation(terms), terms, script) == 199
    assert most_in_any_window(library(terms), terms, script) == 100


def test_keeping_the_close_time_of_a_filled_bucket_denies_too_long():
    limiter = flawed.KeepsTheCloseTimeOfAFilledBucket(KEY_COOLDOWN)
    limiter.take(0, 500)
    assert limiter.take(10 * MINUTE, 1).outcome == "deny"
    limiter = library(KEY_COOLDOWN)
    limiter.take(0, 500)
    assert limiter.take(10 * MINUTE - 1, 1).outcome == "deny"
    assert limiter.take(10 * MINUTE, 500).outcome == "allow"


THREE_A_MINUTE = [(0, 1), (40 * S, 1), (40 * S, 1), (40 * S, 1), (40 * S, 1)]


@pytest.mark.parametrize("form, terms", [
    (flawed.RefillsWithinTheWindow, Terms("gcra", 3, MINUTE, burst=3)),
    (flawed.ComparesTheCountBeforeTheUse, Terms("log", 3, MINUTE)),
])
def test_three_a_minute_used_at_0_and_four_times_at_40_admits_a_fourth(form, terms):
    """At 40 s a refill has brought two units of three back, though the use at 0 s still counts."""
    assert most_in_any_window(form(terms), terms, THREE_A_MINUTE) == 4


@pytest.mark.parametrize("terms", [
    Terms("window", 3, MINUTE, resolution=24), Terms("log", 3, MINUTE),
    Terms("buckets", 3, MINUTE, time_slack_ns=6 * S, count_slack=1),
    Terms("buckets", 3, MINUTE, count_slack=2), Terms("buckets", 3, MINUTE, time_slack_ns=MINUTE),
], ids=str)
def test_three_a_minute_used_at_0_and_four_times_at_40_passes_three_in_all(terms):
    assert most_in_any_window(library(terms), terms, THREE_A_MINUTE) == 3
    limiter = library(terms)
    granted = [limiter.take(now, cost).granted for now, cost in THREE_A_MINUTE]
    assert granted == [1, 1, 1, 0, 0]
    assert not limiter.take(MINUTE - 1, 1).granted


def test_an_inverted_weight_admits_twice_the_limit_across_an_edge():
    terms = Terms("sliding_counter", 100, MINUTE)
    script = [(MINUTE - 1, 100), (MINUTE, 100)]
    assert most_in_any_window(flawed.InvertsTheWeight(terms), terms, script) == 200
    assert most_in_any_window(library(terms), terms, script) == 100


def test_counting_before_asking_starves_a_client_at_its_limit():
    """A client slightly above its limit must get about its limit, not a twentieth of it."""
    for algorithm in ("sliding_counter", "fixed_window", "gcra", "window"):
        terms = Terms(algorithm, 100, S)
        script = [(now, 1) for now in range(0, 60 * S, S // 105)]
        granted = sum(library_take.granted for library_take in
                      map(lambda step, state=library(terms): state.take(*step), script))
        assert granted >= 0.85 * 60 * 100
    limiter = flawed.CountsBeforeItAsks(Terms("sliding_counter", 100, S))
    assert sum(limiter.take(now, cost).granted for now, cost in script) < 0.1 * 60 * 100


def test_a_set_of_timestamps_loses_calls_of_the_same_instant():
    terms = Terms("log", 5, S)
    assert admitted_at_once(flawed.IsASetOfTimes(terms), 7, 50) == 50
    assert admitted_at_once(library(terms), 7, 50) == 5


class LibraryWithRefund:
    def __init__(self, terms):
        self.state = library(terms)

    def take(self, now, cost):
        return self.state.take(now, cost)

    def refund(self, now, count, granted_at):
        self.state.ask(now, "refund", count, granted_at)


def runs_over_the_limit(make, terms, runs, seed):
    """Random takes, some given back later and truthfully; how many runs admitted more than N."""
    random_ = random.Random(seed)
    over = 0
    for _ in range(runs):
        limiter, uses, now, grants = make(terms), UseLog(), 0, []
        for _ in range(25):
            now += random_.randrange(terms.period_ns // 2)
            if grants and random_.random() < 0.3:
                granted_at, count = grants.pop(random_.randrange(len(grants)))
                limiter.refund(now, count, granted_at)
                uses.take_back(granted_at, count)
            cost = random_.randrange(1, terms.limit)
            if limiter.take(now, cost).granted:
                uses.add(now, cost)
                grants.append((now, cost))
        over += uses.most_in_any(terms.period_ns) > terms.limit
    return over


def test_refunding_the_newest_record_admits_more_than_the_limit():
    assert runs_over_the_limit(flawed.RefundsTheNewest, Terms("log", 6, 1000), 2000, 1) > 20
    for terms in (Terms("log", 6, 1000), Terms("window", 6, 1000), Terms("window", 60, 100_000),
                  Terms("window", 100, MINUTE, resolution=12),
                  Terms("buckets", 6, 1000, time_slack_ns=100, count_slack=2),
                  Terms("buckets", 60, 100_000, time_slack_ns=10_000),
                  Terms("buckets", 60, 100_000, count_slack=7)):
        assert runs_over_the_limit(LibraryWithRefund, terms, 400, 2) == 0, terms


def test_refunding_what_has_flowed_back_admits_two_bursts_at_once():
    """Take 10, wait for all to refill, take 10, refund the first 10: nothing more to be had."""
    terms = Terms("gcra", 10, S)
    for limiter, again in ((flawed.RefundsWhatHasFlowedBack(terms), 10),
                           (LibraryWithRefund(terms), 0)):
        assert limiter.take(0, 10).granted == 10
        assert limiter.take(S, 10).granted == 10
        limiter.refund(S, 10, 0)
        assert limiter.take(S, 10).granted == again


def test_a_wrapped_slot_number_brings_dead_states_back():
    """Full at 0, idle for as long as the slot number takes to come round: must be new."""
    terms = Terms("window", 12, 12_000, resolution=12)
    slot_ns = terms.period_ns // terms.resolution
    limiter = flawed.WrapsTheSlotNumber(terms)
    limiter.take(0, 12)
    assert limiter.take(slot_ns << limiter.BITS, 1).outcome == "deny"
    for spec in ("window 12/12ms resolution=12", "window 100/1s resolution=12", "window 100/1m",
                 "window 12/12us", "window 3000000/1m"):
        try:
            quota = abi.parse(spec)
        except abi.Refused:
            continue  # refused is right where the slot number would wrap
        slots = quota.resolution or 24
        for bits in range(6, 60):
            for begin in (0, 5 * quota.period_ns):
                idle = (quota.period_ns << bits) // slots
                if idle < 2 * quota.period_ns + 2 or begin + idle > 8 * 365 * 86400 * S:
                    continue
                state = abi.State(quota)
                state.take(begin, quota.limit)
                again = state.take(begin + idle, quota.limit)
                assert again.outcome == "allow", (spec, bits, begin)


def test_a_bunch_left_in_its_first_slot_over_admits():
    """Bunches of 10: one opened early and used late must not come back with its first use."""
    terms = Terms("window", 240, 24_000, resolution=24)
    script = [(0, 1), (23_999, 239), (25_000, 240)]
    script = [(0, 1)] + [(n * 1000, 9 if n == 23 else 0) for n in range(1, 24)]
    script += [(23_500, 230), (25_000, 10)]
    assert most_in_any_window(flawed.LeavesTheBunchWhereItWasOpened(terms), terms, script) > 240
    assert most_in_any_window(library(terms), terms, script) <= 240


def test_a_wait_rounded_down_is_too_early():
    """B10: at the promised instant the same cost must be allowed."""
    terms = Terms("gcra", 7, S, burst=3)
    early = flawed.TruncatesTheWait(terms)
    early.take(0, 3)
    assert early.take(early.take(0, 1).retry_after, 1).outcome == "deny"
    state = library(terms)
    state.take(0, 3)
    wait = state.take(0, 1).retry_after
    assert state.copy().take(wait, 1).outcome == "allow"
    assert state.copy().take(wait - 1, 1).outcome == "deny"


def test_best_effort_with_nothing_left_is_a_denial_that_says_zero():
    for algorithm in ("window", "log", "gcra", "fixed_window", "sliding_counter", "buckets"):
        terms = Terms(algorithm, 10, S, count_slack=2 if algorithm == "buckets" else 0)
        state = library(terms)
        first = state.ask(0, "take_upto", 25)
        assert (first.outcome, first.granted, first.remaining) == ("allow", 10, 0)
        second = state.ask(0, "take_upto", 25)
        assert (second.outcome, second.granted) == ("deny", 0)


@pytest.mark.parametrize("limit, period", [(100, MINUTE), (3, S), (999, S), (10**6, S)])
def test_the_rate_is_never_above_the_rational_one(limit, period):
    terms = Terms("gcra", limit, period, burst=5)
    state, exact = library(terms), RationalGcra(terms)
    granted = 0
    for turn in range(2000):
        now = turn * period // limit // 2
        granted += state.take(now, 1).granted
        assert (granted - 5) * exact.interval <= 32 * now
