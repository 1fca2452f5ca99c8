#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Which lines of src/ some of the tests run, by layer, as a page: docs/coverage.md.

    coverage.py [suites | parsers]

Builds in build-coverage with gcc's counters, runs the suites and interop tests below, or with
`suites` the suites alone, and lets gcov count. A process that is killed leaves no count, so servers
that a test kills are not in it.

`parsers` runs the suites, prints the files that read bytes from outside and the lines of them that
did not run, and fails if one of these files is below PARSER_LEAST. The page has the same table.
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
SUITES = ["unit", "behaviour", "trace", "corpus"]
INTEROP = ["program", "replay", "sim", "plan", "pool", "rules", "serve", "client"]
# What reads bytes from outside: of clients, stores, control planes, collectors; files; options.
PARSERS = """
    algorithm/duration.c algorithm/spec.c limiter/address.c
    backend/memcached/memcached_state.c backend/redis/cluster.c backend/redis/router.c
    backend/redis/router_servers.c backend/redis/sentinel.c backend/store_key.c backend/url.c
    backend/wire/*.c cmd/lib/input.c
    frontend/grpc/*.c frontend/http/http.c frontend/resp/resp_conn.c
    net/upstream/collector_*.c proto/**/*.c rpc/*.c rules/**/*.c
    sim/input/*.c sim/workload/workload_spec.c
    table/intern.c table/overrides.c table/pool_records.c table/region/*.c table/requests.c
    xds/*.c
""".split()
PARSER_LEAST = 95  # per cent of a file's lines
TEXT = """\
<!-- SPDX-License-Identifier: MIT -->
# Coverage

Which lines and branches of `src/` these tests run: the suites {suites}; of `interop` {interop}.
The suite corpus is the fuzzers with their fixed inputs; what they find in longer runs, and the
other suites, are not counted. Nor is what a process does that is killed, and
what a server does once its sandbox forbids it to write the counters.

`{command}` measures it anew and writes this page. Measured on {when} at commit {commit}, with
gcc {compiler} -O0, on {processor}:

| layer | lines | run | branches taken |
|---|--:|--:|--:|
{rows}
## Parsers

The files that read bytes from outside. `make coverage-parsers` runs the suites alone, prints the
lines that did not run, and fails if one of the files is below {least} %. Lines that stay without a
run are failures of the system and of libraries that no test can cause here.

| file | lines | run |
|---|--:|--:|
{parsers}
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


def parsers(lines):
    """{file that reads from outside: {line: whether it was run}}"""
    names = {str(path.relative_to(ROOT)) for pattern in PARSERS
             for path in (ROOT / "src").glob(pattern)}
    found = {}
    for (name, line), is_run in sorted(lines.items()):
        if name in names:
            found.setdefault(name, {})[line] = is_run
    return found


def parser_rows(found):
    rows = ((name, len(runs), 100 * sum(runs.values()) / len(runs)) for name, runs in found.items())
    return "".join(f"| `{name[4:]}` | {lines} | {run:.1f} % |\n" for name, lines, run in rows)


def check_parsers(lines):
    """True if each is run enough."""
    found = parsers(lines)
    print(parser_rows(found))
    for name, runs in found.items():
        if missed := [line for line, is_run in runs.items() if not is_run]:
            print(f"{name} does not run:", *missed)
    below = [name for name, runs in found.items()
             if 100 * sum(runs.values()) < PARSER_LEAST * len(runs)]
    for name in below:
        print(f"{name}: below {PARSER_LEAST} % of its lines")
    return not below


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


def write(lines, branches, interop):
    found = layers(lines, branches)
    rows = "".join(row(f"`{name}`", *sums) for name, sums in sorted(found.items()))
    rows += row("**all**", *map(sum, zip(*found.values())))
    PAGE.write_text(TEXT.format(
        suites=", ".join(SUITES), interop=", ".join(interop) or "none", rows=rows,
        least=PARSER_LEAST, parsers=parser_rows(parsers(lines)),
        processor=processor(), when=time.strftime("%Y-%m-%d"),
        command="make coverage" if interop else "tools/coverage.py suites",
        commit=run("git", "rev-parse", "--short=10", "HEAD", stdout=subprocess.PIPE).strip(),
        compiler=run("gcc", "-dumpfullversion", stdout=subprocess.PIPE).strip()))
    print(rows)


if __name__ == "__main__":
    if sys.argv[1:] not in ([], ["suites"], ["parsers"]):
        sys.exit(__doc__)
    tests = [] if sys.argv[1:] else INTEROP
    counts = measure(tests)
    if sys.argv[1:] == ["parsers"]:
        sys.exit(not check_parsers(counts[0]))
    write(*counts, tests)
