# SPDX-License-Identifier: MIT
"""A handover that goes wrong on purpose: killed, hung, from other users, and over other files.

Real time: what is tried is two processes that run at once. STINT_LONG=1 kills at 200 instants.
"""
import array
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from program import SOURCE, STINT
from redis_server import until
from server import Asker, Server, free_port, listens

INSTANTS = 200 if os.environ.get("STINT_LONG") else 20
NOBODY = 65534
RECORD = 32  # bytes of a message
BURST = 300

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")


@pytest.fixture
def folder():
    """Of root, and reachable for other users: pytest makes its own for one user alone."""
    path = tempfile.mkdtemp()
    os.chmod(path, 0o755)
    yield Path(path)
    shutil.rmtree(path)


class Handover:
    """A process that asks for the sockets, message by message."""

    def __init__(self, state, sends=b""):
        self.state = Path(state)
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(20)
        self.sock.connect(f"{state}.control")
        self.sock.sendall(sends)

    def tell(self, verb, rest=b""):
        self.sock.sendall(verb.ljust(16, b"\0") + rest.ljust(16, b"\0"))

    def take(self):
        """What is answered: verbs, or the reason of a refusal. Descriptors are kept."""
        status = self.state.stat()
        self.tell(b"take/2", array.array("Q", [status.st_dev, status.st_ino]).tobytes())
        verbs, self.fds = [], []
        while not verbs or verbs[-1] not in ("all", "refused"):
            record, fds, _, _ = socket.recv_fds(self.sock, RECORD, 1)
            self.fds += fds
            verbs.append(record[:16].rstrip(b"\0").decode())
        return verbs

    def answer(self):
        record = self.sock.recv(RECORD)
        return [part.rstrip(b"\0").decode() for part in (record[:16], record[16:])]

    def close(self):
        self.sock.close()
        for fd in getattr(self, "fds", ()):
            os.close(fd)


def options_of(state, ports):
    return ["--state", state, "--resp", f"127.0.0.1:{ports[0]}", "--http",
            f"127.0.0.1:{ports[1]}", "--grpc", "off", "--workers", "2", "--drain-time", "5s"]


def serves(server):
    with server.connect() as client:
        return client.ask("PING") == "PONG"


def has_let_go(server, state):
    """Whether a successor that is dead had said in time that it serves. What comes to the control
    socket is read in its order: who asks later is answered, unless the sockets are gone by then."""
    try:
        asker = Handover(state, b"?" * RECORD)
        answer = asker.answer()
        asker.close()
    except OSError:
        answer = None
    if answer == ["refused", "version"]:
        return False
    server.wait_for("handed_over")
    return True


def refused(*options, user=None):
    """What a successor says that does not serve."""
    done = subprocess.run([STINT, "serve", *map(str, options)], capture_output=True, timeout=60,
                          cwd=SOURCE, user=user)
    assert done.returncode == 1, done.stderr.decode()
    return done.stderr.decode()


# ---- the successor dies -------------------------------------------------------------------------

def test_a_successor_killed_at_any_instant_leaves_a_server(tmp_path):
    """kill -9 of the successor from its first instruction until it serves, while clients ask.

    Before it has taken over, the old process answers every new connection; those that fail are
    connections that the killed process had accepted, or that waited in a queue of its alone: the
    kernel resets them. None is refused. A successor that had taken over when it was killed was the
    server: another begins, and the limits are as they were.
    """
    state, ports = tmp_path / "state", (free_port(), free_port())
    options = options_of(state, ports)
    began = time.monotonic()
    server = Server(*options)
    until_serving = time.monotonic() - began
    allowed = resets = kept = 0
    for step in range(INSTANTS):
        askers = [Asker(ports[0], 3, burst=BURST) for _ in range(3)]
        until(lambda: all(asker.asked > 0 for asker in askers), "all of them ask")
        successor = Server(*options, "--replace", wait=False)
        time.sleep(1.2 * until_serving * step / INSTANTS)
        killed = time.monotonic()
        successor.kill()
        has_taken_over = has_let_go(server, state)
        if not has_taken_over:
            kept += 1
            assert serves(server), f"nothing serves after a kill {killed - began} s into it"
        for asker in askers:
            asker.stop()
            allowed += asker.allowed
            resets += len(asker.failures)
            for at, failure in asker.failures:
                assert at >= killed, failure
                assert has_taken_over or isinstance(failure, ConnectionError), failure
                assert has_taken_over or not isinstance(failure, ConnectionRefusedError), failure
        if has_taken_over:
            with server:
                pass
            server = Server(*options)
    with server, server.connect() as client:
        left = 0
        while client.throttle("shared", BURST, 1, 86400)[0] == 0:
            left += 1
    assert kept > 0
    # A reset may have lost the answer to a unit that was charged.
    assert BURST - resets <= allowed + left <= BURST


