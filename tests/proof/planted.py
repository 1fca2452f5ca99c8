# SPDX-License-Identifier: MIT
"""What proofs share: their tables; copies of the code with an error in them, to be found."""

import os
import shutil
import sys
from pathlib import Path

SOURCE = Path(os.environ["STINT_SOURCE"])
FOLDERS = ("algorithm", "base")


def copy(name=None, old=None, new=None, folders=FOLDERS):
    """A copy of folders of src/, in which NEW stands for the only OLD in a file."""
    source = Path(os.environ["PROOF_BUILD"]) / "src"
    for folder in folders:
        shutil.copytree(SOURCE / "src" / folder, source / folder)
    if name is None:
        return source
    text = (source / name).read_text()
    if text.count(old) != 1:
        sys.exit(f"{name} has {old!r} {text.count(old)} times, expected once")
    (source / name).write_text(text.replace(old, new))
    return source


def row(table, name, columns):
    """The line of a table that begins with that name, without it; the last column has spaces."""
    for line in table.read_text().splitlines():
        words = line.split(None, columns - 1)
        if len(words) == columns and words[0] == name:
            return words[1:]
    return sys.exit(f"no {name} in {table}")
