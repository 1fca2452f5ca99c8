# SPDX-License-Identifier: MIT
"""What many, slow, hostile and vanishing clients cost at both frontends, what a killed server owes.

Real time throughout: kernel queues, limits of time, processes that are killed. Deadlines are set to
a second, so that each test is short. With STINT_LONG=1 the flood has 100 million keys.
"""
import contextlib
import os
import random
import resource
import socket
import statistics
import struct
import subprocess
import threading
import time
import urllib.request

import pytest

from measure import KIB, MIB, cpu_s, descriptors, metric, own_memory, status, until
from program import STINT
from server import Resp, Server, free_port, listens

IS_LONG = os.environ.get("STINT_LONG") == "1"
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: the socket is not closed but reset
TAKE = ("STINT.TAKE", "QUOTA")


def take(client, quota, key):
    """Whether the unit is granted."""
    reply = client.ask(*TAKE, quota, key)
    assert isinstance(reply, list), reply
    return reply[1] == "allow"


def is_healthy(server):
    with urllib.request.urlopen(server.url("/healthz"), timeout=20) as answer:
        return answer.status == 200


def is_at_rest(server, seconds=0.5):
    used = cpu_s(server.pid)
    time.sleep(seconds)
    return cpu_s(server.pid) - used < 0.3 * seconds


def median_ms(client, n=100):
    """How long a request of this client takes."""
    times = []
    for _ in range(n):
        began = time.monotonic()
        assert client.ask("PING") == "PONG"
        times.append(time.monotonic() - began)
    return 1000 * statistics.median(times)


def connections(server):
    """Those of RESP, and of HTTP without the one that asks."""
    return (metric(server.http, "stint_connections", frontend="resp") +
            metric(server.http, "stint_connections", frontend="http") - 1)


