#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: run_search.py holds
       run_search.py fails FILE OLD NEW

Compiles search_window.c with the algorithms, and runs it. fails: in a copy where NEW stands for
the only OLD in FILE, below src/; the search must find the error.
"""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import planted  # noqa: E402
from planted import FOLDERS, SOURCE  # noqa: E402


def main():
    expected, *plant = sys.argv[1:] or [""]
    if (expected, len(plant)) not in (("holds", 0), ("fails", 3)):
        sys.exit(__doc__)
    folder = Path(os.environ["PROOF_BUILD"])
    source = planted.copy(*plant) if plant else SOURCE / "src"
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
