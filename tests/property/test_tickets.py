# SPDX-License-Identifier: MIT
"""B7, B28: reserve, settle, cancel and book against a plain model; a ticket is good once."""

import pytest
from hypothesis import given, strategies as st

import stint_abi as abi
from oracle import Gcra, Terms
from stint_table import Table
from strategies import MINUTE, S

K = abi.K
OK, GONE = K.STINT_OK, K.STINT_E_GONE
SPECS = ["window 20/10s", "gcra 20/10s", "log 20/10s", "fixed_window 20/10s",
         "sliding_counter 20/10s", "buckets 20/10s count_slack=1"]
IN_DEBT = ("gcra", "fixed_window", "sliding_counter")


@pytest.mark.parametrize("spec", SPECS)
@given(acts=st.lists(st.tuples(st.sampled_from(["reserve", "reserve", "settle", "cancel", "late"]),
                               st.integers(0, 30), st.integers(0, 2**16)), max_size=40))
def test_tickets_settle_once_and_never_lift_above_capacity(spec, acts):
    """Within one instant nothing flows back, so the units in use are known exactly."""
    quota, used, tickets = abi.parse(spec), 0, []
    with Table(keys_wide=64, wide_size=512) as table:
        table.at(5 * S)
        for act, units, pick in acts:
            if act == "reserve":
                answer, ticket = table.reserve(MINUTE, (quota, b"k", units))
                takes_nothing = units == 0 and not spec.startswith(IN_DEBT)
                fits = takes_nothing or units <= 20 - used
                assert answer.outcome == ("never" if units > 20 else "allow" if fits else "deny")
                if fits:
                    used += units
                    tickets.append((ticket, units))
            elif tickets and act in ("settle", "cancel"):
                ticket, estimate = tickets.pop(pick % len(tickets))
                if act == "cancel":
                    assert table.cancel(ticket) == (OK, estimate)
                    used -= estimate
                else:
                    code, moved = table.settle(ticket, units)
                    assert code == OK
                    assert moved <= abs(units - estimate)
                    if units <= estimate:
                        assert moved == estimate - units, "what was not used comes back"
                        used -= moved
                    else:
                        used += moved
                assert table.settle(ticket, 0)[0] == GONE
                assert table.cancel(ticket)[0] == GONE
            used = max(used, 0)
            assert table.peek((quota, b"k", 0)).remaining == max(0, 20 - used)


def test_a_ticket_ends_at_its_deadline_and_stays_charged_as_estimated():
    quota = abi.parse("log 10/1h")
    with Table(keys_wide=64, wide_size=512) as table:
        _, ticket = table.at(0).reserve(S, (quota, b"k", 6))
        assert table.at(S).settle(ticket, 1)[0] == GONE
        assert table.cancel(ticket)[0] == GONE
        assert table.peek((quota, b"k", 0)).remaining == 4
        _, ticket = table.reserve(S, (quota, b"k", 4))
        assert table.at(2 * S - 1).settle(ticket, 1) == (OK, 3)


def test_a_reserve_over_a_list_gives_one_ticket():
    quota, other = abi.parse("window 10/10s"), abi.parse("gcra 5/10s")
    with Table() as table:
        answer, ticket = table.reserve(S, (quota, b"k", 4), (other, b"k", 4))
        assert answer.outcome == "allow"
        assert table.settle(ticket, 1)[0] == OK
        assert table.peek((quota, b"k", 0)).remaining == 9
        assert table.peek((other, b"k", 0)).remaining == 4
        refused, _ = table.reserve(S, (quota, b"k", 5), (other, b"k", 5))
        assert refused.outcome == "deny"
        assert table.peek((quota, b"k", 0)).remaining == 9


