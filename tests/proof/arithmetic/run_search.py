#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: run_search.py holds WORLD [PROPERTY...]
       run_search.py fast WORLD PROPERTY...
       run_search.py fails WORLD PROPERTY FILE OLD NEW

Runs search.c in a world, a line of `worlds`; without a PROPERTY all of them. Sanitizers look for
what C leaves undefined. fast: without them, for billions of cases. fails: in a copy where NEW
stands for the only OLD in FILE, below src/; then a property must fail.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import planted  # noqa: E402
from planted import SOURCE, row  # noqa: E402

NO_CASES = 2  # exit code of search.c
SANITIZED = ["-O2", "-fsanitize=undefined,address", "-fno-sanitize-recover=all"]


def main():
    expected, name, *rest = sys.argv[1:] if len(sys.argv) > 2 else ["", ""]
    if expected not in ("holds", "fast", "fails") or expected == "fails" and len(rest) != 4:
        sys.exit(__doc__)
    properties, plant = (rest[:1], rest[1:]) if expected == "fails" else (rest, [])
    algorithm, words, parts, span, stretches, fields = row(HERE / "worlds", name, 7)
    source = planted.copy(*plant) if plant else SOURCE / "src"
    program = Path(os.environ["PROOF_BUILD"]) / "search"
    subprocess.run(
        ["gcc", "-std=gnu17", "-g", *(["-O3"] if expected == "fast" else SANITIZED),
         f"-I{source}", f"-I{SOURCE / 'include'}",
         f"-DALGORITHM={algorithm}", f"-DFOR_{algorithm}",
         f'-DALGORITHM_FILE="algorithm/{algorithm}.c"', f"-DSTATE_WORDS={words}",
         f"-DQUOTA={fields}", f"-DPARTS={parts}", f"-DSPAN={span}", f"-DSTRETCHES={stretches}",
         "-o", program, HERE / "search.c", source / "algorithm/calendar.c"], check=True)
    n_cases = 0
    for words in [[name] for name in properties] or [[]]:
        done = subprocess.run([program, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, check=False)
        if (done.returncode != 0) != (expected == "fails") or done.returncode == NO_CASES:
            sys.exit(f"{done.stdout}\nrun_search: exit code {done.returncode}, and that the "
                     f"property {expected} was expected")
        n_cases += sum(int(n) for n in re.findall(r"^(\d+) cases hold", done.stdout, re.M))
    print(f"found: {done.stdout.strip().splitlines()[0]}" if expected == "fails"
          else f"{n_cases:,} cases hold")


if __name__ == "__main__":
    main()
