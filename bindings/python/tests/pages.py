# SPDX-License-Identifier: MIT
"""The code blocks of pages, for the tests that run them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from support import ROOT

DOCS = ROOT / "docs"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```\n", re.M | re.S)


class Block(NamedTuple):
    line: int
    language: str
    text: str
    output: str  # that of the `text` block below


def blocks(page: Path, begin: int = 0, end: int | None = None) -> Iterator[Block]:
    text = page.read_text()
    found = list(FENCE.finditer(text, begin, len(text) if end is None else end))
    for match, following in zip(found, [*found[1:], None]):
        output = ""
        if following and following[1] == "text" and not text[match.end():following.start()].strip():
            output = following[2]
        if match[1] != "text":
            yield Block(text.count("\n", 0, match.start()) + 1, match[1], match[2], output)


def sections(page: Path) -> Iterator[tuple[str, list[Block]]]:
    """The blocks below each heading."""
    text = page.read_text()
    starts = [match.start() for match in re.finditer(r"(?m)^#+ ", FENCE.sub(
        lambda fence: re.sub(r"[^\n]", "_", fence[0]), text))]
    for begin, end in zip(starts, [*starts[1:], len(text)]):
        if found := list(blocks(page, begin, end)):
            yield text[begin:text.index("\n", begin)].strip("# "), found


def run(page: Path, count: int, *changes: tuple[str, str]) -> dict[str, Any]:
    """Runs the `count` Python blocks of a page as one program, in which patterns are replaced.

    Returns its names.
    """
    found = [block for block in blocks(page) if block.language == "python"]
    assert len(found) == count, "the test knows another number of examples"
    names: dict[str, Any] = {}
    for block in found:
        code = "\n" * block.line + block.text
        for pattern, text in changes:
            code = re.sub(pattern, text, code)
        exec(compile(code, str(page), "exec"), names)
    return names
