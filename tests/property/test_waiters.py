# SPDX-License-Identifier: MIT
"""B22: a FIFO of waiters: one wake a place, no big request starved, no leak by cancelling."""

import ctypes as c

import pytest
from hypothesis import given, strategies as st

import stint_abi as abi
from oracle import UseLog
from stint_table import Table
from strategies import S

K, lib = abi.K, abi.lib


class Waiters:
    def __init__(self, table, quota, most=10_000):
        self.table, self.quota = table, quota
        self.handle = c.c_void_p(lib.stint_waiters_new(most))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        lib.stint_waiters_free(self.handle)

    def add(self, cost, deadline):
        name = c.c_uint64()
        code = lib.stint_waiters_add(self.handle, cost, deadline, c.byref(name))
        return name.value if code == K.STINT_OK else code

    def cancel(self, name):
        return lib.stint_waiters_cancel(self.handle, name)

    def wake(self):
        """[(name, expired)] of all who are to be woken now, and when to call again."""
        woken = []
        while True:
            wake = lib.stint_waiters_wake(self.handle, self.table.handle, c.byref(self.quota),
                                          b"key", 3, self.table.now)
            if wake.id == 0:
                return woken, wake.next_ns
            woken.append((wake.id, wake.expired))


def test_ten_thousand_waiters_are_woken_in_turn_one_for_each_place():
    """Sleeping until next_ns and no longer: each wake gets its units, nobody is woken in vain."""
    quota, order = abi.parse("gcra 1000/1s burst=1"), []
    with Table() as table, Waiters(table, quota) as waiters:
        names = [waiters.add(1, 2**59) for _ in range(10_000)]
        assert waiters.add(1, 2**59) == K.STINT_E_FULL
        now, turns = 0, 0
        while len(order) < len(names):
            woken, now = table.at(now) and waiters.wake()
            order += [name for name, _ in woken]
            turns += 1
            assert len(woken) == 1
        assert order == names and turns == len(names)
        assert now == abi.NEVER_NS


def test_a_big_request_is_not_starved_by_small_ones_behind_it():
    quota = abi.parse("window 10/10s")
    with Table() as table, Waiters(table, quota) as waiters:
        table.at(0).take(quota, b"key", 10)
        big = waiters.add(10, 2**59)
        small = [waiters.add(1, 2**59) for _ in range(20)]
        woken, again = waiters.wake()
        assert woken == [] and again >= 10 * S
        assert table.at(again - 1) and waiters.wake()[0] == []
        assert table.at(again) and waiters.wake()[0] == [(big, False)]
        woken, _ = table.at(again * 2 + S) and waiters.wake()
        assert woken == [(name, False) for name in small[:10]]


def test_a_cancelled_or_expired_waiter_leaks_nothing():
    """Neither takes units, and neither is in the way of those behind it."""
    quota = abi.parse("log 1/10s")
    with Table(keys_wide=16, wide_size=256) as table, Waiters(table, quota, 3) as waiters:
        table.at(0).take(quota, b"key")
        first, second, third = (waiters.add(1, deadline) for deadline in (2**59, 5 * S, 2**59))
        assert waiters.cancel(first) == K.STINT_OK
        assert waiters.cancel(first) == K.STINT_E_GONE
        woken, again = table.at(S) and waiters.wake()
        assert woken == [] and again <= 5 * S
        assert (table.at(5 * S) and waiters.wake()[0]) == [(second, True)]
        assert waiters.cancel(second) == K.STINT_E_GONE
        assert (table.at(10 * S) and waiters.wake()[0]) == [(third, False)]
        for _ in range(3):
            assert waiters.add(1, 2**59) > 0, "a place in the queue was lost"


def test_a_cost_that_can_never_fit_does_not_hold_up_the_queue():
    quota = abi.parse("window 5/10s")
    with Table() as table, Waiters(table, quota) as waiters:
        waiters.add(6, 2**59)
        fits = waiters.add(5, 2**59)
        woken, _ = table.at(0) and waiters.wake()
        assert (fits, False) in woken


@given(costs=st.lists(st.integers(1, 4), min_size=1, max_size=30),
       cancels=st.sets(st.integers(0, 29)), patience=st.integers(1, 60))
@pytest.mark.parametrize("spec", ["window 5/10s", "log 4/10s"])
def test_whoever_is_woken_has_its_units_in_order_and_within_the_limit(
        spec, costs, cancels, patience):
    quota, uses = abi.parse(spec), UseLog()
    with Table(keys_wide=16, wide_size=256) as table, Waiters(table, quota) as waiters:
        deadline = patience * S
        names = [waiters.add(cost, deadline) for cost in costs]
        for index in cancels:
            if index < len(names):
                assert waiters.cancel(names[index]) == K.STINT_OK
        left = [name for index, name in enumerate(names) if index not in cancels]
        now, order = 0, []
        for _ in range(3 * len(names) + 3):
            woken, again = table.at(now) and waiters.wake()
            for name, expired in woken:
                order.append(name)
                assert expired == (now >= deadline)
                if not expired:
                    uses.add(now, costs[names.index(name)])
            if again == abi.NEVER_NS:
                break
            assert again > now, "asked to come back at once"
            now = again
        assert order == left
        assert uses.most_in_any(quota.period_ns) <= quota.limit
