# SPDX-License-Identifier: MIT
"""A window that INCREX began: every script goes on with it, as C decides."""

import random
import time

import pytest

import stint_abi as abi
from increx import increx
from store import Store, us

SPEC = "fixed_window 20/1h align=first_use"
SLACK_US = 2000  # two servers' milliseconds


@pytest.mark.parametrize("seed", range(8))
def test_all_verbs_go_on_with_what_increx_counted(redis, seed):
    store, quota, draw = Store(redis), abi.parse(SPEC), random.Random(seed)
    other = abi.parse("window 1000/1h")
    state, now = abi.State(quota), 10**15  # one instant is all times: the window does not end
    assert increx(redis, "key", 3, quota.limit, us(quota.period_ns) // 1000) == [3, 3]
    assert state.ask(now, "take", 3).outcome == "allow"
    began = redis.execute_command("PEXPIRETIME", "key")
    for _ in range(60):
        verb, cost = draw.choice(
            ("increx", "take", "take_upto", "peek", "charge", "refund", "list")), draw.randrange(7)
        want = state.ask(now, "take" if verb in ("increx", "list") else verb, cost, now)
        if verb == "increx":
            value, granted = increx(redis, "key", cost, quota.limit, 1)
            assert (granted, max(0, quota.limit - value)) == (want.granted, want.remaining)
        else:
            got = (store.ask_list([(quota, "key", cost), (other, "other", cost)], "take")
                   if verb == "list" else
                   store.ask(quota, "key", verb, cost, at=-1 if verb == "refund" else 0))
            assert got.outcome == want.outcome
            if verb != "list" or got.outcome == "deny":
                assert (got.granted, got.limit, got.remaining) == \
                    (want.granted, want.limit, want.remaining)
                left = (began + 1) * 1000 - got.now
                assert abs(got.reset_after - left) <= SLACK_US
            if got.outcome == "deny":
                assert abs(got.retry_after - left) <= SLACK_US
        assert redis.execute_command("PEXPIRETIME", "key") == began
        assert redis.get("key").isdigit()


def test_the_window_ends_with_the_key_and_not_before(redis):
    store, quota = Store(redis), abi.parse("fixed_window 2/500ms align=first_use")
    asked_ns = time.monotonic_ns()
    assert increx(redis, "key", 2, 2, 500) == [2, 2]
    denied = store.ask(quota, "key", "take", 1)
    assert denied.outcome == "deny" and 0 < denied.retry_after <= 501_000
    while store.ask(quota, "key", "peek", 1).outcome == "deny":
        assert time.monotonic_ns() - asked_ns < 5 * 10**9
    assert time.monotonic_ns() - asked_ns >= 500 * 10**6
    assert redis.exists("key") == 0
    assert store.ask(quota, "key", "take", 1).remaining == 1
    assert not redis.get("key").isdigit(), "the script began this one"


def test_a_refund_of_a_window_before_is_of_no_use(redis):
    store, quota = Store(redis), abi.parse(SPEC)
    increx(redis, "key", 5, 20, 3600_000)
    now = store.ask(quota, "key", "peek", 0).now
    assert store.ask(quota, "key", "refund", 2, at=now).granted == 2
    assert store.ask(quota, "key", "refund", 2, at=now - 3700 * 10**6).granted == 0
    assert redis.get("key") == b"3"


def test_digits_without_an_end_are_nobodys_state(redis):
    store, quota = Store(redis), abi.parse(SPEC)
    redis.set("key", 5)
    with pytest.raises(Exception, match="holds no state of fixed_window"):
        store.ask(quota, "key", "take", 1)
    with pytest.raises(Exception, match="holds no state of fixed_window"):
        store.ask_list([(quota, "key", 1), (quota, "else", 1)], "take")
    redis.set("key", 5, px=1000)
    aligned = abi.parse("fixed_window 20/1h")
    with pytest.raises(Exception):
        store.ask(aligned, "key", "take", 1)


def test_leases_make_a_state_of_their_own_of_it(redis):
    """Their key lives on past the window, so that its end has to be in the state."""
    store, quota = Store(redis, ["fixed_window", "lease_fixed_window"]), abi.parse(SPEC)
    increx(redis, "key", 5, 20, 3600_000)
    words = ["take", 2, "0", 0, 20, us(quota.period_ns), 1, 0, 0]
    reply = store.call("lease_fixed_window", ["key", "key:leases"], *words)
    assert reply[0] == 0 and reply[3] == 13
    assert abs(reply[5] - 3600 * 10**6) < 10**6
    assert len(redis.get("key")) == 13
    assert store.ask(quota, "key", "take", 1).remaining == 12
