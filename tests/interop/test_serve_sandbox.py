# SPDX-License-Identifier: MIT
"""The whole life of a server that has given up files, system calls and the rights of root.

Real time: it is the kernel that is asked. What only a part of the kernels has, a test that needs it
says so where it is skipped; tests/unit/net/test_sandbox.c tries what is forbidden, call by call.
"""
import os
import pwd
import re
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import urllib.request
from pathlib import Path

import pytest

from program import STINT
from server import Server, free_port

RULES = """
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: %d}
"""
NOBODY = pwd.getpwnam("nobody")

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture(scope="module", autouse=True)
def built():
    """A build with sanitizers says that it has no sandbox: there is nothing to try."""
    with Server() as server:
        if "a build with sanitizers cannot run in a sandbox" in server.log:
            pytest.skip("a build with sanitizers cannot run in a sandbox")


@pytest.fixture
def folder():
    """Nobody's, and reachable: pytest makes its own root's alone, whenever one begins."""
    with tempfile.TemporaryDirectory() as path:
        if os.geteuid() == 0:
            os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid)
        yield Path(path)


def status_of(pid, thread=None):
    path = f"/proc/{pid}/task/{thread}/status" if thread else f"/proc/{pid}/status"
    return dict(line.split(":\t", 1) for line in Path(path).read_text().splitlines()
                if ":\t" in line)


def threads(pid):
    return [int(name) for name in os.listdir(f"/proc/{pid}/task")]


def takes(server, user, times):
    """How many of so many are allowed."""
    with server.connect() as client:
        replies = [client.ask("STINT.TAKE", "DOMAIN", "edge", "DESCRIPTOR", 1, "user", user)
                   for _ in range(times)]
    return sum(dict(zip(reply[::2], reply[1::2]))["outcome"] == "allow" for reply in replies)


def test_every_thread_is_in_it():
    with Server("--workers", 3, "--sandbox", "auto") as server:
        assert server.connect().ask("PING") == "PONG"
        server.tell(signal.SIGHUP)  # read by a thread that begins and ends with it
        server.wait_for("reloaded")
        assert len(threads(server.pid)) >= 4
        for thread in threads(server.pid):
            status = status_of(server.pid, thread)
            assert (status["Seccomp"], status["NoNewPrivs"]) == ("2", "1"), thread
        assert 'privileges that serving does not need part="system calls"' in server.log


def test_off_is_off():
    with Server("--sandbox", "off") as server:
        assert status_of(server.pid)["Seccomp"] == status_of("self")["Seccomp"]
        assert "sandbox" not in server.log


def has_landlock():
    with Server() as server:
        return "part=files" in server.log and "sandbox_lacks" not in server.log


def test_on_demands_all_of_it():
    """Where the kernel has both, they are entered; where it has not, there is no server."""
    if has_landlock():
        with Server("--sandbox", "on") as server:
            assert server.log.count("sandboxed") == 2
        return
    done = subprocess.run([STINT, "serve", "--sandbox", "on", "--resp", "127.0.0.1:0", "--http",
                           "off"], capture_output=True, timeout=30)
    assert done.returncode == 1 and b"sandbox: " in done.stderr
    assert b"auto would serve without" in done.stderr


def test_on_refuses_where_seccomp_cannot_be_had():
    """An outer filter, as in some containers, that answers ENOSYS to seccomp()."""
    script = Path(__file__).parent / "without_seccomp.py"
    command = ["/usr/bin/python3", script, STINT, "serve", "--resp", "127.0.0.1:0", "--http", "off"]
    done = subprocess.run([*command, "--sandbox", "on"], capture_output=True, timeout=30)
    assert done.returncode == 1 and b"auto would serve without" in done.stderr, done.stderr
    with Server(command=command[:4]) as server:
        server.wait_for("sandbox_lacks")
        assert server.connect().ask("PING") == "PONG"


