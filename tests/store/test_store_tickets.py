# SPDX-License-Identifier: MIT
"""Tickets in a store: the same random reservations, bookings and holds through the table, through
the scripts, and through memcached, which has neither bookings nor holds, are settled, cancelled and
renewed the same."""

import pytest
import redis as client_library
from hypothesis import given, strategies as st

import stint_abi as abi
from memcached import GONE as NODE_GONE, Memcached, Node, in_whole_us, spec_of
from stint_table import Table
from store import Reply, Store, in_us

K = abi.K
S = 10**6
OK, GONE, MISMATCH = K.STINT_OK, K.STINT_E_GONE, K.STINT_E_MISMATCH
BODY = "00000000000000AA"
UNITS = ["window 20/10s", "gcra 20/10s", "log 20/10s", "fixed_window 20/10s",
         "sliding_counter 20/10s", "buckets 20/10s count_slack=1"]
PLACES = ["concurrency 4 lease=3s", "concurrency 9 lease=5s"]
QUOTAS = [abi.parse(spec) for spec in UNITS + PLACES]
GONE_TEXT = "STINT GONE"


class Scripts:
    """Of Redis."""

    quotas, has_places, closes_by_itself = QUOTAS, True, False

    def __init__(self, client):
        self.store, self.client = Store(client), client

    def forget(self):
        self.client.flushall()

    def peek(self, quota, key, now):
        return self.store.ask(quota, key, "peek", 0, now)

    def call(self, items, verb, now, at, id, good, kept):
        """None where the ticket is gone."""
        del kept  # the ticket itself says it
        try:
            if len(items) == 1:
                (quota, key, cost), = items
                return self.store.ask(quota, key, verb, cost, now, at, id=(*id, *good))
            return self.store.ask_list(items, verb, now, at, id=(*id, *good))
        except client_library.ResponseError as error:
            assert str(error).startswith(GONE_TEXT), error
            return None


class Values:
    """Of memcached."""

    quotas, has_places, closes_by_itself = QUOTAS[:len(UNITS)], False, True

    def __init__(self, node):
        self.node = node

    def forget(self):
        for index, quota in enumerate(self.quotas):
            self.node.ask(spec_of(quota), f"{{a}}{index}", "reset", 0)

    def peek(self, quota, key, now):
        return in_whole_us(self.node.ask(spec_of(quota), key, "peek", 0, now).sum)

    def call(self, items, verb, now, at, id, good, kept):
        ticket = int(id[0].split(":")[1]), int(str((*good, 0)[0]).split("+")[0])
        answer = self.node.ask_list(
            [(spec_of(quota), key, f"{cost}/{least}")
             for (quota, key, cost), least in zip(items, kept or [KEEP] * len(items))],
            verb, now, at, ticket)
        if answer.outcome == NODE_GONE:
            return None
        assert not answer.error, answer.error
        return Reply(*in_whole_us(answer.sum), 0, 0, [], [], False)


@pytest.fixture(scope="module", params=["redis", "memcached"])
def store(request):
    """A store that tickets are asked of."""
    if request.param == "redis":
        with request.getfixturevalue("server").connect() as client:
            yield Scripts(client)
    else:
        with Memcached() as memcached, Node(memcached.url) as node:
            yield Values(node)


