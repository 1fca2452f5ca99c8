# SPDX-License-Identifier: MIT
"""gRPC at each kind of port: plain, TLS with ALPN, mutual TLS, a Unix socket, systemd's; and how
connections, which never end by themselves, leave a server that ends or hands its sockets on.

Real time: what is tried is the kernel's queues, TLS libraries and processes that run at once.
"""
import concurrent.futures
import signal
import socket
import ssl
import subprocess
import time
import urllib.request
from pathlib import Path

import grpc
import pytest

from program import STINT
from rls_messages import (HEALTH, NOT_SERVING, OK, OVER_LIMIT, SERVING, ask_with, block,
                          descriptor, fields, one, request)
from server import Asker, Server, free_port
from test_serve import serve
from test_serve_systemd import activated
from tls_authority import Authority

RULES = """\
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 3}
"""
USER = request("edge", descriptor(("user", "u")))


def codes(channel, times=4):
    ask = ask_with(channel)
    return [ask(USER, timeout=20).code for _ in range(times)]


def check(channel, service=""):
    call = channel.unary_unary(HEALTH + "Check", request_serializer=bytes,
                               response_deserializer=bytes)
    return one(fields(call(block(1, service) if service else b"", timeout=20)), 1)


def test_plain():
    with Server(rules=RULES) as server:
        with grpc.insecure_channel(f"127.0.0.1:{server.port('grpc')}") as channel:
            assert codes(channel) == [OK, OK, OK, OVER_LIMIT]
            assert check(channel) == check(channel, "ratelimit") == SERVING
        # One state, whichever port it is asked at; and figures of a frontend of their own.
        page = urllib.request.urlopen(server.url("/metrics"), timeout=20).read().decode()
        assert 'stint_decisions_total{domain="edge",rule="user",outcome="deny"} 1' in page
        assert 'stint_requests_total{frontend="grpc",verb="take"} 4' in page
        assert 'stint_connections_opened_total{frontend="grpc"} 1' in page


def test_a_unix_socket(tmp_path):
    path = tmp_path / "grpc.sock"
    with Server("--grpc", f"unix:{path},mode=0600", rules=RULES):
        assert path.stat().st_mode & 0o777 == 0o600
        with grpc.insecure_channel(f"unix:{path}") as channel:
            assert codes(channel) == [OK, OK, OK, OVER_LIMIT]
    assert not path.exists()


def test_it_can_be_off():
    with Server("--grpc", "off") as server:
        assert "grpc" not in server.frontends
        assert server.connect().ask("PING") == "PONG"


def test_an_address_that_others_reach_is_refused():
    assert "0.0.0.0" in serve("--grpc", "0.0.0.0:0", "--resp", "off", "--http", "off")


# ---- TLS ----

def secured(authority, *options):
    certificate, key = authority.sign("server")
    return Server("--grpc", "off", "--grpc-tls", "127.0.0.1:0", "--tls-certificate", certificate,
                  "--tls-key", key, *options, rules=RULES)


def secure_channel(server, authority, certificate=None, key=None):
    read = [Path(each).read_bytes() if each else None for each in (key, certificate)]
    credentials = grpc.ssl_channel_credentials(authority.certificate.read_bytes(), *read)
    return grpc.secure_channel(f"localhost:{server.port('grpc-tls')}", credentials)


def test_tls(authority):
    with secured(authority) as server, secure_channel(server, authority) as channel:
        assert codes(channel) == [OK, OK, OK, OVER_LIMIT]


@pytest.mark.parametrize("offered, chosen", [
    (["h2"], "h2"), (["http/1.1", "h2"], "h2"), (["http/1.1"], None), ([], None)])
def test_alpn_has_to_be_h2(authority, offered, chosen):
    context = ssl.create_default_context(cafile=authority.certificate)
    if offered:
        context.set_alpn_protocols(offered)

    def speak(server):
        with socket.create_connection(("127.0.0.1", server.port("grpc-tls")), 20) as plain:
            with context.wrap_socket(plain, server_hostname="localhost") as client:
                client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4]) + bytes(5))
                return client.selected_alpn_protocol(), client.recv(9)

    with secured(authority) as server:
        if chosen is None:
            with pytest.raises(ssl.SSLError, match="(?i)no.application.protocol"):
                speak(server)
            server.wait_for("tls_failed")
        else:
            selected, first = speak(server)
            assert selected == chosen
            assert first[3] == 4  # SETTINGS


