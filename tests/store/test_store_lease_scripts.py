# SPDX-License-Identifier: MIT
"""Units are leased by many at once, in virtual time: no window holds more than the limit says."""

import random
import time

import pytest
from hypothesis import given, strategies as st

import stint_abi as abi
from oracle.terms import ALIGN
from leases import LEASED, Lease, Leases, Model, most_in_a_window

S = 10**6
SPECS = ["window 40/10s", "window 1000/10s", "window 7/1s resolution=10", "log 30/10s",
         "buckets 40/10s time_slack=1s", "buckets 40/10s count_slack=4",
         "buckets 60/10s time_slack=1s count_slack=5", "gcra 40/10s", "gcra 40/10s burst=9",
         "gcra 10/10s burst=50", "fixed_window 40/10s", "fixed_window 40/10s align=first_use",
         "sliding_counter 40/10s"]

STRICT = ("window", "buckets", "log")


def parse(spec):
    quota = abi.parse(spec)
    quota.epoch_ns = 0
    return quota


def bound_of(spec, quota):
    """docs/semantics.md, 4.1: the most in any window of the period."""
    law, n = spec.split()[0], quota.limit
    burst = quota.burst or n
    return {"gcra": burst + n - 1, "fixed_window": 2 * n, "sliding_counter": 2 * n - 1}.get(law, n)


class Holder:
    """A node: leases, uses what it has until just before the end, tells late, or never."""

    def __init__(self):
        self.lease, self.left = None, 0

    def is_over(self, now):
        return self.lease is None or self.lease.end <= now


