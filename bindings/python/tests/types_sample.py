# SPDX-License-Identifier: MIT
# pyright: strict
"""Uses all of the interface, for type checkers: test_types.py checks it, and nothing runs it.

A comment `type: ignore` marks what a checker must find: without a finding it is an error itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Optional

from typing_extensions import assert_type

import stint
from stint.remote import AsyncRules, RemoteDecision, RemoteRules, RemoteTable
from stint.testing import Clock


def tables() -> None:
    assert_type(stint.__version__, str)
    with stint.Table() as table:
        assert_type(table, stint.Table)
    table = stint.Table("/dev/shm/app.stint", keys=100_000, keys16=10, keys_wide=10, tickets=10,
                        quotas=10, pools=10)
    stint.Table(Path("app.stint"), clock=Clock())
    assert_type(table.now(), int)
    assert_type(table.path, Optional[str])
    assert_type(table.info(), dict[str, int])
    assert_type(table.decisions(), dict[str, dict[str, int]])
    assert_type(table.closed, bool)
    count = table.count("views", 2, expiry=60)
    assert_type(count, stint.Count)
    assert_type(table.counter("views").count, int)
    assert_type(count.expires_after, float)
    table.close()
    stint.Table(keys="many")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def quotas() -> None:
    quota = stint.Quota("window 100/60s resolution=12")
    stint.Quota(limit=100, period=60)
    stint.Quota(limit=100, period="1mo", algorithm="fixed_window", align="calendar")
    stint.Quota(limit=100, period=60, algorithm="gcra", burst=20)
    assert_type(quota.limit, int)
    assert_type(quota.period, float)
    assert_type(quota.algorithm, str)
    assert_type(quota.strict, bool)
    assert_type(quota.max_in_any_window, int)
    assert_type(quota.burst, int)
    assert_type(quota.explain(), str)
    assert_type(stint.explain("100/1m"), str)
    assert_type({quota: str(quota)}, dict[stint.Quota, str])
    stint.Quota(100)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def decisions(limiter: stint.Limiter) -> None:
    decision = limiter.take("key")
    assert_type(decision, stint.Decision)
    if decision:
        assert_type(decision.granted, int)
    assert_type(decision.allowed, bool)
    assert_type(decision.outcome, str)
    assert_type(decision.limit, int)
    assert_type(decision.remaining, int)
    assert_type(decision.retry_after, float)
    assert_type(decision.reset_after, float)
    assert_type(decision.retry_after_ns, int)
    assert_type(decision.reset_after_ns, int)
    assert_type(decision.binding, int)
    if decision.quota is not None:
        assert_type(decision.quota.limit, int)
    for each in (limiter.take(b"key", 2), limiter.take_upto("key", 3), limiter.peek("key"),
                 limiter.charge("key", 4), limiter.check("key", cost=5),
                 limiter.refund("key", 5, granted_at_ns=None),
                 limiter.wait("key", timeout=1.5)):
        assert_type(each, stint.Decision)
    limiter.reset("key")
    limiter.block("key", 60)
    limiter.take(42)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    limiter.take("key", "1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def coroutines(limiter: stint.Limiter) -> None:
    assert_type(await limiter.wait_async("key", 1, timeout=2), stint.Decision)


def limiters(table: stint.Table) -> None:
    limiter = stint.Limiter(table, "100/1m", stint.Quota("1000/1h"), name="login")
    assert_type(limiter.quotas, tuple[stint.Quota, ...])
    assert_type(limiter.name, Optional[str])
    assert_type(limiter.table, stint.Table)
    with limiter.reserve("team", 400, expires=60) as reservation:
        if reservation:
            assert_type(reservation, stint.Reservation)
            assert_type(reservation.decision, stint.Decision)
            assert_type(reservation.settle(150), stint.Decision)
    limiter.reserve("team", 400).cancel()
    with stint.Limiter(table, "concurrency 10 lease=30s").hold("job") as hold:
        hold.renew()
    stint.Limiter("100/1m")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def errors(limiter: stint.Limiter) -> None:
    try:
        limiter.check("key")
    except stint.Limited as limited:
        assert_type(limited.decision, stint.Decision)
    except (stint.QuotaError, stint.GoneError, stint.TableError) as error:
        assert_type(error.code, str)
    value: ValueError = stint.QuotaError()
    lookup: LookupError = stint.GoneError()
    system: OSError = stint.TableError()
    print(value, lookup, system)


def pools(table: stint.Table) -> None:
    pool = stint.Pool(table, "mail", {"first": "60/1m", "second": ["60/1m", "1000/1d"]})
    stint.Pool(table, "mail", ["first", "second"], quota=stint.Quota("60/1m"), order="least_used")
    lease = pool.next(cost=2)
    if lease:
        assert_type(lease.name, Optional[str])
        assert_type(lease.retry_after, float)
        assert_type(pool.give_back("first", 1, lease.granted_at_ns), int)
    pool.add("third", quota="60/1m", weight=2)
    pool.report("first", cooldown=30)
    pool.report("first", ok=True)
    pool.remove("third")
    assert_type(pool.status(), list[stint.KeyStatus])


def servers() -> None:
    table = RemoteTable("stint://127.0.0.1:7379")
    assert_type(table.limiter("100/1m").take("key"), RemoteDecision)
    rules = table.rules("shop", on_error="deny")
    assert_type(rules, RemoteRules)
    assert_type(rules.take({"user": "42"}), RemoteDecision)
    rules.peek([{"user": "42"}, {"plan": "free"}], 2)
    rules.reserve((("user", "42"), ("plan", "free")), 5).cancel()
    rules.take("42")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    rules.take({"user": 42})  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]
    assert_type(table.pool("mail", request_ids=False).next(), stint.Lease)


async def servers_of_tasks() -> None:
    rules = AsyncRules.connect("http://127.0.0.1:8080", "shop", timeout=1)
    assert_type(await rules.take_async({"user": "42"}), RemoteDecision)
    async with rules.reserve({"user": "42"}, 5) as reservation:
        assert_type(await reservation.settle(3), RemoteDecision)


def clocks() -> None:
    clock = Clock()
    clock.advance(0.5)
    stint.Table(clock=clock)
    clock.advance("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
