# SPDX-License-Identifier: MIT
"""What systemd tells a server and is told by it, with a socket of the test in its place.

Real time: a watchdog is about nothing else.
"""
import array
import contextlib
import ctypes
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from program import SOURCE, STINT
from server import Resp, Server, free_port

UNIT = SOURCE / "contrib" / "systemd"


class Manager:
    """Listens at a notify socket: messages as dicts, with the descriptors that came along."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = f"{self.folder.name}/notify"
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind(self.path)

    def next(self, seconds=20):
        self.sock.settimeout(seconds)
        fds = array.array("i")
        text, controls, _, _ = self.sock.recvmsg(4096, socket.CMSG_LEN(16 * fds.itemsize))
        for level, kind, data in controls:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds.frombytes(data[:len(data) - len(data) % fds.itemsize])
        message = dict(line.split("=", 1) for line in text.decode().splitlines())
        return message, list(fds)

    def wait_for(self, name, seconds=20):
        ends = time.monotonic() + seconds
        while True:
            message, fds = self.next(max(ends - time.monotonic(), 0.001))
            if name in message:
                return message, fds
            for fd in fds:
                os.close(fd)

    def hears(self, name, seconds):
        """Whether that is the next message, and comes in this time."""
        try:
            return name in self.next(seconds)[0]
        except socket.timeout:
            return False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()
        self.folder.cleanup()


def activated(fds, names, *options, env=None):
    """A server that begins with descriptors from 3 on, as systemd starts it."""
    script = ("import fcntl, os, sys; os.environ['LISTEN_PID'] = str(os.getpid()); "
              "fds = [int(fd) for fd in sys.argv[1].split(',')]; "
              "high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 100) for fd in fds]; "
              "[os.close(fd) for fd in fds]; "
              "[os.dup2(fd, 3 + i) for i, fd in enumerate(high)]; "
              "os.execv(sys.argv[2], sys.argv[2:])")
    if "--grpc" not in options and "grpc" not in names:
        options += ("--grpc", "off")
    return Server(*options, ports=False, pass_fds=fds, command=[
        "/usr/bin/python3", "-c", script, ",".join(map(str, fds)), STINT, "serve"],
        env={**(env or {}), "LISTEN_FDS": str(len(fds)), "LISTEN_FDNAMES": ":".join(names)})


def test_ready_reloading_and_stopping_are_told():
    with Manager() as manager:
        with Server(env={"NOTIFY_SOCKET": manager.path}) as server:
            manager.wait_for("READY")
            assert server.connect().ask("PING") == "PONG"
            before = time.monotonic_ns() // 1000
            server.tell(signal.SIGHUP)
            message, _ = manager.wait_for("RELOADING")
            assert before <= int(message["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000
            manager.wait_for("READY")
            server.tell(signal.SIGTERM)
            manager.wait_for("STOPPING")
            server.wait()


def test_a_manager_that_does_not_read_stops_nothing():
    """READY is sent again until the manager takes it; the first loss is logged."""
    with Manager() as manager, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                other.sendto(b"X=1", manager.path)
        with Server(env={"NOTIFY_SOCKET": manager.path}) as server:
            server.wait_for("notify_lost")
            assert server.connect().ask("PING") == "PONG"
            manager.wait_for("READY")
            assert server.log.count("notify_lost") == 1


def test_a_restart_finds_the_stored_sockets_and_whoever_waits_in_them():
    with Manager() as manager:
        env = {"NOTIFY_SOCKET": manager.path}
        stored, names = [], []
        options = ["--resp", f"127.0.0.1:{free_port()}", "--http", "off", "--workers", 2]
        with Server(*options, env=env) as server:
            while len(stored) < 2:
                message, fds = manager.wait_for("FDSTORE")
                stored += fds
                names += [message["FDNAME"]] * len(fds)
            assert names == ["stored-resp"] * 2
            port = server.resp
        waiting = [Resp(socket.create_connection(("127.0.0.1", port))) for _ in range(20)]
        for client in waiting:
            client.send("PING")
        with activated(stored, names, *options, env=env):
            for fd in stored:
                os.close(fd)
            assert [client.read() for client in waiting] == ["PONG"] * 20


def test_stored_sockets_that_nobody_wants_any_more_are_closed():
    listener = socket.create_server(("127.0.0.1", 0))
    port = free_port()
    with activated([listener.fileno()], ["stored-resp"], "--resp", f"127.0.0.1:{port}", "--http",
                   "off") as server:
        address = listener.getsockname()
        listener.close()
        assert server.resp == port
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)


def test_sockets_come_by_their_names(tmp_path):
    """Those of systemd stand instead of the configured ones of the same port; others stay."""
    resp = socket.create_server(("127.0.0.1", 0))
    local = socket.socket(socket.AF_UNIX)
    path = str(tmp_path / "resp.sock")
    local.bind(path)
    local.listen()
    with activated([resp.fileno(), local.fileno()], ["resp", "resp"], "--http", "127.0.0.1:0",
                   "--resp", "127.0.0.1:1", "--workers", 2) as server:
        assert set(server.frontends["resp"]) == {
            "127.0.0.1:%d" % resp.getsockname()[1], f"unix:{path}"}
        for _ in range(10):
            with Resp(socket.create_connection(resp.getsockname(), timeout=20)) as client:
                assert client.ask("PING") == "PONG"
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
            assert Resp(client).ask("PING") == "PONG"
        assert urllib.request.urlopen(server.url("/healthz"), timeout=20).status == 200
    assert os.path.exists(path)  # systemd's, not the server's
    resp.close()
    local.close()


def test_a_successor_keeps_the_sockets_of_systemd(tmp_path):
    """It serves them instead of the configured ones, and does not remove their paths either."""
    http = socket.create_server(("127.0.0.1", 0))
    local = socket.socket(socket.AF_UNIX)
    path = tmp_path / "resp.sock"
    local.bind(str(path))
    local.listen()
    options = ["--resp", f"unix:{path}", "--http", f"127.0.0.1:{free_port()}", "--state",
               tmp_path / "state", "--grpc", "off"]
    old = activated([local.fileno(), http.fileno()], ["resp", "http"], *options)
    with Server(*options, "--replace", ports=False) as new, old:
        assert old.wait() == 0
        assert new.frontends == old.frontends
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            assert Resp(client).ask("PING") == "PONG"
        assert urllib.request.urlopen(new.url("/healthz"), timeout=20).status == 200
    assert path.exists()
    http.close()
    local.close()


def test_a_socket_without_a_ports_name_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        script = ("import os,sys; os.environ['LISTEN_PID']=str(os.getpid()); "
                  "os.dup2(int(sys.argv[1]), 3); os.execv(sys.argv[2], sys.argv[2:])")
        done = subprocess.run(
            ["/usr/bin/python3", "-c", script, str(listener.fileno()), STINT, "serve"],
            env={**os.environ, "LISTEN_FDS": "1", "LISTEN_FDNAMES": "web"}, capture_output=True,
            timeout=30, pass_fds=[listener.fileno()])
    assert done.returncode == 1
    assert (b"'web': FileDescriptorName= must be resp, resp-tls, http, http-tls, grpc or "
            b"grpc-tls") in done.stderr


def stop_thread(tid):
    """Stops one thread alone; the others go on."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    seize, interrupt, detach = 0x4206, 0x4207, 17
    if libc.ptrace(seize, tid, None, None) != 0:
        pytest.skip(f"ptrace: {os.strerror(ctypes.get_errno())}")
    libc.ptrace(interrupt, tid, None, None)
    os.waitpid(tid, 0x40000000)
    return lambda: libc.ptrace(detach, tid, None, None)


