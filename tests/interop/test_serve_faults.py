# SPDX-License-Identifier: MIT
"""What goes wrong in the world: killed processes, slow and silent peers, nothing left of something.

Real time: kills, timeouts of sockets and the clock that goes on while nobody serves. What is sent
in virtual time stands in tests/trace.
"""
import contextlib
import fcntl
import os
import re
import resource
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request

import pytest

from measure import metric
from program import STINT
from redis_server import until
from server import Resp, Server, free_port


class Taker(threading.Thread):
    """Takes from a few keys over and over; notes when each grant was asked for, and answered."""

    def __init__(self, port, spec, keys):
        super().__init__(daemon=True)
        self.port, self.spec, self.keys = port, spec, keys
        self.grants = []  # (key, asked at, answered at)
        self.ends = threading.Event()
        self.start()

    def run(self):
        while not self.ends.is_set():
            try:
                with Resp(socket.create_connection(("127.0.0.1", self.port), timeout=5)) as client:
                    self.take(client)
            except OSError:
                time.sleep(0.01)  # nobody serves just now

    def take(self, client):
        while not self.ends.is_set():
            for key in range(self.keys):
                asked = time.monotonic()
                reply = client.ask("STINT.TAKE", "QUOTA", self.spec, f"key{key}")
                answered = time.monotonic()
                if not isinstance(reply, RuntimeError) and "allow" in reply:
                    self.grants.append((key, asked, answered))


def most_in_any_window(grants, seconds):
    """The most grants that were surely within one window: asked and answered in it."""
    grants = sorted(grants, key=lambda grant: grant[2])
    most = 0
    for first, (_, begins, _) in enumerate(grants):
        inside = sum(1 for _, asked, answered in grants[first:]
                     if asked >= begins and answered < begins + seconds)
        most = max(most, inside)
    return most


def test_no_key_passes_its_limit_over_kills(tmp_path):
    """Killed five times under load: with its state, the next goes on where it was."""
    port, limit, window_s = free_port(), 20, 1.5
    options = ["--state", tmp_path / "state", "--resp", f"127.0.0.1:{port}", "--http", "off",
               "--workers", 2]
    server = Server(*options)
    takers = [Taker(port, f"window {limit}/1500ms", 3) for _ in range(3)]
    try:
        for _ in range(5):
            time.sleep(0.7)
            server.kill()
            server = Server(*options)
            assert "found=yes" in server.log
        time.sleep(1)
    finally:
        for taker in takers:
            taker.ends.set()
        for taker in takers:
            taker.join(20)
        with server:
            pass
    for key in range(3):
        grants = [grant for taker in takers for grant in taker.grants if grant[0] == key]
        assert len(grants) > limit  # it went on
        assert most_in_any_window(grants, window_s) <= limit


def test_a_killed_server_leaves_no_unix_socket_in_the_way(tmp_path):
    path, state = tmp_path / "resp.sock", tmp_path / "state"
    options = ["--resp", f"unix:{path}", "--http", "off", "--state", state]
    first = Server(*options)
    first.kill()
    assert path.exists()
    with Server(*options):
        with socket.socket(socket.AF_UNIX) as local:
            local.connect(str(path))
            assert Resp(local).ask("PING") == "PONG"


# ---- too much ----


def few_descriptors(number):
    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (number, number))
    return limit


def test_without_descriptors_accepting_pauses_and_goes_on():
    """The gate would keep connections below what is possible; here the limit falls behind it."""
    with Server("--workers", 1, "--http", "off") as server:
        with server.connect() as first:
            assert first.ask("PING") == "PONG"
            used = len(os.listdir(f"/proc/{server.pid}/fd"))
            resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (used + 5, used + 5))
            clients = [server.connect() for _ in range(20)]
            server.wait_for("accept_paused")
            assert first.ask("PING") == "PONG"
            for client in clients[:10]:  # who has a descriptor gives it back
                client.close()
            for client in clients[10:15]:
                assert client.ask("PING") == "PONG"


