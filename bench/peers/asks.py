# SPDX-License-Identifier: MIT
"""What asks a server through its own protocol: an object with ask(key, n), as strictness.attack()
wants it. Requests go out at once, on one connection that stays open."""
import re
import socket
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tests/attack"), str(ROOT / "bench/server")]
import frames  # noqa: E402
import grpc_rows  # noqa: E402

STREAMS = 100  # under way on one connection of HTTP/2: what servers allow at least


class Link:
    def __init__(self, port):
        self.link = socket.create_connection(("127.0.0.1", port), 10)
        self.link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.left = b""

    def receive(self):
        data = self.link.recv(1 << 20)
        if not data:
            sys.exit("the server has closed a connection")
        self.left += data

    def close(self):
        self.link.close()


class Resp(Link):
    """Commands whose reply is an array of five integers; the first of them says `granted`."""
    LINES = 6

    def __init__(self, port, words, granted):
        super().__init__(port)
        self.words, self.granted = words, b":%d" % granted

    def ask(self, key, n):
        words = [str(word).replace("KEY", key).encode() for word in self.words]
        self.link.sendall(n * (b"*%d\r\n" % len(words) + b"".join(
            b"$%d\r\n%s\r\n" % (len(word), word) for word in words)))
        self.left = b""
        while self.left.count(b"\r\n") < self.LINES * n:
            self.receive()
            if self.left.startswith(b"-"):
                sys.exit(f"an error: {self.left[:200]}")
        return self.left.split(b"\r\n")[1::self.LINES].count(self.granted)


class Http(Link):
    """GET with the key in X-Key; 2xx is a grant."""

    def ask(self, key, n):
        self.link.sendall(n * f"GET / HTTP/1.1\r\nHost: x\r\nX-Key: {key}\r\n\r\n".encode())
        granted = 0
        for _ in range(n):
            while b"\r\n\r\n" not in self.left:
                self.receive()
            head, _, self.left = self.left.partition(b"\r\n\r\n")
            granted += head.startswith(b"HTTP/1.1 2")
            size = int(re.search(rb"(?i)content-length: (\d+)", head).group(1))
            while len(self.left) < size:
                self.receive()
            self.left = self.left[size:]
        return granted


class Rls(Link):
    """ShouldRateLimit of one descriptor; the overall code OK is a grant."""
    OK = b"\x08\x01"

    def __init__(self, port):
        super().__init__(port)
        self.stream = 1
        self.link.sendall(frames.opening() + frames.frame(
            frames.WINDOW_UPDATE, payload=(1 << 30).to_bytes(4, "big")))

    def ask(self, key, n):
        return sum(self.ask_at_once(key, min(STREAMS, n - first)) for first in range(0, n, STREAMS))

    def ask_at_once(self, key, n):
        message = grpc_rows.question(grpc_rows.descriptor(("user", key)))
        self.link.sendall(b"".join(
            frames.begin(stream, grpc_rows.PATH) +
            frames.frame(frames.DATA, frames.END_STREAM, stream, message)
            for stream in range(self.stream, self.stream + 2 * n, 2)))
        self.stream += 2 * n
        ended = granted = 0
        while ended < n:
            self.receive()
            found, self.left = frames.parse(self.left)
            for kind, flags, _, payload in found:
                if kind == frames.DATA:
                    granted += payload[5:7] == self.OK
                elif kind in (frames.SETTINGS, frames.PING) and not flags & 1:
                    self.link.sendall(frames.frame(kind, 1, payload=payload if
                                                   kind == frames.PING else b""))
                elif kind in (frames.RST_STREAM, frames.GOAWAY):
                    sys.exit(f"the server ends a call: {payload!r}")
                ended += kind == frames.HEADERS and flags & frames.END_STREAM
        return granted
