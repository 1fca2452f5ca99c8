# SPDX-License-Identifier: MIT
"""The vectors are what the models say, and the library decides as they expect."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import stint_abi as abi

VECTORS = Path(abi.ROOT) / "tests" / "vectors"
FILES = sorted(VECTORS.glob("*.jsonl"))


def test_the_vectors_are_what_the_models_say():
    subprocess.run([sys.executable, VECTORS / "generate.py", "--check"], check=True)


def test_there_are_several_hundred_over_all_algorithms():
    sequences = [json.loads(line) for path in FILES for line in path.read_text().splitlines()]
    assert len(sequences) >= 300
    assert {sequence["quota"].split()[0] for sequence in sequences} == set(abi.ALGORITHMS)
    assert {sequence["unit"] for sequence in sequences} == {"ns", "us"}
    outcomes = [step["expect"].get("outcome") for s in sequences for step in s["steps"]]
    assert all(outcomes.count(name) > 200 for name in ("allow", "deny", "never"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_library_decides_as_the_vectors_expect(path):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        sequence = json.loads(line)
        state = abi.State(abi.parse(sequence["quota"]))
        unit = {"ns": 1, "us": 1000}[sequence["unit"]]
        for step in sequence["steps"]:
            at = step.get("granted_at", step.get("max_wait", 0))
            answer = state.ask(step["now"] * unit, step["verb"], step["cost"], at * unit)._asdict()
            for name in ("retry_after", "reset_after"):
                never = answer[name] == abi.NEVER_NS
                answer[name] = None if never else -(-answer[name] // unit)
            got = {name: answer[name] for name in step["expect"]}
            assert got == step["expect"], f"{path.name}:{number}: {step}"
