# SPDX-License-Identifier: MIT
"""Counters of a table against the shortest description of them: a dictionary of counts."""

import ctypes as c

from hypothesis import given, strategies as st

import stint_abi as abi
from stint_abi import K, S, lib
from stint_table import Table

MS = 1_000_000
SKEW = 50 * MS  # of the table; times are whole milliseconds, as the mark of the table is
KEYS = [b"", b"a", b"b"]


class Counters:
    """What is documented, and nothing else."""

    def __init__(self):
        self.counters, self.latest = {}, 0

    def count(self, key, amount, expiry, now):
        if amount != 0:
            self.latest = max(self.latest, now)
        effective = max(now, self.latest - SKEW)
        count, expires_at = self.counters.get(key, (0, 0))
        if expires_at <= effective:
            if amount <= 0:
                return 0, 0
            count, expires_at = 0, effective + expiry
        count = min(max(count + amount, 0), K.STINT_COUNT_MAX)
        self.counters[key] = count, expires_at
        return count, expires_at - now


def count(table, key, amount, expiry, now):
    counter, error = S["stint_counter"](), abi.Error()
    text = c.create_string_buffer(key, len(key) + 1)
    code = lib.stint_count(table.handle, text, len(key), amount, expiry, now, c.byref(counter),
                           c.byref(error))
    assert code == K.STINT_OK, error.message
    return counter.count, counter.expires_after_ns


AMOUNTS = st.one_of(st.integers(-3, 3), st.just(abi.U32_MAX), st.just(-abi.U32_MAX),
                    st.integers(-abi.U32_MAX, abi.U32_MAX))
EXPIRIES = st.one_of(st.just(1), st.integers(1, 100 * MS),
                     st.sampled_from([10 * MS, 20 * MS, K.STINT_COUNT_EXPIRY_MAX_NS]))
# Forward by whole milliseconds; a caller now and then has an older time.
STEPS = st.lists(st.tuples(st.sampled_from(KEYS), AMOUNTS, EXPIRIES, st.integers(0, 60),
                           st.sampled_from([0, 0, 0, 1, 30, 50, 51, 200]), st.integers(0, 19)),
                 max_size=60)


@given(start=st.sampled_from([0, 1, 1000, 8 * 365 * 86400 * 1000]), steps=STEPS)
def test_counters_are_a_dictionary(start, steps):
    expected, now = Counters(), start * MS
    with Table(skew_max_ns=SKEW) as table:
        for key, amount, expiry, forward, late, also in steps:
            now += forward * MS
            told = max(now - late * MS, 0)
            if expected.latest < now:
                expected.latest = now
                count(table, b"another", 1, 1, now)  # tells the table what time it is
            if also == 0:
                lib.stint_count_reset(table.handle, key, len(key), None)
                expected.counters.pop(key, None)
            assert count(table, key, amount, expiry, told) == expected.count(
                key, amount, expiry, told)
            for other in KEYS:
                assert count(table, other, 0, 0, now) == expected.count(other, 0, 0, now)
