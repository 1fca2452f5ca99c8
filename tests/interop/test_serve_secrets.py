# SPDX-License-Identifier: MIT
"""Secrets of `stint serve`: guesses at them at every port, and what a crash would leave behind."""
import hashlib
import http.client
import os
import re
import resource
import socket
import subprocess
from pathlib import Path

import grpc
import pytest

from rls_messages import descriptor, request
from server import Resp, Server

SECRET = "stint_" + "a" * 43
METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
RULES = "domain: d\ndescriptors:\n  - key: k\n    rate_limit: {unit: hour, requests_per_unit: 99}\n"
KNOWN, WRONG, SLOWED = "known", "wrong", "slowed"


def tokens_file(folder):
    path = folder / "tokens"
    path.write_text(f"shop ask sha256:{hashlib.sha256(SECRET.encode()).hexdigest()}\n")
    path.chmod(0o600)
    return path


def kind_of(text):
    """What an answer says of the secret."""
    if "too many wrong secrets" in text:
        return SLOWED
    return WRONG if "no such token" in text or "no token has" in text else KNOWN


def over_resp(server, source, secret, words=("AUTH",)):
    sock = socket.create_connection(("127.0.0.1", server.resp), 20, (source, 0))
    try:
        return kind_of(str(Resp(sock).ask(*words, secret)))
    except AssertionError as error:
        return kind_of(str(error))
    finally:
        sock.close()


def over_hello(server, source, secret):
    return over_resp(server, source, secret, ("HELLO", 3, "AUTH", "default"))


def over_http(server, source, secret):
    conn = http.client.HTTPConnection("127.0.0.1", server.http, 20, (source, 0))
    conn.request("GET", "/v1/pools", headers={"Authorization": f"Bearer {secret}"})
    answer = conn.getresponse()
    text = answer.read().decode()
    conn.close()
    assert (answer.status == 401) == (kind_of(text) != KNOWN), text
    return kind_of(text)


def over_grpc(server, source, secret):
    # grpcio binds no source address: a connection of our own, for one call.
    with grpc.insecure_channel(f"127.0.0.1:{server.port('grpc')}",
                               [("grpc.use_local_subchannel_pool", 1)]) as channel:
        call = channel.unary_unary(METHOD)
        try:
            call(request("d", descriptor(("k", "v"))), timeout=20,
                 metadata=[("authorization", f"Bearer {secret}")])
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.UNAUTHENTICATED, error
            return kind_of(error.details())
    return KNOWN


@pytest.mark.parametrize("ask", [over_resp, over_hello, over_http, over_grpc])
def test_an_address_that_guesses_is_not_listened_to(tmp_path, ask):
    with Server("--tokens", tokens_file(tmp_path), "--auth-guesses", 6, rules=RULES) as server:
        assert ask(server, "127.0.0.1", SECRET) == KNOWN
        told = [ask(server, "127.0.0.1", f"guess-{i}") for i in range(10)]
        # One comes back every ten seconds: a slow machine may see one or two of them.
        assert told[:6] == [WRONG] * 6 and told.count(SLOWED) >= 2, told
        # At every port, also for the right secret; and for no other address.
        if SLOWED == told[-1]:
            slowed = [over(server, "127.0.0.1", SECRET) for over in (over_resp, over_http)]
            assert SLOWED in slowed, slowed
        for over in (over_resp, over_hello, over_http):
            assert over(server, "127.0.0.2", SECRET) == KNOWN
        server.wait_for("auth_failed", times=10)
        lines = [line for line in server.log.splitlines() if "auth_failed" in line]
        assert all("address=127.0.0.1" in line for line in lines)
        assert "guess-" not in server.log and SECRET not in server.log
        frontend = {over_http: "http", over_grpc: "grpc"}.get(ask, "resp")
        assert f"frontend={frontend}" in lines[0]


def test_guesses_are_a_figure(tmp_path):
    secret = "stint_" + "m" * 43
    tokens = tokens_file(tmp_path)
    tokens.write_text(f"watch metrics sha256:{hashlib.sha256(secret.encode()).hexdigest()}\n")
    with Server("--tokens", tokens) as server:
        assert over_resp(server, "127.0.0.1", "guess") == WRONG
        conn = http.client.HTTPConnection("127.0.0.1", server.http, 20)
        conn.request("GET", "/metrics", headers={"Authorization": f"Bearer {secret}"})
        page = conn.getresponse().read().decode()
        conn.close()
        assert 'stint_wrong_secrets_total{frontend="resp"} 1' in page


# ---- What a crash leaves ----


def core_limits(server):
    limits = Path(f"/proc/{server.pid}/limits").read_text()
    return re.search(r"Max core file size\s+(\S+)\s+(\S+)", limits).groups()


def allow_cores():
    resource.setrlimit(resource.RLIMIT_CORE,
                       (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
@pytest.mark.parametrize("options, is_allowed", [((), False), (("--core-dumps",), True)])
def test_a_crash_leaves_no_memory_behind(options, is_allowed):
    with Server(*options, limits=allow_cores) as server:
        soft, hard = core_limits(server)
        assert soft == (hard if is_allowed else "0")
        # The kernel gives the files of a process that is not dumpable to root.
        user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        with Server(*options, command=(*user, server.process.args[0], "serve"),
                    limits=allow_cores) as other:
            owner = Path(f"/proc/{other.pid}/maps").stat().st_uid
            assert owner == (65534 if is_allowed else 0)
            peeks = subprocess.run([*user, "cat", f"/proc/{other.pid}/environ"],
                                   capture_output=True)
            assert (peeks.returncode == 0) == is_allowed, peeks.stderr
            # What it looks up of itself, and its log, are as ever.
            assert other.connect().ask("PING") == "PONG"
