# SPDX-License-Identifier: MIT
"""The applications of examples/python, examples/node and examples/go, in their frameworks.

They run as they stand. The server's clock is virtual, so that no unit returns during a test. Each
application runs twice: with requests that pass while stint does not answer, and with requests that
are refused.
"""
import contextlib
import json
import signal
import subprocess
import time

import pytest

from builds import INTEROP, go_program, npm_folder, venv
from program import SOURCE
from proxies import Proxy
from server import Server, free_port

EXAMPLES = SOURCE / "examples"


def fastapi(port):
    return [EXAMPLES / "python", venv(INTEROP / "frameworks") / "bin/uvicorn", "fastapi_app:app",
            "--no-proxy-headers", "--port", port]


def flask(port):
    return [EXAMPLES / "python", venv(INTEROP / "frameworks") / "bin/flask", "--app", "flask_app",
            "run", "--port", port]


def express(port):
    return [npm_folder(EXAMPLES / "node"), "env", f"PORT={port}", "node", "app.js"]


def net_http(port):
    return [EXAMPLES / "go", "env", f"PORT={port}", go_program(EXAMPLES / "go", "app")]


class Applications:
    """One that fails open, one that fails closed, and the port of the server that both ask."""

    def __init__(self, command, folder, stack):
        self.stint = free_port()
        self.open, self.closed = (
            stack.enter_context(self.start(command, folder, fails)) for fails in ("open", "closed"))

    def start(self, command, folder, fails):
        port = free_port()
        where, *command = map(str, command(port))
        return Proxy(["env", "-C", where, f"STINT_URL=http://127.0.0.1:{self.stint}",
                      f"STINT_FAIL={fails}", *command], port, folder / f"{fails}.log")

    def server(self, *options):
        return Server("--http", f"127.0.0.1:{self.stint}", *options)

    def wait_for_limits(self):
        """Until both applications have a decision again."""
        ends = time.monotonic() + 20
        for application in (self.open, self.closed):
            while "RateLimit" not in application.ask()[1]:
                assert time.monotonic() < ends, "the application does not find stint again"
                time.sleep(0.05)


@pytest.fixture(scope="module", params=[fastapi, flask, express, net_http],
                ids=lambda command: command.__name__)
def applications(request, tmp_path_factory):
    with contextlib.ExitStack() as stack:
        yield Applications(request.param, tmp_path_factory.mktemp("applications"), stack)


@pytest.fixture
def server(applications):
    with applications.server("--clock", "virtual") as running:
        applications.wait_for_limits()
        running.post("/v1/reset", {"quota": "100/1m", "key": "address:127.0.0.1"})
        yield running


def statuses(application, count, **request):
    return [application.ask(**request)[0] for _ in range(count)]


def by_user(name):
    return {"headers": {"X-User": name}}


def by_address(number):
    return {"path": "/login", "method": "POST", "source": f"127.0.0.{number}"}


def test_100_requests_of_a_user_pass(applications, server):
    for left in range(99, -1, -1):
        status, fields, text = applications.closed.ask(**by_user("ada"))
        assert status == 200 and "hello" in text
        assert fields["RateLimit-Policy"] == '"100/1m";q=100;w=60'
        assert fields["RateLimit"].startswith(f'"100/1m";r={left};t=')
        assert "Retry-After" not in fields
    status, fields, text = applications.closed.ask(**by_user("ada"))
    assert status == 429 and "Too many requests." in text
    assert fields["RateLimit-Policy"] == '"100/1m";q=100;w=60'
    assert fields["RateLimit"] == '"100/1m";r=0;t=63'
    assert fields["Retry-After"] == "63"  # a window returns units up to a 24th of it later
    # Another user, and none: the address counts.
    assert applications.closed.ask(**by_user("bob"))[0] == 200
    assert statuses(applications.closed, 101) == [200] * 100 + [429]


def test_5_logins_of_an_address_pass(applications, server):
    for application in (applications.open, applications.closed):
        number = 2 if application is applications.open else 3
        assert statuses(application, 5, **by_address(number)) == [200] * 5
        status, fields, _ = application.ask(**by_address(number))
        assert (status, fields["Retry-After"]) == (429, "63")
        assert fields["RateLimit-Policy"] == '"5/1m";q=5;w=60, "100/1m";q=100;w=60'
        # All or none: denied logins use nothing of the other limit.
        assert fields["RateLimit"].endswith('"100/1m";r=95;t=63')
        # Another address has logins of its own, also for the same user.
        assert application.ask(**by_address(number + 2))[0] == 200


def test_a_user_without_units_has_no_login(applications, server):
    """The limit of the user denies, and no login is charged."""
    statuses(applications.open, 100, **by_user("eve"))
    login = by_address(6)
    assert applications.open.ask(**login, **by_user("eve"))[0] == 429
    assert statuses(applications.open, 6, **login) == [200] * 5 + [429]


def failed(applications):
    """What both answer, and the shortest time that either took."""
    times = []
    for _ in range(3):
        for application, told in ((applications.open, 200), (applications.closed, 503)):
            started = time.monotonic()
            status, fields, _ = application.ask(**by_user("ada"))
            times.append(time.monotonic() - started)
            assert status == told
            assert "RateLimit" not in fields and "Retry-After" not in fields
    return min(times)


def test_the_server_ends_and_returns(applications):
    with applications.server():
        applications.wait_for_limits()
    failed(applications)
    with applications.server():
        applications.wait_for_limits()


def test_the_server_hangs(applications):
    """Its kernel still accepts connections. Without a limit of time no request would end."""
    with applications.server() as server:
        applications.wait_for_limits()
        server.tell(signal.SIGSTOP)
        try:
            shortest = failed(applications)
        finally:
            server.tell(signal.SIGCONT)
        assert 0.2 < shortest < 3  # 0.25, on a machine that does other work as well
        applications.wait_for_limits()


def test_a_request_that_stint_refuses_never_passes(applications):
    """A client must not be able to cause the failure that opens: here with a key that is too long,
    which stint answers with 413, or the framework itself before that."""
    with applications.server("--http-header-size", 4096, "--http-body-size", 1024) as server:
        applications.wait_for_limits()
        for application in (applications.open, applications.closed):
            assert application.ask(**by_user("u" * 2000))[0] == 503
        assert server.process.poll() is None


NETWORKS = {
    "203.0.113.9": "203.0.113.9", "::ffff:203.0.113.9": "203.0.113.9",
    "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64", "2001:0db8::1": "2001:db8::/64",
    "2001:db8:0:1::": "2001:db8:0:1::/64", "::1": "::/64", "fe80::1%eth0": "fe80::/64",
}


@pytest.mark.parametrize("command", [
    pytest.param(lambda: [
        venv(INTEROP / "frameworks") / "bin/python", "-c",
        "import json, sys, limits; print(json.dumps([limits.network(a) for a in sys.argv[1:]]))"],
        id="python"),
    pytest.param(lambda: [
        "node", "--input-type=module", "-e", "import { network } from './limits.js';"
        "console.log(JSON.stringify(process.argv.slice(1).map(network)))", "--"], id="node"),
])
def test_of_ipv6_the_network_is_the_key(command, request):
    folder = EXAMPLES / request.node.callspec.id
    told = subprocess.run([*map(str, command()), *NETWORKS], cwd=folder, capture_output=True,
                          text=True, timeout=60, check=True).stdout
    assert json.loads(told) == list(NETWORKS.values())
