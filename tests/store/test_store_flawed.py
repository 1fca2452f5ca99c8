# SPDX-License-Identifier: MIT
"""The flawed forms of the field, by instants in us, on the scripts; and the rolling window."""

import pytest
import redis as client_library

import stint_abi as abi
from oracle import UseLog
from store import Store

S, MINUTE, HOUR = 10**6, 60 * 10**6, 3600 * 10**6


@pytest.fixture
def store(redis):
    return Store(redis)


def granted(store, spec, *asked):
    """What a key of its own is granted by (now, cost [, verb [, at]]) in turn."""
    quota = abi.parse(spec)
    return [store.ask(quota, spec, *(verb or ["take"])[:1], cost, now, *verb[1:]).granted
            for now, cost, *verb in asked]


def test_gcra_admits_its_burst_and_no_more(store):
    assert granted(store, "gcra 100/1m burst=20", *[(0, 1)] * 21) == [1] * 20 + [0]
    assert granted(store, "gcra 100/1m burst=3", (0, 3), (HOUR, 3), (HOUR, 1)) == [3, 3, 0]


def test_gcra_does_not_truncate_its_interval(store):
    """A unit each microsecond of 1,000,003 a second: T is 0.999997 us, and of 999,997 above 1."""
    assert granted(store, "gcra 1000003/1s burst=1", *[(now, 1) for now in range(50)]) == [1] * 50
    fast = granted(store, "gcra 999997/1s burst=1", *[(now, 1) for now in range(50)])
    assert fast == [1, 0] * 25
    quota = abi.parse("gcra 30000000/1s burst=1000")
    total = sum(store.ask(quota, "fast", "take_upto", 1000, now * 20).granted
                for now in range(1000))
    assert total <= 1000 + 30 * 20 * 999


def test_gcra_gives_back_only_what_has_not_flowed_back(store):
    assert granted(store, "gcra 10/1s", (0, 10), (S, 10), (S, 10, "refund", 0), (S, 1)) \
        == [10, 10, 0, 0]


def test_buckets_come_back_after_their_last_use_and_a_full_one_at_once(store):
    assert granted(store, "buckets 100/10s time_slack=1s", (0, 1), (S - 1, 99), (10 * S, 100),
                   (11 * S - 1, 100)) == [1, 99, 0, 100]
    assert granted(store, "buckets 500/10m time_slack=1m count_slack=50", (0, 500),
                   (10 * MINUTE - 1, 1), (10 * MINUTE, 500)) == [500, 0, 500]


