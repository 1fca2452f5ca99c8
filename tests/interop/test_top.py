# SPDX-License-Identifier: MIT
"""`stint top` over several servers, of the file of a table, in narrow terminals, and the half-life
of what it shows."""
import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import termios
import time
import urllib.request

import pytest

from program import STINT, signals_waiting
from redis_server import until
from server import Server, free_port

RULES = """\
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 5}
  - key: path
    rate_limit: {unit: hour, requests_per_unit: 100}
"""


def take(server, name, value, times=1):
    with server.connect() as client:
        for _ in range(times):
            client.ask("STINT.TAKE", "DOMAIN", "shop", "DESCRIPTOR", 1, name, value)


def top(*words, code=0, env=None):
    done = subprocess.run([STINT, "top", "--once", "--interval", "50ms", *words], timeout=60,
                          capture_output=True, text=True, env={**os.environ, **(env or {})},
                          check=False)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def page(server):
    with urllib.request.urlopen(server.url("/v1/top"), timeout=20) as answer:
        return json.load(answer)


def test_servers_are_added_up_by_key_and_rule():
    with Server(rules=RULES) as one, Server(rules=RULES) as two:
        take(one, "user", "ann", 7)
        take(two, "user", "ann", 4)
        take(two, "user", "bob", 9)
        take(one, "path", "ann", 3)
        urls = [one.url(""), two.url("")]
        look = json.loads(top("--json", "--order", "asked", *urls))
        denied = json.loads(top("--json", "--keys", "1", *urls))
        text = top(*urls)
    assert look["servers"] == [{"url": url, "error": None} for url in urls]
    keys = {(key["rule"], key["key"]): key for key in look["keys"]}
    assert [(key["rule"], key["key"]) for key in look["keys"]] == \
        [("user", "ann"), ("user", "bob"), ("path", "ann")]
    assert 10.5 < keys["user", "ann"]["asked"] <= 11
    assert 1.9 < keys["user", "ann"]["denied"] <= 2
    rules = {rule["rule"]: rule for rule in look["stats"]["rules"]}
    assert (rules["user"]["allow"], rules["user"]["deny"]) == (5 + 4 + 5, 2 + 4)
    assert rules["path"]["allow"] == 3
    assert look["stats"]["totals"]["allow"] == 17
    assert [key["key"] for key in denied["keys"]] == ["bob"]
    lines = text.splitlines()
    assert lines[0] == "sums of 2 of 2 servers; durations are those of the slowest"
    assert lines[1].startswith("stint ") and "ann" in text


def test_a_server_that_does_not_answer_is_named():
    port = free_port()
    gone = f"http://127.0.0.1:{port}"
    with Server(rules=RULES) as server:
        take(server, "user", "ann", 2)
        text = top(gone, server.url(""))
        look = json.loads(top("--json", "--order", "asked", gone, server.url("")))
    assert text.splitlines()[0].startswith("sums of 1 of 2 servers")
    assert text.splitlines()[1].startswith(f"no answer of {gone}: ")
    assert look["servers"][0]["url"] == gone and str(port) in look["servers"][0]["error"]
    assert look["servers"][1]["error"] is None
    assert [key["key"] for key in look["keys"]] == ["ann"]
    said = top(gone, f"http://127.0.0.1:{free_port()}", code=1)
    assert "none of 2 servers answers" in said and len(said.splitlines()) == 1


def test_servers_that_hang_cost_one_timeout_together():
    with Server(rules=RULES) as server, contextlib.ExitStack() as stack:
        take(server, "user", "ann", 2)
        hanging = []
        for _ in range(8):  # connections are accepted by the kernel, and never answered
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            hanging.append(f"http://127.0.0.1:{listener.getsockname()[1]}")
        begun = time.monotonic()
        look = json.loads(top("--json", "--timeout", "1s", "--order", "asked", *hanging[:4],
                              server.url(""), *hanging[4:]))
        took_s = time.monotonic() - begun
    assert [one["url"] for one in look["servers"] if one["error"] is None] == [server.url("")]
    assert all("timed out" in one["error"].lower() for one in look["servers"]
               if one["url"] in hanging)
    assert [key["key"] for key in look["keys"]] == ["ann"]
    assert 1 <= took_s < 8, "8 timeouts of 1 s, one after the other, take 8 s"