@contextlib.contextmanager
def many_descriptors(n):
    """Room for n descriptors here, or as many as there may be; says how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(soft, n if hard == resource.RLIM_INFINITY else min(n, hard))
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    try:
        yield wanted
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# ---- clients who are many, slow, or gone --------------------------------------------------------


@pytest.mark.parametrize("frontend", ["resp", "http"])
def test_connections_that_come_and_stay_and_go_cost_the_same_each_time(frontend):
    """At most 16 KiB while idle, no processor; the third thousand needs no more than the first."""
    with many_descriptors(4000) as room, \
            Server("--connections", 20000, "--connections-per-address", 0,
                   "--workers", 2) as server:
        n = min(3000, room - 500)
        before, open_before = own_memory(server.pid), descriptors(server.pid)
        peaks = []
        for _ in range(3):
            clients = [server.connect(frontend) for _ in range(n)]
            assert until(lambda: descriptors(server.pid) >= open_before + n)
            for client in clients:
                if frontend == "resp":
                    assert client.ask("PING") == "PONG"
                else:
                    client.sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
                    assert client.sock.recv(4096).startswith(b"HTTP/1.1 200 ")
            peaks.append(own_memory(server.pid))
            assert is_at_rest(server)
            with server.connect() as other:
                assert median_ms(other) < 1000
            assert is_healthy(server)
            for client in clients:
                client.close()
            assert until(lambda: descriptors(server.pid) <= open_before + 2)
        each = (peaks[0] - before) / n
        assert each <= 16 * KIB, f"{each / KIB:.1f} KiB for an idle connection"
        assert peaks[2] <= peaks[1] + MIB, peaks


def test_who_does_not_read_is_not_read_from():
    """40 MB of replies are asked for; the server keeps what --output-size says, and loses none."""
    n, word = 20000, b"x" * 2000
    with Server("--workers", 1, "--output-size", "256KiB") as server, server.connect() as other:
        before = own_memory(server.pid)
        with server.connect() as slow:
            asker = threading.Thread(target=lambda: slow.sock.sendall(
                b"".join(Resp.encode("ECHO", b"%d " % i + word) for i in range(n))))
            asker.start()
            asker.join(1)
            assert asker.is_alive(), "the server reads though its replies are not read"
            kept = own_memory(server.pid) - before
            assert kept < 4 * MIB, f"{kept / MIB:.1f} MiB kept for one client"
            assert median_ms(other) < 1000
            for i in range(n):
                assert slow.read().partition(" ")[0] == str(i)
            asker.join(5)
        assert until(lambda: own_memory(server.pid) < before + 2 * MIB)


def test_who_never_reads_is_ended_at_both_frontends():
    with Server("--write-time", "1s", "--http-answer-time", "1s") as server, \
            server.connect() as resp, server.connect("http") as http:
        before = own_memory(server.pid)
        questions = {resp: Resp.encode("COMMAND", "DOCS") * 5000,
                     http: b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 5000}
        for client, question in questions.items():
            client.sock.settimeout(0.2)
            with contextlib.suppress(socket.timeout):
                client.sock.sendall(question)
        assert until(lambda: metric(server.http, "stint_connections_refused_total") == 2)
        assert until(lambda: connections(server) == 0)
        assert until(lambda: own_memory(server.pid) < before + 4 * MIB)


def drips_for(client, began, head, text, most_s):
    """How long since it began the server lets a client go on that sends a byte now and then."""
    client.sock.sendall(head)
    client.sock.settimeout(0.1)
    for byte in text:
        try:
            client.sock.sendall(bytes([byte]))
            if client.sock.recv(1) == b"":
                break
        except socket.timeout:
            pass
        except ConnectionError:
            break
        if time.monotonic() - began > most_s:
            break
    return time.monotonic() - began


@pytest.mark.parametrize("frontend, head, rest", [
    ("resp", b"*2\r\n$4\r\nECHO\r\n$9999\r\n", b"x"),
    ("resp", b"", b"PING "),
    ("http", b"", b"\r\n"),
    ("http", b"GET /", b"x"),
    ("http", b"GET / HTTP/1.1\r\nHost: a\r\nX-Slow: ", b"x"),
    ("http", b"GET / HTTP/1.1\r\nHost: a\r\n", b"X-Slow: x\r\n"),
    ("http", b"POST /v1/take HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
             b"Content-Length: 9999\r\n\r\n", b" "),
    ("http", b"POST /v1/take HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
             b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
], ids=["resp", "resp-inline", "http-empty", "http-line", "http-field", "http-fields", "http-body",
        "http-chunks"])
def test_who_sends_drop_by_drop_is_ended(frontend, head, rest):
    """A byte each 0.1 s puts no deadline off."""
    with Server("--request-time", "1s", "--http-request-time", "1s",
                "--http-idle-time", "1s") as server:
        most_s = 20  # what is found is a limit that never passes
        began = time.monotonic()  # the server counts from when it has accepted it
        with server.connect(frontend) as slow:
            took = drips_for(slow, began, head, rest * 1000, most_s)
        assert 0.5 < took < most_s, took
        assert is_healthy(server)


def test_who_vanishes_in_the_midst_leaves_nothing_behind():
    """500 connections end or are reset within a request, an answer or a wait."""
    halves = [("resp", Resp.encode("ECHO", "x" * 1000)[:-500]),
              ("resp", Resp.encode(*TAKE, "1/1h", "gone", "WAIT", 3600000) * 2),
              ("resp", Resp.encode("COMMAND", "DOCS") * 20),
              ("http", b"POST /v1/take HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{"),
              ("http", b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20)]
    with Server("--workers", 2, "--http-request-time", "1s") as server:
        with server.connect() as first:
            assert take(first, "1/1h", "gone")
        before = descriptors(server.pid)
        for i in range(500):
            frontend, half = halves[i % len(halves)]
            client = server.connect(frontend)
            client.sock.sendall(half)
            if i % 2 == 0:
                client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            client.close()
        assert until(lambda: descriptors(server.pid) <= before + 1)
        assert until(lambda: connections(server) == 0)
        assert is_healthy(server)


def test_garbage_ends_the_one_who_sends_it():
    """Another connection of the same worker is in the midst of a request, and gets its answer."""
    chance = random.Random(7)
    with Server("--workers", 1) as server, server.connect() as other:
        half = Resp.encode("ECHO", "kept")
        other.sock.sendall(half[:9])
        for text in [b"*x\r\n", b"*1\r\n:5\r\n", b"*99999999999\r\n", b"*1\r\n$99999999999\r\n"]:
            with server.connect() as client:
                client.sock.sendall(text)
                assert client.sock.recv(100).startswith(b"-ERR Protocol error: ")
                assert client.is_closed()
        assert metric(server.http, "stint_malformed_total", frontend="resp") == 4
        for text in [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"no request\r\n\r\n",
                     b"GET / HTTP/1.1\r\nHost a\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"]:
            with server.connect("http") as client:
                client.sock.sendall(text)
                answer = client.sock.recv(100)
                assert answer == b"" or answer[:10] in (b"HTTP/1.1 4", b"HTTP/1.1 5"), answer
        for i in range(300):
            with server.connect(("resp", "http")[i % 2]) as client:
                with contextlib.suppress(ConnectionError):
                    client.sock.sendall(chance.randbytes(chance.randrange(1, 5000)))
        other.sock.sendall(half[9:])
        assert other.read() == "kept"
        assert is_healthy(server)


def test_http_waits_at_rest_until_there_is_a_descriptor():
    """What cannot be accepted waits in the kernel's queue, and the loop does not go in circles."""
    question = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
    with Server("--workers", 1) as server:
        room = descriptors(server.pid) + 10
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (room, room))
        clients = [server.connect("http") for _ in range(20)]
        for client in clients:
            client.sock.sendall(question)
        server.wait_for("accept_paused")
        for client in clients[:10]:
            assert client.sock.recv(4096).startswith(b"HTTP/1.1 200 ")
        assert is_at_rest(server, 1)
        for client in clients[:10]:
            client.close()
        for client in clients[10:]:
            assert client.sock.recv(4096).startswith(b"HTTP/1.1 200 ")
            client.close()
        assert is_healthy(server)


