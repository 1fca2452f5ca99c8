# SPDX-License-Identifier: MIT
"""Counters in Redis and in memcached are the dictionary that those of a table are."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count as count_from

import pytest
import redis as client_of_redis
from hypothesis import given, strategies as st

import stint_abi as abi
from decode import decode
from memcached import Memcached, Node
from stint_abi import K
from store import Store, words_of
from test_counters import AMOUNTS, Counters

YEAR_US = 365 * 86400 * 10**6
KEYS = ("", "a", "b")
EXPIRIES = st.one_of(st.just(1), st.integers(1, 10**8),
                     st.sampled_from([10**4, K.STINT_COUNT_EXPIRY_MAX_NS // 1000]))
# The time goes on by so much; one step in twenty forgets the key.
STEPS = st.lists(st.tuples(st.sampled_from(KEYS), AMOUNTS, EXPIRIES,
                           st.sampled_from([0, 0, 0, 1, 9999, 10**4, 10**7, 3 * YEAR_US]),
                           st.integers(0, 19)), max_size=40)
STARTS = st.sampled_from([0, 1, 8 * YEAR_US - 1, 55 * YEAR_US, 56 * YEAR_US - 1])


@pytest.fixture(scope="module")
def memcached():
    with Memcached() as server:
        yield server


@pytest.fixture(scope="module", params=["redis", "memcached"])
def counting(request):
    """count(key, amount, expiry, now, verb) of a store."""
    if request.param == "redis":
        with request.getfixturevalue("server").connect() as connection:
            yield Store(connection, ["counter"]).count
    else:
        with Node(request.getfixturevalue("memcached").url) as node:
            yield node.count


rounds = count_from()


@given(start=STARTS, steps=STEPS)
def test_counters_are_a_dictionary(counting, start, steps):
    expected, now, number = Counters(), start, next(rounds)
    for key, amount, expiry, later, also in steps:
        now = min(now + later, 100 * YEAR_US)
        if also == 0:
            assert counting(f"{number}{key}", 0, 1, now, "reset")[0] == 0
            expected.counters.pop(key, None)
        assert counting(f"{number}{key}", amount, expiry, now) == expected.count(
            key, amount, expiry, now)
        for other in KEYS:
            assert counting(f"{number}{other}", 0, 1, now) == expected.count(other, 0, 1, now)


def test_sums_have_more_than_32_bits(counting):
    for _ in range(64):
        counting("large", abi.U32_MAX, 10**9, 5)
    assert counting("large", -1, 1, 5) == (64 * abi.U32_MAX - 1, 10**9)


def test_near_the_largest_every_unit_is_exact(redis):
    store = Store(redis, ["counter"])
    ends = (10**9).to_bytes(7, "big")
    redis.set("key", b"\x91" + ends + (K.STINT_COUNT_MAX - 1).to_bytes(7, "big"))
    assert store.count("key", 0, 1, 5)[0] == K.STINT_COUNT_MAX - 1
    assert store.count("key", 1, 1, 5)[0] == K.STINT_COUNT_MAX
    assert store.count("key", abi.U32_MAX, 1, 5)[0] == K.STINT_COUNT_MAX
    assert store.count("key", -1, 1, 5)[0] == K.STINT_COUNT_MAX - 1


def test_the_documented_layout(redis):
    store = Store(redis, ["counter"])
    store.count("key", 7, 3000, 1000)
    state = decode(redis.get("key"), 1000, *words_of(abi.parse("fixed_window 1/1s")))
    assert (state.algorithm, state.used, state.dies_us) == ("counter", 7, 4000)
    before = redis.get("key")
    store.count("key", 0, 5, 2000)
    store.count("none", -1, 5, 2000)
    assert redis.get("key") == before and redis.get("none") is None


def test_redis_lets_the_key_go_with_the_counter(redis):
    store = Store(redis, ["counter"])
    counted, left = store.count("key", 1, 60_000_000)
    assert (counted, left) == (1, 60_000_000)
    expires = redis.pexpiretime("key")
    assert store.count("key", 1, 1)[0] == 2
    assert store.count("key", -2, 1)[0] == 0
    assert redis.pexpiretime("key") == expires and redis.exists("key")
    assert store.count("key", 0, 1, verb="reset")[0] == 0
    assert not redis.exists("key")


@pytest.mark.parametrize("words, said", [
    (("charge", 1, 0, 0, 1, 0), "a period of 1 us to 10 years"),
    (("charge", 1, 0, 0, 1, 315360000000001), "a period of 1 us to 10 years"),
    (("charge", 2**32, 0, 0, 1, 5), "cost and limit to 2^32-1"),
    (("charge", -1, 0, 0, 1, 5), "cost and limit to 2^32-1"),
    (("add", 1, 0, 0, 1, 5), "verb cost now at limit period"),
])
def test_words_that_no_counter_takes_are_refused(redis, words, said):
    with pytest.raises(client_of_redis.ResponseError, match="STINT") as refused:
        Store(redis, ["counter"]).call("counter", ["key"], *words)
    assert said in str(refused.value)
    assert not redis.exists("key")


def test_a_counter_answers_no_take(redis):
    store = Store(redis, ["counter"])
    for verb in ("take", "take_upto", "book", "unbook"):
        assert store.call("counter", ["key"], verb, 1, 0, 0, 9, 5)[0] == 2
    assert not redis.exists("key")


@pytest.mark.parametrize("spec, said", [("sliding_counter 9/1h", "holds no state of counter"),
                                        ("fixed_window 9/1h", "data string too short")])
def test_another_state_in_its_place_is_left_alone(redis, spec, said):
    store = Store(redis)
    store.ask(abi.parse(spec), "key", "take", 1)
    before = redis.get("key")
    with pytest.raises(client_of_redis.ResponseError, match=said):
        store.count("key", 1, 5)
    assert redis.get("key") == before


def test_every_count_is_given_once_over_two_nodes_of_memcached(memcached):
    def add(node):
        return [node.count("shared", 1, 3600 * 10**6)[0] for _ in range(150)]

    with ExitStack() as opened, ThreadPoolExecutor(2) as pool:
        nodes = [opened.enter_context(Node(memcached.url, timeout_ms=20000)) for _ in range(2)]
        got = list(pool.map(add, nodes))
        assert nodes[0].figures()["lost"] == nodes[1].figures()["lost"] == 0
    assert sorted(sum(got, [])) == list(range(1, 301))