def test_one_url_is_that_server_alone():
    with Server(rules=RULES) as server:
        take(server, "user", "ann", 7)
        look = json.loads(top("--json", server.url("")))
        by_option = json.loads(top("--json", "--server", server.url("")))
    assert "servers" not in look and [key["key"] for key in look["keys"]] == ["ann"]
    assert look["stats"]["rules"] == by_option["stats"]["rules"]
    assert "at most 64 servers" in top(*["http://127.0.0.1:1"] * 65, code=2)
    assert "--interval must be longer than 0s" in top("--interval", "0s", code=2)


def test_the_half_life_is_a_setting():
    with Server("--popular-half-life", "1s", rules=RULES) as fast, Server(rules=RULES) as slow:
        begun = time.monotonic()
        for server in (fast, slow):
            take(server, "user", "ann", 64)
        assert page(slow)["half_life_ns"] == 60 * 10**9
        assert page(fast)["half_life_ns"] == 10**9
        until(lambda: page(fast)["keys"][0]["asked"] < 16, "two half-lives")
        assert time.monotonic() - begun > 1.8, "64 units are 16 after 2 s"
        assert page(slow)["keys"][0]["asked"] > 64 * 0.5 ** ((time.monotonic() - begun + 2) / 60)
    for wrong in ("500ms", "366d"):
        done = subprocess.run([STINT, "serve", "--popular-half-life", wrong], capture_output=True,
                              text=True, timeout=20, check=False)
        assert done.returncode != 0 and "popular-half-life" in done.stderr.replace("_", "-")


# ---- In a terminal ------------------------------------------------------------------------------

# Two names that differ at their ends only.
LONG = "remote_address_of_a_client_of_the_login_page"
LONG_RULES = f"""\
domain: shop
descriptors:
  - key: {LONG}_each_minute
    rate_limit: {{unit: minute, requests_per_unit: 5}}
  - key: {LONG}_each_hour
    rate_limit: {{unit: hour, requests_per_unit: 100}}
"""


