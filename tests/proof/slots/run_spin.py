#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: run_spin.py holds|fails MODEL [-Dx …], in the folder of the model

Searches every state of a model. holds: no assertion fails in any; fails: spin must find one that
does, so that what the model leaves out is seen to be needed.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

DEPTH = 2_000_000
MEMORY_MB = 6000
STATS = re.compile(r"^\s*([\d.e+]+) states, stored", re.M)
DEEPEST = re.compile(r"depth reached (\d+), errors: (\d+)")


def run(folder, *words):
    done = subprocess.run([str(word) for word in words], cwd=folder, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{done.stdout}\nrun_spin: {words[0]} failed")
    return done.stdout


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in ("holds", "fails"):
        sys.exit(__doc__)
    expected, model, *defines = sys.argv[1:]
    folder = Path(os.environ["PROOF_BUILD"])
    run(folder, "spin", "-a", *defines, Path.cwd() / model)
    run(folder, "gcc", "-O2", "-w", "-DSAFETY", "-DCOLLAPSE", f"-DMEMLIM={MEMORY_MB}",
        "-o", "pan", "pan.c")
    output = run(folder, "./pan", "-E", "-n", f"-m{DEPTH}")
    states, deepest = STATS.search(output), DEEPEST.search(output)
    if not states or not deepest or "max search depth too small" in output:
        sys.exit(f"{output}\nrun_spin: the search was not complete")
    errors = int(deepest.group(2))
    incomplete = "Search not completed" in output and errors == 0
    if incomplete or (errors > 0) != (expected == "fails"):
        sys.exit(f"{output}\nrun_spin: {errors} errors, and that {expected} was expected")
    found = re.search(r"pan:\d+: (.*?) \(at depth", output)
    print(f"{float(states.group(1)):,.0f} states, depth {int(deepest.group(1)):,}"
          + (f", found: {found.group(1)}" if found else ", all searched"))


if __name__ == "__main__":
    main()
