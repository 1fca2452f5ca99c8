# SPDX-License-Identifier: MIT
"""A table with a virtual clock, as Python sees it: keys are bytes, answers are plain tuples."""

import ctypes as c
from collections import namedtuple

import stint_abi as abi
from stint_abi import K, S, lib

Listed = namedtuple("Listed", abi.Decision._fields + ("binding", "stored"))

Visit = c.CFUNCTYPE(c.c_bool, c.POINTER(S["stint_entry"]), c.c_void_p)


def listed(decision):
    return Listed(*abi.from_c(decision), decision.binding, decision.stored)


class Table:
    def __init__(self, **options):
        options.setdefault("clock", K.STINT_CLOCK_VIRTUAL)
        options.setdefault("keys", 1000)
        options.setdefault("keys16", 1000)
        options.setdefault("skew_max_ns", 1)
        made = S["stint_table_options"]()
        for name, value in options.items():
            if name == "hash_key":
                made.hash_key[0], made.hash_key[1] = value
            else:
                setattr(made, name, value)
        handle, error = c.c_void_p(), abi.Error()
        if lib.stint_table_open(c.byref(handle), c.byref(made), c.byref(error)) != K.STINT_OK:
            raise abi.Refused(error)
        self.handle, self.now = handle, 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        lib.stint_table_close(self.handle)

    def at(self, now):
        """Sets the clock, and is the table, so that a call reads: table.at(5).take(…)."""
        self.now = now
        lib.stint_table_set_now(self.handle, now)
        return self

    @staticmethod
    def items(wanted):
        """(quota, key, cost) … as C has them; the keys are kept alive beside them."""
        array = (S["stint_item"] * max(1, len(wanted)))()
        kept = [c.create_string_buffer(key, len(key) + 1) for _, key, _ in wanted]
        for item, (quota, key, cost), text in zip(array, wanted, kept):
            item.quota, item.key = c.addressof(quota), c.addressof(text)
            item.key_len, item.cost = len(key), cost
        array.kept = kept
        return array

    def take(self, quota, key, cost=1):
        text = c.create_string_buffer(key, len(key) + 1)
        return listed(lib.stint_take(self.handle, c.byref(quota), text, len(key), cost, self.now))

    def _list(self, call, wanted, *more):
        array = self.items(wanted)
        return listed(call(self.handle, array, len(wanted), *more, self.now))

    def take_all(self, *wanted):
        return self._list(lib.stint_take_all, wanted)

    def take_upto(self, *wanted):
        return self._list(lib.stint_take_upto, wanted)

    def peek(self, *wanted):
        return self._list(lib.stint_peek, wanted)

    def charge(self, *wanted):
        return self._list(lib.stint_charge, wanted)

    def refund(self, granted_at, *wanted):
        return self._list(lib.stint_refund, wanted, granted_at)

    def batch(self, *wanted):
        array, answers = self.items(wanted), (S["stint_decision"] * len(wanted))()
        lib.stint_take_batch(self.handle, array, answers, len(wanted), self.now)
        return [listed(answer) for answer in answers]

    def reserve(self, lifetime, *wanted):
        ticket, array = S["stint_ticket"](), self.items(wanted)
        answer = lib.stint_reserve(self.handle, array, len(wanted), lifetime, self.now,
                                   c.byref(ticket))
        return listed(answer), ticket

    def reserve_expiring(self, lifetime, kept, *wanted):
        """kept: units of each that stay charged if it is never settled."""
        ticket, array = S["stint_ticket"](), self.items(wanted)
        answer = lib.stint_reserve_expiring(self.handle, array, len(wanted), lifetime,
                                            (c.c_uint32 * len(kept))(*kept), self.now,
                                            c.byref(ticket))
        return listed(answer), ticket

    def expire(self):
        while lib.stint_expire(self.handle, self.now, 1000) > 0:
            pass

    def book(self, max_wait, *wanted):
        ticket, array = S["stint_ticket"](), self.items(wanted)
        answer = lib.stint_book(self.handle, array, len(wanted), max_wait, self.now,
                                c.byref(ticket))
        return listed(answer), ticket

    def settle(self, ticket, actual):
        decision = S["stint_decision"]()
        code = lib.stint_settle(self.handle, ticket, actual, self.now, c.byref(decision))
        return code, decision.granted

    def cancel(self, ticket):
        decision = S["stint_decision"]()
        code = lib.stint_cancel(self.handle, ticket, self.now, c.byref(decision))
        return code, decision.granted

    def renew(self, ticket):
        return lib.stint_renew(self.handle, ticket, self.now)

    def block(self, key, until):
        return lib.stint_block(self.handle, c.create_string_buffer(key, len(key) + 1), len(key),
                               until, self.now)

    def reset(self, quota, key):
        lib.stint_reset(self.handle, c.byref(quota), c.create_string_buffer(key, len(key) + 1),
                        len(key), self.now)

    def set_quota(self, old, new, key):
        return lib.stint_set_quota(self.handle, c.byref(old), c.byref(new),
                                   c.create_string_buffer(key, len(key) + 1), len(key), self.now)

    def accepts(self, quota):
        """(0, None), or the code and the sentence."""
        error = abi.Error()
        code = lib.stint_table_accepts(self.handle, c.byref(quota), c.byref(error))
        return code, error.message.decode() if code != K.STINT_OK else None

    def info(self):
        info = S["stint_table_info"]()
        lib.stint_table_info(self.handle, self.now, c.byref(info))
        return info

    def each(self):
        """(key hash, algorithm, dies at, decision) of every live state, in no order."""
        seen = []

        def visit(entry, _):
            entry = entry.contents
            seen.append((entry.key_hash, entry.quota.algorithm, entry.expires_at_ns,
                         abi.from_c(entry.decision)))
            return True

        lib.stint_table_each(self.handle, self.now, Visit(visit), None)
        return sorted(seen)

    def find(self, quota, key):
        entry = S["stint_entry"]()
        text = c.create_string_buffer(key, len(key) + 1)
        code = lib.stint_find(self.handle, c.byref(quota), text, len(key), self.now,
                              c.byref(entry))
        return entry if code == K.STINT_OK else None
