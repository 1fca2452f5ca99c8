# SPDX-License-Identifier: MIT
"""Programs of other languages that tests run: built once, from pinned sources, in the build folder.

A registry that cannot be reached is an error.
"""
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from program import SOURCE

INTEROP = SOURCE / "tests/interop"


def needs(*programs):
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")


def make(folder, command, needed):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, \
        f"{command[0]} failed; it needs {needed}:\n{done.stdout[-1500:]}{done.stderr[-1500:]}"


def built(source, make_in):
    """The folder of what make_in() makes from the files of source, made anew when those change."""
    files = sorted(path for path in source.iterdir() if path.is_file())
    mark = "".join(hashlib.sha256(path.read_bytes()).hexdigest() + "\n" for path in files)
    folder = Path(os.environ["STINT_BUILD"]) / "tests" / source.name
    done = folder / "built.sha256"
    if not done.exists() or done.read_text() != mark:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(source, folder)
        make_in(folder)
        done.write_text(mark)
    return folder


def go_program(source, name, package="."):
    """-mod=readonly: what go.sum does not name is not used."""
    needs("go")
    folder = built(INTEROP / source, lambda to: make(
        to, ["go", "build", "-mod=readonly", "-o", name, package], "the modules of go.mod"))
    return folder / name
