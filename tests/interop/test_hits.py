# SPDX-License-Identifier: MIT
"""Costs that are known only afterwards, as Envoy asks for them: hits of 0 before a request, and N
when it is done. At both frontends, in the table, over Redis and over memcached, under every
algorithm.

The limits are per year, so that no edge of a window falls into a test.
"""
import contextlib
import json
import urllib.error
import urllib.request

import grpc
import pytest

from redis_server import Redis
from rls_messages import OK, OVER_LIMIT, ask_with, descriptor, request
from server import Server
from store_servers import Memcached

LIMIT = 1000
ALGORITHMS = {
    "fixed_window": "", "window": "", "gcra": "", "sliding_counter": "", "log": "",
    "buckets": ", time_slack: 30d, count_slack: 50",
}
# What is asked, and what is answered: the limit is 1,000.
SEQUENCES = {
    "a budget is overdrawn": [(0, OK), (950, OK), (0, OK), (200, OVER_LIMIT), (0, OVER_LIMIT)],
    "one request overdraws it": [(1200, OVER_LIMIT), (0, OVER_LIMIT)],
    "a budget is used up to the unit": [(0, OK), (1000, OK), (0, OVER_LIMIT), (1, OVER_LIMIT)],
    "of all but one unit": [(999, OK), (0, OK), (1, OK), (0, OVER_LIMIT)],
    "checks take nothing": [(0, OK)] * 5 + [(1000, OK)],
}
TAKES = [(0, OK), (950, OK), (0, OK), (200, OVER_LIMIT), (0, OK), (50, OK), (0, OVER_LIMIT)]


def rules(options):
    limit = "unit: year, calendar: fixed, requests_per_unit: " + str(LIMIT) + options
    entries = "".join(
        f"  - {{key: algorithm, value: {name}, descriptors: [{{key: user, rate_limit: "
        f"{{{limit}, algorithm: {name}{ALGORITHMS[name]}}}}}]}}\n" for name in ALGORITHMS)
    return "domain: d\ndescriptors:\n" + entries


@contextlib.contextmanager
def serving(store=None, options="", more=()):
    with contextlib.ExitStack() as stack:
        words = ["--wide-size", "65536", *more]
        if store is not None:
            words += ["--store", stack.enter_context(store()).url, "--store-timeout", "5s"]
        yield stack.enter_context(Server(*words, rules=rules(options)))


class Grpc:
    def __init__(self, server):
        self.channel = grpc.insecure_channel(f"127.0.0.1:{server.port('grpc')}")
        self.ask_with = ask_with(self.channel)

    def ask(self, algorithm, user, hits):
        each = descriptor(("algorithm", algorithm), ("user", user), hits=hits)
        answer = self.ask_with(request("d", each), timeout=20)
        assert answer.codes == [answer.code]
        return answer.code, answer.statuses[0].remaining, answer.statuses[0].reset

    def close(self):
        self.channel.close()


