# SPDX-License-Identifier: MIT
"""A server with all that the dashboard shows, under load: rules, reservations, pools, a full table,
two stores, reloads, refused connections and wrong secrets; and a Prometheus that scrapes it.
"""
import contextlib
import hashlib
import http.client
import json
import random
import threading
import time

from control_plane import ControlPlane, config, descriptor as rule, policy
from prometheus import Prometheus
from redis_server import Redis, until
from server import Resp, Server
from store_servers import Memcached

SECRET = "monitored"
TOKENS = f"load ask,administer,metrics sha256:{hashlib.sha256(SECRET.encode()).hexdigest()}\n"
CONNECTIONS_MAX = 32

RULES = """
domain: edge
descriptors:
  - key: user
    rate_limit: {name: per_user, unit: minute, requests_per_unit: 30, store: none}
    shadow: {algorithm: gcra, unit: minute, requests_per_unit: 20, burst: 5}
  - key: account
    rate_limit: {name: per_account, unit: minute, requests_per_unit: 60}
  - key: tenant
    rate_limit: {name: leased, unit: minute, requests_per_unit: 100000, lease: strict}
  - key: partner
    rate_limit: {name: in_memcached, unit: minute, requests_per_unit: 600, store: second}
  - key: model
    shadow_mode: true
    rate_limit: {name: per_model, unit: minute, requests_per_unit: 60, store: none}
  - key: login
    rate_limit: {name: login, unit: minute, requests_per_unit: 3, store: none}
    ban: {after: 3, within: 1m, for: 1m}
  - key: tokens
    rate_limit: {name: tokens, unit: hour, requests_per_unit: 4000000, on_expiry: release,
                 store: none, when_full: inherit}
"""
CONFIG = """
pools:
  - {name: search, quota: 40/10s, keys: [alpha, beta, gamma]}
"""


def descriptor(key, value, *cost):
    return ("DOMAIN", "edge", "DESCRIPTOR", 1, key, value, *(("COST", *cost) if cost else ()))


class Load(threading.Thread):
    """Commands by one connection, a turn of them after the other, until it is stopped."""

    TURN_S = 0.05

    def __init__(self, server, seed=1):
        super().__init__(daemon=True)
        self.server, self.dice = server, random.Random(seed)
        self.turns, self.failure, self.is_over = 0, None, threading.Event()
        self.tickets = []
        self.client = server.connect()
        assert self.client.ask("AUTH", SECRET) == "OK"
        self.start()

    def run(self):
        try:
            while not self.is_over.wait(self.TURN_S):
                self.turn()
                self.turns += 1
        except Exception as failure:  # shown by stop(), in the thread of the test
            self.failure = failure

    def commands(self):
        """As many again when the load is at its height, every 40 s."""
        dice, busy = self.dice, 1 + (time.monotonic() % 40 > 20)
        for _ in range(12 * busy):
            yield ("STINT.TAKE", *descriptor("user", f"u{int(dice.paretovariate(0.6)) % 400}"))
        for key, n in (("account", 3), ("partner", 2), ("model", 2), ("tenant", 20)):
            for _ in range(n * busy):
                yield ("STINT.TAKE", *descriptor(key, f"k{dice.randrange(2)}"))
        yield ("STINT.TAKE", *descriptor("login", f"l{dice.randrange(20)}"))
        yield ("STINT.TAKE", "QUOTA", "100/1m", f"own{dice.randrange(50)}")
        yield ("STINT.TAKE", *descriptor("usr", "mistyped"))
        yield ("STINT.TAKE", "DOMAIN", "egde", *descriptor("user", "u1")[2:])
        yield ("STINT.TAKE", "QUOTA", "no quota", "x")
        yield ("STINT.TAKE", *descriptor("model", "m"), "ID", f"turn-{self.turns}")
        yield ("STINT.POOL", "NEXT", "search")

    def turn(self):
        commands = list(self.commands())
        self.client.sock.sendall(b"".join(Resp.encode(*words) for words in commands))
        for _ in commands:
            self.client.read()
        self.reserve()

    def reserve(self):
        """One of four is never settled."""
        reply = self.client.ask("STINT.RESERVE", *descriptor("tokens", "t", 50), "LIFETIME", 2000)
        if isinstance(reply, list) and "ticket" in reply:
            self.tickets.append(reply[reply.index("ticket") + 1])
        if len(self.tickets) >= 4:
            verbs = ("STINT.SETTLE", self.tickets[0], 20), ("STINT.SETTLE", self.tickets[1], 70), \
                ("STINT.CANCEL", self.tickets[2])
            for words in verbs:
                self.client.ask(*words)
            self.tickets.clear()

    def stop(self):
        self.is_over.set()
        self.join(30)
        self.client.close()
        if self.failure:
            raise self.failure


