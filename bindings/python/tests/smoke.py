# SPDX-License-Identifier: MIT
"""Whether an installed package works, with the standard library alone: `python smoke.py`.

Prints what it ran on. A wheel is tried with it on a system that has nothing else.
"""

from __future__ import annotations

import asyncio
import math
import os
import pickle
import platform
import tempfile

import stint
from stint.testing import Clock


def limits(table: stint.Table, clock: Clock) -> None:
    limiter = stint.Limiter(table, "3/1m", "gcra 100/1h", name="smoke")
    assert [bool(limiter.take("a")) for _ in range(4)] == [True, True, True, False]
    refused = limiter.peek("a")
    assert refused.outcome == "deny" and 0 < refused.retry_after < 70 and refused.binding == 0
    assert limiter.take("b").remaining == 2 and limiter.take(b"\xff").allowed
    assert limiter.peek("b", 101).outcome == "never"
    assert limiter.peek("b", 101).retry_after == math.inf
    try:
        limiter.check("a")
        raise AssertionError("check() let a refused key pass")
    except stint.Limited as error:
        assert error.decision.retry_after > 0
    clock.advance(refused.retry_after)
    assert asyncio.run(limiter.wait_async("a", timeout=60))
    assert hash(pickle.loads(pickle.dumps(limiter.quotas[0]))) == hash(stint.Quota("3/1m"))


def budgets(table: stint.Table) -> None:
    limiter = stint.Limiter(table, "gcra 1000/1h", name="budget")
    with limiter.reserve("team", 400) as reservation:
        assert reservation and limiter.peek("team", 0).remaining == 600
        reservation.settle(150)
    assert limiter.peek("team", 0).remaining == 850
    held = stint.Limiter(table, "concurrency 1 lease=30s")
    with held.hold("job"):
        assert not held.take("job")


def pools(table: stint.Table) -> None:
    pool = stint.Pool(table, "keys", ["first", "second"], quota="1/1m")
    assert {pool.next().name, pool.next().name} == {"first", "second"}
    assert not pool.next() and pool.next().retry_after > 0


def processes(table: stint.Table) -> None:
    """Children take from the same limit, and no unit is granted twice."""
    limiter = stint.Limiter(table, "100/1h", name="forked")
    children = []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            os._exit(sum(bool(limiter.take("shared")) for _ in range(50)))
        children.append(child)
    granted = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert sum(granted) == 100, granted


def errors(folder: str) -> None:
    try:
        stint.Quota("100/month")
        raise AssertionError("a wrong SPEC was accepted")
    except stint.QuotaError as error:
        assert error.code == "SYNTAX" and isinstance(error, ValueError)
    path = os.path.join(folder, "none", "table")
    try:
        stint.Table(path)
        raise AssertionError("a table in a folder that is not there was opened")
    except stint.TableError as error:
        assert error.code == "SYSTEM" and "none" in str(error)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        errors(folder)
        clock = Clock()
        with stint.Table(keys=1000, clock=clock) as table:
            limits(table, clock)
            budgets(table)
            pools(table)
        path = os.path.join(folder, "table")
        with stint.Table(path, keys=1000) as table:
            processes(table)
        with stint.Table(path) as table:
            assert not stint.Limiter(table, "100/1h", name="forked").take("shared")
    libc = "-".join(filter(None, platform.libc_ver())) or "musl"
    print(f"stint {stint.__version__}: Python {platform.python_version()}, {platform.machine()}, "
          f"{libc}: fine")


if __name__ == "__main__":
    main()
