#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
Writes the corpora that a fuzzer starts from: usage: make_corpus.py [FUZZER…]

Inputs that a finding left behind (fuzz/corpus/NAME/found-…) are not touched.
"""

import gzip
import random
import re
import shlex
import sys
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"

SPECS = """
100/60s
window 100/1m resolution=12
window 1/1us
window 4294967295/10h
token_bucket 100/60s burst=20
gcra 1000003/1s burst=1 count_denied=true
gcra 1/3650d
gcra 0/1s
buckets 500/10m time_slack=1m count_slack=50
buckets 20/1s count_slack=4
buckets 20/1s time_slack=50ms
log 5/1s
sliding_window_log 8000/1h when_full=deny
fixed_window 1000/1mo align=calendar utc_offset=+01:00
fixed_window 7/1w align=calendar utc_offset=-23:59
fixed_window 10/90s align=first_use
fixed_window 10/1y align=calendar
sliding_counter 100/1m
sliding_window 1/1h30m
concurrency 10 lease=30s
window 10/1.5s initial=3
window 10/1s initial=empty when_full=inherit
100/m
windw 100/1s
window 100/1s burst=3
window 100/1s resolution=
buckets 10/1s
gcra 5000000000/1s
100/0s
/
""".strip().splitlines()

TRACE = """0 a
0.5 a 2
1.000000001\tb\t0 # comment
# nothing

