#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: run_search.py holds
       run_search.py fails FILE OLD NEW

Compiles search_window.c with the algorithms, and runs it. fails: in a copy where NEW stands for
the only OLD in FILE, below src/; the search must find the error.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = Path(os.environ["STINT_SOURCE"])
FOLDERS = ("algorithm", "base")


def planted_copy(folder, name, old, new):
    for part in FOLDERS:
        shutil.copytree(SOURCE / "src" / part, folder / part)
    text = (folder / name).read_text()
    if text.count(old) != 1:
        sys.exit(f"run_search: {name} has {old!r} {text.count(old)} times, expected once")
    (folder / name).write_text(text.replace(old, new))
    return folder


def main():
    expected, *plant = sys.argv[1:] or [""]
    if (expected, len(plant)) not in (("holds", 0), ("fails", 3)):
        sys.exit(__doc__)
    folder = Path(os.environ["PROOF_BUILD"])
    source = planted_copy(folder / "src", *plant) if plant else SOURCE / "src"
    files = [path for part in FOLDERS for path in sorted((source / part).glob("*.c"))]
    program = folder / "search_window"
    # The assertions of the code are left out: what is planted must be seen from outside.
    command = ["gcc", "-std=gnu17", "-O2", *(["-DNDEBUG"] if plant else []), f"-I{source}",
               f"-I{SOURCE / 'include'}", "-o", program, HERE / "search_window.c", *files, "-lm"]
    subprocess.run(command, check=True)
    done = subprocess.run([program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False)
    print(done.stdout, end="")
    if (done.returncode == 0) != (expected == "holds"):
        sys.exit(f"run_search: exit code {done.returncode}, and that the search {expected} was "
                 "expected")


if __name__ == "__main__":
    main()
