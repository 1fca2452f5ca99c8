# SPDX-License-Identifier: MIT
"""An image as a container of crun, with the rights that Kubernetes' profile `restricted` leaves: a
user that is not root, no capability, a root file system that cannot be written, and the system
calls of the default profile of container runtimes.
"""
import json
import os
import platform
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

USER = 65534
PROFILE = Path("/usr/share/containers/seccomp.json") # of Docker and Podman, in their own format
STARTS_S = 20
# crun refuses a machine with both versions of cgroups; a container of the test needs none of them.
START = """
mount -t cgroup2 cgroup2 /sys/fs/cgroup
exec setpriv --reuid="$1" --regid="$1" --clear-groups crun --root="$2/state" \
    --cgroup-manager=disabled run --bundle="$2" "${2##*/}"
"""


def seccomp():
    """The profile for a process without capabilities, as the OCI's runtimes read it."""
    machine = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
    profile = json.loads(PROFILE.read_text())
    rules = []
    for rule in profile["syscalls"]:
        includes, excludes = rule.get("includes", {}), rule.get("excludes", {})
        if (not includes.get("caps") and machine in includes.get("arches", [machine])
                and machine not in excludes.get("arches", [])):
            rules.append({name: rule[name] for name in ("names", "action", "args", "errnoRet")
                          if rule.get(name) is not None})
    return {"defaultAction": profile["defaultAction"], "syscalls": rules}


def mount(destination, kind, *options):
    return {"destination": destination, "type": kind, "source": kind, "options": list(options)}


def config(image, args, env, folders, user):
    """As a kubelet and its runtime would write it. `user` is the one outside of the container."""
    spaces = ["pid", "network", "ipc", "uts", "mount"]
    mapping = []
    if user != 0:
        spaces.append("user")
        mapping = [{"containerID": USER, "hostID": user, "size": 1}]
    return {
        "ociVersion": "1.0.0",
        "process": {
            "user": {"uid": USER, "gid": USER}, "args": args, "cwd": "/",
            "env": [*image["config"]["Env"], *(f"{name}={value}" for name, value in env.items())],
            "capabilities": {}, "noNewPrivileges": True,
        },
        "root": {"path": "rootfs", "readonly": True},
        "mounts": [
            mount("/proc", "proc"), mount("/dev", "tmpfs", "nosuid", "mode=755", "size=64k"),
            *({"destination": inside, "type": "bind", "source": str(outside),
               "options": ["rbind", "ro"]} for inside, outside in folders.items()),
        ],
        "linux": {
            "namespaces": [{"type": space} for space in spaces],
            "uidMappings": mapping, "gidMappings": mapping, "seccomp": seccomp(),
            "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/sysrq-trigger"],
            "readonlyPaths": ["/proc/sys"],
        },
    }


class Container:
    """Runs while its `with` lasts. `user` is root, or one that starts it without any right."""

    def __init__(self, bundle, image, args=(), *, env=None, folders=None, user=0):
        self.folder = Path(tempfile.mkdtemp(prefix="stint-container-"))
        args = [*args] if args else image["config"]["Entrypoint"] + image["config"]["Cmd"]
        os.symlink(bundle / "rootfs", self.folder / "rootfs")
        (self.folder / "config.json").write_text(
            json.dumps(config(image, args, env or {}, folders or {}, user)))
        os.chown(self.folder, user, user)
        self.log = self.folder / "log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                ["unshare", "--mount", "sh", "-euc", START, "sh", str(user), self.folder],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                env={"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(self.folder)})

    def __enter__(self):
        ends = time.monotonic() + STARTS_S
        while "started: serving" not in (log := self.log.read_text()):
            if self.process.poll() is not None or time.monotonic() > ends:
                self.__exit__()
                raise AssertionError(f"the container does not serve:\n{log}")
            time.sleep(0.005)
        return self

    def __exit__(self, *_):
        self.stop()
        shutil.rmtree(self.folder)

    def stop(self):
        """As a kubelet does. The exit code."""
        if self.process.poll() is None:
            os.kill(self.pid, 15)
        return self.process.wait(30)

    @property
    def pid(self):
        """The first process of the container, which is the child of crun."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return int(children.read_text().split()[0])
