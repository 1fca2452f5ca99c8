# SPDX-License-Identifier: MIT
"""The clients of a soak: some ask as they should and check what they get, some do what is wrong.

Each is a thread that goes on until the soak ends. What a client should have got and did not is a
fault; what happens to those who misbehave is their own affair, as long as the server lives.
"""
import contextlib
import http.client
import json
import random
import socket
import struct
import subprocess
import threading
import time

from server import Resp

RESET = struct.pack("ii", 1, 0)  # SO_LINGER: the socket is not closed but reset
CONNECTION_S = 3  # well-behaved clients connect anew, so that a draining server is left in time

# name: (spec of the rule, units that any window of a second may hold, share of it to be reached)
HOT = {
    "window": ("algorithm: window", 40, 0.7),
    "log": ("algorithm: log", 40, 0.9),
    "buckets": ("algorithm: buckets, time_slack: 100ms, count_slack: 4", 40, 0.7),
    "gcra": ("algorithm: gcra, burst: 20", 59, 0.6),
}
HOT_LIMIT = 40
WINDOW_NS = 1_000_000_000

RULES = """
domain: soak
descriptors:
  - key: frontend
    rate_limit: {unit: second, requests_per_unit: 1000000, algorithm: gcra}
""" + "".join(f"""
  - key: hot
    value: {name}
    rate_limit: {{period: 1s, requests_per_unit: {HOT_LIMIT}, {spec}}}
""" for name, (spec, _, _) in HOT.items())


class Client(threading.Thread):
    """One of the soak's clients; `turn` is what it does over and over."""

    pause_s = 0.0

    def __init__(self, soak, number=0):
        super().__init__(daemon=True, name=f"{type(self).__name__} {number}")
        self.soak, self.turns = soak, 0
        self.chance = random.Random(f"{type(self).__name__} {number}")

    def run(self):
        try:
            while not self.soak.is_over.wait(self.pause_s):
                self.turn()
                self.turns += 1
        except Exception as error:  # whatever it is, the soak has found it
            self.soak.fault(f"{self.name}: {type(error).__name__}: {error}")

    def turn(self):
        raise NotImplementedError

    def leave(self):
        """After the last turn: closes what is still open."""

    def connect(self, frontend="resp", timeout=15):
        return socket.create_connection(("127.0.0.1", self.soak.ports[frontend]), timeout=timeout)


# ---- who asks as he should ----


class Ledger:
    """What the hot keys were granted, each unit between two instants of this machine's clock."""

    def __init__(self):
        self.lock = threading.Lock()
        self.grants = {name: [] for name in HOT}
        self.asked = dict.fromkeys(HOT, 0)
        self.granted = dict.fromkeys(HOT, 0)
        self.longest_ns = 0

    def add(self, name, sent_ns, got_ns, is_granted):
        with self.lock:
            self.asked[name] += 1
            self.longest_ns = max(self.longest_ns, got_ns - sent_ns)
            if is_granted:
                self.granted[name] += 1
                self.grants[name].append((got_ns, sent_ns))

    def check(self):
        """Sentences about keys that surely got more than their limit; forgets what is long past."""
        faults = []
        with self.lock:
            for name, (_, most, _) in HOT.items():
                grants = sorted(self.grants[name])
                for last in range(most, len(grants)):
                    first_ns = min(sent_ns for _, sent_ns in grants[last - most:last + 1])
                    if grants[last][0] - first_ns < WINDOW_NS:
                        faults.append(f"{name}: {most + 1} units asked for and granted within "
                                      f"{(grants[last][0] - first_ns) / 1e6:.3f} ms")
                        break
                self.grants[name] = grants[-5 * most:]
        return faults

    def check_use(self, seconds):
        """Sentences about keys that were denied what they should have got."""
        faults = []
        for name, (_, _, share) in HOT.items():
            wanted = share * HOT_LIMIT * seconds
            if self.asked[name] > 3 * HOT_LIMIT * seconds and self.granted[name] < wanted:
                faults.append(f"{name}: {self.granted[name]} units of {self.asked[name]} asked "
                              f"for in {seconds:.0f} s: at least {wanted:.0f} were due")
        return faults


