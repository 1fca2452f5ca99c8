# SPDX-License-Identifier: MIT
"""What C decides on a state of its own, it decides on one that memcached keeps: vectors, random
sequences, lists and changed limits, at whole microseconds.
"""

import json

import pytest
from hypothesis import assume, given, strategies as st

import stint_abi as abi
from memcached import Memcached, Node, in_whole_us, spec_of
from oracle import Terms
from store import in_us
from strategies import START, TERMS, fixed_window_terms, gcra_terms
from test_store_sameness import LIFE_US, STEPS, Pair as ScriptPair, quotas as all_quotas
from test_store_vectors import FILES, sequences

KEPT = ("window", "gcra", "fixed_window", "sliding_counter", "log", "buckets")


PERIOD_MAX_NS = 4 * 365 * 86400 * 10**9


@st.composite
def quotas(draw, terms):
    drawn, quota = draw(all_quotas(terms))
    assume(quota.period_ns <= PERIOD_MAX_NS)
    return drawn, quota


@pytest.fixture(scope="module")
def memcached():
    with Memcached() as server:
        yield server


@pytest.fixture(scope="module")
def node(memcached):
    with Node(memcached.url) as asking:
        yield asking


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_vectors_are_decided_as_they_expect(node, path):
    asked = 0
    for number, sequence in sequences(path):
        if sequence["quota"].split()[0] not in KEPT or \
                any(step["verb"] in ("book", "unbook") for step in sequence["steps"]):
            continue
        for step in sequence["steps"]:
            at = step.get("granted_at", 0) * 1000
            answer = node.ask(sequence["quota"], f"{path.stem}.{number}", step["verb"],
                              step["cost"], step["now"], at)
            got = dict(zip(("outcome", "granted", "limit", "remaining", "retry_after",
                            "reset_after"), in_whole_us(answer.sum), strict=True))
            assert {name: got[name] for name in step["expect"]} == step["expect"], \
                f"{path.name}:{number}: {step}"
            asked += 1
    assert asked > 100 or path.stem not in KEPT


class Pair(ScriptPair):
    """One key in C and in memcached, asked alike."""

    def __init__(self, node, quota, terms, start):
        self.node, self.quota, self.spec = node, quota, spec_of(quota)
        super().__init__(NoScripts(), terms, quota, start)
        node.ask(self.spec, "pair", "reset", 0)

    def ask(self, now, verb, cost, at=0, at_ns=0):
        decided = self.state.ask(now * 1000, verb, cost, at_ns)
        answer = self.node.ask(self.spec, "pair", verb, cost, now, at_ns)
        assert in_whole_us(answer.sum) == in_us(decided), (self.spec, now, verb, cost, at)
        assert answer.at == now * 1000
        self.times.heard(decided)
        if verb in ("take", "take_upto") and decided.granted:
            self.grants.append((now, decided.granted))
        return decided


class NoScripts:
    """Stands where the other pair has its connection to Redis."""

    def delete(self, _):
        pass

    def script_load(self, _):
        return ""


