# SPDX-License-Identifier: MIT
"""Lists through the one script and through the table: every decision, and every state, the same."""

from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

import stint_abi as abi
from stint_table import Table
from store import Store, in_us

S = 10**6
SPECS = ["window 5/10s", "window 20/10s resolution=12", "gcra 7/10s burst=4", "log 6/10s",
         "buckets 8/10s time_slack=1s count_slack=2", "fixed_window 5/10s", "sliding_counter 9/10s",
         "concurrency 4 lease=3s", "gcra 4/10s count_denied=true", "window 0/10s"]
QUOTAS = [abi.parse(spec) for spec in SPECS]
ITEM = st.tuples(st.integers(0, len(SPECS) - 1), st.integers(0, 2),
                 st.sampled_from([0, 1, 1, 1, 2, 3, 5, 9, 2**32 - 1]))
CALLS = st.lists(st.tuples(st.sampled_from(["take_all", "take_all", "take_upto", "peek", "charge"]),
                           st.lists(ITEM, min_size=1, max_size=6), st.integers(0, 3 * S)),
                 min_size=1, max_size=25)


def name_of(index, key):
    return f"{{list}}{index}:{key}"


def both(store, table, verb, items, now, granted_at=None):
    """What each decides about a list, at an instant in us."""
    wanted = [(QUOTAS[index], b"key %d" % key, cost) for index, key, cost in items]
    if granted_at is None:
        answer = getattr(table.at(now * 1000), verb)(*wanted)
    else:
        answer = table.at(now * 1000).refund(granted_at * 1000, *wanted)
    asked = [(QUOTAS[index], name_of(index, key), cost) for index, key, cost in items]
    reply = store.ask_list(asked, verb.removesuffix("_all"), now, granted_at or 0)
    return reply, answer


def check_same(store, table, now, touched):
    """Every state that was asked for tells the same figures."""
    for index, key in touched:
        quota = QUOTAS[index]
        seen = table.peek((quota, b"key %d" % key, 1))
        reply = store.ask(quota, name_of(index, key), "peek", 1, now)
        assert reply[:6] == in_us(seen), SPECS[index]


def alone(table, items, cost):
    """What each key's quota says to a cost that is told of its items, equal ones joined."""
    costs = {}
    for index, key, item_cost in items:
        costs.setdefault((index, key), []).append(item_cost)
    return {part: table.peek((QUOTAS[part[0]], b"key %d" % part[1], cost(part_costs)))
            for part, part_costs in costs.items()}


def check_each(table, verb, items, reply, answer, before):
    """Every item's figures: `before` is what its quota alone said to what was asked."""
    after = alone(table, items, lambda costs: 0)
    left = {part: decision.granted for part, decision in before.items()}
    assert len(reply.each) == len(items)
    charged = {}
    for (index, key, cost), figures in zip(items, reply.each):
        part = (index, key)
        outcome, granted, limit, remaining, retry, reset = figures
        was, stands = before[part], in_us(after[part])
        if verb == "charge":
            closed = limit == 0 and was.outcome == "never"
            assert outcome == ("never" if closed else "allow")
        else:
            assert outcome == was.outcome
        if verb == "peek":
            assert figures[2:] == in_us(was)[2:]
            assert granted == min(cost, left[part])
            left[part] -= granted
            continue
        assert (limit, remaining, reset) == (stands[2], stands[3], stands[5]), SPECS[index]
        if verb == "charge":
            charged[part] = charged.get(part, 0) + granted
            assert granted <= cost
        elif answer.outcome == "allow":
            assert (outcome, retry) == ("allow", 0)
            assert granted == (answer.granted if verb == "take_upto" else cost)
        else:
            assert granted == 0
            assert retry == in_us(was)[4] or (QUOTAS[index].count_denied and len(before) == 1)
    if charged:
        assert min(charged.values()) == answer.granted or answer.outcome == "never"


def question_of(verb, items):
    """What a verb asks a key whose items cost so much; take_upto grants all items the same."""
    if verb != "take_upto":
        return sum
    return len if all(cost for _, _, cost in items) else lambda costs: 0