class RespChecker(Client):
    pause_s = 0.001

    def turn(self):
        with Resp(self.connect()) as client:
            ends = time.monotonic() + CONNECTION_S
            while time.monotonic() < ends and not self.soak.is_over.wait(self.pause_s):
                for name in HOT:
                    self.take(client, name)

    def take(self, client, name):
        sent_ns = time.monotonic_ns()
        reply = client.ask("STINT.TAKE", "DOMAIN", "soak", "DESCRIPTOR", 1, "hot", name)
        got_ns = time.monotonic_ns()
        if isinstance(reply, RuntimeError):
            raise reply
        fields = dict(zip(reply[::2], reply[1::2]))
        self.soak.ledger.add(name, sent_ns, got_ns, fields["outcome"] == "allow")


class HttpChecker(Client):
    pause_s = 0.001

    def turn(self):
        frontend = http.client.HTTPConnection("127.0.0.1", self.soak.ports["http"], timeout=15)
        with contextlib.closing(frontend):
            ends = time.monotonic() + CONNECTION_S
            while time.monotonic() < ends and not self.soak.is_over.wait(self.pause_s):
                for name in HOT:
                    self.take(frontend, name)

    def take(self, frontend, name):
        entry = {"key": "hot", "value": name}
        sent_ns = time.monotonic_ns()
        frontend.request("POST", "/v1/take", headers={"Content-Type": "application/json"},
                     body=json.dumps({"domain": "soak", "descriptors": [{"entries": [entry]}]}))
        answer = frontend.getresponse()
        fields = json.loads(answer.read())
        got_ns = time.monotonic_ns()
        if answer.status not in (200, 429):
            raise RuntimeError(f"{answer.status} {fields}")
        self.soak.ledger.add(name, sent_ns, got_ns, answer.status == 200)


class Verbs(Client):
    """Everything else that can be asked, in no order; none of it is an error."""

    pause_s = 0.01

    def turn(self):
        with Resp(self.connect()) as client:
            ends = time.monotonic() + CONNECTION_S
            while time.monotonic() < ends and not self.soak.is_over.wait(self.pause_s):
                self.ask(client)

    def ask(self, client):
        key = f"verb:{self.chance.randrange(1000)}"
        quota = ("QUOTA", self.chance.choice(["100/1s", "log 10/1s", "gcra 5/1s"]), key)
        commands = [
            ("STINT.TAKE", *quota, "ID", f"id{self.chance.randrange(10**9)}"),
            ("STINT.TAKE", "QUOTA", "3/100ms", "waited for", "WAIT", 200),
            ("STINT.TAKEUPTO", *quota, "COST", 3), ("STINT.PEEK", *quota),
            ("STINT.EXPLAIN", "DOMAIN", "soak", "DESCRIPTOR", 1, "hot", "log"),
            ("STINT.BLOCK", *quota, "FOR", 1), ("STINT.RESET", *quota),
            ("STINT.TOP", 20), ("INFO",), ("COMMAND", "DOCS"), ("CLIENT", "SETNAME", key),
        ]
        self.expect(client.ask(*self.chance.choice(commands)))
        reserved = client.ask("STINT.RESERVE", *quota, "LIFETIME", 1000)
        self.expect(reserved)
        if "ticket" in reserved:
            ticket = reserved[reserved.index("ticket") + 1]
            self.expect(client.ask("STINT.SETTLE", ticket, 0), "GONE")

    def expect(self, reply, *allowed):
        if isinstance(reply, RuntimeError) and str(reply).split()[0] not in allowed:
            raise reply


class Benchmark(Client):
    """redis-benchmark, a few seconds at a time."""

    pause_s = 1.0

    def turn(self):
        done = subprocess.run(
            ["redis-benchmark", "-p", str(self.soak.ports["resp"]), "-n", "60000", "-c", "20",
             "-P", "16", "-r", "50000", "-q", "CL.THROTTLE", "bench:__rand_int__", "15",
             "30", "60"], capture_output=True, text=True, timeout=120)
        said = done.stdout + done.stderr
        if done.returncode != 0 or "rror" in said or "WARN" in said:
            raise RuntimeError(f"redis-benchmark: {done.returncode}: {said[-300:]}")


