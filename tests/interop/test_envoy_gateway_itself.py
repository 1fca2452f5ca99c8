# SPDX-License-Identifier: MIT
"""Envoy Gateway itself, its Envoy, and the pod that its Deployment makes: what `make
test-envoy-gateway` runs.

Envoy Gateway runs in host mode, in which it reads its resources from a folder, and starts no
limiter. It would start Envoy, and take it along when it is killed. In a cluster they are pods of
their own; so what it starts here only keeps its arguments, and the test starts Envoy.
"""
import collections
import contextlib
import http.client
import socket
import subprocess
import sys
import time

import pytest
import yaml

import network
import pod
from builds import INTEROP, envoy_gateway, envoy_gateway_source
from proxies import find_envoy, serving
from redis_server import Redis, until
from rls_messages import fields
from server import Asker, Server
from test_ratelimit_pod import Gateway

pytestmark = pytest.mark.skipif(pod.why_not() is not None, reason=str(pod.why_not()))

POLICIES = (INTEROP / "xds/gateway.yaml").read_text()
CHANGED = POLICIES.replace("requests: 3,", "requests: 5,")
BACKEND = "{address: 127.0.0.1, port: 3000}"
PORT = 8888  # of the Gateway there
SERVICE = "envoy-ratelimit.envoy-gateway-system.svc.cluster.local"
HAS_RULES = '"runner": "global-ratelimit"}'  # the line before they are sent
KEEP_ARGUMENTS = """\
#!/bin/sh
printf '%s\\n\\0' "$@" > {0}.new && mv {0}.new {0}
"""


def configuration(folder):
    """A limiter that gives no answer makes a request fail: none passes unseen."""
    homes = {name: str(folder / name) for name in
             ("configHome", "dataHome", "stateHome", "runtimeDir")}
    return {
        "apiVersion": "gateway.envoyproxy.io/v1alpha1", "kind": "EnvoyGateway",
        "gateway": {"controllerName": "gateway.envoyproxy.io/gatewayclass-controller"},
        "provider": {"type": "Custom", "custom": {
            "resource": {"type": "File", "file": {"paths": [str(folder / "resources")]}},
            "infrastructure": {"type": "Host", "host": homes}}},
        "extensionApis": {"enableBackend": True},
        "rateLimit": {"backend": {"type": "Redis", "redis": {"url": "redis:6379"}},
                      "failClosed": True, "timeout": "5s"}}


class EnvoyGateway(Gateway):
    """Its control plane and Envoy at one machine, the limiter at another, Redis at the test's."""

    def __init__(self, own, limiter, folder, application):
        super().__init__(limiter, folder / "configHome/certs")
        self.program, self.folder, self.own = envoy_gateway(), folder, own
        self.backend = f"{{address: {self.address}, port: {application}}}"
        self.hosts = {"envoy-gateway": own.client_address, "redis": self.address,
                      SERVICE: limiter.client_address}
        self.address = own.client_address
        subprocess.run([self.program, "certgen", "--local", "--config-home",
                        folder / "configHome"], capture_output=True, timeout=60, check=True)
        started = folder / "dataHome/envoy-versions/1.40.0/bin/envoy"
        for path in started.parent, folder / "resources":
            path.mkdir(parents=True)
        started.write_text(KEEP_ARGUMENTS.format(folder / "arguments"))
        started.chmod(0o755)
        (folder / "config.yaml").write_text(yaml.safe_dump(configuration(folder)))
        self.apply(POLICIES)

    def apply(self, policies):
        """In one step: of half a file it would make half of the resources."""
        assert BACKEND in policies
        new = self.folder / "resources.yaml"
        new.write_text(policies.replace(BACKEND, self.backend))
        new.rename(self.folder / "resources/all.yaml")

    def control_plane(self):
        command = [*self.own.prefix, "sh", "-c", 'exec "$@" >&2', "sh", self.program, "server",
                   "--config-path", self.folder / "config.yaml"]
        plane = Server(command=command, ports=False, wait=False)
        plane.wait_for(HAS_RULES)
        return plane

    def envoy(self):
        """Once it serves. Behind its own arguments are those of what would have started it."""
        kept = self.folder / "arguments"
        until(kept.exists, "Envoy Gateway starts Envoy")
        arguments = kept.read_text().split("\n\0")
        own = arguments[:arguments.index("--admin-address-path")]
        certificates = self.certificates / "envoy"
        envoy = pod.Container(
            self.own, ["/bin/envoy", "--disable-hot-restart", *own], {},
            [pod.bind(certificates, certificates), pod.bind(certificates, pod.CERTIFICATES)],
            self.hosts, wait=False, program=find_envoy())
        until(self.serves, "Envoy serves")
        return envoy

    def serves(self):
        with socket.socket() as probe:
            return probe.connect_ex((self.address, PORT)) == 0

    def ask(self, connection, user, **headers):
        connection.request("GET", "/", headers={"Host": "www.example.com", "x-user-id": user,
                                                **headers})
        answer = connection.getresponse()
        answer.read()
        return answer.status

    def connect(self):
        return contextlib.closing(http.client.HTTPConnection(self.address, PORT, timeout=20))

    def statuses(self, times, user, **headers):
        with self.connect() as connection:
            return [self.ask(connection, user, **headers) for _ in range(times)]


class User(Asker):
    """Asks without a pause, and counts how it was answered."""

    fault = (OSError, http.client.HTTPException)

    def __init__(self, gateway, name):
        self.gateway, self.statuses = gateway, collections.Counter()
        super().__init__(PORT, key=name)

    def turn(self):
        with self.gateway.connect() as connection:
            while not self.ends.is_set():
                self.statuses[self.gateway.ask(connection, self.key)] += 1


