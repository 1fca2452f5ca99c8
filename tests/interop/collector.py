# SPDX-License-Identifier: MIT
"""Collectors of traces for tests: OTLP over HTTP and gRPC. Spans are read by their published field
numbers, so that what the server says is not read by a description that the server was made from.
"""
import socket
import struct
import threading
import time
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc

from rls_messages import fields, one

SERVER, CLIENT, ERROR = 2, 3, 2


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


class Arrived:
    """What has come to a collector."""

    def __init__(self):
        self.spans, self.bodies, self.requests = [], [], []
        self.changed = threading.Condition()

    def begin(self, path, headers):
        with self.changed:
            self.requests.append((path, {name.lower(): text for name, text in headers}))

    def keep(self, body):
        with self.changed:
            self.bodies.append(body)
            self.spans += spans_of(body)
            self.changed.notify_all()

    def wait_for(self, n, seconds=20):
        """The spans, once there are n of them."""
        ends = time.monotonic() + seconds
        with self.changed:
            while len(self.spans) < n:
                left = ends - time.monotonic()
                assert left > 0, f"{len(self.spans)} spans, not {n}"
                self.changed.wait(left)
            return list(self.spans)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Collector(Arrived):
    """Takes spans at `url`; `answer(handler)` may answer otherwise than with 200 and no body."""
    path = "/v1/traces"

    def __init__(self, answer=None, context=None):
        super().__init__()
        self.sockets = []
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
        self.begin(handler.path, handler.headers.items())
        if self.answer is not None and self.answer(handler) != 200:
            return
        self.keep(body)
        if self.answer is None:
            reply(handler)

    def close_idle(self):
        for each in self.sockets:
            each.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class GrpcCollector(Arrived):
    """The same over gRPC; `answer(context)` returns a message, or aborts the call."""
    path = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"

    def __init__(self, answer=None, credentials=None):
        super().__init__()
        self.answer, self.credentials, self.port = answer, credentials, 0
        self.open()

    @property
    def url(self):
        return f"grpc://127.0.0.1:{self.port}"

    def open(self):
        service, method = self.path[1:].split("/")
        handlers = {method: grpc.unary_unary_rpc_method_handler(self.take)}
        self.server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
        self.server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(service, handlers),))
        address = f"127.0.0.1:{self.port}"
        self.port = (self.server.add_secure_port(address, self.credentials) if self.credentials
                     else self.server.add_insecure_port(address))
        assert self.port > 0
        self.server.start()

    def take(self, body, context):
        self.begin(self.path, context.invocation_metadata())
        message = self.answer(context) if self.answer is not None else b""
        self.keep(body)
        return message

    def close_idle(self):
        self.close()
        self.open()

    def close(self):
        self.server.stop(None).wait(20)


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
