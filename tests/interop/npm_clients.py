# SPDX-License-Identifier: MIT
"""Clients of npm, as the lock file pins them, in the build folder."""
import subprocess

import pytest

from builds import INTEROP, npm_folder


@pytest.fixture(scope="module")
def node():
    """Runs one of the scripts in tests/interop/npm; gives what it printed."""
    folder = npm_folder(INTEROP / "npm")

    def run(script, *arguments):
        done = subprocess.run(["node", folder / script, *map(str, arguments)],
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
