# SPDX-License-Identifier: MIT
"""A clock for tests: time passes when it is advanced, and only then."""

from __future__ import annotations

import weakref

from .quota import NS_PER_S

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .table import Table


class Clock:
    """A virtual clock: Table(clock=Clock()).

    start: seconds at which it begins. epoch_ns: wall clock (ns since 1970) at its time 0, from
    which calendar windows follow. Any number of tables may share one. Limiter.wait() on such a
    table advances the clock instead of sleeping.
    """

    def __init__(self, start: float = 0.0, *, epoch_ns: int = 0) -> None:
        self.epoch_ns = epoch_ns
        self.now_ns = round(start * NS_PER_S)
        self._tables: list[weakref.ref[Table]] = []

    def advance(self, seconds: float) -> None:
        """Moves the clock forward. Raises ValueError below 0."""
        self.advance_ns(round(seconds * NS_PER_S))

    def advance_ns(self, ns: int) -> None:
        """The same in nanoseconds."""
        if ns < 0:
            raise ValueError(f"a clock does not go back: {ns} ns; expected 0 or more")
        self.now_ns += ns
        for reference in self._tables:
            table = reference()
            if table is not None and not table.closed:
                table._set_now(self.now_ns)

    def now(self) -> float:
        """Seconds since its time 0."""
        return self.now_ns / NS_PER_S

    def _attach(self, table: Table) -> None:
        table._set_now(self.now_ns)
        self._tables = [r for r in self._tables if r() is not None] + [weakref.ref(table)]
