# SPDX-License-Identifier: MIT
"""Strict rate limits, exact across processes.

    import stint

    table = stint.Table("/dev/shm/app.stint")    # every process that opens the file shares it
    limiter = stint.Limiter(table, "100/1m", name="login")

    decision = limiter.take("203.0.113.9")
    if not decision:
        print("retry after", decision.retry_after, "s")

A quota is written as `[ALGORITHM] LIMIT/PERIOD [name=value …]`. The default algorithm, `window`,
never admits more than LIMIT in any window of the period. `stint.explain(SPEC)` says what a quota
guarantees.

A decision takes under a microsecond and, on a state of up to 16 bytes, never waits: call it from a
thread, a coroutine or a forked process alike.
"""

from __future__ import annotations

from ._core import Count, Decision, Error, GoneError, QuotaError, TableError
from ._core import version as __version__
from .limiter import Hold, Limited, Limiter, Reservation
from .pool import KeyStatus, Lease, Pool
from .quota import Quota, explain
from .table import Table

__all__ = [
    "Count",
    "Decision",
    "Error",
    "GoneError",
    "Hold",
    "KeyStatus",
    "Lease",
    "Limited",
    "Limiter",
    "Pool",
    "Quota",
    "QuotaError",
    "Reservation",
    "Table",
    "TableError",
    "__version__",
    "explain",
    "simulate",
]


TYPE_CHECKING = False
if TYPE_CHECKING:
    from .simulation import simulate
else:
    def __getattr__(name: str) -> object:
        # Imported at the first use: what only notebooks, tests and clients of a server need.
        from importlib import import_module

        if name == "simulate":
            return import_module(".simulation", __name__).simulate
        if name in ("remote", "testing"):
            return import_module(f".{name}", __name__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
