#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""usage: tools/run_named.py BUILD NAME

Builds and runs the unit tests whose name contains NAME; where no unit test does, all other tests
that match it, such as interop/test_serve. It builds what they need and no more, and names the
tests that match, too, and are not run.
"""

import json
import os
import subprocess
import sys
from pathlib import Path


def described(build, what):
    return json.loads((build / f"meson-info/intro-{what}.json").read_text())


def main():
    if len(sys.argv) != 3 or not sys.argv[2]:
        sys.exit("usage: make t T=NAME, a name of a test or a part of it, such as T=gcra")
    build, part = Path(sys.argv[1]).resolve(), sys.argv[2]
    ninja = ["ninja", "-C", build, "--quiet"]
    subprocess.run([*ninja, "build.ninja"], check=True, stdout=subprocess.DEVNULL)
    found = [test for test in described(build, "tests") if part in test["name"]]
    chosen = [test for test in found if "stint:unit" in test["suite"]] or found
    if not chosen:
        sys.exit(f"no test has {part!r} in its name; meson test -C {build.name} --list has all")
    files = {target["id"]: target["filename"] for target in described(build, "targets")}
    needed = {os.path.relpath(name, build) for test in chosen for each in test["depends"]
              for name in files[each]}
    built = subprocess.run([*ninja, *sorted(needed)], check=False, stdout=subprocess.PIPE)
    if built.returncode != 0:
        sys.stdout.buffer.write(built.stdout)
        sys.exit(1)
    failed = []
    for test in chosen:
        print(f"== {test['name']}", flush=True)
        # A pass needs no line of its own for each case.
        result = subprocess.run(test["cmd"], env={**os.environ, **test["env"]},
                                cwd=test["workdir"] or build, capture_output=True, check=False)
        if result.returncode != 0:
            failed.append(test["name"])
            sys.stdout.buffer.write(result.stdout + result.stderr)
            sys.stdout.flush()
    for test in found:
        if test not in chosen:
            print(f"not run: {test['name']} (make t T={test['name']})")
    print(f"{len(chosen) - len(failed)} passed, {len(failed)} failed"
          + "".join(f"\nfailed: {name}" for name in failed))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
