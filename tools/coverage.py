#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Which lines of src/ some of the tests run, by layer, as a page: docs/coverage.md.

Builds in build-coverage with gcc's counters, runs the suites and interop tests below, and lets
gcovr count. A process that is killed leaves no count, so servers that a test kills are not in it.
"""

import json
import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build-coverage"
PAGE = ROOT / "docs" / "coverage.md"
SUITES = ["unit", "behaviour", "trace"]
INTEROP = ["program", "replay", "sim", "plan", "pool", "rules", "serve", "client"]
TEXT = """\
<!-- SPDX-License-Identifier: MIT -->
# Coverage

Which lines and branches of `src/` these tests run: the suites {suites},
and of `interop` {interop}.
The other suites and the fuzzers are not counted. Nor is what a process does that is killed, and
what a server does once its sandbox forbids it to write the counters.

`make coverage` measures it anew and writes this page. Measured on {when} at commit {commit}, with
gcc {compiler} -O0, on {processor}:

| layer | lines | run | branches taken |
|---|--:|--:|--:|
{rows}
A line that is run is not a line that is checked. What is checked is in the
[specification](semantics.md) and in the list of [known bugs](field-tests.md).
"""


def run(*command, **options):
    return subprocess.run(command, cwd=ROOT, check=True, text=True, **options).stdout


def processor():
    found = re.search(r"^model name\s*: (.*)", Path("/proc/cpuinfo").read_text(), re.M)
    return found[1] if found else platform.machine()


def layers(files):
    """{folder of src: (lines, lines run, branches, branches taken)}"""
    sums = {}
    for file in files:
        name = file["filename"].split("/")[1]
        own = [file[f"{what}_{of}"] for what in ("line", "branch") for of in ("total", "covered")]
        sums[name] = [a + b for a, b in zip(sums.get(name, [0] * 4), own)]
    return sums


def row(name, lines, run_lines, branches, taken):
    return (f"| {name} | {lines:,} | {100 * run_lines / max(lines, 1):.1f} % "
            f"| {100 * taken / max(branches, 1):.1f} % |\n")


def measure():
    # Without an optimizer gcc takes constants for variables, and warns of conversions of them.
    run("tools/configure.sh", "build-coverage", "-Db_coverage=true", "-Ddebug=false",
        "-Doptimization=0", "-Dwerror=false", env={**os.environ, "CC": "gcc"})
    run("ninja", "-C", BUILD, "--quiet")
    for counts in BUILD.rglob("*.gcda"):
        counts.unlink()
    test = ["meson", "test", "-C", BUILD, "--no-rebuild", "--print-errorlogs", "-t", "4"]
    for suite in SUITES:
        test += ["--suite", suite]
    run(*test)
    run(*test[:test.index("--suite")], *(f"interop/test_{name}" for name in INTEROP))
    return json.loads(run(
        "gcovr", "--root", ROOT, "--filter", "src/", "--object-directory", BUILD,
        "--exclude-unreachable-branches", "--json-summary", BUILD, stdout=subprocess.PIPE))


def main():
    found = layers(measure()["files"])
    rows = "".join(row(f"`{name}`", *sums) for name, sums in sorted(found.items()))
    rows += row("**all**", *map(sum, zip(*found.values())))
    PAGE.write_text(TEXT.format(
        suites=", ".join(SUITES), interop=", ".join(INTEROP), rows=rows, processor=processor(),
        when=time.strftime("%Y-%m-%d"),
        commit=run("git", "rev-parse", "--short=10", "HEAD", stdout=subprocess.PIPE).strip(),
        compiler=run("gcc", "-dumpfullversion", stdout=subprocess.PIPE).strip()))
    print(rows)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(__doc__)
    main()