@pytest.mark.parametrize("algorithm", KEPT)
@given(data=st.data(), start=START, steps=STEPS)
def test_every_decision_is_the_same(node, algorithm, data, start, steps):
    terms, quota = data.draw(quotas(TERMS[algorithm]()))
    pair = Pair(node, quota, terms, min(start // 1000, LIFE_US // 2))
    for step in steps:
        pair.step(*step)


@pytest.mark.parametrize("drawn", [gcra_terms, fixed_window_terms])
@given(data=st.data(), start=START, steps=STEPS)
def test_denied_takes_are_counted_the_same(node, drawn, data, start, steps):
    terms, quota = data.draw(quotas(drawn(count_denied=True)))
    pair = Pair(node, quota, terms, min(start // 1000, LIFE_US // 2))
    for step in steps:
        pair.step(*step)


@given(limits=st.tuples(st.integers(1, 2000), st.integers(1, 2000)),
       resolution=st.integers(10, 108), start=START, steps=STEPS)
def test_a_state_under_a_new_limit_is_converted_the_same(node, limits, resolution, start, steps):
    old, new = (Terms("window", limit, 3600 * 10**9, resolution=resolution) for limit in limits)
    quota, other = abi.quota_from_terms(old), abi.quota_from_terms(new)
    pair = Pair(node, quota, old, min(start // 1000, LIFE_US // 2))
    for step in steps:
        pair.step(*step)
        now = max(pair.times.now, 1)
        moved = pair.state.converted(other, now * 1000)
        free = moved.peek(now * 1000, 0).remaining
        for cost in (0, free, free + 1, new.limit + 1):
            answer = node.ask(spec_of(other), "pair", "peek", cost, now)
            assert in_whole_us(answer.sum) == in_us(moved.peek(now * 1000, cost)), (now, cost)


ITEMS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=6)
SPECS = ("window 7/10s", "gcra 5/10s burst=4", "log 6/7s", "buckets 3/1s count_slack=1")


@given(acts=st.lists(st.tuples(st.sampled_from(["take", "take", "take_upto", "peek", "charge"]),
                               ITEMS, st.integers(0, 4_000_000)), min_size=1, max_size=12))
def test_lists_are_decided_as_those_of_a_table(node, acts):
    """Against each state apart: all or nothing, equal keys added up."""
    now, states = 1, [abi.State(abi.parse(spec)) for spec in SPECS]
    for index, spec in enumerate(SPECS):
        node.ask(spec, f"list{index}", "reset", 0)
    for verb, items, gap in acts:
        now += gap
        answer = node.ask_list([(SPECS[which], f"list{which}", cost) for which, cost in items],
                               verb, now)
        costs, times = {}, {}
        for which, cost in items:
            costs[which] = costs.get(which, 0) + cost
            times[which] = times.get(which, 0) + 1
        if verb == "take_upto":
            expected = upto(states, items, times, now)
            granted = answer.sum.granted if answer.sum.outcome == "allow" else 0
            assert granted == expected, (verb, items, now)
            costs = {which: expected * n for which, n in times.items()} if expected else {}
        elif verb in ("take", "peek"):
            looks = [states[which].peek(now * 1000, cost) for which, cost in costs.items()]
            worst = max((look.outcome for look in looks), key=["allow", "deny", "never"].index)
            assert answer.sum.outcome == worst, (verb, items, now)
            if worst != "allow":
                waits = [look.retry_after for look in looks if look.outcome != "allow"]
                assert in_whole_us(answer.sum)[4] == \
                    (None if worst == "never" else max(-(-wait // 1000) for wait in waits))
            if verb == "peek" or worst != "allow":
                costs = {}
        for which, cost in costs.items():
            states[which].ask(now * 1000, "charge" if verb == "charge" else "take", cost, 0)
        for which, state in enumerate(states):
            assert in_whole_us(node.ask(SPECS[which], f"list{which}", "peek", 0, now).sum) == \
                in_us(state.peek(now * 1000, 0)), (verb, items, now)


def upto(states, items, times, now):
    """How many fit under every quota."""
    most = min(cost for _, cost in items)
    while most and not all(states[which].peek(now * 1000, most * n).outcome == "allow"
                           for which, n in times.items()):
        most -= 1
    return most


def test_what_is_not_kept_is_refused(node):
    for spec in ("concurrency 3 lease=10s", "gcra 100/1000001ns", "log 1/1825d"):
        answer = node.ask_list([(spec, "k", 1)], "take", 1)
        assert answer.outcome == 3 and "memcached supports" in answer.error, spec


def test_values_are_read_as_the_documentation_has_them(node, memcached):
    """The bytes of docs/decisions/0050: algorithm and version, epoch, limit, state, checksum."""
    node.ask("gcra 10/10s", "bytes", "take", 3, 5_000_000)
    value = read_value(memcached, "t:{bytes}gcra:test:")
    assert value[:-4] == bytes([0x49, 0, 0]) + (8 * 10**9 * 32).to_bytes(8, "big")
    node.ask("fixed_window 9/10s", "bytes", "take", 3, 5_000_000)
    value = read_value(memcached, "t:{bytes}fixed_window,10000000,0,0:test:")
    assert value[:7] == bytes([0x59, 0, 0, 0, 0, 0, 9]) and len(value) == 15 + 4


def read_value(memcached, key):
    import socket
    with socket.create_connection((memcached.host, memcached.port), timeout=5) as link:
        link.sendall(f"mg {key} v\r\n".encode())
        line, _, rest = link.recv(4096).partition(b"\r\n")
        assert line.startswith(b"VA "), line
        return rest[:int(line.split()[1])]


def test_vectors_reach_every_algorithm_that_is_kept():
    names = {json.loads(line)["quota"].split()[0] for path in FILES
             for line in path.read_text(encoding="utf-8").splitlines()}
    assert set(KEPT) <= names
