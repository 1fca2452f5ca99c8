#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the fuzzers under AFL++: the same files as under libFuzzer, mutated by another engine.

Each runs for some seconds over its corpus, as many at once as there are cores. An input that
crashes or hangs one is kept in build-afl and named; then, or if a fuzzer does not run at all, the
exit code is 1.
"""

import argparse
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build-afl"
NAMES = sorted(path.stem for path in (ROOT / "fuzz").glob("*.c"))
HANG_MS = 10_000
TAIL = 15  # lines of AFL++'s own words, where it broke off

ENVIRONMENT = {
    "AFL_NO_UI": "1",
    "AFL_SKIP_CPUFREQ": "1",
    "AFL_NO_AFFINITY": "1",  # who shares the machine decides where it runs
    "AFL_HANG_TMOUT": str(HANG_MS),
    # Findings are looked for here, not by a collector of core files.
    "AFL_I_DONT_CARE_ABOUT_MISSING_CRASHES": "1",
}


def build(names):
    """True if all were built."""
    env = dict(os.environ, CC="afl-clang-fast", AFL_QUIET="1")
    command = ["meson", "setup", "-Dfuzzers=true", "-Dtests=false", "-Db_lundef=false",
               "-Db_sanitize=address,undefined", str(BUILD)]
    if not (BUILD / "build.ninja").exists():
        if subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL).returncode:
            return False
    targets = [f"fuzz/fuzz_{name}" for name in names]
    return subprocess.run(["ninja", "-C", str(BUILD), "--quiet", *targets], env=env).returncode == 0


def executions(out):
    """How many inputs were run, from the figures that AFL++ leaves; 0 where it left none."""
    stats = out / "default" / "fuzzer_stats"
    lines = stats.read_text().splitlines() if stats.exists() else []
    pairs = (line.split(":", 1) for line in lines if ":" in line)
    return int({key.strip(): value for key, value in pairs}.get("execs_done", 0))


def keep_findings(name, out):
    """Moves them out of the folder that the next run begins anew; where they are now."""
    kept = []
    for kind in ("crashes", "hangs"):
        for found in sorted((out / "default" / kind).glob("id*")):
            number = found.name.split(",")[0].replace(":", "-")
            kept.append(BUILD / f"{name}-{kind}-{number}")
            shutil.copyfile(found, kept[-1])
    return kept


def fuzz(name, seconds):
    """True if it ran and found nothing."""
    out, log = BUILD / "out" / name, BUILD / "out" / f"{name}.log"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    command = ["afl-fuzz", "-i", str(ROOT / "fuzz" / "corpus" / name), "-o", str(out), "-V",
               str(seconds), "-t", str(HANG_MS), "-m", "none", "--",
               str(BUILD / "fuzz" / f"fuzz_{name}")]
    with log.open("wb") as words:
        code = subprocess.run(command, env=os.environ | ENVIRONMENT, stdin=subprocess.DEVNULL,
                              stdout=words, stderr=subprocess.STDOUT).returncode
    kept, n = keep_findings(name, out), executions(out)
    for path in kept:
        print(f"{name}: FOUND {path.relative_to(ROOT)}; look at it with "
              f"FUZZ_SHOW=1 build-afl/fuzz/fuzz_{name} {path.relative_to(ROOT)}", flush=True)
    if code != 0 or n == 0:
        tail = log.read_text(errors="replace").splitlines()[-TAIL:]
        print(f"{name}: did not run (exit code {code}):", *tail, sep="\n    ", flush=True)
        return False
    print(f"{name}: {n} inputs, {len(kept)} findings", flush=True)
    return not kept


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seconds", type=int, help="for each fuzzer")
    parser.add_argument("names", nargs="*", help=f"of {', '.join(NAMES)}; default: all")
    args = parser.parse_args()
    if args.seconds < 1:
        parser.error("seconds: expected 1 or more")
    if unknown := set(args.names) - set(NAMES):
        parser.error(f"no such fuzzer: {', '.join(sorted(unknown))}")
    names = args.names or NAMES
    if not build(names):
        sys.exit("build-afl: does not build")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        good = list(pool.map(lambda name: fuzz(name, args.seconds), names))
    print(f"{sum(good)} passed, {len(good) - sum(good)} failed", flush=True)
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
