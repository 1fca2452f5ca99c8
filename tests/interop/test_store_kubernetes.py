# SPDX-License-Identifier: MIT
"""contrib/kubernetes/shared.yaml: its parts fit each other, and its pods do what they are for, with
their commands and their environment."""
import contextlib
import urllib.parse

import pytest
import yaml

from program import SOURCE
from redis_server import Redis
from server import Server

TEXT = (SOURCE / "contrib/kubernetes/shared.yaml").read_text()


@pytest.fixture(scope="module")
def manifests():
    return {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(TEXT)}


def container_of(manifest):
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    return container


def variables(container, manifests):
    """What a kubelet would set."""
    found = {}
    for each in container["env"]:
        if "value" in each:
            found[each["name"]] = each["value"]
            continue
        source = each["valueFrom"]["secretKeyRef"]
        found[each["name"]] = manifests["Secret", source["name"]]["stringData"][source["key"]]
    return found


def test_the_parts_fit_each_other(manifests):
    assert {each["metadata"].get("namespace", "shared-limits")
            for each in manifests.values()} == {"shared-limits"}
    for kind, name, service in (("Deployment", "stint", "ratelimit"),
                                ("StatefulSet", "redis", "redis")):
        workload, port_of = manifests[kind, name], manifests["Service", service]
        labels = workload["spec"]["template"]["metadata"]["labels"]
        assert workload["spec"]["selector"]["matchLabels"] == labels
        assert port_of["spec"]["selector"] == labels
        assert manifests["NetworkPolicy", name]["spec"]["podSelector"]["matchLabels"] == labels
        ports = {port["name"]: port["containerPort"] for port in container_of(workload)["ports"]}
        assert {port["targetPort"]: port["port"] for port in port_of["spec"]["ports"]} == ports
        (rule,) = manifests["NetworkPolicy", name]["spec"]["ingress"]
        assert {port["port"] for port in rule["ports"]} == set(ports.values())
    assert manifests["StatefulSet", "redis"]["spec"]["serviceName"] == "redis"
    budget = manifests["PodDisruptionBudget", "stint"]["spec"]
    pods = manifests["Deployment", "stint"]["spec"]
    assert budget["selector"] == pods["selector"] and 0 < budget["minAvailable"] < pods["replicas"]
    stint = container_of(manifests["Deployment", "stint"])
    command = stint["command"]
    assert command[command.index("--store-nodes") + 1] == str(pods["replicas"])
    hosts = variables(stint, manifests)["STINT_HTTP_HOSTS"].split(";")
    name = "ratelimit.shared-limits.svc.cluster.local"
    assert hosts == ["ratelimit", "ratelimit.shared-limits", "ratelimit.shared-limits.svc", name]
    mounts = {each["name"] for each in stint["volumeMounts"]}
    assert mounts == {each["name"] for each in pods["template"]["spec"]["volumes"]}


def test_the_secret_leads_to_the_redis_that_is_there(manifests):
    secret = manifests["Secret", "store"]["stringData"]
    url = urllib.parse.urlsplit(secret["url"])
    service = manifests["Service", "redis"]["metadata"]
    assert url.hostname == f"{service['name']}.{service['namespace']}.svc.cluster.local"
    assert url.port == 6379 and url.password == secret["password"]
    redis = container_of(manifests["StatefulSet", "redis"])
    command = redis["command"]
    assert command[command.index("--maxmemory-policy") + 1] == "noeviction"
    assert command[command.index("--appendfsync") + 1] == "always"
    assert command[-1] == "$(PASSWORD)" and variables(redis, manifests)["PASSWORD"]


def test_its_pods_share_their_limits(manifests, tmp_path):
    """Three of them beside the Redis of the same options; the address is the test's."""
    redis = container_of(manifests["StatefulSet", "redis"])
    stint = container_of(manifests["Deployment", "stint"])
    secret = variables(redis, manifests) | variables(stint, manifests)
    options = iter(redis["command"][1:])
    settings = {name.lstrip("-"): value.replace("$(PASSWORD)", secret["PASSWORD"]) or '""'
                for name, value in zip(options, options)}
    (mount,) = stint["volumeMounts"]
    for name, text in manifests["ConfigMap", "rules"]["data"].items():
        (tmp_path / name).write_text(text)
    with contextlib.ExitStack() as stack:
        del settings["dir"]
        store = stack.enter_context(Redis(**settings))
        url = secret["STINT_STORE"].replace("redis.shared-limits.svc.cluster.local:6379",
                                            f"127.0.0.1:{store.port}")
        pods = []
        for _ in range(manifests["Deployment", "stint"]["spec"]["replicas"]):
            program, verb, *words = stint["command"]
            assert (program, verb) == ("stint", "serve")
            words = ["127.0.0.1:0" if word.startswith(":80") else word for word in words]
            words = [word.replace(mount["mountPath"], str(tmp_path)) for word in words]
            words[words.index("--resp") + 1] = "127.0.0.1:0"  # which the test asks at
            words[words.index("--log-format") + 1] = "text"
            words += ["--store-timeout", "2s"]  # late is no fault here, on a machine that is busy
            pods.append(stack.enter_context(Server(*words, ports=False,
                                                   env={"STINT_STORE": url})))
        answers = []
        for number in range(102):
            with pods[number % 3].connect() as client:
                reply = client.ask("STINT.TAKE", "DOMAIN", "edge", "DESCRIPTOR", 1,
                                   "remote_address", "192.0.2.1")
                answers.append(reply[1])
        # Exactly, as nobody asks beside us: a store that failed would allow all.
        assert answers == ["allow"] * 100 + ["deny"] * 2
