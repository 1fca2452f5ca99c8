# SPDX-License-Identifier: MIT
"""The scripts decide every vector of unit us as it expects, each on a key that was never used."""

import json
from pathlib import Path

import pytest

import stint_abi as abi
from store import Store

VECTORS = Path(abi.ROOT) / "tests" / "vectors"
FILES = sorted(VECTORS.glob("*.jsonl"))


def sequences(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        sequence = json.loads(line)
        if sequence["unit"] == "us":
            yield number, sequence


def test_every_algorithm_has_vectors_in_us():
    names = {sequence["quota"].split()[0] for path in FILES for _, sequence in sequences(path)}
    assert names == set(abi.ALGORITHMS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_scripts_decide_as_the_vectors_expect(redis, path):
    store = Store(redis)
    for number, sequence in sequences(path):
        quota = abi.parse(sequence["quota"])
        for step in sequence["steps"]:
            at = step.get("granted_at", step.get("max_wait", 0))
            answer = store.ask(quota, f"vectors:{path.stem}:{number}", step["verb"], step["cost"],
                               step["now"], at)._asdict()
            got = {name: answer[name] for name in step["expect"]}
            assert got == step["expect"], f"{path.name}:{number}: {step}"