def test_rules_are_read_anew_in_every_way(tmp_path):
    """By SIGHUP, by POST, by a renamed file, and by a link that is swapped to another folder."""
    for version, limit in (("v1", 1), ("v2", 5)):
        (tmp_path / version).mkdir()
        (tmp_path / version / "edge.yaml").write_text(RULES % limit)
    current = tmp_path / "current"
    current.symlink_to("v1")
    with Server("--rules", current / "edge.yaml", "--watch", "200ms") as server:
        assert takes(server, "ann", 9) == 1
        (tmp_path / "next").symlink_to("v2")
        os.rename(tmp_path / "next", current)
        server.wait_for("reloaded")
        assert takes(server, "bob", 9) == 5
        renamed = tmp_path / "v2" / "edge.yaml.new"
        renamed.write_text(RULES % 1)
        os.rename(renamed, tmp_path / "v2" / "edge.yaml")
        server.wait_for("reloaded", times=2)
        assert takes(server, "eve", 9) == 1
        server.tell(signal.SIGHUP)
        server.wait_for("reloaded", times=3)
        reload = urllib.request.Request(server.url("/v1/reload"), method="POST")
        assert urllib.request.urlopen(reload, timeout=10).status == 200
        server.wait_for("reloaded", times=4)
        assert "reload_failed" not in server.log


def test_a_folder_that_took_the_place_of_another_is_told(tmp_path):
    if not has_landlock():
        pytest.skip("the kernel has no Landlock")
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "edge.yaml").write_text(RULES % 1)
    with Server("--rules", rules) as server:
        rules.rename(tmp_path / "old")
        rules.mkdir()
        (rules / "edge.yaml").write_text(RULES % 5)
        server.tell(signal.SIGHUP)
        server.wait_for("reload_failed")
        assert "put the files into the old folder, or restart" in server.log, server.log
        assert takes(server, "ann", 9) == 1


def test_a_folder_of_links_is_read_anew(tmp_path):
    """As sites-enabled has them, with the files elsewhere."""
    (tmp_path / "available").mkdir()
    (tmp_path / "enabled").mkdir()
    (tmp_path / "available" / "edge.yaml").write_text(RULES % 1)
    (tmp_path / "enabled" / "edge.yaml").symlink_to("../available/edge.yaml")
    with Server("--rules", tmp_path / "enabled", "--watch", "0") as server:
        (tmp_path / "available" / "edge.yaml").write_text(RULES % 3)
        server.tell(signal.SIGHUP)
        server.wait_for("reloaded")
        assert takes(server, "ann", 9) == 3


def test_state_is_kept_over_restart_handover_and_successor(tmp_path):
    state = tmp_path / "state"
    options = ["--state", state, "--resp", f"127.0.0.1:{free_port()}", "--http", "off"]
    def left(server):
        with server.connect() as client:
            return client.throttle("key", 5, 1, 86400)[:3]

    with Server(*options) as server:
        assert left(server) == [0, 5, 4]
    old = Server(*options)
    assert left(old) == [0, 5, 3]
    with Server(*options, "--replace") as new:
        with old:
            assert old.process.wait(30) == 0
        assert left(new) == [0, 5, 2]
        starter, = children(new.pid)
        own = os.readlink(f"/proc/{starter}/fd/3")  # the starter's end of its pair
        new.tell(signal.SIGUSR2)
        new.wait_for("handed_over")
        assert new.process.wait(30) == 0
        new.wait_for("started: serving", times=2)
        successor = int(re.findall(r"serving pid=(\d+)", new.log)[1])
        try:
            assert status_of(successor)["Seccomp"] == "2"
            assert left(new) == [0, 5, 1]
            assert own.startswith("socket:") and own not in links(successor)
        finally:
            os.kill(successor, signal.SIGTERM)
        new.wait_for("stopped", times=2)


def children(pid):
    return [int(child) for thread in threads(pid) for child in
            Path(f"/proc/{pid}/task/{thread}/children").read_text().split()]


def links(pid):
    """What its descriptors are."""
    return {os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir()}


