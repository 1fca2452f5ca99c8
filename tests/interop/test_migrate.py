# SPDX-License-Identifier: MIT
"""docs/migrate-from-envoyproxy-ratelimit.md, followed from top to bottom, and what it points to."""
import os
import re
import subprocess

import grpc
import pytest
import yaml

from program import SOURCE
from rls_messages import OK, OVER_LIMIT, ask_with, descriptor, request
from server import Server, free_port
from test_compat import clean
from transcript import blocks, follow

GUIDE = (SOURCE / "docs/migrate-from-envoyproxy-ratelimit.md").read_text()
KUBERNETES = SOURCE / "contrib/kubernetes"


def test_the_guide_from_top_to_bottom(tmp_path):
    """In one shell and an empty folder, on ports of this test."""
    assert len(blocks(GUIDE)) > 9
    follow(GUIDE, tmp_path, ("8080", "8081", "6070"), clean())
    log = (tmp_path / "stint.log").read_text()
    assert "stopped" in log and "reload_failed" in log


def test_its_rules_over_grpc(tmp_path):
    """The same file by the protocol that Envoy speaks."""
    rules = re.search(r"<<'YAML'\n(.*?)^YAML$", GUIDE, re.M | re.S)[1]

    def codes(ask, *descriptors, times=1):
        return [ask(request("edge", *descriptors), timeout=20).code for _ in range(times)]

    with Server(rules=rules) as server:
        with grpc.insecure_channel(f"127.0.0.1:{server.port('grpc')}") as channel:
            ask = ask_with(channel)
            address = descriptor(("remote_address", "192.0.2.7"))
            partner = descriptor(("partner", "acme"))
            login = descriptor(("tenant", "gold"), ("path", "/login/now"))
            assert codes(ask, address, times=4) == [OK, OK, OK, OVER_LIMIT]
            assert codes(ask, address, partner, times=6) == [OK] * 5 + [OVER_LIMIT]
            assert codes(ask, login, times=3) == [OK, OK, OVER_LIMIT]
            assert codes(ask, descriptor(("tenant", "gold"), ("path", "/"))) == [OK]
            assert codes(ask, descriptor(("method", "DELETE")), times=3) == [OK] * 3


def test_the_tests_that_it_names_exist():
    named = re.findall(r"`(tests/[\w/]+\.(?:py|c))::(\w+)`", GUIDE)
    assert len(named) > 10
    for path, name in named:
        text = (SOURCE / path).read_text()
        assert re.search(rf"\b{name}\(|TEST\({name}\)", text), f"{path}::{name}"


# ---- Manifests ----

@pytest.fixture(scope="module")
def manifests():
    return {each["kind"]: each
            for each in yaml.safe_load_all((KUBERNETES / "stint.yaml").read_text())}


def container_of(manifests):
    return manifests["Deployment"]["spec"]["template"]["spec"]["containers"][0]


def test_the_manifests_fit_each_other(manifests):
    deployment, service = manifests["Deployment"], manifests["Service"]
    pod, container = deployment["spec"]["template"], container_of(manifests)
    labels = pod["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    assert service["spec"]["selector"] == labels
    assert manifests["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"http": 8080, "grpc": 8081, "debug": 6070}
    assert {port["name"]: port["port"] for port in service["spec"]["ports"]} == ports
    assert all(port["targetPort"] in ports for port in service["spec"]["ports"])
    reached = {port["port"] for rule in manifests["NetworkPolicy"]["spec"]["ingress"]
               for port in rule["ports"]}
    assert reached == {8081, 6070}
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    sources = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert set(mounts) == set(sources) and "subPath" not in mounts["config"]
    assert sources["config"]["configMap"]["name"] == manifests["ConfigMap"]["metadata"]["name"]
    assert sources["state"]["persistentVolumeClaim"]["claimName"] == \
        manifests["PersistentVolumeClaim"]["metadata"]["name"]
    assert all(each["metadata"].get("namespace", "ratelimit") == "ratelimit"
               for each in manifests.values())


def test_the_pod_has_one_replica_and_no_rights(manifests):
    spec = manifests["Deployment"]["spec"]
    pod, container = spec["template"]["spec"], container_of(manifests)
    assert spec["replicas"] == 1 and spec["strategy"]["type"] == "Recreate"
    assert "PodDisruptionBudget" not in manifests
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]}}
    assert pod["terminationGracePeriodSeconds"] > 30  # --drain-time


