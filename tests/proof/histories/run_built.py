#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: run_built.py PROGRAM WORD…: builds a program of tests/ and runs it."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path


def main():
    program, *words = sys.argv[1:]
    source, shared = Path(os.environ["STINT_SOURCE"]), Path(os.environ["PROOF_SHARED"])
    build = shared / "programs"
    with open(shared / "programs.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # steps run beside each other
        for command in ([source / "tools/configure.sh", build, "-Doptimization=2"],
                        ["ninja", "-C", build, "--quiet", f"tests/{program}"]):
            subprocess.run(command, cwd=source, check=True, stdout=subprocess.DEVNULL)
    output = subprocess.run([build / "tests" / program, *words], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, check=False)
    print(output.stdout.strip())
    sys.exit(output.returncode)


if __name__ == "__main__":
    main()
