# SPDX-License-Identifier: MIT
"""Many clients of several servers at once, in one thread: what each asked, and was told, and when.

Every connection asks, waits for the answer and asks again, so what a caller waits is what is seen
here. One that is lost is made anew; what it had asked is recorded as lost.
"""
import errno
import random
import selectors
import socket
import threading
import time
from collections import Counter, namedtuple

from admissions import Admission, percentile
from server import Resp

# outcome: allow, deny, never; "error": `text` is the sentence; "lost": the connection ended.
Seen = namedtuple("Seen", "frontend key units sent_ns answered_ns outcome granted at_ns text")

REDIAL_S = 0.05


def parse(data, at):
    """(value, where it ends) of the reply that begins there, or None: not all of it is there."""
    end = data.find(b"\r\n", at)
    if end < 0:
        return None
    kind, head, at = data[at], data[at + 1:end], end + 2
    if kind == 0x24:  # $
        length = int(head)
        if length < 0:
            return None, at
        return (data[at:at + length].decode(), at + length + 2) \
            if len(data) >= at + length + 2 else None
    if kind == 0x3a:  # :
        return int(head), at
    if kind == 0x2b:  # +
        return head.decode(), at
    if kind == 0x2d:  # -
        return RuntimeError(head.decode()), at
    assert kind == 0x2a, data[:80]
    values = []
    for _ in range(int(head)):
        found = parse(data, at)
        if found is None:
            return None
        values.append(found[0])
        at = found[1]
    return values, at


class Request:
    """A take of so many units from one of the keys of a rule, or of a quota of its own."""

    def __init__(self, key, *words, units=1):
        self.key, self.units = key, units
        self.bytes = Resp.encode("STINT.TAKE", *words, *(["COST", units] if units != 1 else []))


def by_rule(domain, entry, keys, units=1):
    return [Request(key, "DOMAIN", domain, "DESCRIPTOR", 1, entry, key, units=units)
            for key in keys]


class Client:
    def __init__(self, frontend, address):
        self.frontend, self.address = frontend, address
        self.link, self.rest, self.asked = None, b"", []
        self.sent_ns = self.ready_at = 0


class Crowd:
    """Asks within its `with`. `frontends` are (host, port); `rate` is of all together, per second;
    `depth` requests go out at once on each connection."""

    def __init__(self, frontends, requests, connections=4, rate=1000, depth=1, seed=1):
        self.requests, self.depth = list(requests), depth
        self.rng = random.Random(seed)
        self.clients = [Client(place, tuple(frontend)) for place, frontend in enumerate(frontends)
                        for _ in range(connections)]
        self.pause_s = len(self.clients) * depth / rate if rate else 0
        self.seen, self.fault = [], None
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    # ---- one connection ----

    def _dial(self, client):
        client.link = socket.socket()
        client.link.setblocking(False)
        client.link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if client.link.connect_ex(client.address) not in (0, errno.EINPROGRESS):
            self._lose(client, time.monotonic())
        else:
            self.selector.register(client.link, selectors.EVENT_WRITE, client)

    def _lose(self, client, now):
        answered_ns = time.time_ns()
        for one in client.asked:
            self.seen.append(Seen(client.frontend, one.key, one.units, client.sent_ns, answered_ns,
                                  "lost", 0, None, ""))
        try:
            self.selector.unregister(client.link)
        except KeyError:
            pass
        client.link.close()
        client.link, client.rest, client.asked = None, b"", []
        client.ready_at = now + REDIAL_S

    def _ask(self, client, now):
        client.asked = [self.rng.choice(self.requests) for _ in range(self.depth)]
        # It keeps to its pace, but makes up for nothing.
        client.ready_at = max(client.ready_at + self.pause_s, now)
        client.sent_ns = time.time_ns()
        try:
            client.link.sendall(b"".join(one.bytes for one in client.asked))
        except OSError:
            self._lose(client, now)

    def _read(self, client, now):
        try:
            data = client.link.recv(1 << 16)
        except OSError:
            data = b""
        answered_ns = time.time_ns()
        if not data:
            self._lose(client, now)
            return
        client.rest += data
        at = 0
        while client.asked and (found := parse(client.rest, at)):
            value, at = found
            self._record(client, client.asked.pop(0), value, answered_ns)
        client.rest = client.rest[at:]

    def _record(self, client, asked, value, answered_ns):
        outcome, granted, at_ns, text = "error", 0, None, str(value)
        if isinstance(value, list):
            fields = dict(zip(value[::2], value[1::2]))
            outcome, granted, text = fields["outcome"], fields["granted"], ""
            at_ns = int(fields["at"]) if "at" in fields and outcome == "allow" else None
        self.seen.append(Seen(client.frontend, asked.key, asked.units, client.sent_ns, answered_ns,
                              outcome, granted, at_ns, text))

    # ---- all of them ----

    def _run(self):
        try:
            with selectors.DefaultSelector() as self.selector:
                began = time.monotonic()
                for client in self.clients:
                    client.ready_at = began + self.rng.random() * self.pause_s
                while not self.is_over.is_set():
                    self._turn()
                for client in self.clients:
                    if client.link is not None:
                        client.link.close()
        except Exception as fault:  # told to whoever leaves the `with`
            self.fault = fault

    def _turn(self):
        now, waits = time.monotonic(), 0.05
        for client in self.clients:
            if client.asked or (client.link is not None and not self._is_open(client)):
                continue
            if client.ready_at > now:
                waits = min(waits, client.ready_at - now)
            elif client.link is None:
                self._dial(client)
            else:
                self._ask(client, now)
        for key, _ in self.selector.select(waits):
            now, client = time.monotonic(), key.data
            if self._is_open(client):
                self._read(client, now)
            elif client.link.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                self._lose(client, now)
            else:
                self.selector.modify(client.link, selectors.EVENT_READ, client)

    def _is_open(self, client):
        """Whether it is connected: then answers are waited for."""
        key = self.selector.get_map().get(client.link)
        return key is not None and key.events == selectors.EVENT_READ

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, kind, *_):
        self.is_over.set()
        self.thread.join(10)
        if self.fault is not None and kind is None:
            raise self.fault

    # ---- what came of it ----

    def snapshot(self):
        return list(self.seen)


def admissions(seen):
    return [Admission(one.key, one.granted, one.sent_ns, one.answered_ns, one.at_ns)
            for one in seen if one.outcome == "allow" and one.granted]


def between(seen, from_ns, to_ns=None):
    """Those that were sent in that time."""
    return [one for one in seen if one.sent_ns >= from_ns and (to_ns is None or
                                                                one.sent_ns < to_ns)]


def within(seen, from_ns, to_ns=None):
    """Those that were sent and answered in that time. Unlike between(), what happens at its end is
    sure to be later than the answers, however long the machine stands still."""
    return [one for one in between(seen, from_ns) if to_ns is None or one.answered_ns < to_ns]


def outcomes(seen):
    return Counter(one.outcome for one in seen)


def errors(seen):
    return Counter(one.text for one in seen if one.outcome == "error")


def waits_ms(seen, share):
    return percentile([(one.answered_ns - one.sent_ns) / 1e6 for one in seen], share)
