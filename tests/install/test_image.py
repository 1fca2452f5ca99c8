# SPDX-License-Identifier: MIT
"""The container image: what is in it, that it is the same whenever it is made, and that it serves
under the rights that Kubernetes leaves to it.

Real time: what is tried is the kernel's namespaces, and a server that is probed.
"""
import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from pathlib import Path

import packages
import pytest
from container import USER, Container
from machine import needs_namespaces, network_of

sys.path.insert(0, str(packages.SOURCE / "tests/interop"))
import chart  # noqa: E402
import network  # noqa: E402
from rls_messages import OK, OVER_LIMIT  # noqa: E402
from test_kubernetes import codes, runs  # noqa: E402

STINT = os.environ["STINT_BIN"]
SIZE_MAX = 30_000_000
POD = "192.0.2.10"
RULES = """
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 3}
"""


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=False, timeout=120, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def make(folder):
    run(packages.SOURCE / "tools/make_image.py", folder, packages.one("stint"))
    return folder


@pytest.fixture(scope="module", name="folder")
def made(tmp_path_factory):
    return make(tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="module", name="image")
def configured(folder):
    """Its configuration, found as a runtime finds it."""
    return json.loads(run("skopeo", "inspect", "--config", "--raw", f"oci:{folder}/oci"))