class Json:
    def __init__(self, server):
        self.url = server.url("/json")

    def ask(self, algorithm, user, hits):
        body = {"domain": "d", "descriptors": [{
            "entries": [{"key": "algorithm", "value": algorithm}, {"key": "user", "value": user}],
            "hitsAddend": str(hits)}]}  # a UInt64Value
        asked = urllib.request.Request(self.url, json.dumps(body).encode(),
                                       {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(asked, timeout=20) as got:
                status, answer = got.status, json.load(got)
        except urllib.error.HTTPError as refused:
            status, answer = refused.code, json.load(refused)
        code = {"OK": OK, "OVER_LIMIT": OVER_LIMIT}[answer["overallCode"]]
        assert status == (200 if code == OK else 429)
        told = answer["statuses"][0]
        reset = told.get("durationUntilReset")
        return code, told.get("limitRemaining", 0), reset and float(reset.rstrip("s"))

    def close(self):
        pass


def play(frontend, algorithm, user, sequence, charges=True):
    """Asks in turn; what is told to remain is what a model of the budget has left."""
    used = 0
    for at, (hits, expected) in enumerate(sequence):
        code, remaining, reset = frontend.ask(algorithm, user, hits)
        where = f"{algorithm}: hits {hits} at {at} of {sequence}"
        assert code == expected, where
        if charges or code == OK:
            used += hits
        assert remaining == max(0, LIMIT - used), where
        assert (reset is None) == (used == 0), where


@pytest.mark.parametrize("frontend", [Grpc, Json])
@pytest.mark.parametrize("store", [None, Redis, Memcached], ids=["table", "redis", "memcached"])
def test_what_was_used_is_charged(store, frontend):
    with serving(store, ", hits: charge") as server, contextlib.closing(frontend(server)) as asks:
        for algorithm in ALGORITHMS:
            for user, sequence in SEQUENCES.items():
                play(asks, algorithm, user, sequence)


@pytest.mark.parametrize("store", [None, Redis, Memcached], ids=["table", "redis", "memcached"])
def test_with_a_check_before_each_of_700_exactly_two_pass(store):
    with serving(store, ", hits: charge") as server, contextlib.closing(Grpc(server)) as asks:
        for algorithm in ALGORITHMS:
            served = 0
            for _ in range(20):
                if asks.ask(algorithm, "tokens", 0)[0] == OK:
                    served += 1
                    asks.ask(algorithm, "tokens", 700)
            assert served == 2, algorithm


SETTINGS = {  # options of rules, of the server, and whether hits are charged then
    "nothing is said": ("", (), False),
    "the rule says take": (", hits: take", ("--grpc-hits", "charge"), False),
    "the rule says charge": (", hits: charge", ("--grpc-hits", "take"), True),
    "the setting says charge": ("", ("--grpc-hits", "charge"), True),
}


@pytest.mark.parametrize("options, more, charges", SETTINGS.values(), ids=SETTINGS)
def test_the_rule_says_and_else_the_setting(options, more, charges):
    sequence = SEQUENCES["a budget is overdrawn"] if charges else TAKES
    with serving(None, options, more) as server, contextlib.closing(Json(server)) as asks:
        for algorithm in ALGORITHMS:
            play(asks, algorithm, "u", sequence, charges)


# ---- Several servers on one store ----------------------------------------------------------------

FAR = "domain: d\ndescriptors:\n" + "".join(f"""\
  - {{key: algorithm, value: {name}, descriptors: [{{key: user, rate_limit: {{
      unit: year, calendar: fixed, requests_per_unit: {LIMIT}, algorithm: fixed_window,
      hits: charge{options}}}}}]}}
""" for name, options in {"plain": "", "leased": ", lease: strict"}.items())


def one_unit(server, name):
    """Takes one: with a lease, if the rule has one."""
    return server.post("/json", {"domain": "d", "descriptors": [
        {"entries": [{"key": "algorithm", "value": name}, {"key": "user", "value": "u"}]}]})[0]


def give_back(server, name, units):
    return server.post("/json", {"domain": "d", "descriptors": [
        {"entries": [{"key": "algorithm", "value": name}, {"key": "user", "value": "u"}],
         "hitsAddend": str(units), "isNegativeHits": True}]})[0]


@pytest.mark.parametrize("name", ["plain", "leased"])
def test_no_cache_and_no_lease_keeps_a_charge_from_the_store(name):
    with Redis() as redis, contextlib.ExitStack() as stack:
        # Each worker has a cache of its own, which a unit given back to another does not end.
        words = ["--workers", "1", "--store", redis.url, "--store-timeout", "5s"]
        both = [stack.enter_context(Server(*words, rules=FAR)) for _ in range(2)]
        one, other = (Json(server) for server in both)
        assert one_unit(both[0], name) == 200
        assert one.ask(name, "u", 949)[0] == OK
        assert other.ask(name, "u", 0)[0] == OK
        assert other.ask(name, "u", 200)[0] == OVER_LIMIT
        for _ in range(3):  # from the second on, a cache may answer
            assert other.ask(name, "u", 0)[0] == OVER_LIMIT
        assert other.ask(name, "u", 300)[0] == OVER_LIMIT
        # 1,450 and what is leased are used: 1,000 of these back leave 550 at most.
        assert give_back(both[1], name, 1000) == 200
        code, remaining, _ = other.ask(name, "u", 0)
        assert code == OK
        assert remaining == 550 if name == "plain" else 530 <= remaining <= 550
