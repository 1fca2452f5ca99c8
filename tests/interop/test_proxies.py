# SPDX-License-Identifier: MIT
"""The recipes of contrib/, in the proxies that they are for, in front of a real application.

Each proxy lets exactly as many requests through as the rule says, and answers the next one with 429
and stint's fields. Files are those that users copy; only addresses are replaced.
"""
import http.client
import http.server
import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest

from program import SOURCE
from server import Server, free_port

LIMIT = 5
RULES = f"""\
domain: web
descriptors:
  - key: remote_address
    rate_limit: {{unit: hour, requests_per_unit: {LIMIT}, name: per-address}}
  - key: path
    value: /login
    rate_limit: {{unit: hour, requests_per_unit: 2, name: logins}}
"""
CONTRIB = SOURCE / "contrib"
OPTIONS = ["--http-domain", "web", "--http-descriptors", "address", "--http-descriptors", "path",
           "--http-trusted-proxies", "127.0.0.1"]


class Application(http.server.BaseHTTPRequestHandler):
    """Says its path; /forbidden is its own 403."""

    protocol_version = "HTTP/1.1"
    served = []

    def answer(self, got=0):
        self.served.append((self.command, self.path, got))
        body = self.path.encode()
        self.send_response(403 if self.path == "/forbidden" else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer()

    def do_POST(self):
        self.answer(len(self.rfile.read(int(self.headers.get("Content-Length", 0)))))

    def log_message(self, *_):
        pass


@pytest.fixture
def application():
    Application.served = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Application)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


class Proxy:
    """A proxy's process, on a port of its own, once it answers."""

    def __init__(self, command, port, log):
        self.port = port
        with open(log, "wb") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out)
        ends = time.monotonic() + 20
        while True:
            assert self.process.poll() is None, log.read_text()
            try:
                http.client.HTTPConnection("127.0.0.1", port, timeout=5).connect()
                return
            except OSError:
                assert time.monotonic() < ends, log.read_text()
                time.sleep(0.02)

    def ask(self, path="/", method="GET", body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, answer.headers, text

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(20)


def needs(program):
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"no {program} here")


def nginx(folder, stint, application):
    port = free_port()
    recipe = (CONTRIB / "nginx/stint.conf").read_text()
    recipe = recipe.replace("listen 80;", f"listen 127.0.0.1:{port};")
    recipe = recipe.replace("127.0.0.1:8080", f"127.0.0.1:{stint}")
    recipe = recipe.replace("127.0.0.1:3000", f"127.0.0.1:{application}")
    temporary = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in
                        ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (folder / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;\n"
        f"events {{}}\nhttp {{ access_log off; {temporary}{recipe} }}\n")
    return Proxy(["nginx", "-p", folder, "-e", folder / "error.log", "-c", folder / "nginx.conf"],
                 port, folder / "nginx.log")


def haproxy(folder, stint, application):
    port = free_port()
    recipe = (CONTRIB / "haproxy/haproxy.cfg").read_text()
    recipe = recipe.replace("/etc/haproxy/stint.lua", str(CONTRIB / "haproxy/stint.lua"))
    recipe = recipe.replace("bind :80", f"bind 127.0.0.1:{port}")
    recipe = recipe.replace("127.0.0.1:8080", f"127.0.0.1:{stint}")
    recipe = recipe.replace("127.0.0.1:3000", f"127.0.0.1:{application}")
    (folder / "haproxy.cfg").write_text(recipe)
    return Proxy(["haproxy", "-db", "-f", folder / "haproxy.cfg"], port, folder / "haproxy.log")


APACHE_MODULES = Path("/usr/lib/apache2/modules")  # where Debian has them


def apache(folder, stint, application):
    """The recipe is a few lines of a configuration, as Debian's is: here of the least there is."""
    port = free_port()
    hook = (CONTRIB / "apache/stint.lua").read_text().replace("127.0.0.1:8080",
                                                              f"127.0.0.1:{stint}")
    (folder / "stint.lua").write_text(hook)
    recipe = (CONTRIB / "apache/stint.conf").read_text()
    recipe = recipe.replace("/etc/apache2/stint.lua", str(folder / "stint.lua"))
    recipe = recipe.replace("modules/mod_lua.so", str(APACHE_MODULES / "mod_lua.so"))
    modules = "".join(f"LoadModule {name}_module {APACHE_MODULES}/mod_{name}.so\n" for name in
                      ("mpm_event", "authz_core", "proxy", "proxy_http"))
    (folder / "apache.conf").write_text(
        f"ServerRoot {folder}\nServerName localhost\nListen 127.0.0.1:{port}\n"
        f"PidFile {folder}/pid\nDefaultRuntimeDir {folder}\nErrorLog {folder}/error.log\n"
        f"{modules}{recipe}\nProxyPass / http://127.0.0.1:{application}/ nocanon\n")
    return Proxy(["apache2", "-D", "FOREGROUND", "-f", folder / "apache.conf"], port,
                 folder / "apache.log")


