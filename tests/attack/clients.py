# SPDX-License-Identifier: MIT
"""Hostile clients: what each kind sends, and a swarm of them.

A kind is data; all kinds are driven by the same loop. Every swarm is bounded in connections, bytes
and time, and connects to 127.0.0.1 alone. As a program this file runs one swarm until its input
ends, so that it takes no time from a client that is measured.
"""
import argparse
import contextlib
import selectors
import socket
import ssl
import sys
import threading
import time
from dataclasses import dataclass

import frames

FRONTENDS = ("resp", "http", "grpc")
SENT_MAX = 8 << 20  # bytes by one client
LASTS_MAX_S = 60
TICK_S = 0.01
ALL, SLOWLY, NOTHING = "all", "slowly", "nothing"  # what is read of answers


def client_hello():
    """What a TLS client sends first."""
    context = ssl.create_default_context()
    coming, going = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(coming, going, server_hostname="localhost").do_handshake()
    return going.read()


@dataclass(frozen=True)
class Kind:
    """`first` is sent at once; then `more`, again and again, `piece` bytes (0: all) each `pause_s`.

    `says`: how the answer begins that the server must send before it ends the connection. `ends`:
    whether it has to end it at all. `ports`: the plain port, the port of TLS, or both. `in_tls`:
    whether TLS is spoken at a port of TLS. `is_idle`: it costs the server nothing to speak of.
    """
    name: str
    frontends: tuple
    first: bytes = b""
    more: bytes = b""
    piece: int = 0
    pause_s: float = 0
    reads: str = ALL
    says: bytes = b""
    ends: bool = True
    ports: tuple = ("", "-tls")
    in_tls: bool = True
    is_idle: bool = False


def drips(name, frontend, first, more, says=b"", piece=1):
    return Kind(name, (frontend,), first, more, piece, 0.1, says=says)


def floods(name, frontend, more, first=b"", **others):
    return Kind(name, (frontend,), first, more, reads=NOTHING, **others)


def reads_slowly(name, frontend, request, first=b""):
    return Kind(name, (frontend,), first, request, reads=SLOWLY)


def get(path, *fields):
    lines = [f"GET {path} HTTP/1.1", "Host: localhost", *fields, "", ""]
    return "\r\n".join(lines).encode()


def post(path, *fields):
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", *fields,
             "", ""]
    return "\r\n".join(lines).encode()


def resp(*words):
    words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)


LATE = b"HTTP/1.1 408 "
LATE_RESP = b"-ERR Protocol error: the command did not arrive within request_time\r\n"
BROWSED = get("/healthz") * 200