# ---- more keys than there is room for -----------------------------------------------------------


def flood(server, first, n):
    """n keys that nobody has used, each with its own state, in pipelines of 10,000."""
    with server.connect() as client:
        for at in range(first, first + n, 10000):
            part = b"".join(Resp.encode("CL.THROTTLE", f"flood:{key}", 15, 1, 3600)
                            for key in range(at, at + 10000))
            sender = threading.Thread(target=client.sock.sendall, args=(part + b"PING\r\n",))
            sender.start()
            tail = b""
            while not tail.endswith(b"+PONG\r\n"):
                got = client.sock.recv(1 << 20)
                assert got, "the server closed the connection"
                tail = (tail + got)[-7:]
            sender.join()


def long_flood(server, n):
    subprocess.run(["redis-benchmark", "-p", str(server.resp), "-P", "64", "-c", "8", "-q", "-n",
                    str(n), "-r", "2000000000", "CL.THROTTLE", "flood:__rand_int__", "15", "1",
                    "3600"], check=True, capture_output=True)


def test_a_flood_of_new_keys_frees_no_denied_one():
    """Nor does memory grow beyond the table, which was sized at the start."""
    parts, n = 10, 10_000_000 if IS_LONG else 30_000
    quotas = ["window 3/1h", "gcra 3/1h", "buckets 3/1h time_slack=6m count_slack=1"]
    with Server("--workers", 2, "--keys", 4096, "--keys16", 4096, "--keys-wide", 64,
                "--wide-size", 512) as server, server.connect() as client:
        for quota in quotas:
            assert [take(client, quota, "victim") for _ in range(4)] == [True] * 3 + [False]
        assert [client.throttle("victim", 3, 1, 3600)[0] for _ in range(4)] == [0, 0, 0, 1]
        flood(server, 0, 30_000)
        before = status(server.pid, "VmRSS")
        for part in range(1, parts):
            long_flood(server, n) if IS_LONG else flood(server, part * n, n)
            assert not any(take(client, quota, "victim") for quota in quotas)
            assert client.throttle("victim", 3, 1, 3600)[0] == 1
        grown = status(server.pid, "VmRSS") - before
        assert grown < 2 * MIB, f"grew by {grown / MIB:.1f} MiB"


