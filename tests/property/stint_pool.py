# SPDX-License-Identifier: MIT
"""A key pool, as Python sees it: names are str, answers are plain tuples."""

import ctypes as c
from collections import namedtuple

import stint_abi as abi
from stint_abi import K, S, lib
from stint_table import listed

ORDERS = {"round_robin": K.STINT_ROUND_ROBIN, "fill_first": K.STINT_FILL_FIRST,
          "least_used": K.STINT_LEAST_USED}
OUTCOMES = {"ok": K.STINT_POOL_OK, "cool": K.STINT_POOL_COOL, "back_off": K.STINT_POOL_BACK_OFF,
            "out": K.STINT_POOL_OUT}
STANDINGS = {K.STINT_POOL_FREE: "free", K.STINT_POOL_USED_UP: "used up",
             K.STINT_POOL_COOLING: "cooling", K.STINT_POOL_BACKING_OFF: "backing off",
             K.STINT_POOL_IS_OUT: "out"}

Answer = namedtuple("Answer", "name wait granted_at probe decision")
Status = namedtuple("Status", "name weight standing failures returns_after decision")
Visit = c.CFUNCTYPE(c.c_bool, c.POINTER(S["stint_pool_status"]), c.c_void_p)


class Pool:
    """Asked at the time of its table, unless a call says another."""

    def __init__(self, table, name="", order="round_robin", keys_max=0):
        options = S["stint_pool_options"](name=name.encode(), keys_max=keys_max,
                                          order=ORDERS[order])
        handle, error = c.c_void_p(), abi.Error()
        if lib.stint_pool_open(c.byref(handle), table.handle, c.byref(options),
                               c.byref(error)) != K.STINT_OK:
            raise abi.Refused(error)
        self.handle, self.table = handle, table

    def close(self):
        lib.stint_pool_close(self.handle)

    def _now(self, now):
        return self.table.now if now is None else now

    def add(self, name, quotas, weight=0, now=None):
        array = (abi.Quota * len(quotas))(*quotas)
        key = S["stint_pool_key"](name=name.encode(), quotas=c.addressof(array),
                                  n_quotas=len(quotas), weight=weight)
        error = abi.Error()
        if lib.stint_pool_add(self.handle, c.byref(key), self._now(now),
                              c.byref(error)) != K.STINT_OK:
            raise abi.Refused(error)

    def remove(self, name, now=None):
        return lib.stint_pool_remove(self.handle, name.encode(), self._now(now), None)

    def next(self, cost=1, probe=False, now=None):
        ask = S["stint_pool_ask"](now_ns=self._now(now), cost=cost, probe=probe)
        answer = lib.stint_pool_next(self.handle, c.byref(ask))
        name = answer.name.decode() if answer.name is not None else None
        return Answer(name, answer.wait_ns, answer.granted_at_ns, answer.probe,
                      listed(answer.decision))

    def give_back(self, name, units, granted_at, now=None):
        moved = c.c_uint32()
        code = lib.stint_pool_give_back(self.handle, name.encode(), units, granted_at,
                                        self._now(now), c.byref(moved))
        return code, moved.value

    def report(self, name, outcome, cooldown=0, now=None):
        return lib.stint_pool_report(self.handle, name.encode(), OUTCOMES[outcome], cooldown,
                                     self._now(now), None)

    def each(self, now=None):
        seen = []

        def visit(status, _):
            it = status.contents
            seen.append(Status(it.name.decode(), it.weight, STANDINGS[it.standing], it.failures,
                               it.returns_after_ns, abi.from_c(it.decision)))
            return True

        lib.stint_pool_each(self.handle, self._now(now), Visit(visit), None)
        return seen