def worker_thread(server, name):
    for task in Path(f"/proc/{server.pid}/task").iterdir():
        if (task / "comm").read_text().strip() == name:
            return int(task.name)
    raise AssertionError(f"no thread is called '{name}'")


def test_the_watchdog_hears_nothing_while_a_worker_is_stuck():
    with Manager() as manager:
        env = {"NOTIFY_SOCKET": manager.path, "WATCHDOG_USEC": "1000000"}
        # The pid is that of the server: the launcher becomes it.
        command = ["/bin/sh", "-c", 'WATCHDOG_PID=$$ exec "$0" "$@"', STINT, "serve"]
        with Server("--workers", 2, "--watch", "0", env=env, command=command) as server:
            for _ in range(3):
                manager.wait_for("WATCHDOG")
            assert urllib.request.urlopen(server.url("/readyz"), timeout=20).status == 200
            stopped_at = time.monotonic()
            release = stop_thread(worker_thread(server, "worker 1"))
            try:
                pings = 0
                while "worker_stuck" not in server.log and pings < 100:
                    pings += manager.hears("WATCHDOG", 1)
                assert 3 < pings < 100  # a worker that is stuck for a short time may go on
                assert time.monotonic() - stopped_at > 8  # STUCK_MS is 10 s, from its last turn
                while manager.hears("WATCHDOG", 0.1):  # sent before the log line
                    pass
                with pytest.raises(socket.timeout):
                    manager.wait_for("WATCHDOG", 3)
                assert server.log.count("worker_stuck") == 1
            finally:
                release()
            manager.wait_for("WATCHDOG")


def test_a_pause_of_the_whole_process_is_no_stuck_worker():
    """As of a machine that was suspended: the main thread may be the first to run again."""
    with Server("--workers", 8) as server:
        server.tell(signal.SIGSTOP)
        time.sleep(11)  # STUCK_MS is 10 s
        server.tell(signal.SIGCONT)
        server.tell(signal.SIGHUP)
        server.wait_for("info reloaded")
        time.sleep(1)  # in which the main thread looks
        assert "worker_stuck" not in server.log


@pytest.mark.skipif(not os.path.exists("/usr/bin/systemd-analyze"), reason="no systemd here")
def test_the_unit_files_are_correct(tmp_path):
    text = (UNIT / "stint.service").read_text()
    program = re.search(r"^ExecStart=(\S+)", text, re.M)[1]
    for unit in UNIT.iterdir():
        (tmp_path / unit.name).write_text(unit.read_text().replace(
            f"ExecStart={program} ", f"ExecStart={STINT} "))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", tmp_path / "stint.service"],
                          capture_output=True, timeout=60)
    said = [line for line in done.stderr.decode().splitlines() if "stint" in line
            # Versions before 253 do not know it; they take the unit as one of Type=simple.
            and "notify-reload" not in line]
    assert not said, said


def test_the_unit_starts_what_the_program_takes():
    """The options of the unit file are such as --print-config accepts."""
    text = (UNIT / "stint.service").read_text()
    command = re.search(r"^ExecStart=((?:.*\\\n)*.*)", text, re.M)[1].replace("\\\n", " ")
    words = [word.replace("%S", "/var/lib").replace("%t", "/run") for word in command.split()]
    config = re.search(r"--config (\S+)", command)
    if config:
        words = [word for word in words if word not in ("--config", config[1])]
    done = subprocess.run([STINT, "serve", "--print-config", *words[2:]], capture_output=True,
                          timeout=20)
    assert done.returncode == 0, done.stderr