def reload(server, rules):
    """Its status: 200 if the rules are in force."""
    server.write_rules(rules)
    connection = http.client.HTTPConnection("127.0.0.1", server.http, timeout=20)
    with contextlib.closing(connection):
        connection.request("POST", "/v1/reload", "{}", {
            "Content-Type": "application/json", "Authorization": f"Bearer {SECRET}"})
        return connection.getresponse().status


def is_served(server):
    try:
        with server.connect() as client:
            return "NOAUTH" in str(client.ask("PING"))
    except ConnectionError:
        return False


def misbehave(server):
    """Bytes that are no request, a wrong secret, more connections than one address may have."""
    with server.connect() as client:
        client.sock.sendall(b"*1\r\n$x\r\n")
        client.read()
    with server.connect() as client:
        client.ask("AUTH", "guessed")
    held = [server.connect() for _ in range(CONNECTIONS_MAX)]
    assert not is_served(server)
    for client in held:
        client.close()
    until(lambda: is_served(server), "the server has seen that they are closed")


def flood(server, n=2000):
    """Keys that are made up, more than the table holds. Others are blocked, or get a quota."""
    commands = [("STINT.TAKE", *descriptor("user", f"made-up-{i}")) for i in range(n)]
    commands += [("STINT.BLOCK", "QUOTA", "100/1m", f"blocked-{i}", "FOR", 60_000)
                 for i in range(20)]
    commands.append(("STINT.SETQUOTA", *descriptor("user", "u1"), "TO", "100/1m"))
    with server.connect() as client:
        client.ask("AUTH", SECRET)
        client.sock.sendall(b"".join(Resp.encode(*words) for words in commands))
        for words in commands:
            assert not isinstance(reply := client.read(), RuntimeError), (words, reply)


def send_rules(plane):
    """Some that can be used, and some that cannot."""
    plane.send("v2", config("plane", rule("user", limit=policy("MINUTE", 6))))
    plane.accepted("v2")
    plane.send("v3", config("plane", rule("user", limit=policy("UNKNOWN", 5))))
    plane.wait(lambda request: request.error is not None)


def lose(store, seconds):
    """A store that forgets, and is away for that time."""
    store.kill()
    time.sleep(seconds)
    store.start()
    store.wait()


@contextlib.contextmanager
def monitored(folder, rules=()):
    """(server, Redis, control plane, Prometheus): under load inside of the `with`."""
    settings, tokens = folder / "stint.yaml", folder / "tokens"
    settings.write_text(CONFIG)
    tokens.write_text(TOKENS)
    with Redis() as redis, Memcached() as memcached, ControlPlane() as plane, \
            Server("--config", settings, "--tokens", tokens, "--rules", plane.url,
                   "--workers", 1, "--watch", 0,
                   "--keys", 256, "--keys16", 512, "--keys-wide", 64, "--quotas", 1024,
                   "--auth-guesses", 0, "--connections-per-address", CONNECTIONS_MAX,
                   "--store", redis.url, "--store", f"second={memcached.url}",
                   rules=RULES) as server, \
            Prometheus({"stint": [server.http]}, rules, SECRET) as prometheus:
        load = Load(server)
        plane.send("v1", config("plane", rule("user", limit=policy("MINUTE", 5))))
        try:
            yield server, redis, plane, prometheus
        finally:
            load.stop()
