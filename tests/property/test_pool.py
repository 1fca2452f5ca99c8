# SPDX-License-Identifier: MIT
"""Key pools against a ledger of every grant: whatever is done with a pool, in whatever order.

The ledger knows each unit that was given out, to which key and when; it knows nothing of states,
pairs of words or turns. A grant is dated with the time that decided it: the caller's, or, where the
caller's clock was behind, the one below which nothing is decided any more.
"""

import ctypes as c

import pytest
from hypothesis import given, strategies as st

import stint_abi as abi
from stint_abi import K, NEVER_NS, lib
from stint_pool import Pool
from stint_table import Table
from strategies import MINUTE, S

MS = S // 1000
GRAIN = 1 << 16  # benches end at its multiples
START = 1000 * MINUTE
NAMES = ["a", "b", "c", "d"]
ROOM = {"keys": 64, "keys16": 64, "keys_wide": 64, "wide_size": 512, "hash_key": (3, 4)}


def bound_of(quota):
    lib.stint_max_in_any_window.argtypes = [c.c_void_p]
    return lib.stint_max_in_any_window(c.byref(quota))


class Ledger:
    """Who was given what, and when: exact."""

    def __init__(self, quotas):
        self.quotas = quotas
        self.grants = {}  # name -> [[at, units], …]

    def used(self, name, at, span):
        return sum(units for when, units in self.grants.get(name, ()) if at - span < when <= at)

    def take(self, name, at, units):
        """Dated no earlier than this key's last grant: its own state decides no earlier."""
        mine = self.grants.setdefault(name, [])
        mine.append([max([at] + [when for when, _ in mine[-1:]]), units])
        # In the window that ends with each grant, so in every window.
        for quota in self.quotas:
            used = self.used(name, mine[-1][0], quota.period_ns)
            assert used <= bound_of(quota), (name, used, mine)
        return mine[-1]

    def give_back(self, grant, units):
        assert units <= grant[1], "no more comes back than was granted"
        grant[1] -= units


class Benches:
    """Until when each key is benched, by the rules that stint.h states."""

    def __init__(self):
        self.keys = {}  # name -> (ends, failures, remembered until, length)

    @staticmethod
    def _up(at):
        return -(-at // GRAIN) * GRAIN

    def ends(self, name):
        return self.keys.get(name, (0, 0, 0, 0))[0]

    def report(self, name, outcome, cooldown, now):
        ends, failures, remembered, length = self.keys.get(name, (0, 0, 0, 0))
        if ends == NEVER_NS and outcome != "ok":
            return
        if now >= remembered:
            failures = 0
        if outcome == "ok":
            self.keys.pop(name, None)
        elif outcome == "out":
            self.keys[name] = (NEVER_NS, 0, 0, 0)
        elif outcome == "cool" and (ends <= now or self._longer(cooldown, length)):
            ends = max(ends if ends > now else 0, self._up(now + cooldown))
            self._put(name, ends, failures, cooldown)
        elif outcome == "back_off" and ends <= now:
            length = min(S << min(failures, 20), 60 * MINUTE)
            self._put(name, self._up(now + length), failures + 1, length)

    def _put(self, name, ends, failures, length):
        memory = self._up(min(S << (failures - 1), 60 * MINUTE)) if failures else 0
        self.keys[name] = (ends, failures, ends + memory, length)

    @staticmethod
    def _longer(cooldown, length):
        """Longer in its first six binary digits."""
        def digits(ns):
            shift = max(ns.bit_length() - 6, 0)
            return shift, ns >> shift
        return digits(cooldown) > digits(length)


times = st.one_of(st.integers(0, 3), st.sampled_from([MS, S, 5 * S, 10 * S, 11 * S, 61 * S]),
                  st.integers(0, 25 * S))
ops = st.lists(st.one_of(
    st.tuples(st.just("next"), st.integers(0, 1), st.integers(1, 1), st.just(False)),
    st.tuples(st.just("next"), st.integers(0, 1), st.integers(0, 4), st.booleans()),
    st.tuples(st.just("many"), st.integers(0, 1), st.integers(2, 25)),
    st.tuples(st.just("pass"), times),
    st.tuples(st.just("back"), st.integers(0, S)),
    st.tuples(st.just("give_back"), st.integers(0, 1), st.integers(0, 2**16), st.integers(0, 4)),
    st.tuples(st.just("report"), st.integers(0, 1), st.sampled_from(NAMES),
              st.sampled_from(["ok", "cool", "cool", "back_off", "out"]),
              st.sampled_from([1, S, 5 * S, 30 * S])),
    st.tuples(st.just("add"), st.integers(0, 1), st.sampled_from(NAMES)),
    st.tuples(st.just("remove"), st.integers(0, 1), st.sampled_from(NAMES)),
), max_size=40)


class Playing:
    """One or two processes (handles) on one region, and the ledger of what they are given."""

    def __init__(self, table, quotas, order, lists, weights=None, skew=S):
        self.table, self.quotas, self.skew = table, quotas, skew
        self.ledger, self.benches = Ledger(quotas), Benches()
        self.given = []  # (name, grant, granted_at)
        self.now = self.latest = START
        self.shut = False  # lists may differ: somebody may have shut the pool
        self.pools = [Pool(table, order=order) for _ in lists]
        self.names = [list() for _ in lists]
        self.weights = weights or {}
        for which, names in enumerate(lists):
            for name in names:
                self.add(which, name)

    def close(self):
        for pool in self.pools:
            pool.close()

    def effective(self):
        """What the table decides at; the mark may lag by its step."""
        return max(self.now, self.latest - self.skew)

    def add(self, which, name):
        which %= len(self.pools)
        if name in self.names[which]:
            with pytest.raises(abi.Refused) as refused:
                self.pools[which].add(name, self.quotas, now=self.now)
            assert refused.value.code == K.STINT_E_MISMATCH
        else:
            self.pools[which].add(name, self.quotas, self.weights.get(name, 0), now=self.now)
            self.names[which].append(name)

    def remove(self, which, name):
        which %= len(self.pools)
        code = self.pools[which].remove(name, now=self.now)
        assert code == (0 if name in self.names[which] else K.STINT_E_GONE)
        if code == 0:
            self.names[which].remove(name)
            if self.benches.ends(name) == NEVER_NS:
                self.benches.keys.pop(name)

    def next(self, which, cost=1, probe=False):
        which %= len(self.pools)
        answer = self.pools[which].next(cost, probe, now=self.now)
        self.latest = max(self.latest, self.now)
        if answer.name is not None:
            self.check_grant(which, answer, cost, probe)
        return answer

    def check_grant(self, which, answer, cost, probe):
        assert answer.name in self.names[which]
        assert answer.decision.outcome == "allow" and answer.wait == 0
        at = answer.granted_at
        assert self.now <= at <= max(self.now, self.latest)
        assert answer.probe == (self.benches.ends(answer.name) > at)
        if answer.probe:
            assert probe, "a benched key is only given to who asked to try one"
            ends = [self.benches.ends(name) for name in self.names[which]]
            assert all(end > at for end in ends), "and only if all are benched"
        if cost > 0:
            grant = self.ledger.take(answer.name, at, cost)
            self.given.append((answer.name, grant, at))

    def give_back(self, which, pick, units):
        which %= len(self.pools)
        if not self.given:
            return
        name, grant, at = self.given[pick % len(self.given)]
        units = min(units, grant[1])
        code, moved = self.pools[which].give_back(name, units, at, now=self.now)
        assert code == (0 if name in self.names[which] else K.STINT_E_GONE)
        assert moved <= units
        self.latest = max(self.latest, self.now)
        # What is told is the least of a key's quotas, and of gcra, which gives back what is left
        # of a unit's time, whole units only. More may have come back; what was not used is no use.
        inexact = any(quota.algorithm == K.STINT_GCRA for quota in self.quotas)
        if code == 0 and (inexact or len(self.quotas) > 1):
            moved = units
        self.ledger.give_back(grant, moved)

    def report(self, which, name, outcome, cooldown):
        which %= len(self.pools)
        known = name in self.names[which]
        cooldown = cooldown if outcome == "cool" else 0
        code = self.pools[which].report(name, outcome, cooldown, now=self.now)
        assert code == (0 if known else K.STINT_E_GONE)
        self.latest = max(self.latest, self.now)
        if known:
            self.benches.report(name, outcome, cooldown, self.effective_exactly())

    def effective_exactly(self):
        """Known to the nanosecond where the clock does not go back."""
        return self.now

    def play(self, acts, wait_is_exact):
        for act, *rest in acts:
            if act == "next":
                answer = self.next(*rest)
                if answer.name is None and wait_is_exact and rest[2] is False:
                    self.check_wait(answer, rest[0], rest[1])
            elif act == "many":
                for _ in range(rest[1]):
                    self.next(rest[0])
            elif act == "pass":
                self.now += rest[0]
            elif act == "back":
                self.now = max(START, self.now - rest[0], self.latest - self.skew)
            else:
                getattr(self, act)(*rest)

    def check_wait(self, answer, which, cost):
        """With nobody else asking: none a nanosecond before it is over, one then."""
        if answer.wait == NEVER_NS:
            serving = [name for name in self.names[which % len(self.pools)]
                       if self.benches.ends(name) != NEVER_NS]
            assert not serving or cost > min(self.capacity(quota) for quota in self.quotas)
            return
        assert answer.wait > 0
        self.now += answer.wait - 1
        early = self.next(which, cost)
        assert early.name is None and early.wait == 1, "the wait was too long"
        self.now += 1
        assert self.next(which, cost).name is not None, "the wait was too short"

    @staticmethod
    def capacity(quota):
        return quota.burst if quota.algorithm == K.STINT_GCRA else quota.limit


def played(specs, order, lists, acts, wait_is_exact=False, weights=None):
    quotas = [abi.parse(spec) for spec in specs]
    with Table(skew_max_ns=S, **ROOM) as table:
        playing = Playing(table, quotas, order, lists, weights)
        try:
            playing.play(acts, wait_is_exact)
        finally:
            playing.close()
        return playing


FORWARD = ops.map(lambda acts: [act for act in acts if act[0] != "back"])
ALL = [["log 4/10s"], ["gcra 4/10s burst=2"], ["fixed_window 4/10s"], ["window 5/10s"],
       ["window 5/10s resolution=12"], ["sliding_counter 4/10s"], ["buckets 4/10s count_slack=1"],
       ["log 3/10s", "log 6/1m"], ["window 4/10s", "gcra 6/1m burst=6", "fixed_window 9/1h"]]
# Those whose own time is no earlier than their slots, which are the same in a pair and in a state.
STEPPED = [["log 4/10s"], ["window 5/10s resolution=12"], ["window 7/10s resolution=10"]]
EQUAL = [["a", "b", "c"], ["c", "a", "b"]]


@pytest.mark.parametrize("specs", ALL, ids=" + ".join)
@given(acts=FORWARD, order=st.sampled_from(["round_robin", "fill_first", "least_used"]))
def test_no_key_passes_its_limit_and_the_wait_is_exact(specs, order, acts):
    """One process; keys come, go, are benched, given back, asked for any cost."""
    played(specs, order, [["a", "b", "c"]], acts, wait_is_exact=True)


@pytest.mark.parametrize("specs", [ALL[0], ALL[3]], ids=" + ".join)
@given(acts=FORWARD, weights=st.fixed_dictionaries({name: st.integers(1, 4) for name in NAMES}))
def test_weights_change_no_limit(specs, acts, weights):
    played(specs, "round_robin", [["a", "b", "c"]], acts, True, weights)
    played(specs, "least_used", [["a", "b", "c"]], acts, True, weights)


@pytest.mark.parametrize("specs", [ALL[1], ALL[3], ALL[4], ALL[8]], ids=" + ".join)
@given(acts=FORWARD, order=st.sampled_from(["round_robin", "round_robin", "fill_first"]))
def test_two_processes_with_equal_lists_share_the_limits(specs, order, acts):
    played(specs, order, EQUAL, acts)


@pytest.mark.parametrize("specs", [ALL[0], ALL[3], ALL[4]], ids=" + ".join)
@given(acts=FORWARD, other=st.lists(st.sampled_from(NAMES), unique=True))
def test_two_processes_with_unequal_lists_share_the_limits(specs, acts, other):
    played(specs, "round_robin", [["a", "b", "c"], other], acts)


@pytest.mark.parametrize("lists", [EQUAL, [["a", "b", "c"], ["b", "c", "d"]]], ids=["equal", "not"])
@pytest.mark.parametrize("specs", STEPPED, ids=" + ".join)
@given(acts=ops)
def test_clocks_that_step_back_mint_nothing(specs, lists, acts):
    """By up to skew_max; benches are left out, as when one ends is then known to a step only."""
    acts = [act for act in acts if act[0] != "report"]
    played(specs, "round_robin", lists, acts)


@pytest.mark.parametrize("spec", ["log 4/10s", "window 5/10s", "window 5/10s resolution=12"])
@given(acts=FORWARD)
def test_every_refusal_is_justified(spec, acts):
    """A key is refused if it is benched, or by the slack that its algorithm states. What a pair of
    all keys held when it was left may count for each key as much as for the one with the most."""
    quota = abi.parse(spec)
    period, limit, slots = quota.period_ns, quota.limit, 12
    slack_ns = 0 if "log" in spec else period // slots + 1
    bunch = 1 if "log" in spec else -(-limit // quota.resolution)

    class Justifying(Playing):
        def next(self, which, cost=1, probe=False):
            answer = super().next(which, cost, probe)
            if answer.name is None and cost > 0:
                self.justify(cost)
            return answer

        def justify(self, cost):
            names, at = self.names[0], self.now
            span = period + slack_ns
            total = sum(self.ledger.used(name, at, span) for name in names)
            all_bunch = -(-limit * len(names) // slots) if names else 1
            pair_is_full = cost == 1 and total + 1 > limit * len(names) - all_bunch + 1
            most = max((units for changed, units in self.changes
                        if at < changed + span + S + 2 * MS), default=0)
            for name in names:
                if self.benches.ends(name) > at or cost > limit:
                    continue
                used = self.ledger.used(name, at, span) + most
                assert used + cost > limit - bunch + 1 or (pair_is_full and "log" not in spec), name

    with Table(skew_max_ns=S, **ROOM) as table:
        playing = Justifying(table, [quota], "round_robin", [["a", "b", "c"]])
        playing.changes = []  # when the pair may have been left, and what was carried over then
        may_leave, has_left = {"give_back", "report", "add", "remove"}, "log" in spec
        try:
            for act in acts:
                before = len(playing.names[0])
                leaves = act[0] == "next" and act[2] > 1
                # Which of these left it is not told; more than one unit always does.
                if not has_left and (leaves or act[0] in may_leave):
                    held = sum(playing.ledger.used(name, playing.now, period + slack_ns + S + MS)
                               for name in NAMES)
                    playing.changes.append((playing.now, -(-held // max(before, 1))))
                    has_left = leaves and before > 1 and held > 0
                playing.play([act], False)
        finally:
            playing.close()


@given(keys=st.integers(1, 9), limit=st.integers(1, 30), steps=st.lists(times, max_size=30))
def test_a_pool_by_turns_gives_all_that_its_keys_may_give(keys, limit, steps):
    """From fresh, K keys of N units give K*N at once, K at a time from K different keys."""
    quota = abi.parse(f"window {limit}/10s")
    with Table(skew_max_ns=S, **ROOM) as table:
        pool = Pool(table)
        names = [f"k{i}" for i in range(keys)]
        for name in names:
            pool.add(name, [quota], now=START)
        given_out = [pool.next(now=START).name for _ in range(keys * limit)]
        assert None not in given_out
        for i in range(0, len(given_out), keys):
            assert given_out[i:i + keys] == names
        assert pool.next(now=START).name is None
        ledger, now = Ledger([quota]), START
        for name in given_out:
            ledger.take(name, START, 1)
        for step in steps:
            now += step
            while (answer := pool.next(now=now)).name is not None:
                ledger.take(answer.name, answer.granted_at, 1)
        pool.close()


@given(acts=FORWARD)
def test_status_agrees_with_next(acts):
    """A key of which status says that it may be used is one that next gives, and the other way."""
    with Table(skew_max_ns=S, **ROOM) as table:
        quota = abi.parse("window 3/10s")
        playing = Playing(table, [quota], "fill_first", [["a", "b", "c"]])
        try:
            for act in acts:
                playing.play([act], False)
                status = playing.pools[0].each(now=playing.now)
                assert [it.name for it in status] == playing.names[0]
                free = [it.name for it in status if it.returns_after == 0]
                assert free == [it.name for it in status if it.standing == "free"]
                answer = playing.next(0)
                assert answer.name == (free[0] if free else None)
                if not free and status:
                    assert answer.wait == min(it.returns_after for it in status)
        finally:
            playing.close()
