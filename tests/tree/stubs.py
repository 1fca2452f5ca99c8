# SPDX-License-Identifier: MIT
"""A copy of the Makefile and the tools, on a system whose programs are stubs."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(os.environ["STINT_SOURCE"])
SYSTEM = ("sh", "env", "id", "tr", "uname", "printf", "cat", "rm", "make", "touch", "mkdir", "sed",
          "grep", "cp", "dirname")


@pytest.fixture
def tree(tmp_path):
    """The copy, and a PATH with nothing else than the system's own programs."""
    for name in ("Makefile", "meson.build"):
        shutil.copy(SOURCE / name, tmp_path)
    shutil.copytree(SOURCE / "tools", tmp_path / "tools")
    (tmp_path / "bin").mkdir()
    for name in SYSTEM:
        (tmp_path / "bin" / name).symlink_to(shutil.which(name))
    stub(tmp_path, "gcc", "")
    return tmp_path


def stub(tree, name, script):
    path = tree / "bin" / name
    path.unlink(missing_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def run(tree, *command, **environment):
    """Its exit code and what it said on stderr."""
    done = subprocess.run(command, cwd=tree, env={"PATH": str(tree / "bin"), **environment},
                          capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr
