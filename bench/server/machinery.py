# SPDX-License-Identifier: MIT
"""Servers on a core of their own, loads on another, and what a request costs the server.

What counts is the processor time that the server used per request (its clock), so that
neighbours and the load program weigh little; subject and baseline take turns, and the figure is the
median of the ratios.
"""
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))
from turns import compared  # noqa: E402  (its folder is named just above)

CPUCLOCK_SCHED = 2  # clock_getcpuclockid(), which Python lacks, makes a clock of it and the PID
CORES = sorted(os.sched_getaffinity(0))
SERVER_CORE, LOAD_CORE = CORES[0], CORES[-1]
KEYS = 1_000_000


held_ports = []  # their sockets, to the end of the run


def free_port():
    """A port that the kernel gives to no client and to no other process.

    A server gets it: its socket sets SO_REUSEADDR as this one does, and this one does not listen.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    held_ports.append(held)
    return held.getsockname()[1]


def on_core(core, *command):
    return ["taskset", "-c", str(core), *map(str, command)]


class Server:
    """A process that listens; ready when each of its ports accepts."""

    def __init__(self, command, ports, **options):
        self.ports = ports
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(on_core(SERVER_CORE, *command), stdout=self.log,
                                        stderr=subprocess.STDOUT, **options)
        deadline = time.monotonic() + 10
        for port in ports:
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    if time.monotonic() > deadline or self.process.poll() is not None:
                        self.log.seek(0)
                        sys.exit(f"{command[0]} does not listen:\n{self.log.read()}")
                    time.sleep(0.02)

    def processes(self):
        """The process and its children: nginx works in one."""
        found = [self.process.pid]
        for pid in found:
            children = Path(f"/proc/{pid}/task/{pid}/children")
            found += map(int, children.read_text().split()) if children.exists() else []
        return found

    def cpu_s(self):
        """Of all its threads, also those that have ended; /proc/PID/stat has ticks of 10 ms."""
        return sum(time.clock_gettime(~pid << 3 | CPUCLOCK_SCHED) for pid in self.processes())

    def memory(self):
        """(bytes of its own, all that is resident): pages of the program and of libraries belong
        to whoever else uses them too, and the kernel drops them when it needs the room."""
        status = "".join(Path(f"/proc/{pid}/status").read_text() for pid in self.processes())
        sizes = {name: sum(map(int, re.findall(rf"{name}:\s+(\d+) kB", status))) * 1024
                 for name in ("RssAnon", "RssShmem", "VmRSS")}
        return sizes["RssAnon"] + sizes["RssShmem"], sizes["VmRSS"]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def output(*command):
    return subprocess.run(on_core(LOAD_CORE, *command), check=True, capture_output=True,
                          text=True).stdout


# ---- loads: each returns (requests answered, seconds) ----


def redis_benchmark(port, requests, pipeline, *command, script=None):
    arguments = ["redis-benchmark", "-p", port, "-n", requests, "-c", 50, "-P", pipeline,
                 "-r", KEYS, "--csv", *command]
    started = time.monotonic()
    text = output(*arguments)
    rate = float(text.splitlines()[-1].split('","')[1])
    if rate <= 0:
        sys.exit(f"redis-benchmark answered nothing of use: {text}")
    return requests, time.monotonic() - started


def closed_loop(build, port, requests, pipeline, *command):
    """The same with a program that only steps over the replies: where the server is quick,
    redis-benchmark is the slower of the two. The time is without that of starting it."""
    told = json.loads(output(build / "bench/closed_loop", port, 50, pipeline, requests, *command))
    return told["answered"], told["seconds"]


def wrk(url, seconds, script=None):
    arguments = ["wrk", "-t1", "-c50", f"-d{seconds}s", *(["-s", script] if script else []), url]
    started = time.monotonic()
    text = output(*arguments)
    requests = int(re.search(r"(\d+) requests in", text).group(1))
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
    if "Socket errors" in text or (bad and int(bad.group(1)) > requests // 100):
        sys.exit(f"wrk: not what is measured:\n{text}")
    return requests, time.monotonic() - started


def h2load(port, requests, path, body):
    """Ten connections of a hundred streams."""
    started = time.monotonic()
    text = output("h2load", "-n", requests, "-c", 10, "-m", 100, "-d", body,
                  "-H", "content-type: application/grpc", "-H", "te: trailers",
                  f"http://127.0.0.1:{port}{path}")
    if f"{requests} 2xx" not in text:
        sys.exit(f"h2load: not what is measured:\n{text}")
    return requests, time.monotonic() - started


def cpu_us(server, load):
    """Processor time of the server per request, and requests per second."""
    before = server.cpu_s()
    requests, seconds = load()
    return (server.cpu_s() - before) * 1e6 / requests, requests / seconds


def duel(what, baseline, turns, subject_run, baseline_run, reach, unit="us of server CPU"):
    """Both take turns, the first pair to warm up."""
    values, baselines = [], []
    for turn in range(turns + 1):
        first, second = (baseline_run, subject_run) if turn % 2 else (subject_run, baseline_run)
        one, two = first(), second()
        value, base = (two, one) if turn % 2 else (one, two)
        if turn:
            values.append(value)
            baselines.append(base)
    return row(what, baseline, values, baselines, reach, unit)


def row(what, baseline, values, baselines, reach, unit, invert=False):
    result = {"program": "server", "what": what, "unit": unit, "baseline": baseline,
              **compared(values, baselines, invert)}
    return judge(result, reach, result["ratio"])


def judge(result, reach, figure):
    if reach:
        sign, bound = reach.split()[:2]
        result["reach"] = reach
        result["met"] = figure <= float(bound) if sign == "<=" else figure >= float(bound)
    return result


# ---- the servers ----


class Servers:
    def __init__(self, build, scratch):
        self.build, self.scratch, self.running = build, scratch, []

    def start(self, command, ports, **options):
        server = Server(command, ports, **options)
        self.running.append(server)
        return server

    def stop(self, server):
        self.running.remove(server)
        server.stop()

    def stop_all(self):
        for server in list(self.running):
            self.stop(server)

    def stint(self, *options, grpc=None, **more):
        resp, http = free_port(), free_port()
        return self.start([self.build / "src/cmd/stint", "serve", "--workers", 1,
                           "--resp", f"127.0.0.1:{resp}", "--http", f"127.0.0.1:{http}",
                           "--grpc", f"127.0.0.1:{grpc}" if grpc else "off",
                           "--log-level", "warn", *options], [resp, http], **more)

    def redis(self, *options):
        port = free_port()
        return self.start(["redis-server", "--port", port, "--save", "", "--appendonly", "no",
                           *options], [port])

    def echo(self):
        port = free_port()
        return self.start([self.build / "bench/echo_uv", port], [port])

    def nghttpd(self):
        """Answers every POST with a file of ten bytes."""
        port, folder = free_port(), self.scratch / "nghttpd"
        (folder / "envoy.service.ratelimit.v3.RateLimitService").mkdir(parents=True, exist_ok=True)
        (folder / "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit").write_text(
            "ten bytes!")
        return self.start(["nghttpd", "--no-tls", "-a", "127.0.0.1", "-n", 1, "-d", folder, port],
                          [port])

    def nginx(self, rate=10_000):
        """So many requests per second of a key, and as many at once."""
        port = free_port()
        folder = self.scratch / "nginx"
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        config = folder / "nginx.conf"
        config.write_text(f"""
            worker_processes 1; daemon off; pid {folder}/pid; error_log {folder}/error.log;
            events {{ worker_connections 1024; }}
            http {{
                access_log off; keepalive_requests 100000000;
                client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
                fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi;
                scgi_temp_path {folder}/scgi;
                limit_req_zone $http_x_key zone=keys:64m rate={rate}r/s;
                limit_req_zone $http_x_key zone=one:1m rate=1r/m;
                server {{
                    listen 127.0.0.1:{port};
                    location / {{ limit_req zone=keys burst={rate - 1} nodelay; empty_gif; }}
                    location /once {{ limit_req zone=one; empty_gif; }}
                }}
            }}""")
        return self.start(["nginx", "-c", config, "-p", folder], [port])
