# SPDX-License-Identifier: MIT
"""The proxies that contrib/ has recipes for, each started with its recipe.

The files are those that users copy. Replaced are addresses, and on request the time-outs, the
number of stint servers and the fail-open switch, each in the way that the recipe itself describes.
"""
import contextlib
import http.client
import http.server
import platform
import re
import shutil
import socket
import socketserver
import subprocess
import threading
import time
from pathlib import Path

import pytest

from builds import INTEROP, venv
from program import SOURCE
from server import free_port

CONTRIB = SOURCE / "contrib"
OPTIONS = ["--http-domain", "web", "--http-descriptors", "address", "--http-descriptors", "path",
           "--http-trusted-proxies", "127.0.0.1"]
APACHE_MODULES = Path("/usr/lib/apache2/modules")  # where Debian has them
STATUS = re.compile(rb"^HTTP/1\.[01] ([2-5]\d\d)", re.MULTILINE)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


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


@contextlib.contextmanager
def serving(address="127.0.0.1"):
    """The port of an application there."""
    Application.served = []
    server = http.server.ThreadingHTTPServer((address, 0), Application)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


@pytest.fixture
def application():
    with serving() as port:
        yield port


class Peer(socketserver.ThreadingTCPServer):
    """Answers each connection with the same bytes, and keeps the heads of the requests.

    It has no limits of its own, so that no refusal of it hides what a proxy lets through. An answer
    of None never comes.
    """

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, answer=OK):
        self.answer, self.heads, self.ended = answer, [], threading.Event()
        super().__init__(("127.0.0.1", 0), Exchange)
        self.port = self.server_address[1]
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05},
                         daemon=True).start()

    def __exit__(self, *_):
        self.ended.set()
        self.shutdown()
        self.server_close()


class Exchange(socketserver.BaseRequestHandler):
    def handle(self):
        head = b""
        self.request.settimeout(20)
        try:
            while b"\r\n\r\n" not in head:
                got = self.request.recv(65536)
                if not got:
                    return
                head += got
            self.server.heads.append(head)
            if self.server.answer is None:
                self.server.ended.wait(30)
                return
            self.request.sendall(self.server.answer)
            self.request.shutdown(socket.SHUT_WR)
            while self.request.recv(65536):
                pass
        except OSError:
            pass


class Proxy:
    """A proxy's process, on a port of its own, once it listens there and at its `inner` port."""

    def __init__(self, command, port, log, inner=None):
        self.port = port
        with open(log, "wb") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out)
        self.wait_for(port, log)
        if inner is not None:
            self.wait_for(inner, log)

    def wait_for(self, port, log):
        ends = time.monotonic() + 20
        while True:
            assert self.process.poll() is None, log.read_text()
            try:
                socket.create_connection(("127.0.0.1", port), 5).close()
                return
            except OSError:
                assert time.monotonic() < ends, log.read_text()
                time.sleep(0.02)

    def ask(self, path="/", method="GET", body=None, headers=None, source="127.0.0.1"):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20,
                                                source_address=(source, 0))
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, answer.headers, text

    def send(self, data, source):
        """The status that comes for these bytes; 0: none did."""
        with socket.create_connection(("127.0.0.1", self.port), 20, (source, 0)) as connection:
            got = b""
            try:
                connection.sendall(data)
                while more := connection.recv(65536):
                    got += more
                    if STATUS.search(got):
                        connection.settimeout(0.3)  # what else comes, up to the end
            except OSError:
                pass  # closed while bytes were still sent, or kept open
        found = STATUS.search(got)
        return int(found[1]) if found else 0

    @staticmethod
    def pause():
        time.sleep(0.05)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(20)


def read_recipe(name, *edits):
    """A file of contrib/; each edit is (old, new), and what it replaces has to be there."""
    text = (CONTRIB / name).read_text()
    for old, new in edits:
        assert old in text, f"{name}: no '{old}'"
        text = text.replace(old, new)
    return text


# Each takes a folder of its own and the ports of stint and of the application. `patient`: a stall
# of this machine is no missing answer. `client_field`: the client's X-Api-Key goes to stint, too.

