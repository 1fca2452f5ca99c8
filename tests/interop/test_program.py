# SPDX-License-Identifier: MIT
"""The program as a user runs it: its commands, their output, their exit codes."""
import collections
import datetime
import fractions
import gzip
import json
import os
import pathlib
import pty
import random
import re
import signal
import subprocess
import time

import pytest

SOURCE = pathlib.Path(os.environ.get("STINT_SOURCE", pathlib.Path(__file__).parents[2]))
STINT = os.environ.get("STINT_BIN", str(SOURCE / "build" / "src" / "cmd" / "stint"))
SAMPLE = SOURCE / "examples" / "sample.log"
ACCESS = SOURCE.parent / "shared" / "data" / "access-10k.log"
NS = 1_000_000_000
HOUR = 3600 * NS


def stint(*args, given=b"", code=0):
    """Runs the program; returns (stdout, stderr) as text."""
    if isinstance(given, str):
        given = given.encode()
    done = subprocess.run([STINT, *map(str, args)], input=given, capture_output=True, timeout=120)
    assert done.returncode == code, done.stderr.decode(errors="replace")
    return done.stdout.decode(), done.stderr.decode(errors="replace")


def replay_json(*args, **given):
    return json.loads(stint("replay", "--json", *args, **given)[0])


def replay_decisions(*args, **given):
    """The fields of every line that --decisions prints."""
    out = stint("replay", "--decisions", *args, **given)[0]
    return [line.split("\t") for line in out.splitlines()]


# ---- Replay, against counts made here without the engine --------------------------------------

LOG_LINE = re.compile(rb'^(\S+) \S+ .*?\[(.{26})\] "(?:[^"\\]|\\.)*" \d{3} (?:\d+|-)')


def log_events(path):
    """(seconds since 1970, address) of every line, by other means than the program's."""
    events = []
    for line in path.read_bytes().splitlines():
        host, date = LOG_LINE.match(line).groups()
        at = datetime.datetime.strptime(date.decode(), "%d/%b/%Y:%H:%M:%S %z")
        host = host.decode()
        events.append((int(at.timestamp()), host[7:] if host.startswith("::ffff:") else host))
    return events


def as_decided(events, in_order):
    """The events with the times at which they are decided, in nanoseconds."""
    if in_order:
        events = sorted(events, key=lambda event: event[0])
    latest, decided = 0, []
    for at_s, key in events:
        latest = max(latest, at_s * NS)
        decided.append((latest, key))
    return decided


class ExactLog:
    """Remembers every use: at most `limit` in any (t-W, t]."""

    def __init__(self, limit, period_ns):
        self.limit, self.period_ns = limit, period_ns
        self.uses = collections.defaultdict(collections.deque)

    def take(self, key, now_ns):
        uses = self.uses[key]
        while uses and uses[0] + self.period_ns <= now_ns:
            uses.popleft()
        if len(uses) >= self.limit:
            return False
        uses.append(now_ns)
        return True