def test_mutual_tls(authority, tmp_path):
    client = authority.sign("client")
    stranger = Authority(tmp_path, "another").sign("stranger")
    with secured(authority, "--tls-client-ca", authority.certificate) as server:
        with secure_channel(server, authority, *client) as channel:
            assert codes(channel, 1) == [OK]
        for pair in ((), stranger):
            with secure_channel(server, authority, *pair) as channel:
                with pytest.raises(grpc.RpcError) as refused:
                    ask_with(channel)(USER, timeout=20)
                assert refused.value.code() == grpc.StatusCode.UNAVAILABLE


def rls(server, *words, host="localhost", code=0):
    done = subprocess.run(
        [STINT, "rls", "ask", "--tls", "--domain", "edge", "--descriptor", "user=u",
         *map(str, words), f"{host}:{server.port('grpc-tls')}"],
        capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stderr


def test_the_own_client_in_tls(authority, tmp_path):
    """A certificate bears names and addresses; who believes all is asked for none."""
    other = Authority(tmp_path, "another").certificate
    with secured(authority) as server:
        for host in ("localhost", "127.0.0.1"):
            rls(server, "--ca-file", authority.certificate, host=host)
        assert "verification failed" in rls(server, "--ca-file", other, code=1)
        other_name = "other.localhost"
        assert "name" in rls(server, "--ca-file", authority.certificate, host=other_name, code=1)
        assert "no.pem" in rls(server, "--ca-file", "no.pem", code=1)
        rls(server, "--insecure", host=other_name)
        rls(server, "--insecure", code=3)


def test_the_own_client_with_a_certificate(authority, tmp_path):
    certificate, key = authority.sign("client")
    with secured(authority, "--tls-client-ca", authority.certificate) as server:
        believed = ["--ca-file", authority.certificate]
        rls(server, *believed, "--cert-file", certificate, "--key-file", key)
        rls(server, *believed, code=1)


# ---- systemd ----

def test_systemd_gives_the_socket(tmp_path):
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with activated([listener.fileno()], ["grpc"], "--resp", "off", "--http", "off", "--rules",
                       rules, "--workers", 2) as server:
            assert server.port("grpc") == listener.getsockname()[1]
            with grpc.insecure_channel(f"127.0.0.1:{server.port('grpc')}") as channel:
                assert codes(channel) == [OK, OK, OK, OVER_LIMIT]


# ---- How connections leave ----

class Caller(Asker):
    """Asks over one channel, at the first of these ports that serves."""

    fault = grpc.RpcError

    def __init__(self, *ports):
        self.target = "ipv4:" + ",".join(f"127.0.0.1:{port}" for port in ports)
        super().__init__(ports[0])

    def run(self):
        with grpc.insecure_channel(self.target, [("grpc.use_local_subchannel_pool", 1)]) as channel:
            self.ask = ask_with(channel)
            super().run()

    def turn(self):
        self.ask(request("edge", descriptor(("user", f"u{self.asked}"))), timeout=20)
        self.asked += 1


def test_a_handover_tells_clients_to_go_and_fails_no_call(tmp_path):
    """The old process ends by itself at once: its clients have left it, with --drain-time to go."""
    state, port = tmp_path / "state", free_port()
    options = ["--state", state, "--grpc", f"127.0.0.1:{port}", "--resp", "off", "--http", "off",
               "--workers", 2, "--drain-time", "10m"]
    servers = [Server(*options, rules=RULES)]
    askers = [Caller(port) for _ in range(4)]
    try:
        for _ in range(3):
            time.sleep(0.2)
            servers.append(Server(*options, "--replace", rules=RULES))
            assert servers[-2].wait(20) == 0
            asked = [asker.asked for asker in askers]
            until = time.monotonic() + 20
            while any(asker.asked == n for asker, n in zip(askers, asked)):
                assert time.monotonic() < until, "a client did not find the new process"
                time.sleep(0.01)
    finally:
        for asker in askers:
            asker.stop()
        for server in servers:
            with server:
                pass
    assert not any(asker.failures for asker in askers), askers[0].failures[:2]
    assert sum(asker.asked for asker in askers) > 100


def test_a_busy_client_is_not_taken_for_a_flood():
    """What a client sends beside its calls, window updates and pings, is more than one for each."""
    with Server(rules=RULES) as server:
        with grpc.insecure_channel(f"127.0.0.1:{server.port('grpc')}") as channel:
            ask = ask_with(channel)
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                asked = pool.map(lambda n: ask(request("edge", descriptor(("user", f"b{n}"))),
                                               timeout=20).code, range(6000))
                assert set(asked) == {OK}
        page = urllib.request.urlopen(server.url("/metrics"), timeout=20).read().decode()
        assert 'stint_connections_opened_total{frontend="grpc"} 1' in page


def test_an_idle_connection_is_told_to_go(tmp_path):
    """Bytes as they come: GOAWAY, and the end of the stream."""
    with Server(rules=RULES) as server:
        with socket.create_connection(("127.0.0.1", server.port("grpc")), 20) as client:
            client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4]) + bytes(5))
            got = client.recv(4096)
            assert got[3] == 4
            server.tell(signal.SIGTERM)
            while more := client.recv(4096):
                got += more
            kinds, at = [], 0
            while at < len(got):
                kinds.append(got[at + 3])
                at += 9 + int.from_bytes(got[at:at + 3], "big")
            assert 7 in kinds  # GOAWAY
        assert server.wait() == 0


