# SPDX-License-Identifier: MIT
"""`stint rls` against a gRPC server of another make, whose answers are known: grpcio's."""
import json
import os
import re
import socket
import ssl
import subprocess
import time
from concurrent import futures

import grpc
import pytest

from program import SOURCE, STINT
from rls_messages import PATH, block, fields, number, one

ASK = ["--domain", "shop", "--descriptor", "user=ann,path=/a\\,b"]


def stint(*words, env=None):
    return subprocess.run([STINT, *map(str, words)], capture_output=True, text=True, timeout=120,
                          env=env)


class Service(grpc.GenericRpcHandler):
    """Answers with what it is told to, and keeps what it was asked."""

    def __init__(self):
        self.asked, self.metadata, self.answer, self.status = [], [], number(1, 1), None
        self.health, self.delay, self.left = 1, 0, []

    def service(self, details):
        if details.method == PATH:
            return grpc.unary_unary_rpc_method_handler(self.should_rate_limit)
        if details.method == "/grpc.health.v1.Health/Check":
            return grpc.unary_unary_rpc_method_handler(self.check)
        return None

    def should_rate_limit(self, message, context):
        self.asked.append(message)
        self.metadata.append(dict(context.invocation_metadata()))
        self.left.append(context.time_remaining())
        time.sleep(self.delay)
        if self.status is not None:
            context.abort(*self.status)
        return self.answer

    def check(self, message, _):
        self.asked.append(message)
        return number(1, self.health)