class Both:
    """Keys in the table and in the store; a ticket is its place in `tickets`."""

    def __init__(self, asked, table):
        asked.forget()
        self.asked, self.table, self.tickets = asked, table, []
        self.at(S)

    def at(self, now):
        self.now = now
        self.table.at(now * 1000)
        if self.asked.closes_by_itself:
            self.table.expire()
        return self

    def call(self, items, verb, *good, at=0, lifetime_ms=0, id=None, kept=None):
        """None where the ticket is gone."""
        id = (id or f"{{a}}id:{len(self.tickets)}", BODY, lifetime_ms)
        return self.asked.call(items, verb, self.now, at, id, good, kept)

    def reserve(self, lifetime, *items):
        items = [(index % len(self.asked.quotas), cost) for index, cost in items]
        wanted = [(QUOTAS[index], f"{{a}}{index}", cost) for index, cost in items]
        answer, ticket = self.table.reserve(
            lifetime * 1000, *((quota, key.encode(), cost) for quota, key, cost in wanted))
        longest = max([QUOTAS[index].lease_ns // 1000 for index, _ in items])
        reply = self.call(wanted, "reserve", lifetime or longest)
        assert reply[:6] == in_us(answer), (self.now, items)
        if answer.outcome == "allow":
            self.tickets.append((ticket, wanted, f"{{a}}id:{len(self.tickets)}", longest))
        return answer

    def book(self, max_wait, index, cost):
        wanted = [(QUOTAS[index], f"{{a}}{index}", cost)]
        answer, ticket = self.table.book(max_wait * 1000, (QUOTAS[index], b"{a}%d" % index, cost))
        reply = self.call(wanted, "book", 0, at=max_wait)
        assert reply[:6] == in_us(answer), (self.now, index, cost)
        if answer.outcome == "allow":
            self.tickets.append((ticket, wanted, f"{{a}}id:{len(self.tickets)}", 0))
        return answer

    def close(self, number, verb, actual=0):
        ticket, wanted, id, _ = self.tickets[number]
        code, moved = (self.table.settle(ticket, actual) if verb == "settle"
                       else self.table.cancel(ticket))
        asked = [(quota, key, actual) for quota, key, _ in wanted]
        reply = self.call(asked, verb, id=id)
        assert (GONE if reply is None else OK) == code, (self.now, verb)
        if code == OK:
            assert reply.granted == moved, (self.now, verb, actual)
        return code

    def renew(self, number):
        ticket, wanted, id, longest = self.tickets[number]
        code = self.table.renew(ticket)
        if code == MISMATCH:  # whoever asks the store knows before
            return code
        reply = self.call([(quota, key, 0) for quota, key, _ in wanted], "extend", longest, id=id)
        assert (GONE if reply is None else OK) == code, self.now
        return code

    def check(self):
        for index, quota in enumerate(self.asked.quotas):
            told = self.table.peek((quota, b"{a}%d" % index, 0))
            assert self.asked.peek(quota, f"{{a}}{index}", self.now)[:6] == in_us(told)


@pytest.fixture
def both(redis):
    with Table(keys_wide=64, wide_size=1024) as table:
        yield Both(Scripts(redis), table)


@pytest.fixture
def both_units(store):
    """The same for what every store keeps."""
    with Table(keys_wide=64, wide_size=1024) as table:
        yield Both(store, table)


ACTS = st.lists(st.tuples(
    st.sampled_from(["reserve", "reserve", "list", "list", "hold", "book", "settle", "settle",
                     "cancel", "renew"]),
    st.integers(0, 4 * S), st.integers(0, 2**16), st.integers(0, 9),
    st.lists(st.tuples(st.integers(0, len(QUOTAS) - 1), st.integers(0, 6)), min_size=2,
             max_size=5)), max_size=30)


@given(acts=ACTS)
def test_every_ticket_is_as_in_the_table(store, acts):
    with Table(keys_wide=64, wide_size=1024) as table:
        both = Both(store, table)
        for act, pause, pick, cost, items in acts:
            both.at(both.now + pause)
            if act == "reserve":
                both.reserve(6 * S, (pick % len(UNITS), cost))
            elif act == "list":
                both.reserve(7 * S, *items)
            elif act in ("hold", "book", "renew") and not store.has_places:
                continue
            elif act == "hold":
                both.reserve(0, (len(UNITS) + pick % len(PLACES), 1 + cost % 3))
            elif act == "book":
                both.book(20 * S, 1, cost)
            elif both.tickets and act == "renew":
                both.renew(pick % len(both.tickets))
            elif both.tickets:
                both.close(pick % len(both.tickets), act, cost)
            both.check()


# ---- Never settled ----

KEEP = 2**32 - 1


class Expiring(Both):
    """Reservations that say what stays charged of them; `open` are those that may expire."""

    open = ()

    def at(self, now):
        super().at(now)
        if self.asked.closes_by_itself:  # later, other units come back: it would be a late refund
            self.expire()
        return self

    def reserve_expiring(self, lifetime, *items):
        items = [(index % len(self.asked.quotas), *more) for index, *more in items]
        wanted = [(QUOTAS[index], f"{{a}}{index}", cost) for index, cost, _ in items]
        kept = [least for *_, least in items]
        answer, ticket = self.table.reserve_expiring(
            lifetime * 1000, kept, *((quota, key.encode(), cost) for quota, key, cost in wanted))
        reply = self.call(wanted, "reserve", f"{lifetime}+{100 * S}", kept=kept)
        assert reply[:6] == in_us(answer), (self.now, items)
        if answer.outcome == "allow":
            self.tickets.append((ticket, wanted, f"{{a}}id:{len(self.tickets)}", 0))
            self.open.append((self.now + lifetime, len(self.tickets) - 1, kept))

    def expire(self):
        """All that are over, in the order in which they were made, and each twice."""
        self.table.expire()
        for ends, number, kept in self.open:
            _, wanted, id, _ = self.tickets[number]
            asked = [(quota, key, least) for (quota, key, _), least in zip(wanted, kept)]
            reply = self.call(asked, "expire", id=id)
            if reply is not None and ends > self.now:
                assert (reply.outcome, reply.retry_after) == ("deny", ends - self.now)
            elif reply is not None:
                assert self.call(asked, "expire", id=id) is None
        self.open = [one for one in self.open if one[0] > self.now]


@given(acts=st.lists(st.tuples(
    st.sampled_from(["reserve", "reserve", "expire", "expire", "settle", "cancel"]),
    st.integers(0, 3 * S), st.integers(0, 2**16), st.integers(0, 9),
    st.lists(st.tuples(st.integers(0, len(UNITS)), st.integers(0, 6),
                       st.sampled_from([0, 1, 3, KEEP])), min_size=1, max_size=4)), max_size=30))
def test_what_expires_is_as_in_the_table(store, acts):
    with Table(keys_wide=64, wide_size=1024) as table:
        both = Expiring(store, table)
        both.open = []
        for act, pause, pick, cost, items in acts:
            both.at(both.now + pause)
            if act == "reserve":
                both.reserve_expiring(1 + pick % (4 * S), *items)
            elif act == "expire":
                both.expire()
            elif both.tickets:
                both.close(pick % len(both.tickets), act, cost)
            both.check()


def test_a_record_outlives_its_ticket_for_what_expires_it(both):
    store, quota = both.asked.store, QUOTAS[0]
    store.ask(quota, "{a}k", "reserve", 5, id=("{a}id:x", BODY, 0, f"{2 * S}+{30 * S}"))
    assert 25_000 < both.asked.client.pttl("{a}id:x") <= 32_000
    reply = store.ask(quota, "{a}k", "expire", 0, id=("{a}id:x", BODY, 0))
    assert reply.outcome == "deny" and 0 < reply.retry_after <= 2 * S
    assert store.ask(quota, "{a}k", "peek", 0).remaining == 15
    store.ask(quota, "{a}k", "settle", 1, id=("{a}id:x", BODY, 0))
    assert not both.asked.client.exists("{a}id:x")
    for wrong in ("5+", "5+-1", "5+x", "x", "9007199254740992+1"):
        with pytest.raises(client_library.ResponseError, match="STINT expected"):
            store.ask(quota, "{a}k", "reserve", 1, id=("{a}id:y", BODY, 0, wrong))
    for verb in "take", "book":
        store.ask(QUOTAS[1], "{a}g", verb, 20, S, 60 * S,
                  id=("{a}id:z" + verb, BODY, *((60_000,) if verb == "take" else (0, 0))))
        with pytest.raises(client_library.ResponseError, match=GONE_TEXT):
            store.ask(QUOTAS[1], "{a}g", "expire", 0, 90 * S, id=("{a}id:z" + verb, BODY, 0))


def test_a_ticket_is_good_once_and_until_its_end(both_units):
    both_units.reserve(S, (0, 5))
    assert both_units.close(0, "settle", 2) == OK and both_units.close(0, "settle", 2) == GONE
    assert both_units.close(0, "cancel") == GONE
    both_units.reserve(S, (0, 5))
    both_units.at(both_units.now + S)
    assert both_units.close(1, "cancel") == GONE
    both_units.check()


def test_more_than_was_estimated_is_charged(both_units):
    both_units.reserve(S, (0, 5), (1, 3))
    assert both_units.close(0, "settle", 9) == OK
    both_units.check()


def test_what_is_in_debt_comes_back_over_memcached():
    """gcra owes after the first settle. As places are not booked there, that is no such place."""
    with Memcached() as memcached, Node(memcached.url) as node, \
            Table(keys_wide=64, wide_size=1024) as table:
        both = Both(Values(node), table)
        both.reserve(9 * S, (1, 10))
        both.reserve(9 * S, (1, 10))
        assert both.close(0, "settle", 19) == OK
        both.check()
        assert both.close(1, "cancel") == OK
        both.check()


def test_a_booking_can_be_cancelled_until_it_starts(both):
    both.reserve(S, (1, 20))
    both.book(60 * S, 1, 4)
    assert both.close(1, "cancel") == OK
    both.check()
    both.book(60 * S, 1, 4)
    both.at(both.now + 2 * S)
    assert both.close(2, "cancel") == GONE


def test_a_hold_is_renewed_and_given_back(both):
    both.reserve(0, (6, 2))
    for _ in range(5):
        both.at(both.now + 2 * S)
        assert both.renew(0) == OK
        both.check()
    assert both.close(0, "cancel") == OK
    assert both.renew(0) == GONE
    both.check()


def test_a_ticket_whose_places_are_free_is_gone(both):
    """A ticket that outlives the lease has nothing to give back; what else it was charged comes."""
    for number, verb in enumerate(("cancel", "settle")):
        both.reserve(60 * S, (6, 2))
        both.at(both.now + 3 * S)
        assert both.renew(number) == GONE
        assert both.close(number, verb) == GONE
        both.check()
    both.reserve(60 * S, (6, 1), (7, 1))
    both.reserve(60 * S, (6, 1), (0, 4))
    both.reserve(60 * S, (7, 2), (6, 1))
    both.at(both.now + 3 * S)
    assert both.close(2, "cancel") == OK  # the other places were held still
    assert both.close(3, "cancel") == OK
    both.at(both.now + 2 * S)
    assert both.close(4, "cancel") == GONE
    both.check()


def test_a_record_lives_as_long_as_its_ticket(both):
    """Of a ticket alone; where its answer is kept for an id, for that, and then no longer used."""
    store, quota = both.asked.store, QUOTAS[0]
    store.ask(quota, "{a}k", "reserve", 3, id=("{a}id:x", BODY, 0, 30 * S))
    assert 25_000 < both.asked.client.pttl("{a}id:x") <= 30_000
    store.ask(quota, "{a}k", "settle", 1, id=("{a}id:x", BODY, 0))
    assert not both.asked.client.exists("{a}id:x")
    first = store.ask(quota, "{a}k", "reserve", 3, id=("{a}id:y", BODY, 60_000, 5 * S))
    assert 55_000 < both.asked.client.pttl("{a}id:y") <= 60_000
    store.ask(quota, "{a}k", "cancel", 0, id=("{a}id:y", BODY, 0))
    assert 55_000 < both.asked.client.pttl("{a}id:y") <= 60_000
    again = store.ask(quota, "{a}k", "reserve", 3, id=("{a}id:y", BODY, 60_000, 5 * S))
    assert again == first._replace(replayed=True)
    with pytest.raises(client_library.ResponseError, match=GONE_TEXT):
        store.ask(quota, "{a}k", "settle", 0, id=("{a}id:y", BODY, 0))


def test_undoing_a_reservation_forgets_it(both):
    """As where another slot denied the request: whoever comes again is new."""
    store, quota = both.asked.store, QUOTAS[0]
    for lifetime in (0, 60_000):
        store.ask(quota, "{a}k", "reserve", 20, S, id=("{a}id:x", BODY, lifetime, 5 * S))
        assert store.ask(quota, "{a}k", "undo", 0, S, id=("{a}id:x", BODY, lifetime)).granted == 20
        assert not both.asked.client.exists("{a}id:x")


def test_only_a_ticket_is_settled(both):
    store, quota = both.asked.store, QUOTAS[0]
    store.ask(quota, "{a}k", "take", 3, S, id=("{a}id:x", BODY, 60_000))
    for verb in ("settle", "cancel"):
        with pytest.raises(client_library.ResponseError, match=GONE_TEXT):
            store.ask(quota, "{a}k", verb, 0, S, id=("{a}id:x", BODY, 0))
    with pytest.raises(client_library.ResponseError, match="CONFLICT"):
        store.ask(quota, "{a}k", "settle", 0, S, id=("{a}id:x", BODY[::-1], 0))
    assert store.ask(quota, "{a}k", "peek", 0, S).remaining == 17
