# SPDX-License-Identifier: MIT
"""A server whose clock is virtual: limits stand until a caller moves their time, to the nanosecond.

Only sockets go by real time here, and nothing is measured with it.
"""
import http.client
import itertools
import json
import select
import subprocess
import time

import grpc
import pytest

from measure import metric
from program import STINT
from redis_server import until
from rls_messages import OK, OVER_LIMIT, ask_with, descriptor, request
from server import Server, free_port

RULES = """\
domain: api
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 1}
    ban: {after: 2, within: 1m, for: 10m}
  - key: tenant
    rate_limit: {unit: minute, requests_per_unit: 1, algorithm: log}
  - key: team
    rate_limit: {unit: month, requests_per_unit: 1}
"""
CONFIG = """\
pools:
  - {name: keys, quota: log 500/10m, keys: [only]}
"""
S = 10**9
TEN_MINUTES = 600 * S


@pytest.fixture
def options(tmp_path):
    config = tmp_path / "stint.yaml"
    config.write_text(CONFIG)
    return ["--config", config, "--clock", "virtual", "--workers", "2"]


@pytest.fixture
def server(options):
    with Server(*options, rules=RULES) as server:
        yield server


class OverResp:
    def __init__(self, server):
        self.link = server.connect()

    def ask(self, *words):
        reply = self.link.ask(*words)
        return dict(zip(reply[::2], reply[1::2])) if isinstance(reply, list) else reply

    def clock(self):
        return int(self.ask("STINT.CLOCK")["now"])

    def set(self, now_ns):
        return self.ask("STINT.CLOCK", "SET", now_ns)

    def advance(self, time):
        return self.ask("STINT.CLOCK", "ADVANCE", time)

    def next(self, cost=1):
        reply = self.ask("STINT.POOL", "NEXT", "keys", "COST", cost)
        return reply["key"], reply["wait_ms"]

    def take(self, quota, key, cost=1):
        return self.ask("STINT.TAKE", "QUOTA", quota, key, "COST", cost)["outcome"] == "allow"

    def take_of(self, name, value):
        reply = self.ask("STINT.TAKE", "DOMAIN", "api", "DESCRIPTOR", 1, name, value)
        return reply["outcome"] == "allow", reply["retry_after_ms"]

    def reserve(self, quota, key, cost, lifetime_ms, on_expiry):
        return self.ask("STINT.RESERVE", "QUOTA", quota, key, "COST", cost, "LIFETIME", lifetime_ms,
                        "ON_EXPIRY", on_expiry)["outcome"] == "allow"

    def begin_wait(self, quota, key, wait_ms):
        self.link.send("STINT.TAKE", "QUOTA", quota, key, "WAIT", wait_ms)

    def end_wait(self):
        reply = self.link.read()
        return dict(zip(reply[::2], reply[1::2]))["outcome"] == "allow"

    def close(self):
        self.link.close()


class OverHttp:
    def __init__(self, server):
        self.link = http.client.HTTPConnection("127.0.0.1", server.http, timeout=20)

    def begin(self, path, body):
        self.link.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})

    def end(self):
        answer = self.link.getresponse()
        return answer.status, json.loads(answer.read())

    def post(self, path, body):
        self.begin(path, body)
        return self.end()

    def clock(self):
        self.link.request("GET", "/v1/clock")
        status, answer = self.end()
        assert (status, answer["clock"]) == (200, "virtual")
        return int(answer["now"])

    def set(self, now_ns):
        return self.post("/v1/clock", {"set": str(now_ns)})[1]

    def advance(self, time):
        return self.post("/v1/clock", {"advance": time})[1]

    def next(self, cost=1):
        answer = self.post("/v1/pools/keys/next", {"cost": cost})[1]
        return answer["key"], answer["wait_ms"]

    def take(self, quota, key, cost=1):
        return self.post("/v1/take", {"quota": quota, "key": key, "cost": cost})[0] == 200

    def take_of(self, name, value):
        entries = [{"key": name, "value": value}]
        status, answer = self.post("/v1/take", {"domain": "api",
                                                "descriptors": [{"entries": entries}]})
        return status == 200, answer["retry_after_ms"]

    def reserve(self, quota, key, cost, lifetime_ms, on_expiry):
        body = {"quota": quota, "key": key, "cost": cost, "lifetime_ms": lifetime_ms,
                "on_expiry": on_expiry}
        return self.post("/v1/reserve", body)[0] == 200

    def begin_wait(self, quota, key, wait_ms):
        self.begin("/v1/take", {"quota": quota, "key": key, "wait_ms": wait_ms})

    def end_wait(self):
        return self.end()[0] == 200

    def close(self):
        self.link.close()


@pytest.fixture(params=[OverResp, OverHttp])
def connect(request, server):
    opened = []

    def connect():
        opened.append(request.param(server))
        return opened[-1]

    yield connect
    for client in opened:
        client.close()


# ---- What goes by the clock ----------------------------------------------------------------------


