# SPDX-License-Identifier: MIT
"""A key in a table decides as a state of the caller's own; full tables stay strict and bounded."""

import ctypes as c
import random

import pytest
from hypothesis import given, settings, strategies as st

import stint_abi as abi
from oracle import UseLog
from stint_table import Table
from strategies import DAY, GAPS, LIFE, MINUTE, S, START, TERMS, Times, cost_of, kept, steps

K = abi.K
FEW = settings(max_examples=max(20, settings().max_examples // 3))
SPECS = {
    "window": "window 5/10s", "window8": "window 20/10s resolution=12",
    "window32": "window 5/10s resolution=100",
    "buckets": "buckets 6/10s time_slack=1s count_slack=2", "log": "log 4/10s",
    "gcra": "gcra 5/10s", "fixed_window": "fixed_window 5/10s",
    "sliding_counter": "sliding_counter 5/10s",
}


def quota_with(spec, **fields):
    quota = abi.parse(spec)
    for name, value in fields.items():
        setattr(quota, name, value)
    return abi.check(quota)


@pytest.mark.parametrize("algorithm", list(TERMS))
@FEW
@given(data=st.data(), start=START,
       walk=steps(("take", "take", "take_upto", "peek", "charge", "refund"), backward=False))
def test_a_key_in_a_table_decides_as_a_state_of_its_own(algorithm, data, start, walk):
    """B30: every entry point takes the same path; peek is what take then does."""
    terms, quota = data.draw(kept(TERMS[algorithm]()))
    state, times = abi.State(quota), Times(terms, start)
    with Table(keys_wide=64, wide_size=65536, epoch_ns=terms.epoch_ns) as table:
        table.at(times.now).take(quota, b"key", 1)
        state.take(times.now, 1)
        for gap, amount, verb, cost_kind, cost_amount in walk:
            now = times.step(gap, amount)
            looked = state.peek(now, 0)
            cost = cost_of(cost_kind, cost_amount, looked.limit, looked.remaining)
            item = (quota, b"key", cost)
            table.at(now)
            at = max(0, now - amount % 1000)
            if verb == "refund" and algorithm == "gcra" and looked.remaining == 0:
                # There a debt may be a booking; a table knows (docs/decisions/0012).
                if state.copy().ask(now, verb, cost, at).granted == 0:
                    continue
            if verb == "take":
                assert table.peek(item)[:6] == state.peek(now, cost)
                answer = table.take(*item) if amount % 2 else table.take_all(item)
            elif verb == "refund":
                answer = table.refund(at, item)
            else:
                answer = getattr(table, verb)(item)
            expected = state.ask(now, verb, cost, at if verb == "refund" else 0)
            assert answer[:6] == expected
            times.heard(expected)
            assert table.peek((quota, b"key", 1))[:6] == state.peek(now, 1)
            assert table.peek((quota, b"kez", 1)).remaining == looked.limit - 1


@FEW
@given(order=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 3), st.integers(0, S)),
                      min_size=1, max_size=60))
def test_a_batch_is_many_single_takes(order):
    quota = abi.parse("window 5/10s")
    with Table(hash_key=(1, 2)) as one, Table(hash_key=(1, 2)) as other:
        now = 0
        for begin in range(0, len(order), 9):
            wanted = [(quota, b"k%d" % key, cost) for key, cost, _ in order[begin:begin + 9]]
            now += order[begin][2]
            assert one.at(now).batch(*wanted) == [other.at(now).take(*item) for item in wanted]


