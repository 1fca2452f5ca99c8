# SPDX-License-Identifier: MIT
"""packaging/chart and packaging/kustomize: what helm and kubectl make of them is valid and fits,
and its pods run as they are rendered."""
import base64
import contextlib
import json
import subprocess
import urllib.parse

import grpc
import pytest
import yaml

import chart
import network
import pod
from go_control_plane import GoControlPlane
from chart import (CHART, CLUSTERS, KUSTOMIZE, NAMESPACES, Pod, Volumes, container_of, objects,
                        render, run, workload)
from program import SOURCE, stint
from redis_server import Redis, until
from rls_messages import OK, OVER_LIMIT, ask_with, descriptor, request
from test_ratelimit_pod import BY_USER, certificates  # noqa: F401 (a fixture)
from transcript import follow

PROFILES = sorted(NAMESPACES)
MONITORED = ["--set", "monitoring.enabled=true,monitoring.labels.release=prometheus"]
PRIVATE = ["--set", "tokens.secretName=tokens,tls.secretName=certificates,resp.enabled=true,"
           "monitoring.tokenSecretName=prometheus"]
ADDRESS = request("edge", descriptor(("remote_address", "192.0.2.1")))
ALERTS = SOURCE / "packaging/alerts/stint.rules.yaml"


# ---- What is rendered ----

@pytest.mark.parametrize("profile", PROFILES)
def test_the_chart_has_no_faults(profile):
    told = run("helm", "lint", "--strict", CHART, "--values", CHART / f"profiles/{profile}.yaml")
    assert "0 chart(s) failed" in told


@pytest.mark.parametrize("options", [[], [*MONITORED, *PRIVATE]], ids=["plain", "all"])
@pytest.mark.parametrize("profile", PROFILES)
def test_objects_are_those_of_kubernetes(profile, options):
    chart.check_schemas(render(profile, *options))


def test_a_wrong_field_is_found():
    """The check itself."""
    wrong = render("server").replace("terminationGracePeriodSeconds", "terminationGraceSeconds")
    with pytest.raises(AssertionError, match="terminationGraceSeconds"):
        chart.check_schemas(wrong)
    wrong = render("server", *MONITORED).replace("interval: 15s", "interval: 15")
    with pytest.raises(AssertionError, match="interval"):
        chart.check_schemas(wrong)


def test_older_clusters_are_refused():
    assert "incompatible with Kubernetes" in render("server", "--kube-version", "1.29", code=1)
    for version in CLUSTERS:
        assert render("server", "--kube-version", version) == render("server")


@pytest.mark.parametrize("profile, option, said", [
    ("server", "replica=2", "additional properties 'replica' not allowed"),
    ("server", "replicas=2", "each pod would allow the whole limit; set store.secretName"),
    ("server", "autoscaling.enabled=true", "each pod would allow the whole limit"),
    ("server", "rules=null", "there are none; set rules, rulesConfigMap or controlPlanes"),
    ("server", "rules.edge=x", "'edge' does not match pattern"),
    ("server", "preStopSeconds=soon", "got string, want integer"),
    ("server", "image.digest=sha1:12", "does not match pattern"),
    ("server", "tokens.secretName=tokens,monitoring.enabled=true", "monitoring.tokenSecretName"),
    ("envoy-gateway", "replicas=2", "each pod would allow the whole limit"),
    ("envoy-gateway", "controlPlanes={http://gateway}", "does not match pattern"),
])
def test_values_that_cannot_be_meant_are_refused(profile, option, said):
    assert said in render(profile, "--set", option, code=1)


@pytest.mark.parametrize("profile", PROFILES)
def test_the_parts_fit_each_other(profile):
    found = objects(render(profile, *MONITORED, *PRIVATE))
    work, name = workload(found), "stint"
    template, container = work["spec"]["template"], container_of(work)
    labels = work["spec"]["selector"]["matchLabels"]
    assert labels.items() <= template["metadata"]["labels"].items()
    service, policy = found["Service", name]["spec"], found["NetworkPolicy", name]["spec"]
    assert service["selector"] == policy["podSelector"]["matchLabels"] == labels
    assert found["ServiceMonitor", name]["spec"]["selector"]["matchLabels"].items() <= \
        found["Service", name]["metadata"]["labels"].items()
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"http": 8080, "grpc": 8081, "resp": 7379}
    assert {port["targetPort"]: port["port"] for port in service["ports"]} == ports
    clients, monitoring = policy["ingress"]
    assert {port["port"] for port in clients["ports"]} == set(ports.values())
    assert [port["port"] for port in monitoring["ports"]] == [ports["http"]]
    claims = work["spec"].get("volumeClaimTemplates", [])
    assert {mount["name"] for mount in container["volumeMounts"]} == \
        {volume["name"] for volume in template["spec"]["volumes"]} | \
        {claim["metadata"]["name"] for claim in claims}
    assert not any("subPath" in mount for mount in container["volumeMounts"])
    assert {each["metadata"]["namespace"] for each in found.values()} == {NAMESPACES[profile]}


