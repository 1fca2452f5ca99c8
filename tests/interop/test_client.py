# SPDX-License-Identifier: MIT
"""`stint take|peek|reset` against servers that answer as they should, wrongly, late, or not."""
import json
import http.server
import os
import socket
import socketserver
import ssl
import subprocess
import threading
import time

import pytest

from program import STINT, stint

ALLOW = {"outcome": "allow", "granted": 1, "limit": 5, "remaining": 4, "retry_after_ms": 0,
         "reset_after_ms": 1000, "binding": 0}
DENY = {**ALLOW, "outcome": "deny", "granted": 0, "remaining": 0, "retry_after_ms": 1250}
NEVER = {**DENY, "outcome": "never", "retry_after_ms": None}
PROBLEM = {"type": "https://example.org/#quota-exceeded", "title": "Quota exceeded", "status": 429}


class Answers:
    """What a server says next, and what it was asked. `raw` stands in for a whole answer."""

    def __init__(self):
        self.status, self.body, self.type = 200, json.dumps(ALLOW).encode(), "application/json"
        self.delay, self.raw, self.asked = 0, None, []

    def say(self, status, body, kind="application/json"):
        self.status, self.type = status, kind
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        answers = self.server.answers
        given = self.rfile.read(int(self.headers["Content-Length"]))
        answers.asked.append((self.path, dict(self.headers), json.loads(given)))
        time.sleep(answers.delay)
        if answers.raw is not None:
            self.wfile.write(answers.raw)
            self.close_connection = True
            return
        self.send_response(answers.status)
        self.send_header("Content-Type", answers.type)
        self.send_header("Content-Length", str(len(answers.body)))
        self.end_headers()
        self.wfile.write(answers.body)

    def log_message(self, *args):
        pass


class UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

    def get_request(self):
        return self.socket.accept()[0], ("local", 0)


def serve(server):
    server.answers = Answers()
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    return server


@pytest.fixture
def server():
    made = serve(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler))
    made.url = f"http://127.0.0.1:{made.server_port}"
    yield made
    made.shutdown()
    made.server_close()


def ask(verb, server, *args, code=0):
    return stint(verb, "--server", server.url, *args, code=code)


def test_a_key_under_a_quota(server):
    """Allowed is exit code 0 and no output; what was asked is what the server gets."""
    out, err = ask("take", server, "--quota", "5/1s", "--cost", 2, "--id", "a1", "--wait", "1500us",
                   "--", "-key")
    assert (out, err) == ("", "")
    (path, fields, body), = server.answers.asked
    assert path == "/v1/take"
    assert fields["Content-Type"] == fields["Accept"] == "application/json"
    assert "Authorization" not in fields
    # 1.5 ms is asked for as 2: never a shorter wait than was meant.
    assert body == {"quota": "5/1s", "key": "-key", "cost": 2, "request_id": "a1", "wait_ms": 2}


def test_descriptors_under_a_domain(server):
    """A comma begins the next entry, a backslash takes the next letter as it is."""
    ask("peek", server, "--domain", "web", r"user=a\,b\\c=d,path=/x", "plan=", r"a\=b=é", r"a\,b=1")
    (path, _, body), = server.answers.asked
    assert path == "/v1/peek"
    assert body == {"domain": "web", "descriptors": [
        {"entries": [{"key": "user", "value": r"a,b\c=d"}, {"key": "path", "value": "/x"}]},
        {"entries": [{"key": "plan", "value": ""}]},
        {"entries": [{"key": "a=b", "value": "é"}]},
        {"entries": [{"key": "a,b", "value": "1"}]}]}


@pytest.mark.parametrize("decision, wait", [
    (DENY, "1.250"), ({**DENY, "retry_after_ms": 7}, "0.007"), (NEVER, "never"),
    ({**DENY, "retry_after_ms": 86400000}, "86400.000")])
