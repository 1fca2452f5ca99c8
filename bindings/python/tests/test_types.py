# SPDX-License-Identifier: MIT
"""Type checkers accept the package, and a program that uses all of its interface."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import stint

PACKAGE = Path(os.environ["STINT_SOURCE"]) / "bindings/python"
SAMPLE = PACKAGE / "tests/types_sample.py"
MYPY_CACHE = Path(os.environ["STINT_BUILD"]) / "mypy"  # of the interpreter's and packages' modules


def checked(folder: Path, *command: object) -> str:
    """Runs a checker; what it printed."""
    environment = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1",
                   "PYRIGHT_PYTHON_CACHE_DIR": os.path.join(os.environ["STINT_BUILD"], "pyright")}
    done = subprocess.run([sys.executable, "-m", *map(str, command)], cwd=folder, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600,
                          env=environment)
    return done.stdout


def test_mypy() -> None:
    found = checked(PACKAGE, "mypy", "--strict", "--cache-dir", MYPY_CACHE, "src/stint", SAMPLE)
    assert found.startswith("Success: no issues found in "), found


def test_pyright(tmp_path: Path) -> None:
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed: it brings pyright")
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({
        "include": [os.path.relpath(SAMPLE, tmp_path)], "pythonVersion": "3.10",
        "enableTypeIgnoreComments": False, "reportUnnecessaryTypeIgnoreComment": True}))
    found = checked(tmp_path, "pyright", "--project", tmp_path, "--pythonpath", sys.executable,
                    "--stats")
    assert "Total files checked: 1\n" in found and "0 errors, 0 warnings" in found, found


def test_the_installed_package_is_typed(tmp_path: Path) -> None:
    """As users check it: with the wheel, without the source."""
    (tmp_path / "wrong.py").write_text("import stint\nstint.Quota(100)\nstint.quota_of('1/1s')\n")
    found = checked(tmp_path, "mypy", "--strict", "--cache-dir", MYPY_CACHE, "wrong.py")
    assert re.findall(r"(?m)^wrong.py:(\d+): error: ", found) == ["2", "3"], found


def test_the_sample_names_all_of_the_interface() -> None:
    """Each name of stint.__all__ is used there, or is listed here."""
    text = SAMPLE.read_text()
    elsewhere = {"Error", "Hold", "Lease", "simulate"}
    missing = [name for name in stint.__all__
               if name not in elsewhere and not re.search(rf"\bstint\.{name}\b", text)]
    assert missing == []