@pytest.fixture(scope="module", name="open_folder")
def readable():
    """A folder that a user of the test's own can read, unlike those of pytest."""
    with tempfile.TemporaryDirectory(prefix="stint-image-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@pytest.fixture(scope="module", name="bundle")
def unpacked(folder, open_folder):
    bundle = open_folder / "bundle"
    version = json.loads((folder / "oci/index.json").read_text())["manifests"][0]["annotations"]
    run("umoci", "unpack", "--image",
        f"{folder}/oci:{version['org.opencontainers.image.ref.name']}", bundle)
    bundle.chmod(0o755)
    return bundle


def files(bundle):
    return {path.relative_to(bundle / "rootfs").as_posix(): path
            for path in (bundle / "rootfs").rglob("*") if path.is_file() and not path.is_symlink()}


def test_it_is_the_same_to_the_byte_whenever_it_is_made(folder, tmp_path):
    again = make(tmp_path / "again")
    (first,), (second,) = folder.glob("*.tar"), again.glob("*.tar")
    assert first.read_bytes() == second.read_bytes()
    assert re.fullmatch(r"stint-[\d.]+-(amd64|arm64)\.tar", first.name)


def test_it_is_small_and_has_no_shell(bundle):
    there = files(bundle)
    assert sum(path.stat().st_size for path in there.values()) <= SIZE_MAX
    programs = {name for name, path in there.items()
                if os.access(path, os.X_OK) and not name.startswith("usr/lib/")
                and os.stat(path).st_mode & 0o111}
    assert programs == {"usr/bin/stint"}
    assert (bundle / "rootfs/usr/bin/ratelimit").readlink() == Path("stint")
    assert not [name for name in there if os.stat(there[name]).st_mode & 0o7022]


def test_every_file_is_of_a_package_of_the_list(bundle, folder):
    (listed,) = folder.glob("*.spdx.json")
    document = json.loads(listed.read_text())
    inside = bundle / "rootfs/usr/share/doc/stint/sbom.spdx.json"
    assert inside.read_text() == listed.read_text()
    sums = {file["fileName"].removeprefix("./"): file["checksums"][1]["checksumValue"]
            for file in document["files"]}
    there = files(bundle)
    code = {name for name in there if not re.match(r"etc/(group|passwd|nsswitch\.conf)$"
                                                   r"|usr/share/doc/|var/lib/dpkg/", name)}
    assert set(sums) == code
    for name, expected in sums.items():
        assert hashlib.sha256(there[name].read_bytes()).hexdigest() == expected, name
    entries = {package["name"]: package for package in document["packages"]}
    assert {"stint", "libc6", "libgnutls30", "ca-certificates", "libjs-chart.js"} <= set(entries)
    libc = run("dpkg-query", "-W", "-f", "${Version}", "libc6")
    assert entries["libc6"]["versionInfo"] == libc
    for name, package in entries.items():
        assert package["externalRefs"][0]["referenceLocator"].startswith("pkg:")
        if package["filesAnalyzed"]: # its license, and its record for scanners of vulnerabilities
            assert f"usr/share/doc/{name}/copyright" in there
            assert f"var/lib/dpkg/status.d/{name}" in there


def test_its_labels_and_its_user(folder, image):
    labels = image["config"]["Labels"]
    assert labels["org.opencontainers.image.version"] in run(STINT, "--version")
    assert labels["org.opencontainers.image.licenses"] == "MIT"
    assert image["config"]["User"] == f"{USER}:{USER}"
    assert image["os"] == "linux"
    with tarfile.open(next(folder.glob("*.tar"))) as archive: # what `docker load` reads
        loaded = json.load(archive.extractfile("manifest.json"))[0]
        assert loaded["RepoTags"] == [f"stint:{labels['org.opencontainers.image.version']}"]
        assert json.load(archive.extractfile(loaded["Config"])) == image


def tree(root):
    """Paths below it, with what is there."""
    return {path.relative_to(root).as_posix():
            path.readlink() if path.is_symlink() else path.is_file() and path.read_bytes()
            for path in root.rglob("*")}


def test_a_dockerfile_makes_the_same(folder, bundle, image, tmp_path):
    """The steps after its Debian, and what the image of it says of itself."""
    lines = (packages.SOURCE / "packaging/image/Dockerfile").read_text().replace("\\\n", "")
    steps = [line.split(None, 1) for line in lines.splitlines()[1:] if line[:1].isupper()]
    found = {word: text for word, text in steps}
    command = found["RUN"].split("&&")[-1].split()
    assert command == ["python3", "tools/make_image.py", "--unpack", "/files", "build-image",
                       "build-deb/stint_*.deb"] and "make image" in found["RUN"]
    run(packages.SOURCE / "tools/make_image.py", "--unpack", tmp_path / "files",
        tmp_path / "image", packages.one("stint"))
    assert tree(tmp_path / "files") == tree(bundle / "rootfs")
    assert [text for word, text in steps if word == "COPY"][1:] == [
        "--from=build /files/ /",
        "--from=build --chown=65534:65534 /files/var/lib/stint /var/lib/stint"]
    config = image["config"]
    assert json.loads(found["ENTRYPOINT"]) == config["Entrypoint"]
    assert json.loads(found["CMD"]) == config["Cmd"]
    assert found["USER"] == config["User"] and found["WORKDIR"] == config["WorkingDir"]
    assert {f"{port}/tcp" for port in found["EXPOSE"].split()} == set(config["ExposedPorts"])
    labels = dict(re.findall(r'([\w.]+)="([^"]*)"', found["LABEL"]))
    assert labels.items() <= config["Labels"].items()


def get(path):
    with urllib.request.urlopen(f"http://{POD}:8080{path}", timeout=20) as answer:
        return answer.status, answer.read()


@needs_namespaces
@pytest.mark.parametrize("user", [0, 54321], ids=["root", "rootless"])
def test_it_serves_under_the_rights_of_kubernetes(bundle, image, open_folder, user):
    """What a deployment of envoyproxy/ratelimit starts, with its files and its environment."""
    rules = open_folder / "rules"
    (rules / "ratelimit/config").mkdir(parents=True, exist_ok=True)
    (rules / "ratelimit/config/edge.yaml").write_text(RULES)
    started = time.monotonic()
    env = {"RUNTIME_ROOT": "/data", "RUNTIME_SUBDIRECTORY": "ratelimit", "USE_STATSD": "false",
           "RUNTIME_APPDIRECTORY": "config", "LOG_LEVEL": "info", "STINT_INSECURE": "true"}
    with Container(bundle, image, ["/bin/ratelimit"], env=env, folders={"/data": rules},
                   user=user) as container:
        print(f"{1000 * (time.monotonic() - started):.0f} ms until it serves")
        with network_of(container.pid):
            run("ip", "address", "add", f"{POD}/32", "dev", "lo")
            run("ip", "link", "set", "lo", "up")
            assert get("/healthcheck") == (200, b"OK")
            assert run(STINT, "rls", "health", f"{POD}:8081") == "SERVING\n"
            for left in (2, 1, 0):
                assert f"{left} left of 3" in run(
                    STINT, "rls", "ask", "--domain", "edge", "--descriptor", "user=u",
                    f"{POD}:8081")
        status = Path(f"/proc/{container.pid}/status").read_text()
        assert re.search(r"^CapBnd:\t0+$", status, re.M) and "NoNewPrivs:\t1" in status
        assert "Seccomp:\t2" in status
        outside = user or USER
        assert re.search(rf"^Uid:\t{outside}\t{outside}", status, re.M)
        assert container.stop() == 0, container.log.read_text()


@runs
def test_a_pod_of_the_chart_runs_in_it(bundle, open_folder):
    """As tests/interop runs it with the program of the build folder; here from the image alone."""
    found = chart.objects(chart.render("server"))
    volumes = chart.Volumes(found, open_folder / "volumes")
    with network.Network(1) as net, chart.Pod(net.machines[0], found, volumes,
                                              image=bundle / "rootfs") as running:
        assert [running.probe(name) for name in running.probes] == [200] * 3
        assert codes(running, 101) == [OK] * 100 + [OVER_LIMIT]
        assert running.stop() == 0


@needs_namespaces
def test_other_commands_run_in_it(bundle, image):
    """kubectl exec and docker run: the program needs no shell, also where it sends requests."""
    with Container(bundle, image) as container:
        inside = ["nsenter", f"--target={container.pid}", "--all", "--", "/bin/stint"]
        run("nsenter", f"--target={container.pid}", "--net", "ip", "link", "set", "lo", "up")
        run(*inside, "take", "--quota", "100/1m", "user:42")
        assert run(*inside, "rls", "health", "127.0.0.1:8081") == "SERVING\n"