@pytest.mark.parametrize("status", [200, 429])
def test_denied_is_exit_code_3_and_the_wait(server, decision, wait, status):
    """Whether the decision comes as one or inside of problem details."""
    body = {**PROBLEM, **decision} if status == 429 else decision
    kind = "application/problem+json" if status == 429 else "application/json"
    server.answers.say(status, body, kind)
    for verb in ("take", "peek"):
        assert ask(verb, server, "--quota", "5/1s", "k", code=3) == (wait + "\n", "")
    out, _ = ask("take", server, "--quota", "5/1s", "--json", "k", code=3)
    assert json.loads(out) == body and out.count("\n") == 1


def test_json_prints_what_the_server_says(server):
    server.answers.say(200, {**ALLOW, "more": [1, "é"]})
    assert json.loads(ask("take", server, "--quota", "5/1s", "--json", "k")[0])["more"] == [1, "é"]


def test_reset(server):
    for status, body in ((200, {"found": True}), (204, b"")):
        server.answers.say(status, body)
        assert ask("reset", server, "--quota", "5/1s", "k") == ("", "")
    assert [(path, body) for path, _, body in server.answers.asked] == [
        ("/v1/reset", {"quota": "5/1s", "key": "k"})] * 2
    server.answers.say(403, {"title": "Forbidden", "detail": "reset is for administrators"})
    assert "403: reset is for administrators" in ask(
        "reset", server, "--quota", "5/1s", "k", code=1)[1]


@pytest.mark.parametrize("status, body, kind, words", [
    (200, b"<html>hello</html>", "text/html; charset=utf-8", "'text/html' with status 200"),
    (200, b"", "application/json", "0 bytes"),
    (200, b"{\"outcome\":\"allow\"", "application/json", "expected a decision"),
    (200, b"[\"allow\"]", "application/json", "expected a decision"),
    (200, {"outcome": "perhaps"}, "application/json", "expected a decision"),
    (200, {"outcome": 0}, "application/json", "expected a decision"),
    (200, {"outcome": "deny"}, "application/json", "expected a decision"),
    (200, {**DENY, "retry_after_ms": -1}, "application/json", "expected a decision"),
    (200, {**DENY, "retry_after_ms": "7"}, "application/json", "expected a decision"),
    (200, {**DENY, "retry_after_ms": 2 ** 62}, "application/json", "expected a decision"),
    (200, b"[" * 100000, "application/json", "expected a decision"),
    (302, b"", "text/html", "302, without a reason"),
    (400, {"title": "Bad Request", "detail": "no such algorithm"}, "application/problem+json",
     "400: no such algorithm"),
    (401, {"title": "Unauthorized"}, "application/problem+json", "401: Unauthorized"),
    (429, b"slow down", "text/plain", "429, without a reason"),
    (503, {"detail": "a\x1b[31mb\nc"}, "application/problem+json", r"503: a\x1b[31mb\x0ac"),
])
def test_wrong_answers_are_named(server, status, body, kind, words):
    """Never taken for a decision: a script must not believe that it may go on."""
    server.answers.say(status, body, kind)
    for verb in ("take", "peek"):
        out, err = ask(verb, server, "--quota", "5/1s", "k", code=1)
        assert out == "" and words in err and err.count("\n") == 1


@pytest.mark.parametrize("raw", [
    b"", b"\0" * 64, b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"+PONG\r\n",
    b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * (1 << 20) + b"\r\n\r\n{}"],
    ids=["nothing", "zeros", "cut", "chunked", "resp", "endless"])
def test_what_is_no_http_is_an_error(server, raw):
    server.answers.raw = raw
    out, err = ask("take", server, "--quota", "5/1s", "k", code=1)
    assert out == "" and server.url + "/v1/take: " in err


def test_an_answer_that_never_ends_is_cut_off(server):
    server.answers.say(200, b" " * ((16 << 20) + 1))
    assert "longer than 16777216 bytes" in ask("take", server, "--quota", "5/1s", "k", code=1)[1]


