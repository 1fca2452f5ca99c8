# SPDX-License-Identifier: MIT
"""10,000 random requests at /json, in virtual time, against a model of how envoyproxy/ratelimit
counts, written from its documentation: one counter for each limit, descriptor and window of the
unit; hits are added, whatever comes of it; over limit is what stands above the limit then.

What stint does otherwise is one entry of DIFFERENCES each, with the sentence of the guide that says
so. With all of them the model has to answer every request as stint does; and without any one of
them some request has to be answered differently, or the entry explains nothing.
"""
import collections
import json
import os
import random
import subprocess
from pathlib import Path

import pytest

GUIDE = Path(os.environ["STINT_SOURCE"]) / "docs/migrate-from-envoyproxy-ratelimit.md"
S = 1_000_000_000
START_S = 60_000  # where the frontend's table begins
PERIODS_S = {"second": 1, "minute": 60, "hour": 3600}
N_REQUESTS = 10_000

RULES = """\
domain: d
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 10, algorithm: fixed_window, name: user}
  - key: tokens
    rate_limit: {unit: hour, requests_per_unit: 1000, algorithm: fixed_window}
  - key: path
    value: /login
    rate_limit: {unit: second, requests_per_unit: 3, algorithm: fixed_window}
  - key: banned
    rate_limit: {unit: minute, requests_per_unit: 0, algorithm: fixed_window}
  - key: trial
    shadow_mode: true
    rate_limit: {unit: minute, requests_per_unit: 5, algorithm: fixed_window}
  - key: partner
    rate_limit: {unit: minute, requests_per_unit: 20, algorithm: fixed_window,
                 replaces: [{name: user}]}
  - key: free
    rate_limit: {unlimited: true}
  - key: service
    quota_mode: true
    rate_limit: {unit: minute, requests_per_unit: 6, algorithm: fixed_window}
"""
# The same for the model: (unit, limit, and what else there is).
LIMITS = {
    "user": ("minute", 10, {"name": "user"}), "tokens": ("hour", 1000, {}),
    "path": ("second", 3, {}), "banned": ("minute", 0, {}),
    "trial": ("minute", 5, {"shadow": True}),
    "partner": ("minute", 20, {"replaces": "user"}), "service": ("minute", 6, {"quota": True}),
}
UNLIMITED = 4294967295

# What the model has to know; the texts are those of the guide.
DIFFERENCES = {
    "what does not fit": "A request's own hits, without `hits_addend` in the descriptor, are taken "
                         "all or nothing: hits that do not fit are not counted.",
    "siblings": "A request that is over one limit takes nothing of the others.",
    "shadows": "A limit in shadow mode counts the requests that the other limits let pass.",
    "equal descriptors": "A descriptor that occurs twice in a request has to fit twice.",
    "checks": "A check (`hits_addend: 0`) is over limit where nothing is left; theirs passes as "
              "long as no more than the limit is used.",
    "unused": "`duration_until_reset` is left out where nothing is used.",
    "never": "`duration_until_reset` is left out for hits that can never fit.",
    "fractions": "`duration_until_reset` is not rounded up to a second.",
}


class Model:
    """envoyproxy/ratelimit, but for the differences that are named."""

    def __init__(self, differences):
        self.differs, self.counters = set(differences), collections.Counter()

    @staticmethod
    def replaced(descriptors):
        options = [LIMITS[each["key"]][2] for each in descriptors if each["key"] in LIMITS]
        names = {each["replaces"] for each in options if "replaces" in each}
        return lambda each: LIMITS[each["key"]][2].get("name") in names

    def answer(self, descriptors, now_ns):
        """The overall code, and (code, remaining, reset) of each descriptor."""
        is_replaced = self.replaced(descriptors)
        counted = [Counted(self, each, now_ns) for each in descriptors
                   if each["key"] in LIMITS and not is_replaced(each)]
        live = [each for each in counted if not each.is_shadow]
        for each in live:
            each.decide(live)
        quotas = [each.over for each in live if each.is_quota]
        denied = any(each.over for each in live if not each.is_quota) or \
            (bool(quotas) and all(quotas))
        for each in live:
            each.take(denied and "siblings" in self.differs)
        for each in counted:
            if each.is_shadow:
                each.decide([each])
                each.take(denied and "shadows" in self.differs)
        told = {id(each.asked): each.status() for each in counted}
        return "OVER_LIMIT" if denied else "OK", [
            told.get(id(each), ("OK", UNLIMITED if each["key"] == "free" else 0, None))
            for each in descriptors]