@pytest.mark.parametrize("policy", ["INHERIT", "DENY"])
@pytest.mark.parametrize("spec", ["window", "window8", "buckets", "log"])
@pytest.mark.parametrize("seed", range(4))
def test_strict_stays_strict_in_a_tiny_table(policy, spec, seed):
    """More keys than places by far: under inherit and deny no key passes N in any window."""
    random_ = random.Random(f"{policy} {spec} {seed}")
    quota = quota_with(SPECS[spec], when_full=getattr(K, f"STINT_FULL_{policy}"))
    uses, now, granted = {}, 0, 0
    with Table(keys=8, keys16=8, keys_wide=4, wide_size=256, skew_max_ns=1 + seed * S) as table:
        for _ in range(4000):
            rarely = 11 * S if random_.random() < 0.02 else 0
            now += random_.choice([0, 1, S // 20, S // 3, S, rarely])
            key = b"%d" % random_.randrange(6 if random_.random() < 0.4 else 400)
            answer = table.at(now).take(quota, key, random_.choice([1, 1, 2, 3]))
            log = uses.setdefault(key, UseLog())
            log.add(now, answer.granted)
            granted += answer.granted
            assert log.used_in(now, quota.period_ns) <= quota.limit, key
        info = table.info()
    assert granted > 500
    assert info.full_denied if policy == "DENY" else info.evictions_inherit


def test_a_victims_count_is_not_enough_for_a_newcomer():
    """Keys that push each other out: inheriting the count alone lets one have nearly twice N."""
    quota = quota_with("log 5/10s", when_full=K.STINT_FULL_INHERIT)
    granted = {}
    with Table(keys=1, keys16=1, keys_wide=1, wide_size=256) as table:
        places = table.info().slots[2]
        keys = [b"%d" % n for n in range(4 * places)]
        for turn in range(40):
            now = turn * S
            for key in keys:
                uses = granted.setdefault(key, UseLog())
                uses.add(now, table.at(now).take(quota, key, 1 + turn % 4).granted)
                assert uses.used_in(now, 10 * S) <= 5
    assert most_for_one_key(inherit=list) > 5
    assert most_for_one_key(inherit=lambda held: [(max(time for time, _ in held), 5)]) <= 5


def most_for_one_key(inherit):
    """
    Two places, three keys, 5 units per 10. A is pushed out, and comes back in the place of a key
    that had used little: with that key's count A is nearly new, within its own first period. With
    that key's death, A is full for longer than its own units would have counted.
    """
    places, uses = {}, UseLog()
    for now, key, cost in [(0, "A", 4), (5, "B", 1), (6, "C", 1), (7, "A", 4)]:
        if key not in places and len(places) == 2:
            victim = min(places, key=lambda name: max(time for time, _ in places[name]))
            places[key] = inherit(places.pop(victim))
        held = places.setdefault(key, [])
        if sum(count for time, count in held if time + 10 > now) + cost <= 5:
            held.append((now, cost))
            if key == "A":
                uses.add(now, cost)
    return uses.most_in_any(10)


@pytest.mark.parametrize("spec, policy", [
    ("window 5/10s", "INHERIT"), ("window 5/10s", "EVICT"), ("gcra 5/10s", "EVICT"),
    ("gcra 5/10s", "INHERIT"), ("sliding_counter 5/10s", "EVICT"), ("fixed_window 5/10s", "EVICT"),
    ("log 5/10s", "INHERIT"), ("buckets 6/10s count_slack=2", "INHERIT"), ("gcra 5/10s", "DENY"),
    ("log 5/10s", "EVICT"), ("buckets 6/10s count_slack=2", "EVICT"),
])
def test_a_flood_of_new_keys_does_not_free_a_denied_key(spec, policy):
    """B15: whoever is being denied stays denied, however many strangers come."""
    quota = quota_with(spec, when_full=getattr(K, f"STINT_FULL_{policy}"))
    with Table(keys=64, keys16=64, keys_wide=64, wide_size=256) as table:
        table.at(0).take(quota, b"denied", quota.limit)
        assert table.take(quota, b"denied").outcome == "deny"
        for n in range(20_000):
            table.at(n * 10_000).take(quota, b"flood %d" % n)
            if n % 500 == 0:
                assert table.take(quota, b"denied").outcome == "deny"
        assert table.take(quota, b"denied").outcome == "deny"


@pytest.mark.parametrize("policy", ["INHERIT", "EVICT", "DENY", "ALLOW"])
@pytest.mark.parametrize("spec", list(SPECS.values()))
def test_a_full_table_does_what_its_policy_says_and_counts_it(policy, spec):
    """B16: four answers, each told apart by a counter; memory never grows (B14)."""
    quota = quota_with(spec, when_full=getattr(K, f"STINT_FULL_{policy}"))
    with Table(keys=16, keys16=16, keys_wide=16, wide_size=256) as table:
        before = table.info().bytes
        answers = [table.at(n).take(quota, b"%d" % n) for n in range(1000)]
        info = table.info()
        assert info.bytes == before
        assert sum(info.live) <= sum(info.slots)
        late = answers[-200:]
        if policy == "EVICT" and spec.startswith("concurrency"):
            policy = "INHERIT"  # who holds something holds it on, whether the table knows or not
        counters = {"INHERIT": info.evictions_inherit, "DENY": info.full_denied,
                    "ALLOW": info.full_allowed, "EVICT": info.evictions_evict}
        assert counters[policy] > 500
        if policy in ("EVICT", "ALLOW"):
            assert all(answer.outcome == "allow" for answer in answers)
        else:
            assert all(answer.outcome == "deny" for answer in late)
        if policy in ("DENY", "ALLOW"):
            assert not any(answer.stored for answer in late)


@pytest.mark.parametrize("spec", list(SPECS.values()))
def test_dead_states_are_reused_first_and_lose_nothing(spec):
    quota = quota_with(spec, when_full=K.STINT_FULL_DENY)
    with Table(keys=8, keys16=8, keys_wide=8, wide_size=256) as table:
        for n in range(500):
            assert table.at(n * 25 * S).take(quota, b"%d" % n).outcome == "allow"
        info = table.info()
        assert info.full_denied == 0 and info.evictions_evict == info.evictions_inherit == 0


@FEW
@given(stale=st.lists(st.integers(0, 5 * S), min_size=1, max_size=200), spec=st.sampled_from(
    ["window 5/10s", "gcra 5/10s", "log 5/10s", "fixed_window 5/10s", "sliding_counter 5/10s"]))
def test_stale_nows_mint_nothing(stale, spec):
    """B1: callers whose now was read long ago, in any order, get what one would, by the clock."""
    quota, uses, mark = abi.parse(spec), UseLog(), 0
    with Table(skew_max_ns=S) as table:
        for n, behind in enumerate(stale):
            now = max(0, n * S // 4 - behind)
            mark = max(mark, now)
            uses.add(now, table.at(now).take(quota, b"key").granted)
    bound = abi.lib.stint_max_in_any_window(abi.c.byref(quota))
    assert uses.most_in_any(quota.period_ns) <= bound
    rate = quota.limit * (mark // quota.period_ns + 2)
    assert sum(count for _, count in uses.uses) <= rate


def test_two_rules_with_equal_parameters_do_not_share_a_key():
    """B18, B23: the rule is part of the key; the parameters alone are not a rule."""
    first, second = (quota_with("window 5/10s", rule=rule) for rule in (1, 2))
    with Table() as table:
        assert table.take(first, b"key", 5).outcome == "allow"
        assert table.take(second, b"key", 5).outcome == "allow"
        assert table.take(first, b"key").outcome == "deny"


@pytest.mark.parametrize("spec, raised", [("window 5/10s", "window 8/10s"),
                                          ("log 5/10s", "log 8/10s")])
def test_a_rule_whose_limit_changes_keeps_what_was_used(spec, raised):
    """B23: the same rule with other parameters carries the state over, up and down."""
    old, new = quota_with(spec, rule=7), quota_with(raised, rule=7)
    with Table(keys_wide=16, wide_size=256) as table:
        table.at(0).take(old, b"key", 5)
        assert table.at(1).take(new, b"key", 4).outcome == "deny"
        assert table.take(new, b"key", 3).outcome == "allow"
        assert table.at(2).take(old, b"key", 1).outcome == "deny"


def test_a_gcra_rule_that_changes_stays_within_the_sum_of_the_bounds():
    """B23: 1000 units used under 1000/1000s, then 10/1000s with burst 2000. No TAT can keep the
    larger of the two bounds: docs/decisions/0010."""
    old, new = (quota_with(spec, rule=7)
                for spec in ("gcra 1000/1000s", "gcra 10/1000s burst=2000"))
    bound = sum(abi.lib.stint_max_in_any_window(abi.c.byref(quota)) for quota in (old, new))
    with Table() as table:
        granted = table.at(0).take(old, b"key", 1000).granted
        granted += table.take_upto((new, b"key", 2000)).granted
    assert granted <= bound


@pytest.mark.parametrize("spec", SPECS.values())
def test_verbs_on_a_key_without_a_state(spec):
    """Nothing to give back; a best effort or a charge above the limit still moves what there is."""
    quota = abi.parse(spec)
    limit = quota.limit
    with Table(keys_wide=16, wide_size=256) as table:
        for cost in (1, limit, limit + 1, abi.U32_MAX):
            answer = table.refund(0, (quota, b"refund", cost))
            assert (answer.outcome, answer.granted, answer.remaining, answer.reset_after) == (
                "allow", 0, limit, 0)
        assert table.take_upto((quota, b"upto", limit + 1)).granted == limit
        assert table.charge((quota, b"charge", limit + 1)).granted >= limit


def test_a_refund_by_a_caller_whose_clock_is_behind_gives_no_more_than_is_left():
    """What flowed back since the grant is taken off by the latest time seen, not the caller's."""
    quota = abi.parse("gcra 10/10s")
    with Table() as table:
        table.at(0).take(quota, b"key", 10)
        granted = table.at(10 * S).take(quota, b"key", 10).granted
        table.at(19 * S // 2).refund(0, (quota, b"key", 10))
        for tick in range(200):
            granted += table.at(10 * S + tick * S // 20).take_upto((quota, b"key", 10)).granted
    assert granted <= abi.lib.stint_max_in_any_window(abi.c.byref(quota))


def test_set_quota_carries_one_key():
    old, new = abi.parse("window 5/10s"), abi.parse("window 8/10s")
    with Table() as table:
        table.at(0).take(old, b"key", 5)
        assert table.set_quota(old, new, b"key") == K.STINT_OK
        assert table.take(new, b"key", 4).outcome == "deny"
        assert table.take(new, b"key", 3).outcome == "allow"


@pytest.mark.parametrize("spec", ["gcra 5/10s", "window 5/10s", "log 5/10s"])
def test_set_quota_to_a_limit_of_zero_carries_nothing(spec):
    """A quota that allows nothing counts nothing: the old state is forgotten, whatever it held."""
    old, none = abi.parse(spec), abi.parse(spec.replace(" 5/", " 0/"))
    with Table(keys_wide=16, wide_size=256) as table:
        table.at(0).take(old, b"key", 5)
        assert table.set_quota(old, none, b"key") == K.STINT_OK
        assert table.take(none, b"key", 1).outcome == "never"
        assert table.find(old, b"key") is None


def test_equal_parameters_are_interned_once_and_a_full_table_of_quotas_is_an_error():
    with Table(quotas=4) as table:
        for _ in range(10):
            table.take(abi.parse("window 5/10s"), b"key")
        assert table.info().quotas == 1
        answers = [table.take(abi.parse(f"window {n}/10s"), b"key") for n in range(6, 40)]
        info = table.info()
        assert info.quotas <= info.quotas_max
        assert any(not answer.stored for answer in answers), "no place for a quota must be told"
        assert table.take(abi.parse("window 5/10s"), b"key", 1).stored


def test_inspection_changes_nothing_and_finds_every_live_key():
    with Table() as table:
        quotas = [abi.parse(SPECS[name]) for name in ("window", "gcra", "window8")]
        for n in range(30):
            table.at(n).take(quotas[n % 3], b"%d" % n, 2)
        seen = table.each()
        assert len(seen) == 30 and seen == table.each()
        entry = table.find(quotas[0], b"0")
        assert entry is not None and entry.decision.remaining == 3
        assert table.find(quotas[0], b"none") is None
        assert table.at(DAY).each() == []


@pytest.mark.parametrize("spec", [*SPECS.values(), "concurrency 5 lease=10s"])
@FEW
@given(walk=st.lists(st.tuples(st.integers(0, 4 * S), st.integers(1, 6)), max_size=12))
def test_a_listed_key_stands_as_a_peek_says(spec, walk):
    """Nothing is taken in what is told: what cost 0 leaves, and what cost 1 would have to wait."""
    quota, now = abi.parse(spec), 0
    with Table(keys_wide=4, wide_size=4096) as table:
        for gap, cost in walk:
            now += gap
            table.at(now).take_upto((quota, b"key", cost))
            zero, one = (table.peek((quota, b"key", cost)) for cost in (0, 1))
            expected = abi.Decision(*zero[:6])._replace(
                outcome=one.outcome, retry_after=one.retry_after)
            entry = table.find(quota, b"key")
            assert abi.from_c(entry.decision) == expected and entry.decision.granted == 0
            assert entry.expires_at_ns - now == expected.reset_after > 0
            assert [seen[3] for seen in table.each()] == [expected]
        if walk:
            ended = now + abi.from_c(table.find(quota, b"key").decision).reset_after
            assert table.at(ended).find(quota, b"key") is None


def test_a_table_says_why_it_cannot_hold_a_quota():
    with Table(quotas=2, keys_wide=4, wide_size=64) as table:
        first = abi.parse("window 5/10s")
        unchecked = abi.Quota(limit=5, period_ns=10 * S)
        for quota, code, why in (
                (unchecked, K.STINT_E_MISMATCH, "not checked"),
                (quota_with("gcra 5/10s", initial=1, initial_set=True), K.STINT_E_MISMATCH,
                 "initial"),
                (abi.parse("log 50/10s"), K.STINT_E_MISMATCH, "at most 64")):
            refused, sentence = table.accepts(quota)
            assert refused == code and why in sentence
        assert table.accepts(first) == table.accepts(abi.parse("gcra 5/10s")) == (K.STINT_OK, None)
        refused, sentence = table.accepts(abi.parse("gcra 6/10s"))
        assert refused == K.STINT_E_FULL and "all 2 places" in sentence
        assert table.accepts(first) == (K.STINT_OK, None), "one it has is accepted for ever"
        assert table.take(first, b"key").stored


def test_a_table_that_is_only_read_accepts_no_quota(tmp_path):
    path, quota = str(tmp_path / "table").encode(), abi.parse("window 5/10s")
    with Table(path=path) as table:
        table.take(quota, b"key")
        with Table(path=path, read_only=True) as reader:
            code, sentence = reader.accepts(quota)
            assert code == K.STINT_E_MISMATCH and "read-only" in sentence


def test_a_table_knows_the_wall_clock_of_its_time_0(tmp_path):
    path = str(tmp_path / "table").encode()
    for epoch in (-5 * DAY, 7):  # the second: an existing file keeps its own
        with Table(path=path, epoch_ns=epoch) as table:
            assert abi.lib.stint_epoch_ns(table.handle) == table.info().epoch_ns == -5 * DAY


def test_the_clock_of_a_table_is_what_was_set():
    with Table() as table:
        assert abi.lib.stint_now(table.handle) == 0
        table.at(LIFE)
        assert abi.lib.stint_now(table.handle) == LIFE


def test_gaps_that_go_back_are_last_in_the_list():
    """The forward-only tests cut the list of gaps there."""
    assert [gap for gap in GAPS if "back" in gap] == list(GAPS[-2:])
    assert MINUTE == 60 * S


WIDE_SPECS = ["log 500/10m", "buckets 500/10m time_slack=1m count_slack=50",
              "buckets 500/10m time_slack=1m", "buckets 500/10m count_slack=1",
              "concurrency 500 lease=10m"]


@pytest.mark.parametrize("spec", WIDE_SPECS)
def test_a_table_without_a_setting_keeps_wide_states(spec):
    handle, error, quota = c.c_void_p(), abi.Error(), abi.parse(spec)
    assert abi.lib.stint_table_open(c.byref(handle), None, c.byref(error)) == K.STINT_OK
    try:
        assert abi.lib.stint_table_accepts(handle, c.byref(quota), c.byref(error)) == K.STINT_OK, \
            error.message
        now = abi.lib.stint_now(handle)
        outcomes = [abi.lib.stint_take(handle, c.byref(quota), b"k", 1, 1, now).outcome
                    for _ in range(501)]
        assert outcomes == [K.STINT_ALLOW] * 500 + [K.STINT_DENY]
    finally:
        abi.lib.stint_table_close(handle)


def test_what_is_wider_than_the_table_is_refused_with_what_to_do():
    with Table() as table:
        error, quota = abi.Error(), abi.parse("log 510/10m")
        assert abi.lib.stint_table_accepts(table.handle, c.byref(quota), c.byref(error)) < 0
        assert b"4104 bytes; the table was made for at most 4096" in error.message
        assert b"wide_size" in error.message


def test_room_for_wide_states_is_no_memory_until_it_is_used():
    """364 MB of places, of which narrow states touch none."""
    def resident():
        with open("/proc/self/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * 4096

    before = resident()
    with Table(keys_wide=65536, wide_size=4096) as table:
        narrow, wide = abi.parse("5/10s"), abi.parse("log 500/10m")
        for i in range(1000):
            table.take(narrow, b"%d" % i)
        assert resident() - before < 24 << 20
        for i in range(100):
            table.take(wide, b"%d" % i)
        assert resident() - before < 32 << 20
