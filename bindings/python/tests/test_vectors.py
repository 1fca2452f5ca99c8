# SPDX-License-Identifier: MIT
"""The binding decides as the vectors of the project and its exact models say."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import stint
from stint.testing import Clock
from support import ROOT

sys.path.insert(0, str(ROOT / "tests/property"))
from oracle import Terms, model_of  # noqa: E402

VECTORS = sorted((ROOT / "tests/vectors").glob("*.jsonl"))
NEVER_NS = 2**64 - 1
FIELDS = ("outcome", "granted", "limit", "remaining", "retry_after", "reset_after")


def answer(decision: stint.Decision, unit: int) -> dict[str, object]:
    """A decision as vectors write it, its waits rounded up to the unit."""
    waits = {"retry_after": decision.retry_after_ns, "reset_after": decision.reset_after_ns}
    return {"outcome": decision.outcome, "granted": decision.granted, "limit": decision.limit,
            "remaining": decision.remaining,
            **{name: None if ns == NEVER_NS else -(-ns // unit) for name, ns in waits.items()}}


def ask(limiter: stint.Limiter, verb: str, cost: int, granted_at_ns: int) -> stint.Decision:
    if verb == "refund":
        return limiter.refund("key", cost, granted_at_ns)
    return getattr(limiter, verb)("key", cost)


def differs(limiter: stint.Limiter, verb: str) -> bool:
    """Whether a table's key may answer otherwise than a state of its own, here and afterwards.

    The binding has no bookings. A table knows that there are none, so that it gives units of gcra
    back also while more than a burst is owed.
    """
    (quota,) = limiter.quotas
    burst_ns = quota.period_ns * quota.burst // max(quota.limit, 1)
    return verb == "book" or (verb == "refund" and quota.algorithm == "gcra"
                              and limiter.peek("key").reset_after_ns > burst_ns)


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_vectors(path: Path) -> None:
    compared = 0
    for number, line in enumerate(path.read_text().splitlines(), 1):
        sequence = json.loads(line)
        unit = {"ns": 1, "us": 1000}[sequence["unit"]]
        clock = Clock()
        with stint.Table(keys=16, tickets=16, clock=clock, wide_size=65_536,
                         keys_wide=16) as table:
            limiter = stint.Limiter(table, sequence["quota"])
            for step in sequence["steps"]:
                clock.advance_ns(step["now"] * unit - clock.now_ns)
                if differs(limiter, step["verb"]):
                    break
                decision = ask(limiter, step["verb"], step["cost"],
                               step.get("granted_at", 0) * unit)
                got = answer(decision, unit)
                assert {name: got[name] for name in step["expect"]} == step["expect"], (
                    f"{path.name}:{number}: {step}")
                compared += 1
    assert compared > 100


TERMS = st.one_of(
    st.builds(lambda n, w: Terms("window", n, w), st.integers(1, 200),
              st.sampled_from([10**9, 7 * 10**8 + 1, 60 * 10**9])),
    st.builds(lambda n, b: Terms("gcra", n, 60 * 10**9, burst=b), st.integers(1, 1000),
              st.integers(1, 50)),
    st.builds(lambda n: Terms("log", n, 10**9), st.integers(1, 60)),
    st.builds(lambda n: Terms("sliding_counter", n, 10**9), st.integers(1, 60)),
    st.builds(lambda n: Terms("fixed_window", n, 10**9), st.integers(1, 60)),
)
STEPS = st.lists(st.tuples(
    st.one_of(st.sampled_from([0, 1]), st.integers(0, 2 * 10**9)),
    st.sampled_from(["take", "take", "take_upto", "peek", "charge"]),
    st.one_of(st.integers(0, 5), st.integers(0, 250))), min_size=1, max_size=40)


@given(TERMS, STEPS)
def test_models(terms: Terms, steps: list[tuple[int, str, int]]) -> None:
    options = {"burst": terms.burst} if terms.burst else {}
    quota = stint.Quota(limit=terms.limit, period=f"{terms.period_ns}ns",
                        algorithm=terms.algorithm, **options)
    clock, model = Clock(), model_of(terms)
    with stint.Table(keys=16, tickets=16, clock=clock) as table:
        limiter = stint.Limiter(table, quota, name="models")
        for advance_ns, verb, cost in steps:
            clock.advance_ns(advance_ns)
            got = answer(ask(limiter, verb, cost, 0), 1)
            its = model.ask(clock.now_ns, verb, cost)._asdict()
            expected = {name: its[name] for name in FIELDS if its[name] is not None}
            if expected.get("retry_after") == NEVER_NS:
                expected["retry_after"] = None
            assert {name: got[name] for name in expected} == expected, (verb, cost)
