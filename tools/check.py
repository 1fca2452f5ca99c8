#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Formatting, static analysis and the interface of the library: clang-format, clang-tidy, cppcheck
and abidiff.

Of everything that git knows, or of what differs from another revision. Reports everything that is
wrong; each tool counts one for each file, and the last line is `N passed, N failed`.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = "build-tidy"
CORES = os.cpu_count() or 1
HEADERS = "src/proto/grpc/messages/messages.bin"  # the only ones that are made

# The analyzer walks the paths of a function until it has visited so many states. With its own
# bound, 225000, table/slot/slots.c takes six times as long.
ANALYZER = [f"--extra-arg={word}" for word in ("-Xclang", "-analyzer-config", "-Xclang",
                                               "max-nodes=30000")]
# ctuuninitvar takes every struct that is handed over to be filled for one that is read.
CPPCHECK = ["cppcheck", "--quiet", "--std=c11", "--enable=warning,portability", "--inline-suppr",
            "--suppress=missingIncludeSystem", "--suppress=ctuuninitvar", "-Iinclude", "-Isrc",
            "-D__SIZEOF_INT128__=16", "-D__x86_64__", "-D__GNUC__", f"-j{CORES}"]


def run(*command, **options):
    return subprocess.run([str(word) for word in command], cwd=ROOT, capture_output=True,
                          text=True, check=False, **options)


def git(*words):
    done = run("git", *words)
    if done.returncode != 0:
        sys.exit(f"check: git {words[0]}: {done.stderr.strip()}")
    return [name for name in done.stdout.split("\0") if name]


def is_code(name):
    return name.endswith((".c", ".h", ".cc")) and (ROOT / name).is_file()


def files(base):
    """Those that git knows, or those that differ from where this branch left `base`."""
    if not base:
        return sorted(filter(is_code, git("ls-files", "-z")))
    fork = git("merge-base", base, "HEAD")[0]
    changed = git("diff", "-z", "--name-only", "--diff-filter=d", fork.strip())
    added = git("ls-files", "-z", "--others", "--exclude-standard")
    return sorted(filter(is_code, {*changed, *added}))


def configure():
    """clang-tidy takes the flags of a build by clang. False: there is none."""
    clang = dict(os.environ, CC="clang")
    for command in (("tools/configure.sh", BUILD, "-Dtests=false"),
                    ("ninja", "-C", BUILD, HEADERS)):
        done = run(*command, env=clang)
        if done.returncode != 0:
            print(done.stdout, done.stderr)
            return False
    return True


def named(output, names):
    """Which of these files the output names, as FILE:LINE."""
    found = {os.path.relpath(path, ROOT) if path.startswith("/") else path
             for path in re.findall(r"(?m)^([^\s:]+):\d+", output)}
    return found & set(names)


def report(done, names):
    """How many of these files are wrong; the output is shown."""
    if done.returncode == 0 and not (named(done.stdout + done.stderr, names)):
        return 0
    print(done.stdout + done.stderr, flush=True)
    return max(1, len(named(done.stdout + done.stderr, names)))


def clang_format(names):
    return report(run("clang-format", "--dry-run", "-Werror", *names), names)


def clang_tidy(names):
    def check(name):
        return run("clang-tidy", "-p", BUILD, "--quiet", *ANALYZER, name)

    if not configure():
        return len(names)
    wrong = 0
    by_size = sorted(names, key=lambda name: -(ROOT / name).stat().st_size)
    with ThreadPoolExecutor(CORES) as pool:
        for done in pool.map(check, by_size):
            if done.returncode != 0:
                wrong += 1
                print(done.stdout + done.stderr, flush=True)
    return wrong


def cppcheck(names):
    return report(run(*CPPCHECK, *names), names)


def abi(names):
    return report(run("tools/check_abi.sh"), names)


def release(names):
    """What users build: -O3 and no assertions lead to other warnings than the builds of tests."""
    return report(run("make", "release"), names)


def benches(names):
    """No other build has them."""
    programs = ["bench", "bench-calls", "bench-server", "bench-peers"]
    return report(run("ninja", "-C", "build-release", "--quiet", *programs), names)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", metavar="REVISION", help="only files that differ from there")
    args = parser.parse_args()

    every = files(args.base)
    sources = [name for name in every if name.startswith("src/") and name.endswith(".c")]
    headers = [name for name in every if name.startswith("include/")]
    passed = failed = 0
    for tool, names in ((clang_format, every), (clang_tidy, sources), (cppcheck, sources),
                        (abi, headers), (release, [] if args.base else ["Makefile"]),
                        (benches, [] if args.base else ["bench/meson.build"])):
        started = time.monotonic()
        wrong = tool(names) if names else 0
        passed, failed = passed + len(names) - wrong, failed + wrong
        print(f"{tool.__name__}: {len(names)} files, {wrong} wrong, "
              f"{time.monotonic() - started:.0f} s", flush=True)
    print(f"{passed} passed, {failed} failed", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
