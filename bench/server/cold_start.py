#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: cold_start.py BUILD [RATELIMIT]

The program called ratelimit, with the environment of a container: from its start until the first
decision by rules over xDS, and its memory when it is idle. RATELIMIT is the program of
envoyproxy/ratelimit, which needs redis-server; it is the baseline. Needs python3-grpcio and go.
"""
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SOURCE = Path(__file__).parents[2]
ROUNDS, WAIT_S = 15, 20


def environment(plane, redis):
    from server import free_port
    ports = {name: str(free_port()) for name in ("PORT", "DEBUG_PORT", "GRPC_PORT")}
    return {**ports, "CONFIG_TYPE": "GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL": plane.address,
            "CONFIG_GRPC_XDS_NODE_ID": "envoy-ratelimit", "USE_STATSD": "false",
            "FORCE_START_WITHOUT_INITIAL_CONFIG": "true", "LOG_LEVEL": "error",
            **({"REDIS_SOCKET_TYPE": "tcp", "REDIS_URL": f"127.0.0.1:{redis.port}"}
               if redis else {})}


def first_decision(port):
    """Until a decision names its limit: the rules are in force then."""
    import grpc
    from rls_messages import ask_with, descriptor, request
    ends = time.monotonic() + WAIT_S
    while time.monotonic() < ends:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            with contextlib.suppress(grpc.RpcError):
                while time.monotonic() < ends:
                    answer = ask_with(channel)(request("edge", descriptor(("user", "u"))),
                                               timeout=1)
                    if answer.statuses[0].limit is not None:
                        return
        time.sleep(0.001)
    raise AssertionError(f"no decision by a rule within {WAIT_S} s")


def resident_kb(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def measure(name, program, env_of):
    walls, memory = [], []
    for _ in range(ROUNDS):
        env = env_of()
        begin = time.monotonic()
        with subprocess.Popen([program], env=env, stderr=subprocess.DEVNULL) as run:
            try:
                first_decision(env["GRPC_PORT"])
                walls.append(time.monotonic() - begin)
                time.sleep(0.5)
                memory.append(resident_kb(run.pid))
            finally:
                run.kill()
    print(f"| {name} | {statistics.median(walls) * 1e3:.0f} ms | {max(walls) * 1e3:.0f} ms | "
          f"{max(memory) / 1024:.1f} MiB |")


def main():
    build = Path(sys.argv[1]).resolve()
    os.environ.update(STINT_SOURCE=str(SOURCE), STINT_BUILD=str(build),
                      STINT_BIN=str(build / "src/cmd/stint"))
    sys.path[:0] = [str(SOURCE / "tests/interop")]
    from control_plane import config, descriptor, policy
    from go_control_plane import GoControlPlane
    from redis_server import Redis
    print("| program | first decision, median | longest | resident |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder, GoControlPlane() as plane:
        plane.set("1", config("edge", descriptor("user", "", policy("HOUR", 1_000_000))))
        program = Path(folder) / "ratelimit"
        program.symlink_to(os.environ["STINT_BIN"])
        measure("stint", program, lambda: environment(plane, None))
        with Redis() as redis:
            measure("stint, Redis", program, lambda: environment(plane, redis))
            if len(sys.argv) > 2:
                measure("envoyproxy/ratelimit", sys.argv[2], lambda: environment(plane, redis))


if __name__ == "__main__":
    main()