# ---- killed, and started again ------------------------------------------------------------------

KILL_KEYS = {
    "window": ("window 4000/1h", 4000),
    "log": ("log 1000/1h", 1000),
    "buckets": ("buckets 2000/1h time_slack=6m count_slack=200", 2000),
}


class Taker(threading.Thread):
    """Takes of all keys by turns until the server is gone, and counts what it was granted."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server = server
        self.granted = dict.fromkeys(KILL_KEYS, 0)
        self.unheard = 0  # of requests, the answer to which went with the server
        self.start()

    def run(self):
        with contextlib.suppress(OSError), self.server.connect() as client:
            while True:
                for name, (quota, _) in KILL_KEYS.items():
                    self.unheard += 1
                    granted = take(client, quota, name)
                    self.unheard -= 1
                    self.granted[name] += granted


def test_an_hours_limit_is_one_limit_over_several_lives(tmp_path):
    """Four clients, and a server killed under them three times: in all they get the limit.

    What was granted in the moment of death and never heard of may be missing. A state of several
    words whose writer died inside it counts as full, so the lower bound is of `window` alone, which
    is one word.
    """
    options = ["--state", tmp_path / "state", "--workers", 2, "--keys-wide", 16,
               "--wide-size", 16384, "--http", "off"]
    granted, unheard, lives = dict.fromkeys(KILL_KEYS, 0), 0, 4
    for life in range(1, lives + 1):
        with Server(*options) as server:
            takers = [Taker(server) for _ in range(4)]
            aim = 4000 * life // lives - (0 if life < lives else unheard)
            assert until(lambda: granted["window"] +
                         sum(taker.granted["window"] for taker in takers) >= aim, 20)
            server.kill()
            for taker in takers:
                taker.join(10)
                unheard += taker.unheard
                for name in granted:
                    granted[name] += taker.granted[name]
    for name, (_, limit) in KILL_KEYS.items():
        assert 0 < granted[name] <= limit, (name, granted[name])
    with Server(*options) as server, server.connect() as client:
        while take(client, KILL_KEYS["window"][0], "window"):
            granted["window"] += 1
        assert 4000 - unheard <= granted["window"] <= 4000


def test_a_killed_successor_leaves_its_ports_to_the_next(tmp_path):
    """Though the process before it still stays with a client of its own."""
    options = ["--state", tmp_path / "state", "--resp", f"127.0.0.1:{free_port()}",
               "--http", "off", "--workers", 2, "--drain-time", "60s"]
    with Server(*options) as first, first.connect() as old:
        assert take(old, "2/1h", "key")
        successor = Server(*options, "--replace")
        successor.kill()
        first.wait_for("handed_over")
        assert until(lambda: not listens(successor.resp))
        with Server(*options) as third, third.connect() as client:
            assert take(client, "2/1h", "key") and not take(old, "2/1h", "key")
        old.close()
        assert first.wait() == 0


def test_a_state_that_is_cut_or_of_no_file_is_refused_and_kept(tmp_path):
    def refused(state):
        done = subprocess.run([STINT, "serve", "--state", state, "--resp", "127.0.0.1:0",
                               "--http", "off"], capture_output=True, timeout=20)
        assert done.returncode == 1
        assert str(state) in done.stderr.decode()
        return done.stderr.decode()
    refused(tmp_path)
    assert "No such file" in refused(tmp_path / "none" / "state")
    good = tmp_path / "good"
    with Server("--state", good) as server, server.connect() as client:
        assert take(client, "1/1h", "key")
    whole = good.read_bytes()
    good.write_bytes(whole[:len(whole) // 2])
    refused(good)
    assert good.read_bytes() == whole[:len(whole) // 2]
    good.write_bytes(whole)
    with Server("--state", good) as server, server.connect() as client:
        assert not take(client, "1/1h", "key")
