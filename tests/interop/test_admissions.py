# SPDX-License-Identifier: MIT
"""The judge of the tests with stores: it finds what is planted, and never accuses the innocent."""
import itertools
import random
import signal
import time

import pytest
from hypothesis import given, settings, strategies as st

from admissions import (S, US, Admission, excess, fullest, most_by_server_time, most_in_any_window,
                        percentile, strangers)
from crowd import Crowd, admissions, by_rule, outcomes, waits_ms
from fleet import KEYS, LIMIT, WINDOW, Fleet, check_bound, check_waits
from redis_server import until


def seen(at_ns, delays, key="k", units=1, tells=True):
    """An admission at that instant as its caller saw it."""
    before, after = delays
    return Admission(key, units, at_ns - before, at_ns + after, at_ns // US * US if tells else None)


def lawful(rng, limit, seconds, tells):
    """As dense as a strict limiter allows that grants by bursts, with whatever delays."""
    found, now = [], 10 * S
    recent = []
    while now < (10 + seconds) * S:
        recent = [at for at in recent if at // US > now // US - WINDOW // US]
        for _ in range(min(rng.randrange(1, limit + 1), limit - len(recent))):
            recent.append(now)
            found.append(seen(now, (rng.randrange(60_000_000), rng.randrange(60_000_000)),
                              tells=tells))
        now += rng.choice([1, US, 1_000_000, 300_000_000, WINDOW, WINDOW + 1])
    return found


@pytest.mark.parametrize("tells", [True, False])
def test_a_strict_limiter_is_never_accused(tells):
    for seed in range(60):
        rng = random.Random(seed)
        limit = rng.choice([1, 3, 20])
        found = lawful(rng, limit, 20, tells)
        assert len(found) >= limit
        assert excess(found, limit, WINDOW) == []
        assert strangers(found) == []


@pytest.mark.parametrize("tells", [True, False])
def test_one_too_many_is_found(tells):
    for seed in range(60):
        rng = random.Random(seed)
        found = lawful(rng, 5, 20, tells)
        at = rng.choice(found).sent_ns + 30 * S
        for _ in range(6):
            found.append(seen(at + rng.randrange(WINDOW - 200_000_000), (1_000_000, 1_000_000),
                              tells=tells))
        rng.shuffle(found)
        (told, *_) = excess(found, 5, WINDOW)
        assert told.startswith("k: 6 of 5 in 2 s")


def test_units_count_and_keys_do_not_mix():
    heavy = [seen(S, (5, 5), units=4), seen(S + 7, (5, 5), units=3)]
    assert most_in_any_window(heavy, WINDOW).units == 7
    others = [seen(S, (5, 5), key=f"k{n}", units=4) for n in range(9)]
    assert excess(others, 4, WINDOW) == []
    assert len(excess(others + heavy, 6, WINDOW)) == 2  # of k alone: both ways of counting


def test_a_window_is_half_open_and_times_are_microseconds():
    first, second = seen(S, (0, 0)), seen(S + WINDOW, (0, 0))
    assert most_by_server_time([first, second], WINDOW).units == 1
    assert most_by_server_time([first, seen(S + WINDOW - US, (0, 0))], WINDOW).units == 2
    # 1.0000000 and 2.9999995 s are a whole window apart to a store that sees 1.000000 and 3.000000
    # no less than to one that sees 2.999999: nobody can tell from outside.
    assert most_in_any_window([first, seen(S + WINDOW - US + 1, (0, 0))], WINDOW).units == 1
    assert most_in_any_window([first, seen(S + WINDOW - US - 1, (0, 0))], WINDOW).units == 2


def test_late_answers_accuse_nobody():
    """Each may have been granted anywhere in three windows; no two need have been in one."""
    slow = [Admission("k", 1, n, 3 * WINDOW + n) for n in range(3)]
    assert most_in_any_window(slow, WINDOW).units == 0
    # But four of them cannot be spread over so little that no window has two.
    assert most_in_any_window(slow + [Admission("k", 1, 9, 3 * WINDOW)], WINDOW, 4).units == 4


def test_what_single_windows_hide_several_tell():
    """Each interval could give way to its neighbour, but not all of them at once."""
    spans = [(0, 6), (5, 11), (9, 15)]
    found = [Admission("k", 1, begin * S, end * S) for begin, end in spans]
    assert most_in_any_window(found, 10 * S).units == 1
    assert most_in_any_window(found, 10 * S, 2).units == 3
    assert len(excess(found, 1, 10 * S)) == 1


def test_told_times_must_lie_in_between():
    assert strangers([Admission("k", 1, S, S + 5000, S + 9000)])
    assert strangers([Admission("k", 1, S, S + 5000, S - 9000)])
    assert not strangers([Admission("k", 1, S, S + 5000, S - 900)])  # cut to microseconds


SPANS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 7), st.integers(1, 3)).map(
    lambda span: (span[0], span[0] + span[1], span[2])), min_size=1, max_size=5)


def most(times, length):
    return max(sum(units for at, units in times if begin <= at < begin + length)
               for begin, _ in times)


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(SPANS, st.integers(1, 12))
def test_no_claim_is_above_the_kindest_times(spans, length):
    """Against every way in which the instants may have lain."""
    ways = itertools.product(*[range(begin, end + 1) for begin, end, _ in spans])
    kindest = min(most([(at, span[2]) for at, span in zip(way, spans)], length) for way in ways)
    assert fullest(spans, length).units <= kindest


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(SPANS, st.integers(1, 12))
def test_known_instants_are_counted_exactly(spans, length):
    points = [(begin, begin, units) for begin, _, units in spans]
    assert fullest(points, length).units == most([(at, units) for at, _, units in points], length)


def test_percentiles():
    assert [percentile(range(1, 101), share) for share in (0, 0.5, 0.99, 1)] == [1, 50, 99, 100]
    assert percentile([], 0.5) == 0


# ---- On real servers ----


def passed(seen):
    """Keys that were granted more than the limit, as callers saw it."""
    granted = [one._replace(at_ns=None) for one in admissions(seen)]
    return {fault.split(":")[0] for fault in excess(granted, LIMIT, WINDOW, windows=1)}


def test_a_server_alone_holds_and_two_that_share_nothing_do_not():
    """What the tests with stores would see if their store did not join the servers."""
    with Fleet(2, None) as fleet:
        with Crowd(fleet.frontends[:1], by_rule("fleet", "user", KEYS), rate=2000) as alone:
            time.sleep(2.5)
        with fleet.crowd(rate=4000) as both:
            time.sleep(2.5)
            until(lambda: len(passed(both.snapshot())) > len(KEYS) / 2, "limits are passed",
                  pause_s=0.5)
    check_bound(alone.seen, tells=False)
    check_waits(alone.seen)


def test_who_is_not_answered_is_seen():
    """A server that stands still: its callers wait, and that is what they are found to do."""
    with Fleet(1, None) as fleet:
        with fleet.crowd(rate=200) as crowd:
            until(lambda: crowd.seen, "it is asked")
            fleet.servers[0].tell(signal.SIGSTOP)
            stopped_ns = time.time_ns()
            until(lambda: any(client.asked and client.sent_ns > stopped_ns
                              for client in crowd.clients), "it is asked while it stands still")
            time.sleep(0.8)
            fleet.servers[0].tell(signal.SIGCONT)
            until(lambda: waits_ms(crowd.snapshot(), 1) > 700, "it answers")
    assert outcomes(crowd.seen)["lost"] == 0
    with pytest.raises(AssertionError):
        check_waits(crowd.seen, 600)
