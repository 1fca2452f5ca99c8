# SPDX-License-Identifier: MIT
"""Each framework under a real server with four workers and one table file: exactly LIMIT pass."""

from __future__ import annotations

import concurrent.futures
import contextlib
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import web_served
from support import reserved_port

import stint

LIMIT, REQUESTS, WORKERS = 40, 120, 4
HERE = Path(__file__).parent


def gunicorn(app, bind):
    return ["-m", "gunicorn", "-w", str(WORKERS), "-b", bind, "--no-control-socket",
            f"web_served:{app}()"]


def gunicorn_aiohttp(app, bind):
    *options, _ = gunicorn(app, bind)
    return [*options, "-k", "aiohttp.GunicornWebWorker", f"web_served:{app}"]


def uvicorn(app, bind):
    where = ["--uds", bind[5:]] if bind.startswith("unix:") else ["--port", bind.rpartition(":")[2]]
    return ["-m", "uvicorn", "--factory", f"web_served:{app}", "--workers", str(WORKERS),
            "--no-proxy-headers", *where]


SERVERS = {"flask": (gunicorn, "make_flask"), "django": (gunicorn, "make_django"),
           "aiohttp": (gunicorn_aiohttp, "make_aiohttp"),
           "django-async": (uvicorn, "make_django_async"), "fastapi": (uvicorn, "make_fastapi")}


class Connection(http.client.HTTPConnection):
    """To a port, or to the path of a Unix socket."""

    def __init__(self, bind, source="127.0.0.1"):
        self.path = bind[5:] if bind.startswith("unix:") else None
        port = None if self.path else int(bind.rpartition(":")[2])
        super().__init__("127.0.0.1", port, timeout=20, source_address=(source, 0))

    def connect(self):
        if self.path is None:
            return super().connect()
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(20)
        self.sock.connect(self.path)


def ask(bind, path="/", headers=(), source="127.0.0.1", method="GET"):
    connection = Connection(bind, source)
    with contextlib.closing(connection):
        connection.putrequest(method, path)
        for name, value in headers:
            connection.putheader(name, value)
        connection.endheaders()
        reply = connection.getresponse()
        return reply.status, reply.headers, reply.read()


@contextlib.contextmanager
def running(command, table, log):
    """The server, until all its workers answer. It and its workers end with the process group."""
    environment = {**os.environ, "TABLE": str(table), "PYTHONPATH": str(HERE)}
    with log.open("wb") as output:
        process = subprocess.Popen([sys.executable, *command], env=environment, stdout=output,
                                   stderr=output, start_new_session=True)
    try:
        yield process
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for_workers(process, bind, log):
    seen, ends = set(), time.monotonic() + 60
    while len(seen) < WORKERS:
        assert process.poll() is None and time.monotonic() < ends, log.read_text()
        with contextlib.suppress(OSError, http.client.HTTPException):
            status, _, body = ask(bind, "/pid")
            assert status == 200, body
            seen.add(body)
    return seen


