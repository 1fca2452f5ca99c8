#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Counts the functions of stint that one warm request enters.

It builds bench/calls.c into build-calls with -O0, -finstrument-functions and without assertions:
no call is inlined, and the count does not depend on the machine. Functions of headers are counted
apart: -O2 inlines them. Functions of libraries do not count, and neither does SipHash.
"""
import argparse
import collections
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build-calls"
OPTIONS = ["-Doptimization=0", "-Ddebug=true", "-Db_ndebug=true", "-Dtests=false",
           "-Dc_args=-finstrument-functions"]
GOALS = {"throttle": 120, "rls": 350, "store": 300}


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def build():
    if not (BUILD / "build.ninja").exists():
        output("meson", "setup", BUILD, ROOT, *OPTIONS)
    output("ninja", "-C", BUILD, "bench-calls")
    return BUILD / "bench/calls"


class Symbols:
    """Name and file of each function, by its address less that of main()."""

    def __init__(self, program):
        self.names = {}
        for line in output("nm", "--line-numbers", program).splitlines():
            symbol, _, place = line.partition("\t")
            fields = symbol.split()
            if len(fields) == 3 and fields[1] in "tTwW":
                self.names[int(fields[0], 16)] = (fields[2], place.rpartition(":")[0])
        self.main = next(at for at, (name, _) in self.names.items() if name == "main")

    def __getitem__(self, distance):
        return self.names[self.main + distance]


def calls_of(program):
    """load -> [(depth, name, file)], without SipHash and what it calls."""
    symbols, loads, hash_depth = Symbols(program), collections.defaultdict(list), None
    for line in output(program).splitlines():
        load, depth, distance = line.split()
        depth, (name, path) = int(depth), symbols[int(distance)]
        if hash_depth is not None and depth > hash_depth:
            continue
        hash_depth = depth if "siphash" in name else None
        if hash_depth is None:
            loads[load].append((depth, name, path))
    return loads


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", metavar="LOAD", choices=GOALS, help="the calls of one request")
    arguments = parser.parse_args()
    loads = calls_of(build())
    if arguments.list:
        for depth, name, path in loads[arguments.list]:
            print(f"{'  ' * depth}{name}  {Path(path).name}")
        return
    print(f"{'':10}{'calls':>7}{'goal':>7}{'of headers, too':>17}")
    for load, calls in loads.items():
        own = sum(not path.endswith(".h") for _, _, path in calls)
        print(f"{load:10}{own:7}{GOALS[load]:7}{len(calls):17}")


if __name__ == "__main__":
    main()