def nginx(folder, stints, application, patient=True, fail_open=False, client_field=False):
    port = free_port()
    edits = []
    if len(stints) > 1:
        line = "    server 127.0.0.1:8080 max_fails=0;\n"
        edits.append((line, "".join(line.replace("8080", str(stint)) for stint in stints)))
    edits += [("listen 80;", f"listen 127.0.0.1:{port};"),
              ("server 127.0.0.1:3000;", f"server 127.0.0.1:{application};")]
    if len(stints) == 1:
        edits.append(("server 127.0.0.1:8080", f"server 127.0.0.1:{stints[0]}"))
    if patient:
        edits.append(("_timeout 250ms;", "_timeout 5s;"))
    if fail_open:
        edits.append(("#error_page 500", "error_page 500"))
    if client_field:
        edits += [("#proxy_set_header X-Api-Key", "proxy_set_header X-Api-Key"),
                  ("$host$request_uri", "$host$request_uri$http_x_api_key")]
    recipe = read_recipe("nginx/stint.conf", *edits)
    temporary = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in
                        ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (folder / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;\n"
        f"events {{}}\nhttp {{ access_log off; {temporary}{recipe} }}\n")
    return Proxy(["nginx", "-p", folder, "-e", folder / "error.log", "-c", folder / "nginx.conf"],
                 port, folder / "nginx.log")


def haproxy(folder, stints, application, patient=True, fail_open=False, client_field=False):
    port = free_port()
    edits = [("TIMEOUT_MS = 250", "TIMEOUT_MS = 5000")] if patient else []
    if client_field:
        edits.append(("CLIENT_FIELDS = {}", 'CLIENT_FIELDS = { "x-api-key" }'))
    (folder / "stint.lua").write_text(read_recipe("haproxy/stint.lua", *edits))
    inner, line = free_port(), "    server first 127.0.0.1:8080\n"
    edits = [("/etc/haproxy/stint.lua", str(folder / "stint.lua")),
             ("bind :80\n", f"bind 127.0.0.1:{port}\n"), ("127.0.0.1:8079", f"127.0.0.1:{inner}"),
             ("server application 127.0.0.1:3000", f"server application 127.0.0.1:{application}"),
             (line, "".join(line.replace("first", f"s{stint}").replace(
                 "8080\n", f"{stint} check\n" if len(stints) > 1 else f"{stint}\n")
                            for stint in stints))]
    if patient:
        edits += [("timeout connect 250ms", "timeout connect 5s"),
                  ("timeout server 250ms", "timeout server 5s")]
    if fail_open:
        edits.append(("acl stint_fail_open always_false", "acl stint_fail_open always_true"))
    (folder / "haproxy.cfg").write_text(read_recipe("haproxy/haproxy.cfg", *edits))
    return Proxy(["haproxy", "-db", "-f", folder / "haproxy.cfg"], port, folder / "haproxy.log",
                 inner)


def apache(folder, stints, application, patient=True, fail_open=False, client_field=False):
    """The recipe is a few lines of a configuration, as Debian's is: here of the least there is."""
    port = free_port()
    servers = ", ".join(f'"http://127.0.0.1:{stint}"' for stint in stints)
    edits = [('"http://127.0.0.1:8080"', servers)]
    if patient:
        edits.append(("http.TIMEOUT = 0.25", "http.TIMEOUT = 5"))
    if fail_open:
        edits.append(("FAIL_OPEN = false", "FAIL_OPEN = true"))
    if client_field:
        edits.append(("CLIENT_FIELDS = {}", 'CLIENT_FIELDS = { "X-Api-Key" }'))
    (folder / "stint.lua").write_text(read_recipe("apache/stint.lua", *edits))
    recipe = read_recipe("apache/stint.conf",
                         ("/etc/apache2/stint.lua", str(folder / "stint.lua")),
                         ("modules/mod_lua.so", str(APACHE_MODULES / "mod_lua.so")))
    modules = "".join(f"LoadModule {name}_module {APACHE_MODULES}/mod_{name}.so\n" for name in
                      ("mpm_event", "authz_core", "proxy", "proxy_http"))
    (folder / "apache.conf").write_text(
        f"ServerRoot {folder}\nServerName localhost\nListen 127.0.0.1:{port}\n"
        f"PidFile {folder}/pid\nDefaultRuntimeDir {folder}\nErrorLog {folder}/error.log\n"
        f"{modules}{recipe}\nProxyPass / http://127.0.0.1:{application}/ nocanon\n")
    return Proxy(["apache2", "-D", "FOREGROUND", "-f", folder / "apache.conf"], port,
                 folder / "apache.log")


