# SPDX-License-Identifier: MIT
"""concurrency: at most N held at once, each until its deadline; a crashed holder frees a place."""

from hypothesis import given, strategies as st

import stint_abi as abi
from oracle import Concurrency, Terms
from strategies import S, START

TERMS = st.builds(lambda n, lease: Terms("concurrency", n, 0, lease_ns=lease),
                  st.one_of(st.integers(1, 40), st.sampled_from([1000, 8000])),
                  st.sampled_from([1000, S, 30 * S, 86400 * S]))
ACTS = st.lists(st.tuples(st.sampled_from(["hold", "hold", "hold", "release", "renew", "late"]),
                          st.integers(0, 2**32 - 1), st.integers(0, 3)), min_size=1, max_size=15)


class Places(abi.State):
    def hold(self, now, cost):
        holder = abi.c.c_uint64(0)
        answer = abi.lib.stint_state_hold(self._quota_ref, self.address, now, cost,
                                          abi.c.byref(holder))
        return abi.from_c(answer), holder.value

    def release(self, now, holder):
        return abi.lib.stint_state_release(self._quota_ref, self.address, now, holder)

    def renew(self, now, holder):
        moved = abi.c.c_uint64(holder)
        code = abi.lib.stint_state_renew(self._quota_ref, self.address, now, abi.c.byref(moved))
        return code, moved.value


@given(terms=TERMS, start=START, acts=ACTS)
def test_concurrency_is_its_law(terms, start, acts):
    """Fewer than 16 holds, so that no deadline has to give way to keep the holders' names apart."""
    quota = abi.quota_from_terms(terms)
    state, model, now = Places(quota), Concurrency(terms), start
    ended, given_back = [], False
    for act, amount, size in acts:
        now += {0: 0, 1: 1, 2: terms.lease_ns // 7, 3: terms.lease_ns}[amount % 4]
        names = list(model.holders)
        if act == "hold":
            cost = [1, 1 + amount % 3, terms.limit, terms.limit + 1][size]
            before = state.raw()
            answer, holder = state.hold(now, cost)
            assert holder not in names or answer.outcome != "allow", "two holders by one name"
            expected = model.hold(now, cost, holder)
            if given_back:  # the state may remember names, so as not to issue one twice
                assert expected.reset_after <= answer.reset_after <= terms.lease_ns
                expected = expected._replace(reset_after=answer.reset_after)
            assert answer == tuple(expected)
            if answer.outcome != "allow":
                assert state.raw() == before
        elif names and act == "release":
            holder = names[amount % len(names)]
            released = state.release(now, holder) == abi.K.STINT_OK
            assert released == model.release(now, holder)
            ended.append(holder)
            given_back = True
        elif names and act == "renew":
            holder = names[amount % len(names)]
            code, renamed = state.renew(now, holder)
            given_back = True
            assert (code == abi.K.STINT_OK) == model.renew(now, holder, renamed)
        elif act == "late":
            for holder in ended[-3:]:
                if holder not in model.holders:
                    assert state.release(now, holder) == abi.K.STINT_E_GONE
                    assert state.renew(now, holder)[0] == abi.K.STINT_E_GONE
        assert model.held(now) <= terms.limit
        assert state.hold(now, 0)[0].remaining == terms.limit - model.held(now)


@given(terms=TERMS, start=START)
def test_a_lease_ends_exactly_at_its_deadline(terms, start):
    """The holder died: its place is free at start + lease, not a nanosecond earlier or later."""
    state = Places(abi.quota_from_terms(terms))
    first, holder = state.hold(start, terms.limit)
    assert first.outcome == "allow"
    denied, _ = state.hold(start, 1)
    assert (denied.outcome, denied.retry_after) == ("deny", terms.lease_ns)
    assert state.copy().hold(start + terms.lease_ns - 1, 1)[0].outcome == "deny"
    assert state.copy().hold(start + terms.lease_ns, terms.limit)[0].outcome == "allow"
    assert state.dies_at() == start + terms.lease_ns
    assert state.release(start + terms.lease_ns, holder) == abi.K.STINT_E_GONE


@given(places=st.integers(1, 60),
       acts=st.lists(st.integers(0, 2**32 - 1), min_size=100, max_size=200))
def test_never_more_than_n_are_held_however_many_ask_at_once(places, acts):
    """Hundreds of holds in the same few nanoseconds: no name twice, no place twice."""
    state = Places(abi.quota_from_terms(Terms("concurrency", places, 0, lease_ns=S)))
    held, seen, now = [], set(), 0
    for amount in acts:
        now += amount % 17 == 0
        if amount % 3 == 0 and held:
            assert state.release(now, held.pop(amount % len(held))) == abi.K.STINT_OK
        else:
            answer, holder = state.hold(now, 1)
            assert (answer.outcome == "allow") == (len(held) < places)
            if answer.outcome == "allow":
                assert holder not in seen
                seen.add(holder)
                held.append(holder)
        assert state.hold(now, 0)[0].remaining == places - len(held)
