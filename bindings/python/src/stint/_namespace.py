# SPDX-License-Identifier: MIT
"""Keys of one user of a table, which can be forgotten all at once."""

from __future__ import annotations

from typing import Any

import stint

_FOREVER_S = 3650 * 24 * 3600  # the longest expiry of a counter
_STEP = 2**32 - 1  # the largest amount: a full table evicts small counters first


class Namespace:
    """
    Keys of one user of a table. `forget()` gives every key a new name, in one step and for every
    process that shares the table; what the old names hold expires by itself. Any thread.
    """

    def __init__(self, table: stint.Table, name: str) -> None:
        self.table = table
        self._prefix = name.encode() + b"\0"

    def key(self, key: str) -> bytes:
        """The name of a key in the table."""
        generation = self.table.counter(self._prefix).count // _STEP
        return b"%b%d\0%b" % (self._prefix, generation, key.encode("utf-8", "surrogatepass"))

    def forget(self) -> None:
        """Forgets every key."""
        self.table.count(self._prefix, _STEP, _FOREVER_S)


_tables: dict[str, stint.Table] = {}


def open_shared(path: str, **sizes: Any) -> stint.Table:
    """The table of a file, opened once per process. Sizes are those of a new file."""
    if path not in _tables:
        _tables.setdefault(path, stint.Table(path, **sizes))
    return _tables[path]
