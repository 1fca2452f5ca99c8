# SPDX-License-Identifier: MIT
"""One process takes the place of another, under load: nobody is refused and nothing forgotten.

Real time: what is tried is the kernel's queues and two processes that run at once.
STINT_LONG=1 makes it 100 restarts.
"""
import os
import re
import signal
import socket
import stat
import subprocess
import tempfile
import time

import pytest

from program import STINT
from server import Asker, Resp, Server, free_port

RESTARTS = 100 if os.environ.get("STINT_LONG") else 6
RULES = """
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 3}
"""


def replace(old, ports, state, *options):
    new = Server("--state", state, "--replace", "--resp", f"127.0.0.1:{ports[0]}", "--http",
                 f"127.0.0.1:{ports[1]}", "--workers", 2, "--drain-time", "20s", *options)
    assert "taken_over" in new.log
    old.wait_for("handed_over")
    return new


def test_restarts_under_load_fail_nobody_and_forget_nothing(tmp_path):
    state, ports = tmp_path / "state", (free_port(), free_port())
    burst = 500
    server = Server("--state", state, "--resp", f"127.0.0.1:{ports[0]}", "--http",
                    f"127.0.0.1:{ports[1]}", "--workers", 2, "--drain-time", "20s")
    servers = [server]
    askers = [Asker(ports[0], 5, "shared", burst) for _ in range(4)]
    # A connection for each request; every round of 500 is a line.
    with (tmp_path / "rounds").open("w") as rounds:
        bench = subprocess.Popen(
            ["stdbuf", "-oL", "redis-benchmark", "-p", str(ports[0]), "-c", "20", "-k", "0", "-l",
             "-n", "500", "-r", "1000", "--csv", "CL.THROTTLE", "b:__rand_int__", "99", "100",
             "60"],
            stdout=rounds, stderr=subprocess.STDOUT)
    wrk = subprocess.Popen(["wrk", "-t1", "-c20", "-d900s", f"http://127.0.0.1:{ports[1]}/healthz"],
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        for _ in range(RESTARTS):
            time.sleep(0.3)
            server = replace(server, ports, state)
            servers.append(server)
        assert wrk.poll() is None and bench.poll() is None
        wrk.send_signal(signal.SIGINT)  # it tells what it has seen so far
        text = wrk.communicate(timeout=60)[0].decode()
    finally:
        wrk.kill()
        bench.kill()
        for asker in askers:
            asker.stop()
        for number, one in enumerate(servers):
            with one: # the last is told to end; the others end by themselves, or are told now
                if number < len(servers) - 1:
                    assert one.wait(60) == 0
    assert not any(asker.failures for asker in askers), askers[0].failures[:3]
    assert sum(asker.asked for asker in askers) > 100 * RESTARTS
    # A bucket of 500 that gains one unit in a day: over all processes it was counted once.
    assert sum(asker.allowed for asker in askers) == burst
    assert "Socket errors" not in text and "Non-2xx" not in text, text
    assert int(re.search(r"(\d+) requests in", text)[1]) > 1000
    benched = (tmp_path / "rounds").read_text()
    assert benched.count("CL.THROTTLE") > 1 and "rror" not in benched, benched


def test_a_successor_that_fails_changes_nothing(tmp_path):
    state = tmp_path / "state"
    with Server("--state", state, rules=RULES) as server:
        bad = tmp_path / "bad.yaml"
        bad.write_text("domain: [")
        done = subprocess.run([STINT, "serve", "--state", state, "--replace", "--rules", bad],
                              capture_output=True, timeout=30)
        assert done.returncode == 1 and b"bad.yaml" in done.stderr
        # Gets as far as the sockets, and then cannot use an address of its own.
        taken = socket.create_server(("127.0.0.1", 0))
        done = subprocess.run(
            [STINT, "serve", "--state", state, "--replace", "--resp", f"127.0.0.1:{server.resp}",
             "--http", f"127.0.0.1:{taken.getsockname()[1]}"], capture_output=True, timeout=30)
        taken.close()
        assert done.returncode == 1 and b"the address is in use; choose another" in done.stderr
        server.wait_for("handover_failed")
        for _ in range(20):
            assert server.connect().ask("PING") == "PONG"


def test_a_second_server_of_one_state_says_how_to_replace(tmp_path):
    state = tmp_path / "state"
    with Server("--state", state):
        done = subprocess.run([STINT, "serve", "--state", state, "--resp", "127.0.0.1:0", "--http",
                               "off", "--grpc", "off"], capture_output=True, timeout=30)
        assert done.returncode == 1 and b"--replace takes over" in done.stderr
        with Server("--state", state, "--control", "off") as beside:
            assert beside.connect().ask("PING") == "PONG"


def test_unix_sockets_are_handed_over_too(tmp_path):
    state, path = tmp_path / "state", tmp_path / "resp.sock"
    options = ["--state", state, "--resp", f"unix:{path}", "--http", "off"]
    old = Server(*options)
    inode = path.stat().st_ino
    new = Server(*options, "--replace")
    with new, old:
        assert old.wait() == 0
        assert path.stat().st_ino == inode
        with socket.socket(socket.AF_UNIX) as local:
            local.connect(str(path))
            assert Resp(local).ask("PING") == "PONG"
    assert not path.exists()


@pytest.mark.parametrize("more", [(), ("--",)])
def test_sigusr2_starts_a_successor(tmp_path, more):
    state = tmp_path / "state"
    with Server("--state", state, "--resp", "127.0.0.1:0", "--http", "off", "--grpc", "off", *more,
                ports=False) as old:
        client = old.connect()
        assert client.throttle("key", 2, 1, 86400)[:3] == [0, 2, 1]
        client.close()
        old.tell(signal.SIGUSR2)
        old.wait_for("handed_over")
        assert old.process.wait(30) == 0
        old.wait_for("started: serving", times=2)
        successor = int(re.findall(r"serving pid=(\d+)", old.log)[1])
        try:
            with old.connect() as other:
                assert other.throttle("key", 2, 1, 86400)[:3] == [0, 2, 0]
                assert other.throttle("key", 2, 1, 86400)[0] == 1
        finally:
            os.kill(successor, signal.SIGTERM)
        old.wait_for("stopped", times=2)


def test_sigusr2_without_a_control_socket_is_told_and_harmless():
    with Server("--http", "off") as server:
        server.tell(signal.SIGUSR2)
        server.wait_for("handover_failed")
        assert "--control" in server.log
        assert server.connect().ask("PING") == "PONG"


def test_more_and_fewer_workers(tmp_path):
    state, ports = tmp_path / "state", (free_port(), free_port())
    common = ["--state", state, "--resp", f"127.0.0.1:{ports[0]}", "--http", "off"]
    server = Server(*common, "--workers", 1)
    for workers in (4, 2, 1, 3):
        new = Server(*common, "--workers", workers, "--replace")
        with server:
            assert server.wait() == 0
        server = new
        for _ in range(30):
            with Resp(socket.create_connection(("127.0.0.1", ports[0]), timeout=5)) as client:
                assert client.ask("PING") == "PONG"
    with server:
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_another_user_cannot_take_over():
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        control = f"{folder}/control"
        with Server("--control", control) as server:
            assert stat.S_IMODE(os.stat(control).st_mode) == 0o600
            os.chmod(control, 0o777)  # were the path open, the process would still look who comes
            code = ("import socket,sys; s=socket.socket(socket.AF_UNIX); s.settimeout(5)\n"
                    "s.connect(sys.argv[1])\n"
                    "try:\n  s.send(b'take/1'.ljust(32, b'\\0')); got = s.recv(32)\n"
                    "except (BrokenPipeError, ConnectionResetError): got = b''\n"
                    "sys.exit(0 if got == b'' or got.startswith(b'refused') else 3)")
            done = subprocess.run(["/usr/bin/python3", "-c", code, control], user=65534, timeout=20)
            assert done.returncode == 0
            assert server.connect().ask("PING") == "PONG"
