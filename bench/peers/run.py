#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Builds the peers, gives all the same work in one run, and writes docs/peers.md.

Results are in BUILD/bench/peers.json. A quick run writes its page there too, and leaves docs alone.
"""
import argparse
import json
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(Path(__file__).resolve().parent)]
sys.path.append(str(ROOT / "bench"))
import build  # noqa: E402
import inprocess  # noqa: E402
import page  # noqa: E402
from run_bench import machine  # noqa: E402

try:
    import servers
except ImportError:
    servers = None

TURNS, QUICK_TURNS = 7, 1
SEEDS, QUICK_SEEDS = (1, 2, 3), (1,)


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


def main():
    pass


if __name__ == "__main__":
    sys.exit(main())
