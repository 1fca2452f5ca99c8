# SPDX-License-Identifier: MIT
"""The Debian packages in a Debian of their own, with systemd: installed, upgraded while clients
send requests, removed and purged. lintian checks them where they are built.

Real time: what is tried is the kernel's queues, systemd, and two processes that run at once.
"""
import concurrent.futures
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import packages
import pytest
from machine import Machine, make_root, needs_namespaces, network_of

sys.path.insert(0, str(packages.SOURCE / "tests/interop"))
from server import Asker, Resp  # noqa: E402

PAGE = (packages.SOURCE / "docs/packages.md").read_text()
BLOCK = re.compile(r"^```sh\n(.*?)^```\n(?:^```text\n(.*?)^```\n)?", re.M | re.S)
OLDER = "0.0.9-1"
BURST = 500
RULES = """
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 3}
"""
# What a package manager, systemd and the C library keep of a package that was purged.
LEFT = re.compile(r"/(etc/(group|passwd|shadow|gshadow|subuid|subgid)-?|etc/\.pwd\.lock"
                  r"|var/log/.*|var/cache/.*|var/lib/(apt|dpkg|systemd)/.*|tmp/.*)")

pytestmark = needs_namespaces


@pytest.fixture(scope="module")
def made():
    """The packages and the root, made at once: one compiles, the other waits for a mirror."""
    root = packages.FOLDER / "root"
    with concurrent.futures.ThreadPoolExecutor() as pool:
        rooted = pool.submit(make_root, root)
        folder = packages.built()
        rooted.result()
    return root, folder


@pytest.fixture(name="machine")
def booted(made):
    root, folder = made
    with Machine(root) as machine:
        machine.path("/tmp/debs").mkdir()
        for package in folder.glob("*.deb"):
            shutil.copy(package, machine.path("/tmp/debs"))
        yield machine


class AskerInside(Asker):
    def __init__(self, pid, *args):
        self.inside = pid
        super().__init__(*args)

    def run(self):
        with network_of(self.inside):
            super().run()


def as_version(machine, version):
    """A package of another version: the same program in another file, so that an upgrade replaces
    the file of a running process."""
    machine.run("sh", "-c", f"""set -e; cd /tmp/debs
        dpkg-deb --raw-extract stint_{packages.version()}_*.deb other
        sed -i 's/^Version: .*/Version: {version}/' other/DEBIAN/control
        dpkg-deb -Zgzip -z1 --build other stint_{version}_$(dpkg --print-architecture).deb
        rm -r other""")
    return f"/tmp/debs/stint_{version}_*.deb"


def install(machine, *files):
    return machine.run("sh", "-c", "apt-get -q install -y --no-install-recommends "
                       f"-o APT::Sandbox::User=root {' '.join(files)}",
                       env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})


def main_pid(machine):
    return int(machine.run("systemctl", "show", "--property=MainPID", "--value", "stint.service"))


def ask(machine, *words):
    with network_of(machine.pid), \
            Resp(socket.create_connection(("127.0.0.1", 7379), timeout=20)) as client:
        return client.ask(*words)


def wait_until(condition, seconds=20):
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.1)


def test_from_installation_to_purge(machine):
    before = machine.files()
    install(machine, "/tmp/debs/stint_*.deb", "/tmp/debs/libstint0_0*.deb",
            "/tmp/debs/libstint-dev_*.deb")
    assert machine.run("systemctl", "is-enabled", "stint.service", "stint.socket",
                       code=None) == "enabled\ndisabled\n"
    assert ask(machine, "CL.THROTTLE", "user:1", "3", "4", "3600")[:3] == [0, 4, 3]
    for path in ("/usr/bin/stint", "/usr/share/man/man1/stint-serve.1.gz",
                 "/usr/share/zsh/vendor-completions/_stint", "/usr/include/stint.h"):
        assert machine.path(path).exists(), path
    assert "stint" in machine.run("stat", "-c", "%U", "/var/lib/stint/limits")

    machine.path("/etc/stint/rules/edge.yaml").write_text(RULES)
    machine.run("systemctl", "reload", "stint")
    wait_until(lambda: "reloaded" in machine.run("journalctl", "-u", "stint"))
    machine.run("systemctl", "restart", "stint")
    assert ask(machine, "CL.THROTTLE", "user:1", "3", "4", "3600")[:3] == [0, 4, 2]

    machine.run("apt-get", "-q", "remove", "-y", "stint", "libstint0") # and libstint-dev
    assert main_pid(machine) == 0
    assert machine.path("/etc/stint/stint.yaml").exists()
    assert machine.path("/var/lib/private/stint/limits").exists()
    machine.path("/etc/stint/rules/edge.yaml").unlink() # the administrator's own
    machine.run("apt-get", "-q", "purge", "-y", "stint")
    assert {path for path in machine.files() - before if not LEFT.fullmatch(path)} == set()