@pytest.mark.parametrize("profile", PROFILES)
def test_pods_are_restricted(profile):
    """The Pod Security Standard `restricted`, and no access to the API."""
    spec = workload(objects(render(profile)))["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & set(spec)
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]}}
    for volume in spec["volumes"]:
        assert set(volume) - {"name"} <= {"configMap", "secret"}


def settings_of(found):
    return yaml.safe_load(found["ConfigMap", "stint"]["data"]["stint.yaml"])


@pytest.mark.parametrize("profile", PROFILES)
def test_a_pod_has_time_to_end(profile):
    for drain in (30, 200):
        found = objects(render(profile, "--set", f"drainSeconds={drain}"))
        spec = workload(found)["spec"]["template"]["spec"]
        sleep = container_of(workload(found))["lifecycle"]["preStop"]["sleep"]["seconds"]
        assert settings_of(found)["drain_time"] == f"{drain}s"
        assert spec["terminationGracePeriodSeconds"] > sleep + drain


def test_pods_that_share_a_store_can_be_many():
    found = objects(render("shared-store"))
    (scaler,) = [each["spec"] for (kind, _), each in found.items()
                 if kind == "HorizontalPodAutoscaler"]
    assert scaler["scaleTargetRef"]["kind"] == workload(found)["kind"] == "Deployment"
    assert "replicas" not in workload(found)["spec"]
    # A rollout starts a pod before an old one ends.
    surge = workload(found)["spec"]["strategy"]["rollingUpdate"]["maxSurge"]
    assert settings_of(found)["store_nodes"] == scaler["maxReplicas"] + surge
    budget = found["PodDisruptionBudget", "stint"]["spec"]
    assert 0 < budget["maxUnavailable"] < scaler["minReplicas"]
    selector = workload(found)["spec"]["selector"]
    assert budget["selector"] == selector
    spread = workload(found)["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert [each["labelSelector"] for each in spread] == [selector] * 2
    one = {kind for kind, _ in objects(render("server"))}
    assert one == {"ConfigMap", "NetworkPolicy", "Service", "StatefulSet"}


@pytest.mark.parametrize("option, expected", [
    ("maxUnavailable=2", {"maxUnavailable": 2}), ("minAvailable=2", {"minAvailable": 2}),
    ("minAvailable=50%", {"minAvailable": "50%"})])
def test_a_disruption_budget_has_one_bound(option, expected):
    """The API refuses one with both."""
    found = objects(render("shared-store", "--set", f"podDisruptionBudget.{option}"))
    budget = found["PodDisruptionBudget", "stint"]["spec"]
    bounds = {name: budget[name] for name in ("maxUnavailable", "minAvailable") if name in budget}
    assert bounds == expected


@pytest.mark.parametrize("value", ["", "fast"])
def test_a_storage_class_may_be_none(value):
    """The empty one asks for a volume that is there; without the field, the default makes one."""
    def claim(*options):
        return workload(objects(render("server", *options)))["spec"]["volumeClaimTemplates"][0]

    assert claim("--set", f"state.storageClassName={value}")["spec"]["storageClassName"] == value
    assert "storageClassName" not in claim()["spec"]


def test_a_port_of_tls_is_not_shown_as_http_2():
    """A mesh reads plain HTTP/2 of a port whose protocol is grpc."""
    def protocols(*options):
        service = objects(render("server", *options))["Service", "stint"]
        return {port["name"]: port.get("appProtocol") for port in service["spec"]["ports"]}

    assert protocols() == {"http": "http", "grpc": "grpc"}
    assert protocols(*PRIVATE) == {"http": "http", "grpc": "https", "resp": None}


def test_limits_may_be_in_memory():
    found = objects(render("server", "--set", "state.size=0"))
    assert workload(found)["kind"] == "Deployment" and "state" not in settings_of(found)
    assert workload(found)["spec"]["strategy"] == {"type": "Recreate"}


def test_settings_are_stronger_than_what_the_chart_sets():
    found = settings_of(objects(render("server", "--set", "settings.state=/var/lib/stint/2,"
                                       "settings.http_fields={draft-03}")))
    assert found["state"] == "/var/lib/stint/2" and found["http_fields"] == ["draft-03"]
    assert found["rules"] == ["/etc/stint/rules"]


def test_changed_settings_restart_pods_and_changed_rules_do_not():
    def template(*options):
        return workload(objects(render("server", *options)))["spec"]["template"]

    assert template("--set", "settings.keys=4096") != template()
    assert template("--set-string", "rules.more\\.yaml=domain: more") == template()


def test_alerts_and_dashboard_are_those_of_the_repository(tmp_path):
    found = objects(render("server", *MONITORED))
    rule = found["PrometheusRule", "stint"]
    assert rule["spec"] == yaml.safe_load(ALERTS.read_text())
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    assert json.loads(found["ConfigMap", "stint-dashboard"]["data"]["stint.json"]) == \
        json.loads((SOURCE / "packaging/dashboards/stint.json").read_text())
    prefixed = objects(render("server", *MONITORED, "--set", "monitoring.runbooks=https://x/"))
    spec = prefixed["PrometheusRule", "stint"]["spec"]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(spec))
    run("promtool", "check", "rules", tmp_path / "rules.yaml")
    links = [rule["annotations"]["runbook_url"] for group in spec["groups"]
             for rule in group["rules"] if "alert" in rule]
    assert len(links) > 10 and all(link.startswith("https://x/docs/runbooks.md#") for link in links)


