# SPDX-License-Identifier: MIT
from __future__ import annotations

import asyncio
import math
import pickle
import threading

import pytest

import stint
from stint.testing import Clock


@pytest.fixture
def limiter(table: stint.Table) -> stint.Limiter:
    return stint.Limiter(table, "gcra 60/1m burst=3")


# ---- Taking -------------------------------------------------------------------------------------


def test_a_decision_has_all_that_a_reply_needs(limiter: stint.Limiter, clock: Clock) -> None:
    clock.advance(5)
    first = limiter.take("key")
    assert first and first.allowed is True and first.outcome == "allow"
    assert (first.granted, first.limit, first.remaining) == (1, 3, 2)
    assert (first.retry_after, first.reset_after) == (0.0, 1.0)
    assert (first.binding, first.quota, first.stored) == (0, limiter.quotas[0], True)
    assert first.at_ns == 5 * 10**9
    assert limiter.take("key", cost=2).remaining == 0
    denied = limiter.take("key")
    assert not denied and denied.outcome == "deny" and denied.granted == 0
    assert (denied.retry_after, denied.retry_after_ns) == (1.0, 10**9)
    never = limiter.take("key", 4)
    assert not never and never.outcome == "never"
    assert never.retry_after == math.inf and never.retry_after_ns == 2**64 - 1
    assert (never.reset_after, never.reset_after_ns) == (3.0, 3 * 10**9)


def test_a_decision_is_a_value(limiter: stint.Limiter) -> None:
    decision = limiter.take("key")
    for again in (pickle.loads(pickle.dumps(decision)), limiter.take("another")):
        assert again == decision and hash(again) == hash(decision)
    assert decision != limiter.take("key") and decision != "allow"
    assert "allow" in repr(decision) and "remaining=2" in repr(decision)
    with pytest.raises(AttributeError):
        decision.granted = 0  # type: ignore[misc]


def test_a_decision_can_be_made() -> None:
    """As a limiter on a server makes them, and a test of an application."""
    quotas = (stint.Quota("1/1s"), stint.Quota("9/1m"))
    made = stint.Decision("deny", 0, 9, 0, retry_after_ns=10**9, binding=1, quotas=quotas)
    assert not made and made.retry_after == 1.0 and made.quota is quotas[1]
    assert stint.Decision("never").retry_after == math.inf
    assert stint.Decision("allow").quota is None
    for arguments in [("maybe",), ("allow", -1), ("allow", "1"), (), ("allow", 1, 1, 1, -1)]:
        with pytest.raises((ValueError, TypeError, OverflowError)):
            stint.Decision(*arguments)


@pytest.mark.parametrize("key", [
    "", "a", "ü", "𝛼", "\0", "a\0b", "\ud800", "\udcff", b"", b"\xff\x00",
    pytest.param("x" * 65_536, id="the longest"),
])
def test_keys_are_any_text_and_any_bytes(limiter: stint.Limiter, key: str | bytes) -> None:
    assert limiter.take(key, 3)
    assert not limiter.take(key)
    encoded = key.encode("utf-8", "surrogatepass") if isinstance(key, str) else key
    assert not limiter.take(encoded), "text and its UTF-8 are one key"
    assert limiter.take(encoded[:65_535] + b"?", 3), "and no other is"


@pytest.mark.parametrize("key", [None, 1, 1.5, ("a",), bytearray(b"a"), memoryview(b"a"), object()])
@pytest.mark.parametrize("verb", ["take", "take_upto", "peek", "charge", "refund", "reset", "block",
                                  "check", "reserve", "wait"])
def test_other_keys_are_refused(limiter: stint.Limiter, verb: str, key: object) -> None:
    arguments = (1,) if verb in ("take_upto", "charge", "refund", "block", "reserve") else ()
    with pytest.raises(TypeError, match="str or bytes"):
        getattr(limiter, verb)(key, *arguments)