def test_a_late_answer_is_given_up(server):
    """--timeout bounds the whole answer; a wait that was asked for is added to it."""
    server.answers.delay = 10
    begun = time.monotonic()
    err = ask("take", server, "--timeout", "200ms", "--quota", "5/1s", "k", code=1)[1]
    assert 0.19 < time.monotonic() - begun < 9 and "timed out" in err.lower()
    server.answers.delay = 1
    ask("take", server, "--timeout", "200ms", "--wait", "5s", "--quota", "5/1s", "k")


def test_a_server_that_accepts_and_says_nothing():
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"http://127.0.0.1:{mute.getsockname()[1]}"
        err = stint("take", "--server", url, "--timeout", "100ms", "--quota", "5/1s", "k",
                    code=1)[1]
        assert "timed out" in err.lower()
    assert "connect" in stint("take", "--server", url, "--quota", "5/1s", "k", code=1)[1].lower()


def test_a_token_is_sent_to_the_own_host(server, tmp_path):
    token = tmp_path / "token"
    token.write_text("s3cret-token\r\nsecond line\n")
    longest = tmp_path / "longest"
    longest.write_text("x" * 4096)
    ask("take", server, "--token-file", longest, "--quota", "5/1s", "k")
    assert server.answers.asked.pop()[1]["Authorization"] == "Bearer " + "x" * 4096
    ask("take", server, "--token-file", token, "--quota", "5/1s", "k")
    environment = {**os.environ, "STINT_URL": server.url, "STINT_TOKEN_FILE": str(token)}
    subprocess.run([STINT, "peek", "--quota", "5/1s", "k"], env=environment, check=True)
    assert [fields["Authorization"] for _, fields, _ in server.answers.asked] == [
        "Bearer s3cret-token"] * 2


@pytest.mark.parametrize("text", [
    b"", b"\n", b"two words\n", b"caf\xc3\xa9\n", b"x" * 4097, b"a\0b\n"])
def test_what_is_no_token_is_not_sent(server, tmp_path, text):
    token = tmp_path / "token"
    token.write_bytes(text)
    err = ask("take", server, "--token-file", token, "--quota", "5/1s", "k", code=1)[1]
    assert "token" in err and not server.answers.asked
    assert "none: No such" in ask("take", server, "--token-file", tmp_path / "none", "--quota",
                                "5/1s", "k", code=1)[1]


def test_a_token_goes_to_no_other_host_unencrypted(tmp_path):
    """Told by the address that is connected to: a packet never leaves. 192.0.2.0/24 is nobody's."""
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    args = ("take", "--server", "http://192.0.2.1:8080", "--quota", "5/1s")
    begun = time.monotonic()
    err = stint(*args, "--timeout", "60s", "--token-file", token, "k", code=1)[1]
    assert "unencrypted" in err and "--insecure" in err and time.monotonic() - begun < 30
    for more in (["--token-file", token, "--insecure"], []):
        assert "unencrypted" not in stint(*args, "--timeout", "200ms", *more, "k", code=1)[1]


def test_no_proxy_of_the_environment_comes_between(server):
    environment = {**os.environ, "http_proxy": "http://192.0.2.1:1",
                   "ALL_PROXY": "socks5://192.0.2.1:1"}
    subprocess.run([STINT, "take", "--server", server.url, "--quota", "5/1s", "k"],
                   env=environment, check=True, timeout=20)
    assert len(server.answers.asked) == 1


