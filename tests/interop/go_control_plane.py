# SPDX-License-Identifier: MIT
"""A control plane of rules that others wrote: go-control-plane, in the program of xds/main.go."""
import base64
import json
import subprocess
import threading
import time

from builds import INTEROP, go_program
from server import free_port

NODE = "envoy-ratelimit"  # that of Envoy Gateway


class GoControlPlane:
    """Its events, and snapshots that it is given; a restart keeps the port."""

    def __init__(self, *options, address=None, node=NODE):
        self.address = address or f"127.0.0.1:{free_port()}"
        self.options = ["-address", self.address, "-node", node, *map(str, options)]
        self.program = go_program(INTEROP / "xds", "control-plane")
        self.changed = threading.Condition()
        self.events, self.n_sets = [], 0
        self.start()

    def start(self):
        self.process = subprocess.Popen([self.program, *self.options], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.reader = threading.Thread(target=self._read, args=[self.process], daemon=True)
        self.reader.start()
        self.wait_for("listening")

    def _read(self, process):
        for line in process.stdout:
            with self.changed:
                self.events.append(json.loads(line))
                self.changed.notify_all()

    def found(self, kind, **wanted):
        with self.changed:
            return [event for event in self.events if event["event"] == kind and
                    all(event.get(name, "") == value for name, value in wanted.items())]

    def wait_for(self, kind, times=1, seconds=20, **wanted):
        """Until so many such events came; returns the last."""
        ends = time.monotonic() + seconds
        with self.changed:
            while len(self.found(kind, **wanted)) < times:
                left = ends - time.monotonic()
                assert left > 0, f"no {kind} {wanted} in {self.events}"
                self.changed.wait(left)
        return self.found(kind, **wanted)[-1]

    def set(self, version, *configs):
        """A snapshot of these RateLimitConfigs."""
        self._send(version=version,
                   resources=[base64.b64encode(each).decode() for each in configs])

    def replay(self, version, name):
        """A snapshot of a message that Envoy Gateway has sent: xds/record.py."""
        self._send(version=version, recorded=str(INTEROP / "xds/recorded" / f"{name}.bin"))

    def _send(self, **snapshot):
        self.process.stdin.write(json.dumps(snapshot) + "\n")
        self.process.stdin.flush()
        self.n_sets += 1
        self.wait_for("set", self.n_sets)

    def accepted(self, version, **options):
        """Until a client has said that it uses that version."""
        return self.wait_for("request", version=version, error="", **options)

    def kill(self):
        """The events of the killed process are forgotten."""
        self.process.kill()
        self.process.wait(20)
        self.reader.join(20)
        self.process.stdin.close()
        self.process.stdout.close()
        self.events, self.n_sets = [], 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