def test_the_package_of_the_chart_has_its_files(tmp_path):
    run("helm", "package", CHART, "--destination", tmp_path)
    (package,) = tmp_path.glob("stint-*.tgz")
    told = run("helm", "template", "stint", package, "--namespace", "ratelimit", *MONITORED,
               "--values", CHART / "profiles/server.yaml")
    assert objects(told) == objects(render("server", *MONITORED))


# ---- Kustomize ----

@pytest.mark.parametrize("profile", PROFILES)
def test_bases_are_what_the_chart_renders(profile):
    assert (KUSTOMIZE / profile / "stint.yaml").read_text() == render(profile), \
        f"packaging/kustomize/{profile}/kustomization.yaml says how to render it"


@pytest.mark.parametrize("base", sorted(path.parent.name for path in
                                        KUSTOMIZE.glob("*/kustomization.yaml")))
def test_bases_build(base):
    built = run("kubectl", "kustomize", KUSTOMIZE / base)
    chart.check_schemas(built)
    if base in NAMESPACES:
        assert objects((KUSTOMIZE / base / "stint.yaml").read_text()).items() <= \
            objects(built).items()


def test_istio_asks_the_service_of_the_chart():
    filters = list(yaml.safe_load_all((SOURCE / "contrib/istio/envoyfilter.yaml").read_text()))
    assert [each["kind"] for each in filters] == ["EnvoyFilter"] * 2
    config = filters[0]["spec"]["configPatches"][0]["patch"]["value"]["typed_config"]
    found = objects(render("server"))
    meta = found["Service", "stint"]["metadata"]
    host = f"{meta['name']}.{meta['namespace']}.svc.cluster.local"
    assert config["rate_limit_service"]["grpc_service"]["envoy_grpc"] == {
        "cluster_name": f"outbound|8081||{host}", "authority": host}
    assert config["rate_limit_service"]["transport_api_version"] == "V3"
    rules = yaml.safe_load(found["ConfigMap", "stint-rules"]["data"]["edge.yaml"])
    assert config["domain"] == rules["domain"]
    actions = filters[1]["spec"]["configPatches"][0]["patch"]["value"]["rate_limits"][0]["actions"]
    assert [set(action) for action in actions] == [{rules["descriptors"][0]["key"]}]


def test_values_for_envoy_gateway_name_the_image():
    """As its chart reads them: the registry is what is before the first slash."""
    values = yaml.safe_load((SOURCE / "contrib/envoy-gateway/values.yaml").read_text())
    registry, _, name = values["global"]["images"]["ratelimit"]["image"].partition("/")
    image = container_of(workload(objects(render("server"))))["image"]
    assert "." in registry and name == image
    assert values["config"]["envoyGateway"]["rateLimit"]["backend"]["type"] == "Redis"


