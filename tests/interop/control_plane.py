# SPDX-License-Identifier: MIT
"""A control plane of rules for tests: xDS state of the world, messages written by hand."""
import collections
import queue
import threading
import time
from concurrent import futures

import grpc
import rls_messages
from rls_messages import UNITS, block, fields, number

METHOD = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
TYPE = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"
WAIT_S = 20

Request = collections.namedtuple("Request", "stream version node type nonce error headers")


def policy(unit=None, requests=0, unlimited=False, name="", replaces=()):
    """RateLimitPolicy; the unit by its name."""
    out = number(1, UNITS.index(unit)) if unit else b""
    out += number(2, requests) if requests else b""
    out += number(3, 1) if unlimited else b""
    out += block(4, name) if name else b""
    return out + b"".join(block(5, block(1, each)) for each in replaces)


def struct(members):
    """google.protobuf.Struct of texts."""
    return b"".join(block(1, block(1, key) + block(2, block(3, text)))
                    for key, text in members.items())


def descriptor(key, value="", limit=None, below=(), **flags):
    """RateLimitDescriptor; `limit` is a policy()."""
    out = (block(1, key) if key else b"") + (block(2, value) if value else b"")
    out += block(3, limit) if limit is not None else b""
    out += b"".join(block(4, each) for each in below)
    for field, flag in (5, "shadow_mode"), (6, "detailed_metric"), (7, "quota_mode"):
        out += number(field, 1) if flags.pop(flag, False) else b""
    metadata = flags.pop("metadata", None)
    assert not flags, flags
    return out + (block(8, struct(metadata)) if metadata is not None else b"")


def config(domain, *descriptors, name=None):
    """RateLimitConfig."""
    out = block(1, domain if name is None else name) + block(2, domain)
    return out + b"".join(block(3, each) for each in descriptors)


def response(version, configs, nonce, kind=TYPE):
    """DiscoveryResponse."""
    out = block(1, version) + b"".join(block(2, block(1, kind) + block(2, each))
                                       for each in configs)
    return out + block(4, kind) + block(5, nonce)


def read_request(message, stream, headers):
    parts = fields(message)

    def text(field):
        return parts.get(field, [b""])[0].decode()

    error = fields(parts[6][0])[2][0].decode() if 6 in parts else None
    return Request(stream, text(1), parts.get(2, [b""])[0], text(4), text(5), error, headers)


def node_of(request):
    """(id, metadata) of the node."""
    node = fields(request.node)
    members = [fields(each) for each in fields(node[3][0])[1]] if 3 in node else []
    return node[1][0].decode(), {each[1][0].decode(): fields(each[2][0])[3][0].decode()
                                 for each in members}


class ControlPlane:
    """Sends each new stream the last response, if there is one, and records the requests."""

    def __init__(self, port=0, credentials=None):
        self.changed = threading.Condition()
        self.requests, self.streams, self.last, self.n_sent = [], {}, None, 0
        self.server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
        handler = grpc.stream_stream_rpc_method_handler(self._serve)
        name, method = METHOD[1:].split("/")
        self.server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(name, {method: handler}),))
        address = f"127.0.0.1:{port}"
        self.port = (self.server.add_secure_port(address, credentials) if credentials
                     else self.server.add_insecure_port(address))
        assert self.port > 0
        self.server.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    @property
    def url(self):
        return f"xds://127.0.0.1:{self.port}"

    def stop(self):
        self.server.stop(None).wait(WAIT_S)

    def _serve(self, requests, context):
        replies = queue.Queue()
        headers = dict(context.invocation_metadata())
        if not context.add_callback(lambda: replies.put(None)):
            return  # it has ended already
        # Before its first request is read: a test that waits for that may then send to it.
        with self.changed:
            stream = len(self.streams)
            self.streams[stream] = replies
            if self.last is not None:
                replies.put(self._next(*self.last))
        threading.Thread(target=self._read, args=(requests, stream, headers), daemon=True).start()
        while (reply := replies.get()) is not None:
            yield reply
        with self.changed:
            self.streams[stream] = None

    def _read(self, requests, stream, headers):
        try:
            for message in requests:
                with self.changed:
                    self.requests.append(read_request(message, stream, headers))
                    self.changed.notify_all()
        except grpc.RpcError:
            pass  # the stream has ended

    def _next(self, version, configs):
        self.n_sent += 1
        return response(version, configs, f"nonce-{self.n_sent}")

    def send(self, version, *configs):
        """To every stream, also to those to come."""
        with self.changed:
            self.last = version, configs
            for replies in filter(None, self.streams.values()):
                replies.put(self._next(version, configs))

    def send_bytes(self, message):
        """Any bytes as a response, to the streams that are open."""
        with self.changed:
            for replies in filter(None, self.streams.values()):
                replies.put(message)

    def wait(self, wanted, seconds=WAIT_S):
        """The first request that is wanted."""
        ends = time.monotonic() + seconds
        with self.changed:
            while True:
                for request in self.requests:
                    if wanted(request):
                        return request
                left = ends - time.monotonic()
                assert left > 0, self.requests
                self.changed.wait(left)

    def accepted(self, version):
        return self.wait(lambda one: one.version == version and one.nonce and one.error is None)

    def refused(self, text):
        return self.wait(lambda one: one.error is not None and text in one.error)


def ask(channel, domain, *entries, own=None):
    """The overall code of one descriptor; `own` are its hits."""
    call = channel.unary_unary(rls_messages.PATH)
    asked = rls_messages.descriptor(*entries, hits=own)
    answer = call(rls_messages.request(domain, asked), timeout=WAIT_S)
    return fields(answer).get(1, [0])[0]
