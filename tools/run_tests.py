#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the tests in each kind of build and counts what really ran.

A kind is a build folder and the suites that run in it. The suites are registered in the
meson.build files; each program's own count is taken from its output (TAP from cmocka, the summary
of pytest), any other program counts as one test. One that breaks off counts as failed, whatever it
printed before.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COUNTS = ROOT / "build-test" / "counts"

# Places in the source are all that a report wants of the debugger's tables, and -O1 checks the same
# as -O2 does: both take half the time to compile.
LIGHT = ["-Dc_args=-g1", "-Doptimization=1"]

# name, compiler, options of meson setup, suites (none: all), factor on the timeouts, how many at
# once (0: as many as there are processors; tests of servers wait more than they work)
BUILDS = {
    "build-test": ("gcc", ["-Ddebug=false"], [], 1, (os.cpu_count() or 1) + 1),
    "build-asan": (
        "clang",
        [*LIGHT, "-Db_sanitize=address,undefined", "-Db_lundef=false", "-Dfuzzers=true"],
        ["unit", "behaviour", "trace", "race", "crash", "table", "attack", "fuzz"],
        4,
        0,
    ),
    "build-tsan": (
        "gcc",
        [*LIGHT, "-Db_sanitize=thread"],
        ["unit", "race"],
        8,
        0,
    ),
}

TAP_PLAN = re.compile(r"^1\.\.(\d+)$", re.M)
TAP_SKIP = re.compile(r"^not ok \d+ # SKIP\b", re.M)
TAP_PASS = re.compile(r"^ok \d+ - ", re.M)
PYTEST = re.compile(r"^=* ?((?:\d+ \w+(?:, )?)+) in [\d.]+s", re.M)


def run(*command, **options):
    """True if the command succeeded; its output is shown."""
    sys.stdout.flush()
    return subprocess.run(command, cwd=ROOT, **options).returncode == 0


def prepare(name, extra=()):
    """Configures (or reconfigures) and compiles; True if there is something to test."""
    compiler, options, *_ = BUILDS[name]
    command = ["meson", "setup", *options, *extra, name]
    if (ROOT / name / "build.ninja").exists():
        command.insert(2, "--reconfigure")
    env = dict(os.environ, CC=compiler)
    if not run(*command, env=env, stdout=subprocess.DEVNULL):
        return run(*command, env=env)  # once more, to show why
    return run("ninja", "-C", name, "--quiet", "-k", "0", *wanted(name, BUILDS[name][2]))


def wanted(name, suites):
    """What the tests of these suites need, as ninja names it; nothing, which is all, for all."""
    folder = ROOT / name
    info = {kind: json.loads((folder / "meson-info" / f"intro-{kind}.json").read_text())
            for kind in ("tests", "targets")}
    files = {target["id"]: target["filename"] for target in info["targets"]}
    needed = {file for test in info["tests"] for target in test["depends"] for file in files[target]
              if {suite.rpartition(":")[2] for suite in test["suite"]} & set(suites)}
    return sorted(str(Path(file).relative_to(folder)) for file in needed)


def count(test):
    """(passed, failed, skipped) of one program, from the record that meson keeps."""
    output = test.get("stdout") or ""
    if plans := TAP_PLAN.findall(output):
        passed = len(TAP_PASS.findall(output))
        skipped = len(TAP_SKIP.findall(output))
        failed = max(0, sum(map(int, plans)) - passed - skipped)
    elif summaries := PYTEST.findall(output):
        words = {word.rstrip("s"): int(n) for n, word in re.findall(r"(\d+) (\w+)", summaries[-1])}
        passed = words.get("passed", 0)
        failed = words.get("failed", 0) + words.get("error", 0) + words.get("xpassed", 0)
        skipped = words.get("skipped", 0)
    elif test["result"] == "SKIP":
        return 0, 0, 1
    else:
        passed, failed, skipped = (1, 0, 0) if test["result"] == "OK" else (0, 1, 0)
    if test["result"] != "OK" and failed == 0:
        failed = 1
    return passed, failed, skipped


def run_build(name, suites, extra=()):
    """Runs the suites in one build; (passed, failed, skipped)."""
    print(f"\n=== {name}: building", flush=True)
    started = time.monotonic()
    if not prepare(name, extra):
        print(f"=== {name}: does not build", flush=True)
        return 0, 1, 0
    print(f"=== {name}: built in {time.monotonic() - started:.0f} s; testing", flush=True)
    factor, processes = BUILDS[name][3:]
    log = ROOT / name / "meson-logs" / "testlog.json"
    log.unlink(missing_ok=True)
    command = ["meson", "test", "-C", name, "--no-rebuild", "--print-errorlogs", "-t", str(factor)]
    if processes > 0:
        command += ["--num-processes", str(processes)]
    for suite in suites:
        command += ["--suite", suite]
    good = run(*command)
    tests = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    passed = failed = skipped = 0
    for test in tests:
        p, f, s = count(test)
        passed, failed, skipped = passed + p, failed + f, skipped + s
    if not good and failed == 0:
        failed = 1  # meson itself gave up
    if not tests:
        failed = max(failed, 1)
    print(f"=== {name}: {passed} passed, {failed} failed, {skipped} skipped, "
          f"{time.monotonic() - started:.0f} s", flush=True)
    return passed, failed, skipped


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fuzz", type=int, metavar="SECONDS", help="only the fuzzers, for so long")
    parser.add_argument("builds", nargs="*", help=f"of {', '.join(BUILDS)}; default: all")
    args = parser.parse_args()
    if unknown := set(args.builds) - BUILDS.keys():
        parser.error(f"no such build: {', '.join(sorted(unknown))}")

    if args.fuzz:
        totals = [run_build("build-asan", ["fuzz"], [f"-Dfuzz_seconds={args.fuzz}"])]
    else:
        totals = [run_build(name, BUILDS[name][2]) for name in args.builds or BUILDS]
    passed, failed, skipped = map(sum, zip(*totals))
    if skipped:
        print(f"\n{skipped} skipped: see why in */meson-logs/testlog.txt")
    line = f"{passed} passed, {failed} failed"
    COUNTS.parent.mkdir(exist_ok=True)
    COUNTS.write_text(line + "\n")
    print(line, flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
