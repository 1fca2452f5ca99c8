# SPDX-License-Identifier: MIT
"""Servers that are killed, stopped and restarted; children, cancelled tasks, many at a time.

A reply that went to another question shows: each limiter has a limit that no other has.
"""
from __future__ import annotations

import asyncio
import os
import threading
import time
from itertools import count

import pytest
from remote_server import PATIENCE_S, Relay, Server, server, tables, until  # noqa: F401 (fixtures)

from stint.remote import AsyncTable, RemoteTable, ServerError

THREADS = 8
numbers = count()


class Asker(threading.Thread):
    """Takes from its own limiters until it is stopped; checks each decision."""

    def __init__(self, table, first, on_error):
        super().__init__(daemon=True)
        self.limiters = [(limit, table.limiter(f"{limit}/1h", on_error=on_error))
                         for limit in range(first, first + 5)]
        self.on_error = on_error
        self.ends = threading.Event()
        self.answered, self.failed, self.wrong = 0, [], []
        self.start()

    def run(self):
        for i in count():
            if self.ends.is_set():
                return
            limit, limiter = self.limiters[i % 5]
            try:
                decision = limiter.take(f"{self.ident} {i}")
            except ServerError as error:
                self.failed.append(error.code)
                self.wrong += [error] * (self.on_error != "raise")
                time.sleep(0.001)
                continue
            if decision.from_server:
                self.answered += 1
                is_right = (decision.limit, decision.remaining) == (limit, limit - 1)
            else:
                self.failed.append(decision.error.code)
                is_right = decision.outcome == self.on_error and decision.limit == limit
                time.sleep(0.001)
            if not is_right:
                self.wrong.append(decision)


@pytest.mark.parametrize("on_error", ["raise", "allow", "deny"])
@pytest.mark.parametrize("scheme", ["stint", "http"])
def test_a_server_that_is_killed_and_restarted(tables, scheme, on_error):
    with Server("--keys", "1000000") as running:
        table = tables.open(running.url(scheme), timeout=2)
        askers = [Asker(table, 1000 + 10 * i, on_error) for i in range(THREADS)]

        def answered():
            return sum(asker.answered for asker in askers)

        until(lambda: answered() >= 300, "questions are answered")
        running.kill()
        before = answered()
        until(lambda: sum(len(asker.failed) for asker in askers) >= 50, "questions fail")
        running.restart()
        until(lambda: answered() >= before + 700, "questions are answered again")
        for asker in askers:
            asker.ends.set()
        for asker in askers:
            asker.join(PATIENCE_S)
        assert [wrong for asker in askers for wrong in asker.wrong] == []
        codes = {code for asker in askers for code in asker.failed}
        assert codes <= {"CLOSED", "UNREACHABLE", "UNAVAILABLE", "TIMEOUT"} and codes


@pytest.mark.parametrize("scheme", ["stint", "http"])
def test_a_server_that_stands_still(tables, scheme):
    """Its late replies belong to the questions that were given up."""
    with Server() as running:
        table = tables.open(running.url(scheme), timeout=2)
        limiters = {limit: table.limiter(f"{limit}/1h", on_error="deny")
                    for limit in range(100, 110)}
        assert all(limiter.take("warm").from_server for limiter in limiters.values())
        with running.stopped():
            late = limiters[100].take("k")
            assert not late.from_server and late.error.code == "TIMEOUT"
        for limit, limiter in reversed(limiters.items()):
            decisions = []
            until(lambda: decisions.append(limiter.take("other")) or decisions[-1].from_server,
                  "the server answers")
            assert decisions[-1].limit == limit
            assert all(d.limit == limit for d in decisions)