class Counted:
    """A descriptor that has a limit."""

    def __init__(self, model, asked, now_ns):
        unit, self.limit, options = LIMITS[asked["key"]]
        self.model, self.asked, self.now_ns = model, asked, now_ns
        self.period_ns = PERIODS_S[unit] * S
        self.counter = asked["key"], asked["value"], now_ns // self.period_ns
        self.is_shadow, self.is_quota = "shadow" in options, "quota" in options
        self.takes, self.is_check = asked["hits"] is None, asked["hits"] == 0
        self.over, self.fits_once, self.told = False, True, None

    def differs(self, name):
        return name in self.model.differs

    def used(self):
        return self.model.counters[self.counter]

    def decide(self, others):
        equal = [each for each in others if each.takes and each.counter == self.counter]
        if not self.differs("equal descriptors") and self.takes:
            equal = equal[:equal.index(self) + 1]
        units = sum(each.asked["cost"] for each in equal) if self.takes else self.asked["cost"]
        if self.is_check and self.differs("checks"):
            units = 1
        self.over, self.fits_once = self.used() + units > self.limit, units <= self.limit
        if not self.takes:
            self.model.counters[self.counter] += self.asked["cost"]

    def take(self, is_refused):
        if self.takes and not is_refused and not (self.over and self.differs("what does not fit")):
            self.model.counters[self.counter] += self.asked["cost"]
        if self.is_shadow or not self.differs("equal descriptors"):
            self.told = self.used()  # else all of the equal ones are told what is left in the end
        if self.is_shadow and self.takes and is_refused and not self.over:
            self.told += self.asked["cost"]  # a shadow tells how it would stand

    def used_at_last(self):
        return self.used() if self.told is None else self.told

    def status(self):
        remaining = max(0, self.limit - self.used_at_last())
        if self.over and not self.differs("what does not fit"):
            remaining = 0
        return ("OVER_LIMIT" if self.over and not self.is_shadow else "OK", remaining, self.reset())

    def reset(self):
        left_ns = self.period_ns - self.now_ns % self.period_ns
        is_never = self.limit == 0 or (self.takes and not self.fits_once and not self.is_shadow)
        is_unused = self.used_at_last() == 0
        if (is_never and self.differs("never")) or (is_unused and self.differs("unused")):
            return None
        return left_ns if self.differs("fractions") else -(-left_ns // S) * S


# ---- Requests ------------------------------------------------------------------------------------

STEPS_NS = [0] * 12 + [1_000_001, 250 * S // 1000, S, 7 * S // 3, 41 * S, 1300 * S]


def random_descriptor(draw, cost):
    key = draw.choice([*LIMITS, "tokens", "tokens", "free", "unknown"])
    limit = LIMITS[key][1] if key in LIMITS else 5
    hits = draw.choice([None, None, None, 0, 0, 1, draw.randint(1, limit * 5 // 4 + 1)])
    value = "/login" if key == "path" else draw.choice("abc")
    return {"key": key, "value": value, "hits": hits, "cost": cost if hits is None else hits}


def random_requests(seed):
    """(now, what the request says of its hits, descriptors): no two of one counter, but some twice
    the same."""
    draw, now_ns = random.Random(seed), START_S * S
    for _ in range(N_REQUESTS):
        now_ns += draw.choice(STEPS_NS)
        hits = draw.choice([0, 0, 0, 1, 1, 2, 4, 12])
        found = {}
        for _ in range(draw.choice([1, 1, 1, 2, 3])):
            each = random_descriptor(draw, max(1, hits))
            found.setdefault((each["key"], each["value"]), each)
        descriptors = list(found.values())
        if descriptors[0]["hits"] is None and draw.random() < 0.1:
            descriptors.append(dict(descriptors[0]))
        yield now_ns, hits, descriptors


def body(hits, descriptors):
    asked = {"domain": "d", "descriptors": [
        {"entries": [{"key": each["key"], "value": each["value"]}],
         **({} if each["hits"] is None else {"hitsAddend": str(each["hits"])})}
        for each in descriptors]}
    return json.dumps({**asked, **({"hitsAddend": hits} if hits else {})})


def nanoseconds(text):
    whole, _, part = text.rstrip("s").partition(".")
    return int(whole) * S + int(part.ljust(9, "0"))


def read(line):
    status, answer = int(line[:3]), json.loads(line[4:])
    assert status == (200 if answer["overallCode"] == "OK" else 429), line
    return answer["overallCode"], [
        (each["code"], each.get("limitRemaining", 0),
         nanoseconds(each["durationUntilReset"]) if "durationUntilReset" in each else None)
        for each in answer["statuses"]]


@pytest.fixture(scope="module")
def answered(tmp_path_factory):
    """(request, answer) of all."""
    rules = tmp_path_factory.mktemp("frontend") / "rules.yaml"
    rules.write_text(RULES)
    requests = list(random_requests(20))
    lines = "".join(f"{now_ns} {body(hits, descriptors)}\n"
                    for now_ns, hits, descriptors in requests)
    done = subprocess.run([os.environ["STINT_JSON_FRONTEND"], rules], input=lines, text=True,
                          capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    answers = [read(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(requests) == N_REQUESTS
    return list(zip(requests, answers))


def first_that_differs(answered, differences):
    model = Model(differences)
    for n, ((now_ns, hits, descriptors), answer) in enumerate(answered):
        expected = model.answer(descriptors, now_ns)
        if expected != answer:
            return f"request {n} at {now_ns} ns, hits {hits}: {descriptors}\n" \
                   f"expected {expected}\nanswered {answer}"
    return None


def test_every_answer_is_explained(answered):
    assert first_that_differs(answered, DIFFERENCES) is None


@pytest.mark.parametrize("name", DIFFERENCES)
def test_every_difference_occurs(answered, name):
    assert first_that_differs(answered, set(DIFFERENCES) - {name}) is not None


@pytest.mark.parametrize("name", DIFFERENCES)
def test_the_guide_says_so(name):
    assert DIFFERENCES[name] in " ".join(GUIDE.read_text(encoding="utf-8").split())