def test_connections_fit_the_descriptors_that_there_are():
    with Server("--workers", 1, "--connections", 5000, limits=few_descriptors(256)) as server:
        assert "descriptors_few" in server.log
        clients = [server.connect() for _ in range(250)]
        assert clients[0].ask("PING") == "PONG"
        assert clients[-1].is_closed()
        server.wait_for("the limit of connections is reached")
        assert "accept_paused" not in server.log


def test_connections_of_one_address_and_in_all_have_limits():
    with Server("--connections-per-address", 3, "--connections", 5, "--resp", "127.0.0.1:0",
                "--resp", "[::1]:0") as server:
        clients = [server.connect() for _ in range(3)]
        assert all(client.ask("PING") == "PONG" for client in clients)
        assert server.connect().is_closed()
        six = int(server.frontends["resp"][1].rpartition(":")[2])
        others = []
        for _ in range(2):  # each before the next: workers accept in no order
            others.append(Resp(socket.create_connection(("::1", six), timeout=5)))
            assert others[-1].ask("PING") == "PONG"
        assert Resp(socket.create_connection(("::1", six), timeout=5)).is_closed()
        clients[0].close()
        others[0].close()
        ends = time.monotonic() + 5
        while time.monotonic() < ends:  # until the server has seen that they went
            again = server.connect()
            try:
                if again.ask("PING") == "PONG":
                    return
            except OSError:
                time.sleep(0.05)
        raise AssertionError(server.log)