class Terminal:
    """`stint top` in a terminal of some size, and the screens that it drew there."""

    def __init__(self, source, rows, columns, *words):
        """source: a Server, or the file of a table."""
        of = ["--server", source.url("")] if isinstance(source, Server) else ["--state", source]
        self.said = b""
        begin, go = os.pipe()
        self.child, self.fd = pty.fork()
        if self.child == 0:
            os.read(begin, 1)  # until the terminal has its size
            os.execve(STINT, [STINT, "top", *of, "--interval", "100ms", *words],
                      {**os.environ, "TERM": "xterm"})
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        os.write(go, b"x")
        os.close(begin)
        os.close(go)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.child:
            os.kill(self.child, signal.SIGKILL)
            os.waitpid(self.child, 0)
        os.close(self.fd)

    def read(self, timeout_s):
        assert select.select([self.fd], [], [], timeout_s)[0], f"silent after {self.said!r}"
        try:
            part = os.read(self.fd, 65536)
        except OSError:  # the terminal is gone with its program
            part = b""
        self.said += part
        return part

    def screen(self, wanted):
        """The lines of the next whole screen that has a text."""
        begin, ends = len(self.said), time.monotonic() + 60
        while time.monotonic() < ends:
            self.read(60)
            for drawn in self.said[begin:].decode(errors="ignore").split("\x1b[H")[1:]:
                lines, end, _ = drawn.partition("\x1b[J")
                if end and wanted in lines:
                    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", lines).splitlines()
        raise AssertionError(f"{wanted} is not in {self.said!r}")

    def press(self, key):
        os.write(self.fd, key.encode())

    def end(self):
        while self.read(60):
            pass
        code = os.waitstatus_to_exitcode(os.waitpid(self.child, 0)[1])
        self.child = 0
        return code


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_a_narrow_terminal_has_the_numbers_that_matter(columns):
    with Server(rules=LONG_RULES) as server:
        take(server, f"{LONG}_each_minute", "ann", 7)
        take(server, f"{LONG}_each_hour", "an address that is longer than the terminal is wide", 3)
        with Terminal(server, 24, columns, "--order", "asked") as terminal:
            lines = terminal.screen("p50")
            terminal.press("q")
            assert terminal.end() == 0
    assert max(map(len, lines)) <= columns and len(lines) <= 23
    text = "\n".join(lines)
    for shown in ("stint ", "2 rules", "allowed ", "denied ", "p99 ", "places", "open", "refused"):
        assert shown in text, shown
    headings = next(line for line in lines if line.endswith("  rule")).split()
    assert headings == ["allowed/s", "denied/s", *["allowed", "denied"][:columns // 40 * 2 - 2],
                        "rule"]
    at = lines.index(next(line for line in lines if line.endswith("  rule")))
    rows = {line.split("_")[-1]: line.split() for line in lines[at + 1:at + 3]}
    assert set(rows) == {"minute", "hour"}, "the ends of names, which differ"
    if columns == 80:
        assert rows["minute"][2:4] == ["5", "2"] and rows["hour"][2:4] == ["3", "0"]
    assert re.search(r"(?m)^ +[\d.]+ +[\d.]+  ann\b", text)
    assert re.search(r"(?m)^ +[\d.]+ +[\d.]+  an.*…", text), "a long key has its row, cut"


def test_counts_are_whole_and_durations_in_microseconds():
    with Server(rules=RULES) as server:
        take(server, "user", "ann", 300)  # one batch in 64 is timed
        with Terminal(server, 24, 100) as terminal:
            lines = terminal.screen("p50 ")
            text = "\n".join(lines)
            while "p50 -" in text:  # until the server has two samples of itself
                text = "\n".join(terminal.screen("p50 "))
            os.kill(terminal.child, signal.SIGINT)
            assert terminal.end() == 0
    assert re.search(r"(?m)^ +[\d.]+ +[\d.]+ +5 +295  shop: user$", text)
    p50, p99 = map(float, re.search(r"p50 ([\d.]+) µs   p99 ([\d.]+) µs", text).groups())
    assert 0.128 <= p50 <= p99


def test_a_question_mark_shows_the_keys_and_what_is_measured():
    with Server(rules=RULES) as server:
        take(server, "user", "ann", 7)
        with Terminal(server, 24, 40) as terminal:
            assert not any("asked most" in line for line in terminal.screen("denied most"))
            terminal.press("o")
            terminal.screen("keys asked most")
            terminal.press("?")
            lines = terminal.screen("q  quit")
            assert max(map(len, lines)) <= 40 and "timed" in "\n".join(lines)
            assert not any("ann" in line for line in lines)
            terminal.press("?")
            terminal.screen("keys asked most")
            assert not termios.tcgetattr(terminal.fd)[3] & termios.ECHO
            terminal.press("q")
            assert terminal.end() == 0
    assert b"\x1b[?7l" in terminal.said, "no line takes the row of the next"
    assert terminal.said.rstrip().endswith(b"\x1b[?1049l")


def is_restored(terminal):
    """Its own screen, and keys are shown again."""
    return terminal.said.rstrip().endswith(b"\x1b[?1049l") and \
        termios.tcgetattr(terminal.fd)[3] & termios.ECHO != 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_the_terminal_as_it_was(number):
    with Server(rules=RULES) as server, Terminal(server, 24, 80) as terminal:
        terminal.screen("p50")
        os.kill(terminal.child, number)
        assert terminal.end() == 0 and is_restored(terminal)


def test_so_does_the_second_while_a_server_hangs():
    with Server(rules=RULES) as server, Terminal(server, 24, 80, "--timeout", "10m") as terminal:
        terminal.screen("p50")
        server.process.send_signal(signal.SIGSTOP)
        while select.select([terminal.fd], [], [], 1)[0]:  # until no sample comes any more
            terminal.read(1)
        os.kill(terminal.child, signal.SIGINT)
        until(lambda: signals_waiting(terminal.child) == 0, "both are not one")
        os.kill(terminal.child, signal.SIGINT)
        assert terminal.end() == -signal.SIGINT and is_restored(terminal)
        server.process.send_signal(signal.SIGCONT)


# ---- The file of a table ------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "table.stint")


def stateful(path):
    return Server("--state", path, "--keys", 1000, "--keys16", 1000, "--keys-wide", 16, rules=RULES)


@pytest.mark.parametrize("columns", [40, 60, 100])
def test_a_table_in_a_terminal(path, columns):
    with stateful(path) as server:
        take(server, "user", "ann", 7)
        take(server, "path", "login", 60)
        with Terminal(path, 24, columns) as terminal:
            lines = terminal.screen("least left")
            take(server, "user", "bob", 7)
            while not any(re.match(r" +2 +2 ", line) for line in lines):
                lines = terminal.screen("least left")  # until it shows that bob is denied, too
            terminal.press("?")
            wide = "\n".join(terminal.screen("only hashes"))
            terminal.press("?")
            terminal.press("o")
            most = terminal.screen("most used")
            terminal.press("q")
            assert terminal.end() == 0
    assert max(map(len, lines)) <= columns and len(lines) <= 23
    text = "\n".join(lines)
    for shown in ("less than 1 s", "states", "tickets open 0 of", "pools", "blocked keys 0"):
        assert shown in text, shown
    headings = next(line for line in lines if line.endswith("  quota")).split()
    assert headings[:2] == ["live", "denying"] and ("change/s" in headings) == (columns > 60)
    assert "change/s" in wide and "ann" not in text, "no table has the names of its keys"
    at = next(n for n, line in enumerate(most) if "most used" in line)
    assert most[at + 1].split()[:2] == ["40", "100"], "60 of 100"


def test_a_file_that_takes_the_place_of_another_is_read(path):
    """An operator deletes the file, and starts the application with a larger one."""
    other = path + ".other"
    for file, name in ((path, "user"), (other, "path")):
        with stateful(file) as server:
            take(server, name, "ann")
    with Terminal(path, 24, 100) as terminal:
        terminal.screen("window 5/1h")
        os.rename(other, path)
        terminal.screen("window 100/1h")
        os.unlink(path)
        assert terminal.end() == 1
    assert "No such file" in terminal.said.decode()


def test_files_that_are_no_tables(path):
    said = top("--state", path, code=1)
    assert path in said and "No such file" in said and len(said.splitlines()) == 1
    env = {"STINT_URL": "http://127.0.0.1:1"}
    assert "No such file" in top("--state", path, code=1, env=env), "a default gives way"
    with open(path, "wb") as file:
        file.write(os.urandom(65536))
    assert "is not a stint table" in top("--state", path, code=1)
    os.unlink(path)
    os.mkfifo(path)
    assert "is not a regular file" in top("--state", path, code=1), "a pipe is not waited for"
    for server in (["http://127.0.0.1:1"], ["--server", "http://127.0.0.1:1"]):
        assert "give one of them" in top("--state", path, *server, code=2)


def test_a_damaged_head_is_named_and_a_damaged_rest_is_shown(path):
    with stateful(path) as server:
        take(server, "user", "ann", 7)
    with open(path, "rb") as file:
        whole = bytearray(file.read())
    for at, value, wanted in ((8, 4, "version"), (200, 0xa5, "damaged"), (None, None, "cut")):
        broken = whole[:len(whole) // 2] if at is None else whole[:]
        if at is not None:
            broken[at] ^= value
        with open(path, "wb") as file:
            file.write(broken)
        assert wanted in top("--state", path, code=1)
    for at in range(4096, len(whole), 64):  # every line after the head
        if any(whole[at:at + 64]):
            whole[at:at + 64] = b"\xa5" * 64
    with open(path, "wb") as file:
        file.write(whole)
    assert json.loads(top("--state", path, "--json"))["bytes"] == len(whole)