class TokenBucket:
    """Continuous refill in exact fractions; T in 1/32 ns rounded up, as the law says."""

    def __init__(self, burst, limit, period_ns):
        self.interval_ns = fractions.Fraction(-(-period_ns * 32 // limit), 32)
        self.burst = burst
        self.free_at = {}

    def take(self, key, now_ns):
        arrival = max(self.free_at.get(key, 0), now_ns) + self.interval_ns
        if arrival > now_ns + self.burst * self.interval_ns:
            return False
        self.free_at[key] = arrival
        return True


def most_in_any_window(uses, period_ns):
    """Two pointers over sorted times."""
    most = first = 0
    for last, at_ns in enumerate(uses):
        while uses[first] + period_ns <= at_ns:
            first += 1
        most = max(most, last - first + 1)
    return most


LOGS = [SAMPLE] + ([ACCESS] if ACCESS.exists() else [])
log_and_order = pytest.mark.parametrize(
    "path,in_order", [(path, order) for path in LOGS for order in (False, True)],
    ids=lambda value: value.name if isinstance(value, pathlib.Path) else
    "sorted" if value else "as_it_is")


def replay_log(spec, path, in_order):
    options = ["--sort"] if in_order else []
    return replay_decisions("--quota", spec, "--format", "combined", *options, path)


@log_and_order
@pytest.mark.parametrize("limit,spec,model", [
    (100, "log 100/1h", lambda: ExactLog(100, HOUR)),
    (20, "log 20/5m", lambda: ExactLog(20, 300 * NS)),
    (10, "gcra 10/30s burst=15", lambda: TokenBucket(15, 10, 30 * NS)),
    (25, "gcra 25/1h", lambda: TokenBucket(25, 25, HOUR)),
])
def test_replay_decides_as_an_independent_model(path, in_order, limit, spec, model):
    """Every single decision over a whole log is the one that a model in fractions takes."""
    events = as_decided(log_events(path), in_order)
    lines = replay_log(spec, path, in_order)
    assert len(lines) == len(events)
    oracle, denied = model(), 0
    for (now_ns, key), fields in zip(events, lines):
        allowed = oracle.take(key, now_ns)
        assert fields[1] == key
        assert fields[3] == ("allow" if allowed else "deny")
        assert fields[4] == ("1" if allowed else "0")
        denied += not allowed
    assert denied > 0, "a log that is never limited shows nothing"


@log_and_order
@pytest.mark.parametrize("limit,period_ns,spec", [(100, HOUR, "100/1h"), (20, 300 * NS, "20/5m")])
def test_replay_of_the_window_is_strict_and_its_denials_are_justified(
        path, in_order, limit, period_ns, spec):
    """Never over N in any window, and a denial only where U_{W+O} + c > N - q + 1."""
    events = as_decided(log_events(path), in_order)
    lines = replay_log(spec, path, in_order)
    bunch, slot_ns = -(-limit // 24), -(-period_ns // 24)
    admitted = collections.defaultdict(list)
    for (now_ns, key), fields in zip(events, lines):
        if fields[3] == "allow":
            admitted[key].append(now_ns)
        else:
            used = sum(now_ns - at_ns < period_ns + slot_ns for at_ns in admitted[key])
            assert used + 1 > limit - bunch + 1
    assert max(most_in_any_window(uses, period_ns) for uses in admitted.values()) <= limit
    assert any(fields[3] == "deny" for fields in lines)


@log_and_order
def test_the_summary_agrees_with_a_count_of_the_decisions(path, in_order):
    """Events, keys, denials, the keys denied most and the exact count, recounted here."""
    options = ["--sort"] if in_order else []
    told = replay_json("--quota", "100/1h", "--format", "combined", *options, path)
    lines = replay_log("100/1h", path, in_order)
    events = as_decided(log_events(path), in_order)
    denied, admitted = collections.Counter(), collections.defaultdict(list)
    for (now_ns, key), fields in zip(events, lines):
        if fields[3] == "allow":
            admitted[key].append(now_ns)
        else:
            denied[key] += 1
    assert told["events"] == len(events)
    assert told["keys"] == len({key for _, key in events})
    assert told["allowed"] == sum(map(len, admitted.values()))
    assert told["denied"] == sum(denied.values())
    assert told["malformed"] == 0
    assert [entry["denied_units"] for entry in told["denied_most"]] == sorted(
        denied.values(), reverse=True)[:10]
    assert all(denied[entry["key"]] == entry["denied_units"] for entry in told["denied_most"])
    quota = told["quotas"][0]
    assert quota["most_admitted"] == max(
        most_in_any_window(uses, HOUR) for uses in admitted.values())
    assert quota["most_admitted"] == most_in_any_window(
        admitted[quota["most_admitted_key"]], HOUR)


def test_the_exact_count_of_weighted_costs():
    """The most in any window, by an own count, for random costs and several quotas."""
    rng = random.Random(7)
    at_ns, trace = 0, []
    for _ in range(3000):
        at_ns += rng.choice([0, 0, 1, 999_999, 30_000_000, 700_000_000])
        trace.append((at_ns, rng.choice("abc"), rng.randrange(0, 6)))
    text = "".join(f"{at // NS}.{at % NS:09} {key} {cost}\n" for at, key, cost in trace)
    quotas = [("gcra 10/1s burst=40", NS), ("window 60/7s", 7 * NS)]
    specs = [word for spec, _ in quotas for word in ("--quota", spec)]
    told = replay_json(*specs, given=text)
    lines = replay_decisions(*specs, given=text)
    for (spec, period_ns), quota in zip(quotas, told["quotas"]):
        most = 0
        for key in "abc":
            runs = [(at, int(fields[4])) for (at, k, _), fields in zip(trace, lines) if k == key]
            first = units = 0
            for at, granted in runs:
                units += granted
                while runs[first][0] + period_ns <= at:
                    units -= runs[first][1]
                    first += 1
                most = max(most, units)
        assert quota["most_admitted"] == most
        assert 0 < most <= quota["max_in_any_window"]


# ---- Replay: forms of input ---------------------------------------------------------------------

TRACE = "0 a\n0.50 a 2\n# a comment\n\n1.25 b 3\n1.3\tb\n61 a 100\n61 a 101\n"


def test_decisions_have_eight_fields_separated_by_tabs():
    """Time as it was written, key, cost, outcome, granted, remaining and the two waits."""
    lines = replay_decisions("--quota", "gcra 100/60s burst=100", given=TRACE)
    assert lines == [
        ["0", "a", "1", "allow", "1", "99", "0", "600000000"],
        ["0.50", "a", "2", "allow", "2", "97", "0", "1300000000"],
        ["1.25", "b", "3", "allow", "3", "97", "0", "1800000000"],
        ["1.3", "b", "1", "allow", "1", "96", "0", "2350000000"],
        ["61", "a", "100", "allow", "100", "0", "0", "60000000000"],
        ["61", "a", "101", "never", "0", "0", "never", "60000000000"],
    ]


def test_verbs():
    """take is whole or nothing, take_upto gives what is left, peek changes nothing."""
    trace = "0 a 3\n0 a 3\n0 a 3\n"
    granted = {verb: [(f[3], f[4]) for f in replay_decisions(
        "--quota", "log 5/1s", "--verb", verb, given=trace)] for verb in ("take", "take_upto")}
    assert granted["take"] == [("allow", "3"), ("deny", "0"), ("deny", "0")]
    assert granted["take_upto"] == [("allow", "3"), ("allow", "2"), ("deny", "0")]
    peeks = replay_decisions("--quota", "log 5/1s", "--verb", "peek", given=trace)
    assert [(f[3], f[5]) for f in peeks] == [("allow", "2")] * 3
    assert replay_json("--quota", "log 5/1s", "--verb", "take_upto", given=trace)[
        "denied_units"] == 4


def test_several_quotas_are_all_or_nothing():
    """What the second quota refuses is not charged to the first."""
    trace = "0 a 2\n0 a 2\n0 a 1\n0 a 1\n"
    lines = replay_decisions("--quota", "log 4/10s", "--quota", "log 3/1m", given=trace)
    assert [(f[3], f[4]) for f in lines] == [
        ("allow", "2"), ("deny", "0"), ("allow", "1"), ("deny", "0")]
    assert lines[1][6] == str(60 * NS)
    assert lines[3][6] == str(60 * NS)


def test_late_lines_are_decided_at_the_latest_time_seen_unless_sorted():
    trace = "0 a\n10 b\n5 a\n"
    lines = replay_decisions("--quota", "log 1/8s", given=trace)
    assert [(f[0], f[3]) for f in lines] == [("0", "allow"), ("10", "allow"), ("5", "allow")]
    assert replay_json("--quota", "log 1/8s", given=trace)["late"] == 1
    lines = replay_decisions("--quota", "log 1/8s", "--sort", given=trace)
    assert [(f[0], f[3]) for f in lines] == [("0", "allow"), ("5", "deny"), ("10", "allow")]


def test_malformed_lines_are_counted_and_the_first_few_named():
    """Not the good lines around them; and an end without a newline is no error."""
    text = b"1 a\nnonsense\n2\n" + b"x" * 70000 + b"\n3 b\0c\n" + b"?\n" * 7 + b"4 a"
    out, err = stint("replay", "--quota", "5/1s", "--json", given=text)
    told = json.loads(out)
    assert (told["events"], told["malformed"], told["keys"]) == (3, 10, 2)
    assert "standard input:2: 'nonsense' is no time" in err
    assert "standard input:3: expected TIME KEY [COST]" in err
    assert "standard input:4: the line is longer than 65536 bytes" in err
    assert "standard input:7:" in err and "standard input:8:" not in err


def test_strict_stops_at_the_first_malformed_line():
    out, err = stint("replay", "--quota", "5/1s", "--strict", "--decisions",
                     given="1 a\nx\n2 a\n", code=1)
    assert "standard input:2:" in err
    assert len(out.splitlines()) == 1


def test_input_of_another_format_is_bad_input():
    err = stint("replay", "--quota", "5/1s", SAMPLE, code=1)[1]
    assert "--format" in err


def test_gzip_is_read_like_plain_text(tmp_path):
    """One member, several, padded; from a file and from a pipe."""
    text = SAMPLE.read_bytes()
    args = ("--quota", "60/1h", "--format", "combined")
    plain = replay_decisions(*args, SAMPLE)
    half = text.index(b"\n", len(text) // 2) - 10
    packed = {
        "one": gzip.compress(text),
        "two": gzip.compress(text[:half]) + gzip.compress(text[half:]),
        "padded": gzip.compress(text) + bytes(512),
    }
    for name, data in packed.items():
        path = tmp_path / name
        path.write_bytes(data)
        assert replay_decisions(*args, path) == plain
        assert replay_decisions(*args, "-", given=data) == plain


def test_gzip_that_is_damaged_says_so(tmp_path):
    data = gzip.compress(SAMPLE.read_bytes())
    args = ("replay", "--quota", "60/1h", "--format", "combined")
    cut = stint(*args, given=data[:-20], code=1)[1]
    assert "ends too early" in cut and "standard input" in cut
    flipped = bytearray(data)
    flipped[len(data) // 2] ^= 0xff
    assert "damaged" in stint(*args, given=bytes(flipped), code=1)[1]
    assert "damaged" in stint(*args, given=data + b"garbage", code=1)[1]


def test_keys_of_log_lines():
    """Addresses by prefix, v4-mapped as IPv4, paths without queries, joined unambiguously."""
    def line(host, request):
        return f'{host} - u [17/May/2015:10:05:03 +0000] "{request}" 200 1\n'

    text = (line("2001:db8::1", "GET /a?b=1 HTTP/1.1") + line("2001:db8::2", "GET /a HTTP/1.1") +
            line("::ffff:192.0.2.1", "GET /a+b HTTP/1.1") + line("192.0.2.1", "GET /a HTTP/1.1"))

    def keys(expr):
        return [f[1] for f in replay_decisions("--quota", "9/1s", "--format", "combined",
                                               "--key", expr, given=text)]
    assert keys("ip/64") == ["2001:db8::", "2001:db8::", "192.0.2.1", "192.0.2.1"]
    assert keys("ip") == ["2001:db8::1", "2001:db8::2", "192.0.2.1", "192.0.2.1"]
    assert keys("path") == ["/a", "/a", "/a+b", "/a"]
    assert keys("ip/64+path") == [
        "2001:db8::+/a", "2001:db8::+/a", "192.0.2.1+/a\\+b", "192.0.2.1+/a"]
    assert keys("user+method+status") == ["u+GET+200"] * 4


def test_jsonl():
    """Members of one's choice; times as numbers or RFC 3339; costs."""
    text = ('{"time": 1700000000.5, "key": "a", "n": 2}\n'
            '{"time": "2023-11-14T22:13:21Z", "key": "a", "n": 1}\n')
    lines = replay_decisions("--quota", "log 2/1s", "--format", "jsonl", "--cost", "n", given=text)
    assert [f[:5] for f in lines] == [["1700000000.5", "a", "2", "allow", "2"],
                                      ["1700000001", "a", "1", "deny", "0"]]
    text = '{"t": 1, "user": "x+y", "org": 7}\n'
    lines = replay_decisions("--quota", "1/1s", "--format", "jsonl", "--time", "t",
                             "--key", "user+org", given=text)
    assert lines[0][1] == "x\\+y+7"


def test_keys_cannot_steer_a_terminal():
    """Control bytes of a stranger's key are shown, not sent."""
    out = stint("replay", "--quota", "1/1s", "--decisions", given=b"1 a\x1b[2Jb\n")[0]
    assert "\x1b" not in out and "\\x1b" in out
    out, err = stint("replay", "--quota", "1/1s", given=b"1 a\x1bb\n\x1b[2J\n1 a\x1bb\n")
    assert "\x1b" not in out + err
    told = replay_json("--quota", "1/1s", given=b"1 \xff\xc3\xa4\n1 \xff\xc3\xa4\n")
    assert told["denied_most"][0]["key"] == "\ufffd\u00e4"


def test_calendar_windows_follow_the_wall_clock_of_the_log():
    """A quota per calendar day begins anew at midnight of its offset, not of the log's start."""
    def line(hour, minute):
        return f'h - - [17/May/2015:{hour:02}:{minute:02}:00 +0000] "GET / HTTP/1.1" 200 1\n'

    text = line(21, 59) + line(22, 30) + line(22, 31) + line(23, 59)
    lines = replay_decisions("--quota", "fixed_window 1/1d align=calendar utc_offset=+01:00",
                             "--format", "combined", given=text)
    assert [f[3] for f in lines] == ["allow", "deny", "deny", "allow"]


@pytest.mark.parametrize("spec", [
    "100/1h", "log 40/1h", "gcra 60/1h", "buckets 50/1h time_slack=5m", "fixed_window 60/1h",
    "sliding_counter 60/1h"])
def test_a_table_in_a_file_goes_on_where_it_was(tmp_path, spec):
    """Two replays of two halves over one file decide as one replay of the whole."""
    lines = SAMPLE.read_bytes().splitlines(keepends=True)
    args = ("--quota", spec, "--format", "combined", "--keys", "1000")
    whole = replay_decisions(*args, SAMPLE)
    state = ("--state", tmp_path / "state")
    parts = [replay_decisions(*args, *state, given=b"".join(part))
             for part in (lines[:150], lines[150:])]
    assert parts[0] + parts[1] == whole
    assert any(f[3] == "deny" for f in parts[1])


def test_a_state_file_that_is_none_is_refused(tmp_path):
    path = tmp_path / "state"
    path.write_bytes(b"not a table\n" * 1000)
    err = stint("replay", "--quota", "1/1s", "--state", path, given="0 a\n", code=1)[1]
    assert str(path) in err
    assert path.read_bytes() == b"not a table\n" * 1000


def test_a_table_that_is_too_small_is_said():
    """A strict quota stays strict with room for 8 keys; the user is told what happened."""
    trace = "".join(f"{i // 1000}.{i % 1000:03} k{i % 500} 1\n" for i in range(4000))
    out, err = stint("replay", "--quota", "log 2/1m", "--keys", "8", "--json", given=trace)
    told = json.loads(out)
    assert "--keys" in err
    assert told["quotas"][0]["most_admitted"] <= 2
    assert told["denied"] > 0


def test_empty_input_is_no_error():
    told = replay_json("--quota", "1/1s", given=b"")
    assert (told["events"], told["keys"]) == (0, 0)
    assert "0 events" in stint("replay", "--quota", "1/1s", given=b"")[0]


def test_the_summary_is_for_people():
    """Names what the issue of a replay is: who, how much, and the exact count beside the limit."""
    out = stint("replay", "--quota", "100/1h", "--format", "combined", SAMPLE)[0]
    assert "310 events of 23 keys" in out
    assert re.search(r"denied +28 units +9\.0 %", out)
    assert re.search(r"most admitted in any 1 h: 100 of 100, to 192\.0\.2\.44", out)
    assert re.search(r"28 +100 +192\.0\.2\.44", out)
    assert "a key" in out and "ns a decision" in out


def test_a_progress_bar_on_a_terminal_only(tmp_path):
    """Long input shows a bar on stderr if that is a terminal, and takes it away at the end."""
    leader, follower = pty.openpty()
    with subprocess.Popen([STINT, "replay", "--quota", "9/1s"], stdin=subprocess.PIPE,
                          stdout=subprocess.DEVNULL, stderr=follower) as running:
        os.close(follower)
        for second in range(14):
            running.stdin.write(b"".join(b"%d a\n" % second for _ in range(300_000)))
            running.stdin.flush()
            time.sleep(0.1)
        running.stdin.close()
        seen = b""
        while True:
            try:
                seen += os.read(leader, 4096)
            except OSError:
                break
        assert running.wait(60) == 0
    os.close(leader)
    assert b"MB" in seen and seen.endswith(b"\r\x1b[K")
    assert stint("replay", "--quota", "9/1s", given=b"0 a\n")[1] == ""


# ---- explain, try -------------------------------------------------------------------------------

EXPLAIN_KEYS = ["algorithm", "limit", "period_ns", "burst", "max_in_any_window", "slack",
                "state_bytes", "max_buckets"]


@pytest.mark.parametrize("spec,expected", [
    ("100/60s", {"algorithm": "window", "limit": 100, "period_ns": 60 * NS, "burst": None,
                 "max_in_any_window": 100, "state_bytes": 16, "max_buckets": None}),
    ("gcra 100/60s burst=20", {"algorithm": "gcra", "burst": 20, "max_in_any_window": 119,
                               "state_bytes": 8}),
    ("buckets 500/10m time_slack=1m count_slack=50", {
        "algorithm": "buckets", "max_buckets": 20, "max_in_any_window": 500,
        "state_bytes": 16 + 8 * 20}),
    ("fixed_window 10/1s", {"max_in_any_window": 20, "state_bytes": 8}),
    ("sliding_counter 10/1s", {"max_in_any_window": 19, "state_bytes": 16}),
    ("log 5/1s", {"algorithm": "log", "max_in_any_window": 5}),
    ("concurrency 10 lease=30s", {"algorithm": "concurrency", "max_in_any_window": 10,
                                  "period_ns": None}),
])
def test_explain_as_json(spec, expected):
    told = json.loads(stint("explain", "--json", spec)[0])
    assert list(told) == EXPLAIN_KEYS
    assert {key: told[key] for key in expected} == expected
    assert told["slack"]


def test_explain_in_words():
    """The shell may split the SPEC; the words hold this quota's own numbers."""
    out = stint("explain", "window", "100/60s")[0]
    assert out == stint("explain", "window 100/60s")[0]
    assert "100" in out and "96" in out and "16 bytes" in out
    assert "20" in stint("explain", "buckets 500/10m time_slack=1m count_slack=50")[0]


def test_try_in_virtual_time():
    """Three a minute: each Enter at its second, reset and retry in whole seconds, rounded up."""
    times = "\n".join(map(str, [0, 0, 0, 1, 5, 10, 15, 21, 22]))
    out = stint("try", "--times", "gcra", "3/60s", given=times)[0]
    got = [re.fullmatch(r"(\w+) +reset (\d+) s +retry (\d+) s", line).groups()
           for line in out.splitlines()]
    assert got == [("ALLOW", "20", "0"), ("ALLOW", "40", "0"), ("ALLOW", "60", "0"),
                   ("DENY", "59", "19"), ("DENY", "55", "15"), ("DENY", "50", "10"),
                   ("DENY", "45", "5"), ("ALLOW", "59", "0"), ("DENY", "58", "18")]


def test_try_in_real_time():
    """Every line is answered at once, also the first."""
    with subprocess.Popen([STINT, "try", "2/1h"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as running:
        for outcome in ("ALLOW", "ALLOW", "DENY"):
            running.stdin.write("\n")
            running.stdin.flush()
            assert running.stdout.readline().startswith(outcome)
        running.stdin.write("3\n")
        running.stdin.close()
        assert re.match(r"NEVER .* retry never", running.stdout.readline())
        assert running.wait(10) == 0
    assert "is no cost" in stint("try", "2/1h", given="x\n", code=1)[1]


# ---- pace ---------------------------------------------------------------------------------------

def test_pace_releases_every_line_at_the_quota():
    """Never more than 5 in any 200 ms, all of them, in order, and not much later than it must."""
    lines = [f"line {i}\n".encode() for i in range(23)]
    started = time.monotonic()
    with subprocess.Popen([STINT, "pace", "--quota", "log 5/200ms"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, bufsize=0) as running:
        running.stdin.write(b"".join(lines)[:-1])  # the last one without a newline
        running.stdin.close()
        got, at = [], []
        for line in iter(running.stdout.readline, b""):
            got.append(line)
            at.append(time.monotonic())
        assert running.wait(10) == 0
    assert got == lines
    # What is seen here is later than the release by scheduling, never earlier.
    assert at[20] - started >= 0.8
    assert time.monotonic() - started < 5


def test_pace_in_batches():
    """Full batches go at once, the last one at the end; a batch is one write."""
    started = time.monotonic()
    out = stint("pace", "--quota", "log 6/300ms", "--batch", "3", given="".join(
        f"{i}\n" for i in range(8)))[0]
    assert out == "".join(f"{i}\n" for i in range(8))
    assert 0.3 <= time.monotonic() - started < 3


def test_pace_lingers_no_longer_than_asked():
    """A batch that does not fill goes `linger` after its first line, while the input stays open."""
    command = [STINT, "pace", "--quota", "100/1s", "--batch", "50", "--linger", "150ms"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          bufsize=0) as running:
        started = time.monotonic()
        running.stdin.write(b"a\nb\n")
        assert running.stdout.readline() == b"a\n"
        waited = time.monotonic() - started
        assert 0.15 <= waited < 2
        assert running.stdout.readline() == b"b\n"
        running.stdin.close()
        assert running.wait(10) == 0


def read_until_paced(quota, first, **options):
    running = subprocess.Popen([STINT, "pace", "--quota", quota], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, **options)
    running.stdin.write(b"a\nb\nc\nd\n")
    assert running.stdout.readline() == first
    return running


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_pace_releases_what_it_read_after_a_signal(number):
    with read_until_paced("log 1/200ms", b"a\n") as running:
        running.send_signal(number)
        assert running.stdout.read() == b"b\nc\nd\n"
        assert running.wait(10) == 0
        running.stdin.close()


def test_pace_hands_over_what_it_read_after_a_second_signal(tmp_path):
    """To standard error, or to the file that --rest names: no line is lost."""
    with read_until_paced("log 1/1h", b"a\n") as running:
        running.send_signal(signal.SIGINT)
        time.sleep(0.2)
        running.send_signal(signal.SIGINT)
        assert running.stdout.read() == b""
        assert running.stderr.read().endswith(b"\nb\nc\nd\n")
        assert running.wait(10) == 1
        running.stdin.close()


def test_pace_hands_over_what_a_closed_output_did_not_take(tmp_path):
    rest = tmp_path / "rest"
    rest.write_bytes(b"before\n")
    with subprocess.Popen([STINT, "pace", "--quota", "log 1/100ms", "--rest", rest],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          bufsize=0) as running:
        running.stdin.write(b"a\nb\nc\n")
        running.stdin.close()
        assert running.stdout.readline() == b"a\n"
        running.stdout.close()
        assert running.wait(10) == 1
        assert b"2 lines" in running.stderr.read()
    assert rest.read_bytes() == b"before\nb\nc\n"


def test_pace_refuses_a_batch_that_never_fits():
    assert "never fit" in stint("pace", "--quota", "10/1s", "--batch", "11", code=2)[1]
    assert "never fit" in stint("pace", "--quota", "gcra 10/1s burst=4", "--batch", "5", code=2)[1]


# ---- table --------------------------------------------------------------------------------------

def test_table_shows_what_a_file_holds(tmp_path):
    """Quotas, fill and the worst offenders; the file is not changed by looking."""
    path = tmp_path / "state"
    stint("replay", "--quota", "log 3/1h", "--quota", "gcra 10/1h", "--state", path,
          "--keys", "100", given="0 a 3\n1 b 1\n2 c 2\n2 a 1\n")
    before = path.read_bytes()
    told = json.loads(stint("table", "--json", path)[0])
    assert {quota["quota"].split()[0]: quota["live"] for quota in told["quotas"]} == {
        "log": 3, "gcra": 3}
    assert told["fill"]["8_byte"]["live"] == 3 and told["fill"]["wide"]["live"] == 3
    worst = told["keys"][0]
    assert (worst["limit"], worst["remaining"]) == (3, 0)
    assert worst["retry_after_ns"] == worst["reset_after_ns"] == 3598 * NS
    assert sorted((key["limit"], key["remaining"]) for key in told["keys"]) == [
        (3, 0), (3, 1), (3, 2), (10, 7), (10, 8), (10, 9)]
    assert [key["remaining"] / key["limit"] for key in told["keys"]] == sorted(
        key["remaining"] / key["limit"] for key in told["keys"])
    out = stint("table", "--keys", "1", path)[0]
    assert "log 3/1h" in out and worst["key_hash"] in out
    assert path.read_bytes() == before


def test_table_says_why_a_file_is_none(tmp_path):
    assert "No such file" in stint("table", tmp_path / "none", code=1)[1]
    path = tmp_path / "text"
    path.write_bytes(b"hello\n" * 2000)
    assert str(path) in stint("table", path, code=1)[1]


# ---- Usage --------------------------------------------------------------------------------------

@pytest.mark.parametrize("args,hint", [
    (["repaly"], "replay"), (["replay", "--qouta", "1/1s"], "--quota"),
    (["replay", "--quota", "1/1s", "--decision=x", "--jsn"], "--json"),
    (["replay", "--quota", "1/1s", "--format", "combind"], "combined"),
    (["replay", "--quota", "1/1s", "--verb", "tak"], "take"),
    (["replay", "--quota", "gcar 1/1s"], "gcra"),
    (["explain", "gcra 1/1s brust=3"], "burst"), (["explain", "--jason", "1/1s"], "--json"),
    (["pace", "--quota", "1/1s", "--bach", "3"], "--batch"), (["help", "tabel"], "table"),
    (["frobnicate"], "replay"),
])
def test_wrong_words_are_answered_with_the_nearest_right_one(args, hint):
    out, err = stint(*args, code=2)
    assert out == "" and hint in err


@pytest.mark.parametrize("args", [
    [], ["replay"], ["replay", "--quota"], ["replay", "--quota", ""], ["explain"], ["try"],
    ["table"], ["replay", "--quota", "0/0s"], ["pace"], ["pace", "--quota", "1/1s", "file"], ["version", "x"],
    ["replay", "--quota", "1/1s", "a", "b"], ["replay", "--quota", "1/1s", "--keys", "0"],
    ["replay", "--quota", "1/1s", "--keys", "1e6"], ["replay", "--quota", "1/1s", "--key", "ip"],
    ["replay", "--quota", "1/1s", "--format", "combined", "--key", "ip/129"],
    ["replay", "--quota", "1/1s", "--time", "t"], ["replay", "-x"],
    ["replay"] + ["--quota", "1/1s"] * 33, ["pace", "--quota", "1/1s", "--linger", "soon"],
])
def test_bad_usage_exits_with_2_and_says_why(args):
    out, err = stint(*args, code=2)
    assert out == "" and err.startswith("stint")


def test_bad_input_exits_with_1_and_names_the_file(tmp_path):
    assert "no such.log" in stint("replay", "--quota", "1/1s", "no such.log", code=1)[1]
    assert str(tmp_path) in stint("replay", "--quota", "1/1s", tmp_path, code=1)[1]


def test_help_and_version():
    for command in ("replay", "explain", "try", "pace", "table"):
        out = stint("help", command)[0]
        assert out == stint(command, "--help")[0]
        assert out.startswith(f"Usage: stint {command}")
        assert command in stint("help")[0]
    assert stint("--help")[0] == stint("help")[0]
    assert re.fullmatch(r"stint \d+\.\d+\.\d+\n", stint("version")[0])
    assert stint("--version")[0] == stint("version")[0]


def test_an_output_that_cannot_be_written_is_told():
    with open("/dev/full", "wb") as full:
        done = subprocess.run([STINT, "replay", "--quota", "1/1s"], input=b"0 a\n", stdout=full,
                              stderr=subprocess.PIPE, timeout=60)
    assert done.returncode == 1 and b"cannot write" in done.stderr
