# SPDX-License-Identifier: MIT
"""The Python package, built with this system's compiler and Python alone, offline.

What needs packages of PyPI is in bindings/python/tests.
"""

import os
import subprocess
import sys

from builds import PACKAGE, python_package
from program import SOURCE, STINT


def python(*words, **environment):
    done = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(python_package()), **environment},
                          timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_package_works():
    assert python(PACKAGE / "tests/smoke.py").endswith(": fine\n")


def test_it_is_the_version_of_the_program():
    version = python("-m", "stint", "--version").strip()
    told = subprocess.run([STINT, "--version"], capture_output=True, text=True, check=True).stdout
    assert version in told
    assert f"version: '{version}'" in (SOURCE / "meson.build").read_text()
