# SPDX-License-Identifier: MIT
"""Lines of the log that requests cause: few, however many requests there are, and one line each."""
from __future__ import annotations

import logging
from time import monotonic

PERIOD_S = 1.0
TEXT_MAX = 200  # characters of a text that a client chose


def shown(value: str | bytes) -> str:
    """A text of a client as ASCII, in quotes: it cannot begin a line, nor hide or colour one."""
    text = ascii(value[:TEXT_MAX])
    return f"{text}..." if len(value) > TEXT_MAX else text


class BoundedLog:
    """Writes one line of each kind in PERIOD_S at most; the next one says how many were left out.

    A kind is the text of its lines, before the values are put in. No lock, which a fork could leave
    held: threads that write at once may write a line each.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._kinds: dict[str, tuple[float, int]] = {}  # when a line is due, how many were left out

    def write(self, level: int, kind: str, *values: object) -> None:
        """A value that is a function is called only if the line is written."""
        if not self._logger.isEnabledFor(level):
            return
        now = monotonic()
        due, left_out = self._kinds.get(kind, (now, 0))
        if now < due:
            self._kinds[kind] = (due, left_out + 1)
            return
        self._kinds[kind] = (now + PERIOD_S, 0)
        text = kind % tuple(value() if callable(value) else value for value in values)
        more = f" (and {left_out} more since the last such line)" if left_out else ""
        self._logger.log(level, "%s%s", text, more)