@pytest.mark.parametrize("scheme", ["stint", "unix", "http"])
def test_the_limit_is_exact_for_threads(server, tables, scheme):
    limiter = tables.open(server.url(scheme), connections=4).limiter(
        "100/1h", name=f"threads {scheme} {next(numbers)}")
    allowed = []

    def ask():
        for _ in range(25):
            allowed.append(bool(limiter.take("k")))

    threads = [threading.Thread(target=ask) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert (len(allowed), sum(allowed)) == (25 * THREADS, 100)


# ---- Processes ----

def ports(table):
    """The local ends of a table's open connections."""
    return {connection.sock.getsockname() for connection in table._pool._all}


@pytest.mark.parametrize("scheme", ["stint", "http"])
def test_a_child_has_connections_of_its_own(server, scheme):
    with RemoteTable(server.url(scheme), timeout=PATIENCE_S) as table:
        name = f"fork {next(numbers)}"
        mine, its = (table.limiter(f"{limit}/1h", name=name) for limit in (2000, 3000))
        assert mine.take("k")
        before = ports(table)
        assert before
        children = []
        for _ in range(3):
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    right = all(its.take("k").limit == 3000 for _ in range(100))
                    status = 0 if right and not ports(table) & before else 2
                finally:
                    os._exit(status)
            children.append(pid)
        assert all(mine.take("k").limit == 2000 for _ in range(300))
        assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0, 0]
        assert ports(table) == before, "the parent's connection is the one that it had"
        assert (its.peek("k", 0).remaining, mine.peek("k", 0).remaining) == (2700, 1699)


def test_a_child_of_a_process_whose_threads_ask(server):
    """A lock that another thread held at fork() is free in the child."""
    with RemoteTable(server.url("stint"), timeout=PATIENCE_S, connections=2) as table:
        askers = [Asker(table, 4000 + 10 * i, "raise") for i in range(THREADS)]
        limiter = table.limiter("7/1h", name=f"fork {next(numbers)}")
        for i in range(10):
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    status = 0 if limiter.take(f"{i}").remaining == 6 else 2
                finally:
                    os._exit(status)
            assert os.waitpid(pid, 0)[1] == 0
        for asker in askers:
            asker.ends.set()
        for asker in askers:
            asker.join(PATIENCE_S)
        assert [wrong for asker in askers for wrong in asker.wrong + asker.failed] == []


# ---- Tasks ----

@pytest.mark.parametrize("scheme", ["stint", "unix", "http"])
def test_two_hundred_tasks(server, scheme):
    async def main():
        async with AsyncTable(server.url(scheme), timeout=PATIENCE_S, connections=4) as table:
            limiter = table.limiter("100/1h", name=f"tasks {scheme} {next(numbers)}")
            decisions = await asyncio.gather(*(limiter.take("k") for _ in range(200)))
            assert sum(decision.allowed for decision in decisions) == 100
            assert sorted(d.remaining for d in decisions if d) == list(range(100))
            pool = table._pool._of_loop()
            assert 1 <= len(pool._open) <= 4

    asyncio.run(main())


@pytest.mark.parametrize("scheme", ["stint", "http"])
def test_cancelled_tasks(scheme):
    """Half of the tasks are cancelled while their questions are on their way."""
    async def main(running):
        async with AsyncTable(running.url(scheme), timeout=PATIENCE_S, connections=4) as table:
            limiters = [table.limiter(f"{limit}/1h") for limit in range(500, 560)]
            assert await limiters[0].take("warm")
            with running.stopped():
                tasks = [asyncio.ensure_future(limiter.take("k")) for limiter in limiters]
                await asyncio.sleep(0.05)  # until the loop has sent them
                for task in tasks[::2]:
                    task.cancel()
                await asyncio.sleep(0)
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(result, asyncio.CancelledError) for result in results[::2])
            assert [result.limit for result in results[1::2]] == list(range(501, 560, 2))
            again = await asyncio.gather(*(limiter.take("again") for limiter in limiters))
            assert [decision.limit for decision in again] == list(range(500, 560))
            assert len(table._pool._of_loop()._open) <= 4

    with Server() as running:
        asyncio.run(main(running))


