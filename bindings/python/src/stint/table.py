# SPDX-License-Identifier: MIT
"""Tables: where the states of keys are."""

from __future__ import annotations

import os

from . import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from .testing import Clock


class Table(_core.Table):
    """States of keys, in anonymous memory or in a file.

    Table()                             shared with processes that are forked afterwards
    Table("/dev/shm/app.stint")         shared by every process that opens the file; /dev/shm is
                                        memory, a file elsewhere outlives a restart of the host

    keys: keys in use at once; each takes a state for each quota of its limiters. A key costs 20
        bytes (gcra, fixed_window) and 39 bytes (window, sliding_counter) of the table.
    keys16: the same for window and sliding_counter alone, if it differs from keys.
    keys_wide: the same for buckets, log and concurrency. Default 1,024.
    wide_size: bytes of the widest such state. Default 4,096.
    tickets: open reservations. Default 65,536. blocks: blocked keys. Default 4,096.
    quotas: different quotas. pools: names of pools. Default 16.
    clock: a stint.testing.Clock, for tests.

    The table never grows. When it is full, a strict quota denies new keys until a state expires;
    `when_full` of a quota sets what happens instead. An existing file keeps the sizes that it was
    made with. Raises TableError: `code` is SYSTEM, CORRUPT, VERSION, BUSY, RANGE or MISMATCH.
    Any thread may use a table; close() ends its use.
    """

    __slots__ = ("__weakref__", "clock", "path")
    path: str | None
    clock: Clock | None

    def __new__(cls, path: str | os.PathLike[str] | None = None, *, keys: int = 65_536,
                keys16: int | None = None, keys_wide: int = 0, wide_size: int = 0,
                tickets: int = 0, blocks: int = 0, quotas: int = 0, pools: int = 0,
                must_exist: bool = False, read_only: bool = False,
                clock: Clock | None = None) -> Self:
        self = super().__new__(
            cls, path, keys=keys, keys16=keys if keys16 is None else keys16, keys_wide=keys_wide,
            wide_size=wide_size, tickets=tickets, blocks=blocks, quotas=quotas, pools=pools,
            must_exist=must_exist, read_only=read_only, clock=clock is not None,
            epoch_ns=clock.epoch_ns if clock is not None else 0)
        self.path = None if path is None else os.path.abspath(os.fspath(path))
        self.clock = clock
        if clock is not None:
            clock._attach(self)
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        state = ", closed" if self.closed else ""
        return f"<stint.Table {self.path or 'in anonymous memory'}{state}>"

    def __reduce__(self) -> tuple[object, ...]:
        """A table in a file is opened again, in a process that is spawned."""
        if self.path is None or self.clock is not None:
            raise TypeError("a table in anonymous memory, or with a virtual clock, is shared with "
                            "forked processes alone; give spawned ones Table(path)")
        return _reopen, (self.path,)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_core._forget_decisions)


def _reopen(path: str) -> Table:
    return Table(path, must_exist=True)
