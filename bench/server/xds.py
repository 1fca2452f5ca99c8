#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: xds.py BUILD [DESCRIPTORS]

A policy of so many descriptors (10,000) from a control plane: how long until a decision follows it,
and how much processor time that costs the worker, which decides meanwhile. The baseline is the
same policy as a file of YAML. Needs python3-grpcio.
"""
import os
import statistics
import sys
import time
from pathlib import Path

SOURCE = Path(__file__).parents[2]
ROUNDS = 15


def worker_cpu_ns(server):
    """Of the threads that serve, each by its own clock in the kernel: all but the first."""
    total = 0
    for task in Path(f"/proc/{server.pid}/task").iterdir():
        if task.name != str(server.pid):
            total += int((task / "schedstat").read_text().split()[0])
    return total


def yaml_policy(n, limit):
    entries = "".join(
        f"- {{key: tenant-{i // 100:03}, value: v{i:05}, descriptors: [{{key: address, rate_limit: "
        f"{{unit: hour, requests_per_unit: {limit}}}}}]}}\n" for i in range(n))
    return "domain: edge\ndescriptors:\n" + entries


def measure(name, n, server, change, ask):
    """change(limit) puts a policy in force and waits for it; ask() is one decision."""
    walls, pauses = [], []
    for turn in range(ROUNDS):
        ask()
        before = worker_cpu_ns(server)
        ask()
        between = worker_cpu_ns(server)
        begin = time.monotonic()
        change(1000 + turn)
        walls.append(time.monotonic() - begin)
        changed = worker_cpu_ns(server)
        ask()
        after = worker_cpu_ns(server)
        # What the first decision under new rules costs beyond another one.
        pauses.append((after - changed) - (between - before))
        time.sleep(0.6)
    print(f"| {name} | {n} | {statistics.median(walls) * 1e3:.0f} ms | {max(walls) * 1e3:.0f} ms | "
          f"{max(pauses) / 1e6:.2f} ms |")


def main():
    build = Path(sys.argv[1]).resolve()
    n = int(sys.argv[2]) if len(sys.argv) > 2 else 10000
    os.environ.update(STINT_SOURCE=str(SOURCE), STINT_BUILD=str(build),
                      STINT_BIN=str(build / "src/cmd/stint"))
    sys.path.insert(0, str(SOURCE / "tests/interop"))
    import grpc
    from control_plane import ControlPlane, ask, config, descriptor, policy
    from server import Server

    def xds_policy(limit):
        return config("edge", *[descriptor(f"tenant-{i // 100:03}", f"v{i:05}", below=[
            descriptor("address", limit=policy("HOUR", limit))]) for i in range(n)])

    print("| policy from | descriptors | in force, median | longest | worker, longest |\n"
          "|---|---|---|---|---|")
    with ControlPlane() as plane, Server("--rules", plane.url, "--workers", "1") as server:
        with grpc.insecure_channel(f"127.0.0.1:{server.port('grpc')}") as channel:
            def decide():
                return ask(channel, "edge", ("tenant-000", "v00001"), ("address", "a"))

            made = {}

            def change(limit):
                plane.send(f"of-{limit}", made[limit])
                plane.accepted(f"of-{limit}")

            for turn in range(ROUNDS):
                made[1000 + turn] = xds_policy(1000 + turn)
            measure("a control plane", n, server, change, decide)
    with Server(rules=yaml_policy(n, 1)) as server:
        with grpc.insecure_channel(f"127.0.0.1:{server.port('grpc')}") as channel:
            turns = iter(range(1, ROUNDS + 1))

            def reload(limit):
                server.write_rules(yaml_policy(n, limit))
                server.wait_for("reloaded", times=next(turns))

            measure("a file", n, server, reload, lambda: ask(
                channel, "edge", ("tenant-000", "v00001"), ("address", "a")))


if __name__ == "__main__":
    main()