def test_the_page_from_top_to_bottom(tmp_path):
    """As in the folder of the checkout."""
    (tmp_path / "packaging").symlink_to(SOURCE / "packaging")
    page = (SOURCE / "docs/kubernetes.md").read_text()
    follow(page, tmp_path, (), chart.environment(), [chart.tools() / "bin/helm"])


# ---- Pods that run ----

runs = pytest.mark.skipif(pod.why_not() is not None, reason=str(pod.why_not()))


@pytest.fixture
def machine():
    with network.Network(1) as net:
        yield net.machines[0]


def codes(running, times, question=ADDRESS):
    with grpc.insecure_channel(f"{running.address}:{running.ports['grpc']}") as channel:
        return [ask_with(channel)(question, timeout=20).code for _ in range(times)]


@runs
def test_a_server_keeps_its_limits_over_a_new_pod(machine, tmp_path):
    found = objects(render("server"))
    tmp_path.chmod(0o755)
    volumes = Volumes(found, tmp_path / "volumes")
    with Pod(machine, found, volumes) as running:
        assert [running.probe(name) for name in running.probes] == [200] * 3
        assert codes(running, 102) == [OK] * 100 + [OVER_LIMIT] * 2
        assert running.get("/metrics")[0] == 200
        # Clients cannot administer it, and pages of other names are not answered.
        assert running.get("/v1/reload", "-X", "POST")[0] == 403
        assert running.get("/metrics", "-H", "Host: example.org")[0] == 421
        assert running.get("/metrics", "-H", "Host: stint.ratelimit.svc")[0] == 200
        assert running.stop() == 0
    with Pod(machine, found, volumes) as running:
        assert codes(running, 1) == [OVER_LIMIT]


@runs
def test_a_changed_config_map_is_in_force_without_a_restart(machine, tmp_path):
    found = objects(render("server", "--set", "settings.watch=100ms"))
    tmp_path.chmod(0o755)
    volumes = Volumes(found, tmp_path / "volumes")
    rules = chart.contents(found["ConfigMap", "stint-rules"])["edge.yaml"]
    with Pod(machine, found, volumes) as running:
        volumes.write("rules", {"edge.yaml": rules.replace("minute", "fortnight")})
        running.wait_for("reload_failed")
        assert running.probe("readiness") == 200
        assert codes(running, 1) == [OK]
        volumes.write("rules", {"edge.yaml": rules.replace("100", "2")})
        running.wait_for('"event":"reloaded"')
        until(lambda: codes(running, 1) == [OVER_LIMIT], "the new limit")


@runs
def test_pods_share_their_limits_through_redis(tmp_path):
    """Three, beside a Redis of packaging/kustomize/redis; its Secret leads to it."""
    both = objects(run("kubectl", "kustomize", KUSTOMIZE / "redis"))
    secret = {name: base64.b64decode(value).decode()
              for name, value in both["Secret", "stint-store"]["data"].items()}
    url = urllib.parse.urlsplit(secret["url"])
    service = both["Service", "redis"]["metadata"]
    assert url.hostname == f"{service['name']}.{service['namespace']}.svc.cluster.local"
    assert url.password == secret["password"]
    # Late is no fault here, on a machine that is busy.
    patient = "settings.store_timeout=2s,settings.store_connect_timeout=2s"
    found = objects(render("shared-store", "--set", patient)) | {
        ("Secret", "stint-store"): {"stringData": secret}}
    (egress,) = [rule for rule in found["NetworkPolicy", "stint"]["spec"]["egress"]
                 if rule["ports"][0]["port"] == url.port]
    assert egress["to"][0]["podSelector"] == {"matchLabels": both["Service", "redis"]["spec"]
                                              ["selector"]}
    command = container_of(both["StatefulSet", "redis"])["command"]
    options = iter(word.replace("$(PASSWORD)", secret["password"]) for word in command[1:])
    options = {name.lstrip("-"): value or '""' for name, value in zip(options, options)}
    assert options["maxmemory-policy"] == "noeviction" and options.pop("dir") == "/data"
    tmp_path.chmod(0o755)
    with contextlib.ExitStack() as stack:
        net = stack.enter_context(network.Network(3))
        host = net.address(0, 254)
        stack.enter_context(Redis(host=host, port=url.port, **options))
        pods = [stack.enter_context(Pod(machine, found, Volumes(found, tmp_path / machine.name),
                                        {url.hostname: host})) for machine in net.machines]
        assert [each.probe("readiness") for each in pods] == [200] * 3
        question = request("edge", descriptor(("account", "ann")), hits=10)
        answers = [codes(pods[number % 3], 1, question)[0] for number in range(102)]
        # Exactly: no pod decides without the store, which answers.
        assert answers == [OK] * 100 + [OVER_LIMIT] * 2