def test_a_key_that_is_too_long_is_never_allowed(limiter: stint.Limiter) -> None:
    assert limiter.take("x" * 65_537).outcome == "never"
    limiter.reset("x" * 65_537)
    with pytest.raises(stint.QuotaError, match="65536 bytes") as caught:
        limiter.block("x" * 65_537, 1)
    assert caught.value.code == "RANGE"


@pytest.mark.parametrize(("cost", "error"), [
    (-1, stint.QuotaError), (2**32, stint.QuotaError), (2**63, stint.QuotaError),
    (-2**63 - 1, stint.QuotaError), (1.0, TypeError),
    pytest.param(10**5000, stint.QuotaError, id="a number too long for text"),
    ("1", TypeError), (None, TypeError),
])
@pytest.mark.parametrize("verb", ["take", "take_upto", "peek", "charge", "refund", "check",
                                  "reserve"])
def test_costs_out_of_range(limiter: stint.Limiter, verb: str, cost: object,
                            error: type[Exception]) -> None:
    with pytest.raises(error):
        getattr(limiter, verb)("key", cost)
    assert limiter.take("key").remaining == 2, "nothing was charged"


class Index:
    def __index__(self) -> int:
        return 2


@pytest.mark.parametrize(("cost", "granted"), [(0, 0), (True, 1), (Index(), 2), (3, 3)])
def test_costs(limiter: stint.Limiter, cost: int, granted: int) -> None:
    assert limiter.take("key", cost).granted == granted


@pytest.mark.parametrize(("arguments", "keywords"), [
    ((), {}), (("a", 1, 2), {}), (("a",), {"key": "b"}), (("a", 1), {"cost": 1}),
    (("a",), {"weight": 1}), ((), {"cost": 1}),
])
def test_calls_that_python_refuses(limiter: stint.Limiter, arguments: tuple[object, ...],
                                   keywords: dict[str, object]) -> None:
    with pytest.raises(TypeError, match="take()"):
        limiter.take(*arguments, **keywords)  # type: ignore[arg-type]
    assert limiter.take(key="key", cost=1)


# ---- Several quotas, names ----------------------------------------------------------------------


def test_quotas_are_charged_all_or_none(table: stint.Table, clock: Clock) -> None:
    limiter = stint.Limiter(table, "2/1s", "3/1h")
    assert [quota.limit for quota in limiter.quotas] == [2, 3]
    first = limiter.take("key", 2)
    assert first and (first.binding, first.limit, first.remaining) == (0, 2, 0)
    denied = limiter.take("key")
    assert (denied.outcome, denied.binding, denied.quota) == ("deny", 0, limiter.quotas[0])
    clock.advance(denied.retry_after)
    assert limiter.take("key", 2).quota == limiter.quotas[1]
    assert limiter.take("key").remaining == 0
    assert limiter.take("key", 4).outcome == "never"


def test_limiters_share_states_only_without_names(table: stint.Table) -> None:
    def left(limiter: stint.Limiter) -> int:
        return limiter.take("key").remaining

    make = stint.Limiter
    assert [left(make(table, "9/1m")), left(make(table, stint.Quota("9/60s")))] == [8, 7]
    assert [left(make(table, "9/1m", name="a")), left(make(table, "9/1m", name="b"))] == [8, 8]
    assert left(make(table, "9/1m", name="a")) == 7


def test_a_named_limiter_keeps_what_was_used_when_limits_change(table: stint.Table) -> None:
    stint.Limiter(table, "10/1m", "50/1h", name="login").take("key", 8)
    changed = stint.Limiter(table, "50/1h", "20/1d", "9/1m", name="login")
    assert not changed.take("key", 2)
    assert changed.take("key", 1).quota.limit == 9


def test_equal_quotas_of_one_limiter_add_up_unless_it_has_a_name(table: stint.Table) -> None:
    assert stint.Limiter(table, "10/1m", "10/1m").take("key").remaining == 8
    assert stint.Limiter(table, "10/1m", "10/1m", name="twice").take("key").remaining == 9