def test_a_watch_hears_of_the_end():
    with Server(rules=RULES) as server:
        with grpc.insecure_channel(f"127.0.0.1:{server.port('grpc')}") as channel:
            watch = channel.unary_stream(HEALTH + "Watch", request_serializer=bytes,
                                         response_deserializer=bytes)
            heard = watch(b"", timeout=60)
            assert one(fields(next(heard)), 1) == SERVING
            server.tell(signal.SIGTERM)
            try:
                told = [one(fields(each), 1) for each in heard]
            except grpc.RpcError as end:
                assert end.code() == grpc.StatusCode.UNAVAILABLE
            else:
                assert told == [NOT_SERVING]
        assert server.wait() == 0


def test_a_watch_stays_open_longer_than_a_request_may_take():
    with Server("--request-time", "1s", rules=RULES) as server:
        with grpc.insecure_channel(f"127.0.0.1:{server.port('grpc')}") as channel:
            watch = channel.unary_stream(HEALTH + "Watch", request_serializer=bytes,
                                         response_deserializer=bytes)
            heard = watch(b"", timeout=2.5)
            assert one(fields(next(heard)), 1) == SERVING
            with pytest.raises(grpc.RpcError) as end:
                next(heard)
            assert end.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED


def test_half_a_request_is_not_waited_for(authority):
    """A client that begins and goes silent, in TLS too."""
    with Server("--request-time", "1s", rules=RULES) as server:
        with socket.create_connection(("127.0.0.1", server.port("grpc")), 20) as client:
            client.sendall(b"PRI * HTTP/2")
            while client.recv(4096):
                pass
        server.wait_for("started")  # and it serves on
        with grpc.insecure_channel(f"127.0.0.1:{server.port('grpc')}") as channel:
            assert codes(channel, 1) == [OK]


# ---- What it is answered with ----

def test_fields_names_metadata_and_body():
    with Server("--grpc-fields", "draft-03", "--grpc-limit-field", "X-Limit", "--grpc-metadata",
                "--grpc-denied-body", "slow down", rules=RULES) as server:
        with grpc.insecure_channel(f"127.0.0.1:{server.port('grpc')}") as channel:
            answers = [ask_with(channel)(USER, timeout=20) for _ in range(4)]
    names = [name.lower() for name, _ in answers[0].headers]
    assert names == ["x-limit", "ratelimit-remaining", "ratelimit-reset"]
    assert answers[0].metadata["domain"] == "edge"
    assert [answer.body for answer in answers] == [b"", b"", b"", b"slow down"]


def test_the_limit_of_a_message():
    with Server("--grpc-message-size", "1KiB", rules=RULES) as server:
        with grpc.insecure_channel(f"127.0.0.1:{server.port('grpc')}") as channel:
            with pytest.raises(grpc.RpcError) as refused:
                ask_with(channel)(request("edge", descriptor(("user", "x" * 2000))), timeout=20)
            assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert codes(channel, 1) == [OK]