@given(calls=CALLS)
def test_a_list_is_decided_as_by_the_table(redis, calls):
    redis.flushall()
    store, now, touched = Store(redis), 0, set()
    with Table(keys_wide=64, wide_size=512) as table:
        for verb, items, pause in calls:
            now += pause
            fits = sum(cost for _, _, cost in items) < 2**32
            table.at(now * 1000)
            before = alone(table, items, question_of(verb, items)) if fits else {}
            reply, answer = both(store, table, verb, items, now)
            assert reply[:6] == in_us(answer), (verb, items, now)
            if fits:
                assert reply.binding == answer.binding
                check_each(table, verb.removesuffix("_all"), items, reply, answer, before)
            touched |= {item[:2] for item in items}
            check_same(store, table, now, touched)


REFUNDED = [n for n, spec in enumerate(SPECS) if not spec.startswith("gcra")]


@given(moves=st.lists(st.tuples(st.lists(st.tuples(st.sampled_from(REFUNDED), st.integers(0, 1),
                                                   st.integers(1, 3)), min_size=1, max_size=4),
                                st.integers(0, 2 * S), st.booleans(), st.integers(0, 99)),
                      min_size=1, max_size=25))
def test_a_refunded_list_is_as_in_the_table(redis, moves):
    """gcra apart, of whose refunds the table knows more."""
    redis.flushall()
    store, now, touched, grants = Store(redis), 0, set(), []
    with Table(keys_wide=64, wide_size=512) as table:
        for items, pause, gives_back, which in moves:
            now += pause
            if gives_back and grants:
                granted_at, items = grants.pop(which % len(grants))
                reply, answer = both(store, table, "refund", items, now, granted_at)
            else:
                reply, answer = both(store, table, "take_all", items, now)
                if answer.outcome == "allow":
                    grants.append((now, items))
            assert reply[:6] == in_us(answer)
            touched |= {item[:2] for item in items}
            check_same(store, table, now, touched)


@pytest.mark.parametrize("index", range(len(SPECS) - 1))
def test_a_refused_list_writes_nothing(redis, index):
    store, full = Store(redis), abi.parse("window 3/10s")
    store.ask(QUOTAS[index], "{a}used", "take", 2, S)
    store.ask(full, "{a}full", "take", 3, S)
    before = {key: redis.get(key) for key in redis.keys()}
    for cost in (1, 2):
        reply = store.ask_list([(QUOTAS[index], "{a}used", cost), (QUOTAS[index], "{a}new", 1),
                                (full, "{a}full", 1)], "take", 2 * S)
        assert (reply.outcome, reply.binding) == ("deny", 2)
    assert {key: redis.get(key) for key in redis.keys()} == before
    # Not even the same bytes, which would be sent to replicas.
    redis.config_resetstat()
    store.ask_list([(QUOTAS[index], "{a}used", 1), (full, "{a}full", 1)], "take", 2 * S)
    assert "cmdstat_set" not in redis.info("commandstats")


def test_holders_of_a_list_are_told_in_the_order_of_its_keys(redis):
    store, places = Store(redis), abi.parse("concurrency 4 lease=3s")
    reply = store.ask_list([(places, "{a}1", 1), (QUOTAS[0], "{a}2", 1), (places, "{a}3", 2)],
                           "take", S)
    assert [count for _, count in reply.holders] == [0, 0]
    for key, units, holder in (("{a}1", 1, reply.holders[0]), ("{a}3", 2, reply.holders[1])):
        assert store.ask(places, key, "release", holder[1], S, holder[0]).granted == units


def test_shares_that_differ_by_less_than_a_double_can_tell(redis):
    """remaining * limit has 64 bits: the binding quota is found without rounding."""
    store, most = Store(redis), 2**32 - 1
    near = [abi.parse(f"gcra {most}/300s"), abi.parse(f"gcra {most - 1}/300s")]
    store.ask(near[0], "{a}0", "take", 2**31, S)
    store.ask(near[1], "{a}1", "take", 2**31, S)
    shares = [Fraction(most - 2**31, most), Fraction(most - 1 - 2**31, most - 1)]
    assert shares[1] < shares[0]
    items = [(near[0], "{a}0", 0), (near[1], "{a}1", 0)]
    assert store.ask_list(items, "peek", S).binding == 1
    assert store.ask_list(items[::-1], "peek", S).binding == 0
