# SPDX-License-Identifier: MIT
"""B8: all or nothing over several quotas and keys; after a refusal every state is what it was."""

import pytest
from hypothesis import given, settings, strategies as st

import stint_abi as abi
from stint_table import Table
from strategies import S

K = abi.K
NEVER = abi.NEVER_NS
SPECS = ["window 5/10s", "window 20/10s resolution=12", "gcra 7/10s burst=4", "log 6/10s",
         "buckets 8/10s time_slack=1s count_slack=2", "fixed_window 5/10s", "sliding_counter 9/10s"]
ITEM = st.tuples(st.integers(0, len(SPECS) - 1), st.integers(0, 2),
                 st.sampled_from([0, 1, 1, 2, 3, 5, 9]))
LISTS = st.lists(st.tuples(st.sampled_from(["take_all", "take_all", "take_upto", "peek", "charge"]),
                           st.lists(ITEM, min_size=1, max_size=6), st.integers(0, 3 * S)),
                 min_size=1, max_size=25)


class Mirror:
    """The same states outside the table, and the law of lists in a few plain lines."""

    def __init__(self):
        self.quotas = [abi.parse(spec) for spec in SPECS]
        self.states = {}

    def state(self, index, key):
        if (index, key) not in self.states:
            self.states[index, key] = abi.State(self.quotas[index])
        return self.states[index, key]

    def merged(self, items):
        """Duplicates of one (quota, key) add up."""
        wanted = {}
        for index, key, cost in items:
            wanted[index, key] = wanted.get((index, key), 0) + cost
        return wanted

    def take_all(self, now, items):
        wanted = self.merged(items)
        answers = [self.state(*place).peek(now, cost) for place, cost in wanted.items()]
        outcomes = [answer.outcome for answer in answers]
        outcome = next(name for name in ("never", "deny", "allow") if name in outcomes)
        if outcome == "allow":
            for place, cost in wanted.items():
                self.state(*place).take(now, cost)
        waits = [answer.retry_after for answer in answers]
        return outcome, NEVER if outcome == "never" else max(waits), answers

    def take_upto(self, now, items):
        """Every quota grants the same number: the least that any allows."""
        places = {(index, key): cost for index, key, cost in items}
        granted = min(min(cost, self.state(*place).peek(now, 0).remaining)
                      for place, cost in places.items())
        for place in places:
            self.state(*place).ask(now, "take_upto", granted)
        return granted


@settings(max_examples=2 * settings().max_examples)
@given(lists=LISTS)
def test_a_list_is_charged_whole_or_not_at_all(lists):
    """NEVER over DENY over ALLOW; the longest wait; after any call every state is the mirror's."""
    mirror = Mirror()
    with Table(keys_wide=64, wide_size=512) as table:
        now, touched = 0, set()
        for verb, items, pause in lists:
            now += pause
            if verb in ("take_upto", "charge"):  # one item a state: what adds up is told above
                merged = {(index, key): cost for index, key, cost in items}
                items = [(index, key, max(1, cost)) for (index, key), cost in merged.items()]
            wanted = [(mirror.quotas[index], b"key %d" % key, cost) for index, key, cost in items]
            answer = getattr(table.at(now), verb)(*wanted)
            if verb == "take_all":
                check_take_all(mirror, now, items, answer)
            elif verb == "take_upto":
                granted = mirror.take_upto(now, items)
                assert answer.granted == granted
                assert answer.outcome == ("allow" if granted else "deny")
            elif verb == "charge":
                moved = [mirror.state(i, k).ask(now, "charge", cost).granted
                         for i, k, cost in items]
                assert answer.granted == min(moved)
            touched |= {item[:2] for item in items}
            for index, key in touched:
                seen = table.peek((mirror.quotas[index], b"key %d" % key, 1))
                assert seen[:6] == mirror.state(index, key).peek(now, 1), (SPECS[index], key)


