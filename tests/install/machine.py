# SPDX-License-Identifier: MIT
"""A Debian of its own for a test: systemd is its first process, and nothing of it remains.

Its files are an overlay in memory over a folder that mmdebstrap made once for each build folder;
its processes, mounts, network and names are in namespaces. All of this needs root.
"""
import contextlib
import ctypes
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(os.environ["STINT_SOURCE"]) / "tools"))
import release  # noqa: E402

STARTS_S = 60
CLONE_NEWNET = 0x40000000
# Beside the packages that stint depends on: installing it needs no network.
INCLUDED = ["systemd", "libcurl3-gnutls", "libgnutls30", "libhiredis0.14", "libjansson4",
            "libnghttp2-14", "libprotobuf-c1", "libseccomp2", "libuv1", "libyaml-0-2", "libzstd1",
            "zlib1g"]
# Runs in a control group of its own, since systemd makes groups below the one that it finds.
ENTER = """
echo $$ >"$1/cgroup.procs"
shift
exec "$@"
"""
# Runs as the first process of the namespaces, in the folder $1.
BOOT = """
set -eu
mount -t tmpfs -o mode=755 tmpfs "$1"
cd "$1"
mkdir changes work root
mount -t overlay -o "lowerdir=$2,upperdir=changes,workdir=work" overlay root
cd root
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=755 tmpfs dev
mkdir dev/pts dev/shm old
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
for device in null zero full random urandom tty; do
    touch "dev/$device"
    mount --bind "/dev/$device" "dev/$device"
done
ln -s pts/ptmx dev/ptmx
ip link set lo up
pivot_root . old
umount --lazy /old
rmdir /old
exec env -i container=stint-test PATH=/usr/sbin:/usr/bin /lib/systemd/systemd
"""


needs_namespaces = pytest.mark.skipif(
    subprocess.run(["unshare", "--mount", "--net", "true"], capture_output=True,
                   check=False).returncode != 0,
    reason="this user or machine allows no namespaces of mounts and networks")


@contextlib.contextmanager
def network_of(pid):
    """Sockets and processes that this thread makes meanwhile have the network of a process."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/thread-self/ns/net") as own, open(f"/proc/{pid}/ns/net") as other:
        assert libc.setns(other.fileno(), CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
        try:
            yield
        finally:
            libc.setns(own.fileno(), CLONE_NEWNET)


def make_root(folder):
    """The files of a small Debian."""
    packages = ",".join(INCLUDED)
    release.make_debian(folder, packages, f"--include={packages}")


def own_control_group():
    """The folder of this process in version 2 of cgroups, which may be beside version 1."""
    mount = Path("/sys/fs/cgroup")
    mount = mount / "unified" if (mount / "unified").exists() else mount
    groups = Path("/proc/self/cgroup").read_text().splitlines()
    return mount / next(line.partition("::/")[2] for line in groups if line.startswith("0::"))


class Machine:
    """Booted at the beginning of a `with`, and gone at its end."""

    def __init__(self, root):
        self.folder = tempfile.mkdtemp(prefix="stint-machine-")
        self.group = own_control_group() / Path(self.folder).name
        self.group.mkdir()
        self.unshare = subprocess.Popen(
            ["sh", "-euc", ENTER, "sh", self.group,
             "unshare", "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--fork",
             "--kill-child", "sh", "-c", BOOT, "sh", self.folder, root],
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.pid = None

    def __enter__(self):
        ends = time.monotonic() + STARTS_S
        while not self._is_running():
            if self.unshare.poll() is not None or time.monotonic() > ends:
                self.__exit__()
                raise AssertionError(f"systemd does not start: {self.unshare.stderr.read()}")
            time.sleep(0.1)
        return self

    def __exit__(self, *_):
        self.unshare.kill() # and by --kill-child the first process, with which all others end
        self.unshare.wait()
        os.rmdir(self.folder)
        ends = time.monotonic() + STARTS_S
        while (self.group / "cgroup.procs").exists() and time.monotonic() < ends:
            for folder, _, _ in os.walk(self.group, topdown=False):
                with contextlib.suppress(OSError): # the last processes are still ending
                    os.rmdir(folder)
            time.sleep(0.01)

    def _is_running(self):
        children = Path(f"/proc/{self.unshare.pid}/task/{self.unshare.pid}/children")
        with contextlib.suppress(OSError, IndexError):
            self.pid = int(children.read_text().split()[0])
            if Path(f"/proc/{self.pid}/comm").read_text() == "systemd\n":
                return self.run("systemctl", "is-system-running", code=None) in (
                    "running\n", "degraded\n")
        return False

    def run(self, *command, code=0, **options):
        """Output of a command in the machine; a code of None is any."""
        done = subprocess.run(["nsenter", f"--target={self.pid}", "--all", "--",
                               *(str(word) for word in command)], text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120,
                              **options)
        assert code in (None, done.returncode), f"{command}: {done.returncode}\n{done.stdout}"
        return done.stdout

    def path(self, name):
        """Where a file of the machine is, seen from outside."""
        return Path(f"/proc/{self.pid}/root/{name.lstrip('/')}")

    def files(self):
        """Every path of the file system, without those of the kernel and of running processes."""
        return set(self.run("find", "/", "-xdev", "-not", "-type", "d").split()) | {
            f"{name}/" for name in self.run("find", "/", "-xdev", "-type", "d").split()}
