# SPDX-License-Identifier: MIT
"""What Envoy Gateway starts as its rate limit service: the command, the environment and the
security context of its Deployment, probed from another address; the rules come over mutual TLS.
"""
import subprocess
from pathlib import Path

import grpc
import pytest

import network
import pod
from go_control_plane import GoControlPlane
from rls_messages import OK, OVER_LIMIT, ask_with, descriptor, request
from tls_authority import RSA, Authority

pytestmark = pytest.mark.skipif(pod.why_not() is not None, reason=str(pod.why_not()))

SHOP = "httproute/default/shop/rule/0/match/0/www_example_com"
BY_USER = request("default/eg/http", descriptor((SHOP, SHOP), ("rule-0-match-0", "ann")))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """As Envoy Gateway makes them: RSA, and the same authority for both sides."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = Authority(folder, "ca", RSA)
    names = "DNS:envoy-gateway,DNS:envoy-ratelimit"
    for name in ("envoy-gateway", "envoy-rate-limit"):
        (folder / name).mkdir()
        files = *authority.sign(name, names=names, key=RSA), authority.certificate
        for file, to in zip(files, ("tls.crt", "tls.key", "ca.crt")):
            (folder / name / to).write_bytes(file.read_bytes())
    for path in folder.parents[0], folder, folder / "envoy-rate-limit":
        path.chmod(0o755)
    return folder


@pytest.fixture
def machine():
    with network.Network(1) as net:
        yield net.machines[0]


class Gateway:
    """The pods of Envoy Gateway: its control plane at the test's address, and the limiter."""

    def __init__(self, machine, certificates):
        self.machine, self.certificates = machine, certificates
        self.address = machine.network.address(0, 254)
        self.hosts = {"envoy-gateway": self.address}

    def control_plane(self):
        own = self.certificates / "envoy-gateway"
        return GoControlPlane("-cert", own / "tls.crt", "-key", own / "tls.key", "-client-ca",
                              own / "ca.crt", address=f"{self.address}:{pod.XDS}")

    def limiter(self, **changed):
        """Without the Redis that its user names: the limits are in the server then."""
        env = pod.environment(**{"REDIS_URL": None, "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL": "100ms",
                                 **changed})
        return pod.Pod(self.machine, env, self.certificates / "envoy-rate-limit", self.hosts)

    def channel(self, limiter):
        credentials = grpc.ssl_channel_credentials(
            (self.certificates / "envoy-rate-limit/ca.crt").read_bytes())
        return grpc.secure_channel(f"{limiter.address}:{pod.GRPC}", credentials, options=[
            ("grpc.ssl_target_name_override", "envoy-ratelimit")])


@pytest.fixture
def gateway(machine, certificates):
    return Gateway(machine, certificates)


def get(limiter, port, path):
    """(status, body), as a probe of the kubelet gets it."""
    done = subprocess.run(["curl", "-s", "-w", "\n%{http_code}",
                           f"http://{limiter.address}:{port}{path}"],
                          capture_output=True, text=True, timeout=20, check=True)
    body, _, status = done.stdout.rpartition("\n")
    return int(status), body


def status_of(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.split() for name, _, value in (line.partition(":") for line in lines)}


def test_it_starts_without_rules_and_without_privileges(gateway):
    """No control plane, no Redis and no collector is there yet."""
    with gateway.limiter(REDIS_URL="redis:6379") as limiter:
        assert get(limiter, pod.HTTP, "/healthcheck") == (200, "OK")
        assert "stint_build_info" in get(limiter, pod.METRICS, "/metrics")[1]
        limiter.wait_for("store_away")
        assert get(limiter, pod.HTTP, "/healthcheck") == (200, "OK")
        found = status_of(limiter.inside())
        assert set(found["Uid"] + found["Gid"]) == {str(pod.ID)}
        assert {found[name][0] for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb")} == {"0" * 16}
        assert found["NoNewPrivs"] == ["1"] and found["Seccomp"] == ["2"]
        mounts = Path(f"/proc/{limiter.inside()}/mountinfo").read_text().splitlines()
        writable = [line.split()[4] for line in mounts if "rw" in line.split()[5].split(",")]
        assert set(writable) <= {"/proc", "/dev"}
        with gateway.channel(limiter) as channel:
            assert ask_with(channel)(BY_USER, timeout=20).code == OK


def test_the_limit_holds_exactly_over_a_lost_control_plane(gateway):
    with gateway.control_plane() as plane:
        plane.replay("1", "limits")
        with gateway.limiter() as limiter, gateway.channel(limiter) as channel:
            plane.accepted("1")
            ask = ask_with(channel)
            codes = [ask(BY_USER, timeout=20).code for _ in range(5)]
            assert codes == [OK] * 3 + [OVER_LIMIT] * 2
            plane.kill()
            limiter.wait_for("xds_lost")
            assert ask(BY_USER, timeout=20).code == OVER_LIMIT
            assert get(limiter, pod.HTTP, "/healthcheck") == (200, "OK")
            # It counts its snapshots from 1 again.
            plane.start()
            plane.replay("1", "changed")
            plane.accepted("1")
            codes = [ask(BY_USER, timeout=20).code for _ in range(3)]
            assert codes == [OK] * 2 + [OVER_LIMIT]
            shown = get(limiter, pod.HTTP, "/rlconfig")[1]
            assert f"xdss://envoy-gateway:{pod.XDS}/default/shop" in shown


def test_its_end_answers_what_it_has(gateway):
    """Kubernetes sends SIGTERM to the first process of the container."""
    with gateway.limiter() as limiter, gateway.channel(limiter) as channel:
        assert ask_with(channel)(BY_USER, timeout=20).code == OK
        assert limiter.stop() == 0
        assert "draining" in limiter.log and "stopped" in limiter.log
