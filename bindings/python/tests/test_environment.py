# SPDX-License-Identifier: MIT
"""How these tests are run: tools/python_package.py, without PyPI and after a change."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import stint

SOURCE = Path(os.environ["STINT_SOURCE"])


def test_without_pypi_it_says_so(tmp_path: Path) -> None:
    """The index is a port at which nothing listens."""
    environment = {**os.environ, "PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_RETRIES": "0",
                   "PIP_FIND_LINKS": "", "PIP_EXTRA_INDEX_URL": ""}
    done = subprocess.run([sys.executable, SOURCE / "tools/python_package.py", tmp_path / "build"],
                          capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "python_package: pip cannot install bindings/python/tests/requirements.txt; these tests "
        "need PyPI; the reason is above")
    assert "Connection refused" in done.stderr
    assert not list((tmp_path / "build/python-package").glob("*.sha256"))


def test_the_installed_package_is_tested() -> None:
    """From the wheel, in the virtual environment: not from the source."""
    module = Path(stint.__file__).resolve()
    assert module.is_relative_to(Path(sys.prefix).resolve())
    assert not module.is_relative_to(SOURCE / "bindings")


def test_the_smoke_test() -> None:
    done = subprocess.run([sys.executable, Path(__file__).with_name("smoke.py")],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"stint {stint.__version__}: Python ")