@runs
def test_the_image_takes_the_place_of_envoyproxy_ratelimit(machine, tmp_path):
    """A Deployment of theirs keeps its environment and its ConfigMap."""
    found = objects(render("server"))
    tmp_path.chmod(0o755)
    volumes = Volumes(found, tmp_path / "volumes")
    env = {"RUNTIME_ROOT": "/data", "RUNTIME_SUBDIRECTORY": "ratelimit",
           "RUNTIME_WATCH_ROOT": "false", "USE_STATSD": "false", "STINT_WATCH": "100ms"}
    mounts = [pod.bind(volumes.folder / "rules", "/data/ratelimit/config")]
    with pod.Container(machine, ["/bin/ratelimit"], env, mounts) as running:
        running.ports = {"grpc": pod.GRPC}
        assert codes(running, 101) == [OK] * 100 + [OVER_LIMIT]
        rules = chart.contents(found["ConfigMap", "stint-rules"])["edge.yaml"]
        volumes.write("rules", {"edge.yaml": rules.replace("100", "101")})
        running.wait_for("info reloaded")
        until(lambda: codes(running, 1) == [OK], "the new limit")


@runs
def test_rules_come_from_envoy_gateway(machine, certificates, tmp_path):  # noqa: F811
    found = objects(render("envoy-gateway")) | {("Secret", "envoy-rate-limit"): {"stringData": {
        path.name: path.read_text() for path in (certificates / "envoy-rate-limit").iterdir()}}}
    own, host = certificates / "envoy-gateway", machine.network.address(0, 254)
    tmp_path.chmod(0o755)
    with GoControlPlane("-cert", own / "tls.crt", "-key", own / "tls.key", "-client-ca",
                        own / "ca.crt", address=f"{host}:{pod.XDS}") as plane:
        plane.replay("1", "limits")
        names = {"envoy-gateway": host}
        with Pod(machine, found, Volumes(found, tmp_path / "volumes"), names) as running:
            plane.accepted("1")
            assert running.probe("readiness") == 200
            shown = (certificates / "envoy-rate-limit" / name for name in
                     ("ca.crt", "tls.key", "tls.crt"))
            credentials = grpc.ssl_channel_credentials(*(each.read_bytes() for each in shown))
            with grpc.secure_channel(
                    f"{running.address}:{running.ports['grpc']}", credentials,
                    options=[("grpc.ssl_target_name_override", "envoy-ratelimit")]) as channel:
                assert [ask_with(channel)(BY_USER, timeout=20).code for _ in range(4)] == \
                    [OK] * 3 + [OVER_LIMIT]


@runs
def test_tokens_and_certificates_of_secrets(machine, certificates, tmp_path):  # noqa: F811
    line, shown = stint("token", "new", "prometheus", "--role", "metrics")
    token = shown.split()[-1]
    found = objects(render("server", *PRIVATE)) | {
        ("Secret", "tokens"): {"stringData": {"tokens": line}},
        ("Secret", "certificates"): {"stringData": {
            name: (certificates / "envoy-rate-limit" / name).read_text()
            for name in ("tls.crt", "tls.key")}}}
    tmp_path.chmod(0o755)
    with Pod(machine, found, Volumes(found, tmp_path / "volumes")) as running:
        assert [running.probe(name) for name in running.probes] == [200] * 3
        assert running.get("/metrics")[0] == 401
        assert running.get("/metrics", "-H", f"Authorization: Bearer {token}")[0] == 200
        done = subprocess.run(
            ["redis-cli", "-h", running.address, "-p", str(running.ports["resp"]), "--tls",
             "--cacert", str(certificates / "envoy-rate-limit/ca.crt"), "--sni", "envoy-ratelimit",
             "--insecure", "PING"], capture_output=True, text=True, timeout=20, check=False)
        assert "NOAUTH" in done.stdout