12 key\\x00+\xff 4294967295
9223372035.999999999 z
1.0000000001 late
-1 a
1 a 4294967296
1 a 1 1
1
"""

COMMON = '203.0.113.9 - - [17/May/2015:10:05:03 +0000] "GET /a?b=c HTTP/1.1" 200 17'
LOGLINES = [
    COMMON,
    COMMON + ' "http://example.org/" "agent \\"x\\""',
    '2001:db8::1 - bob smith [17/May/2015:23:59:60 +0130] "POST /x HTTP/2" 429 -',
    '::ffff:192.0.2.1 - - [01/Jan/1970:00:00:00 +0000] "\\x16\\x03" 400 0',
    'host.example - [x] [31/Dec/2261:00:00:00 -2359] "GET / HTTP/1.0" 304 -',
    '- - - [29/Feb/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1',
    '1.2.3.256 - - [29/Feb/2016:10:05:03 +0000] "-" 200 1',
    "garbage",
]

JSONL = [
    '{"t": 1, "k": "a"}',
    '{"t": 1.25, "k": "a", "c": 3}',
    '{"t": "2026-01-31T23:59:59.25+01:00", "k": true}',
    '{"t": "12.000000001", "k": 17}',
    '{"t": 1e18, "k": "a"}',
    '{"t": -1, "k": null}',
    '{"t": 1, "t": 2, "k": "a"}',
    '{"t": 1, "k": "\\u0000+\\\\"}',
    "[1]",
    '{"t": 1, "k": 1e-7}',
    "   ",
    '{"t":1,"k":{"a":[[[[1]]]]}}',
]


def spec():
    yield from ((spec.encode(), f"{number:02}") for number, spec in enumerate(SPECS))


def trace():
    yield TRACE.encode("latin-1"), "all"
    for number, line in enumerate(TRACE.splitlines()):
        yield line.encode("latin-1"), f"line-{number:02}"
    yield b"1 a\r\n2 b\r\n3 c", "crlf"


def logline():
    for number, line in enumerate(LOGLINES):
        yield f"ip\n{line}\n{line}".encode(), f"line-{number}"
    exprs = ["ip/64+path", "user+method+status", "ip+ip/48", "nonsense", "ip/129"]
    for number, expr in enumerate(exprs):
        yield "\n".join([expr, *LOGLINES]).encode(), f"key-{number}"


def jsonl():
    for number, line in enumerate(JSONL):
        yield f"t k c\n{line}\n{line}".encode(), f"line-{number:02}"
    yield "\n".join(["t k+k", *JSONL]).encode(), "parts"
    yield "\n".join(["t k", *JSONL]).encode(), "all"


def run(times, text):
    return (times - 1).to_bytes(2, "little") + bytes([len(text)]) + text


def reader():
    lines = b"one\ntwo\r\n\nfour"
    yield b"\0" + lines, "plain"
    yield b"\0" + gzip.compress(lines, mtime=0), "gzip"
    yield b"\0" + gzip.compress(b"a\n", mtime=0) + b"\0\0" + gzip.compress(b"b", mtime=0), "members"
    yield b"\0" + gzip.compress(lines, mtime=0)[:-3], "cut"
    yield b"\0" + gzip.compress(lines, mtime=0) + b"rest", "rest"
    yield b"\0\x1f", "one-byte"
    yield b"\1\5\0" + run(1, lines), "packed"
    yield b"\1\3\0" + run(1, b"a\n") + run(65536, b"x") + run(1, b"\nb\n"), "longest"
    yield b"\1\3\1" + run(65536, b"x") + run(2, b"y") + run(1, b"\nb\n"), "too-long"


def drawn(seed, size):
    """Bytes that a fuzzer reads as a history: random, but always the same."""
    return random.Random(seed).randbytes(size)


# (limit, period, option) as draw.h reads them: 8 units per second, and what suits the algorithm.
QUOTA = {
    "window": b"\0\x08\x05\0",
    "window8": b"\0\x08\x05\x09",
    "buckets": b"\1\x10\x05\x0e\x03",
    "log": b"\2\x06\x05\0",
    "gcra": b"\3\x05\x05\x14",
    "fixed": b"\4\x07\x05\0",
    "fixed_first_use": b"\4\x07\x06\1",
    "fixed_month": b"\4\x07\x06\4",
    "sliding": b"\5\x09\x05\0",
}


def algorithm():
    for number, (name, quota) in enumerate(QUOTA.items()):
        for length in (40, 400):
            yield quota + drawn(f"{name} {length}", length), f"{name}-{length}"


def holders():
    for number in range(4):
        yield bytes([4 + number, 5, 0]) + drawn(f"holders {number}", 60 + 80 * number), f"{number}"


def table():
    for number in range(8):
        yield drawn(f"table {number}", 200 + 150 * number), f"{number}"


def region():
    yield b"\0", "good"
    for number in range(12):
        yield bytes([number]) + drawn(f"region {number}", 12 + 8 * number), f"{number:02}"
    yield b"\xf8", "half"


RULES = r"""
domain: edge
descriptors:
  - key: remote_address
    rate_limit: &usual {unit: minute, requests_per_unit: 100, name: per_address}
    shadow: {algorithm: gcra, period: 90s, requests_per_unit: 60, burst: 20}
  - {key: remote_address, value: 192.0.2.1, rate_limit: {unlimited: true}}
  - key: path
    value: /a/*/b*
    share_threshold: true
    descriptors:
      - key: method
        rate_limit: {<<: *usual, name: other, replaces: [{name: per_address}]}
      - key: method
        value: GET
        descriptors: [{key: user, rate_limit: *usual}, {key: user, value: '*x'}]
  - {key: path, value: '*', rate_limit: *usual}
---
domain: "e"
descriptors:
- key: a
  value: b
  shadow_mode: yes
  quota_mode: On
  detailed_metric: true
  value_to_metric: false
  metadata: {any: [thing, {at: all}]}
  rate_limit: {unit: MONTH, requests_per_unit: 1_000, on_store_error: local, utc_offset: +01:00}
  ban: {after: 5, for: 15m, within: 1h, factor: 2, max: 1d}
- {key: a_b, rate_limit: {algorithm: buckets, period: 10m, requests_per_unit: 500, time_slack: 1m,
  count_slack: 50}}
---
domain: x
store_tag: first
descriptors:
  - key: k
    rate_limit: {algorithm: concurrency, lease: 30s, requests_per_unit: 3, store: fast}
  - key: "s/@\x7f"
    rate_limit: {unit: minute, requests_per_unit: 300, store: default, lease: strict,
      lease_units: 7, lease_term: 250ms, on_store_error: local, local_start: empty,
      local_for: 10m, local_then: allow, name: "@s"}
    shadow: {unit: day, requests_per_unit: 7}
  - {key: t, rate_limit: {unlimited: true, store: none, local_start: full, lease: fast}}
  - key: l
    rate_limit: {unit: year, calendar: fixed, requests_per_unit: 0, resolution: 12}
  - key: l
    rate_limit: {unit: fortnight, requests_per_unit: -1, burst: 2}
  - value: only
  - ratelimit: {}
---
domain:
descriptors: {key: "\u0000"}
---
&a [*a, {*a : [[[[[[[[
""".strip().split("\n---\n")


def rules():
    for number, text in enumerate(RULES):
        yield text.encode(), f"{number}"
    yield "\0".join(RULES[:2]).encode(), "files"
    yield "\0".join([RULES[0], "domain: edge\ndescriptors: [{key: more}]"]).encode(), "merged"


def dialogues():
    """What the dialogues of tests/trace say, each as lines and as arrays."""
    for path in sorted((CORPUS.parents[1] / "tests/trace").glob("*.txt")):
        said = re.findall(r"\b[A-Z] > (.*)", path.read_text())
        lines = "".join(f"{command}\r\n" for command in said)
        arrays = b""
        for command in said:
            words = [word.encode() for word in shlex.split(command)]
            arrays += b"*%d\r\n" % len(words)
            arrays += b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
        yield lines.encode(), arrays, path.stem


def resp_reader():
    for lines, arrays, name in dialogues():
        yield lines, f"{name}-lines"
        yield arrays, f"{name}-arrays"


def resp():
    """Whole; and in bites by turns of both connections, with steps of time and short readings."""
    for lines, arrays, name in dialogues():
        yield b"\0" + arrays, f"{name}-pieces"
        for kind, text in ((1, arrays), (2, lines)):
            bites = [bytes([0x2e]) + text[at:at + 254] for at in range(0, len(text), 254)]
            yield bytes([kind]) + b"\xc0\x00\x10\xe0\x40".join(bites), f"{name}-{kind}"


def varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def field(number, value):
    """One field of a protobuf message: a number, or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def descriptor(*entries):
    return b"".join(field(1, field(1, key) + field(2, value)) for key, value in entries)


def rls():
    one = descriptor((b"ip", b"10.0.0.1"))
    two = descriptor((b"path", b"/a"), (b"k\0_\xff", b""))
    domain = field(1, b"shop")
    yield domain + field(2, one), "one"
    yield domain + field(2, one) + field(2, two) + field(3, 7), "two"
    yield domain + 10 * field(2, two), "ten"
    yield domain + field(2, one + field(3, field(1, 5))), "hits"
    yield domain + field(2, one + field(3, b"") + field(4, 1)), "gives-back"
    yield domain + field(2, one + field(3, field(1, 1 << 32))), "too-many-hits"
    limit = field(1, 9) + field(2, 2)
    yield domain + field(2, one + field(2, limit)), "limit"
    yield domain + field(2, one + field(2, limit + field(3, field(1, 30)))), "multiplier"
    yield domain + field(2, one + field(2, field(1, 9))), "no-unit"
    unknown = field(100, 1) + field(101, b"x") + b"\xa5\x06abcd\xa1\x06abcdefgh"
    yield unknown + domain + field(2, one + unknown) + unknown, "unknown"
    yield domain, "no-descriptors"
    yield domain + field(2, b""), "no-entries"
    yield field(2, one), "no-domain"
    yield domain + 33 * field(2, one), "too-many"
    yield domain + field(2, 33 * one), "too-many-entries"
    yield (domain + field(2, one))[:-3], "cut"
    yield b"\x0a\xff\xff\xff\xff\x07shop", "long"
    asked = domain + field(2, one) + field(2, two)
    yield asked + field(3, 700) + field(4, field(1, 30) + field(2, 5)), "reserve"
    yield asked + field(3, 1 << 32) + field(4, b""), "reserve-too-many"
    yield asked + field(3, 7) + field(4, b"\x08" + b"\xff" * 9 + b"\x01"), "reserve-no-ttl"
    yield asked + field(3, b"0" * 48) + field(4, 9), "commit"
    yield asked + field(3, b"") + field(4, 9), "commit-no-id"


def frame(message, is_compressed=False):
    return bytes([is_compressed]) + len(message).to_bytes(4, "big") + message


def grpc_frame():
    yield frame(b"message"), "plain"
    yield frame(b"") + frame(b"second"), "two"
    yield frame(gzip.compress(b"message" * 20, mtime=0), True), "gzip"
    yield frame(gzip.compress(bytes(1 << 16), mtime=0), True), "bomb"
    yield frame(gzip.compress(b"message", mtime=0)[:-4], True), "cut-gzip"
    yield b"\0\xff\xff\xff\xff", "long"
    yield b"\2\0\0\0\0", "flag"
    yield b"\0\0\0\0\7mess", "cut"
    for number, text in enumerate((b"10S", b"99999999H", b"identity, gzip", b"gzip", b"100 %\n")):
        yield text, f"text-{number}"


def grpc_session():
    """Steps of a session, as the fuzzer reads them: frames of three bytes each, and time."""
    wait, hear, change, drain = b"\xc0\xff\x01", b"\xff\xff", b"\xdc", b"\xde"
    call, watch, reflect = bytes([8, 0, 0]), bytes([8, 0, 2]), bytes([0, 0, 4])
    ping, window = bytes([7, 0, 0]), bytes([6, 1, 3])
    yield b"\x03\x0f" + call * 16 + hear + b"\x0f" + (call + watch) * 8 + hear, "calls"
    yield b"\x02\x02" + watch * 3 + wait + hear + change + wait + drain + hear, "watch"
    asked = reflect + bytes([2, 0x0c, 0])
    yield b"\x03\x01" + asked + hear + b"\x00" + bytes([2, 1, 0]), "reflection"
    yield b"\x01" + call * 5 + reflect + ping + window + bytes([4, 0, 3]), "pieces"
    yield b"\x04\x0f" + ping * 16 + b"\x0f" + window * 16 + hear, "flood"
    yield b"\x00\x01GET / HTTP/1.1\r\nHost: x\r\n\r\n", "http"
    yield b"\x00\x00" + bytes([0, 0, 8, 6, 0, 0, 0, 0, 0]) + b"12345678", "raw"


def http_conn():
    """Two bytes for the pieces, then requests that follow each other."""
    body = b'{"quota":"999/1m","key":"k"}'
    get = b"GET /auth HTTP/1.1\r\nHost: localhost\r\n"
    post = b"POST /v1/take HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    sized = b"Content-Length: %d\r\n" % len(body)
    chunked = b"Transfer-Encoding: chunked\r\n\r\n"
    chunks = b"%x;a=\"b\"\r\n%s\r\n0\r\nX: y\r\n\r\n" % (len(body), body)
    parent = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    requests = {
        "gets": (get + b"\r\n") * 8,
        "sized": post + sized + b"\r\n" + body + get + b"\r\n",
        "chunked": post + chunked + chunks + get + b"\r\n",
        "expected": post + sized + b"Expect: 100-continue\r\n\r\n" + body + get + b"\r\n",
        "old": b"GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" * 3,
        "head": b"\r\nHEAD /metrics HTTP/1.1\r\nHost: [::1]:80\r\n\r\n" + get + b"\r\n",
        "absolute": b"OPTIONS http://localhost/v1/take HTTP/1.1\r\nHost: x\r\n\r\n",
        "waits": post + b"Content-Length: 57\r\n\r\n"
                 b'{"quota":"gcra 1/1h burst=1","key":"k","wait_ms":5000}   ' * 2,
        "both": post + sized + chunked + chunks,
        "twice": post + sized + sized + b"\r\n" + body,
        "folded": get + b"A: b\r\n c\r\n\r\n",
        "bare": get + b"A: b\n\r\n",
        "unnamed": get + b": b\r\n\r\n",
        "upgrade": get + b"Connection: upgrade\r\nUpgrade: h2c\r\n\r\n" + get + b"\r\n",
        "long": get + b"a:b\r\n" * 500 + b"\r\n",
        "traced": get + b"traceparent: " + parent + b"\r\ntracestate: a=1,b@c=2\r\n\r\n",
        "parent": parent,
        "state": b"\nfoo=1,bar=2\nb@c= x \n",
    }
    for name, data in requests.items():
        yield b"\x11\x42" + data, name


def h2(kind, flags, stream, payload):
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big")
    return head + payload


def in_pieces(said):
    """Steps of a link that receives these bytes."""
    return b"".join(bytes([len(said[at:at + 60])]) + said[at:at + 60]
                    for at in range(0, len(said), 60))


def collector():
    """A byte that chooses HTTP, gRPC or a URL; then steps of a connection."""
    post, wait, begin = b"\xa5", b"\xff", b"\0"
    partial = field(1, field(1, 7) + field(2, b"full"))
    ok = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(partial), partial)
    chunked = b"Transfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n"
    busy = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 Busy\r\nRetry-After: 17\r\n" + chunked
    answers = {"ok": ok, "busy": busy, "open": b"HTTP/1.1 200 OK\r\n\r\ntext"}
    for label, answer in answers.items():
        yield b"\0" + begin + post + (in_pieces(answer) + post) * 2 + wait, label
    settings, head = h2(4, 0, 0, b""), h2(1, 4, 1, b"\x88")
    status = b"\0\x0bgrpc-status"
    done = h2(1, 5, 1, status + b"\x010")
    late = h2(1, 5, 1, b"\x88" + status + b"\x0214")
    calls = {
        "call": head + h2(0, 0, 1, frame(partial)) + done,
        "unavailable": late,
        "reset": h2(3, 0, 1, bytes([0, 0, 0, 7])),
        "goaway": h2(7, 0, 0, bytes(8)) + head + done,
        "compressed": head + h2(0, 0, 1, b"\1" + frame(partial)[1:]) + done,
    }
    for label, said in calls.items():
        yield b"\1" + begin + in_pieces(settings) + post + in_pieces(said) + post + wait, label
    for number, url in enumerate((b"http://c", b"grpcs://[::1]:1/", b"https://c:4318/v1/x")):
        yield b"\2" + url, f"url-{number}"


def xds():
    """A byte that chooses what is read; then steps of a connection, or a message."""
    kind = b"type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"
    limit = field(1, 2) + field(2, 9)
    text = field(1, field(1, b"team") + field(2, field(3, b"blue")))
    number = field(1, field(1, b"n") + field(2, b"\x11" + bytes(6) + b"\xf8\x3f"))
    user = field(1, b"user") + field(3, limit)
    deep = field(1, b"path") + field(2, b"/a*") + field(4, user) + field(5, 1)
    named = field(3, limit + field(4, b"x") + field(5, field(1, b"y"))) + field(8, text + number)
    config = field(1, b"one") + field(2, b"edge") + field(3, user) + field(3, deep)
    configs = {
        "config": config,
        "fields": field(2, b"edge") + field(3, field(1, b"k") + named),
        "twice": config + field(3, user),
        "no-domain": field(3, user),
        "no-unit": field(2, b"edge") + field(3, field(1, b"k") + field(3, field(2, 9))),
        "unlimited": field(2, b"edge") + field(3, field(1, b"k") + field(3, field(3, 1))),
        "unknown": config + field(99, b"later"),
        "cut": config[:-2],
    }
    for label, each in configs.items():
        yield b"\2" + each, label
    response = field(1, b"v1") + field(2, field(1, kind) + field(2, config)) + field(5, b"n1")
    yield b"\1" + response, "response"
    yield b"\1" + response + field(2, field(1, b"other") + field(2, config)), "other-type"
    yield b"\3" + field(1, field(1, b"xds://a:1") + field(2, response)), "kept"
    said = (h2(4, 0, 0, b"") + h2(1, 4, 1, b"\x88") + h2(0, 0, 1, frame(response)))
    pieces = in_pieces(said)
    ping = bytes([17]) + h2(6, 0, 0, bytes(8))
    end = bytes([10]) + h2(1, 5, 1, b"\x88")
    goaway = bytes([17]) + h2(7, 0, 0, bytes([0, 0, 0, 1, 0, 0, 0, 11]))
    yield b"\0\0" + pieces + b"\xa0" + b"\xc3", "accepted"
    yield b"\0\0" + pieces + b"\xa1" + ping + b"\xff" * 3, "refused"
    yield b"\0\0" + pieces + end + b"\xff" + b"\0" + pieces + b"\xa0", "ended"
    yield b"\0\0" + pieces + goaway + b"\xff" + b"\0" + pieces, "goaway"


FUZZERS = [algorithm, collector, grpc_frame, grpc_session, holders, http_conn, jsonl, logline,
           reader, region, resp, resp_reader, rls, rules, spec, table, trace, xds]


def main():
    wanted = sys.argv[1:]
    for fuzzer in FUZZERS:
        name = fuzzer.__name__
        if wanted and name not in wanted:
            continue
        folder = CORPUS / name
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("seed-*"):
            old.unlink()
        for data, label in fuzzer():
            (folder / f"seed-{label}").write_bytes(data)


if __name__ == "__main__":
    main()
