# SPDX-License-Identifier: MIT
"""docs/field-tests.md names a test, or a reason, for every class of bug; and the tests exist."""

import os
import re
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent.parent
LINES = (SOURCE / "docs" / "field-tests.md").read_text(encoding="utf-8").splitlines()
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in LINES
        if line.startswith("| ") and not re.match(r"\| (#|what)", line)]
NAMED = re.compile(r"`(tests/[\w/.]+)(?:::|: )([^`]+)`")


def test_every_row_of_the_library_table_is_there():
    numbered = [row[0] for row in ROWS if re.fullmatch(r"B\d+", row[0])]
    assert numbered == [f"B{n}" for n in range(1, 31)]
    assert len(ROWS) - len(numbered) >= 18


def test_every_row_has_a_test_or_a_reason():
    for row in ROWS:
        tests, remark = row[-2], row[-1]
        assert NAMED.search(tests) or (tests == "none" and len(remark) > 10), row


def test_every_test_that_is_named_exists():
    missing = []
    for path, name in NAMED.findall("\n".join(LINES)):
        text = (SOURCE / path).read_text(encoding="utf-8") if os.path.exists(SOURCE / path) else ""
        begin = r"^def " if path.endswith(".py") else r"^(TEST\(|(static )?[\w ]+ \*?)"
        pattern = begin + name + r"[()]"
        if path.endswith(".jsonl"):
            pattern = re.escape(f'{{"name": "{name}", ')
        if not re.search(pattern, text, flags=re.M):
            missing.append(f"{path}::{name}")
    assert not missing, missing
