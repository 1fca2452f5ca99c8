# SPDX-License-Identifier: MIT
"""Quotas over their whole range, and steps that aim at the instants where limiters go wrong."""

from hypothesis import assume, strategies as st

import stint_abi as abi
from oracle import Terms
from oracle.terms import ALIGN

US, MS, S = 10**3, 10**6, 10**9
MINUTE, HOUR, DAY, YEAR = 60 * S, 3600 * S, 86400 * S, 365 * 86400 * S
LIFE = 8 * YEAR

# Powers of two with a random fraction: each order of magnitude is as likely as any other.


@st.composite
def magnitude(draw, least, most):
    if draw(st.integers(0, 3)) == 0:
        return draw(st.integers(least, min(most, least + 30)))
    bits = draw(st.integers(least.bit_length(), most.bit_length()))
    value = (1 << bits >> 1) | draw(st.integers(0, max(0, (1 << bits >> 1) - 1)))
    return min(max(value, least), most)


def periods(least=US, most=10 * YEAR):
    named = [p for p in (MS, S, MINUTE, HOUR, DAY, 30 * DAY, YEAR) if least <= p <= most]
    return st.one_of(st.sampled_from(named), magnitude(least, most), st.just(least), st.just(most))


def limits(most=abi.U32_MAX):
    return st.one_of(magnitude(1, most), st.just(most),
                     st.sampled_from([1, 2, 15, 24, 25, 100, 500]))


@st.composite
def gcra_terms(draw, count_denied=False):
    period = draw(periods())
    fastest = max(1, min(abi.U32_MAX, 32 * period // 1001))
    burst = draw(st.one_of(st.just(0), limits(1000), limits()))
    return Terms("gcra", draw(limits(fastest)), period, burst=burst, count_denied=count_denied)


@st.composite
def window_terms(draw):
    resolution = draw(st.one_of(st.just(0), st.integers(10, 24), st.integers(25, 112)))
    is_tight = 0 < resolution <= 12 or resolution > 24  # large limits leave too few bits
    limit = draw(limits(1000) if is_tight and draw(st.booleans()) else limits())
    return Terms("window", limit, draw(periods()), resolution=resolution)


@st.composite
def buckets_terms(draw):
    limit = draw(limits())
    period = draw(periods())
    form = draw(st.sampled_from(["A", "B", "AB"]))
    slack = count = 0
    if "A" in form:
        parts = draw(st.integers(1, 100))
        slack = min(period, -(-period // parts) + draw(st.integers(0, 2)))
    if "B" in form:
        least = -(-limit // 100)
        count = draw(st.integers(least, min(limit, 20 * least)))
    return Terms("buckets", limit, period, time_slack_ns=slack, count_slack=count)


def log_terms():
    return st.builds(lambda limit, period: Terms("log", limit, period), limits(4000), periods())


@st.composite
def fixed_window_terms(draw, count_denied=False):
    align = draw(st.integers(0, 5))
    epoch = draw(st.one_of(st.just(0), st.integers(0, 60 * YEAR)))
    if align >= ALIGN["day"]:
        period = {2: DAY, 3: 7 * DAY, 4: 28 * DAY, 5: YEAR}[align]
        offset = draw(st.integers(-86399, 86399))
        return Terms("fixed_window", draw(limits()), period, align=align, utc_offset_s=offset,
                     epoch_ns=epoch, count_denied=count_denied)
    return Terms("fixed_window", draw(limits()), draw(periods()), align=align, epoch_ns=epoch,
                 count_denied=count_denied)


@st.composite
def sliding_counter_terms(draw, count_denied=False):
    return Terms("sliding_counter", draw(limits()), draw(periods()), count_denied=count_denied)


TERMS = {
    "gcra": gcra_terms, "window": window_terms, "buckets": buckets_terms, "log": log_terms,
    "fixed_window": fixed_window_terms, "sliding_counter": sliding_counter_terms,
}
STRICT = ("window", "buckets", "log")
INEXACT = ("gcra", "fixed_window", "sliding_counter")


@st.composite
def kept(draw, terms):
    """(terms, quota) that the library agrees to keep; refusals are another test's subject."""
    drawn = draw(terms)
    try:
        return drawn, abi.quota_from_terms(drawn)
    except abi.Refused:
        assume(False)


GAPS = ("none", "tick", "little", "grain", "edge", "period", "within", "some", "idle", "retry",
        "back", "far_back")
COSTS = ("one", "one", "few", "rest", "rest_and_one", "part", "all", "all_and_one", "zero", "most")


class Times:
    """Turns a drawn gap into the next instant, near the places where the law changes its mind."""

    def __init__(self, terms, start):
        self.period = terms.period_ns
        self.grain = max(1, self.period // (terms.resolution or 24))
        if terms.time_slack_ns:
            self.grain = terms.time_slack_ns
        if terms.algorithm == "gcra":
            self.grain = max(1, self.period // terms.limit)
        self.now = min(start, LIFE // 2)
        self.retry_at = self.now

    def heard(self, answer):
        if answer.outcome == "deny":
            self.retry_at = self.now + answer.retry_after

    def step(self, gap, amount):
        period, now, jitter = self.period, self.now, amount % 3 - 1
        share = amount / 2**32
        now = {
            "none": lambda: now,
            "tick": lambda: now + 1,
            "little": lambda: now + int(self.grain * share / 8),
            "grain": lambda: now + self.grain + jitter,
            "edge": lambda: (now // self.grain + 1) * self.grain + jitter,
            "period": lambda: now + period + jitter,
            "within": lambda: now + int(period * share),
            "some": lambda: now + int(3 * period * share),
            "idle": lambda: now + 50 * period + amount,
            "retry": lambda: max(now, self.retry_at + min(jitter, 0)),
            "back": lambda: now - int(self.grain * share),
            "far_back": lambda: now - int(2 * period * share),
        }[gap]()
        self.now = max(0, min(now, LIFE))
        return self.now


def cost_of(kind, amount, capacity, remaining):
    return min(abi.U32_MAX, {
        "one": 1, "few": 1 + amount % 5, "rest": max(1, remaining), "rest_and_one": remaining + 1,
        "part": 1 + int(capacity * (amount / 2**32)), "all": max(1, capacity),
        "all_and_one": capacity + 1, "zero": 0, "most": abi.U32_MAX}[kind])


AMOUNT = st.integers(0, 2**32 - 1)


def steps(verbs=("take",), backward=True, most=40):
    gaps = GAPS if backward else GAPS[:-2]
    step = st.tuples(st.sampled_from(gaps), AMOUNT, st.sampled_from(verbs), st.sampled_from(COSTS),
                     AMOUNT)
    return st.lists(step, min_size=1, max_size=most)


START = st.one_of(st.just(0), st.just(1), magnitude(1, LIFE // 2))