def test_cancelled_while_connecting(server):
    """The connection that tasks wait for is made, although the first of them was cancelled."""
    async def main():
        async with AsyncTable(server.url("stint"), timeout=PATIENCE_S) as table:
            limiter = table.limiter("9/1h", name=f"c {next(numbers)}")
            tasks = [asyncio.ensure_future(limiter.take("k")) for _ in range(3)]
            await asyncio.sleep(0)
            tasks[0].cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert isinstance(results[0], asyncio.CancelledError)
            assert sorted(result.remaining for result in results[1:]) == [7, 8]

    asyncio.run(main())


def test_waiting(tables):
    with Server(clock="real") as running:
        limiter = tables.open(running.url("stint")).limiter("gcra 10/1s burst=1")
        assert all(limiter.wait("k") for _ in range(4)), "each but the first had to wait"
        assert limiter.wait("k", 2).outcome == "never"
        assert not limiter.wait("k", timeout=0)


# ---- Repeated questions ----

POOL = "pools: [{name: keys, quota: 5/1h, keys: [first]}]\n"


@pytest.mark.parametrize("scheme", ["stint", "http"])
@pytest.mark.parametrize(("verb", "used"), [
    ("take", 1), ("take_upto", 1), ("charge", 1), ("reserve", 1), ("settle", 2), ("peek", 0),
    ("refund", -1), ("rules", 1), ("pool next", 1), ("pool give_back", -1),
])
def test_a_reply_that_is_lost(tmp_path, tables, scheme, verb, used):
    """The server has decided, and the connection ends: the question is repeated, counted once."""
    config, rules = tmp_path / "config.yaml", tmp_path / "rules.yaml"
    config.write_text(POOL)
    rules.write_text("domain: shop\ndescriptors: [{key: user, rate_limit: "
                     "{unit: hour, requests_per_unit: 5}}]\n")
    with (Server("--config", str(config), "--rules", str(rules)) as running,
          Relay(running.address("resp" if scheme == "stint" else "http")) as relay):
        table, direct = tables.open(f"{scheme}://{relay.address}"), tables.open(running.url(scheme))
        limiter, sure = table.limiter("5/1h"), direct.limiter("5/1h")
        assert sure.take("k", 2) and direct.pool("keys").next(2)
        sure.take("settled", 1)
        pool = table.pool("keys")
        left = {
            "rules": lambda: direct.rules("shop").peek({"user": "k"}, 0).remaining - 2,
            "settle": lambda: sure.peek("settled", 0).remaining,
            "pool next": lambda: direct.pool("keys").status()[0].decision.remaining,
            "pool give_back": lambda: direct.pool("keys").status()[0].decision.remaining,
        }.get(verb, lambda: sure.peek("k", 0).remaining)
        opened = limiter.reserve("settled" if verb == "settle" else "another", 1)
        assert opened and left() == 3 and relay.accepted == 1
        done = {
            "settle": lambda: opened.settle(3),
            "rules": lambda: table.rules("shop").take({"user": "k"}),
            "pool next": pool.next,
            "pool give_back": lambda: pool.give_back("first"),
        }.get(verb, lambda: getattr(limiter, verb)("k", 1))()
        assert getattr(done, "name", "first") == "first"
        assert left() == 3 - used and relay.accepted == 2


@pytest.mark.parametrize("scheme", ["stint", "http"])
def test_what_has_no_id_is_not_repeated(tmp_path, tables, scheme):
    config = tmp_path / "config.yaml"
    config.write_text(POOL)
    with Server("--config", str(config)) as running:
        for repeat in (lambda table: table.pool("keys", request_ids=False).next(),
                       lambda table: table.pool("keys").add("second", "1/1h"),
                       lambda table: table.count("k", 1, 60)):
            with Relay(running.address("resp" if scheme == "stint" else "http")) as relay:
                table = tables.open(f"{scheme}://{relay.address}")
                assert table.now() == 0
                with pytest.raises(ServerError, match="before the reply") as caught:
                    repeat(table)
                assert caught.value.code == "CLOSED" and relay.accepted == 1
        assert tables.open(running.url(scheme)).counter("k").count == 1