class Wrk(Client):
    """wrk at what proxies ask."""

    pause_s = 1.0

    def turn(self):
        url = f"http://127.0.0.1:{self.soak.ports['http']}/auth"
        done = subprocess.run(["wrk", "-t1", "-c10", "-d2s", "--timeout", "15s", url],
                              capture_output=True, text=True, timeout=120)
        said = done.stdout + done.stderr
        if done.returncode != 0 or "Socket errors" in said or "Non-2xx" in said:
            raise RuntimeError(f"wrk: {done.returncode}: {said[-300:]}")


class Idlers(Client):
    """A thousand who say nothing for long; only a server that has handed over may end them."""

    pause_s = 0.5
    number = 1000

    def __init__(self, soak, number=0):
        super().__init__(soak, number)
        self.idle = []

    def turn(self):
        while len(self.idle) < self.number:
            self.idle.append((Resp(self.connect()), time.monotonic()))
        for idle in self.chance.sample(self.idle, 100):
            client, since = idle
            try:
                if client.ask("PING") != "PONG":
                    raise RuntimeError("no PONG")
            except ConnectionError:
                if since > self.soak.handed_over_at + 1:
                    raise
                client.close()
                self.idle.remove(idle)

    def leave(self):
        for client, _ in self.idle:
            client.close()


# ---- who does not ----


class SlowReader(Client):
    """Asks for much and reads little of it."""

    pause_s = 0.2

    def turn(self):
        frontend, question = self.chance.choice([
            ("resp", Resp.encode("ECHO", "x" * 10000) * 300),
            ("resp", Resp.encode("COMMAND", "DOCS") * 200),
            ("http", b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 200)])
        with self.connect(frontend, 0.2) as slow, contextlib.suppress(OSError):
            with contextlib.suppress(socket.timeout):
                slow.sendall(question)
            for _ in range(self.chance.randrange(20)):
                slow.recv(1000)
                time.sleep(0.05)


class HalfOpen(Client):
    """Begins requests and leaves them there; goes in silence, with an end or with a reset."""

    pause_s = 0.1
    halves = [("resp", Resp.encode("ECHO", "x" * 5000)[:-2500]),
              ("resp", Resp.encode("STINT.TAKE", "QUOTA", "1/1h", "half", "WAIT", 60000)),
              ("resp", b"PI"), ("http", b"GET /au"), ("http", b"GET /auth HTTP/1.1\r\nHost: a\r\n"),
              ("http", b"POST /v1/take HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
                       b"Content-Length: 100\r\n\r\n{")]

    def __init__(self, soak, number=0):
        super().__init__(soak, number)
        self.held = []

    def turn(self):
        frontend, half = self.chance.choice(self.halves)
        client = self.connect(frontend)
        with contextlib.suppress(OSError):
            client.sendall(half)
        self.held.append(client)
        if len(self.held) > 50:
            leaving = self.held.pop(self.chance.randrange(50))
            if self.chance.random() < 0.5:
                leaving.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            leaving.close()

    def leave(self):
        for client in self.held:
            client.close()


class Garbage(Client):
    pause_s = 0.05

    def turn(self):
        chance = self.chance
        begins = chance.choice([b"", b"*3\r\n$", b"*-5\r\n", b"GET ", b"POST /v1/take HTTP/1.1\r\n",
                                b"\x16\x03\x01", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"])
        with self.connect(chance.choice(["resp", "http"]), 0.2) as client:
            with contextlib.suppress(OSError):
                client.sendall(begins + chance.randbytes(chance.randrange(3000)))
                client.recv(100)


ALL = [(RespChecker, 3), (HttpChecker, 1), (Verbs, 1), (Benchmark, 1), (Wrk, 1), (Idlers, 1),
       (SlowReader, 2), (HalfOpen, 1), (Garbage, 1)]
