# SPDX-License-Identifier: MIT
"""Copies of the code with an error in them, which a proof must find."""

import os
import shutil
import sys
from pathlib import Path

SOURCE = Path(os.environ["STINT_SOURCE"])
FOLDERS = ("algorithm", "base")


def copy(name=None, old=None, new=None):
    """A copy of the folders of src/, in which NEW stands for the only OLD in a file."""
    source = Path(os.environ["PROOF_BUILD"]) / "src"
    for folder in FOLDERS:
        shutil.copytree(SOURCE / "src" / folder, source / folder)
    if name is None:
        return source
    text = (source / name).read_text()
    if text.count(old) != 1:
        sys.exit(f"{name} has {old!r} {text.count(old)} times, expected once")
    (source / name).write_text(text.replace(old, new))
    return source
