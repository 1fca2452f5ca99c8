# SPDX-License-Identifier: MIT
"""TLS and mutual TLS on every port, and certificates that are renewed while the server serves."""
import signal
import socket
import ssl
import urllib.request

import pytest

from program import stint
from server import Resp, Server
from test_serve import serve
from test_serve_faults import idle_kib
from tls_authority import Authority


def trusting(authority, **versions):
    context = ssl.create_default_context(cafile=authority.certificate)
    for name, value in versions.items():
        setattr(context, name, value)
    return context


def connect(server, context, frontend="resp-tls"):
    plain = socket.create_connection(("127.0.0.1", server.port(frontend)), timeout=20)
    try:
        return Resp(context.wrap_socket(plain, server_hostname="localhost"))
    except OSError:
        plain.close()
        raise


def serving(authority, *options, name="server"):
    certificate, key = authority.sign(name)
    return Server("--resp-tls", "127.0.0.1:0", "--http-tls", "127.0.0.1:0", "--tls-certificate",
                  certificate, "--tls-key", key, "--watch", "0", *options)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_ports_speak_tls(authority, version):
    context = trusting(authority, minimum_version=version, maximum_version=version)
    with serving(authority) as server:
        with connect(server, context) as client:
            assert client.ask("PING") == "PONG"
            assert client.throttle("key", 2, 1, 3600)[:3] == [0, 2, 1]
            client.sock.sendall(Resp.encode("ECHO", "x" * 30000) * 40)
            assert all(client.read() == "x" * 30000 for _ in range(40))
        url = f"https://127.0.0.1:{server.port('http-tls')}/healthz"
        assert urllib.request.urlopen(url, context=context, timeout=20).read() == b"ok\n"
        with server.connect() as plain:  # one state, whichever way it is asked
            assert plain.throttle("key", 2, 1, 3600)[:3] == [0, 2, 0]


def test_older_versions_are_refused(authority):
    context = trusting(authority, minimum_version=ssl.TLSVersion.TLSv1,
                       maximum_version=ssl.TLSVersion.TLSv1_1)
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    with serving(authority) as server:
        for frontend in ("resp-tls", "http-tls"):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                connect(server, context, frontend)
        server.wait_for("tls_failed")


@pytest.mark.parametrize("frontend", ["resp-tls", "http-tls"])
def test_clients_show_a_certificate_where_it_is_demanded(authority, tmp_path, frontend):
    def speaks(context):
        with connect(server, context, frontend) as client:
            is_http = frontend == "http-tls"
            client.sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n" if is_http else
                                b"PING\r\n")
            return client.sock.recv(4) in (b"HTTP", b"+PON")

    with serving(authority, "--tls-client-ca", authority.certificate) as server:
        known, none, strange = (trusting(authority) for _ in range(3))
        known.load_cert_chain(*authority.sign("client"))
        strange.load_cert_chain(*Authority(tmp_path, "another").sign("stranger"))
        assert speaks(known)
        for context in (none, strange):
            with pytest.raises(OSError):  # in TLS 1.3 with the first bytes that are read
                assert not speaks(context)
                raise ConnectionError("closed without a word")


def test_certificates_are_renewed_without_a_restart(authority):
    context = trusting(authority)

    def serial(frontend):
        with connect(server, context, frontend) as client:
            return client.sock.getpeercert()["serialNumber"]

    with serving(authority, name="renewed") as server:
        with connect(server, context) as before:
            assert before.ask("PING") == "PONG"
            first = {frontend: serial(frontend) for frontend in ("resp-tls", "http-tls")}
            authority.sign("renewed")
            server.tell(signal.SIGHUP)
            server.wait_for("info reloaded")
            for frontend in first:
                assert serial(frontend) != first[frontend]
            assert before.ask("PING") == "PONG"
            (authority.folder / "renewed.pem").write_text("no certificate")
            server.tell(signal.SIGHUP)
            server.wait_for("reload_failed")
            assert "renewed.pem" in server.log
            assert serial("resp-tls") != first["resp-tls"]


@pytest.mark.parametrize("text", ["", "no PEM\n"])
@pytest.mark.parametrize("ending,lacks", [("pem", "certificate"), ("key", "private key")])
def test_a_file_without_pem_is_told(authority, ending, lacks, text):
    """At a reload and at the start."""
    with serving(authority, name="lacking") as server:
        path = authority.folder / f"lacking.{ending}"
        path.write_text(text)
        server.tell(signal.SIGHUP)
        server.wait_for("reload_failed")
        assert f"{path} holds no {lacks} in PEM" in server.log
    certificate, key = (authority.folder / f"lacking.{name}" for name in ("pem", "key"))
    _, told = stint("serve", "--resp-tls", "127.0.0.1:0", "--tls-certificate", certificate,
                    "--tls-key", key, code=1)
    assert f"{path} holds no {lacks} in PEM" in told


def test_garbage_and_silence_end(authority):
    with serving(authority, "--request-time", "1s") as server:
        port = server.port("resp-tls")
        with socket.create_connection(("127.0.0.1", port), timeout=10) as garbage:
            garbage.sendall(b"*1\r\n$4\r\nPING\r\n" * 10)
            while garbage.recv(4096):
                pass
        with socket.create_connection(("127.0.0.1", port), timeout=10) as silent:
            assert silent.recv(1) == b""
        with connect(server, trusting(authority)) as client:
            assert client.ask("PING") == "PONG"


def test_a_drain_says_goodbye(authority):
    with serving(authority) as server:
        client = connect(server, trusting(authority))
        assert client.ask("PING") == "PONG"
        assert server.stop() == 0
        assert client.sock.recv(10) == b""  # a close_notify: without one this would raise


def test_an_idle_tls_connection_is_small(authority):
    context = trusting(authority)
    with serving(authority, "--workers", 1) as server:
        server.connect = lambda frontend: connect(server, context, frontend)
        clients, kib = idle_kib(server, 300, "resp-tls")
        for client in clients:
            client.close()
        assert kib <= 64, kib


def test_wrong_files_are_told(authority, tmp_path):
    certificate, _ = authority.sign("one")
    _, key = authority.sign("two")
    common = ["--resp", "127.0.0.1:0", "--http", "off", "--grpc", "off"]
    assert "belong together" in serve("--tls-key", key, *common)
    assert str(certificate) in serve("--tls-certificate", certificate, "--tls-key", key, *common)
    assert "--tls-certificate" in serve("--resp-tls", "127.0.0.1:0", *common)
    told = serve("--tls-certificate", certificate, "--tls-key", certificate.with_suffix(".key"),
                 "--tls-priorities", "NONSENSE", *common)
    assert "NONSENSE" in told