def caddy(folder, stint, application):
    port = free_port()
    recipe = (CONTRIB / "caddy/Caddyfile").read_text()
    recipe = recipe.replace(":80 {", f"http://127.0.0.1:{port} {{")
    recipe = recipe.replace("127.0.0.1:8080", f"127.0.0.1:{stint}")
    recipe = recipe.replace("127.0.0.1:3000", f"127.0.0.1:{application}")
    (folder / "Caddyfile").write_text("{\n\tadmin off\n}\n" + recipe)
    return Proxy(["env", f"HOME={folder}", "caddy", "run", "--config", folder / "Caddyfile",
                  "--adapter", "caddyfile"], port, folder / "caddy.log")


PROXIES = [pytest.param(nginx, id="nginx", marks=needs("nginx")),
           pytest.param(haproxy, id="haproxy", marks=needs("haproxy")),
           pytest.param(apache, id="apache", marks=needs("apache2")),
           pytest.param(caddy, id="caddy", marks=needs("caddy"))]


@pytest.mark.parametrize("proxy", PROXIES)
def test_429_comes_at_exactly_the_limit(proxy, application, tmp_path):
    with Server(*OPTIONS, rules=RULES) as server, \
            proxy(tmp_path, server.http, application) as front:
        for left in range(LIMIT - 1, -1, -1):
            status, fields, text = front.ask(f"/page/{left}?q=1")
            assert (status, text) == (200, f"/page/{left}?q=1")
            assert fields["RateLimit-Policy"] == f'"per-address";q={LIMIT};w=3600'
            assert fields["RateLimit"].split(";")[:2] == ['"per-address"', f"r={left}"]
        status, fields, _ = front.ask("/page")
        assert status == 429
        assert fields["RateLimit-Policy"] == f'"per-address";q={LIMIT};w=3600'
        assert fields["RateLimit"].split(";")[:2] == ['"per-address"', "r=0"]
        assert 3600 <= int(fields["Retry-After"]) <= 3600 * 25 / 24 + 1
        # What is refused never reaches the application.
        assert len(Application.served) == LIMIT


@pytest.mark.parametrize("proxy", PROXIES)
def test_a_client_cannot_speak_for_others(proxy, application, tmp_path):
    """The fields that tell of a client are the proxy's: what a client writes there is no evidence.
    """
    lies = [{"X-Forwarded-For": "203.0.113.7"}, {"Forwarded": "for=203.0.113.8"},
            {"X-Original-URI": "/other"}, {"X-Forwarded-Uri": "/other"},
            {"X-Forwarded-For": "203.0.113.9", "Forwarded": "for=1.2.3.4"}]
    with Server(*OPTIONS, rules=RULES) as server, \
            proxy(tmp_path, server.http, application) as front:
        assert [front.ask("/x", headers=lie)[0] for lie in lies] == [200] * LIMIT
        assert front.ask("/x", headers=lies[0])[0] == 429


@pytest.mark.parametrize("proxy", PROXIES)
def test_visitors_who_follow_a_link_from_another_site_are_asked_about(proxy, application, tmp_path):
    """Proxies pass on what browsers say of a page, and Host; neither is the proxy's own."""
    fields = {"Origin": "https://other.example", "Sec-Fetch-Site": "cross-site"}
    if proxy is not caddy:  # Caddy answers for the host of its configuration alone
        fields["Host"] = "www.example.com"
    with Server(*OPTIONS, rules=RULES) as server, \
            proxy(tmp_path, server.http, application) as front:
        status, told, text = front.ask("/x", headers=fields)
        assert (status, text) == (200, "/x")
        assert told["RateLimit"].split(";")[:2] == ['"per-address"', f"r={LIMIT - 1}"]


@pytest.mark.parametrize("proxy", PROXIES)
def test_a_path_has_one_limit_however_it_is_spelt(proxy, application, tmp_path):
    with Server(*OPTIONS, rules=RULES) as server, \
            proxy(tmp_path, server.http, application) as front:
        assert front.ask("/login")[0] == 200
        assert front.ask("//%6Cogin?again")[0] == 200
        status, fields, _ = front.ask("/login", "POST", b"user=1")
        assert status == 429
        assert '"logins";r=0' in fields["RateLimit"]
        assert front.ask("/else")[0] == 200


@pytest.mark.parametrize("proxy", PROXIES)
def test_the_application_s_own_answers_go_through(proxy, application, tmp_path):
    with Server(*OPTIONS, rules=RULES) as server, \
            proxy(tmp_path, server.http, application) as front:
        assert front.ask("/forbidden")[::2] == (403, "/forbidden")
        assert front.ask("/big", "POST", b"x" * 300000)[::2] == (200, "/big")
        assert Application.served == [("GET", "/forbidden", 0), ("POST", "/big", 300000)]


# What the recipes say of a stint that does not answer.
ALONE = {"nginx": 500, "haproxy": 200, "apache": 200, "caddy": 502}


@pytest.mark.parametrize("proxy", PROXIES)
def test_without_stint_it_is_as_the_recipe_says(proxy, application, tmp_path):
    with proxy(tmp_path, free_port(), application) as front:
        assert front.ask("/x")[0] == ALONE[proxy.__name__]
    assert len(Application.served) == (ALONE[proxy.__name__] == 200)