def test_a_successor_that_cannot_be_confined_changes_nothing(tmp_path):
    """The sandbox comes after all else was opened, and just before it serves."""
    state = tmp_path / "state"
    with Server("--state", state) as server:
        without = [os.sys.executable, str(SOURCE / "tests/interop/without_seccomp.py"), STINT]
        done = subprocess.run([*without, "serve", "--state", state, "--replace", "--sandbox", "on",
                               "--resp", f"127.0.0.1:{server.resp}", "--http", "off", "--grpc",
                               "off"], capture_output=True, timeout=60)
        assert done.returncode == 1 and b"sandbox" in done.stderr
        server.wait_for("handover_failed")
        assert "handed_over" not in server.log
        assert all(serves(server) for _ in range(20))


def test_sockets_that_were_taken_are_not_given_up(tmp_path):
    """Who has the sockets and ends, or never serves, has changed nothing; who serves takes over."""
    state = tmp_path / "state"
    with Server("--state", state) as server:
        ended = Handover(state)
        assert ended.take()[-2:] == ["control", "all"]
        ended.close()
        server.wait_for("ended before it served")
        early = Handover(state)
        early.tell(b"serving")
        assert early.answer() == ["refused", "version"]
        hung, late = Handover(state), Handover(state)
        assert hung.take()[-1] == late.take()[-1] == "all"
        assert all(serves(server) for _ in range(20))
        with Server("--state", state, "--replace", "--resp", f"127.0.0.1:{server.resp}") as new:
            server.wait_for("handed_over")
            assert late.answer() == ["refused", "taken"]
            assert server.wait() == 0
            for one in (early, hung, late):
                one.close()
            assert all(serves(new) for _ in range(20))


def test_a_server_that_ends_during_a_handover_leaves_its_successor_whole(tmp_path):
    """The control socket and Unix sockets stay where they are: the successor has them."""
    state, path = tmp_path / "state", tmp_path / "resp.sock"
    with Server("--state", state, "--resp", f"unix:{path}", "--http", "off") as server:
        taker = Handover(state)
        assert taker.take()[-1] == "all"
        server.tell(signal.SIGTERM)
        assert server.wait() == 0
        assert path.exists() and Path(f"{state}.control").exists()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
        taker.close()


def drain(server):
    """Begins its end. The client that is returned keeps it from ending until it is closed."""
    client = server.connect()
    assert client.throttle("k", 1, 1, 3600)[0] == 0
    server.tell(signal.SIGTERM)
    server.wait_for("draining")
    return client


def replaced(server, state):
    return Server("--state", state, "--replace", "--resp", f"127.0.0.1:{server.resp}", "--http",
                  f"127.0.0.1:{server.http}")


def test_a_server_that_drains_keeps_its_sockets_for_a_successor(tmp_path):
    """A successor has begun to take them, so the server keeps them open while it drains. A client
    that connects then is answered by the process that serves at last."""
    state = tmp_path / "state"
    with Server("--state", state, "--drain-time", "60s") as server:
        taker = Handover(state)
        assert taker.take()[-1] == "all"
        client = drain(server)
        queued = server.connect()
        queued.send("CL.THROTTLE", "k", 0, 1, 3600)
        with replaced(server, state) as new:
            server.wait_for("handed_over")
            assert taker.answer() == ["refused", "taken"]
            assert queued.read()[0] == 1 and serves(new)
            for one in (taker, queued, client):
                one.close()
            assert server.wait() == 0
            assert all(serves(new) for _ in range(20))


def test_a_server_that_drains_is_replaced_when_its_ports_are_closed(tmp_path):
    """Without a successor it closes its ports while it drains; a later one opens them again."""
    state = tmp_path / "state"
    with Server("--state", state, "--drain-time", "60s") as server:
        client = drain(server)
        until(lambda: not listens(server.resp) and not listens(server.http),
              "its ports are closed")
        with replaced(server, state) as new:
            server.wait_for("handed_over")
            assert listens(server.http)
            with new.connect() as other:
                assert other.throttle("k", 1, 1, 3600)[0] == 1
            client.close()
            assert server.wait() == 0
            assert all(serves(new) for _ in range(20))


# ---- the successor hangs ------------------------------------------------------------------------

@pytest.mark.parametrize("sends", [b"", b"take/2", b"x" * 31])
def test_hung_processes_at_the_control_socket_block_no_handover(tmp_path, sends):
    """More of them than are listened to at once; the loop of the old process waits for none."""
    state = tmp_path / "state"
    with Server("--state", state) as server:
        hung = [Handover(state, sends) for _ in range(30)]
        # One after the other they had 150 s; a start is given 20.
        with Server("--state", state, "--replace", "--resp", f"127.0.0.1:{server.resp}") as new:
            server.wait_for("handed_over")
            assert server.wait() == 0 and serves(new)
        for one in hung:
            one.close()


def test_a_hung_process_has_a_time_limit(tmp_path):
    state = tmp_path / "state"
    with Server("--state", state) as server:
        hung = Handover(state, b"take")
        assert hung.answer() == ["refused", "late"]  # after five seconds
        hung.close()
        assert serves(server)


# ---- other files --------------------------------------------------------------------------------

