# SPDX-License-Identifier: MIT
"""Envoy itself, with its rate limit filter, in front of an application and with stint behind it.

The recipe is that of contrib/envoy, with addresses of this test; the program comes from PyPI, as
envoy/requirements.txt pins it. Real time: there is no other between three processes.
"""
import concurrent.futures
import http.client
import signal
import threading
import time

import pytest

from program import SOURCE, stint
from proxies import Application, application, envoy  # noqa: F401 (a fixture)
from server import Server

LIMIT = 5
RULES = """\
domain: edge
descriptors:
  - key: remote_address
    rate_limit: {{unit: hour, requests_per_unit: {limit}, name: per-address}}
  - key: path
    value: /login
    rate_limit: {{unit: hour, requests_per_unit: 2, name: logins}}
"""


def wait_for_stint(front):
    """Its first health check: until then a cluster has no server to ask."""
    ends = time.monotonic() + 20
    while "x-ratelimit-limit" not in front.ask("/warm")[1]:
        assert time.monotonic() < ends, "Envoy has not found stint"
        time.sleep(0.05)


@pytest.fixture
def behind(application, tmp_path):  # noqa: F811
    """A server and Envoy before it; the requests that it took to begin are not counted."""
    fronts = []

    def begin(*options, limit=LIMIT, fail_open=False, rules=RULES):
        server = Server("--grpc", "127.0.0.1:0", *options, rules=rules.format(limit=limit))
        fronts.append(server)
        front = envoy(tmp_path, [server.port("grpc")], application, fail_open=fail_open)
        fronts.append(front)
        wait_for_stint(front)
        # The limit is as new, whatever was asked to see that they have met.
        stint("reset", "--server", server.url(""), "--domain", "edge", "remote_address=127.0.0.1")
        Application.served.clear()
        return server, front

    yield begin
    for each in reversed(fronts):
        each.__exit__(None, None, None)


def test_429_comes_at_exactly_the_limit(behind):
    _, front = behind()
    for left in range(LIMIT - 1, -1, -1):
        status, fields, text = front.ask(f"/page/{left}")
        assert (status, text) == (200, f"/page/{left}")
        assert fields["x-ratelimit-remaining"] == str(left)
        assert fields["x-ratelimit-limit"].startswith(f"{LIMIT}, {LIMIT};w=3600")
    for _ in range(3):
        status, fields, _ = front.ask("/page/more")
        assert status == 429
        assert fields["x-envoy-ratelimited"] == "true"
        assert fields["x-ratelimit-remaining"] == "0"
        # The default algorithm returns units with a slack of a 24th of the period.
        assert 0 < int(fields["x-ratelimit-reset"]) <= 3600 * 25 // 24
    assert len(Application.served) == LIMIT


def test_the_recipe_is_for_the_rules_of_the_examples(behind):
    """5 logins, and what is not limited by path."""
    text = (SOURCE / "examples/rules/edge.yaml").read_text().replace("{", "{{").replace("}", "}}")
    _, front = behind(rules=text)
    assert [front.ask("/login")[0] for _ in range(6)] == [200] * 5 + [429]
    assert front.ask("/page")[0] == 200


def test_a_refused_path_does_not_use_up_the_address(behind):
    """envoyproxy/ratelimit charges the siblings of what is over its limit."""
    _, front = behind()
    assert [front.ask("/login")[0] for _ in range(6)] == [200, 200, 429, 429, 429, 429]
    assert [front.ask("/other")[0] for _ in range(4)] == [200, 200, 200, 429]


def test_a_reload_holds_from_the_next_request_on(behind):
    server, front = behind()
    assert [front.ask()[0] for _ in range(LIMIT + 1)] == [200] * LIMIT + [429]
    server.write_rules(RULES.format(limit=LIMIT + 3))
    server.tell(signal.SIGHUP)
    server.wait_for("reloaded")
    assert [front.ask()[0] for _ in range(4)] == [200, 200, 200, 429]


def hammer(front, seconds, statuses):
    """Asks on one connection until the time is up; what came is counted."""
    connection = http.client.HTTPConnection("127.0.0.1", front.port, timeout=20)
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        connection.request("GET", "/load")
        answer = connection.getresponse()
        answer.read()
        statuses.append(answer.status)
    connection.close()


def test_reloads_under_load_fail_no_request(behind):
    server, front = behind("--log-level", "info", limit=1_000_000)
    statuses = []
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        loads = [pool.submit(hammer, front, 2.0, statuses) for _ in range(4)]
        for turn in range(10):
            server.write_rules(RULES.format(limit=1_000_000 + turn))
            server.tell(signal.SIGHUP)
            time.sleep(0.15)
        for load in loads:
            load.result()
    assert set(statuses) == {200} and len(statuses) > 100


def test_a_restart_under_load_fails_no_request(behind, tmp_path):
    """The successor takes the sockets over; Envoy is told by GOAWAY, and asks the new one."""
    control, state = tmp_path / "control", tmp_path / "state"
    shared = ["--control", control, "--state", state]
    server, front = behind(*shared, limit=1_000_000)
    statuses, threads = [], []
    for _ in range(4):
        threads.append(threading.Thread(target=hammer, args=(front, 3.0, statuses)))
        threads[-1].start()
    time.sleep(0.5)
    port = server.port("grpc")
    with Server("--grpc", f"127.0.0.1:{port}", "--resp", f"127.0.0.1:{server.resp}", "--http",
                f"127.0.0.1:{server.http}", "--replace", *shared, "--rules", server.rules,
                ports=False) as successor:
        assert server.wait() == 0
        for thread in threads:
            thread.join()
        assert set(statuses) == {200} and len(statuses) > 100
        assert successor.port("grpc") == port
        status, fields, _ = front.ask("/after")
        left = int(fields["x-ratelimit-remaining"])
        assert status == 200 and left < 1_000_000 - len(statuses), "the state was lost"


@pytest.mark.parametrize("fail_open", [False, True])
def test_what_envoy_does_without_stint_is_envoys_choice(behind, fail_open):
    server, front = behind(fail_open=fail_open)
    assert front.ask()[0] == 200
    server.stop()
    assert {front.ask()[0] for _ in range(5)} == {200 if fail_open else 500}
