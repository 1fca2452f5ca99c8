# SPDX-License-Identifier: MIT
"""Asks with an id are charged once, however often they come, and can be taken back as a whole."""

import time

import pytest
import redis as client_library
from hypothesis import given, strategies as st

import stint_abi as abi
from store import SCRIPTS, Store
from test_store_words import RELEASE, SPECS, Words, words  # noqa: F401  (a fixture)

K = abi.K
S = 10**6
UNDO = 14
BODY, OTHER = "0123456789ABCDEF", "0123456789ABCDEE"
ALL = [*SPECS[:-1], "concurrency 4 lease=3s"]
QUOTAS = [abi.parse(spec) for spec in ALL]


def named(text, body=BODY, lifetime_ms=60_000):
    return f"{{a}}id:{text}", body, lifetime_ms


def values(redis):
    return {key: redis.get(key) for key in redis.keys()}


@pytest.mark.parametrize("spec", ALL)
def test_a_retry_is_answered_as_the_first_time_and_charges_nothing(redis, spec):
    store, quota = Store(redis), abi.parse(spec)
    first = store.ask(quota, "{a}k", "take", 2, S, id=named("x"))
    assert (first.outcome, first.replayed) == ("allow", False)
    before = values(redis)
    for later in (S, 2 * S, 3600 * S):
        again = store.ask(quota, "{a}k", "take", 2, later, id=named("x"))
        assert again == first._replace(replayed=True)
    assert values(redis) == before
    # Another id is another request.
    assert not store.ask(quota, "{a}k", "take", 1, S, id=named("y")).replayed
    assert values(redis) != before


def test_a_retry_of_a_list_is_answered_with_all_its_figures(redis):
    store = Store(redis)
    items = [(quota, f"{{a}}{n}", 1) for n, quota in enumerate(QUOTAS)]
    first = store.ask_list(items, "take", S, id=named("x"))
    assert first.outcome == "allow" and len(first.each) == len(ALL) and len(first.holders) == 1
    before = values(redis)
    assert store.ask_list(items, "take", 9 * S, id=named("x")) == first._replace(replayed=True)
    assert values(redis) == before


STEPS = st.lists(st.tuples(st.sampled_from(["take", "take_upto", "charge", "peek", "refund"]),
                           st.lists(st.tuples(st.integers(0, len(ALL) - 1), st.integers(0, 3)),
                                    min_size=1, max_size=3),
                           st.integers(0, 2 * S), st.booleans()), min_size=1, max_size=15)


@given(steps=STEPS)
def test_it_is_decided_as_without_an_id_and_retries_leave_no_trace(redis, steps):
    redis.flushall()
    store, now = Store(redis), 0
    for number, (verb, items, pause, single) in enumerate(steps):
        now += pause
        if single:
            items = items[:1]
        pair = []
        for side in ("plain", "once"):
            asked = [(QUOTAS[index], f"{{a}}{side}{index}", cost) for index, cost in items]
            for _ in range(1 if side == "plain" else 2):
                id = None if side == "plain" else named(str(number))
                if single:
                    reply = store.ask(*asked[0][:2], verb, asked[0][2], now, id=id)
                else:
                    reply = store.ask_list(asked, verb, now, id=id)
                pair.append(reply)
        assert pair[0] == pair[1]
        kept = pair[0].outcome == "allow" and verb != "peek"
        assert pair[2].replayed == kept
        if verb == "peek" or kept:
            assert pair[2]._replace(replayed=False) == pair[0]
    for index in range(len(ALL)):
        assert redis.get(f"{{a}}plain{index}") == redis.get(f"{{a}}once{index}")


def test_another_body_is_a_conflict_that_c_knows(words, redis):  # noqa: F811
    store = Store(redis)
    store.ask(QUOTAS[0], "{a}k", "take", 1, id=named("x"))
    before = values(redis)
    for call in (lambda: store.ask(QUOTAS[0], "{a}k", "take", 2, id=named("x", OTHER)),
                 lambda: store.ask_list([(QUOTAS[0], "{a}k", 2)], "take", id=named("x", OTHER)),
                 lambda: store.ask(QUOTAS[0], "{a}k", "undo", 2, id=named("x", OTHER))):
        with pytest.raises(client_library.ResponseError) as refused:
            call()
        assert words.say(f"conflict {refused.value}") == "1"
    assert values(redis) == before
    with pytest.raises(client_library.ResponseError) as refused:
        store.call("window_once", ["{a}k", "{a}id"], "take", 1, 0, 0, 5, S, "short", 1)
    assert words.say(f"conflict {refused.value}") == "0"


def test_what_was_not_allowed_is_asked_anew(redis):
    store, quota = Store(redis), abi.parse("window 5/10s")
    store.ask(quota, "{a}k", "take", 5, S)
    assert store.ask(quota, "{a}k", "take", 2, S, id=named("x")).outcome == "deny"
    assert store.ask(quota, "{a}k", "take", 9, S, id=named("x")).outcome == "never"
    assert store.ask(quota, "{a}k", "peek", 0, S, id=named("x")).outcome == "allow"
    assert redis.get("{a}id:x") is None
    later = store.ask(quota, "{a}k", "take", 2, 20 * S, id=named("x"))
    assert (later.outcome, later.replayed) == ("allow", False)


def test_an_id_is_forgotten_after_its_lifetime(redis):
    store = Store(redis)
    store.ask(QUOTAS[0], "{a}k", "take", 1, id=named("long", lifetime_ms=600_000))
    assert 540_000 < redis.pttl("{a}id:long") <= 600_000
    store.ask(QUOTAS[0], "{a}k", "take", 1, id=named("x", lifetime_ms=30))
    ends = time.monotonic() + 20
    while redis.exists("{a}id:x"):  # the server's time is real
        assert time.monotonic() < ends
        time.sleep(0.005)
    again = store.ask(QUOTAS[0], "{a}k", "take", 1, id=named("x", OTHER))
    assert not again.replayed and again.remaining == 2


