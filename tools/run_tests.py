#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs a part of the tests and counts what really ran; the last line is `N passed, N failed`.

A part is a list of build folders, each with the suites that run in it. The suites are named in the
meson.build files. Each program's own count is taken from its output (TAP, or the summary of
pytest); any other program counts as one test. One that breaks off counts as failed, whatever it
printed before. What was skipped is named.
"""

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CORES = os.cpu_count() or 1

# Places in the source are all that a report wants of the debugger's tables, and -O1 checks the same
# as -O2 does: both take half the time to compile.
LIGHT = ["-Dc_args=-g1", "-Doptimization=1"]
SEARCH = 5_000  # inputs that each fuzzer tries in `rest`

# name: compiler, options of meson setup, factor on the timeouts, how many tests at once (those of
# servers wait more than they work)
BUILDS = {
    "build-test": ("gcc", ["-Ddebug=false"], 1, 2 * CORES),
    "build-asan": (
        "clang",
        [*LIGHT, "-Db_sanitize=address,undefined", "-Db_lundef=false", "-Dfuzzers=true"],
        4,
        CORES,
    ),
    "build-tsan": ("gcc", [*LIGHT, "-Db_sanitize=thread"], 8, CORES),
}

# name of a part: builds and their suites
PARTS = {
    "test": {"build-test": ["quick"]},
    "rest": {
        "build-test": ["rest"],
        # Of threads and killed processes only what has memory of its own: a table is one mapping,
        # without bounds that AddressSanitizer knew.
        "build-asan": ["unit", "behaviour", "trace", "race-memory", "table", "attack", "fuzz"],
        "build-tsan": ["threads", "race"],
    },
    "envoy-gateway": {"build-test": ["envoy-gateway"]},
    "fuzz": {"build-asan": ["fuzz"]},
}

TAP_PLAN = re.compile(r"^1\.\.(\d+)$", re.M)
TAP_SKIP = re.compile(r"^(?:not )?ok \d+ # SKIP\b *(.*)", re.M)
TAP_PASS = re.compile(r"^ok \d+ - ", re.M)
PYTEST = re.compile(r"^=* ?((?:\d+ \w+(?:, )?)+) in [\d.]+s", re.M)
PYTEST_SKIP = re.compile(r"^SKIPPED \[(\d+)\] (.*)", re.M)
# What is skipped on a machine with all that tools/setup.sh installs.
KNOWN_SKIP = re.compile(r"no traefik here|the view's renderers choose|the server removes it"
                        r"|^\S+ / test_sandbox: ")
FUZZ_CASE = re.compile(r"Test unit written to (\S+)")


def run(*command, **options):
    """True if the command succeeded; its output is shown."""
    sys.stdout.flush()
    return subprocess.run(command, cwd=ROOT, **options).returncode == 0


def prepare(name, suites, extra):
    """Configures (or reconfigures) and compiles; True if there is something to test."""
    compiler, options, *_ = BUILDS[name]
    command = ["tools/configure.sh", name]
    if (ROOT / name / "build.ninja").exists():
        command = ["meson", "setup", "--reconfigure", name]
    if shutil.which("ccache"):
        compiler = f"ccache {compiler}"
    env = dict(os.environ, CC=compiler)
    command += [*options, *extra]
    if not run(*command, env=env, stdout=subprocess.DEVNULL):
        return run(*command, env=env)  # once more, to show why
    return run("ninja", "-C", name, "--quiet", "-k", "0", *wanted(name, suites))


def suites_of(test):
    return {suite.rpartition(":")[2] for suite in test["suite"]}


def wanted(name, suites):
    """What the tests of these suites need, as ninja names it. Some tests install stint."""
    folder = ROOT / name
    info = {kind: json.loads((folder / "meson-info" / f"intro-{kind}.json").read_text())
            for kind in ("tests", "targets")}
    files = {target["id"]: target["filename"] for target in info["targets"]}
    needed = {file for test in info["tests"] for target in test["depends"] for file in files[target]
              if suites_of(test) & set(suites)}
    if {"quick", "rest"} & set(suites):
        needed.update(file for target in info["targets"] if target["installed"]
                      for file in target["filename"])
    return sorted(str(Path(file).relative_to(folder)) for file in needed)


def count(test):
    """(passed, failed, [what was skipped]) of one program, from the record that meson keeps."""
    output = test.get("stdout") or ""
    skipped = []
    if plans := TAP_PLAN.findall(output):
        passed = len(TAP_PASS.findall(output))
        skipped = TAP_SKIP.findall(output)
        failed = max(0, sum(map(int, plans)) - passed - len(skipped))
    elif summaries := PYTEST.findall(output):
        words = {word.rstrip("s"): int(n) for n, word in re.findall(r"(\d+) (\w+)", summaries[-1])}
        passed = words.get("passed", 0)
        failed = words.get("failed", 0) + words.get("error", 0) + words.get("xpassed", 0)
        skipped = [reason for n, reason in PYTEST_SKIP.findall(output) for _ in range(int(n))]
        skipped += ["no reason given"] * (words.get("skipped", 0) - len(skipped))
    elif test["result"] == "SKIP":
        passed, failed, skipped = 0, 0, ["all of it"]
    else:
        passed, failed = (1, 0) if test["result"] == "OK" else (0, 1)
    if test["result"] not in ("OK", "SKIP") and failed == 0:
        failed = 1
    return passed, failed, [f"{test['name']}: {reason}" for reason in skipped]


def show_findings(tests):
    """Where an input is that a fuzzer stopped at, and what replays it."""
    for test in tests:
        output = (test.get("stdout") or "") + (test.get("stderr") or "")
        for kept in FUZZ_CASE.findall(output):
            print(f"=== a finding of {test['name']}; this replays it:\n"
                  f"FUZZ_SHOW=1 {test['command'][0]} {kept}")


def run_build(name, suites, extra):
    """Runs the suites in one build; (passed, failed, [what was skipped])."""
    print(f"\n=== {name}: building", flush=True)
    started = time.monotonic()
    if not prepare(name, suites, extra):
        print(f"=== {name}: does not build", flush=True)
        return 0, 1, []
    print(f"=== {name}: built in {time.monotonic() - started:.0f} s; testing", flush=True)
    factor, processes = BUILDS[name][2:]
    log = ROOT / name / "meson-logs" / "testlog.json"
    log.unlink(missing_ok=True)
    command = ["meson", "test", "-C", name, "--no-rebuild", "--print-errorlogs", "-t", str(factor),
               "--num-processes", str(processes)]
    for suite in suites:
        command += ["--suite", suite]
    good = run(*command)
    tests = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    counts = [count(test) for test in tests]
    passed, failed = (sum(part) for part in list(zip(*counts))[:2]) if counts else (0, 1)
    skipped = [reason for *_, reasons in counts for reason in reasons]
    if not good and failed == 0:
        failed = 1  # meson itself gave up
    show_findings(tests)
    print(f"=== {name}: {passed} passed, {failed} failed, {len(skipped)} skipped, "
          f"{time.monotonic() - started:.0f} s", flush=True)
    return passed, failed, skipped


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, help="fuzz: how long each fuzzer searches")
    parser.add_argument("--seed", type=int, help="of the fuzzers; rest: 1 if none is given, fuzz: "
                        "another one every time")
    parser.add_argument("--build", action="append", choices=BUILDS, help="only in this folder")
    parser.add_argument("parts", nargs="+", metavar="PART", choices=PARTS,
                        help=f"of {', '.join(PARTS)}")
    args = parser.parse_args()

    passed, failed, skipped = 0, 0, []
    for part in args.parts:
        search = [f"-Dfuzz_runs={SEARCH}", "-Dfuzz_seconds=60"]
        seed = args.seed or 1
        if part == "fuzz":
            seed = args.seed or random.randrange(1, 2**31)
            search = ["-Dfuzz_runs=0", f"-Dfuzz_seconds={args.seconds or 60}"]
        for name, suites in PARTS[part].items():
            if args.build and name not in args.build:
                continue
            extra = []
            if "fuzz" in suites:
                extra = [*search, f"-Dfuzz_seed={seed}"]
                print(f"\n=== the fuzzers draw from SEED={seed}")
            p, f, s = run_build(name, suites, extra)
            passed, failed, skipped = passed + p, failed + f, skipped + s
    if skipped:
        print(f"\n{len(skipped)} skipped:\n  " + "\n  ".join(skipped))
    if os.environ.get("STINT_SKIPS") == "known":
        new = [skip for skip in skipped if not KNOWN_SKIP.search(skip)]
        print("".join(f"=== a skip that tools/run_tests.py does not know: {s}\n" for s in new),
              end="")
        failed += len(new)
    print(f"{passed} passed, {failed} failed", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