def test_a_pool_key_returns_exactly_when_its_quota_says_so(connect):
    client = connect()
    assert client.clock() == 0
    assert client.next(cost=500) == ("only", 0)
    assert client.next() == (None, 600_000)
    client.set(TEN_MINUTES - 1)
    assert client.next()[0] is None
    client.advance("1ns")
    assert client.clock() == TEN_MINUTES
    assert client.next(cost=500) == ("only", 0)
    assert client.next()[0] is None


@pytest.mark.parametrize("on_expiry, left", [("keep", 0), ("release", 10), ("4", 6)])
def test_a_reservation_ends_before_the_move_is_answered(connect, on_expiry, left):
    client = connect()
    on_expiry = int(on_expiry) if on_expiry.isdigit() else on_expiry
    assert client.reserve("log 10/1d", "budget", 10, 60_000, on_expiry)
    client.set(60 * S - 1)
    assert not client.take("log 10/1d", "budget")
    client.advance("1ns")
    assert [client.take("log 10/1d", "budget") for _ in range(left + 1)] == [True] * left + [False]


def test_a_ban_ends_and_a_calendar_month_begins(connect):
    client = connect()
    assert [client.take_of("user", "ann")[0] for _ in range(3)] == [True, False, False]
    assert client.take_of("team", "red") == (True, 0)
    january_ns = 31 * 24 * 3600 * S  # the clock begins with 1970
    assert client.take_of("team", "red") == (False, january_ns // 10**6)
    client.advance("9m59s999ms")
    assert client.take_of("user", "ann") == (False, 1)
    client.advance("1ms")
    assert client.take_of("user", "ann")[0]
    client.set(january_ns - 1)
    assert not client.take_of("team", "red")[0]
    client.set(january_ns)
    assert client.take_of("team", "red")[0]


def test_who_waits_is_answered_when_the_clock_comes_there(connect):
    """On whichever worker: each connection may be on another one than that which moves."""
    mover, waiters = connect(), [connect() for _ in range(8)]
    assert mover.take("gcra 1/1h burst=8", "w", cost=8)
    for waiter in waiters:
        waiter.begin_wait("gcra 1/1h burst=8", "w", 8 * 3600 * 1000)
    for hour in range(8):
        mover.advance("1h")
    assert all(waiter.end_wait() for waiter in waiters)
    assert not mover.take("gcra 1/1h burst=8", "w")


def wait_until_read(server, frontend, send):
    """Sends, and waits until a worker has it. To ask how much was read takes bytes, too."""
    def received():
        return metric(server.http, "stint_received_bytes_total", frontend=frontend)

    first, second = received(), received()
    send()
    asked = itertools.count(1)
    until(lambda: received() > second + (second - first) * next(asked), "it was read")


def test_a_request_that_waits_is_decided_once(server):
    """Of four that wait only one is served each minute: the others are decided again, and do not
    count as denied, neither for the ban after two denials nor in metrics."""
    waiters = [OverResp(server), OverHttp(server), OverResp(server), OverHttp(server)]
    mover = OverResp(server)
    assert mover.take_of("user", "w") == (True, 0)
    words = ["DOMAIN", "api", "DESCRIPTOR", 1, "user", "w", "WAIT", 210_000]
    body = {"domain": "api", "descriptors": [{"entries": [{"key": "user", "value": "w"}]}],
            "wait_ms": 210_000}
    for waiter in waiters:
        if isinstance(waiter, OverResp):
            wait_until_read(server, "resp", lambda: waiter.link.send("STINT.TAKE", *words))
        else:
            wait_until_read(server, "http", lambda: waiter.begin("/v1/take", body))
    sockets = [waiter.link.sock for waiter in waiters]
    for minute in range(1, 5):
        mover.advance("70s")
        until(lambda: len(select.select(sockets, [], [], 0)[0]) >= minute, "one more is answered")
    answers = [waiter.link.read()[1] == "allow" if isinstance(waiter, OverResp)
               else waiter.end()[0] == 200 for waiter in waiters]
    assert sorted(answers) == [False, True, True, True]
    counts = {outcome: metric(server.http, "stint_decisions_total", domain="api", rule="user",
                              outcome=outcome) for outcome in ("allow", "deny", "banned")}
    assert counts == {"allow": 4, "deny": 1, "banned": 0}
    asked = [metric(server.http, "stint_requests_total", frontend=frontend, verb="take")
             for frontend in ("resp", "http")]
    assert asked == [3, 2]
    for client in [mover, *waiters]:
        client.close()


def test_timeouts_of_connections_go_by_real_time(options):
    """A request that waits for the clock is not ended by them, and an idle connection is."""
    times = ["--idle-time", "2s", "--request-time", "200ms", "--http-request-time", "1s"]
    with Server(*options, *times) as server:
        waiters = [OverResp(server), OverHttp(server)]
        assert waiters[0].take("gcra 1/1s burst=2", "k", cost=2)
        for waiter in waiters:
            waiter.begin_wait("gcra 1/1s burst=2", "k", 60_000)
        with server.connect() as idle:
            assert idle.is_closed()
        time.sleep(1.3)
        mover = OverHttp(server)
        mover.advance("2s")
        assert [waiter.end_wait() for waiter in waiters] == [True, True]
        for client in [mover, *waiters]:
            client.close()


def test_decisions_over_grpc_go_by_the_clock(server):
    mover = OverResp(server)
    with grpc.insecure_channel(f"127.0.0.1:{server.port('grpc')}") as channel:
        ask = ask_with(channel)
        answers = []
        for time_ns in (0, 0, 60 * S - 1, 60 * S):
            mover.set(time_ns)
            answers.append(ask(request("api", descriptor(("tenant", "a")))).code)
    assert answers == [OK, OVER_LIMIT, OVER_LIMIT, OK]
    mover.close()


def test_it_never_goes_back(connect):
    client = connect()
    client.set(5)
    answer = client.set(4)
    text = str(answer) if isinstance(answer, RuntimeError) else answer["detail"]
    assert "the clock is at 5 ns and never goes back to 4; start another server" in text
    assert client.clock() == 5
    answer = client.advance("40w")
    answer = client.advance("1000w")
    text = str(answer) if isinstance(answer, RuntimeError) else answer["detail"]
    assert "after 18 years" in text


# ---- Which clock it is ---------------------------------------------------------------------------


def test_all_workers_and_ports_have_the_new_time_at_once(server):
    mover, links = OverResp(server), [server.connect() for _ in range(16)]
    for step in range(1, 6):
        mover.advance("1h")
        assert {int(link.ask("STINT.CLOCK")[3]) for link in links} == {step * 3600 * S}
    for link in links:
        link.close()
    mover.close()


def test_several_who_advance_it_add_up(server):
    links = [server.connect() for _ in range(8)]
    for link in links:
        link.sock.sendall(link.encode("STINT.CLOCK", "ADVANCE", "1s") * 50)
    for link in links:
        times = [int(link.read()[3]) for _ in range(50)]
        assert times == sorted(times)
    assert int(links[0].ask("STINT.CLOCK")[3]) == 400 * S
    for link in links:
        link.close()


def test_the_server_says_that_its_clock_is_virtual(server):
    assert "warn clock_virtual: limits use a virtual clock" in server.log
    with server.connect() as link:
        assert "clock:virtual\r\n" in link.ask("INFO", "server")
    link = http.client.HTTPConnection("127.0.0.1", server.http, timeout=20)
    link.request("GET", "/metrics")
    assert "\nstint_clock_virtual 1\n" in link.getresponse().read().decode()
    link.request("GET", "/v1/stats")
    assert json.loads(link.getresponse().read())["clock"] == "virtual"
    link.close()


def test_a_reload_needs_no_move_of_the_clock(server):
    assert server.post("/v1/reload", {})[0] == 200


def test_a_real_clock_is_told_and_not_moved():
    with Server() as server, server.connect() as link:
        assert "clock_virtual" not in server.log
        kind, now = link.ask("STINT.CLOCK")[1::2]
        assert kind == "real" and int(link.ask("STINT.CLOCK")[3]) >= int(now)
        refused = "the server's clock is real and cannot be moved; start the server with --clock"
        for words in (("SET", now), ("ADVANCE", "1s")):
            assert f"CONFLICT {refused} virtual" in str(link.ask("STINT.CLOCK", *words))
        for body in ({"set": now}, {"advance": "1s"}):
            status, answer = server.post("/v1/clock", body)
            assert status == 409 and refused in answer["detail"]


# ---- Over a restart, and where it cannot be ------------------------------------------------------


def test_the_time_of_a_state_file_goes_on_where_it_stood(options, tmp_path):
    state = tmp_path / "state"
    for begins_at in (0, TEN_MINUTES - 1):
        with Server(*options, "--state", state, rules=RULES) as server:
            client = OverResp(server)
            assert client.clock() == begins_at
            assert client.next(cost=500)[0] == (None if begins_at else "only")
            client.set(TEN_MINUTES - 1)
            client.close()
    refused = subprocess.run([STINT, "serve", "--state", state, "--resp",
                              f"127.0.0.1:{free_port()}", "--http", "off", "--grpc", "off"],
                             capture_output=True, text=True, timeout=20)
    assert refused.returncode == 1
    assert "was made under a virtual clock, and is not opened under a real one" in refused.stderr
    assert "say --clock virtual, or name another file with --state" in refused.stderr


@pytest.mark.parametrize("store", ["redis://127.0.0.1:1", "memcached://127.0.0.1:1"])
def test_a_shared_store_is_refused_at_the_start(store):
    refused = subprocess.run([STINT, "serve", "--clock", "virtual", "--store", store],
                             capture_output=True, text=True, timeout=20)
    assert refused.returncode == 1
    assert refused.stderr == ("stint: clock is virtual, and shared stores have clocks of their "
                              "own: omit --store or --clock virtual\n")