KINDS = [
    Kind("idle", FRONTENDS, in_tls=False, is_idle=True),
    Kind("half-hello", FRONTENDS, client_hello()[:100], ports=("-tls",), in_tls=False,
         is_idle=True),
    Kind("handshake-then-idle", FRONTENDS, ports=("-tls",), is_idle=True),
    Kind("garbage-for-hello", FRONTENDS, b"\x80garbage" * 500, ports=("-tls",), in_tls=False),
    Kind("handshake-then-garbage", FRONTENDS, b"\x80\xff\0garbage\r\n\r\n" * 1000, ports=("-tls",)),
    # RESP
    drips("slow-bulk", "resp", b"*2\r\n$4\r\nECHO\r\n$9999\r\n", b"x", LATE_RESP),
    drips("slow-inline", "resp", b"", b"PING ", LATE_RESP),
    # An empty line asks for nothing and is a whole command all the same: it is no idle client.
    Kind("empty-commands", ("resp",), b"", b"\r\n", 1, 0.1, ends=False),
    Kind("half-command", ("resp",), b"*3\r\n$4\r\nECHO\r\n", says=LATE_RESP, is_idle=True),
    floods("pings-unread", "resp", resp("PING") * 1000),
    floods("takes-unread", "resp", resp("STINT.TAKE", "QUOTA", "10/1h", "hostile") * 500),
    floods("docs-unread", "resp", resp("COMMAND", "DOCS") * 100),
    reads_slowly("docs-read-slowly", "resp", resp("COMMAND", "DOCS") * 100),
    # HTTP
    drips("slow-line", "http", b"GET /", b"x", LATE),
    drips("slow-head", "http", b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ", b"x", LATE),
    drips("slow-fields", "http", b"GET / HTTP/1.1\r\nHost: localhost\r\n", b"X: x\r\n", LATE),
    drips("slow-body", "http", post("/v1/take", "Content-Length: 9999"), b" ", LATE),
    drips("slow-chunks", "http", post("/v1/take", "Transfer-Encoding: chunked"), b"1\r\n \r\n",
          LATE),
    drips("slow-chunk-line", "http", post("/v1/take", "Transfer-Encoding: chunked") + b"1;x=", b"x",
          LATE),
    drips("empty-lines", "http", b"", b"\r\n"),
    Kind("half-head", ("http",), b"GET / HTTP/1.1\r\nHost: loc", says=LATE, is_idle=True),
    Kind("half-body", ("http",), post("/v1/take", "Content-Length: 9") + b"{", says=LATE,
         is_idle=True),
    floods("healthz-unread", "http", BROWSED),
    floods("metrics-unread", "http", get("/metrics") * 200),
    floods("pages-unread", "http", get("/") * 200),
    reads_slowly("metrics-read-slowly", "http", get("/metrics") * 200),
    # gRPC
    Kind("half-preface", ("grpc",), frames.PREFACE[:10], is_idle=True),
    Kind("preface-then-idle", ("grpc",), frames.opening(), is_idle=True),
    Kind("half-frame", ("grpc",), frames.opening() + frames.begin(1, frames.HEALTH)[:20],
         is_idle=True),
    Kind("half-call", ("grpc",), frames.opening() + frames.begin(1, frames.HEALTH) +
         frames.frame(frames.DATA, 0, 1, b"\0\0\0\0\x09"), is_idle=True),
    drips("slow-frames", "grpc", frames.opening() + frames.begin(1, frames.HEALTH),
          frames.frame(frames.DATA, 0, 1, b"\0"), piece=10),
    drips("slow-continuation", "grpc", frames.opening() +
          frames.frame(frames.HEADERS, 0, 1, frames.head_of(frames.HEALTH)),
          frames.frame(frames.CONTINUATION, 0, 1, frames.fields(("x", "y"))), piece=14),
    Kind("window-0", ("grpc",), frames.opening(window=0) + b"".join(
        frames.call(stream) for stream in frames.streams(200)), is_idle=True),
    Kind("window-of-1-byte", ("grpc",), frames.opening(window=0) + b"".join(
        frames.call(stream) for stream in frames.streams(50)),
        b"".join(frames.frame(frames.WINDOW_UPDATE, 0, stream, b"\0\0\0\1")
                 for stream in frames.streams(50)), pause_s=0.3),
    Kind("reflection-unread", ("grpc",), frames.opening(window=0) + b"".join(
        frames.call(stream, frames.REFLECTION, frames.FILE_OF_SERVICE, flags=0)
        for stream in frames.streams(1000)), reads=NOTHING),
    Kind("rapid-reset", ("grpc",), frames.opening() + b"".join(
        frames.begin(stream, frames.HEALTH) +
        frames.frame(frames.RST_STREAM, 0, stream, b"\0\0\0\x08")
        for stream in frames.streams(5000))),
    floods("settings", "grpc", frames.settings() * 1000, frames.opening()),
    floods("pings", "grpc", frames.frame(frames.PING, payload=bytes(8)) * 1000, frames.opening()),
    floods("continuations", "grpc",
           frames.frame(frames.CONTINUATION, 0, 1, frames.fields(("x", "y" * 100))) * 100,
           frames.opening() + frames.frame(frames.HEADERS, 0, 1, frames.head_of(frames.HEALTH))),
]
KIND = {kind.name: kind for kind in KINDS}


class Client:
    """One connection of a kind, and where it is in what it sends."""

    def __init__(self, kind, port, context):
        self.kind, self.answer, self.sent, self.next_s = kind, b"", 0, 0
        self.is_ended = False  # as far as it can see: the server sends no more
        self.is_broken = False
        self.waiting = kind.first
        self.at = 0  # in `more`
        self.read_s = 0
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=20)
        if kind.reads != ALL:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        if context is not None:
            self.sock = context.wrap_socket(self.sock, server_hostname="localhost")
        self.sock.setblocking(False)

    def wants_to_send(self, now_s):
        if not self.waiting and self.kind.more and self.sent < SENT_MAX and now_s >= self.next_s:
            piece = self.kind.piece or len(self.kind.more)
            self.waiting = (self.kind.more * 2)[self.at:self.at + piece]
            self.at = (self.at + piece) % len(self.kind.more)
            self.next_s = now_s + self.kind.pause_s
        return bool(self.waiting) and not self.is_broken

    def send(self):
        try:
            n = self.sock.send(self.waiting)
            self.sent += n
            self.waiting = self.waiting[n:]
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError:
            self.is_broken = True

    def wants_to_read(self, now_s):
        return not self.is_ended and (self.kind.reads == ALL or
                                      (self.kind.reads == SLOWLY and now_s >= self.read_s))

    def read(self, now_s):
        slowly = self.kind.reads == SLOWLY
        self.read_s = now_s + 0.05
        try:
            while True:
                got = self.sock.recv(1 if slowly else 65536)
                self.is_ended |= not got
                self.answer = (self.answer + got)[:65536]
                if slowly or not got:
                    break
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError:
            self.is_ended = self.is_broken = True


