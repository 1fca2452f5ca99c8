# SPDX-License-Identifier: MIT
"""What several test files need: processes, and the count of what was granted."""

from __future__ import annotations

import contextlib
import mmap
import os
import socket
import struct
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]  # of the checkout
PATIENCE = 60.0  # seconds; only a failure waits so long


def fork(run: Callable[[], None]) -> int:
    """Runs a function in a child; returns its process id. The child's status is 0 on success."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        run()
        status = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def finish(*pids: int) -> None:
    """Waits for children, all of which must have succeeded; kills them when patience ends."""
    end = time.monotonic() + PATIENCE
    left, failed = set(pids), []
    while left:
        for pid in list(left):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                left.remove(pid)
                if status != 0:
                    failed.append((pid, os.waitstatus_to_exitcode(status)))
        if left and time.monotonic() > end:
            for pid in left:
                os.kill(pid, 9)
                os.waitpid(pid, 0)
            raise AssertionError(f"{len(left)} processes did not end")
        time.sleep(0.001)
    assert not failed


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """A port of 127.0.0.1 that the kernel gives to no other process while a server starts on it.

    The server gets it: its socket sets SO_REUSEADDR as this one does, and this one does not listen.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def until(condition: Callable[[], bool], what: str) -> None:
    """Waits for a condition."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"did not happen: {what}"
        time.sleep(0.001)


class Grants:
    """Memory in which each of several processes records its grants: when, and how many units.

    A grant was made between the two times of its record. A process that is killed before it records
    one leaves it out; so what is counted is at most what was granted.
    """

    RECORD = struct.Struct("=QQQ")

    def __init__(self, processes: int, each: int) -> None:
        self.each = each
        self.size = 8 + each * self.RECORD.size
        self.memory = mmap.mmap(-1, processes * self.size)

    def record(self, process: int, before_ns: int, after_ns: int, units: int) -> None:
        start = process * self.size
        (number,) = struct.unpack_from("=Q", self.memory, start)
        assert number < self.each, "no memory for another grant: the test needs more"
        self.RECORD.pack_into(self.memory, start + 8 + number * self.RECORD.size, before_ns,
                              after_ns, units)
        struct.pack_into("=Q", self.memory, start, number + 1)

    def count(self, process: int) -> int:
        (number,) = struct.unpack_from("=Q", self.memory, process * self.size)
        return int(number)

    def is_full(self, process: int) -> bool:
        """Whether there is no memory for another grant of the process."""
        return self.count(process) == self.each

    def all(self) -> list[tuple[int, int, int]]:
        """(before, after, units) of all processes, in order of time."""
        records = []
        for start in range(0, len(self.memory) // self.size * self.size, self.size):
            (number,) = struct.unpack_from("=Q", self.memory, start)
            for at in range(start + 8, start + 8 + number * self.RECORD.size, self.RECORD.size):
                records.append(self.RECORD.unpack_from(self.memory, at))
        return sorted(records)


def most_in_any_window(grants: list[tuple[int, int, int]], period_ns: int) -> int:
    """The most units that were certainly granted within one window of the period."""
    most = 0
    for first, (begin, _, _) in enumerate(grants):
        units = 0
        for before, after, count in grants[first:]:
            if before >= begin + period_ns:
                break
            if after < begin + period_ns:
                units += count
        most = max(most, units)
    return most
