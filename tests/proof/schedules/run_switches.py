#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: run_switches.py holds WORD
       run_switches.py fails WORD FILE OLD NEW

Runs tests/race/race_switches.c on the plays with WORD in their names. fails: with a file of src/
in which NEW stands for the only OLD; then a play must fail.
"""

import fcntl
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import planted  # noqa: E402
from planted import SOURCE  # noqa: E402

LAYERS = ("table", "limiter", "algorithm", "base")
PROGRAM = ("scheduled", "schedule", "race_switches")
CFLAGS = ["-std=gnu17", "-O2", "-DNDEBUG"]


def compile_file(root, path, out):
    """`path` is below `root`, a copy of src/ or src/ itself, or one of tests/race."""
    hook = ["-include", SOURCE / "tests/race/schedule_hook.h"] if "table" in path.parts else []
    subprocess.run(["gcc", *CFLAGS, *hook, f"-I{root}", f"-I{SOURCE / 'tests'}",
                    f"-I{SOURCE / 'include'}", "-c", path, "-o", out], check=True)


def objects():
    """A dictionary of all files to their objects, which all steps share."""
    source = SOURCE / "src"
    files = [path for layer in LAYERS for path in sorted((source / layer).rglob("*.c"))
             if path.name != "clock.c"]  # which the scheduler stands for
    files += [SOURCE / f"tests/race/{name}.c" for name in PROGRAM]
    folder = Path(os.environ["PROOF_SHARED"]) / "schedules.objects"
    made = {path: folder / f"{'_'.join(path.relative_to(SOURCE).parts)}.o" for path in files}
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            with ThreadPoolExecutor() as pool:
                list(pool.map(lambda one: compile_file(source, *one), made.items()))
            (folder / "done").touch()
    return made


def main():
    expected, word, *plant = sys.argv[1:] if len(sys.argv) > 2 else ["", ""]
    if (expected, len(plant)) not in (("holds", 0), ("fails", 3)):
        sys.exit(__doc__)
    folder = Path(os.environ["PROOF_BUILD"])
    made = objects()
    if plant:
        name, old, new = plant
        root = planted.copy(name, old, new, folders=LAYERS)
        made[SOURCE / "src" / name] = folder / "planted.o"
        compile_file(root, root / name, folder / "planted.o")
    program = folder / "race_switches"
    subprocess.run(["gcc", "-o", program, *made.values(), "-lm"], check=True)
    done = subprocess.run([program, "0", word], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)
    if (done.returncode == 0) != (expected == "holds") or "\n0 schedules" in done.stdout:
        sys.exit(f"{done.stdout}\nrun_switches: exit code {done.returncode}, and that the plays "
                 f"{'hold' if plant == [] else 'fail'} was expected")
    lines = done.stdout.strip().splitlines()
    print(lines[-1] if expected == "holds"
          else "found: " + next(line for line in lines if ", turns " in line))


if __name__ == "__main__":
    main()
