# SPDX-License-Identifier: MIT
"""From a quota, a key and a cost in C to a decision in C, with a real server in between."""

import os
import subprocess

import pytest
import redis as client_library
from hypothesis import given, strategies as st

import stint_abi as abi
from store import SCRIPTS
from stint_table import Table

K = abi.K
RESET, RELEASE, RENEW = 7, 15, 16
SPECS = ["window 5/10s", "window 20/10s resolution=12", "gcra 7/10s burst=4", "log 6/10s",
         "buckets 8/10s time_slack=1s count_slack=2", "fixed_window 5/10s align=first_use",
         "fixed_window 3/1d align=calendar utc_offset=-05:00", "sliding_counter 9/10s",
         "gcra 3/10s count_denied=true", "window 0/10s"]


class Words:
    """The helper, and the server that it is asked for."""

    def __init__(self, client):
        self.client = client
        self.process = subprocess.Popen([os.environ["STINT_STORE_WORDS"]], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().rstrip("\n")

    def words(self, verb, items, now=None, at=0, holder=(0, 0), kind="ask", id="-"):
        """items: (spec, rule, key, cost). id: TEXT/BODY/LIFETIME_NS."""
        fields = "".join(f"\t{cost}\t{rule}\t{key}\t{spec}" for spec, rule, key, cost in items)
        now = "-" if now is None else now
        line = self.say(f"{kind} {verb} {now} {at} {holder[0]} {holder[1]} {id}"
                        f"{fields}")
        if line.startswith("refused"):
            return line
        return [bytes.fromhex(word) for word in line.split(" ")]

    def read(self, values, n_listed=0):
        """Of the sum (outcome, granted, limit, remaining, retry, reset, binding, now, replayed), in
        ns; each quota's six; the holders."""
        line = self.say(" ".join(map(str, ["read", n_listed, *values])))
        if line == "none":
            return None
        sum_, each, holders = ([int(word) for word in part.split()] for part in line.split("|"))
        return (sum_, [each[at:at + 6] for at in range(0, len(each), 6)],
                list(zip(holders[::2], holders[1::2])))

    def ask(self, verb, items, now=None, at=0, holder=(0, 0), id="-"):
        words = self.words(verb, items, now, at, holder, id=id)
        try:
            values = self.client.execute_command(*words)
        except client_library.exceptions.NoScriptError:
            words = self.words(verb, items, now, at, holder, kind="all", id=id)
            values = self.client.execute_command(*words)
        return self.read(values, len(items) if len(items) > 1 else 0)


@pytest.fixture
def words(redis):
    helper = Words(redis)
    yield helper
    helper.process.stdin.close()
    assert helper.process.wait(20) == 0
    helper.process.stdout.close()


STEPS = st.lists(
    st.tuples(st.sampled_from([K.STINT_TAKE, K.STINT_TAKE, K.STINT_TAKE_UPTO, K.STINT_PEEK,
                               K.STINT_CHARGE]),
              st.lists(st.tuples(st.integers(0, len(SPECS) - 1), st.integers(0, 9)), min_size=1,
                       max_size=4),
              st.integers(0, 2 * 10**6)),
    min_size=1, max_size=12)
CALLS = {K.STINT_TAKE: "take_all", K.STINT_TAKE_UPTO: "take_upto", K.STINT_PEEK: "peek",
         K.STINT_CHARGE: "charge"}


@given(steps=STEPS)
def test_c_asks_a_store_as_it_asks_a_table(words, redis, steps):
    redis.flushall()
    now = 0
    with Table(keys_wide=64, wide_size=512) as table:
        quotas = [abi.parse(spec) for spec in SPECS]
        for verb, items, pause in steps:
            now += pause * 1000
            answer = getattr(table.at(now), CALLS[verb])(
                *[(quotas[index], b"k", cost) for index, cost in items])
            got, each, _ = words.ask(
                verb, [(SPECS[index], str(index), "k", cost) for index, cost in items], now)
            waits = [wait if wait == abi.NEVER_NS else -(-wait // 1000) * 1000
                     for wait in answer[4:6]]
            outcome = {"allow": 0, "deny": 1, "never": 2}[answer.outcome]
            assert got == [outcome, *answer[1:4], *waits, answer.binding, now, 0]
            assert len(each) == len(items)
            if len(items) == 1:
                assert each == [got[:6]]


def test_the_server_knows_the_scripts_by_the_hashes_that_c_has(words, redis):
    for spec in SPECS:
        asked = words.words(K.STINT_TAKE, [(spec, "r", "k", 1)])
        name = spec.split()[0]
        assert asked[1].decode() == redis.script_load(SCRIPTS[name])
    pair = [(spec, "r", "k", 1) for spec in SPECS[:2]]
    assert words.words(K.STINT_TAKE, pair)[1].decode() == redis.script_load(SCRIPTS["list"])


def test_holders_come_back_to_c(words):
    quota = ("concurrency 2 lease=5s", "r", "k", 2)
    now = 7 * 10**9
    (holder,) = words.ask(K.STINT_TAKE, [quota], now)[2]
    assert holder[0] == 12 * 10**6
    assert words.ask(K.STINT_TAKE, [quota], now)[0][0] == K.STINT_DENY
    (renewed,) = words.ask(RENEW, [quota], now + 10**9, holder=holder)[2]
    assert renewed[0] == 13 * 10**6
    assert words.ask(RELEASE, [quota], now + 10**9, holder=holder)[0][1] == 0
    assert words.ask(RELEASE, [quota], now + 10**9, holder=renewed)[0][1] == 2
    assert words.ask(K.STINT_TAKE, [quota], now + 10**9)[0][0] == K.STINT_ALLOW


def test_a_refund_without_a_time_and_a_reset(words):
    quota = ("window 5/10s", "r", "k", 3)
    now = 10**9
    assert words.ask(K.STINT_TAKE, [quota], now)[0][3] == 2
    assert words.ask(K.STINT_REFUND, [quota], now, at=abi.NEVER_NS)[0][3] == 5
    assert words.ask(K.STINT_TAKE, [quota], now)[0][3] == 2
    assert words.ask(RESET, [quota], now)[0][3] == 5
    assert words.ask(K.STINT_PEEK, [quota], now)[0][3] == 2


def test_the_servers_time_comes_back_in_ns(words, redis):
    seconds, micros = redis.time()
    decided = words.ask(K.STINT_TAKE, [("window 5/10s", "r", "k", 1)])[0][7]
    assert 0 <= decided - (seconds * 10**9 + micros * 1000) < 60 * 10**9