def test_an_upgrade_under_load_refuses_no_request(machine):
    install(machine, as_version(machine, OLDER))
    old = main_pid(machine)
    askers = [AskerInside(machine.pid, 7379, 5, "shared", BURST) for _ in range(3)]
    with network_of(machine.pid):
        wrk = subprocess.Popen(["wrk", "-t1", "-c10", "-d300s", "http://127.0.0.1:8080/healthz"],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: all(asker.asked > 20 for asker in askers))
        asked = sum(asker.asked for asker in askers)
        install(machine, f"/tmp/debs/stint_{packages.version()}_*.deb")
        new = main_pid(machine)
        assert wrk.poll() is None
        wrk.send_signal(signal.SIGINT)  # it tells what it has seen so far
        load = wrk.communicate(timeout=60)[0].decode()
    finally:
        wrk.kill()
        for asker in askers:
            asker.stop()
    assert new not in (0, old)
    assert machine.run("readlink", f"/proc/{new}/exe") == "/usr/bin/stint\n"
    assert OLDER not in machine.run("dpkg-query", "-W", "stint")
    assert not any(asker.failures for asker in askers), [asker.failures[:3] for asker in askers]
    assert sum(asker.asked for asker in askers) > asked
    # A bucket that gains one unit in a day: both processes counted in it.
    assert sum(asker.allowed for asker in askers) == BURST
    assert "Socket errors" not in load and "Non-2xx" not in load, load
    # systemd watches the successor as it watched the first process.
    machine.run("sh", "-c", f"kill -KILL {new}")
    wait_until(lambda: main_pid(machine) not in (0, new))
    wait_until(lambda: machine.run("systemctl", "is-active", "stint", code=None) == "active\n")
    assert ask(machine, "CL.THROTTLE", "shared", str(BURST - 1), "1", "86400")[0] == 1


def test_a_program_that_cannot_serve_leaves_the_old_one(machine):
    install(machine, as_version(machine, OLDER))
    old = main_pid(machine)
    assert ask(machine, "CL.THROTTLE", "user:1", "3", "4", "3600")[:3] == [0, 4, 3]
    settings = machine.path("/etc/stint/stint.yaml")
    settings.write_text(settings.read_text() + "resp_tls: nonsense\n")
    said = install(machine, f"/tmp/debs/stint_{packages.version()}_*.deb")
    assert "the old one goes on serving" in said
    assert main_pid(machine) == old
    assert ask(machine, "CL.THROTTLE", "user:1", "3", "4", "3600")[:3] == [0, 4, 2]
    assert "'nonsense' is not an address" in machine.run("journalctl", "-u", "stint", "-o", "cat")
    settings.write_text(settings.read_text().replace("resp_tls: nonsense\n", ""))
    machine.run("systemctl", "restart", "stint")
    assert main_pid(machine) not in (0, old)


def test_the_page_about_packages(machine):
    """Its commands in their order, with what they print."""
    part = PAGE[PAGE.index("## Debian packages"):PAGE.index("## Container image")]
    for version in re.findall(r"stint_(.*?)_amd64\.deb", part):
        if version != packages.version():
            as_version(machine, version)
    blocks = BLOCK.findall(part)
    assert len(blocks) == 4
    for commands, expected in blocks:
        said = machine.run("bash", "-euc", f"cd /tmp/debs\n{commands}")
        assert said == expected, commands


def test_programs_use_the_library_of_the_packages(made, tmp_path):
    for name in ("libstint0", "libstint-dev"):
        subprocess.run(["dpkg-deb", "--extract", packages.one(name), tmp_path], check=True)
    (pc_file,) = tmp_path.rglob("stint.pc")
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "stint"], check=True, capture_output=True, text=True,
        env={**os.environ, "PKG_CONFIG_LIBDIR": str(pc_file.parent),
             "PKG_CONFIG_SYSROOT_DIR": str(tmp_path)}).stdout.split()
    example = next((tmp_path / "usr/share/doc/libstint-dev/examples").glob("embed.cc*"))
    program = tmp_path / "embed"
    subprocess.run(["c++", "-Wall", "-Werror", example, *flags, "-o", program], check=True)
    said = subprocess.run([program], capture_output=True, text=True, check=True,
                          env={"LD_LIBRARY_PATH": str(pc_file.parent.parent)}).stdout
    assert said.count("allow") == 3 and said.count("deny") == 1
