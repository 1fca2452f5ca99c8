# SPDX-License-Identifier: MIT
"""Rows of Envoy's rate limit service: what a call costs, and how long it takes, against nghttpd.

nghttpd is nghttp2's own server: it answers the same POSTs with a file of ten bytes, so what is left
between the two is gRPC, the message, the rules and the decision.
"""
import json
import socket
import sys

from machinery import KEYS, cpu_us, duel, free_port, h2load, output, row

PATH = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
RULES = """
domain: bench
descriptors:
  - key: user
    rate_limit: {requests_per_unit: 1000000, unit: second, algorithm: gcra, name: one}
  - key: tenant
    descriptors:
      - key: user
        rate_limit: {requests_per_unit: 1000000, unit: second, algorithm: gcra, name: two}
"""


def block(field, value):
    value = value.encode() if isinstance(value, str) else value
    assert len(value) < 128 or field == 2  # of descriptors alone, one more byte of length is needed
    size = bytes([len(value)]) if len(value) < 128 else bytes([len(value) & 127 | 128,
                                                               len(value) >> 7])
    return bytes([field << 3 | 2]) + size + value


def descriptor(*entries):
    return block(2, b"".join(block(1, block(1, key) + block(2, value)) for key, value in entries))


def question(*descriptors):
    message = block(1, "bench") + b"".join(descriptors)
    return b"\0" + len(message).to_bytes(4, "big") + message


def fill(port):
    """A million users, each asked once, in pipelines of a thousand."""
    with socket.create_connection(("127.0.0.1", port)) as link:
        for first in range(0, KEYS, 1000):
            words = [["STINT.TAKE", "DOMAIN", "bench", "DESCRIPTOR", "1", "user", f"{n:016}"]
                     for n in range(first, first + 1000)]
            link.sendall(b"".join(
                b"*%d\r\n" % len(each) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w.encode())
                                                  for w in each) for each in words))
            seen = 0
            while seen < 1000:
                data = link.recv(1 << 20)
                if not data or b"-ERR" in data:
                    sys.exit(f"a take failed: {data[:200]}")
                seen += data.count(b"outcome")


def begin(servers):
    """stint with its keys and the port where it speaks gRPC, nghttpd, and the two questions."""
    (servers.scratch / "grpc.yaml").write_text(RULES)
    one, ten = servers.scratch / "one", servers.scratch / "ten"
    one.write_bytes(question(descriptor(("user", "0" * 16))))
    ten.write_bytes(question(*[descriptor(("tenant", "acme"), ("user", f"{n:016}"))
                               for n in range(10)]))
    port = free_port()
    stint = servers.stint("--rules", servers.scratch / "grpc.yaml", "--keys", 2 * KEYS, grpc=port)
    fill(stint.ports[0])
    return stint, port, servers.nghttpd(), one, ten


def cost(servers, turns, requests):
    stint, port, nghttpd, one, ten = begin(servers)

    def ask(server, at, body, times=requests):
        return cpu_us(server, lambda: h2load(at, times, PATH, body))[0]

    rows = [
        duel("ShouldRateLimit, one descriptor, 1 M keys, 100 streams", "nghttpd, ten bytes", turns,
             lambda: ask(stint, port, one), lambda: ask(nghttpd, nghttpd.ports[0], one), "<= 1.8"),
        duel("ShouldRateLimit, ten descriptors of two entries", "one descriptor", turns,
             lambda: ask(stint, port, ten, requests // 2), lambda: ask(stint, port, one), "<= 2.2"),
    ]
    servers.stop_all()
    return rows


def latency(servers, turns, seconds):
    """At half of what h2load can draw; random keys, open loop, both at the same rate."""
    stint, port, nghttpd, one, _ = begin(servers)
    calls, spent = h2load(port, 100_000, PATH, one)
    rate = int(calls / spent / 2)
    found = {"stint": [], "nghttpd": []}

    def ask(name, at):
        text = output(servers.build / "bench/rls_load", at, 10, rate, seconds, PATH, one)
        told = json.loads(text)
        if told["answered"] < told["sent"] or (name == "stint" and told["ok"] < told["sent"]):
            sys.exit(f"rls_load: not what is measured: {text}")
        found[name].append(told)

    for turn in range(turns + 1):
        ask("nghttpd", nghttpd.ports[0])
        ask("stint", port)
        if turn == 0:
            found = {"stint": [], "nghttpd": []}
    servers.stop_all()
    return [row(f"ShouldRateLimit at {rate} calls/s, {name}", "nghttpd, ten bytes",
                [each[field] for each in found["stint"]],
                [each[field] for each in found["nghttpd"]], reach, "us")
            for name, field, reach in (("p50", "p50_us", "<= 1.5"), ("p99", "p99_us", "<= 2"),
                                       ("p99.9", "p999_us", None))]