def check_take_all(mirror, now, items, answer):
    outcome, wait, answers = mirror.take_all(now, items)
    assert answer.outcome == outcome
    assert answer.retry_after == wait
    if len(items) == 1:
        assert answer[:6] == answers[0]
        return
    # The binding quota has the least left in proportion: among those that deny, if any does.
    places = list(mirror.merged(items))
    assert answer.binding < len(items)
    bound = answers[places.index(items[answer.binding][:2])]
    assert answer.limit == bound.limit
    assert outcome == "allow" or bound.outcome == outcome
    if outcome == "allow":
        shares = [a.remaining / a.limit for a in answers]
        assert bound.remaining / bound.limit == min(shares)
        assert (answer.remaining, answer.reset_after) == (bound.remaining, bound.reset_after)


def test_best_effort_over_a_list_grants_all_that_every_quota_has():
    """Five are free under both, so five are granted; and what is granted is charged."""
    quota, other = abi.parse("window 5/10s"), abi.parse("gcra 8/10s")
    with Table() as table:
        answer = table.take_upto((quota, b"a", 9), (other, b"a", 9))
        assert (answer.outcome, answer.granted) == ("allow", 5)
        assert table.peek((quota, b"a", 0)).remaining == 0
        assert table.peek((other, b"a", 0)).remaining == 3
        for costs in ((2, 0), (0, 2)):
            answer = table.take_upto((quota, b"b", costs[0]), (other, b"b", costs[1]))
            assert answer.granted == 5 - table.peek((quota, b"b", 0)).remaining
            assert answer.granted == 8 - table.peek((other, b"b", 0)).remaining


def test_duplicates_add_up():
    quota = abi.parse("window 5/10s")
    with Table() as table:
        assert table.take_all((quota, b"a", 3), (quota, b"a", 3)).outcome == "never"
        assert table.take_all(
            (quota, b"a", 2), (quota, b"b", 1), (quota, b"a", 2)).outcome == "allow"
        assert table.peek((quota, b"a", 0)).remaining == 1
        assert table.take_all((quota, b"a", 1), (quota, b"a", 1)).outcome == "deny"
        assert table.peek((quota, b"a", 0)).remaining == 1


def test_a_list_that_is_empty_or_too_long_is_never():
    quota = abi.parse("window 500/10s")
    with Table() as table:
        assert table.take_all().outcome == "never"
        most = [(quota, b"%d" % n, 1) for n in range(K.STINT_ITEMS_MAX)]
        assert table.take_all(*most).outcome == "allow"
        assert table.take_all(*most, (quota, b"one more", 1)).outcome == "never"
        assert table.peek((quota, b"0", 0)).remaining == 499


@pytest.mark.parametrize("spec", SPECS)
def test_a_refused_list_leaves_the_table_bit_identical(spec):
    """What each() sees, keys, deaths and figures, is the same before and after a refusal."""
    quota, other = abi.parse(spec), abi.parse("window 3/10s")
    with Table(keys_wide=64, wide_size=512) as table:
        table.at(S).take(quota, b"a", 2)
        table.take(other, b"full", 3)
        before = table.at(2 * S).each()
        for cost in (1, 2):
            answer = table.take_all((quota, b"a", cost), (quota, b"new", 1), (other, b"full", 1))
            assert (answer.outcome, answer.binding) == ("deny", 2)
            assert [entry for entry in table.each() if entry[2] > 0] == before


@given(costs=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, S)),
                      max_size=40))
def test_units_are_conserved_over_a_pair(costs):
    """Two quotas on one key charged together: both have used the same, whichever refused."""
    minute, second = abi.parse("log 30/1h"), abi.parse("window 5/10s")
    with Table(keys_wide=64, wide_size=512) as table:
        now, granted = 0, 0
        for cost, more, pause in costs:
            now += pause
            if table.at(now).take_all((second, b"k", cost + more), (minute, b"k", cost + more)
                                      ).outcome == "allow":
                granted += cost + more
            assert table.peek((minute, b"k", 0)).remaining == 30 - granted
