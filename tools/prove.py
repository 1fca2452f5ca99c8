#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the proofs: model checkers and exhaustive searches. docs/proofs.md says what they prove.

Each folder tests/proof/PART has a file `steps`, one step a line:

    short|full  NAME  COMMAND

COMMAND runs in the folder of its part; its first word is a program there or in PATH. It passes if
it exits with 0, and the last line of its output is shown. PROOF_BUILD is a folder of its own for
what it makes, PROOF_SHARED one of all steps. The output is TAP; its last line is `N passed, N
failed`.
"""

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROOF = ROOT / "tests/proof"
CORES = os.cpu_count() or 1
SECONDS = {"short": 90, "full": 900}  # that a step may take


def read_steps():
    """Tuples (short or full, PART/NAME, folder of the part, words of the command)."""
    steps = []
    for table in sorted(PROOF.glob("*/steps")):
        for number, line in enumerate(table.read_text().splitlines(), 1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            size, name, *words = shlex.split(line)
            if size not in SECONDS or not words:
                sys.exit(f"prove: {table}:{number}: expected short|full NAME COMMAND")
            steps.append((size, f"{table.parent.name}/{name}", table.parent, words))
    return steps


def execute(words, folder, environment, seconds):
    """Exit code and output. What takes too long is ended with all that it started: None."""
    if (folder / words[0]).exists():
        words = [str(folder / words[0]), *words[1:]]
    with subprocess.Popen(words, cwd=folder, env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, start_new_session=True) as process:
        try:
            output = process.communicate(timeout=seconds)[0]
            return process.returncode, output
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return None, process.communicate()[0] + f"\nnot done after {seconds} s"


def run_step(step, build):
    """(whether it passed, seconds, output)."""
    size, name, folder, words = step
    own = build / name
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir(parents=True)
    environment = {**os.environ, "STINT_SOURCE": str(ROOT), "PROOF_BUILD": str(own),
                   "PROOF_SHARED": str(build)}
    started = time.monotonic()
    try:
        code, output = execute(words, folder, environment, SECONDS[size])
        passed = code == 0
    except OSError as error:
        passed, output = False, str(error)
    return passed, time.monotonic() - started, output


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true", help="only the steps of seconds")
    parser.add_argument("--list", action="store_true", help="only name the steps")
    parser.add_argument("build", type=Path, help="folder for what the steps make")
    parser.add_argument("words", nargs="*", metavar="WORD",
                        help="only steps with one of these in their names")
    args = parser.parse_args()

    steps = [step for step in read_steps() if not args.short or step[0] == "short"]
    if args.words:
        steps = [step for step in steps if any(word in step[1] for word in args.words)]
    if args.list:
        print("\n".join(f"{size:5}  {name}" for size, name, *_ in steps))
        return
    build, failed = args.build.resolve(), 0
    with ThreadPoolExecutor(CORES) as pool:
        runs = pool.map(lambda step: run_step(step, build), steps)
        for number, (step, (passed, seconds, output)) in enumerate(zip(steps, runs), 1):
            failed += not passed
            lines = output.strip().splitlines() or [""]
            result = "ok" if passed else "not ok"
            print(f"{result} {number} - {step[1]} ({seconds:.0f} s): {lines[-1]}", flush=True)
            if not passed:
                print("\n".join(f"# {line}" for line in lines[-40:]), flush=True)
    print(f"1..{len(steps)}\n{len(steps) - failed} passed, {failed} failed", flush=True)
    sys.exit(1 if failed or not steps else 0)


if __name__ == "__main__":
    main()
