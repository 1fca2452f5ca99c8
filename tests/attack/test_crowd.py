# SPDX-License-Identifier: MIT
"""Twenty hostile clients of each kind at each port: honest clients are served meanwhile, the
hostile ones are ended in their time, and the server ends though they are there.

Real time: what is tried are the kernel's queues, TLS and the server's own limits of time.
"""
import contextlib
import time

import pytest

from attacked import (HONEST_S, IS_SHORT, LIMIT_S, MARGIN_S, PATIENT_S, connections, honest_s,
                      serving)
from clients import FRONTENDS, KIND, KINDS, Swarm, context_for
from measure import cpu_s, metric, until

N = 5 if IS_SHORT else 20
FAREWELL_S = 1  # in which a client has to close its side
DRAIN_S = 1


@pytest.fixture(scope="module")
def server(authority):
    with serving(authority) as running:
        yield running


@pytest.fixture(scope="module")
def patient(authority):
    with serving(authority, limit_s=PATIENT_S) as running:
        yield running


def ports(kind):
    return [frontend + tls for frontend in kind.frontends for tls in kind.ports]


@contextlib.contextmanager
def attacking(server, kind, at, n=N):
    """n clients at each of the ports; the clients."""
    with contextlib.ExitStack() as stack:
        clients = []
        for port in at:
            frontend, _, tls = port.partition("-")
            context = context_for(frontend) if tls else None
            swarm = stack.enter_context(Swarm(kind, server.port(port), n, context))
            clients += swarm.clients
        yield clients


def assert_honest_are_served(server):
    waited = {frontend: honest_s(server, frontend) for frontend in FRONTENDS}
    assert max(waited.values()) < HONEST_S, waited


def assert_at_rest(server, seconds):
    used = cpu_s(server.pid)
    time.sleep(seconds)
    assert cpu_s(server.pid) - used < 0.2 * seconds, "it does not rest"


@pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])
def test_hostile_clients_hold_nobody_up(patient, kind):
    """Twenty of them at each of the kind's ports at once, which no limit of time ends."""
    assert until(lambda: connections(patient) == 0, FAREWELL_S + MARGIN_S), "left over from before"
    with attacking(patient, kind, ports(kind)):
        assert_honest_are_served(patient)
        if kind.is_idle:
            assert_at_rest(patient, 0.4)


@pytest.mark.parametrize("port", [frontend + tls for frontend in FRONTENDS for tls in ("", "-tls")])
def test_hostile_clients_are_ended(server, port):
    """All kinds at once that are to be: they wait for the limits of time together."""
    assert until(lambda: connections(server) == 0, FAREWELL_S + MARGIN_S), "left over from before"
    with contextlib.ExitStack() as stack:
        swarms = {kind: stack.enter_context(attacking(server, kind, [port]))
                  for kind in KINDS if kind.ends and port in ports(kind)}
        assert until(lambda: connections(server) == 0, LIMIT_S + FAREWELL_S + MARGIN_S), \
            f"{connections(server)} stay: {[kind.name for kind in swarms]}"
        assert_honest_are_served(server)
        for kind, clients in swarms.items():
            assert until(lambda: all(client.answer.startswith(kind.says) for client in clients),
                         MARGIN_S), (kind.name, {client.answer[:80] for client in clients})


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.ends],
                         ids=lambda kind: kind.name)
def test_clients_that_stay_hold_nobody_up(server, kind):
    with attacking(server, kind, ports(kind)):
        assert_honest_are_served(server)


@pytest.mark.parametrize("port", [frontend + tls for frontend in FRONTENDS for tls in ("", "-tls")])
def test_the_server_ends_though_they_are_there(authority, port):
    """All kinds at once, before any limit of theirs has passed."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(serving(authority, "--drain-time", f"{DRAIN_S}s",
                                             limit_s=PATIENT_S))
        for kind in KINDS:
            if port in ports(kind):
                stack.enter_context(attacking(server, kind, [port], 3))
        time.sleep(0.3)
        assert server.stop() == 0  # its timeout is shorter than the limits of the clients


def test_those_who_are_ended_are_counted(server):
    refused = "stint_connections_refused_total"
    def count():
        return metric(server.http, refused, frontend="http", reason="idle")
    before = count()
    with attacking(server, KIND["idle"], ["http"], 5):
        assert until(lambda: count() == before + 5, LIMIT_S + MARGIN_S)
