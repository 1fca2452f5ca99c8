# SPDX-License-Identifier: MIT
"""Walks a state through drawn steps and checks what must hold after each, by any algorithm."""

import stint_abi as abi
from strategies import LIFE, Times, cost_of

NEVER = abi.NEVER_NS


def check_take(state, now, cost, answer, before):
    """What every answer to take must satisfy, given the bytes before it."""
    assert 0 <= answer.remaining <= answer.limit
    if answer.outcome == "allow":
        assert answer.granted == cost and answer.retry_after == 0
    else:
        assert answer.granted == 0
        if not state.quota.count_denied:
            assert state.raw() == before, "a refused take changed the state"
    if cost == 0:
        assert state.raw() == before, "asking without taking changed the state"
    if answer.outcome == "never":
        assert answer.retry_after == NEVER
        assert cost > answer.limit or not state.quota.limit or past_the_end(state, cost)
    else:
        assert cost <= answer.limit
    if answer.outcome == "deny":
        assert answer.retry_after > 0
        check_wait(state, now, cost, answer.retry_after)
    check_remaining(state, now, answer)


def past_the_end(state, cost):
    """A cost that would fit only after the 8 years for which a quota's times must not overflow."""
    return state.copy().take(LIFE, cost).outcome != "allow"


def check_wait(state, now, cost, wait):
    """Denied until just before now + wait, and allowed then, if nobody else asks."""
    then = now + wait
    if then <= LIFE:
        assert state.copy().take(then, cost).outcome == "allow", "retry_after is too early"
    if then - 1 <= abi.NOW_MAX:
        assert state.copy().take(then - 1, cost).outcome != "allow", "retry_after is too late"


def check_remaining(state, now, answer):
    if answer.remaining:
        assert state.copy().take(now, answer.remaining).outcome == "allow"
    if answer.remaining < abi.U32_MAX:
        assert state.copy().take(now, answer.remaining + 1).outcome != "allow"


def check_is_new(state, now):
    """
    Decides as a state that was never used. One figure may differ: a window of the first use does
    not begin in the grain in which the one before it ended, and so may end a grain later.
    """
    fresh, grain = abi.State(state.quota), 0
    if state.quota.align == abi.K.STINT_ALIGN_FIRST_USE:
        grain = state.quota.derived.grain_ns
    limit = fresh.peek(now, 0).limit
    for cost in (1, limit, max(1, limit // 3)):
        old, new = state.copy().take(now, cost), fresh.copy().take(now, cost)
        assert old._replace(reset_after=0) == new._replace(reset_after=0)
        assert 0 <= old.reset_after - new.reset_after <= grain


def check_reset(state, now, answer):
    """At now + reset_after the state is as never used, and not 1 ns earlier."""
    then = now + answer.reset_after
    if answer.reset_after == 0:
        assert answer.remaining == answer.limit
        return
    assert state.dies_at() == then
    if then > abi.NOW_MAX:
        return
    check_is_new(state, then)
    assert state.peek(then - 1, 0).remaining < answer.limit, "reset_after is too late"


class Walk:
    """One key's life: the state, the same bytes as a cell, the model, and the exact log of uses."""

    def __init__(self, terms, quota, model=None, uses=None, start=0):
        self.terms, self.quota, self.model, self.uses = terms, quota, model, uses
        self.state = abi.State(quota)
        self.cell = abi.Cell(quota) if self.state.size in (8, 16) else None
        self.times = Times(terms, start)
        self.is_over = False  # charges have brought a window above the bound

    def step(self, gap, amount, verb, cost_kind, cost_amount):
        now = self.times.step(gap, amount)
        looked = self.state.peek(now, 0)
        cost = cost_of(cost_kind, cost_amount, looked.limit, looked.remaining)
        return self.ask(now, verb, cost)

    def ask(self, now, verb, cost):
        state, before = self.state, self.state.raw()
        peeked = state.peek(now, cost)
        assert state.raw() == before, "peek changed the state"
        answer = state.ask(now, verb, cost)
        if verb == "take":
            if not self.quota.count_denied:
                assert peeked == answer, "peek did not say what take then did"
            check_take(state, now, cost, answer, before)
        elif verb == "take_upto":
            self._check_upto(now, cost, answer, before)
        elif verb == "charge":
            assert answer.granted <= cost
        if verb != "peek":
            check_reset(state, now, answer)
        if self.cell:
            assert self.cell.ask(now, verb, cost) == answer, "a cell decides otherwise"
        if self.model:
            expected = self.model.ask(now, verb, cost)
            if expected.outcome == "deny" and now + expected.retry_after > LIFE:
                expected = expected._replace(outcome=None, retry_after=None)
            for name, want in expected._asdict().items():
                got = getattr(answer, name)
                assert want is None or got == want, f"{name}: {got}, the model says {want}"
        self.times.heard(answer)
        if self.uses is not None:
            self._judge(now, verb, cost, answer)
        return answer

    def _check_upto(self, now, cost, answer, before):
        assert answer.granted <= cost
        if answer.granted == 0 and cost:
            assert answer.outcome != "allow" and self.state.raw() == before
            if answer.outcome == "deny":
                check_wait(self.state, now, 1, answer.retry_after)
        elif answer.granted < cost:
            assert answer.outcome == "allow" and answer.remaining == 0
        check_remaining(self.state, now, answer)

    def _judge(self, now, verb, cost, answer):
        uses, terms = self.uses, self.terms
        if answer.outcome == "deny" and verb in ("take", "take_upto"):
            assert self.justified(now, cost if verb == "take" else 1), "denied without a cause"
        if answer.granted and verb != "peek":
            uses.add(now, cost if verb == "charge" else answer.granted)
        used = uses.used_in(now, terms.period_ns)
        if answer.granted and verb in ("take", "take_upto"):
            assert used <= self.bound(), "more than the bound"
        self.is_over |= used > self.bound()
        free = self.state.peek(now, 0).remaining
        assert free <= max(0, self.bound() - used), "what was charged is forgotten"

    def bound(self):
        return self.terms.limit

    def justified(self, now, cost):
        if self.terms.algorithm == "log":
            return self.uses.used_in(now, self.terms.period_ns) + cost > self.terms.limit
        return self.model.denial_is_justified(self.uses, now, cost)