def test_limiters_that_cannot_be(table: stint.Table) -> None:
    quotas = [f"{n}/1m" for n in range(1, 34)]
    stint.Limiter(table, *quotas[:32])
    for bad, error in [((), stint.QuotaError), (quotas, stint.QuotaError),
                       (("no quota",), stint.QuotaError), ((3,), TypeError),
                       ((None,), TypeError), (("log 1000/1s",), stint.QuotaError)]:
        with pytest.raises(error):
            stint.Limiter(table, *bad)
    with pytest.raises(TypeError):
        stint.Limiter(table, "1/1s", name=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        stint.Limiter("table", "1/1s")  # type: ignore[arg-type]


def test_a_table_has_so_many_quotas(clock: Clock) -> None:
    with stint.Table(keys=16, quotas=2, clock=clock) as table:
        stint.Limiter(table, "1/1m", "2/1m")
        with pytest.raises(stint.TableError) as caught:
            stint.Limiter(table, "3/1m")
    assert caught.value.code == "FULL"


# ---- The other verbs ----------------------------------------------------------------------------


def test_take_upto_peek_charge_refund_reset(limiter: stint.Limiter, clock: Clock) -> None:
    assert limiter.peek("key").remaining == 2 and limiter.peek("key", 4).outcome == "never"
    taken = limiter.take_upto("key", 9)
    assert (taken.granted, taken.remaining) == (3, 0)
    assert not limiter.take_upto("key", 9)
    assert limiter.charge("key", 2).granted == 2
    assert not limiter.take("key", 0), "in debt"
    clock.advance(3)
    assert limiter.take("key", 1)
    assert limiter.refund("key", 1, limiter.peek("key").at_ns).granted == 1
    assert limiter.refund("key", 1, granted_at_ns=None).granted == 1
    limiter.reset("key")
    assert limiter.take("key", 3)


@pytest.mark.parametrize(("at", "error"), [(-1, stint.QuotaError), (2**64, stint.QuotaError),
                                           (1.5, TypeError), ("now", TypeError)])
def test_refunds_of_no_time(limiter: stint.Limiter, at: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        limiter.refund("key", 1, at)  # type: ignore[arg-type]


def test_block(limiter: stint.Limiter, clock: Clock) -> None:
    limiter.block("key", 90)
    assert limiter.take("key").retry_after == 90.0
    clock.advance(90)
    assert limiter.take("key")
    limiter.block("key", 0.5)
    limiter.reset("key")
    assert limiter.take("key")
    for seconds in (-1, math.nan, math.inf, 1e12, 10**400):
        with pytest.raises(stint.QuotaError):
            limiter.block("key", seconds)
    with pytest.raises(TypeError):
        limiter.block("key", "soon")  # type: ignore[arg-type]


def test_so_many_keys_are_blocked(clock: Clock) -> None:
    with stint.Table(keys=16, blocks=16, clock=clock) as table:
        limiter = stint.Limiter(table, "1/1m")
        with pytest.raises(stint.TableError, match="blocks") as caught:
            for number in range(1000):
                limiter.block(f"key {number}", 60)
    assert caught.value.code == "FULL"


def test_check_raises(limiter: stint.Limiter) -> None:
    assert limiter.check("key", 3).granted == 3
    with pytest.raises(stint.Limited, match=r"retry after 1\.000 s") as caught:
        limiter.check("key")
    assert caught.value.decision.retry_after == 1.0
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.decision == caught.value.decision
    with pytest.raises(stint.Limited, match="more units"):
        limiter.check("key", 9)


# ---- Reservations and holds ---------------------------------------------------------------------


def test_a_reservation_is_settled(table: stint.Table) -> None:
    limiter = stint.Limiter(table, "log 100/1m")
    with limiter.reserve("key", 40) as reserved:
        assert reserved and reserved.decision.remaining == 60
        assert reserved.settle(10).granted == 30
    assert limiter.peek("key", 0).remaining == 90
    with limiter.reserve("key", 10) as reserved:
        reserved.settle(50)
    assert limiter.peek("key", 0).remaining == 40
    for late in (lambda: reserved.settle(1), reserved.cancel):
        with pytest.raises(stint.GoneError) as caught:
            late()
        assert caught.value.code == "GONE" and isinstance(caught.value, LookupError)


def test_a_reservation_that_is_left(table: stint.Table) -> None:
    limiter = stint.Limiter(table, "log 100/1m")
    with limiter.reserve("key", 40):
        pass
    assert limiter.peek("key", 0).remaining == 60, "it stays as estimated"
    with pytest.raises(ZeroDivisionError), limiter.reserve("key", 40):
        _ = 1 / 0
    assert limiter.peek("key", 0).remaining == 60, "an exception cancels it"
    with pytest.raises(ZeroDivisionError), limiter.reserve("key", 40) as reserved:
        reserved.settle(5)
        _ = 1 / 0
    assert limiter.peek("key", 0).remaining == 55, "but not what was settled"
    with limiter.reserve("key", 101) as refused:
        assert not refused and refused.decision.outcome == "never"
    with pytest.raises(stint.GoneError):
        refused.settle(1)


def test_a_reservation_expires(table: stint.Table, clock: Clock) -> None:
    limiter = stint.Limiter(table, "log 100/1h")
    reserved = limiter.reserve("key", 40, expires=2.5)
    clock.advance(3)
    with pytest.raises(stint.GoneError):
        reserved.settle(1)
    assert limiter.peek("key", 0).remaining == 60
    with pytest.raises(ZeroDivisionError), limiter.reserve("key", 1, expires=1):
        clock.advance(2)
        _ = 1 / 0  # and GoneError of the cancellation does not hide it
    for expires in (-1, math.nan):
        with pytest.raises(stint.QuotaError):
            limiter.reserve("key", 1, expires)
    with pytest.raises(stint.QuotaError):
        limiter.reserve("key", 1).settle(-1)


def test_a_reservation_of_several_quotas(table: stint.Table) -> None:
    limiter = stint.Limiter(table, "log 100/1m", "log 400/1h", name="tokens")
    limiter.reserve("key", 80).settle(20)
    assert limiter.peek("key", 80) and not limiter.peek("key", 81)


def test_units_are_held(table: stint.Table, clock: Clock) -> None:
    limiter = stint.Limiter(table, "concurrency 2 lease=30s")
    with limiter.hold("key") as first:
        second = limiter.hold("key")
        assert first and second and not limiter.hold("key")
        with pytest.raises(stint.Limited), limiter.hold("key"):
            pytest.fail("the body ran without the units")
        clock.advance(20)
        first.renew()
        clock.advance(20)
        assert limiter.peek("key", 0).remaining == 1, "one was renewed, one has ended"
        with pytest.raises(stint.GoneError):
            second.renew()
        with pytest.raises(stint.GoneError):
            second.release()
    assert limiter.peek("key", 0).remaining == 2
    with pytest.raises(stint.GoneError):
        first.release()
    with pytest.raises(ZeroDivisionError), limiter.hold("key", 2):
        _ = 1 / 0
    with limiter.hold("key", 2):
        clock.advance(31)  # the lease ends before the statement


def test_only_concurrency_is_held(table: stint.Table) -> None:
    limiter = stint.Limiter(table, "concurrency 2 lease=30s", "10/1m")
    with pytest.raises(stint.QuotaError, match="not of concurrency") as caught:
        limiter.hold("key")
    assert caught.value.code == "MISMATCH"


# ---- Waiting ------------------------------------------------------------------------------------


def wait(limiter: stint.Limiter, *args: object, **keywords: object) -> stint.Decision:
    return limiter.wait(*args, **keywords)  # type: ignore[arg-type]


def wait_async(limiter: stint.Limiter, *args: object, **keywords: object) -> stint.Decision:
    return asyncio.run(limiter.wait_async(*args, **keywords))  # type: ignore[arg-type]


@pytest.mark.parametrize("waits", [wait, wait_async])
def test_wait(limiter: stint.Limiter, clock: Clock, waits: object) -> None:
    def answered(*args: object, **keywords: object) -> tuple[bool, float]:
        begin = clock.now()
        decision = waits(limiter, *args, **keywords)  # type: ignore[operator]
        return bool(decision), clock.now() - begin

    assert answered("key", 3) == (True, 0.0)
    assert answered("key") == (True, 1.0)
    assert answered("key", 2, timeout=1.999) == (False, 0.0), "it would not be in time"
    assert answered("key", 2, timeout=2) == (True, 2.0)
    assert answered("key", timeout=0) == (False, 0.0)
    assert answered("key", 4) == (False, 0.0), "never"
    for timeout in (-1, math.nan):
        with pytest.raises(stint.QuotaError):
            answered("key", timeout=timeout)


@pytest.mark.parametrize("waits", [wait, wait_async])
def test_wait_for_what_is_held(table: stint.Table, clock: Clock, waits: object) -> None:
    limiter = stint.Limiter(table, "concurrency 1 lease=30s")
    limiter.hold("key")
    assert not waits(limiter, "key", timeout=1)  # type: ignore[operator]
    assert 0.9 < clock.now() < 1.1
    assert waits(limiter, "key")  # type: ignore[operator]
    assert 30 <= clock.now() < 31


def test_wait_by_real_time() -> None:
    with stint.Table(keys=16) as table:
        limiter = stint.Limiter(table, "gcra 1000/1s burst=1")
        limiter.take("key")
        threads = [threading.Thread(target=limiter.wait, args=("key",)) for _ in range(4)]
        for thread in threads:
            thread.start()
        assert limiter.wait("key")
        for thread in threads:
            thread.join()

        async def several() -> list[stint.Decision]:
            return await asyncio.gather(*(limiter.wait_async("key") for _ in range(4)))

        assert all(asyncio.run(several()))


# ---- The rest -----------------------------------------------------------------------------------


def test_simulate() -> None:
    trace = [(1e9, "a"), (1e9 + 1, "a"), (1e9 + 1, "b", 2), (1e9 + 2, "a"), (1e9 + 90, "a", 3)]
    got = stint.simulate("2/1m", iter(trace))
    assert [decision.outcome for decision in got.decisions] == [
        "allow", "allow", "allow", "deny", "never"]
    assert (got.requests, got.allowed, got.denied, got.granted, got.refused, got.keys,
            got.keys_denied) == (5, 3, 2, 4, 4, 2, 1)
    assert "3 of 5 requests allowed" in repr(got)
    assert stint.simulate(["5/1m", stint.Quota("1/1h")], trace).allowed == 1
    assert stint.simulate("1/1m", []).requests == 0
    with pytest.raises(stint.QuotaError, match="request 1 "):
        stint.simulate("1/1m", [(2, "a"), (1, "a")])
    # Calendar windows are those of the trace's own time: midnight UTC is at 86,400 s.
    day = "fixed_window 1/1d align=calendar"
    assert stint.simulate(day, [(86_399, "a"), (86_400, "a"), (86_401, "a")]).allowed == 2


def test_names_and_texts(limiter: stint.Limiter, table: stint.Table) -> None:
    assert limiter.name is None and limiter.table is table
    named = stint.Limiter(table, "1/1s", name="login")
    assert named.name == "login" and "name='login'" in repr(named)
    for public in stint.__all__:
        assert public == "__version__" or getattr(stint, public).__doc__, public
    with pytest.raises(AttributeError):
        _ = stint.nothing
