# SPDX-License-Identifier: MIT
"""The same random sequences through C and through the scripts: every decision is the same.

All instants and lengths are whole microseconds, as a store counts. What is known to differ is said
where it is left out, and in docs/decisions/0034-scripts-of-the-store.md.
"""

from dataclasses import replace

import pytest
from hypothesis import assume, given, strategies as st

import stint_abi as abi
from decode import decode
from oracle import Terms
from oracle.terms import ALIGN
from store import Store, in_us, words_of
from strategies import (AMOUNT, COSTS, GAPS, START, TERMS, Times, cost_of, fixed_window_terms,
                        gcra_terms, sliding_counter_terms)

LIFE_US = 8 * 365 * 86400 * 10**6
VERBS = ("take", "take", "take", "take_upto", "peek", "charge", "refund", "refund_now")
STEPS = st.lists(st.tuples(st.sampled_from(GAPS), AMOUNT, st.sampled_from(VERBS),
                           st.sampled_from(COSTS), AMOUNT), min_size=1, max_size=40)
LENGTHS = ("period_ns", "time_slack_ns", "lease_ns")


def whole_us(terms):
    """The quota with its lengths rounded up to microseconds."""
    return replace(terms, **{name: -(-getattr(terms, name) // 1000) * 1000 for name in LENGTHS})


@st.composite
def quotas(draw, terms):
    drawn = whole_us(draw(terms))
    try:
        quota = abi.quota_from_terms(drawn)
    except abi.Refused:
        assume(False)
    # C's time ends 18 years after its zero. A debt of twice a capacity has to fit in.
    if drawn.algorithm == "gcra":
        assume(quota.derived.capacity_ticks < 4 * 365 * 86400 * 10**9 * 32)
    # Beside a large count C keeps when a window of the first use begins to more than a nanosecond.
    if drawn.align == ALIGN["first_use"]:
        assume(quota.derived.grain_ns == 1)
    # 1970 is where a store's time begins.
    quota.epoch_ns = 0
    return drawn, quota


class Pair:
    """One key in both, asked alike."""

    def __init__(self, client, terms, quota, start):
        self.client, self.store, self.quota = client, Store(client), quota
        client.delete("pair")
        self.state, self.grants = abi.State(quota), []
        lengths = {name: getattr(terms, name) // 1000 for name in LENGTHS}
        self.times = Times(replace(terms, **lengths), start)  # it counts in any unit

    def look(self, now):
        return self.state.peek(now * 1000, 0)

    def step(self, gap, amount, verb, cost_kind, cost_amount):
        now = min(self.times.step(gap, amount), LIFE_US)
        self.times.now = now
        looked, at = self.look(now), 0
        cost = cost_of(cost_kind, cost_amount, looked.limit, looked.remaining)
        if verb == "refund":
            if not self.grants:
                return
            at, granted = self.grants.pop(amount % len(self.grants))
            cost = min(abi.U32_MAX, 1 + cost_amount % (granted + 1))
        at_ns = at * 1000
        if verb == "refund_now":
            verb, at, at_ns = "refund", -1, abi.NEVER_NS
        self.ask(now, verb, cost, at, at_ns)

    def ask(self, now, verb, cost, at=0, at_ns=0):
        before, raw = self.client.get("pair"), self.state.raw()
        answer = self.state.ask(now * 1000, verb, cost, at_ns)
        reply = self.store.ask(self.quota, "pair", verb, cost, now, at)
        assert reply[:6] == in_us(answer), (now, verb, cost, at)
        assert reply.now == now
        after = self.client.get("pair")
        # What leaves the bytes as they are in C does so in the store.
        if self.state.raw() == raw:
            assert after == before
        self.check_state(after, now, answer)
        self.times.heard(answer._replace(retry_after=reply.retry_after or 0))
        if verb in ("take", "take_upto") and answer.granted:
            self.grants.append((now, answer.granted))
        return answer

    def check_state(self, value, now, answer):
        """The documented layout tells the same figures."""
        if value is None:
            return
        state = decode(value, now, *words_of(self.quota))
        assert state.algorithm == abi.lib.stint_algorithm_name(self.quota.algorithm).decode()
        assert self.look(now).remaining == max(0, answer.limit - state.used)
        assert -(-self.state.dies_at() // 1000) == -(-state.dies_us // 1)


@pytest.mark.parametrize("algorithm", TERMS)
@given(data=st.data(), start=START, steps=STEPS)
def test_every_decision_is_the_same(redis, algorithm, data, start, steps):
    pair = Pair(redis, *data.draw(quotas(TERMS[algorithm]())), min(start // 1000, LIFE_US // 2))
    for step in steps:
        pair.step(*step)


@pytest.mark.parametrize("drawn", [gcra_terms, fixed_window_terms, sliding_counter_terms])
@given(data=st.data(), start=START, steps=STEPS)
def test_denied_takes_are_counted_the_same(redis, drawn, data, start, steps):
    pair = Pair(redis, *data.draw(quotas(drawn(count_denied=True))),
                min(start // 1000, LIFE_US // 2))
    for step in steps:
        pair.step(*step)


FIRST_USE = st.builds(
    lambda limit, period: Terms("fixed_window", limit, period * 1000, align=ALIGN["first_use"]),
    st.integers(1, 20), st.integers(1, 10**9))


@given(data=st.data(), start=START, steps=STEPS)
def test_windows_of_the_first_use_are_the_same(redis, data, start, steps):
    pair = Pair(redis, *data.draw(quotas(FIRST_USE)), min(start // 1000, LIFE_US // 2))
    for step in steps:
        pair.step(*step)


@given(limits_=st.tuples(st.integers(1, 2000), st.integers(1, 2000)),
       resolution=st.integers(10, 108), start=START, steps=STEPS)
def test_a_window_under_a_new_limit_is_converted_the_same(redis, limits_, resolution, start, steps):
    """Asked at each step under the other limit, which changes nothing."""
    old, new = (Terms("window", limit, 3600 * 10**9, resolution=resolution) for limit in limits_)
    quota, other = abi.quota_from_terms(old), abi.quota_from_terms(new)
    pair = Pair(redis, old, quota, min(start // 1000, LIFE_US // 2))
    for step in steps:
        pair.step(*step)
        now = max(pair.times.now, 1)
        moved = pair.state.converted(other, now * 1000)
        free = moved.peek(now * 1000, 0).remaining
        for cost in (0, 1, free, free + 1, new.limit, new.limit + 1):
            reply = pair.store.ask(other, "pair", "peek", cost, now)
            assert reply[:6] == in_us(moved.peek(now * 1000, cost)), (now, cost)
    reply = pair.store.ask(other, "pair", "take", 1, now)
    assert reply[:6] == in_us(moved.take(now * 1000, 1))


BOOKINGS = st.lists(st.tuples(st.sampled_from(["book", "book", "take", "unbook", "refund"]),
                              st.integers(0, 6), st.integers(0, 3000), st.integers(0, 9)),
                    min_size=1, max_size=30)


@given(limit=st.integers(1, 10), interval=st.integers(1, 500), burst=st.integers(1, 5),
       acts=BOOKINGS)
def test_places_of_gcra_are_booked_the_same(redis, limit, interval, burst, acts):
    """T is whole microseconds: a place that begins within one has no name in whole ones."""
    terms = Terms("gcra", limit, limit * interval * 1000, burst=burst)
    pair, now, places = Pair(redis, terms, abi.quota_from_terms(terms), 0), 0, []
    for verb, cost, gap, which in acts:
        now += gap
        if verb == "book":
            answer = pair.ask(now, "book", cost, gap * 2, gap * 2000)
            if answer.outcome == "allow" and answer.retry_after:
                places.append((now + answer.retry_after // 1000, cost))
        elif verb == "unbook":
            if places:
                at, cost = places.pop(which % len(places))
                pair.ask(now, "unbook", cost, at, at * 1000)
        else:
            pair.ask(now, verb, cost, max(0, now - gap), max(0, now - gap) * 1000)


@given(limit=st.one_of(st.integers(1, 40), st.just(8000)),
       lease=st.sampled_from([1, 10**6, 30 * 10**6]),
       acts=st.lists(st.tuples(st.sampled_from([*["hold"] * 6, "release", "renew", "charge",
                                                "peek"]),
                               st.integers(0, 9), st.integers(0, 2**32 - 1)),
                     min_size=1, max_size=60))
def test_holders_come_and_go_the_same(redis, limit, lease, acts):
    """More than 16 holders of one instant push the next deadline on, by the same nanoseconds."""
    from test_concurrency import Places

    redis.delete("places")
    terms = Terms("concurrency", limit, 0, lease_ns=lease * 1000)
    quota, store = abi.quota_from_terms(terms), Store(redis)
    state, now, names = Places(quota), 0, []
    for act, gap, amount in acts:
        now += {7: 1, 8: lease // 3, 9: lease}.get(gap, 0)
        if act in ("release", "renew"):
            if not names:
                continue
            holder, name = names[amount % len(names)]
            reply = store.ask(quota, "places", act, name[1], now, name[0])
            if act == "release":
                done = state.release(now * 1000, holder) == abi.K.STINT_OK
                names.remove((holder, name))
            else:
                code, moved = state.renew(now * 1000, holder)
                done = code == abi.K.STINT_OK
                if done:
                    names.append((moved, reply.holders[0]))
            assert (reply.granted > 0) == done
            assert reply.remaining == state.peek(now * 1000, 0).remaining
            continue
        cost = [1, 1, 1, 2, limit, limit + 1, 0][amount % 7]
        if act == "hold":
            answer, holder = state.hold(now * 1000, cost)
            reply = store.ask(quota, "places", "take", cost, now)
            if holder:
                names.append((holder, reply.holders[0]))
                deadline, count = reply.holders[0]
                assert holder == deadline * 16000 + count
        else:
            answer = state.ask(now * 1000, act, cost)
            reply = store.ask(quota, "places", act, cost, now)
        assert reply[:6] == in_us(answer)
        value = redis.get("places")
        if value:
            held = decode(value, now, *words_of(quota))
            assert limit - held.used == state.peek(now * 1000, 0).remaining


CALENDAR = {"day": "d", "week": "w", "month": "mo", "year": "y"}


@pytest.mark.parametrize("align", CALENDAR)
def test_every_edge_of_eight_years_is_the_same(redis, align):
    """Two of them are leap years; asked just before each day that may be an edge, and at it."""
    quota, store = abi.parse(f"fixed_window 9/1{CALENDAR[align]} align=calendar"), Store(redis)
    for day in range(1, 8 * 365):
        for now in (day * 86400 * 10**6 - 1, day * 86400 * 10**6):
            if day % 7 < 5 and align == "day":
                continue  # they are all alike
            decided = abi.State(quota).take(now * 1000, 1)
            assert store.ask(quota, "calendar", "peek", 1, now)[:6] == in_us(decided), now


def test_a_quotient_that_a_double_rounds_up_to_a_unit_too_many(redis):
    """A few ticks are missing to a whole unit, out of more than a double can tell apart."""
    store, period, found = Store(redis), 365 * 86400 * 10**6, 0
    for limit in range(10**6, 10**6 + 40_000):
        interval = -(-period * 32000 // limit)
        missing = interval % 32000
        whole = limit * interval - missing
        if not 0 < missing < 60 or float(whole) / float(interval) != limit:
            continue
        found += 1
        quota = abi.parse(f"gcra {limit}/365d")
        state, key, now = abi.State(quota), f"double:{limit}", interval // 32000
        store.ask(quota, key, "take", 1, 0)
        state.take(0, 1)
        reply = store.ask(quota, key, "peek", 0, now)
        assert reply[:6] == in_us(state.peek(now * 1000, 0))
        assert reply.remaining == limit - 1
    assert found > 5
