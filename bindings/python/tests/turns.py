# SPDX-License-Identifier: MIT
"""Turns that begin at the same times in all processes and threads, so that their calls meet."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

TURNS, TURN_NS = 1_000, 500_000


def turns(start_ns: int) -> Iterator[int]:
    for turn in range(TURNS):
        while time.monotonic_ns() < start_ns + turn * TURN_NS:
            pass
        yield turn


def together(task: Callable[..., Any], *arguments: Any) -> list[Any]:
    """The results of task(start_ns, *arguments), run by three processes and two threads."""
    with multiprocessing.get_context("fork").Pool(3) as pool, ThreadPoolExecutor(2) as threads:
        call = (time.monotonic_ns() + 200_000_000, *arguments)
        forked = pool.starmap_async(task, [call] * 3, chunksize=1)
        return [*threads.map(lambda _: task(*call), range(2)), *forked.get()]
