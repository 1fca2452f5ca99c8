# SPDX-License-Identifier: MIT
"""The back-off after errors: a server that is gone costs its callers nothing but one try at times.

After FAILURES errors in a row the server is not asked for FIRST_PAUSE_S, and twice as long after
each further error, up to LAST_PAUSE_S. Then one question tries it; an answer ends the back-off.
"""
from __future__ import annotations

import threading
import time
from typing import Final

from .errors import ServerError

FAILURES: Final = 3
FIRST_PAUSE_S: Final = 0.1
LAST_PAUSE_S: Final = 2.0


class Breaker:
    """One for a server. Thread-safe."""

    def __init__(self, where: str, timeout: float) -> None:
        self._where, self._try_s = where, timeout
        self._lock = threading.Lock()
        self._failures = 0
        self._open_until = 0.0  # 0: the server answers
        self._last = ""

    def enter(self) -> None:
        """Before a question: raises ServerError if the server is not to be asked now."""
        if self._open_until == 0.0:
            return
        with self._lock:
            now = time.monotonic()
            wait = self._open_until - now
            if wait <= 0.0:
                self._open_until = now + self._try_s  # this one tries; others wait for its result
                return
        raise ServerError(
            "UNAVAILABLE",
            f"{self._where}: not asked after {self._failures} errors in a row; "
            f"the next try is in {wait:.2f} s; the last error: {self._last}",
        )

    def answered(self) -> None:
        if self._failures:
            with self._lock:
                self._failures, self._open_until = 0, 0.0

    def failed(self, error: Exception) -> None:
        with self._lock:
            self._failures += 1
            self._last = str(error)
            over = self._failures - FAILURES
            if over >= 0:
                pause = min(FIRST_PAUSE_S * 2.0 ** min(over, 16), LAST_PAUSE_S)
                self._open_until = time.monotonic() + pause

    def forget(self) -> None:
        """In a child after fork(): the lock may have been held."""
        self._lock = threading.Lock()