class Swarm:
    """So many clients of a kind, connected within the `with`; they never close by themselves."""

    def __init__(self, kind, port, n=20, context=None, tick_s=TICK_S):
        self.kind, self.clients, self.tick_s = kind, [], tick_s
        self.is_over = threading.Event()
        self.fault = None
        with contextlib.ExitStack() as opened:
            for _ in range(n):
                self.clients.append(Client(kind, port, context if kind.in_tls else None))
                opened.callback(self.clients[-1].sock.close)
            self.opened = opened.pop_all()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        try:
            ends_s = time.monotonic() + LASTS_MAX_S
            with selectors.DefaultSelector() as selector:
                while not self.is_over.is_set() and time.monotonic() < ends_s:
                    self._turn(selector)
        except Exception as fault:  # raised again where the `with` ends
            self.fault = fault

    def _turn(self, selector):
        now_s = time.monotonic()
        for client in self.clients:
            events = (selectors.EVENT_WRITE if client.wants_to_send(now_s) else 0) | \
                (selectors.EVENT_READ if client.wants_to_read(now_s) else 0)
            known = selector.get_map().get(client.sock)
            if known is not None and known.events != events:
                selector.unregister(client.sock)
                known = None
            if known is None and events:
                selector.register(client.sock, events, client)
        if not selector.get_map():
            time.sleep(self.tick_s)
            return
        for key, events in selector.select(self.tick_s):
            if events & selectors.EVENT_WRITE:
                key.data.send()
            if events & selectors.EVENT_READ:
                key.data.read(now_s)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, kind, *_):
        self.is_over.set()
        self.thread.join(10)
        self.opened.close()
        if self.fault is not None and kind is None:
            raise self.fault


def unverified():
    """TLS to whatever certificate: what is attacked is the server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def context_for(frontend):
    context = unverified()
    context.set_alpn_protocols({"http": ["http/1.1"], "grpc": ["h2"]}.get(frontend, []))
    return context


def main():
    parser = argparse.ArgumentParser(description="Runs hostile clients until the input ends.")
    parser.add_argument("port", type=int)
    parser.add_argument("n", type=int)
    parser.add_argument("kinds", nargs="+", choices=sorted(KIND))
    parser.add_argument("--tls", choices=FRONTENDS, help="speak TLS, as clients of this port do")
    parser.add_argument("--tick", type=float, default=TICK_S, metavar="S",
                        help="look every S seconds at what is due: the fewer, the less of the CPU")
    arguments = parser.parse_args()
    context = context_for(arguments.tls) if arguments.tls else None
    with contextlib.ExitStack() as stack:
        for name in arguments.kinds:
            stack.enter_context(Swarm(KIND[name], arguments.port, arguments.n, context,
                                      arguments.tick))
        print("connected", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