def test_the_pod_serves_its_config_map(manifests, tmp_path):
    """Its command and environment, mounted as a kubelet does it, and its probes."""
    container = container_of(manifests)
    env = {each["name"]: each["value"] for each in container["env"]}
    mount = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}["config"]
    assert "/".join([env["RUNTIME_ROOT"], env["RUNTIME_SUBDIRECTORY"],
                     env["RUNTIME_APPDIRECTORY"]]) == mount
    folder = tmp_path / mount.strip("/")
    (folder / "..2026").mkdir(parents=True)
    (folder / "..data").symlink_to("..2026")
    for name, text in manifests["ConfigMap"]["data"].items():
        (folder / "..2026" / name).write_text(text)
        (folder / name).symlink_to(f"..data/{name}")
    ports = {name: str(free_port()) for name in ("PORT", "GRPC_PORT", "DEBUG_PORT")}
    hosts = {name: "127.0.0.1" for name in ("HOST", "GRPC_HOST", "DEBUG_HOST")}
    program, *options = container["command"]
    assert program == "stint"
    options = [option.replace("/var/lib/stint", str(tmp_path)) for option in options]
    with Server(*options[1:], ports=False, env={
            **env, **ports, **hosts, "RUNTIME_ROOT": str(tmp_path / "data"),
            "STINT_WATCH": "100ms", "LOG_FORMAT": "text"}) as server:
        probe = container["livenessProbe"]["httpGet"]
        assert probe["port"] == "http"
        assert subprocess.run(
            ["curl", "-sf", f"http://127.0.0.1:{ports['PORT']}{probe['path']}"],
            capture_output=True, timeout=20, check=True).stdout == b"ok\n"
        with grpc.insecure_channel(f"127.0.0.1:{ports['GRPC_PORT']}") as channel:
            check = channel.unary_unary("/grpc.health.v1.Health/Check", request_serializer=bytes,
                                        response_deserializer=bytes)
            service = container["readinessProbe"]["grpc"]["service"].encode()
            assert check(b"\n" + bytes([len(service)]) + service, timeout=20) == b"\x08\x01"
            assert check(b"", timeout=20) == b"\x08\x01"
            # The kubelet makes another folder, and a rename puts it in force.
            (folder / "..2027").mkdir()
            (folder / "..2027/edge.yaml").write_text(
                manifests["ConfigMap"]["data"]["edge.yaml"].replace("100", "1"))
            (folder / "..new").symlink_to("..2027")
            os.rename(folder / "..new", folder / "..data")
            server.wait_for("info reloaded")
            asked = request("edge", descriptor(("remote_address", "192.0.2.1")))
            assert [ask_with(channel)(asked, timeout=20).code for _ in range(2)] == [OK, OVER_LIMIT]


def test_istio_asks_that_service(manifests):
    filters = list(yaml.safe_load_all((KUBERNETES / "istio.yaml").read_text()))
    assert [each["kind"] for each in filters] == ["EnvoyFilter"] * 2
    config = filters[0]["spec"]["configPatches"][0]["patch"]["value"]["typed_config"]
    meta = manifests["Service"]["metadata"]
    host = f"{meta['name']}.{meta['namespace']}.svc.cluster.local"
    assert config["rate_limit_service"]["grpc_service"]["envoy_grpc"] == {
        "cluster_name": f"outbound|8081||{host}", "authority": host}
    assert config["rate_limit_service"]["transport_api_version"] == "V3"
    rules = yaml.safe_load(manifests["ConfigMap"]["data"]["edge.yaml"])
    assert config["domain"] == rules["domain"]
    actions = filters[1]["spec"]["configPatches"][0]["patch"]["value"]["rate_limits"][0]["actions"]
    assert [set(action) for action in actions] == [{rules["descriptors"][0]["key"]}]