def play(store, spec, seed, steps=400, term=None, dies=0.05):
    """Returns the uses as (time, units); every use of a lease is before its end."""
    quota, rng, now, uses = parse(spec), random.Random(seed), 10**9, []
    period = quota.period_ns // 1000
    term = term or rng.choice([period // 20, period // 3, period])
    key, nodes = f"{spec}:{seed}", [Holder() for _ in range(rng.randint(1, 9))]
    for _ in range(steps):
        now += rng.choice([0, 1, period // 1000, period // 97, period // 24,
                           rng.randrange(period // 5), period // 2])
        node = rng.choice(nodes)
        for one in nodes:  # whoever has something may use it at the last moment
            if one.lease and one.lease.end <= now and one.left and rng.random() < 0.5:
                uses.append((one.lease.end - 1, one.left))
            if one.is_over(now):
                one.lease, one.left = None, 0
        act = rng.random()
        if node.lease and act < 0.35:
            used = rng.randint(0, node.left)
            node.left -= used
            uses.append((now, used))
        elif act < 0.6:
            settled = [(node.lease, node.left)] if node.lease else []
            reply, node.lease = store.lease(quota, key, rng.choice([1, 5, quota.limit]), now,
                                            rng.choice([1, 1, 3]), term, settled)
            node.left = reply.granted if node.lease else 0
        elif act < 0.6 + dies:
            node.lease, node.left = None, 0  # killed: what it has used it has used
        elif act < 0.7 and node.lease:
            store.ask_leased(quota, key, "return", 0, now, settled=[(node.lease, node.left)])
            node.lease, node.left = None, 0
        elif act < 0.75 and spec.split()[0] in STRICT:  # the others may owe more than they have
            free = store.ask_leased(quota, key, "peek", 0, now).remaining
            reply = store.ask_leased(quota, key, "charge", min(free, rng.randint(1, 9)), now)
            uses.append((now, reply.granted))
        else:
            reply = store.ask_leased(quota, key, rng.choice(["take", "take_upto"]),
                                     rng.choice([1, 1, 2, 7]), now)
            uses.append((now, reply.granted))
            if reply.granted and rng.random() < 0.1:
                back = store.ask_leased(quota, key, "refund", reply.granted, now, now)
                uses[-1] = (now, reply.granted - back.granted)
    return quota, period, uses


@pytest.mark.parametrize("spec", SPECS)
def test_no_window_holds_more_than_the_bound(redis, spec):
    store, most = Leases(redis), 0
    bound = bound_of(spec, parse(spec))
    for seed in range(6):
        quota, period, uses = play(store, spec, seed)
        most = max(most, most_in_a_window(uses, period))
        if "fixed_window" in spec and "align" not in spec:
            for window in {at // period for at, _ in uses}:
                used = sum(units for at, units in uses if at // period == window)
                assert used <= quota.limit
    assert parse(spec).limit * 0.7 < most <= bound, "and it is no test if nobody comes near it"


def test_charged_in_advance_19_units_were_used_of_10(redis):
    """The form in circulation: with fast grants and no end, units of a window pile up."""
    store, quota = Leases(redis), parse("log 10/10s")
    reply, _ = store.lease(quota, "fast", 18, 10 * S)  # half of what is there at most
    assert reply.granted == 5
    lease = store.lease(quota, "strict", 18, 10 * S, 9, S)[1]
    assert lease == Lease(11 * S, 9)
    # Used at the last moment; the nine stand in the way until 21 s, and not a moment longer.
    taken = store.ask_leased(quota, "strict", "take_upto", 10, 20 * S)
    assert taken.granted == 1
    assert store.ask_leased(quota, "strict", "take", 9, 21 * S - 1).outcome == "deny"
    assert store.ask_leased(quota, "strict", "take", 9, 21 * S).outcome == "allow"


ACTS = st.lists(
    st.tuples(st.sampled_from(["take", "take_upto", "peek", "charge", "refund", "reset",
                               *["lease"] * 6, "return", "return"]),
              st.sampled_from([0, 0, 1, 999, 10**5, 10**6, 3 * 10**6, 11 * 10**6]),
              st.integers(0, 60), st.integers(0, 60), st.integers(0, 2**16)),
    min_size=1, max_size=40)


@pytest.mark.parametrize("spec", SPECS)
@given(acts=ACTS, start=st.integers(1, 10**12), term=st.sampled_from([0, 1, 5 * 10**5, 10**7]))
def test_it_decides_as_the_law_over_a_state_of_c(redis, spec, acts, start, term):
    redis.delete("key", "key!leases")
    store, quota, now, held = Leases(redis), parse(spec), start, []
    model = Model(quota)
    for verb, gap, cost, other, pick in acts:
        now += gap
        settled = []
        if held and verb in ("lease", "return", "reset") and pick % 2:
            lease = held.pop(pick % len(held))
            settled = [(lease, other % (lease.units + 1))]
        if verb == "lease":
            wanted, lent_for = model.lease(cost, max(1, other % 4), term, now, settled), term
            reply, lease = store.lease(quota, "key", cost, now, other % 4, term, settled)
            if lease:
                held.append(lease)
        else:
            at = max(0, now - other * 10**5) if verb == "refund" else 0
            wanted = model.answer(verb, cost, now, at, settled)
            reply = store.ask_leased(quota, "key", verb, cost, now, at, settled=settled)
        assert (reply.outcome, reply.granted, reply.remaining) == wanted, (verb, now)
        assert store.still_out("key") == model.leases
        if reply.outcome == "deny":
            check_wait(store, quota, now, verb, cost, other, reply)
        check_death(store, quota, now, reply, model)


def check_wait(store, quota, now, verb, cost, other, reply):
    """If nobody asks anything, it fits when the wait is over."""
    assert reply.retry_after > 0
    cost = {"take": cost, "peek": cost, "lease": max(1, other % 4)}.get(verb, 1)
    store.client.delete("other", "other!leases")
    store.client.copy("key", "other")
    store.client.copy("key!leases", "other!leases")
    later = store.ask_leased(quota, "other", "peek", cost, now + reply.retry_after)
    assert later.outcome == "allow"


def check_death(store, quota, now, reply, model):
    """The state is as never used once that time is over, leases included."""
    twin = Model(quota)
    twin.state, twin.leases = model.state.copy(), list(model.leases)
    twin.settle(max([now, *(lease.end for lease in twin.leases)]))
    dies = -(-twin.state.dies_at() // 1000)
    if dies > now and not quota.align == ALIGN["first_use"]:  # C rounds where its windows begin
        assert now + reply.reset_after >= dies


def test_no_more_than_64_leases_and_then_nothing_is_lent(redis):
    store, quota = Leases(redis), parse("window 10000/10s")
    for _ in range(LEASED):
        assert store.lease(quota, "key", 1, S, 1, S)[1].units == 1
    reply, lease = store.lease(quota, "key", 1, S, 1, S)
    assert (reply.outcome, reply.granted, lease) == ("allow", 0, None)
    assert store.ask_leased(quota, "key", "take", 1, S).outcome == "allow"
    assert len(redis.get("key!leases")) == 1 + 11 * LEASED
    assert store.lease(quota, "key", 1, 2 * S, 1, S)[1].units == 1


def test_a_lease_is_given_back_once(redis):
    """Told again, after its end, or with what was never leased, nothing becomes free."""
    store, quota = Leases(redis), parse("log 10/10s")
    lease = store.lease(quota, "key", 9, S, 9, S)[1]
    for settled, remaining in (((Lease(lease.end, 8), 8), 1), ((Lease(lease.end - 1, 9), 9), 1),
                               ((lease, 10), 1), ((lease, 4), 5), ((lease, 9), 5)):
        reply = store.ask_leased(quota, "key", "return", 0, S + 1, settled=[settled])
        assert reply.remaining == remaining
    lease = store.lease(quota, "late", 9, S, 9, S)[1]
    reply = store.ask_leased(quota, "late", "return", 0, lease.end, settled=[(lease, 9)])
    assert reply.remaining == 1


def test_a_return_that_arrives_twice_leaves_the_lease_of_another(redis):
    """Both are of three units, and lent at one instant: their ends differ."""
    store, quota = Leases(redis), parse("log 10/10s")
    first, second = (store.lease(quota, "key", 3, S, 3, S)[1] for _ in range(2))
    assert (first, second) == (Lease(2 * S, 3), Lease(2 * S + 1, 3))
    for _ in range(2):
        reply = store.ask_leased(quota, "key", "return", 0, S + 1, settled=[(first, 3)])
        assert reply.remaining == 7
        assert store.still_out("key") == [second]


@pytest.mark.parametrize("spec", [spec for spec in SPECS if "7/1s" not in spec])
def test_what_is_out_is_not_forgotten_while_the_store_keeps_time(redis, spec):
    """Both keys live at least until the charge at the end would be dead."""
    store, quota = Leases(redis), parse(spec)
    store.ask_leased(quota, "key", "take", 2)
    reply, lease = store.lease(quota, "key", 4, None, 4, 3 * S)
    model = abi.State(quota)
    model.ask(reply.now * 1000, "take", 2)
    model.ask(lease.end * 1000, "charge", lease.units)
    dies_ms = -(-model.dies_at() // 10**6)
    assert redis.execute_command("PEXPIRETIME", "key!leases") >= dies_ms
    if "gcra" in spec:
        store.ask_leased(quota, "key", "take", 1)
        assert redis.execute_command("PEXPIRETIME", "key") >= dies_ms
    store.ask_leased(quota, "key", "return", 0, settled=[(lease, 1)])
    assert not redis.exists("key!leases")
    assert redis.pttl("key") > 0


def test_an_ended_lease_is_charged_in_real_time(redis):
    store, quota = Leases(redis), parse("log 10/1h")
    lease = store.lease(quota, "key", 9, None, 9, 20_000)[1]
    time.sleep(0.03)
    reply = store.ask_leased(quota, "key", "peek", 0)
    assert reply.now > lease.end and reply.remaining == 1
    assert not redis.exists("key!leases")
    assert reply.now + reply.reset_after == lease.end + 3600 * S


def test_saturating_demand_is_served_its_share(redis):
    """Everything is used at once, nothing is told: each unit is away for a period and a term."""
    store = Leases(redis)
    for spec, slack in (("log 400/10s", 0), ("window 480/10s", 1 / 24), ("gcra 400/10s", 0)):
        quota, term, used, now = parse(spec), S // 2, 0, 10**9
        begin, ends, waits = now + 20 * S, now + 120 * S, {}
        while now < ends:
            reply, lease = store.lease(quota, spec, 40, now, 1, term)
            if lease and now >= begin:
                used += lease.units
            now += 5000
        share = used / (quota.limit * 10)
        assert share >= (10 / (10 + 0.5 + slack * 10)) * 0.98, spec


@pytest.mark.parametrize("words, sentence", [
    (("lease", 1, "0", 1, 10, 10**6, 0, 0, 0, 5, 1), "expected two keys"),
    (("take", 1, "0", 0, 10, 10**6, 0, 0, 0, 0, 1, 1, 1), "expected two keys"),
    (("book", 1, "0", 0, 10, 10**6), "expected two keys"),
    (("take", 1, "0", 0, 10, 10**6, 9), "resolution"),
])
def test_what_is_not_understood_writes_nothing(redis, words, sentence):
    store = Leases(redis)
    with pytest.raises(Exception, match=sentence):
        store.call("lease_window", ["key", "key!leases"], *words)
    with pytest.raises(Exception, match="cannot be counted"):
        store.call("lease_gcra", ["key", "key!leases"], "take", 1, "0", 0, 5, 10**6, 0, 1)
    redis.set("key!leases", "no leases")
    with pytest.raises(Exception, match="holds no leases"):
        store.call("lease_window", ["key", "key!leases"], "take", 1, "0", 0, 5, 10**6)
    assert redis.keys() == [b"key!leases"]
