#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Builds the peers, gives all the same work in one run, and writes docs/peers.md.

Results are in BUILD/bench/peers.json. A quick run writes its page there too, and leaves docs alone.
"""
import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from run import check_kept, machine  # noqa: E402  (the same data of the machine)
import build  # noqa: E402
import inprocess  # noqa: E402
import page  # noqa: E402
import servers  # noqa: E402

TURNS, QUICK_TURNS = 7, 1
SEEDS, QUICK_SEEDS = (1, 2, 3), (2,)
PARTS = {"libraries": inprocess, "servers": servers}


@dataclass
class Context:
    """What rows are measured with; README.md describes it."""
    build: Path
    quick: bool
    turns: int
    seeds: tuple
    scratch: Path
    peers: dict = field(default_factory=dict)
    sequences: dict = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)

    def say(self, text):
        print(f"{time.monotonic() - self.started:5.0f} s  {text}", flush=True)


def measure(context, parts):
    context.peers = build.make_all(context.say)
    building_s = time.monotonic() - context.started
    rows = []
    for name in parts:
        rows += PARTS[name].rows(context) + PARTS[name].strictness(context)
    return {
        "machine": dict(machine(context.build), tools=build.tool_versions(context.peers)),
        "quick": context.quick, "turns": context.turns, "seeds": context.seeds,
        "building_s": building_s, "seconds": time.monotonic() - context.started,
        "peers": [build.shown(peer) for peer in (inprocess.stint(context),
                                                 *context.peers.values())],
        "rows": rows,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=Path,
                        help="compiled: ninja -C BUILD bench-peers bench-server")
    parser.add_argument("--quick", action="store_true", help="does everything run? No figures")
    parser.add_argument("--turns", type=int, help=f"after one to warm up ({TURNS})")
    parser.add_argument("--only", choices=PARTS, help="only this part; docs are left alone")
    parser.add_argument("--page", type=Path, metavar="JSON",
                        help="measure nothing: write the page from the results of an earlier run")
    arguments = parser.parse_args()
    # Programs that are paused must not outlive this one.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    folder = arguments.build.resolve()
    quick = arguments.quick
    if arguments.page:
        results = json.loads(arguments.page.read_text())
    else:
        if not (quick or arguments.only):
            check_kept(ROOT / "docs/peers.md")
        scratch = Path(tempfile.mkdtemp(prefix="stint-peers-"))
        context = Context(folder, quick, arguments.turns or (QUICK_TURNS if quick else TURNS),
                          QUICK_SEEDS if quick else SEEDS, scratch)
        try:
            results = measure(context, [arguments.only] if arguments.only else list(PARTS))
        finally:
            shutil.rmtree(scratch)
        path = folder / "bench/peers.json"
        path.write_text(json.dumps(results, indent=1) + "\n")
        print(f"results: {path}")
    is_whole = not (results["quick"] or arguments.only)
    where = ROOT / "docs" if is_whole else folder / "bench/peers-page"
    for path in page.write(results, where, ROOT / "README.md" if is_whole else None):
        print(f"written: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
