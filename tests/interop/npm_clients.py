# SPDX-License-Identifier: MIT
"""Clients of npm, as the lock file pins them, in the build folder."""
import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from program import SOURCE

FOLDER = SOURCE / "tests/interop/npm"


def _install(folder):
    lock, mark = (FOLDER / "package-lock.json").read_bytes(), folder / "installed.json"
    if mark.exists() and mark.read_bytes() == lock:
        return
    for name in ("package.json", "package-lock.json"):
        shutil.copy(FOLDER / name, folder / name)
    done = subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"],
                          cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"npm ci: {done.stderr[-300:]}"
    mark.write_bytes(lock)


@pytest.fixture(scope="module")
def node():
    """Runs one of the scripts in tests/interop/npm; gives what it printed."""
    assert shutil.which("npm") and shutil.which("node"), "tools/setup.sh test installs them"
    folder = Path(os.environ["STINT_BUILD"]) / "tests/npm"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # files of tests run side by side
        _install(folder)

    def run(script, *arguments):
        done = subprocess.run(
            ["node", FOLDER / script, *map(str, arguments)], capture_output=True, text=True,
            timeout=60, env={**os.environ, "NODE_PATH": str(folder / "node_modules")})
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
