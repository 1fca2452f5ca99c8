#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Which lines of src/ some of the tests run, by layer, as a page: docs/coverage.md.

    coverage.py [suites]

Builds in build-coverage with gcc's counters, runs the suites and interop tests below, or with
`suites` the suites alone, and lets gcov count. A process that is killed leaves no count, so servers
that a test kills are not in it.
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

Which lines and branches of `src/` these tests run: the suites {suites}; of `interop` {interop}.
The other suites and the fuzzers are not counted. Nor is what a process does that is killed, and
what a server does once its sandbox forbids it to write the counters.

`{command}` measures it anew and writes this page. Measured on {when} at commit {commit}, with
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


def layers(lines, branches):
    """{folder of src: [lines, lines run, branches, branches taken]}"""
    sums = {}
    for at, found in ((0, lines), (2, branches)):
        for key, is_run in found.items():
            own = sums.setdefault(key[0].split("/")[1], [0] * 4)
            own[at] += 1
            own[at + 1] += is_run
    return sums


def row(name, lines, run_lines, branches, taken):
    return (f"| {name} | {lines:,} | {100 * run_lines / max(lines, 1):.1f} % "
            f"| {100 * taken / max(branches, 1):.1f} % |\n")


def measure(interop):
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
    if interop:
        run(*test[:test.index("--suite")], *(f"interop/test_{name}" for name in interop))
    return counted()


def place(name):
    """A file that gcov names, from the root of the project; None: not of src/."""
    path = (BUILD / name).resolve()
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT / "src") else None


def counted(folder=BUILD):
    """{(file, line): whether it was run}, {(file, line, branch): whether it was taken}"""
    lines, branches, places = {}, {}, {}
    documents = subprocess.run(
        ["gcov", "--json-format", "--stdout", "--branch-probabilities",
         *sorted(map(str, folder.rglob("*.gcda")))],
        cwd=BUILD, check=True, text=True, stdout=subprocess.PIPE).stdout.splitlines()
    for file in (file for text in documents if text for file in json.loads(text)["files"]):
        if (name := places.setdefault(file["file"], place(file["file"]))) is None:
            continue
        for line in file["lines"]:
            key = name, line["line_number"]
            lines[key] = lines.get(key, False) or line["count"] > 0
            for number, branch in enumerate(line["branches"]):
                branches[*key, number] = branches.get((*key, number), False) or branch["count"] > 0
    return lines, branches


def write(found, interop):
    rows = "".join(row(f"`{name}`", *sums) for name, sums in sorted(found.items()))
    rows += row("**all**", *map(sum, zip(*found.values())))
    PAGE.write_text(TEXT.format(
        suites=", ".join(SUITES), interop=", ".join(interop) or "none", rows=rows,
        processor=processor(), when=time.strftime("%Y-%m-%d"),
        command="make coverage" if interop else "tools/coverage.py suites",
        commit=run("git", "rev-parse", "--short=10", "HEAD", stdout=subprocess.PIPE).strip(),
        compiler=run("gcc", "-dumpfullversion", stdout=subprocess.PIPE).strip()))
    print(rows)


if __name__ == "__main__":
    if sys.argv[1:] not in ([], ["suites"]):
        sys.exit(__doc__)
    tests = [] if sys.argv[1:] else INTEROP
    write(layers(*measure(tests)), tests)
