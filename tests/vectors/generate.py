#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the vectors beside it from the exact models of tests/property/oracle, the same every time.

No library is loaded: what a vector expects is what the law says. With --check nothing is written,
and the exit code says whether the files are what would be.
"""

import json
import random
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "property"))

from oracle import Concurrency, Terms, model_of  # noqa: E402 (its folder is named just above)
from oracle.terms import ALIGN, NEVER  # noqa: E402

US, MS, S = 10**3, 10**6, 10**9
MINUTE, HOUR, DAY, WEEK = 60 * S, 3600 * S, 86400 * S, 7 * 86400 * S
UNITS = (("w", WEEK), ("d", DAY), ("h", HOUR), ("m", MINUTE), ("s", S), ("ms", MS), ("us", US))
CALENDAR = {ALIGN["day"]: "1d", ALIGN["week"]: "1w", ALIGN["month"]: "1mo", ALIGN["year"]: "1y"}
CALENDAR_NS = {ALIGN["day"]: DAY, ALIGN["week"]: WEEK, ALIGN["month"]: 28 * DAY,
               ALIGN["year"]: 365 * DAY}
STEPS = 14


def duration(ns):
    for name, length in UNITS:
        if ns % length == 0:
            return f"{ns // length}{name}"
    return f"{ns}ns"


def spec(terms):
    """The quota as a SPEC."""
    if terms.algorithm == "concurrency":
        return f"concurrency {terms.limit} lease={duration(terms.lease_ns)}"
    period = CALENDAR.get(terms.align) or duration(terms.period_ns)
    words = [f"{terms.algorithm} {terms.limit}/{period}"]
    for name in ("burst", "resolution", "count_slack"):
        if getattr(terms, name):
            words.append(f"{name}={getattr(terms, name)}")
    if terms.time_slack_ns:
        words.append(f"time_slack={duration(terms.time_slack_ns)}")
    if terms.align == ALIGN["first_use"]:
        words.append("align=first_use")
    elif terms.align:
        words.append("align=calendar")
        if terms.utc_offset_s:
            minutes = abs(terms.utc_offset_s) // 60
            sign = "-" if terms.utc_offset_s < 0 else "+"
            words.append(f"utc_offset={sign}{minutes // 60:02d}:{minutes % 60:02d}")
    if terms.count_denied:
        words.append("count_denied=true")
    return " ".join(words)


class Writer:
    """One sequence: asks the model, and notes what it answers in the unit of the vector."""

    def __init__(self, terms, unit, name=None):
        self.terms, self.unit = terms, {"ns": 1, "us": US}[unit]
        self.vector = {"quota": spec(terms), "unit": unit, "steps": []}
        if name:
            self.vector = {"name": name, **self.vector}
        self.model = Concurrency(terms) if terms.algorithm == "concurrency" else model_of(terms)
        self.holds = 0

    def _wait(self, ns):
        return None if ns == NEVER else -(-ns // self.unit)

    def step(self, now, verb, cost, **extra):
        """`now` and the extra times are in ns, multiples of the unit."""
        if isinstance(self.model, Concurrency):
            self.holds += 1
            answer = self.model.hold(now, cost, self.holds)
        elif verb == "refund":
            back = self.model.refund(now, cost, extra["granted_at"])
            answer = self.model._answer(None, back, now, None)
        elif verb == "book":
            answer = self.model.book(now, cost, extra["max_wait"])
        else:
            answer = self.model.ask(now, verb, cost)
        expect = {"outcome": answer.outcome, "granted": answer.granted,
                  "remaining": answer.remaining, "retry_after": answer.retry_after,
                  "reset_after": answer.reset_after}
        for name in ("outcome", "retry_after"):
            if expect[name] is None:
                del expect[name]  # the law does not fix it
        for name in ("retry_after", "reset_after"):
            if name in expect:
                expect[name] = self._wait(expect[name])
        self.vector["steps"].append(
            {"now": now // self.unit, "verb": verb, "cost": cost,
             **{key: value // self.unit for key, value in extra.items()}, "expect": expect})
        return answer

    def line(self):
        return json.dumps(self.vector, separators=(",", ":"))


def walk(random_, terms, unit, verbs):
    """A caller who comes at the edges, at the promised instants, after long idling, at random."""
    writer, unit_ns = Writer(terms, unit), {"ns": 1, "us": US}[unit]
    period = terms.period_ns or terms.lease_ns
    grain = max(unit_ns, terms.time_slack_ns or period // max(1, min(24, terms.limit)))
    now, retry, grants = random_.choice([0, 1, period // 3, 7 * period]), 0, []
    for _ in range(STEPS):
        now += random_.choice([
            0, 0, unit_ns, grain, random_.randrange(grain + 1), random_.randrange(period),
            period - unit_ns, period, random_.randrange(3 * period), retry, retry,
            max(0, retry - unit_ns), 40 * period if random_.random() < 0.2 else 0])
        now -= now % unit_ns
        verb, capacity = random_.choice(verbs), writer.model.capacity
        left = writer.model.capacity
        if hasattr(writer.model, "remaining"):
            left = writer.model.remaining(now)
        cost = random_.choice([1, 1, 1, 2, max(1, left), left + 1, max(1, capacity // 3),
                               capacity, capacity + 1, 0])
        extra = {}
        if verb == "refund":
            if not grants:
                continue
            granted_at, cost = grants.pop(random_.randrange(len(grants)))
            extra["granted_at"] = granted_at
        elif verb == "book":
            cost = max(1, cost)
            extra["max_wait"] = random_.choice([0, grain, period, 3 * period])
            extra["max_wait"] -= extra["max_wait"] % unit_ns
        answer = writer.step(now, verb, min(cost, 2**32 - 1), **extra)
        retry = 0
        if answer.outcome == "deny":
            retry = -(-answer.retry_after // unit_ns) * unit_ns
        if verb in ("take", "take_upto") and answer.granted:
            grants.append((now, answer.granted))
    return writer


def random_sequences(name, quotas, verbs, count):
    """`count` sequences over the quotas in turn, each with a seed of its own."""
    for number in range(count):
        terms, unit = quotas[number % len(quotas)]
        chosen = ("take",) if terms.count_denied else verbs
        yield walk(random.Random(f"{name} {number}"), terms, unit, chosen)


def charge_stories(budget, small):
    """Charges that do not fit keep the newest units: of 1,000 an hour, and of `small`."""
    yield story(budget, "950, and 200 a second later: an hour on, 200 are remembered",
                (0, "take", 950), (1, "charge", 200), (1, "take_upto", 1), (3599, "peek", 1),
                *[(now, "peek", 0) for now in (3600, 3601, 3750, 3751, 3900, 3901)], unit="s")
    yield story(budget, "more than the limit: all of it is used now",
                (0, "take", 400), (1800, "charge", 1200), (1800, "peek", 0), (3700, "peek", 1),
                (5400, "peek", 1), (5700, "peek", 1000), unit="s")
    yield story(budget, "many small charges displace no more than one large",
                (0, "take", 1000), *[(1800, "charge", 1)] * 8, (3600, "peek", 0),
                (3900, "take_upto", 1000), unit="s")
    yield story(budget, "units that come back were displaced, or are used by others",
                (0, "take", 1000), (900, "charge", 250), (900, "refund", 100, 900),
                (900, "peek", 1), (900, "refund", 150, 900), (900, "peek", 1),
                (3600, "peek", 1000), (3900, "peek", 1000), unit="s")
    yield story(budget, "settled above the estimate, then another one below",
                (0, "take", 600), (60, "take", 400), (120, "charge", 300),
                (180, "refund", 350, 60), (180, "peek", 0), (180, "take_upto", 100),
                (3780, "peek", 0), unit="s")
    yield story(small, "a group with some left counts as used up",
                *[(now, "take", small.limit // 10) for now in range(0, 600, 60)],
                (600, "charge", 3), (600, "take", 1), (600, "charge", 2), (600, "take", 1),
                (3600, "peek", 0), (3660, "peek", 0), (3900, "take_upto", 1),
                (4200, "peek", 0), unit="s")


def window_file():
    quotas = [(Terms("window", n, w, resolution=m), unit) for n, w, m, unit in [
        (100, MINUTE, 0, "ns"), (15, MINUTE, 0, "ns"), (100, MINUTE, 12, "ns"),
        (1, S, 0, "ns"), (24, S, 24, "us"), (25, S, 24, "ns"), (1000, 3 * HOUR, 10, "ns"),
        (7, HOUR, 11, "ns"), (393_217, DAY, 0, "ns"), (2**32 - 1, 30 * DAY, 0, "ns"),
        (10, 1_000_003, 0, "ns"), (500, 24 * MS, 24, "us"), (5, 2 * US, 0, "ns"),
        (61, 60 * S, 24, "us")]]
    yield from random_sequences("window", quotas, ("take", "take", "take", "take_upto", "peek",
                                                   "charge", "refund"), 70)
    yield from charge_stories(Terms("window", 1000, HOUR, resolution=24),
                              Terms("window", 120, HOUR, resolution=24))
    yield from charge_stories(Terms("window", 1000, HOUR, resolution=12),
                              Terms("window", 58, HOUR, resolution=12))
    yield story(Terms("window", 23, HOUR, resolution=24), "each unit its own bunch",
                *[(now, "take", 1) for now in range(0, 2300, 100)], (2400, "charge", 3),
                (2400, "peek", 1), (2400, "refund", 2, 2400), (2400, "peek", 1),
                (2400, "refund", 2, 2400), (2400, "take_upto", 2), (4050, "peek", 0), unit="s")


def buckets_file():
    quotas = [(Terms("buckets", n, w, time_slack_ns=o, count_slack=k), unit)
              for n, w, o, k, unit in [
        (500, 10 * MINUTE, MINUTE, 50, "us"), (20, 10 * S, S, 0, "ns"), (20, 10 * S, 0, 3, "ns"),
        (5, 7 * US, 3 * US, 2, "ns"), (1, S, S, 1, "us"), (100_000, DAY, HOUR, 2_000, "ns"),
        (30, 1_000_003, 99_991, 4, "ns"),
        (1_000_000, 10 * MINUTE, MINUTE, 50_000, "ns")]]
    yield from random_sequences("buckets", quotas, ("take", "take", "take", "take_upto", "peek",
                                                    "charge", "refund"), 50)
    for slack in ((0, 100), (5 * MINUTE, 100), (5 * MINUTE, 0)):
        yield from charge_stories(
            Terms("buckets", 1000, HOUR, time_slack_ns=slack[0], count_slack=slack[1]),
            Terms("buckets", 50, HOUR, time_slack_ns=slack[0], count_slack=slack[1] // 20))


def log_file():
    quotas = [(Terms("log", n, w), unit) for n, w, unit in [
        (5, S, "us"), (1, US, "ns"), (100, MINUTE, "ns"), (15, 1_000_003, "ns"), (1000, DAY, "us")]]
    yield from random_sequences("log", quotas, ("take", "take", "take", "take_upto", "peek",
                                                "charge", "refund"), 50)
    yield from charge_stories(Terms("log", 1000, HOUR), Terms("log", 50, HOUR))


def debt_stories(terms):
    """A cost of 0 is denied in debt, until to the nanosecond of the wait; and not without debt."""
    yield story(terms, "a cost of 0 in debt", (0, "take", terms.limit), (0, "take", 0),
                (0, "peek", 0), (0, "take_upto", 0), (1, "charge", terms.limit // 2 + 1),
                (1, "take", 0), (1, "peek", 0), (1, "take_upto", 0), (1, "take_upto", 1))
    writer = Writer(terms, "ns", "the wait of a cost of 0 is exact")
    writer.step(0, "take", terms.limit)
    writer.step(1, "charge", terms.limit // 2 + 1)
    ends = 1 + writer.step(1, "peek", 0).retry_after
    for now in (ends - 1, ends):
        for verb in ("take", "take_upto", "peek"):
            writer.step(now, verb, 0)
    yield writer


def gcra_file():
    quotas = [(Terms("gcra", n, w, burst=b), unit) for n, w, b, unit in [
        (100, MINUTE, 20, "us"), (3, MINUTE, 3, "ns"), (7, S, 0, "ns"), (1_000_003, S, 50, "ns"),
        (1, DAY, 1, "us"), (30_000_000, S, 1000, "ns"), (999, S, 10, "ns"), (50, S, 5, "us"),
        (2**32 - 1, 300 * S, 2**32 - 1, "ns")]]
    quotas.append((Terms("gcra", 10, S, burst=4, count_denied=True), "us"))
    yield from random_sequences("gcra", quotas, ("take", "take", "take", "take_upto", "peek",
                                                 "charge", "refund", "book"), 60)
    yield from debt_stories(Terms("gcra", 10, S, burst=10))
    yield from debt_stories(Terms("gcra", 7, 1_000_003))


def fixed_window_file():
    quotas = [(Terms("fixed_window", n, w, align=ALIGN[align]), unit) for n, w, align, unit in [
        (10, S, "epoch", "us"), (1000, MINUTE, "epoch", "ns"), (3, 1_000_003, "epoch", "ns"),
        (20, HOUR, "first_use", "us"), (5, MINUTE, "first_use", "ns")]]
    quotas += [(Terms("fixed_window", n, CALENDAR_NS[ALIGN[align]], align=ALIGN[align],
                      utc_offset_s=offset), "us") for n, align, offset in [
        (100, "day", 0), (100, "day", 3600), (50, "week", -12 * 3600), (1000, "month", 3600),
        (31, "month", 0), (12, "year", 0), (12, "year", 19800), (7, "week", 0)]]
    quotas.append((Terms("fixed_window", 6, MINUTE, count_denied=True), "us"))
    yield from random_sequences(
        "fixed_window", quotas, ("take", "take", "take", "take_upto", "peek", "charge"), 70)
    yield from debt_stories(Terms("fixed_window", 10, S))
    yield from debt_stories(Terms("fixed_window", 10, S, align=ALIGN["first_use"]))


def sliding_counter_file():
    quotas = [(Terms("sliding_counter", n, w), unit) for n, w, unit in [
        (100, MINUTE, "us"), (1, S, "ns"), (7, 1_000_003, "ns"), (1000, HOUR, "ns"),
        (3, 2 * US, "ns"), (2**32 - 1, DAY, "ns")]]
    quotas.append((Terms("sliding_counter", 6, MINUTE, count_denied=True), "us"))
    yield from random_sequences("sliding_counter", quotas, ("take", "take", "take", "take_upto",
                                                            "peek", "charge"), 50)
    yield from debt_stories(Terms("sliding_counter", 10, S))
    yield from debt_stories(Terms("sliding_counter", 7, 1_000_003))


def concurrency_file():
    quotas = [(Terms("concurrency", n, 0, lease_ns=lease), unit) for n, lease, unit in [
        (10, 30 * S, "us"), (1, US, "ns"), (3, MINUTE, "ns")]]
    yield from random_sequences("concurrency", quotas, ("take",), 15)


def story(terms, name, *steps, unit="ns"):
    """The steps' times are in `unit`; whole seconds are told in microseconds."""
    scale = {"ns": 1, "us": US, "s": S}[unit]
    writer = Writer(terms, "us" if unit == "s" else unit, name)
    for now, verb, cost, *granted_at in steps:
        extra = {"granted_at": granted_at[0] * scale} if granted_at else {}
        writer.step(now * scale, verb, cost, **extra)
    return writer


