# SPDX-License-Identifier: MIT
"""A container of Kubernetes, run by runc with the rights that Pod Security calls restricted, and
the one in which Envoy Gateway starts its rate limit service.

It has uid and gid 65534, a root that is read only, no capability, no new privileges, and seccomp,
as in the Deployment that Envoy Gateway v1.9.1 makes. The root has the libraries of this machine;
docker's image is not needed for what the program may do there.
"""
import functools
import json
import shutil
import subprocess
import tempfile
from pathlib import Path

import network
from program import STINT
from server import Server

ID = 65534
HTTP, GRPC, METRICS, DEBUG = 8080, 8081, 19001, 6070
XDS = 18001
CERTIFICATES = "/certs"
# What the profile RuntimeDefault refuses to a container without capabilities.
DENIED = """
acct add_key bpf clock_adjtime clock_settime create_module delete_module fanotify_init
finit_module fsconfig fsmount fsopen fspick init_module io_uring_enter io_uring_register
io_uring_setup ioperm iopl kcmp kexec_file_load kexec_load keyctl lookup_dcookie mbind mount
mount_setattr move_mount move_pages name_to_handle_at nfsservctl open_by_handle_at open_tree
perf_event_open pivot_root process_vm_readv process_vm_writev quotactl reboot request_key
set_mempolicy setdomainname sethostname setns settimeofday swapoff swapon sysfs syslog umount2
unshare uselib userfaultfd ustat vhangup chroot
""".split()


def environment(**changed):
    """All that Envoy Gateway sets, with metrics and traces enabled; a value of None: not set."""
    env = {
        "RUNTIME_ROOT": "/data", "RUNTIME_SUBDIRECTORY": "ratelimit",
        "RUNTIME_IGNOREDOTFILES": "true", "RUNTIME_WATCH_ROOT": "false", "LOG_LEVEL": "info",
        "USE_STATSD": "false", "CONFIG_TYPE": "GRPC_XDS_SOTW",
        "CONFIG_GRPC_XDS_SERVER_URL": f"envoy-gateway:{XDS}",
        "CONFIG_GRPC_XDS_NODE_ID": "envoy-ratelimit", "GRPC_SERVER_USE_TLS": "true",
        "GRPC_SERVER_TLS_CERT": f"{CERTIFICATES}/tls.crt",
        "GRPC_SERVER_TLS_KEY": f"{CERTIFICATES}/tls.key",
        "GRPC_SERVER_TLS_CA_CERT": f"{CERTIFICATES}/ca.crt",
        "CONFIG_GRPC_XDS_SERVER_USE_TLS": "true",
        "CONFIG_GRPC_XDS_CLIENT_TLS_CERT": f"{CERTIFICATES}/tls.crt",
        "CONFIG_GRPC_XDS_CLIENT_TLS_KEY": f"{CERTIFICATES}/tls.key",
        "CONFIG_GRPC_XDS_SERVER_TLS_CACERT": f"{CERTIFICATES}/ca.crt",
        "FORCE_START_WITHOUT_INITIAL_CONFIG": "true", "REDIS_SOCKET_TYPE": "tcp",
        "REDIS_URL": "redis:6379", "USE_PROMETHEUS": "true", "PROMETHEUS_ADDR": f":{METRICS}",
        "PROMETHEUS_MAPPER_YAML": "/etc/statsd-exporter/conf.yaml", "TRACING_ENABLED": "true",
        "TRACING_SERVICE_NAME": "envoy-ratelimit",
        "TRACING_SERVICE_NAMESPACE": "envoy-gateway-system",
        "TRACING_SERVICE_INSTANCE_ID": "envoy-ratelimit-0", "TRACING_SAMPLING_RATE": "1.0",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317", **changed}
    return {name: value for name, value in env.items() if value is not None}


@functools.cache
def why_not():
    """Why there can be no such container here; None: there can."""
    if shutil.which("runc") is None:
        return "runc is not installed"
    return network.why_not()


def bind(source, to, mode="ro"):
    return {"destination": str(to), "type": "bind", "source": str(source),
            "options": ["rbind", mode, "nosuid", "nodev"]}


def specification(machine, command, env, mounts):
    """config.json of an OCI bundle."""
    return {
        "ociVersion": "1.0.2",
        "process": {"user": {"uid": ID, "gid": ID}, "args": list(command), "cwd": "/",
                    "env": [f"{name}={value}" for name, value in env.items()],
                    "noNewPrivileges": True, "capabilities": {}},
        "root": {"path": "root", "readonly": True},
        "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"},
                   {"destination": "/dev", "type": "tmpfs", "source": "tmpfs",
                    "options": ["nosuid", "noexec", "mode=755", "size=64k"]}, *mounts],
        "linux": {"namespaces": [*({"type": each} for each in ("pid", "ipc", "uts", "mount")),
                                 {"type": "network", "path": f"/run/netns/{machine.name}"}],
                  "seccomp": {"defaultAction": "SCMP_ACT_ALLOW",
                              "syscalls": [{"names": DENIED, "action": "SCMP_ACT_ERRNO"}]}}}


class Container(Server):
    """The program at a machine's address, under the name that starts the command; `hosts` are the
    names that it resolves. `image`: the root of an image, which has the program and libraries."""

    def __init__(self, machine, command, env, mounts, hosts=None, wait=True, program=STINT,
                 image=None):
        self.bundle = Path(tempfile.mkdtemp(prefix="stint-pod-"))
        self.address, self.name = machine.client_address, self.bundle.name
        root = self.bundle / "root"
        if image is not None:
            shutil.copytree(image, root, symlinks=True)
        else:
            for folder in ("usr", "bin", "etc", "proc", "dev"):
                (root / folder).mkdir(parents=True)
            for library in ("lib", "lib64"):
                (root / library).symlink_to(f"usr/{library}")
            mounts = [bind("/usr", "/usr"), bind(program, command[0]), *mounts]
        (root / "etc/hosts").write_text("".join(
            f"{address} {name}\n" for name, address in (hosts or {}).items()))
        (self.bundle / "config.json").write_text(json.dumps(
            specification(machine, command, env, mounts)))
        super().__init__(command=["runc", "run", "--bundle", self.bundle, self.name], ports=False,
                         wait=wait)

    def inside(self):
        """The process's number here."""
        state = subprocess.run(["runc", "state", self.name], capture_output=True, timeout=20,
                               check=True)
        return json.loads(state.stdout)["pid"]

    def kill(self):
        subprocess.run(["runc", "kill", self.name, "KILL"], capture_output=True, timeout=20,
                       check=False)
        super().kill()

    def __exit__(self, *error):
        try:
            super().__exit__(*error)
        finally:
            subprocess.run(["runc", "delete", "--force", self.name], capture_output=True,
                           timeout=20, check=False)
            shutil.rmtree(self.bundle, ignore_errors=True)


class Pod(Container):
    """What Envoy Gateway starts."""

    def __init__(self, machine, env, certificates, hosts=None, wait=True):
        super().__init__(machine, ["/bin/ratelimit"], env, [bind(certificates, CERTIFICATES)],
                         hosts, wait)