def test_c_asks_once_whatever_becomes_of_the_scripts(words, redis):  # noqa: F811
    def ask(verb, items, body=7, now=10**9):
        return words.ask(verb, items, now, id=f"x/{body}/60000000000")

    for items in ([("window 5/10s", "r", "k", 2)],
                  [("gcra 9/10s", "r", "k", 2), ("concurrency 4 lease=3s", "r", "k", 1)]):
        redis.flushall()
        first = ask(K.STINT_TAKE, items)
        assert first[0][0] == K.STINT_ALLOW and first[0][8] == 0
        redis.script_flush()
        again = ask(K.STINT_TAKE, items)
        assert again[0][8] == 1
        assert (again[0][:8], *again[1:]) == (first[0][:8], *first[1:])
        with pytest.raises(client_library.ResponseError, match="^STINT CONFLICT"):
            ask(K.STINT_TAKE, items, body=8)
        # The id has the tag of the keys, so that they share a slot.
        assert redis.get("stint:{tag}id:x")[:17] == b"0000000000000007+"


@pytest.mark.parametrize("name", [f"{name}_once" for name in (*abi.ALGORITHMS, "list")])
def test_c_has_the_hashes_of_the_scripts_with_ids(words, redis, name):  # noqa: F811
    sha = redis.script_load(SCRIPTS[name])
    specs = SPECS[:2] if name == "list_once" else [
        next(spec for spec in ALL if spec.split()[0] == name.removesuffix("_once"))]
    asked = words.words(K.STINT_TAKE, [(spec, "r", "k", 1) for spec in specs], id="x/1/1")
    assert asked[1].decode() == sha


@pytest.mark.parametrize("spec", ALL)
def test_an_undone_ask_is_as_if_never_asked(redis, spec):
    """Also where time has passed since, and however often it is undone."""
    store, quota = Store(redis), abi.parse(spec)
    store.ask(quota, "{a}k", "take", 1, S)
    store.ask(quota, "{a}k", "take", 2, S + 5, id=named("x"))
    alone = store.ask(quota, "{a}alone", "take", 1, S)
    undone = store.ask(quota, "{a}k", "undo", 0, S + 9, id=named("x"))
    # A part of a unit of gcra has flowed back by itself.
    assert (undone.outcome, undone.granted) == ("allow", 1 if spec.startswith("gcra") else 2)
    assert undone.remaining == alone.remaining
    assert redis.get("{a}id:x") is None
    before = values(redis)
    assert store.ask(quota, "{a}k", "undo", 0, S + 9, id=named("x")).granted == 0
    assert values(redis) == before
    again = store.ask(quota, "{a}k", "take", 1, S + 9, id=named("x", OTHER))
    assert (again.outcome, again.replayed) == ("allow", False)


def test_an_undone_list_gives_back_units_and_places_of_equal_keys_too(redis):
    store, places = Store(redis), abi.parse("concurrency 4 lease=3s")
    gcra, window = abi.parse("gcra 9/9s"), abi.parse("window 9/10s")
    items = [(places, "{a}p", 0), (gcra, "{a}g", 2), (places, "{a}q", 0), (places, "{a}p", 2),
             (window, "{a}w", 1), (window, "{a}w", 2), (places, "{a}r", 1)]
    other = store.ask(places, "{a}p", "take", 1, S)
    taken = store.ask_list(items, "take", S, id=named("x"))
    assert taken.outcome == "allow" and len(taken.holders) == 2
    for wanted in ([0, 2, 0, 2, 1, 2, 1], [0] * 7):
        undone = store.ask_list(items, "undo", S, id=named("x"))
        assert [figures[1] for figures in undone.each] == wanted
        assert [figures[3] for figures in undone.each] == [3, 9, 4, 3, 9, 9, 4]
    assert store.ask(places, "{a}p", "release", other.holders[0][1], S,
                     other.holders[0][0]).granted == 1


def test_what_gave_units_back_is_not_undone(redis):
    store, quota = Store(redis), abi.parse("window 5/10s")
    store.ask(quota, "{a}k", "take", 5, S)
    assert store.ask(quota, "{a}k", "refund", 3, S, S, id=named("x")).remaining == 3
    assert store.ask(quota, "{a}k", "undo", 0, S, id=named("x")).granted == 0
    again = store.ask(quota, "{a}k", "refund", 3, S, S, id=named("x"))
    assert again.replayed and store.ask(quota, "{a}k", "peek", 0, S).remaining == 3
    holder = store.ask(QUOTAS[-1], "{a}p", "take", 2, S).holders[0]
    for replayed in (False, True):
        reply = store.ask(QUOTAS[-1], "{a}p", "release", holder[1], S, holder[0], id=named("y"))
        assert (reply.granted, reply.replayed) == (2, replayed)
    assert RELEASE == 15 and UNDO == 14  # as in decide/request.h, for words()


def test_c_takes_back_what_an_id_was_charged(words):  # noqa: F811
    items = [("gcra 9/9s", "r", "k", 2), ("concurrency 4 lease=3s", "r", "k", 1)]
    for wanted in (items, items[1:]):
        words.ask(K.STINT_TAKE, wanted, 10**9, id="u/1/60000000000")
        decided, each, _ = words.ask(UNDO, wanted, 2 * 10**9, id="u/1/60000000000")
        assert decided[0] == K.STINT_ALLOW and each[-1][3] == 4
        assert each[-1][1] == 1