def caddy(folder, stints, application, patient=True, fail_open=False, client_field=False):
    port, inner = free_port(), free_port()
    edits = [("\n:80 {", f"\nhttp://:{port} {{\n\tbind 127.0.0.1"),
             ("8079", str(inner)), ("127.0.0.1:3000", f"127.0.0.1:{application}"),
             ("127.0.0.1:8080", " ".join(f"127.0.0.1:{stint}" for stint in stints))]
    if patient:
        edits += [("_timeout 250ms", "_timeout 5s")]
    if fail_open:
        edits.append(("#import stint_fail_open", "import stint_fail_open"))
    if client_field:
        edits += [("#header_up X-Api-Key", "header_up X-Api-Key"),
                  ("#key {http", "key {http"),
                  ("{http.request.uri}).size()",
                   "{http.request.uri} + {http.request.header.X-Api-Key}).size()")]
    recipe = read_recipe("caddy/Caddyfile", *edits)
    (folder / "Caddyfile").write_text("{\n\tadmin off\n}\n" + recipe)
    return Proxy(["env", f"HOME={folder}", "caddy", "run", "--config", folder / "Caddyfile",
                  "--adapter", "caddyfile"], port, folder / "caddy.log", inner)


def traefik(folder, stints, application, patient=True, fail_open=False, client_field=False):
    """It has no fail-open, waits for 30 s, and has one address for all servers of stint."""
    assert not fail_open and len(stints) == 1
    port = free_port()
    field = "          - X-Forwarded-For\n"
    edits = [(field, field + "          - X-Api-Key\n")] if client_field else []
    (folder / "dynamic.yaml").write_text(read_recipe(
        "traefik/stint.yaml", *edits, ("10.0.0.5:8080", f"127.0.0.1:{stints[0]}"),
        ("10.0.0.6:3000", f"127.0.0.1:{application}")))
    api = free_port()
    proxy = Proxy(["traefik", f"--providers.file.filename={folder}/dynamic.yaml",
                   f"--entryPoints.web.address=127.0.0.1:{port}", "--api.insecure=true",
                   f"--entryPoints.traefik.address=127.0.0.1:{api}",
                   "--global.checkNewVersion=false"], port, folder / "traefik.log")
    # It listens before it has read the file.
    ends = time.monotonic() + 20
    while not knows(api, "/api/http/routers/application@file"):
        assert time.monotonic() < ends, (folder / "traefik.log").read_text()
        time.sleep(0.05)
    return proxy


def knows(port, path):
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except OSError:
        return False


def find_envoy():
    """Where the virtual environment in the build folder has it."""
    if platform.machine() != "x86_64":
        pytest.skip("PyPI has Envoy for x86-64 alone")
    return next(venv(INTEROP / "envoy").glob("lib/python3*/site-packages/envoy/_bin/envoy"))


def envoy(folder, stints, application, patient=True, fail_open=False, replace=()):
    """Its ports of stint are those of gRPC."""
    port = free_port()
    edits = [("0.0.0.0, port_value: 80}", f"127.0.0.1, port_value: {port}}}"),
             ("port_value: 3000", f"port_value: {application}")]
    line = next(line for line in read_recipe("envoy/envoy.yaml").splitlines(True)
                if "port_value: 8081" in line)
    edits.append((line, "".join(line.replace("8081", str(stint)) for stint in stints)))
    if patient:
        edits += [("timeout: 0.1s", "timeout: 5s"),
                  ("connect_timeout: 0.25s", "connect_timeout: 5s")]
    if fail_open:
        edits.append(("failure_mode_deny: true", "failure_mode_deny: false"))
    (folder / "envoy.yaml").write_text(read_recipe("envoy/envoy.yaml", *edits, *replace))
    return Proxy([find_envoy(), "-c", folder / "envoy.yaml", "--log-level", "warn",
                  "--concurrency", "1", "--disable-hot-restart"], port, folder / "envoy.log")


def needs(program):
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"no {program} here")


PROXIES = [pytest.param(nginx, id="nginx", marks=needs("nginx")),
           pytest.param(haproxy, id="haproxy", marks=needs("haproxy")),
           pytest.param(apache, id="apache", marks=needs("apache2")),
           pytest.param(caddy, id="caddy", marks=needs("caddy"))]
# Debian has no package of Traefik: tried where there is a program of that name.
TRAEFIK = pytest.param(traefik, id="traefik", marks=needs("traefik"))
ENVOY = pytest.param(envoy, id="envoy")
