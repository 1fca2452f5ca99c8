#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs every benchmark of a build folder: one table for people, one JSON file with the machine.

A benchmark program writes its rows as lines of JSON (measure.h says what stands in them); the row
of `stint replay` is measured here. Missed goals are shown and do not fail the run; a program that
does does.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path

from turns import compared

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ["bench_cell", "bench_cell_shared", "bench_table", "bench_denied", "bench_threads",
            "bench_fill", "bench_memory", "bench_pool", "bench_rules", "bench_sim", "bench_resp",
            "bench_grpc"]
REPLAY_REACH_MB_S = 150
COLUMNS = ["what", "baseline", "baseline's", "measured", "unit", "ratio", "reach", "met"]


def output(*command):
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    return result.stdout.strip()


def commit():
    return output("git", "describe", "--always", "--dirty")


def check_kept(path):
    """Results in docs/ name a commit, so nothing else may be measured."""
    if path.resolve().is_relative_to(ROOT.resolve() / "docs") and commit().endswith("-dirty"):
        sys.exit(f"the checkout differs from its commit, which {path} would name; commit first, or "
                 "write the results elsewhere")


def machine(build):
    """What the figures depend on beside the code."""
    cpuinfo = Path("/proc/cpuinfo").read_text()
    model = [line.split(":", 1)[1].strip() for line in cpuinfo.splitlines()
             if line.startswith("model name")]
    options = {option["name"]: option["value"] for option in
               json.loads((build / "meson-info/intro-buildoptions.json").read_text())}
    compilers = json.loads((build / "meson-info/intro-compilers.json").read_text()) \
        if (build / "meson-info/intro-compilers.json").exists() else None
    compiler = output("cc", "--version").splitlines()[0]
    if compilers:
        compiler = compilers["host"]["c"]["full_version"]
    huge = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return {
        "cpu": model[0] if model else platform.machine(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()),
        "compiler": compiler,
        "optimization": "-O" + str(options["optimization"]),
        "assertions": str(options["b_ndebug"]) != "true",
        "transparent_huge_pages": huge.read_text().strip() if huge.exists() else "",
        "load_average": os.getloadavg()[0],
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "commit": commit(),
    }


def run_program(path, quick):
    with tempfile.NamedTemporaryFile("r", suffix=".json") as rows:
        command = [str(path), "--json", rows.name] + (["--quick"] if quick else [])
        subprocess.run(command, check=True)
        return [dict(json.loads(line), program=path.name) for line in rows]


# ---- replay ----


def timed(*command):
    """Seconds by the clock on the wall, and of processor time."""
    start = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, command)
    return time.monotonic() - start, usage.ru_utime + usage.ru_stime


def run_replay(build, megabytes, quick):
    """A log as busy sites write it, against counting its lines and cutting out its first field."""
    stint = build / "src/cmd/stint"
    values, baselines, processor = [], [], []
    with tempfile.NamedTemporaryFile(prefix="stint-bench-", suffix=".log") as log:
        subprocess.run([str(build / "bench/make_log"), str(megabytes)], stdout=log, check=True)
        size = os.fstat(log.fileno()).st_size / 1e6
        for _ in range(1 if quick else 5):
            count, _ = timed("wc", "-l", log.name)
            cut, _ = timed("cut", "-d ", "-f1", log.name)
            wall, run = timed(str(stint), "replay", "--quota", "100/1h", "--format", "combined",
                              log.name)
            baselines.append(size / (count + cut))
            values.append(size / wall)
            processor.append(size / run)
    row = {
        "program": "stint replay",
        "what": f"replay of {size:.0f} MB, exact count on",
        "unit": "MB/s",
        "baseline": "wc -l, then cut -f1",
        "note": f"{statistics.median(processor):.0f} MB per second of processor time",
        **compared(values, baselines, inverted=True),
    }
    if not quick:
        row["reach"] = f">= {REPLAY_REACH_MB_S} MB/s"
        row["met"] = row["value"] >= REPLAY_REACH_MB_S
    return [row]


# ---- the table ----


def figure(number):
    return "" if number is None else f"{number:.4g}"


def cells(row):
    ratio = ""
    if "ratio" in row:
        ratio = f"{row['ratio']:.2f} ({row['ratio_q1']:.2f}–{row['ratio_q3']:.2f})"
    met = {True: "yes", False: "NO", None: ""}[row.get("met")]
    reach = row.get("reach", "").replace("<=", "≤").replace(">=", "≥")
    return [row["what"], row.get("baseline", ""), figure(row.get("baseline_value")),
            figure(row["value"]), row["unit"], ratio, reach, met]


def print_table(rows):
    """As Markdown: read as it is, or pasted into docs/bench.md."""
    lines = [COLUMNS] + [cells(row) for row in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(COLUMNS))]
    lines.insert(1, ["-" * width for width in widths])
    for line in lines:
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |")
    print("\nratio: median of the turns (middle half of them). Notes are in the JSON.")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=Path, help="a build folder, compiled: ninja -C BUILD bench")
    parser.add_argument("--quick", action="store_true", help="does everything run? No goals")
    parser.add_argument("--log-mb", type=int, help="size of the log for replay (1000; quick: 200)")
    parser.add_argument("--json", type=Path, help="where to write (BUILD/bench/results.json)")
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    path = arguments.json or build / "bench/results.json"
    check_kept(path)
    where = machine(build)

    rows = []
    for name in PROGRAMS:
        print(f"\n{name}", flush=True)
        rows += run_program(build / "bench" / name, arguments.quick)
    megabytes = arguments.log_mb or (200 if arguments.quick else 1000)
    rows += run_replay(build, megabytes, arguments.quick)

    print(f"\n{where['cpu']}, {where['cores']} cores, Linux {where['kernel']}, "
          f"{where['compiler']}, {where['optimization']}, {where['date']}\n")
    print_table(rows)
    path.write_text(json.dumps({"machine": where, "quick": arguments.quick, "rows": rows},
                               indent=1) + "\n")
    missed = sum(row.get("met") is False for row in rows)
    goals = sum("met" in row for row in rows)
    print(f"\n{goals - missed} of {goals} goals met; JSON: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
