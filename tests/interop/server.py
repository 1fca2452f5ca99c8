# SPDX-License-Identifier: MIT
"""`stint serve` as a process of a test: on free ports, waited for, and stopped by its own pid.

Real time is what these tests are about: sockets, signals and the kernel's queues know no other.
"""
import contextlib
import http.client
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

from program import SOURCE, STINT

STARTS_S = 20
SANITIZER = re.compile(r"(AddressSanitizer|LeakSanitizer|ThreadSanitizer|runtime error):?")
LISTENS = re.compile(r"listens: listening frontend=(\S+) address=(\S+)")
CLAIMED = []  # a name of the kernel's for each port that this process was given


def claims(port):
    """Whether no other test, of whatever process, has it; it is this one's until that ends."""
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0stint-test-port-{port}")
    except OSError:
        claim.close()
        return False
    CLAIMED.append(claim)
    return True


def free_port():
    """A port for a server that is started later: not one of those that the kernel gives to clients,
    since between now and then many will connect; and each once."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as text:
        first = int(text.read().split()[0])
    while True:
        port = random.randrange(min(10_000, first // 2), first)
        if not claims(port):
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


def listens(port):
    """A connection that waits while the port is closed is reset: then it is not yet seen closed."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=20).close()
    except ConnectionResetError:
        return True
    except ConnectionRefusedError:
        return False
    return True


class Server:
    """A server with the options that are given, beside ports that nobody uses.

    `resp` and `http` are its ports; `log` is all it has said. Leaving the `with` stops it, and
    fails the test if a sanitizer has found something.
    """

    def __init__(self, *options, rules=None, env=None, ports=True, wait=True, limits=None,
                 command=(STINT, "serve"), pass_fds=()):
        self.options = list(map(str, options))
        self.lines, self.frontends = [], {}
        self.folder = tempfile.mkdtemp(prefix="stint-serve-")
        if rules is not None:
            self.rules = os.path.join(self.folder, "rules.yaml")
            self.write_rules(rules)
            self.options += ["--rules", self.rules]
        if ports:
            for port in ("--resp", "--http", "--grpc"):
                if port not in self.options:
                    self.options += [port, "127.0.0.1:0"]
        self.process = subprocess.Popen(
            [*map(str, command), *self.options], stderr=subprocess.PIPE, cwd=SOURCE,
            env={**os.environ, **(env or {})}, preexec_fn=limits, pass_fds=pass_fds)
        self.changed = threading.Condition()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        if wait:
            self.wait_for("started: serving")

    def _read(self):
        for line in self.process.stderr:
            with self.changed:
                self.lines.append(line.decode(errors="replace").rstrip("\n"))
                found = LISTENS.search(self.lines[-1])
                if found:
                    self.frontends.setdefault(found[1], []).append(found[2])
                self.changed.notify_all()
        with self.changed:
            self.changed.notify_all()

    # ---- what it says ----

    @property
    def log(self):
        with self.changed:
            return "\n".join(self.lines)

    def wait_for(self, text, seconds=STARTS_S, times=1):
        """Until a line has the text; fails if the server ends before that."""
        ends = time.monotonic() + seconds
        with self.changed:
            while sum(text in line for line in self.lines) < times:
                left = ends - time.monotonic()
                ended = self.process.poll() is not None and not self.reader.is_alive()
                assert left > 0 and not ended, f"no '{text}' in:\n" + "\n".join(self.lines)
                self.changed.wait(min(left, 0.1))

    # ---- where it is ----

    @property
    def pid(self):
        return self.process.pid

    def port(self, frontend):
        return int(self.frontends[frontend][0].rpartition(":")[2])

    @property
    def resp(self):
        return self.port("resp")

    @property
    def http(self):
        return self.port("http")

    def url(self, path="/"):
        return f"http://127.0.0.1:{self.http}{path}"

    def connect(self, frontend="resp"):
        return Resp(socket.create_connection(("127.0.0.1", self.port(frontend)), timeout=20))

    def post(self, path, body):
        """(status, what the answer says)."""
        conn = http.client.HTTPConnection("127.0.0.1", self.http, timeout=20)
        with contextlib.closing(conn):
            conn.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            answer = conn.getresponse()
            return answer.status, json.load(answer)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write_rules(self, text):
        """As editors do: a new file takes the old one's name."""
        with open(self.rules + ".new", "w", encoding="utf-8") as out:
            out.write(text)
        os.rename(self.rules + ".new", self.rules)

    # ---- its end ----

    def tell(self, number):
        self.process.send_signal(number)
        if number == signal.SIGSTOP:  # until then some thread may still answer
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)

    def wait(self, seconds=STARTS_S):
        code = self.process.wait(seconds)
        self.reader.join(seconds)
        return code

    def stop(self, number=signal.SIGTERM):
        """Its exit code, after what it was told to do."""
        if self.process.poll() is None:
            self.tell(number)
        return self.wait()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        try:
            code = self.stop()
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError("the server did not end:\n" + self.log) from None
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)
        assert not SANITIZER.search(self.log), self.log
        if kind is None:
            assert code in (0, -signal.SIGKILL), f"exit code {code}:\n{self.log}"


class Resp:
    """One connection that speaks RESP2, byte by byte where a test wants that."""

    def __init__(self, sock):
        self.sock, self.rest = sock, b""

    @staticmethod
    def encode(*words):
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)

    def send(self, *words):
        self.sock.sendall(self.encode(*words))

    def ask(self, *words):
        self.send(*words)
        return self.read()

    def throttle(self, key, burst, count, period, quantity=1):
        return self.ask("CL.THROTTLE", key, burst - 1, count, period, quantity)

    def _line(self):
        while b"\r\n" not in self.rest:
            self._more()
        line, _, self.rest = self.rest.partition(b"\r\n")
        return line

    def _more(self):
        got = self.sock.recv(65536)
        if not got:
            raise ConnectionError("the server closed the connection")
        self.rest += got

    def read(self):
        line = self._line()
        kind, text = line[:1], line[1:]
        if kind == b"+":
            return text.decode()
        if kind == b"-":
            return RuntimeError(text.decode())
        if kind == b":":
            return int(text)
        if kind == b"*":
            return [self.read() for _ in range(int(text))]
        assert kind == b"$", line
        length = int(text)
        if length < 0:
            return None
        while len(self.rest) < length + 2:
            self._more()
        value, self.rest = self.rest[:length], self.rest[length + 2:]
        return value.decode(errors="replace")

    def is_closed(self, seconds=5):
        """Whether the server closes within that time, saying nothing more."""
        self.sock.settimeout(seconds)
        try:
            return self.sock.recv(1) == b""
        except ConnectionResetError:
            return True
        except socket.timeout:
            return False

    def close(self):
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Asker(threading.Thread):
    """Takes `n` times from a key, on one new connection after the other, until it is stopped."""

    fault = OSError

    def __init__(self, port, n=1, key="shared", burst=0):
        super().__init__(daemon=True)
        self.port, self.n, self.key, self.burst = port, n, key, burst
        self.asked, self.allowed, self.failures = 0, 0, []
        self.ends = threading.Event()
        self.start()

    def run(self):
        while not self.ends.is_set():
            try:
                self.turn()
            except self.fault as failure:
                self.failures.append((time.monotonic(), failure))

    def turn(self):
        with Resp(socket.create_connection(("127.0.0.1", self.port), timeout=20)) as client:
            for _ in range(self.n):
                self.allowed += client.throttle(self.key, self.burst, 1, 86400)[0] == 0
                self.asked += 1

    def stop(self):
        self.ends.set()
        self.join(30)
        assert not self.is_alive()