@pytest.fixture(scope="module", params=SERVERS)
def bind(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    server, app = SERVERS[request.param]
    with reserved_port() as port:
        address = f"127.0.0.1:{port}"
        with running(server(app, address), folder / "table", folder / "log") as process:
            wait_for_workers(process, address, folder / "log")
            yield address


def fire(bind, **request):
    """Many requests at once: (status, fields) of each."""
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        return list(pool.map(lambda _: ask(bind, **request)[:2], range(REQUESTS)))


def check(replies):
    statuses = [status for status, _ in replies]
    assert sorted(statuses) == [200] * LIMIT + [429] * (REQUESTS - LIMIT)
    assert all(fields.get_all("RateLimit-Policy") == ['"served";q=40;w=3600']
               for _, fields in replies)
    left = []
    for status, fields in replies:
        match = re.fullmatch(r'"served";r=(\d+);t=(\d+)', fields["RateLimit"])
        assert match, fields["RateLimit"]
        # A window of an hour with 24 slots returns units after at most 62.5 minutes.
        assert 0 < int(match[2]) <= 3750
        if status == 200:
            assert "Retry-After" not in fields
            left.append(int(match[1]))
        else:
            assert match[1] == "0" and 0 < int(fields["Retry-After"]) <= 3750
            assert fields["Content-Type"] == "application/problem+json"
    # Each worker saw the others' units: no number of units left was reported twice.
    assert sorted(left) == list(range(LIMIT))


def test_exactly_the_limit_passes_all_workers(bind):
    check(fire(bind, headers=[("X-User", "ada")]))


def test_exactly_the_limit_passes_of_a_client_behind_the_proxy(bind):
    check(fire(bind, headers=[("X-Forwarded-For", "9.9.9.9, 2001:db8::7")]))
    assert ask(bind, headers=[("X-Forwarded-For", "2001:db8::8")])[0] == 429
    assert ask(bind, headers=[("X-Forwarded-For", "2001:db8:0:1::7")])[0] == 200


def test_a_client_that_is_no_proxy_has_one_address(bind):
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        check(list(pool.map(lambda i: ask(bind, source="127.0.0.2", headers=[
            ("X-Forwarded-For", f"192.0.2.{i}")])[:2], range(REQUESTS))))


@pytest.mark.parametrize(
    "value", ["," * 4000, "10.0.0.1," * 600, "[" * 5000, "a" * 5000, ";" * 5000])
@pytest.mark.parametrize("name", ["X-Forwarded-For", "Forwarded"])
def test_hostile_fields_reach_the_same_key(bind, name, value):
    """What is no address ends the search at the proxy. Two requests beside it see its charge."""
    written = "10.0.0.1" if name == "X-Forwarded-For" and "10.0.0.1" in value else "127.0.0.1"
    before = left_of(bind, written)
    assert ask(bind, headers=[(name, value)])[0] == 200
    assert left_of(bind, written) == before - 2


def test_lines_of_a_field_are_one_list(bind):
    """The proxy added a line of its own, after the client's."""
    lines = [("X-Forwarded-For", "192.0.2.50"), ("x-forwarded-for", "192.0.2.51")]
    before = left_of(bind, "192.0.2.51")
    assert ask(bind, headers=lines)[0] == 200
    assert left_of(bind, "192.0.2.51") == before - 2
    assert left_of(bind, "192.0.2.50") == LIMIT - 1


def left_of(bind, address):
    """Charges one unit of the address, and says how many are left."""
    _, fields, _ = ask(bind, headers=[("X-Forwarded-For", address)])
    return int(re.search(r"r=(\d+)", fields["RateLimit"])[1])


def test_head_and_a_connection_that_stays(bind):
    """A refusal to HEAD has no body that would be read as the next reply."""
    key = {"X-User": "keep"}
    connection = Connection(bind)
    with contextlib.closing(connection):
        for i in range(LIMIT + 20):
            connection.request("HEAD" if i % 2 else "GET", "/", headers=key)
            reply = connection.getresponse()
            body = reply.read()
            assert reply.status == (200 if i < LIMIT else 429), i
            assert bool(body) == (i % 2 == 0)


@pytest.mark.parametrize("name", ["flask", "fastapi"])
def test_behind_a_unix_socket(name, tmp_path):
    """The peer has no address. The proxy's field counts, since "unix" is trusted; else one key."""
    server, app = SERVERS[name]
    bind, log = f"unix:{tmp_path}/socket", tmp_path / "log"
    with running(server(app, bind), tmp_path / "table", log) as process:
        wait_for_workers(process, bind, log)
        check(fire(bind, headers=[("X-Forwarded-For", "192.0.2.1")]))
        check(fire(bind))
        with stint.Table(str(tmp_path / "table")) as table:
            limiter = stint.Limiter(table, web_served.LIMIT, name="served")
            assert not limiter.peek("address:unix") and not limiter.peek("address:192.0.2.1")


def test_a_websocket_is_refused_before_it_opens(tmp_path):
    server, app = SERVERS["fastapi"]
    log = tmp_path / "log"
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
               "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "X-User": "ws"}
    with reserved_port() as port:
        bind = f"127.0.0.1:{port}"
        with running(server(app, bind), tmp_path / "table", log) as process:
            wait_for_workers(process, bind, log)
            replies = [ask_upgrade(bind, upgrade) for _ in range(LIMIT + 2)]
    assert [status for status, _ in replies] == [101] * LIMIT + [429] * 2
    assert replies[0][1]["RateLimit"].startswith('"served";r=39;t=')
    assert int(replies[-1][1]["Retry-After"]) > 0


def ask_upgrade(bind, headers):
    connection = Connection(bind)
    with contextlib.closing(connection):
        connection.request("GET", "/socket", headers=headers)
        reply = connection.getresponse()
        return reply.status, reply.headers
