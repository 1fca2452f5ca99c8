# SPDX-License-Identifier: MIT
"""What the pages on the Python package say is so: each block runs, and prints what stands below it.

The blocks of a section run in order, in a folder of their own that is also their /dev/shm.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import stint

SOURCE = Path(os.environ["STINT_SOURCE"])
PROGRAM = Path(os.environ["STINT_BIN"])
MAIN = SOURCE / "docs/python.md"
PAGES = [MAIN, SOURCE / "bindings/python/README.md"]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```\n", re.M | re.S)


class Block(NamedTuple):
    line: int
    language: str
    text: str
    output: str  # that of the `text` block below


def blocks(page: Path, begin: int, end: int) -> Iterator[Block]:
    text = page.read_text()
    found = list(FENCE.finditer(text, begin, end))
    for match, following in zip(found, [*found[1:], None]):
        output = ""
        if following and following[1] == "text" and not text[match.end():following.start()].strip():
            output = following[2]
        if match[1] != "text":
            yield Block(text.count("\n", 0, match.start()) + 1, match[1], match[2], output)


def sections() -> Iterator[object]:
    for page in PAGES:
        text = page.read_text()
        starts = [match.start() for match in re.finditer(r"(?m)^#+ ", FENCE.sub(
            lambda fence: re.sub(r"[^\n]", "_", fence[0]), text))]
        for begin, end in zip(starts, [*starts[1:], len(text)]):
            if found := list(blocks(page, begin, end)):
                title = text[begin:text.index("\n", begin)].strip("# ")
                yield pytest.param(found, id=f"{page.name}: {title}")


def command(block: Block, folder: Path) -> list[str]:
    text = block.text.replace("/dev/shm/", f"{folder}/")
    if block.language == "sh":
        return ["sh", "-e", "-c", text]
    script = folder / f"line_{block.line}.py"
    script.write_text(text)
    return [sys.executable, str(script)]


@pytest.mark.parametrize("section", list(sections()))
def test_a_section(section: list[Block], tmp_path: Path) -> None:
    (tmp_path / "bindings").symlink_to(SOURCE / "bindings")
    path = f"{Path(sys.executable).parent}:{PROGRAM.parent}:{os.environ['PATH']}"
    for block in section:
        done = subprocess.run(
            command(block, tmp_path), cwd=tmp_path, capture_output=True, text=True, timeout=300,
            env={**os.environ, "PATH": path})
        assert (done.returncode, done.stderr) == (0, ""), f"line {block.line}: {done.stderr}"
        if block.output or block.language == "python":
            assert done.stdout == block.output, f"line {block.line}"


def test_there_are_examples() -> None:
    languages = [block.language for block in blocks(MAIN, 0, len(MAIN.read_text()))]
    assert languages.count("python") > 12 and set(languages) == {"python", "sh"}


def test_the_first_limit_has_ten_lines() -> None:
    first = next(block for block in blocks(MAIN, 0, len(MAIN.read_text()))
                 if block.language == "python")
    assert first.text.count("\n") <= 10


def test_the_page_names_what_there_is() -> None:
    """Attributes and methods in `code` of the tables, and the sizes of tables."""
    text = MAIN.read_text()
    for name in re.findall(r"(?m)^\| `(\w+)\(", text):
        assert hasattr(stint.Limiter, name), name
    rows = re.search(r"\| attribute \| meaning \|\n(.*?)\n\n", text, re.S)
    assert rows is not None
    names = re.findall(r"`([a-z_]+)`", "".join(row.split("|")[1] for row in rows[1].splitlines()))
    assert len(names) >= 8
    for name in names:
        assert hasattr(stint.Decision, name), name
    large, default = re.findall(r"has (\d+) MB, the default (\d+) MB", text)[0]
    for keys, size in ((1_000_000, large), (65_536, default)):
        with stint.Table(keys=keys) as table:
            assert table.info()["bytes"] // 1_000_000 == int(size)
