# SPDX-License-Identifier: MIT
"""A collector of traces for tests: OTLP over HTTP, whose spans are read by their published field
numbers, so that what the server says is not read by a description that the server was made from.
"""
import socket
import struct
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from rls_messages import fields, one

SERVER, CLIENT, ERROR = 2, 3, 2
PATH = "/v1/traces"


def value(message):
    """AnyValue as Python has it: a text or a number."""
    found = fields(message)
    return one(found, 1).decode() if 1 in found else one(found, 3)


def attributes(messages):
    pairs = [fields(each) for each in messages]
    return {one(pair, 1).decode(): value(one(pair, 2, b"")) for pair in pairs}


class Span:
    def __init__(self, message, resource):
        found = fields(message)
        self.resource = resource
        self.trace_id, self.id = one(found, 1).hex(), one(found, 2).hex()
        self.state, self.parent = one(found, 3, b"").decode(), one(found, 4, b"").hex()
        self.name, self.kind = one(found, 5).decode(), one(found, 6)
        self.begin, self.end = (struct.unpack("<Q", one(found, i))[0] for i in (7, 8))
        self.attributes = attributes(found.get(9, []))
        status = fields(one(found, 15, b""))
        self.has_failed = one(status, 3) == ERROR
        self.message = one(status, 2, b"").decode()


def spans_of(body):
    for of_resource in fields(body).get(1, []):
        found = fields(of_resource)
        resource = attributes(fields(one(found, 1, b"")).get(1, []))
        for of_scope in found.get(2, []):
            yield from (Span(each, resource) for each in fields(of_scope).get(2, []))


class Collector:
    """Takes spans at `url`; `answer(handler)` may answer otherwise than with 200 and no body."""

    def __init__(self, answer=None, context=None):
        self.spans, self.bodies, self.requests = [], [], []
        self.sockets = []
        self.changed = threading.Condition()
        self.answer = answer
        collector = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self):
                collector.sockets.append(self.request)
                super().setup()

            def do_POST(self):
                collector.take(self, read_body(self))

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        if context is not None:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    @property
    def port(self):
        return self.server.server_address[1]

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def take(self, handler, body):
        with self.changed:
            self.requests.append((handler.path, dict(handler.headers)))
        if self.answer is not None and self.answer(handler) != 200:
            return
        with self.changed:
            self.bodies.append(body)
            self.spans += spans_of(body)
            self.changed.notify_all()
        if self.answer is None:
            reply(handler)

    def wait_for(self, n, seconds=20):
        """The spans, once there are n of them."""
        ends = time.monotonic() + seconds
        with self.changed:
            while len(self.spans) < n:
                left = ends - time.monotonic()
                assert left > 0, f"{len(self.spans)} spans, not {n}"
                self.changed.wait(left)
            return list(self.spans)

    def close_idle(self):
        for each in self.sockets:
            each.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def read_body(handler):
    """Envoy's has no length."""
    if "Content-Length" in handler.headers:
        return handler.rfile.read(int(handler.headers["Content-Length"]))
    body = b""
    while size := int(handler.rfile.readline(), 16):
        body += handler.rfile.read(size)
        handler.rfile.readline()
    handler.rfile.readline()
    return body


def reply(handler, status=200, body=b"", **headers):
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body)))
    for name, text in headers.items():
        handler.send_header(name.replace("_", "-"), text)
    handler.end_headers()
    handler.wfile.write(body)
    return status
