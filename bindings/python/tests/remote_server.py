# SPDX-License-Identifier: MIT
"""`stint serve` as a process of a test, and limiters of it that threads and tasks use alike."""
from __future__ import annotations

import asyncio
import contextlib
import hashlib
import inspect
import itertools
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from stint.remote import AsyncTable, RemoteTable

CHECKOUT = Path(__file__).resolve().parents[3]
LISTENS = re.compile(r"listens: listening frontend=(\S+) address=(\S+)")
STARTS_S = 30
PATIENCE_S = 20  # a timeout that no question of a test comes near


def program() -> str:
    """The program stint; a test without it is skipped."""
    for path in (os.environ.get("STINT_BIN"), CHECKOUT / "build/src/cmd/stint",
                 CHECKOUT / "build-release/src/cmd/stint"):
        if path and os.access(path, os.X_OK):
            return str(path)
    pytest.skip("needs the program stint: ninja -C build src/cmd/stint, or set STINT_BIN")


def until(condition: Any, what: str, seconds: float = STARTS_S) -> None:
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, f"not within {seconds} s: {what}"
        time.sleep(0.005)


class Server:
    """A server on free ports and a socket; it stops at the end of the with-statement."""

    def __init__(self, *options: str, clock: str = "virtual", resp: str = "127.0.0.1:0",
                 http: str = "127.0.0.1:0") -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="stint-")
        self.socket = f"{self.folder.name}/resp"
        self.options = ["--clock", clock, "--resp", resp, "--resp", f"unix:{self.socket}",
                        "--http", http, "--grpc", "off", *options]
        self.start()

    def start(self) -> None:
        self.log: list[str] = []
        self.process = subprocess.Popen([program(), "serve", *self.options],
                                        stderr=subprocess.PIPE, text=True)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        until(lambda: "started: serving" in self.text or self.process.poll() is not None, self.text)
        assert self.process.poll() is None, self.text
        self.ports: dict[str, list[str]] = {}
        for frontend, address in LISTENS.findall(self.text):
            self.ports.setdefault(frontend, []).append(address)

    def _read(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            self.log.append(line)

    @property
    def text(self) -> str:
        return "".join(self.log)

    def address(self, frontend: str) -> str:
        return next(a for a in self.ports[frontend] if not a.startswith("unix"))

    def url(self, scheme: str, secret: str = "") -> str:
        if scheme == "unix":
            return f"unix:{self.socket}"
        at = f":{secret}@" if secret else ""
        frontend = {"stint": "resp", "stints": "resp-tls", "http": "http", "https": "http-tls"}
        return f"{scheme}://{at}{self.address(frontend[scheme])}"

    def advance(self, seconds: float) -> None:
        host, _, port = self.address("resp").rpartition(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as sock:
            sock.sendall(f"STINT.CLOCK ADVANCE {round(seconds * 1e9)}ns\r\n".encode())
            assert sock.recv(4096).startswith(b"*")

    def kill(self) -> None:
        self.process.kill()
        self._wait()

    def restart(self) -> None:
        """With the addresses that it had."""
        self.options[self.options.index("--resp") + 1] = self.address("resp")
        self.options[self.options.index("--http") + 1] = self.address("http")
        self.start()

    def stopped(self) -> Stopped:
        return Stopped(self.process)

    def _wait(self) -> None:
        self.process.wait(STARTS_S)
        self.reader.join(STARTS_S)
        assert self.process.stderr
        self.process.stderr.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self._wait()
        self.folder.cleanup()


class Stopped:
    """A server that does not run within the with-statement, and has its connections."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def __enter__(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGCONT)


class Listener:
    """A server that a test writes: serve() has a thread for each connection. When the
    with-statement ends, all connections are shut down, and the threads have ended."""

    def __init__(self) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.connections: list[tuple[socket.socket, threading.Thread]] = []
        self.accepting = threading.Thread(target=self._accept, daemon=True)
        self.accepting.start()

    def serve(self, sock: socket.socket, number: int) -> None:
        raise NotImplementedError

    @property
    def accepted(self) -> int:
        return len(self.connections)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.listening.getsockname()[1]}"

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self.listening.accept()
                thread = threading.Thread(target=self.serve, args=(sock, self.accepted + 1),
                                          daemon=True)
                self.connections.append((sock, thread))
                thread.start()

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        # Closing alone wakes no thread that waits in accept() or recv().
        self.listening.shutdown(socket.SHUT_RDWR)
        self.accepting.join(STARTS_S)
        self.listening.close()
        for sock, thread in self.connections:
            with contextlib.suppress(OSError):  # closed already, or by the client
                sock.shutdown(socket.SHUT_RDWR)
            thread.join(STARTS_S)
            sock.close()
        threads = [self.accepting, *(thread for _, thread in self.connections)]
        assert not any(thread.is_alive() for thread in threads), "a thread outlives its server"


class Relay(Listener):
    """Before a server: the second reply on its first connection is lost, as is the connection."""

    def __init__(self, to: str) -> None:
        host, _, port = to.rpartition(":")
        self.to = host, int(port)
        super().__init__()

    def serve(self, sock: socket.socket, number: int) -> None:
        with sock, socket.create_connection(self.to, timeout=PATIENCE_S) as server:
            for reply in itertools.count(1):
                question = sock.recv(65536)
                if not question:
                    return
                server.sendall(question)
                answer = server.recv(65536)
                if (number, reply) == (1, 2):
                    return
                sock.sendall(answer)


def tokens(folder: Path, **roles: str) -> str:
    """A file of tokens whose secret is "secret-of-NAME"."""
    path = folder / "tokens"
    path.write_text("".join(
        f"{name} {role} sha256:{hashlib.sha256(f'secret-of-{name}'.encode()).hexdigest()}\n"
        for name, role in roles.items()))
    path.chmod(0o600)
    return str(path)


# ---- Threads and tasks ----

class Blocking:
    """An object of stint.remote for tasks whose methods block: they run in a loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, wrapped: Any) -> None:
        self._loop, self._wrapped = loop, wrapped

    def __bool__(self) -> bool:
        return bool(self._wrapped)

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._wrapped, name)
        if not callable(member):
            return member

        def call(*args: Any, **options: Any) -> Any:
            async def ask() -> Any:
                result = member(*args, **options)
                return await result if inspect.isawaitable(result) else result

            result = asyncio.run_coroutine_threadsafe(ask(), self._loop).result()
            awaited = getattr(type(result), "__module__", "") == "stint.remote.tasks"
            return Blocking(self._loop, result) if awaited else result

        return call


class Tables:
    """Tables of one kind, "threads" or "tasks", closed at the end."""

    def __init__(self, kind: str) -> None:
        self.kind, self.tables = kind, []
        if kind == "tasks":
            self.loop = asyncio.new_event_loop()
            self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
            self.thread.start()

    def open(self, url: str, *, timeout: float = PATIENCE_S, **options: Any) -> Any:
        kind = RemoteTable if self.kind == "threads" else AsyncTable
        table: Any = kind(url, timeout=timeout, **options)
        if self.kind == "tasks":
            table = Blocking(self.loop, table)
        self.tables.append(table)
        return table

    def close(self) -> None:
        for table in self.tables:
            table.close()
        if self.kind == "tasks":
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join(STARTS_S)
            self.loop.close()


@pytest.fixture(scope="module")
def server():
    with Server() as running:
        yield running


@pytest.fixture(params=["threads", "tasks"])
def tables(request):
    opened = Tables(request.param)
    yield opened
    opened.close()
