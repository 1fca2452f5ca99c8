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

import pytest
from pages import DOCS, Block, blocks, sections

import stint

SOURCE = Path(os.environ["STINT_SOURCE"])
PROGRAM = Path(os.environ["STINT_BIN"])
MAIN = DOCS / "python.md"
PAGES = [MAIN, SOURCE / "bindings/python/README.md"]


def examples() -> Iterator[object]:
    for page in PAGES:
        for title, found in sections(page):
            yield pytest.param(found, id=f"{page.name}: {title}")


def command(block: Block, folder: Path) -> list[str]:
    text = block.text.replace("/dev/shm/", f"{folder}/")
    if block.language == "sh":
        return ["sh", "-e", "-c", text]
    script = folder / f"line_{block.line}.py"
    script.write_text(text)
    return [sys.executable, str(script)]


@pytest.mark.parametrize("section", list(examples()))
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
    languages = [block.language for block in blocks(MAIN)]
    assert languages.count("python") > 12 and set(languages) == {"python", "sh"}


def test_the_first_limit_has_ten_lines() -> None:
    first = next(block for block in blocks(MAIN)
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