def test_the_starter_goes_with_its_server(tmp_path):
    server = Server("--state", tmp_path / "state")
    starter, = children(server.pid)
    assert {os.readlink(f"/proc/{starter}/fd/{fd}").split(":")[0]
            for fd in os.listdir(f"/proc/{starter}/fd") if int(fd) > 2} == {"socket", "anon_inode"}
    os.kill(starter, signal.SIGTERM)  # as systemd tells all of a unit: for the server alone
    server.kill()
    server.reader.join(20)  # until nobody holds its standard error any more
    assert not server.reader.is_alive()


def test_a_starter_that_is_gone_is_told(tmp_path):
    with Server("--state", tmp_path / "state") as server:
        starter, = children(server.pid)
        os.kill(starter, signal.SIGKILL)
        server.tell(signal.SIGUSR2)
        server.wait_for("the process that starts successors has ended")
        assert server.connect().ask("PING") == "PONG"


@needs_root
def test_root_becomes_somebody_else_and_everything_goes_on(folder):
    rules = folder / "edge.yaml"
    rules.write_text(RULES % 1)
    state, local = folder / "state", folder / "resp.sock"
    low = next(port for port in range(1023, 600, -1) if is_free(port))
    options = ["--rules", rules, "--state", state, "--user", "nobody", "--http", "127.0.0.1:0",
               "--resp", f"127.0.0.1:{low}", "--resp", f"unix:{local}"]
    with Server(*options) as server:
        assert "runs_as_root" not in server.log
        for thread in threads(server.pid):
            status = status_of(server.pid, thread)
            assert set(status["Uid"].split()) == {str(NOBODY.pw_uid)}
            assert set(status["Gid"].split()) == {str(NOBODY.pw_gid)}
            assert set(status["Groups"].split()) <= {str(NOBODY.pw_gid)}
            assert {status[name] for name in ("CapPrm", "CapEff", "CapInh", "CapAmb")} == {"0" * 16}
        for path in (state, local, Path(f"{state}.control")):
            assert path.stat().st_uid == NOBODY.pw_uid
        assert stat.S_IMODE(state.stat().st_mode) == 0o600
        assert takes(server, "ann", 9) == 1
        rules.write_text(RULES % 2)
        server.tell(signal.SIGHUP)
        server.wait_for("reloaded")
        # The starter is root's still: what it starts binds the low port, and gives up as much.
        server.tell(signal.SIGUSR2)
        server.wait_for("handed_over")
        assert server.process.wait(30) == 0
        server.wait_for("started: serving", times=2)
        successor = int(re.findall(r"serving pid=(\d+)", server.log)[1])
        try:
            assert status_of(successor)["Uid"].split()[0] == str(NOBODY.pw_uid)
            socket.create_connection(("127.0.0.1", low), timeout=5).close()
        finally:
            os.kill(successor, signal.SIGTERM)
        server.wait_for("stopped", times=2)
    assert not local.exists()


def is_free(port):
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@needs_root
def test_a_file_that_the_user_may_not_read_is_told_at_once(tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text("")
    tokens.chmod(0o600)
    done = subprocess.run([STINT, "serve", "--user", "nobody", "--tokens", tokens, "--resp",
                           "127.0.0.1:0", "--http", "off"], capture_output=True, timeout=30)
    assert done.returncode == 1 and b"Permission denied" in done.stderr


@needs_root
def test_root_is_warned():
    with Server() as server:
        assert "runs_as_root: serving as root: set --user NAME" in server.log


@pytest.mark.parametrize("name, sentence", [
    ("no-such-user", "user: there is no 'no-such-user' here"),
    ("root", "user: expected a user other than root, not 'root'"),
])
def test_users_that_cannot_be_meant(name, sentence):
    done = subprocess.run([STINT, "serve", "--user", name], capture_output=True, timeout=30)
    assert done.returncode == 1 and sentence in done.stderr.decode()


@needs_root
def test_only_root_can_become_somebody_else():
    # Other users may not enter a checkout below /root.
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        program = shutil.copy(STINT, folder)
        done = subprocess.run([program, "serve", "--user", "daemon"], capture_output=True,
                              timeout=30, user=NOBODY.pw_uid)
    assert done.returncode == 1 and b"user: only root can become 'daemon'" in done.stderr