def flawed_forms_file():
    """One sequence for each flawed form in circulation: an implementation with it fails here."""
    burst = Terms("gcra", 100, MINUTE, burst=20)
    yield story(burst, "the value before the cost is compared: one unit too many",
                *[(0, "take", 1)] * 21)
    yield story(burst, "clamped to now less the tolerance: two bursts after idling",
                (0, "take", 20), (HOUR, "take", 20), (HOUR, "take", 1))
    yield story(Terms("gcra", 1_000_003, S, burst=1), "T truncated to whole nanoseconds: too fast",
                (0, "take", 1), (999, "take", 1), (1000, "take", 1))
    yield story(Terms("gcra", 100, S, burst=10), "32-bit seconds: what is owed is forgotten",
                (0, "take", 10), (20 * MS, "take", 10), (20 * MS, "take", 2),
                (2**32 * US, "take", 10))
    yield story(Terms("gcra", 10, S, burst=10), "a refund of what has flowed back",
                (0, "take", 10), (S, "take", 10), (S, "refund", 10, 0), (S, "take", 1))
    yield story(Terms("buckets", 100, 10 * S, time_slack_ns=S), "released at creation: 199 for 100",
                (0, "take", 1), (S - 1, "take", 99), (10 * S, "take", 100),
                (11 * S - 1, "take", 100))
    cooldown = Terms("buckets", 500, 10 * MINUTE, time_slack_ns=MINUTE, count_slack=50)
    yield story(cooldown, "close time of a bucket that was filled early: denies O too long",
                (0, "take", 500), (10 * MINUTE - 1, "take", 1), (10 * MINUTE, "take", 500))
    yield story(cooldown, "twenty buckets alive at once", (0, "take", 1), (59 * S, "take", 1),
                *[(n * MINUTE, "take", 1) for n in range(1, 10)], (10 * MINUTE, "take", 451),
                (10 * MINUTE, "take_upto", 500))
    yield story(Terms("sliding_counter", 100, MINUTE), "inverted weight: 2N across an edge",
                (MINUTE - 1, "take", 100), (MINUTE, "take", 1), (MINUTE + MINUTE // 2, "take", 50),
                (MINUTE + MINUTE // 2, "take", 1))
    yield story(Terms("sliding_counter", 3, S), "refused requests counted: a client is starved",
                *[(n * S // 4, "take", 1) for n in range(16)])
    yield story(Terms("log", 5, S), "a set of timestamps: one instant counts once",
                *[(7, "take", 1)] * 6, (S + 6, "take", 1), (S + 7, "take", 5))
    yield story(Terms("log", 2, 100 * US), "a refund taken from the newest record",
                (0, "take", 1), (50, "take", 1), (60, "refund", 1, 0), (60, "take", 1),
                (100, "take", 1), (150, "take", 1), unit="us")
    wrapping = Terms("window", 12, 12 * MINUTE, resolution=12)
    yield story(wrapping, "a wrapped slot number", (0, "take", 12),
                *[(MINUTE << bits, "peek", 12) for bits in range(4, 22)])
    yield story(Terms("window", 240, 24_000, resolution=24), "a bunch left in its first slot",
                (0, "take", 1), (23_000, "take", 9), (23_500, "take", 230), (25_000, "take", 10))
    yield story(Terms("window", 15, MINUTE), "fewer units than slots: each is its own bunch",
                *[(0, "take", 1)] * 16)
    yield story(Terms("log", 10, S), "best effort with nothing left is a denial that says 0",
                (0, "take_upto", 25), (0, "take_upto", 25), (S, "take_upto", 3))


FILES = {
    "window": window_file, "buckets": buckets_file, "log": log_file, "gcra": gcra_file,
    "fixed_window": fixed_window_file, "sliding_counter": sliding_counter_file,
    "concurrency": concurrency_file, "flawed_forms": flawed_forms_file,
}


def text_of(name):
    return "".join(writer.line() + "\n" for writer in FILES[name]())


def main():
    stale = []
    for name in FILES:
        path, text = HERE / f"{name}.jsonl", text_of(name)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path.name)
            if "--check" not in sys.argv:
                path.write_text(text, encoding="utf-8")
    if "--check" in sys.argv and stale:
        sys.exit(f"not what the models say: {', '.join(stale)}")


if __name__ == "__main__":
    main()