def idle_kib(server, n_connections, frontend="resp"):
    def resident():
        with open(f"/proc/{server.pid}/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * resource.getpagesize() / 1024
    before = resident()
    clients = [server.connect(frontend) for _ in range(n_connections)]
    for client in clients:
        assert client.ask("PING") == "PONG"
    return clients, (resident() - before) / n_connections


def test_ten_thousand_idle_connections():
    """As many as this process may open, up to 10,000; none costs more than 16 KiB."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    wanted = 10000 if hard > 10500 else 1000
    with Server("--connections", 12000, "--connections-per-address", 0, "--http", "off") as server:
        clients, kib = idle_kib(server, wanted)
        assert kib <= 16, kib
        for client in clients[::97]:
            assert client.throttle("key", 1000000, 1, 60)[0] == 0
        for client in clients:
            client.close()
        with server.connect() as last:
            assert last.ask("PING") == "PONG"


# ---- peers that are slow, silent or gone ----


def test_who_reads_nothing_is_cut_and_others_are_served():
    with Server("--workers", 1, "--write-time", "1s") as server:
        slow = server.connect()
        slow.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.sock.settimeout(0.5)
        with pytest.raises((socket.timeout, ConnectionError)):
            while True:  # the server stops reading: the socket fills up
                slow.sock.sendall(Resp.encode("ECHO", "x" * 60000) * 50)
        with server.connect() as other:
            for _ in range(100):
                assert other.ask("PING") == "PONG"
        until(lambda: metric(server.http, "stint_connections_refused_total") == 1, "it is ended")
        slow.sock.settimeout(5)
        with pytest.raises(ConnectionError):
            while True:
                if not slow.sock.recv(1 << 20):
                    raise ConnectionError("ended")


def test_memory_stays_small_while_somebody_reads_nothing():
    with Server("--workers", 1, "--http", "off") as server:
        slow = server.connect()
        slow.sock.settimeout(0.5)
        with pytest.raises(socket.timeout):
            while True:
                slow.sock.sendall(Resp.encode("ECHO", "x" * 60000) * 50)
        with open(f"/proc/{server.pid}/status", encoding="ascii") as status:
            resident = [int(line.split()[1]) for line in status if line.startswith("VmRSS")][0]
        slow.close()
        assert resident < 64 * 1024, resident


def test_a_request_that_drips_is_cut_and_an_idle_connection_is_not():
    with Server("--request-time", "1s", "--http", "off") as server:
        idle, drips = server.connect(), server.connect()
        assert idle.ask("PING") == "PONG"
        began = time.monotonic()
        with pytest.raises(ConnectionError):
            for byte in Resp.encode("PING") * 1000:
                drips.sock.sendall(bytes([byte]))
                time.sleep(0.1)
        assert 0.8 < time.monotonic() - began < 20
        assert idle.ask("PING") == "PONG"


def test_an_idle_connection_ends_in_time():
    with Server("--idle-time", "2s", "--http", "off") as server:
        idle, busy = server.connect(), server.connect()
        ends = time.monotonic() + 20
        assert busy.ask("PING") == "PONG"
        while not idle.is_closed(0.2):
            assert time.monotonic() < ends
            assert busy.ask("PING") == "PONG"
        assert busy.ask("PING") == "PONG"


def test_who_closes_his_side_gets_his_answers():
    with Server("--http", "off") as server:
        client = server.connect()
        client.sock.sendall(Resp.encode("PING") * 500)
        client.sock.shutdown(socket.SHUT_WR)
        assert [client.read() for _ in range(500)] == ["PONG"] * 500
        assert client.is_closed()


def test_who_vanishes_leaves_nothing_behind():
    with Server("--workers", 1, "--http", "off") as server:
        with server.connect() as first:
            first.ask("PING")
            before = len(os.listdir(f"/proc/{server.pid}/fd"))
            for turn in range(200):
                client = server.connect()
                client.sock.sendall(Resp.encode("PING")[:turn % 14])
                if turn % 2 == 0:  # a reset instead of an end
                    client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0" * 2)
                client.close()
            ends = time.monotonic() + 5
            while len(os.listdir(f"/proc/{server.pid}/fd")) > before:
                assert time.monotonic() < ends
                time.sleep(0.02)
            assert first.ask("PING") == "PONG"


# ---- disks ----


@pytest.mark.skipif(os.geteuid() != 0, reason="a small file system is mounted by root")
def test_a_full_disk_is_told_before_anybody_is_served():
    with tempfile.TemporaryDirectory() as folder:
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder],
                                 capture_output=True)
        if mounted.returncode != 0:
            pytest.skip("mount: " + mounted.stderr.decode().strip())
        try:
            done = subprocess.run([STINT, "serve", "--state", f"{folder}/state", "--resp",
                                   "127.0.0.1:0", "--http", "off"], capture_output=True, timeout=30)
            assert done.returncode == 1
            assert f"{folder}/state" in done.stderr.decode()
        finally:
            subprocess.run(["umount", folder], check=True)


def test_health_is_told_while_connections_are_many():
    with Server("--workers", 2) as server:
        clients = [server.connect() for _ in range(300)]
        for path in ("/healthz", "/readyz"):
            assert urllib.request.urlopen(server.url(path), timeout=5).status == 200
        for client in clients:
            client.close()


def test_a_stopped_server_goes_on_where_it_was():
    """As a laptop's lid or a debugger does it: SIGSTOP for longer than every second's look."""
    with Server("--workers", 2) as server, server.connect() as client:
        server.tell(signal.SIGSTOP)
        time.sleep(1.5)
        client.send("PING")
        server.tell(signal.SIGCONT)
        assert client.read() == "PONG"
        assert client.throttle("key", 2, 1, 60)[0] == 0


def test_a_log_that_nobody_reads_holds_nobody_up():
    """Its pipe is full before the server begins, and stays so while it serves and reloads."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 64)
    os.set_blocking(writer, True)
    port = free_port()
    process = subprocess.Popen([STINT, "serve", "--resp", f"127.0.0.1:{port}", "--http", "off",
                                "--grpc", "off", "--workers", "1"], stderr=writer)
    os.close(writer)
    try:
        ends = time.monotonic() + 20
        while True:
            try:
                client = Resp(socket.create_connection(("127.0.0.1", port), timeout=5))
                break
            except OSError:
                assert time.monotonic() < ends and process.poll() is None
                time.sleep(0.05)
        for _ in range(5):
            process.send_signal(signal.SIGHUP)
            assert client.throttle("key", 10, 10, 60)[0] == 0
        client.sock.close()
        told = b""
        while b"lines_lost" not in told:
            told += os.read(reader, 65536)
        assert re.search(rb"warn lines_lost: .* lines=[1-9]", told), told
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        os.close(reader)
