# SPDX-License-Identifier: MIT
"""Rows of servers: stint and its peers behind the same protocol, each on one core with one worker.

What a request costs is the processor time of the server and of all that stands behind it, as a
Redis does; it has the same core. All servers of a row are up at once, and each turn measures one
after the other. The load has the other core: how much of it the load used is part of each result,
and where the load was busy and the server less so, the row says that the client was the bound.
"""
import json
import os
import re
import resource
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(1, str(ROOT / "bench/server"))
import asks  # noqa: E402
import grpc_rows  # noqa: E402
import http_rows  # noqa: E402
import result  # noqa: E402
import strictness as attack  # noqa: E402
from machinery import (KEYS, Servers, closed_loop, free_port, output,  # noqa: E402
                       wrk)

# Keys that were asked for once stay live for 36 s, and none is used up while it is measured.
LIMIT, PERIOD_S = 100, 3600
RULES = """
domain: bench
descriptors:
  - key: user
    rate_limit: {unit: UNIT, requests_per_unit: 100}
"""
STEADY_RATE = 2_000
BUSY = 0.8  # of a core: that of a load which the server may have waited for
THROTTLE_SCRIPT = """
local n = 0
wrk.headers["Content-Type"] = "application/json"
request = function()
    n = (n * 1103515245 + 12345) % 2147483648
    local body = '{"key":"key:' .. (n % 10000) ..
        '","max_burst":1000000,"count_per_period":1000000,"period":1}'
    return wrk.format("POST", "/throttle", nil, body)
end
"""
# Behind its prefix: a key of 16 digits, 100 at once, 100 per 3,600 s, one unit.
THROTTLE_CALL = ("/throttlecrab.RateLimiter/Throttle",
                 b"\0\0\0\0\x1b" + grpc_rows.block(1, "0" * 16) +
                 b"\x10\x64\x18\x64\x20\x90\x1c\x28\x01")
RATE_LIMIT_CALL = (grpc_rows.PATH,
                   grpc_rows.question(grpc_rows.descriptor(("user", "0" * 16))))


@dataclass
class Up:
    """A peer in one form, with what stands behind it."""
    peer: str
    form: str
    servers: list
    port: int
    words: list = field(default_factory=list)  # of RESP; KEY in them is the key
    granted: int = 0                           # the first integer of the reply to a grant
    path: str = ""                             # of HTTP
    script: str = ""
    call: tuple = ()                           # of gRPC: path and message
    is_floor: bool = False                     # decides nothing
    rate: float = 0                            # requests per second, when it was last measured

    def memory(self):
        return sum(server.memory()[1] for server in self.servers)


@dataclass
class Turn:
    cpu_us: list  # per request, of each process and its children
    rate: float
    client: float  # processor time of the load by the clock on the wall
    server: float
    told: dict


def measure(up, load):
    """`load` returns (requests, seconds, what else it told)."""
    before = [server.cpu_s() for server in up.servers]
    client = resource.getrusage(resource.RUSAGE_CHILDREN)
    requests, seconds, told = load(up)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = [server.cpu_s() - first for server, first in zip(up.servers, before)]
    up.rate = requests / seconds
    return Turn([each * 1e6 / requests for each in spent], up.rate,
                (after.ru_utime + after.ru_stime - client.ru_utime - client.ru_stime) / seconds,
                sum(spent) / seconds, told)


