# SPDX-License-Identifier: MIT
"""SIGTERM to a server in use, as Kubernetes ends a pod: what is open is answered, nothing begins,
and clients of gRPC, whose connections never end by themselves, go elsewhere without a failed call.

One client that reads nothing keeps the server from its end for as long as a test needs.
"""
import concurrent.futures
import signal

import grpc

from redis_server import until
from rls_messages import HEALTH, NOT_SERVING, OK, SERVING, descriptor, fields, one, request
from server import Server, listens
from test_serve import RULES, leave_unread
from test_serve_grpc_ports import Caller

PATIENT = ["--drain-time", "5m"]  # that of Envoy Gateway's pod
TAKE = {"quota": "gcra 1/40s burst=1", "key": "k"}  # the next comes before 50 s are over
AT_ONCE = 50


def end(server):
    """Ports are closed to probes of a kubelet as to any client; the server goes on."""
    server.tell(signal.SIGTERM)
    until(lambda: not any(listens(server.port(each)) for each in server.frontends), "closed ports")
    assert server.process.poll() is None


def test_what_is_open_is_answered_and_nothing_begins():
    with Server(*PATIENT, rules=RULES) as server, \
            concurrent.futures.ThreadPoolExecutor() as pool, \
            grpc.insecure_channel(f"127.0.0.1:{server.port('grpc')}") as channel:
        assert server.post("/v1/take", TAKE)[0] == 200
        waiting = pool.submit(server.post, "/v1/take", {**TAKE, "wait_ms": 50000})
        watch = channel.unary_stream(HEALTH + "Watch", request_serializer=bytes,
                                     response_deserializer=fields)(b"", timeout=30)
        assert one(next(watch), 1) == SERVING
        with server.connect() as resp:
            resp.send("STINT.TAKE", "QUOTA", TAKE["quota"], TAKE["key"], "WAIT", 50000)
            with leave_unread(server):
                end(server)
                assert one(next(watch), 1) == NOT_SERVING
                assert resp.read()[:2] == ["outcome", "deny"] and resp.is_closed()
                assert waiting.result(20)[0] == 429
        assert server.wait() == 0


class Burst(Caller):
    """Calls that are open at once."""

    def turn(self):
        calls = [self.ask.future(request("edge", descriptor(("free", "u"))), timeout=20)
                 for _ in range(AT_ONCE)]
        assert {call.result().code for call in calls} == {OK}
        self.asked += AT_ONCE


def test_clients_of_grpc_go_elsewhere_and_no_call_fails():
    with Server(*PATIENT, rules=RULES) as old, Server(rules=RULES) as new:
        callers = [Burst(old.port("grpc"), new.port("grpc")) for _ in range(4)]
        try:
            until(lambda: all(caller.asked for caller in callers), "all have asked the first")
            with leave_unread(old):
                end(old)
                before = sum(caller.asked for caller in callers)
                until(lambda: sum(caller.asked for caller in callers) > before + 5000,
                      "calls while it ends")
                assert old.process.poll() is None
            assert old.wait() == 0 and "drain_late" not in old.log
        finally:
            for caller in callers:
                caller.stop()
        assert not any(caller.failures for caller in callers), callers[0].failures[:2]
