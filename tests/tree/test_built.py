# SPDX-License-Identifier: MIT
"""A source or a test that no meson.build names would silently not count."""

import json
import os
import re
from pathlib import Path

from test_files import SOURCE, shown, tracked

BUILD = Path(os.environ["STINT_BUILD"])
# Compiled by the tests that want them.
ELSEWHERE = re.compile(r"tests/(proof|vectors)/")


def told(kind):
    return json.loads((BUILD / f"meson-info/intro-{kind}.json").read_text())


def test_every_source_is_compiled():
    compiled = {Path(file).resolve() for target in told("targets")
                for part in target["target_sources"] for file in part.get("sources", [])}
    sources = [path for path in tracked("src/*.c", "tests/*.c", "fuzz/*.c", "bench/*.c")
               if not ELSEWHERE.match(shown(path))]
    assert len(sources) > 500
    wrong = [shown(path) for path in sources if path.resolve() not in compiled]
    assert not wrong, wrong


def test_every_test_is_run():
    run = {Path(word).resolve() for test in told("tests") for word in test["cmd"]}
    tests = tracked("tests/*/test_*.py", "bindings/python/tests/test_*.py")
    assert len(tests) > 150
    wrong = [shown(path) for path in tests if path.resolve() not in run]
    assert not wrong, wrong