class Bench:
    def __init__(self, context):
        self.context, self.quick, self.say = context, context.quick, context.say
        self.servers = Servers(context.build, Path(context.scratch))
        self.keys = 10_000 if self.quick else KEYS
        self.rls_keys = 2_000 if self.quick else 200_000
        self.turn_s = 0.1 if self.quick else 1.0

    # ---- what is up ----

    def up(self, starts):
        """Those that can be had and that start; stint is the first."""
        ups = []
        for name, start in starts:
            peer = self.context.peers.get(name)
            if name != "stint" and (peer is None or peer.missing):
                continue
            try:
                ups.append(start())
            except SystemExit as error:
                self.lose(name, error)
        return ups

    def lose(self, name, error):
        if name == "stint":
            raise error
        self.say(f"{name}: not measured: {error}")

    def command(self, name):
        return self.context.peers[name].command

    def redis(self, name):
        command, port = self.command(name), free_port()
        return self.servers.start([*command, "--port", port], [port])

    def stint_resp(self, period_s=PERIOD_S):
        stint = self.servers.stint("--keys", KEYS)
        return Up("stint", "CL.THROTTLE, gcra", [stint], stint.ports[0],
                  ["CL.THROTTLE", "KEY", LIMIT - 1, LIMIT, period_s])

    def stint_window(self):
        stint = self.servers.stint("--keys", 1, "--keys16", KEYS)
        return Up("stint", "STINT.TAKE, window", [stint], stint.ports[0],
                  ["STINT.TAKE", "QUOTA", f"window {LIMIT}/{PERIOD_S}s", "KEY"])

    def lua(self, period_s=PERIOD_S):
        redis = self.redis("redis")
        script = (ROOT / "bench/server/gcra.lua").read_text()
        sha = output("redis-cli", "-p", redis.ports[0], "SCRIPT", "LOAD", script).strip()
        return Up("redis", "GCRA in Lua", [redis], redis.ports[0],
                  ["EVALSHA", sha, 1, "KEY", LIMIT, LIMIT, period_s])

    def incr(self):
        redis = self.redis("redis")
        return Up("redis", "INCR: no limit, the floor", [redis], redis.ports[0], ["INCR", "KEY"],
                  is_floor=True)

    def cell(self, period_s=PERIOD_S):
        redis = self.redis("redis-cell")
        return Up("redis-cell", "CL.THROTTLE", [redis], redis.ports[0],
                  ["CL.THROTTLE", "KEY", LIMIT - 1, LIMIT, period_s])

    def throttlecrab(self, protocol, form, **more):
        port = free_port()
        server = self.servers.start(
            [*self.command("throttlecrab-server"), f"--{protocol}", f"--{protocol}-host",
             "127.0.0.1", f"--{protocol}-port", port, "--store-capacity", KEYS], [port])
        return Up("throttlecrab-server", form, [server], port, **more)

    def throttlecrab_resp(self, period_s=PERIOD_S):
        return self.throttlecrab("redis", "THROTTLE", granted=1,
                                 words=["THROTTLE", "KEY", LIMIT, LIMIT, period_s])

    def throttlecrab_http(self):
        return self.throttlecrab("http", "POST /throttle", path="/throttle",
                                 script=THROTTLE_SCRIPT)

    def throttlecrab_grpc(self):
        return self.throttlecrab("grpc", "Throttle, a call of its own", call=THROTTLE_CALL)

    def stint_rls(self, unit="hour"):
        port, rules = free_port(), self.rules(unit)
        stint = self.servers.stint("--rules", rules, "--keys", 1, "--keys16", KEYS, grpc=port)
        return Up("stint", "window", [stint], port, call=RATE_LIMIT_CALL)

    def rules(self, unit):
        """One file for both. The folder is as ratelimit wants it."""
        folder = self.servers.scratch / f"runtime-{unit}/ratelimit/config"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "bench.yaml").write_text(RULES.replace("UNIT", unit))
        return folder / "bench.yaml"

    def ratelimit(self, window="", unit="hour"):
        redis = self.redis("redis")
        grpc, http, debug = free_port(), free_port(), free_port()
        settings = {
            "RUNTIME_ROOT": self.rules(unit).parents[2], "RUNTIME_SUBDIRECTORY": "ratelimit",
            "RUNTIME_WATCH_ROOT": "false", "USE_STATSD": "false", "DISABLE_STATS": "true",
            "LOG_LEVEL": "error", "REDIS_SOCKET_TYPE": "tcp",
            "REDIS_URL": f"127.0.0.1:{redis.ports[0]}", "GRPC_HOST": "127.0.0.1", "GRPC_PORT": grpc,
            "HOST": "127.0.0.1", "PORT": http, "DEBUG_HOST": "127.0.0.1", "DEBUG_PORT": debug,
            **({"REDIS_PIPELINE_WINDOW": window} if window else {}),
        }
        server = self.servers.start(self.command("envoyproxy-ratelimit"), [grpc], env={
            **os.environ, **{name: str(value) for name, value in settings.items()}})
        return Up("envoyproxy-ratelimit", f"pipeline window {window}" if window else "default",
                  [server, redis], grpc, call=RATE_LIMIT_CALL)

    # ---- turns ----

    def turns(self, ups, load):
        """Of each that is up: a list of Turn."""
        found = [[] for _ in ups]
        for turn in range(self.context.turns + 1):
            numbers = list(range(len(ups)))
            for i in reversed(numbers) if turn % 2 else numbers:
                if found[i] is None:
                    continue
                try:
                    measured = measure(ups[i], load)
                except (SystemExit, subprocess.CalledProcessError) as error:
                    self.lose(ups[i].peer, error)
                    found[i] = None
                    continue
                found[i] += [measured] if turn else []
        return [(up, turns) for up, turns in zip(ups, found) if turns is not None]

    def cost(self, row, found, steady=False):
        """What a request costs; its note says what of it whose is."""
        mine = [sum(turn.cpu_us) for turn in found[0][1]]
        results = []
        for up, turns in found:
            client = statistics.median(turn.client for turn in turns)
            server = statistics.median(turn.server for turn in turns)
            more = {} if steady else {
                "per_second": statistics.median(turn.rate for turn in turns),
                "client_share": client, "server_share": server,
                "note": f"load {client:.0%} of its core, server {server:.0%}",
                **({"bound": "client"} if client > max(server, BUSY) else {})}
            if up.is_floor:
                more["floor"] = True
            if len(up.servers) > 1:
                parts = [statistics.median(each) for each in zip(*(turn.cpu_us for turn in turns))]
                more["note"] = ", ".join(filter(None, [
                    f"{parts[0]:.1f} us and {sum(parts[1:]):.1f} us of Redis", more.get("note")]))
            results.append(result.of(row, up.peer, up.form, "us",
                                     [sum(turn.cpu_us) for turn in turns], mine, **more))
        return results

    # ---- the rows ----

    def memory(self, row, ups, keys, fill):
        """Resident memory of each new key, which was asked for once."""
        mine, results = None, []
        for up in ups:
            before = up.memory()
            fill(up, keys)
            used = (up.memory() - before) / keys
            mine = mine or used
            results.append(result.of(row, up.peer, up.form, "B", [used], [mine],
                                     note=f"{keys:,} keys"))
        return results

    def resp(self):
        ups = self.up([("stint", self.stint_resp), ("stint", self.stint_window),
                       ("redis", self.lua), ("redis-cell", self.cell),
                       ("throttlecrab-server", self.throttlecrab_resp), ("redis", self.incr)])

        def words(up, number):
            return [str(word).replace("KEY", f"key:{number}") for word in up.words]

        def fill(up, keys):
            closed_loop(self.context.build, up.port, keys, 64, *words(up, "__next_int__"))

        def load(pipeline):
            def run(up):
                requests = max(2_000, int(up.rate * self.turn_s)) // 800 * 800
                return *closed_loop(self.context.build, up.port, requests, pipeline,
                                    *words(up, "__rand_int__")), {}
            return run

        found = self.memory("server-memory-resp", ups, self.keys, fill)
        ups = [up for up in ups if up.form != "STINT.TAKE, window"]
        for pipeline in (16, 1):
            self.say(f"RESP, pipeline {pipeline}")
            for up in ups:
                up.rate = 50_000 / self.turn_s if not self.quick else 0
            found += self.cost(f"resp-{pipeline}", self.turns(ups, load(pipeline)))
        self.servers.stop_all()
        return found

    def rls_load(self, connections, rate, seconds, *calls):
        message = self.servers.scratch / "message"

        def run(up):
            path, bytes_of = up.call
            message.write_bytes(bytes_of)
            told = json.loads(output(self.context.build / "bench/rls_load", up.port, connections,
                                     rate, seconds, path, message, *calls))
            if not 0 < told["sent"] == told["answered"] == told["ok"]:
                sys.exit(f"rls_load: not what is measured: {told}")
            return told["answered"], told["seconds"], told
        return run

    def rls(self):
        ups = self.up([("stint", self.stint_rls), ("envoyproxy-ratelimit", self.ratelimit),
                       ("envoyproxy-ratelimit", lambda: self.ratelimit("150us")),
                       ("throttlecrab-server", self.throttlecrab_grpc)])
        found = self.memory("server-memory-rls", ups, self.rls_keys, lambda up, keys: self.rls_load(
            10, "x20", 100, keys)(up))
        for connections, streams in ((10, 100), (50, 1)):
            self.say(f"ShouldRateLimit, {connections} connections of {streams} calls")
            found += self.cost(f"rls-{connections}x{streams}", self.turns(
                ups, self.rls_load(connections, f"x{streams}", self.turn_s)))
        self.say(f"ShouldRateLimit, {STEADY_RATE} calls a second")
        turns = self.turns(ups, self.rls_load(10, STEADY_RATE, 0.5 if self.quick else 3))
        found += self.cost("rls-steady", turns, steady=True)
        for name in ("p50", "p99", "p999"):
            values = [[turn.told[f"{name}_us"] for turn in each] for _, each in turns]
            found += [result.of(f"rls-steady-{name}", up.peer, up.form, "us", mine, values[0])
                      for (up, _), mine in zip(turns, values)]
        self.servers.stop_all()
        return found

    def stint_http(self):
        scratch = self.servers.scratch
        (scratch / "http-rules.yaml").write_text(http_rows.RULES)
        (scratch / "http.yaml").write_text(http_rows.CONFIG)
        stint = self.servers.stint("--config", scratch / "http.yaml", "--rules",
                                   scratch / "http-rules.yaml")
        return (Up("stint", "/auth, gcra", [stint], stint.ports[1], path="/auth",
                   script=http_rows.AUTH_SCRIPT % "/auth"),
                Up("stint", "POST /v1/take, gcra", [stint], stint.ports[1], path="/v1/take",
                   script=http_rows.TAKE_SCRIPT))

    def nginx(self):
        nginx = self.servers.nginx()
        http_rows.check_nginx(nginx)
        return Up("nginx", "limit_req, empty_gif", [nginx], nginx.ports[0], path="/",
                  script=http_rows.AUTH_SCRIPT % "/")

    def http(self):
        auth, take = self.stint_http()

        def load(up):
            script = self.servers.scratch / f"{up.peer}-{up.path.replace('/', '-')}.lua"
            script.write_text(up.script)
            return *wrk(f"http://127.0.0.1:{up.port}{up.path}", 1 if self.quick else 2, script), {}

        found = []
        for row, mine, name, start in (
                ("http-get", auth, "nginx", self.nginx),
                ("http-post", take, "throttlecrab-server", self.throttlecrab_http)):
            self.say(f"HTTP, {name}")
            found += self.cost(row, self.turns([mine, *self.up([(name, start)])], load))
        self.servers.stop_all()
        return found

    # ---- strictness ----

    def attacks(self):
        """(name, what starts it, what asks it)"""
        def resp(up):
            return asks.Resp(up.port, up.words, up.granted)

        def rls(up):
            return asks.Rls(up.port)

        def nginx():
            server = self.servers.nginx(LIMIT)
            return Up("nginx", f"limit_req, burst={LIMIT - 1} nodelay", [server], server.ports[0])

        return [
            ("stint", lambda: self.stint_resp(1), resp),
            ("stint", lambda: self.stint_rls("second"), rls),
            ("redis", lambda: self.lua(1), resp),
            ("redis-cell", lambda: self.cell(1), resp),
            ("throttlecrab-server", lambda: self.throttlecrab_resp(1), resp),
            ("envoyproxy-ratelimit", lambda: self.ratelimit("150us", "second"), rls),
            ("nginx", nginx, lambda up: asks.Http(up.port)),
        ]

    def strictness(self):
        found = []
        for name, start, begin in self.attacks():
            for up in self.up([(name, start)]):
                self.say(f"strictness of {name}, {up.form}")
                link = begin(up)
                found.append(result.most(up.peer, up.form, LIMIT, attack.attack(
                    link.ask, LIMIT, 1.0, self.context.seeds)))
                link.close()
            self.servers.stop_all()
        return found


def versions(context):
    """Of what Debian gives."""
    for name, command in (("redis", ["redis-server", "--version"]), ("nginx", ["nginx", "-v"])):
        peer = context.peers.get(name)
        if peer and not peer.missing:
            said = subprocess.run(command, capture_output=True, text=True, check=True)
            peer.version = re.search(r"(\d+\.\d+\.\d+)", said.stdout + said.stderr).group(1)


def with_bench(context, *parts):
    bench = Bench(context)
    versions(context)
    try:
        return [each for part in parts for each in part(bench)]
    finally:
        bench.servers.stop_all()


def rows(context):
    return with_bench(context, Bench.resp, Bench.rls, Bench.http)


def strictness(context):
    return with_bench(context, Bench.strictness)