class Crowd:
    """Users of these names, until the `with` is left."""

    def __init__(self, gateway, *names):
        self.users = [User(gateway, name) for name in names]

    def statuses(self):
        """Of all of them."""
        return sum((user.statuses.copy() for user in self.users), collections.Counter())

    def passed(self):
        return [user.statuses[200] for user in self.users]

    def go_on(self, times):
        """Until they were answered so many times more."""
        enough = self.statuses().total() + times
        until(lambda: self.statuses().total() >= enough, "answers", seconds=60)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for user in self.users:
            user.stop()
        assert not any(user.failures for user in self.users), self.users[0].failures[:2]


@pytest.fixture(params=["redis", "table"])
def gateway(request, tmp_path):
    """The environment of the Deployment; and the same with STINT_STORE, which is empty."""
    for path in tmp_path.parents[0], tmp_path:
        path.chmod(0o755)
    with contextlib.ExitStack() as stack:
        machines = stack.enter_context(network.Network(2)).machines
        host = machines[0].network.address(0, 254)
        store = {"STINT_STORE": ""}
        if request.param == "redis":
            stack.enter_context(Redis(host=host, port=6379, protected_mode="no"))
            store = {}
        application = stack.enter_context(serving(host))
        it = EnvoyGateway(*machines, tmp_path, application)
        it.plane = stack.enter_context(it.control_plane())
        it.pod = stack.enter_context(it.limiter(
            REDIS_URL="redis:6379", XDS_CLIENT_BACKOFF_INITIAL_INTERVAL=None, **store))
        it.pod.wait_for("xds_accepted")
        stack.enter_context(it.envoy())
        yield it


def test_the_pod_is_that_of_the_deployment():
    """Telemetry enabled; what a user chooses has other values."""
    made = envoy_gateway_source() / "internal/infrastructure/kubernetes/ratelimit/testdata"
    deployment = yaml.safe_load((made / "deployments/enable-tracing.yaml").read_text())
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    chosen = dict.fromkeys(["REDIS_URL", "OTEL_EXPORTER_OTLP_ENDPOINT",
                            "TRACING_SERVICE_INSTANCE_ID"])
    env = {each["name"]: each.get("value") for each in container["env"]}
    assert {**pod.environment(), **chosen} == {**env, **chosen}
    assert container["command"] == ["/bin/ratelimit"] and "args" not in container
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "privileged": False,
        "readOnlyRootFilesystem": True, "runAsGroup": pod.ID, "runAsNonRoot": True,
        "runAsUser": pod.ID, "seccompProfile": {"type": "RuntimeDefault"}}
    assert {mount["mountPath"] for mount in container["volumeMounts"]} == {
        pod.CERTIFICATES, "/etc/statsd-exporter"}


@pytest.mark.parametrize("gateway", ["table"], indirect=True)
def test_what_was_recorded_is_what_it_sends(gateway, tmp_path):
    sent = tmp_path / "sent.bin"
    subprocess.run([sys.executable, "-B", INTEROP / "xds/record.py",
                    f"{gateway.address}:{pod.XDS}", gateway.certificates / "envoy-rate-limit",
                    sent], capture_output=True, timeout=60, check=True)
    resources = [sorted(fields(path.read_bytes())[2]) for path in (
        sent, INTEROP / "xds/recorded/limits.bin")]
    assert resources[0] == resources[1]


def test_the_limit_is_exact(gateway):
    assert gateway.statuses(5, "ann") == [200] * 3 + [429] * 2
    shared = [*gateway.statuses(3, "bob", **{"x-org": "acme"}),
              *gateway.statuses(3, "carol", **{"x-org": "acme"})]
    assert shared == [200] * 5 + [429]
    with Crowd(gateway, *["dave"] * 8) as crowd:
        crowd.go_on(1000)
    found = crowd.statuses()
    assert found[200] == 3 and set(found) == {200, 429}, found


def test_a_changed_policy_is_in_force_within_a_second(gateway):
    assert gateway.statuses(4, "ann") == [200] * 3 + [429]
    written = time.monotonic()
    gateway.apply(CHANGED)
    gateway.plane.wait_for(HAS_RULES, times=gateway.plane.log.count(HAS_RULES) + 1)
    known = time.monotonic()
    until(lambda: gateway.statuses(1, "ann") == [200], "the new policy", pause_s=0.001)
    held = time.monotonic()
    print(f"a changed policy is in force {1000 * (held - known):.0f} ms after the control plane "
          f"has it, {held - written:.1f} s after the file has")
    assert held - known < 1
    assert gateway.statuses(3, "ann") == [200, 429, 429]


def test_a_control_plane_that_is_killed_and_begins_again_fails_no_request(gateway):
    with Crowd(gateway, "ann", "bob", "carol", "dave") as crowd:
        until(lambda: crowd.statuses()[429] > 100, "the limits are used up")
        gateway.plane.kill()
        gateway.pod.wait_for("xds_lost")
        gateway.apply(CHANGED)
        crowd.go_on(2000)
        assert crowd.passed() == [3] * 4
        with gateway.control_plane():
            gateway.pod.wait_for("xds_accepted", times=2, seconds=60)
            until(lambda: crowd.passed() == [5] * 4, "the new policy")
            crowd.go_on(1000)
    found = crowd.statuses()
    print(f"a control plane that is killed and begins again: {found.total()} requests, {found}")
    assert crowd.passed() == [5] * 4 and set(found) == {200, 429}, found