def test_a_full_ring_closes_the_oldest_and_counts_it():
    quota = abi.parse("log 1000/1h")
    with Table(tickets=4, keys_wide=64, wide_size=16384) as table:
        ring = table.info().tickets
        made = [table.reserve(MINUTE, (quota, b"k", 1))[1] for _ in range(ring + 3)]
        assert table.info().tickets_dropped >= 3
        assert table.cancel(made[0])[0] == GONE
        assert table.cancel(made[-1]) == (OK, 1)
        assert table.peek((quota, b"k", 0)).remaining == 1000 - ring - 2


@given(slot=st.integers(0, 2**64 - 1), nonce=st.integers(0, 2**64 - 1))
def test_a_ticket_that_never_was_is_gone(slot, nonce):
    with Table(tickets=4) as table:
        table.reserve(S, (abi.parse("window 10/10s"), b"k", 4))
        ticket = abi.S["stint_ticket"](slot, nonce)
        assert table.settle(ticket, 0)[0] == table.cancel(ticket)[0] == table.renew(ticket) == GONE


@given(asks=st.lists(st.tuples(st.integers(1, 6), st.integers(0, 20), st.integers(0, 3),
                               st.booleans()), max_size=30))
def test_booked_places_follow_the_law_of_gcra(asks):
    """Each place starts when the law says, within max_wait, and cancelling gives it back."""
    terms = Terms("gcra", 10, 10 * S, burst=6)
    quota, model = abi.quota_from_terms(terms), Gcra(terms)
    with Table() as table:
        now = 0
        for cost, wait, pause, cancels in asks:
            now += pause * S // 2
            before = model.copy()
            expected = model.book(now, cost, wait * S)
            answer, ticket = table.at(now).book(wait * S, (quota, b"k", cost))
            assert answer[:6] == tuple(expected)
            if answer.outcome == "allow" and cancels and expected.retry_after:
                assert table.cancel(ticket)[0] == OK
                model = before
                assert table.cancel(ticket)[0] == GONE
            assert table.peek((quota, b"k", 0)).reset_after == model.reset_after(now)


def test_a_place_that_has_started_is_not_cancelled():
    quota = abi.parse("gcra 1/10s")
    with Table() as table:
        assert table.at(0).take(quota, b"k").outcome == "allow"
        answer, ticket = table.book(MINUTE, (quota, b"k", 1))
        assert (answer.outcome, answer.retry_after) == ("allow", 10 * S)
        assert table.at(10 * S).cancel(ticket)[0] == GONE
        for spec in ("window 5/10s", "fixed_window 5/10s", "sliding_counter 5/10s"):
            assert table.book(MINUTE, (abi.parse(spec), b"k", 1))[0].outcome == "never"


def test_booked_places_of_a_log_never_pass_the_limit():
    """Two per 10 s: the third starts with the first's return, the fourth with the second's."""
    quota = abi.parse("log 2/10s")
    with Table(keys_wide=64, wide_size=512) as table:
        starts = []
        for now in (0, S, 2 * S, 3 * S):
            answer, _ = table.at(now).book(MINUTE, (quota, b"k", 1))
            assert answer.outcome == "allow"
            starts.append(now + answer.retry_after)
        assert starts == [0, S, 10 * S, 11 * S]


def test_concurrency_tickets_hold_and_free_places():
    quota = abi.parse("concurrency 3 lease=30s")
    with Table(keys_wide=64, wide_size=512) as table:
        _, first = table.at(0).reserve(0, (quota, b"k", 2))
        answer, second = table.reserve(0, (quota, b"k", 1))
        assert answer.outcome == "allow"
        denied, _ = table.reserve(0, (quota, b"k", 1))
        assert (denied.outcome, denied.retry_after) == ("deny", 30 * S)
        assert table.at(10 * S).renew(second) == OK
        assert table.cancel(first)[0] == OK
        assert table.cancel(first)[0] == GONE
        assert table.peek((quota, b"k", 0)).remaining == 2
        assert table.at(39 * S).peek((quota, b"k", 0)).remaining == 2
        assert table.at(41 * S).peek((quota, b"k", 0)).remaining == 3
        assert table.cancel(second)[0] == GONE and table.renew(second) == GONE