@pytest.mark.parametrize("change", ["deleted", "copied", "in memory"])
def test_a_server_with_another_state_file_is_not_replaced(tmp_path, change):
    """Each would grant N of a limit by a file of its own."""
    state = tmp_path / "state"
    with Server("--state", state) as server:
        with server.connect() as client:
            while client.throttle("key", 5, 1, 86400)[0] == 0:
                pass
        options = ["--state", state, "--control", f"{state}.control"]
        if change == "copied":
            shutil.copy(state, tmp_path / "copy")
            os.rename(tmp_path / "copy", state)
        elif change == "deleted":
            state.unlink()
        else:
            options = options[2:]
        said = refused(*options, "--replace", "--resp", f"127.0.0.1:{server.resp}", "--http", "off",
                       "--grpc", "off")
        assert "another file" in said and "stop it first" in said
        server.wait_for("keeps its limits in another file")
        with server.connect() as client:
            assert client.throttle("key", 5, 1, 86400)[0] == 1


# ---- other users --------------------------------------------------------------------------------

IMPOSTOR = """
import array, os, socket, sys
control, port = sys.argv[1], int(sys.argv[2])
os.umask(0)
bait = socket.create_server(("127.0.0.1", port))
frontend = socket.socket(socket.AF_UNIX)
frontend.bind(control)
frontend.listen()
print("ready", flush=True)
while True:
    asker, _ = frontend.accept()
    if not asker.recv(32):
        continue
    print("asked", flush=True)
    def tell(verb, rest=b"", fds=()):
        socket.send_fds(asker, [verb.ljust(16, b"\\0") + rest.ljust(16, b"\\0")], fds)
    tell(b"socket", b"resp", [bait.fileno()])
    tell(b"control", b"", [frontend.fileno()])
    tell(b"all")
    asker.recv(32)
    tell(b"leaves")
"""


@needs_root
@pytest.mark.parametrize("mode, owner, said", [
    (0o777, NOBODY, "other users can write to the folder"),
    (0o770, NOBODY, "other users can write to the folder"),
    (0o1777, NOBODY, "belongs to user 65534"),
    (0o1777, 0, "runs as user 65534"),
    (0o755, NOBODY, "the folder"),
])
def test_sockets_of_another_user_are_not_taken(folder, mode, owner, said):
    """Clients' secrets would go to that user, through the socket that was handed over."""
    control, port = folder / "control", free_port()
    os.chmod(folder, 0o777)
    code = ["/usr/bin/python3", "-c", IMPOSTOR, control, str(port)]
    impostor = subprocess.Popen(code, user=NOBODY, group=NOBODY, stdout=subprocess.PIPE, text=True)
    try:
        assert impostor.stdout.readline() == "ready\n"
        os.chown(control, owner, owner)
        if mode == 0o755:
            os.chown(folder, NOBODY, NOBODY)
        os.chmod(folder, mode)
        text = refused("--control", control, "--replace", "--resp", f"127.0.0.1:{port}", "--http",
                       "off", "--grpc", "off")
        assert said in text and "--" in text, text
    finally:
        impostor.kill()
        assert impostor.communicate()[0] == ""  # it was asked for nothing


@needs_root
def test_a_link_to_a_control_socket_is_not_followed(folder):
    os.chmod(folder, 0o1777)
    with Server("--control", folder / "real") as server:
        os.symlink("real", folder / "link")
        text = refused("--control", folder / "link", "--replace", "--resp",
                       f"127.0.0.1:{server.resp}", "--http", "off", "--grpc", "off")
        assert "is no socket" in text
        assert serves(server)


@needs_root
def test_another_user_gets_no_socket(folder):
    """Also where the path would let it: a socket that listens gets all who come."""
    state = folder / "state"
    with Server("--state", state) as server:
        os.chmod(f"{state}.control", 0o777)
        os.chmod(state, 0o666)
        code = ("import socket, sys\n"
                "asker = socket.socket(socket.AF_UNIX)\n"
                "asker.settimeout(20)\n"
                "asker.connect(sys.argv[1])\n"
                "try:\n"
                "  asker.send(b'take/2'.ljust(32, b'\\0'))\n"
                "  got, fds, _, _ = socket.recv_fds(asker, 32, 1)\n"
                "except ConnectionError: got, fds = b'', []\n"
                "sys.exit(3 if fds or got[:7] not in (b'', b'refused') else 0)")
        done = subprocess.run(["/usr/bin/python3", "-c", code, f"{state}.control"], user=NOBODY,
                              timeout=60)
        assert done.returncode == 0
        server.wait_for('another user requested the sockets" user=65534')
        assert serves(server)


def test_a_folder_that_others_can_write_to_is_warned_of(folder):
    os.chmod(folder, 0o777)
    with Server("--control", folder / "control") as server:
        assert "warn control_exposed" in server.log and "chmod go-w" in server.log
    os.chmod(folder, 0o1777)
    with Server("--control", folder / "control") as server:
        assert "control_exposed" not in server.log