def test_a_unix_socket(tmp_path):
    path = tmp_path / "stint.sock"
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    server = serve(UnixServer(str(path), Handler))
    server.url = f"unix:{path}"
    ask("take", server, "--token-file", token, "--quota", "5/1s", "k")
    assert server.answers.asked[0][1]["Authorization"] == "Bearer s3cret"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A key and a certificate for localhost, signed by itself."""
    folder = tmp_path_factory.mktemp("tls")
    key, cert = folder / "key.pem", folder / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
        check=True, capture_output=True)
    return key, cert


@pytest.mark.parametrize("mutual", [False, True])
def test_tls(certificate, tmp_path, mutual):
    """A certificate that nobody vouches for is refused, also with a token to the own host."""
    key, cert = certificate
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    if mutual:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cert)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.handle_error = lambda *args: None  # handshakes that fail on purpose
    serve(server)
    server.url = f"https://127.0.0.1:{server.server_port}"
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    show = ["--cert-file", cert, "--key-file", key] if mutual else []
    args = ["--token-file", token, "--quota", "5/1s", "k"]
    err = ask("take", server, *show, *args, code=1)[1]
    assert "certificate" in err.lower() and not server.answers.asked
    ask("take", server, *show, "--ca-file", cert, *args)
    ask("take", server, *show, "--insecure", *args)
    if mutual:
        ask("take", server, "--ca-file", cert, *args, code=1)
    assert len(server.answers.asked) == 2
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("args, words", [
    (["k"], "either --quota"),
    (["--quota", "5/1s"], "one KEY"),
    (["--quota", "5/1s", "a", "b"], "one KEY"),
    (["--quota", "5/1s", "--domain", "d", "a=b"], "either --quota"),
    (["--quota", "5", "k"], "is no quota"),
    (["--domain", "d"], "descriptors"),
    (["--domain", "", "a=b"], "empty"),
    (["--domain", "d", "ab"], "expected a descriptor"),
    (["--domain", "d", "a=b,c"], "expected a descriptor"),
    (["--domain", "d", "a=b,"], "expected a descriptor"),
    (["--domain", "d", "=b"], "expected a descriptor"),
    (["--domain", "d", "a,b=c"], "expected a descriptor"),
    (["--domain", "d", ",".join(["a=b"] * 33)], "more than 32 entries"),
    (["--domain", "d", *["a=b"] * 33], "more than 32 descriptors"),
    (["--quota", "5/1s", b"\xff"], "not UTF-8"),
    (["--domain", "d", b"a=\xff"], "not UTF-8"),
    (["--quota", "5/1s", "--cost", "0", "k"], "--cost must be"),
    (["--quota", "5/1s", "--cost", "4294967296", "k"], "--cost must be"),
    (["--quota", "5/1s", "--wait", "2", "k"], "--wait must be"),
    (["--quota", "5/1s", "--timeout", "0s", "k"], "--timeout must be"),
    (["--quota", "5/1s", "--id", "", "k"], "ID is empty"),
    (["--quota", "5/1s", "--key-file", "x", "k"], "--cert-file"),
    (["--quota", "5/1s", "--tokenfile", "x", "k"], "did you mean '--token-file'"),
    (["--quota", "5/1s", "--server", "ftp://h", "k"], "expected http://HOST"),
    (["--quota", "5/1s", "--server", "redis://h:1", "k"], "expected http://HOST"),
    (["--quota", "5/1s", "--server", "http://", "k"], "expected http://HOST"),
    (["--quota", "5/1s", "--server", "http://h/path", "k"], "expected http://HOST"),
    (["--quota", "5/1s", "--server", "http://user:word@h", "k"], "expected http://HOST"),
    (["--quota", "5/1s", "--server", "http://" + "h" * 2000, "k"], "expected http://HOST"),
    (["--quota", "5/1s", "--server", "unix:relative", "k"], "expected unix:/PATH"),
])
def test_bad_usage(args, words):
    done = subprocess.run([STINT, "take", *args], capture_output=True, timeout=20)
    assert done.returncode == 2 and words in done.stderr.decode(errors="replace")
    assert done.stdout == b""


def test_options_of_take_are_not_those_of_reset():
    for option in ("--cost", "--wait", "--id"):
        assert "no option" in stint("reset", option, "1", "--quota", "5/1s", "k", code=2)[1]
    for option in ("--wait", "--id"):
        assert "no option" in stint("peek", option, "1", "--quota", "5/1s", "k", code=2)[1]
