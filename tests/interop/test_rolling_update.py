# SPDX-License-Identifier: MIT
"""Pods that are replaced one after another under load, as a Deployment does it: Envoy before them,
a Service between, the limits in Redis. Each request is decided once, and none fails.

A Service passes each new connection to a pod that is ready, and leaves those that are open to
theirs. The pod that goes gets SIGTERM after that: the chart's preStop waits for as long.
"""
import collections
import contextlib
import signal

from distance import Distance
from proxies import application, envoy  # noqa: F401 (a fixture)
from redis_server import Redis, until
from server import Asker, Server
from test_envoy import RULES, wait_for_stint

LIMIT = 1_000_000
UPDATES, USERS, ANSWERS = 4, 6, 300


class User(Asker):
    """Asks Envoy without a pause, and counts how it was answered."""

    fault = Exception

    def __init__(self, front):
        self.front, self.statuses = front, collections.Counter()
        super().__init__(front.port)

    def turn(self):
        self.statuses[self.front.ask("/page")[0]] += 1


def answers(users):
    return sum((user.statuses.copy() for user in users), collections.Counter())


def test_no_request_fails_and_each_is_charged_once(application, tmp_path):  # noqa: F811
    with contextlib.ExitStack() as all_of_it:
        redis = all_of_it.enter_context(Redis())

        def start():
            return all_of_it.enter_context(Server(
                "--store", redis.url, "--store-timeout", "2s", rules=RULES.format(limit=LIMIT)))

        old = start()
        service = all_of_it.enter_context(Distance("127.0.0.1", old.port("grpc"), 0))
        front = all_of_it.enter_context(envoy(tmp_path, [service.port], application))
        wait_for_stint(front)
        before = int(front.ask("/page")[1]["x-ratelimit-remaining"])
        users = [User(front) for _ in range(USERS)]
        try:
            for _ in range(UPDATES):
                new = start()
                service.target = "127.0.0.1", new.port("grpc")
                old.tell(signal.SIGTERM)
                assert old.wait() == 0 and "drain_late" not in old.log
                enough = answers(users).total() + ANSWERS
                until(lambda least=enough: answers(users).total() >= least, "answers")
                old = new
        finally:
            for user in users:
                user.stop()
        assert not any(user.failures for user in users), users[0].failures[:2]
        assert set(answers(users)) == {200}, answers(users)
        after = int(front.ask("/page")[1]["x-ratelimit-remaining"])
        assert before - after == answers(users)[200] + 1