def test_sliding_counter_weighs_what_is_left_and_counts_what_it_admits(store):
    assert granted(store, "sliding_counter 100/1m", (MINUTE - 1, 100), (MINUTE, 1),
                   (MINUTE * 3 // 2, 50), (MINUTE * 3 // 2, 1)) == [100, 0, 50, 0]
    starved = granted(store, "sliding_counter 3/1s", *[(n * S // 4, 1) for n in range(400)])
    assert sum(starved) > 200


def test_log_is_a_multiset_that_gives_exact_entries_back(store):
    assert granted(store, "log 5/1s", *[(7, 1)] * 6, (S + 6, 1), (S + 7, 5)) == [1] * 5 + [0, 0, 5]
    assert granted(store, "log 2/100us", (0, 1), (50, 1), (60, 1, "refund", 0), (60, 1), (100, 1),
                   (150, 1)) == [1, 1, 1, 1, 0, 1]


def test_window_moves_a_bunch_to_its_latest_use(store):
    assert granted(store, "window 240/24ms", (0, 1), (23_000, 9), (23_500, 230), (25_000, 10)) \
        == [1, 9, 230, 0]


def test_a_slot_number_past_what_a_double_holds(store):
    """W of 1 us in the server's time: slots would be 4.3e16."""
    quota = abi.parse("window 24/1us resolution=24")
    now = 1_790_000_000_000_000
    for step in range(5):
        reply = store.ask(quota, "slots", "take", 12, now + 2 * step)
        assert (reply.outcome, reply.remaining, reply.reset_after) == ("allow", 12, 2)
        reply = store.ask(quota, "slots", "take", 13, now + 2 * step + 1)
        assert (reply.outcome, reply.retry_after) == ("deny", 1)


def test_the_last_count_of_a_microsecond_is_followed_by_the_next_one(store, redis):
    """16,000 holders of one deadline: rather than to come that far, the state is written."""
    quota = abi.parse("concurrency 4 lease=3s")
    issued = (4 * S).to_bytes(7, "big") + (15_999).to_bytes(2, "big")
    redis.set("places", b"\x71" + issued)
    assert store.ask(quota, "places", "take", 1, S).holders == [(4 * S + 1, 0)]
    assert store.ask(quota, "places", "take", 1, S).holders == [(4 * S + 1, 1)]
    assert store.ask(quota, "places", "release", 0, S, 4 * S + 1).granted == 1


@pytest.mark.parametrize("spec", [
    "window 20/10s", "log 20/10s", "gcra 20/10s", "fixed_window 20/10s", "sliding_counter 20/10s",
    "buckets 20/10s time_slack=1s"])
def test_best_effort_with_nothing_left_is_a_denial_that_says_0(store, spec):
    quota = abi.parse(spec)
    first, second = (store.ask(quota, "upto", "take_upto", 25, 1) for _ in range(2))
    assert (first.outcome, first.granted) == ("allow", 20)
    assert (second.outcome, second.granted) == ("deny", 0)
    assert second.retry_after > 0


# ---- The rolling window for redis-cli ----------------------------------------------------------


def test_a_rolling_window_is_the_cooldown_of_buckets(store):
    """granted, remaining, retry_after, reset_after."""
    roll = store.roll
    assert roll("ns", 100, 10, 10 * S, S, 0, 0) == [10, 90, 0, 10 * S]
    assert roll("ns", 100, 90, 10 * S, S, 0, S // 2) == [90, 0, 0, 10 * S]
    assert roll("ns", 100, 1, 10 * S, S, 0, S) == [0, 0, 19 * S // 2, 19 * S // 2]
    assert roll("ns", 100, 0, 10 * S, S, 0, S) == [0, 0, 0, 19 * S // 2]
    assert roll("ns", 100, 101, 10 * S, S, 0, 21 * S // 2) == [0, 100, -1, 0]


def test_a_sub_window_comes_back_after_its_last_use(store):
    """199 for 100, in the form that releases a sub-window as long after its creation."""
    uses = UseLog()
    for now, tokens in ((0, 1), (S - 1, 99), (10 * S, 100), (11 * S - 1, 100)):
        uses.add(now, store.roll("ns", 100, tokens, 10 * S, S, 1, now)[0])
    assert uses.most_in_any(10 * S) == 100


def test_best_effort_says_how_many_and_denies_with_0(store):
    assert store.roll("ns", 100, 70, 10 * S, S, 1, 0) == [70, 30, 0, 10 * S]
    assert store.roll("ns", 100, 70, 10 * S, S, 1, S) == [30, 0, 0, 10 * S]
    assert store.roll("ns", 100, 70, 10 * S, S, 1, 2 * S) == [0, 0, 8 * S, 9 * S]


def test_a_rolling_window_in_the_servers_time_has_a_ttl(store, redis):
    assert store.roll("ns", 5, 2, 10 * S, S, 0)[:3] == [2, 3, 0]
    assert 9_000 < redis.pttl("ns") <= 10_001


@pytest.mark.parametrize("best_effort", (0, 1))
def test_a_credit_of_0_is_a_denial_without_a_wait(store, redis, best_effort):
    assert store.roll("ns", 0, 1, 10 * S, S, best_effort, 0) == [0, 0, -1, 0]
    assert store.roll("ns", 0, 0, 10 * S, S, best_effort, 0) == [0, 0, 0, 0]
    assert redis.get("ns") is None
    assert store.roll("ns", 5, 5, 10 * S, S, best_effort, 0) == [5, 0, 0, 10 * S]
    assert store.roll("ns", 0, 1, 10 * S, S, best_effort, S) == [0, 0, -1, 9 * S]
    assert store.roll("ns", 5, 1, 10 * S, S, best_effort, 2 * S) == [0, 0, 8 * S, 8 * S]


def test_a_sub_window_that_is_too_small_is_refused_with_the_least_that_is_not(store):
    least = -(-10 * S // 509)
    sentence = (f"STINT bucket_window {least - 1} is too small for a window of {10 * S}: expected "
                f"at least {least} us, 1/509 of the window; a credit up to 510 may have any")
    with pytest.raises(client_library.ResponseError) as refused:
        store.roll("ns", 1000, 1, 10 * S, least - 1, 0, 0)
    assert str(refused.value) == sentence
    assert store.roll("ns", 1000, 1, 10 * S, least, 0, 0)[0] == 1
    assert store.roll("few", 510, 1, 10 * S, 1, 0, 0)[0] == 1


def test_a_rolling_window_refuses_what_it_cannot_read(store):
    for words in ((-1, 1, S, S, 0), (5, -1, S, S, 0), (5, 1, 0, S, 0), (5, 1, S, 2 * S, 0),
                  (5, 1, S, S, 2), (5, 1.5, S, S, 0), (5, "x", S, S, 0), (1000, 1, S, 1000, 0)):
        with pytest.raises(client_library.ResponseError, match="STINT"):
            store.roll("ns", *words)