@pytest.fixture
def service(tmp_path):
    made = Service()
    server = grpc.server(futures.ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers((made,))
    made.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    made.local = f"unix:{tmp_path}/grpc.sock"
    made.port_6 = server.add_insecure_port("[::1]:0")
    assert server.add_insecure_port(made.local)
    server.start()
    yield made
    server.stop(0).wait()


def status(code, left, limit=None, unit=None, name="", multiplier=None, reset=None):
    out = number(1, code)
    if limit is not None:
        told = number(1, limit) + number(2, unit) + (block(3, name) if name else b"")
        out += block(2, told + (block(4, number(1, multiplier)) if multiplier else b""))
    out += number(3, left)
    if reset is not None:
        seconds, nanos = reset
        out += block(4, number(1, seconds) + number(2, nanos))
    return block(2, out)


def test_a_question_is_what_envoy_sends(service):
    done = stint("rls", "ask", *ASK, "--descriptor", "user=bob", service.address)
    assert (done.returncode, done.stdout, done.stderr) == (0, "OK\n", "")
    asked = fields(service.asked[0])
    assert asked[1] == [b"shop"] and set(asked) == {1, 2}
    first, second = [[(one(fields(each), 1), one(fields(each), 2)) for each in fields(every)[1]]
                     for every in asked[2]]
    assert first == [(b"user", b"ann"), (b"path", b"/a,b")] and second == [(b"user", b"bob")]


@pytest.mark.parametrize("hits", [0, 1, 7])
def test_hits_are_the_descriptors(service, hits):
    stint("rls", "ask", *ASK, "--hits", hits, "--refund", service.address)
    descriptor = fields(fields(service.asked[0])[2][0])
    assert one(fields(one(descriptor, 3, b"")), 1) == hits and one(descriptor, 4) == 1


def test_limits_are_told(service):
    service.answer = number(1, 2) + status(2, 0, 3, 3, "per-user", reset=(12, 500000000)) \
        + status(1, 2**32 - 1) + status(1, 0)
    done = stint("rls", "ask", *ASK, *["--descriptor", "user=bob"] * 2, service.address)
    assert done.returncode == 3
    assert done.stdout.splitlines() == [
        "OVER_LIMIT",
        "  user=ann,path=/a,b: OVER_LIMIT, 0 left of 3 per HOUR, per-user, more in 12 s 500 ms",
        "  user=bob: OK, unlimited",
        "  user=bob: OK, no limit: no rule of the domain matches, or the domain has no rules"]
    service.answer = number(1, 1) + status(1, 3, 4, 2, multiplier=5) \
        + block(3, block(1, "x-a") + block(2, "b"))
    done = stint("rls", "ask", *ASK, "--json", service.address)
    assert json.loads(done.stdout) == {
        "overallCode": "OK",
        "statuses": [{"code": "OK", "limitRemaining": 3, "currentLimit": {
            "name": "", "requestsPerUnit": 4, "unit": "MINUTE", "unitMultiplier": 5}}],
        "responseHeadersToAdd": [{"key": "x-a", "value": "b"}]}


@pytest.mark.parametrize("timeout, least, most", [(None, 3, 5), ("30s", 28, 30),
                                                  ("1000d", 99000, 100000)])
def test_the_server_knows_the_deadline(service, timeout, least, most):
    stint("rls", "ask", *ASK, *(["--timeout", timeout] if timeout else []), service.address)
    assert least < service.left[0] <= most


def test_an_error_is_told_by_its_name(service):
    service.status = (grpc.StatusCode.INVALID_ARGUMENT, "näh: 100 %")
    done = stint("rls", "ask", *ASK, service.address)
    assert done.returncode == 1 and "INVALID_ARGUMENT: näh: 100 %" in done.stderr


def test_what_is_no_answer(service):
    service.answer = b"\xff\xff"
    done = stint("rls", "ask", *ASK, service.address)
    assert done.returncode == 1 and "no RateLimitResponse" in done.stderr


def test_no_answer_in_time(service):
    service.delay = 1
    done = stint("rls", "ask", *ASK, "--timeout", "100ms", service.address)
    assert done.returncode == 1
    assert "timed out" in done.stderr or "DEADLINE_EXCEEDED" in done.stderr


def test_nobody_there():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        done = stint("rls", "ask", *ASK, f"127.0.0.1:{closed.getsockname()[1]}")
    assert done.returncode == 1 and "refused" in done.stderr


def test_who_speaks_something_else():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with futures.ThreadPoolExecutor(1) as pool:
            said = pool.submit(stint, "rls", "ask", *ASK, f"127.0.0.1:{other.getsockname()[1]}")
            peer, _ = other.accept()
            peer.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n" * 3)
            done = said.result()
            peer.close()
    assert done.returncode == 1 and "not HTTP/2" in done.stderr


# ---- Servers that answer frame by frame ----

HEADERS, DATA, RESET, SETTINGS, GOAWAY, CONTINUATION = 1, 0, 3, 4, 7, 9
END_STREAM, END_HEADERS = 1, 4
STATUS_200 = b"\x88"


def frame(kind, flags, stream, data=b""):
    return (len(data).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big")
            + data)


def literal(name, value):
    """A field as HPACK has it, without its tables."""
    assert len(name) < 127 and len(value) < 127
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def head(*more, flags=END_HEADERS):
    return frame(HEADERS, flags, 1, STATUS_200 + b"".join(more))


def data(message, flag=0):
    return frame(DATA, 0, 1, bytes([flag]) + len(message).to_bytes(4, "big") + message)


def trailers(*pairs):
    return frame(HEADERS, END_HEADERS | END_STREAM, 1, b"".join(literal(*each) for each in pairs))


OVER = number(1, 2)
GOOD = trailers(("grpc-status", "0"))


def ends(sent):
    """Whether HTTP/2's preface and these frames hold a whole request."""
    at = len(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    while len(sent) >= at + 9:
        kind, flags = sent[at + 3:at + 5]
        if kind in (HEADERS, DATA) and flags & END_STREAM:
            return True
        at += 9 + int.from_bytes(sent[at:at + 3], "big")
    return False


def answer(link, frames, until):
    """Answers once `until` says that enough was sent; leaves the client a second to be done."""
    sent = b""
    while not until(sent):
        sent += link.recv(65536)
    link.sendall(b"".join(frames))
    link.settimeout(1)
    try:
        while link.recv(65536):
            pass
    except TimeoutError:
        link.shutdown(socket.SHUT_WR)


def ask_of(*frames, tls=None, until=ends):
    with socket.create_server(("127.0.0.1", 0)) as listener, \
            futures.ThreadPoolExecutor(1) as pool:
        words = ["--tls", "--insecure"] if tls else []
        said = pool.submit(stint, "rls", "ask", *ASK, *words, "--timeout", "10s",
                           f"127.0.0.1:{listener.getsockname()[1]}")
        listener.settimeout(20)
        peer, _ = listener.accept()
        with tls.wrap_socket(peer, server_side=True) if tls else peer as link:
            try:
                answer(link, frames, until)
            except OSError:
                pass  # the client has seen enough
        return said.result()


# Name: (frames, exit code, what is printed).
ANSWERS = {
    "good": ([head(), data(OVER), GOOD], 3, "OVER_LIMIT"),
    "a status in the head, too": ([head(literal("grpc-status", "0")), data(OVER), GOOD], 3,
                                  "OVER_LIMIT"),
    "a status in the head alone": (
        [head(literal("grpc-status", "0")), data(OVER), trailers(("x", "y"))], 1, "none of gRPC"),
    "the last status counts": (
        [head(literal("grpc-status", "0")), data(OVER), trailers(("grpc-status", "14"))], 1,
        "UNAVAILABLE"),
    "a head alone": (
        [head(literal("grpc-status", "16"), literal("grpc-message", "no%20%zz%"),
              flags=END_HEADERS | END_STREAM)], 1, "UNAUTHENTICATED: no %zz%"),
    "no status": ([head(), data(OVER), trailers(("x", "y"))], 1,
                  "HTTP status 200, and none of gRPC"),
    "a status below 0": ([head(), data(OVER), trailers(("grpc-status", "-1"))], 1, "none of gRPC"),
    "a status of 2^32": ([head(), data(OVER), trailers(("grpc-status", "4294967296"))], 1,
                         "none of gRPC"),
    "a message for the terminal": (
        [head(), data(OVER), trailers(("grpc-status", "99"), ("grpc-message", "%1b[31m%00"))], 1,
        r"\x1b[31m"),
    "compressed": ([head(), data(b"x", flag=1), GOOD], 1, "not compressed"),
    "two messages": ([head(), data(OVER), data(OVER), GOOD], 1, "not one message"),
    "a message cut": ([head(), frame(DATA, 0, 1, b"\0\0\0\0\x09ab"), GOOD], 1, "not one message"),
    "a message of 4 GiB": ([head(), frame(DATA, 0, 1, b"\0\xff\xff\xff\xff" + OVER), GOOD], 1,
                           "not one message"),
    "no message": ([head(), GOOD], 1, "not one message"),
    "a reset": ([head(), data(OVER), frame(RESET, 0, 1, bytes([0, 0, 0, 2]))], 1,
                "INTERNAL_ERROR"),
    "no end": ([head(), data(OVER)], 1, ": "),
    "GOAWAY": ([frame(GOAWAY, 0, 0, bytes(7) + b"\x0b")], 1, ": "),
    "a head without end": (
        [head(flags=0), *[frame(CONTINUATION, 0, 1, literal("x", "y" * 120) * 100)] * 100], 1,
        ": "),
    "zeros": ([b"\0" * 4096], 1, "not HTTP/2"),
    "more than is kept": ([head(), *[frame(DATA, 0, 1, bytes(16384))] * 1100], 1,
                          "longer than 16777216 bytes"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_frame_by_frame(name):
    frames, code, says = ANSWERS[name]
    done = ask_of(frame(SETTINGS, 0, 0), *frames)
    assert done.returncode == code and says in done.stdout + done.stderr, done
    assert (done.stdout == "") == (code == 1) and done.stderr.count("\n") == (code == 1)


def test_a_refusal_before_the_request_is_whole():
    """Servers that know no such method need no message to say so."""
    done = ask_of(frame(SETTINGS, 0, 0), *ANSWERS["a head alone"][0],
                  until=lambda sent: bytes([HEADERS, END_HEADERS]) in sent[24:])
    assert done.returncode == 1 and "UNAUTHENTICATED" in done.stderr


def test_an_answer_with_the_end_of_the_connection():
    """libcurl 7.88 drops the trailers then: there is no answer, and never a wrong one."""
    goaway = frame(GOAWAY, 0, 0, bytes([0, 0, 0, 1]) + bytes(4))
    done = ask_of(frame(SETTINGS, 0, 0), head(), data(OVER), GOOD, goaway)
    assert (done.returncode, done.stdout) in [(1, ""), (3, "OVER_LIMIT\n")]


def test_tls_to_a_server_without_http2(authority):
    """HTTP/1.1 by ALPN, or none: what it answers is not taken for an answer."""
    certificate, key = authority.sign("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    for protocols in (["http/1.1"], []):
        context.set_alpn_protocols(protocols)
        done = ask_of(b"HTTP/1.1 200 OK\r\ngrpc-status: 0\r\nContent-Length: 7\r\n\r\n",
                      b"\0\0\0\0\2", OVER, tls=context, until=bool)
        assert done.returncode == 1 and "not HTTP/2" in done.stderr


# ---- Whom it asks ----

def test_a_libcurl_without_http2(tmp_path):
    names = re.findall(r" X\((\w+)\)", (SOURCE / "src/cmd/client/client.c").read_text())
    (tmp_path / "curl.c").write_text(
        "struct { int age; char *version; unsigned number; char *host; int features; } info = "
        '{0, "7.0", 0, "", 0};\nvoid *curl_version_info(int age) { return &info; }\n'
        + "".join(f"int curl_{each}(void) {{ return 0; }}\n"
                  for each in names if each != "version_info"))
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "libcurl-gnutls.so.4",
                    tmp_path / "curl.c"], check=True)
    done = stint("rls", "health", "127.0.0.1:1", env={**os.environ, "LD_LIBRARY_PATH": tmp_path})
    assert done.returncode == 1 and "libcurl 7.0 has no HTTP/2; install" in done.stderr


def test_a_unix_socket(service, tmp_path):
    token = tmp_path / "token"
    token.write_text("s3cret-s3cret\n")
    done = stint("rls", "ask", *ASK, "--token-file", token, service.local)
    assert (done.returncode, done.stdout) == (0, "OK\n")
    assert service.metadata[0]["authorization"] == "Bearer s3cret-s3cret"
    done = stint("rls", "ask", *ASK, f"unix:{tmp_path}/none")
    assert done.returncode == 1 and f"unix:{tmp_path}/none: " in done.stderr


def test_a_unix_socket_in_tls(authority, tmp_path):
    """No name is asked of its certificate, only who has signed it."""
    path = f"unix:{tmp_path}/grpc.sock"
    certificate, key = authority.sign("server", names="DNS:elsewhere")
    server = grpc.server(futures.ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((Service(),))
    server.add_secure_port(path, grpc.ssl_server_credentials(
        [(key.read_bytes(), certificate.read_bytes())]))
    server.start()
    believed = ["--tls", "--ca-file", authority.certificate]
    assert stint("rls", "ask", *ASK, *believed, path).returncode == 0
    assert stint("rls", "ask", *ASK, "--tls", path).returncode == 1
    server.stop(0).wait()


@pytest.mark.parametrize("written", ["[::1]", "::1"])
def test_an_ipv6_address(service, written):
    assert stint("rls", "ask", *ASK, f"{written}:{service.port_6}").returncode == 0


def test_a_token_is_shown_to_this_machine_alone(service, tmp_path):
    token = tmp_path / "token"
    token.write_text("s3cret-s3cret\nmore\n")
    assert stint("rls", "ask", *ASK, "--token-file", token, service.address).returncode == 0
    assert service.metadata[0]["authorization"] == "Bearer s3cret-s3cret"
    # An address that no host has: what matters is that nothing is sent there.
    done = stint("rls", "ask", *ASK, "--token-file", token, "--timeout", "100ms", "192.0.2.1:8081")
    assert done.returncode == 1 and "expected --tls" in done.stderr


@pytest.mark.parametrize("health, code, word", [(1, 0, "SERVING"), (2, 3, "NOT_SERVING")])
def test_health(service, health, code, word):
    service.health = health
    done = stint("rls", "health", "--service", "ratelimit", service.address)
    assert (done.returncode, done.stdout) == (code, word + "\n")
    assert fields(service.asked[0]) == {1: [b"ratelimit"]}


@pytest.mark.parametrize("words, says", [
    (["ask"], "--domain"),
    (["ask", "--domain", "d"], "--descriptor"),
    (["ask", "--domain", "d", "--descriptor", "x"], "NAME=VALUE"),
    (["ask", *ASK, "a:1", "b:2"], "one SERVER"),
    (["ask", *ASK, "--ca-file", "x"], "--tls"),
    (["ask", *ASK, "nowhere"], "HOST:PORT"),
    (["ask", *ASK, "--hits", "-1", "a:1"], "whole number from 0 to 4294967295, not '-1'"),
    (["ask", *ASK, "--hits", "4294967296", "a:1"], "not '4294967296'; count in larger units"),
    (["halth"], "health"),
])
def test_bad_usage(words, says):
    done = stint("rls", *words)
    assert done.returncode == 2 and says in done.stderr
