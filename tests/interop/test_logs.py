# SPDX-License-Identifier: MIT
"""Logs as servers write them: in any order, packed, in several files, with damaged lines."""
import collections
import ctypes
import gzip
import json
import random
import subprocess

import pytest

from program import NS, SAMPLE, STINT, replay_json, stint

BEGIN = 1431857100  # 2015-05-17 10:05:00 UTC
MONTH = "[17/May/2015:%02d:%02d:%02d %s]"


def stamp(at, offset_min=0):
    """A date of an access log on that day."""
    local = at - BEGIN + 36300 + offset_min * 60
    sign = "-" if offset_min < 0 else "+"
    zone = f"{sign}{abs(offset_min) // 60:02}{abs(offset_min) % 60:02}"
    return MONTH % (local // 3600, local // 60 % 60, local % 60, zone)


def line(at, host="192.0.2.1", request="GET / HTTP/1.1", agent="curl", offset_min=0):
    return f'{host} - - {stamp(at, offset_min)} "{request}" 200 5 "-" "{agent}"\n'


def disordered(seed, n=2500):
    """(time, key) as a busy server logs them: nine lines of ten are earlier than one before."""
    dice = random.Random(seed)
    at, events = BEGIN + 100, []
    for _ in range(n):
        at += dice.choice((0, 0, 0, 0, 0, 1, 2))
        key = f"198.51.100.{min(int(dice.paretovariate(0.7)), 200)}"
        events.append((at - dice.randrange(120), key))
    return events


def share_late(events):
    latest, late = 0, 0
    for at, _ in events:
        late += at < latest
        latest = max(latest, at)
    return late / len(events)


def denied_in_order(events, limit, period_s):
    """By a list of all uses, in the order of time. Nothing of the program's is in here."""
    uses, denied = collections.defaultdict(list), collections.Counter()
    for at, key in sorted(events, key=lambda event: event[0]):
        uses[key] = [used for used in uses[key] if used > at - period_s]
        if len(uses[key]) < limit:
            uses[key].append(at)
        else:
            denied[key] += 1
    return denied


def most_in_a_window(events, period_s):
    """The least limit that denies nothing."""
    uses, most = collections.defaultdict(list), 0
    for at, key in sorted(events, key=lambda event: event[0]):
        uses[key] = [used for used in uses[key] + [at] if used > at - period_s]
        most = max(most, len(uses[key]))
    return most


def zstd(data):
    library = ctypes.CDLL("libzstd.so.1")
    library.ZSTD_compressBound.restype = library.ZSTD_compress.restype = ctypes.c_size_t
    library.ZSTD_compressBound.argtypes = [ctypes.c_size_t]
    library.ZSTD_compress.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p,
                                      ctypes.c_size_t, ctypes.c_int]
    packed = ctypes.create_string_buffer(library.ZSTD_compressBound(len(data)))
    size = library.ZSTD_compress(packed, len(packed), data, len(data), 3)
    return packed.raw[:size]


PACKERS = {"plain": lambda data: data, "gzip": gzip.compress, "zstd": zstd}


def denied_of(told):
    return {k["key"]: k["denied_units"] for k in told["denied_most"]}


@pytest.mark.parametrize("packer", PACKERS)
@pytest.mark.parametrize("seed", range(2))
def test_a_file_in_any_order_gives_the_answers_of_a_sorted_one(tmp_path, seed, packer):
    events = disordered(seed)
    assert share_late(events) > 0.9
    path = tmp_path / "access.log"
    path.write_bytes(PACKERS[packer]("".join(line(*event) for event in events).encode()))
    for limit, period_s in ((3, 1), (12, 60), (200, 3600)):
        denied = denied_in_order(events, limit, period_s)
        spec = f"log {limit}/{period_s}s"
        args = ("--quota", spec, "--popular", 1000)
        told = replay_json(*args, path)
        assert (told["denied"], denied_of(told)) == (sum(denied.values()), dict(denied))
        assert told["late"] == 0
        with path.open("rb") as given:  # redirected, it is a file, too
            again = subprocess.run([STINT, "replay", "--json", "--quota", spec], stdin=given,
                                   stdout=subprocess.PIPE, check=True).stdout
        assert json.loads(again)["denied"] == told["denied"]
        assert replay_json(*args, "--sort", given=path.read_bytes())["denied"] == told["denied"]
        sim = json.loads(stint("sim", "run", "--json", "--quota", spec, "--workload",
                               f"log={path}")[0])
        assert sim["units_allowed"]["median"] == told["allowed_units"]


@pytest.mark.parametrize("packer", PACKERS)
def test_a_stream_in_any_order_is_said_first(packer):
    """A pipe is not sorted: the first line on standard error says so, and what it means."""
    events = disordered(7)
    data = PACKERS[packer]("".join(line(*event) for event in events).encode())
    out, err = stint("replay", "--json", "--quota", "log 12/1m", given=data)
    assert json.loads(out)["denied"] > sum(denied_in_order(events, 12, 60).values())
    first = err.splitlines()[0]
    assert first.startswith("stint: standard input: ") and "out of order" in first
    assert "denies more" in first and "--sort" in first and err.count("\n") == 1
    for args in (["--sort"], ["--no-sort"]):
        assert stint("replay", "--quota", "log 12/1m", *args, given=data)[1] == ""


@pytest.mark.parametrize("n_late,said", [(1, False), (2, False), (3, True), (200, True)])
def test_one_line_of_a_hundred_may_be_late(n_late, said):
    times = sorted(range(BEGIN, BEGIN + 200))
    text = "".join(map(line, times)) + "".join(map(line, [BEGIN] * n_late))
    err = stint("replay", "--quota", "5/1s", given=text)[1]
    assert ("out of order" in err) == said
    assert not said or f"{n_late} of {200 + n_late} lines" in err


@pytest.mark.parametrize("seed", range(3))
def test_plan_sorts_files_and_pipes(tmp_path, seed):
    """Its least limits that deny nothing are the most that an exact count finds in a window."""
    events = disordered(100 + seed)
    path = tmp_path / "access.log"
    path.write_text("".join(line(*event) for event in events))
    args = ("plan", "--json", "--algorithm", "log", "--periods", "1s,1m,1h", "--target", "0 keys")
    told = json.loads(stint(*args, path)[0])
    assert told["late"] == 0
    assert [p["limit"] for p in told["proposals"]] == [
        most_in_a_window(events, period_s) for period_s in (1, 60, 3600)]
    piped = json.loads(stint(*args, given=path.read_bytes())[0])
    assert piped["proposals"] == told["proposals"]
    unsorted = json.loads(stint(*args, "--no-sort", path)[0])
    assert unsorted["late"] == round(share_late(events) * len(events))
    assert unsorted["proposals"][0]["limit"] > told["proposals"][0]["limit"]


def test_rules_decide_a_file_in_the_order_of_time(tmp_path):
    events = disordered(3)
    log, rules = tmp_path / "access.log", tmp_path / "rules.yaml"
    log.write_text("".join(line(*event) for event in events))
    rules.write_text("domain: d\ndescriptors: [{key: ip, rate_limit: "
                     "{algorithm: log, unit: minute, requests_per_unit: 12}}]\n")
    args = ("--rules", rules, "--domain", "d", "--descriptors", "ip")
    assert replay_json(*args, log)["denied"] == sum(denied_in_order(events, 12, 60).values())
    assert "out of order" in stint("replay", *args, given=log.read_bytes())[1]


def test_files_in_the_wrong_order_are_one_log(tmp_path):
    """As logrotate leaves them, one of them packed; the report counts all of them."""
    events = sorted(disordered(5))
    parts = [events[:900], events[900:2000], events[2000:]]
    paths = [tmp_path / name for name in ("access.log.2.zst", "access.log.1.gz", "access.log")]
    for part, path, packer in zip(parts, paths, ("zstd", "gzip", "plain")):
        path.write_bytes(PACKERS[packer]("".join(line(*event) for event in part).encode()))
    denied = sum(denied_in_order(events, 12, 60).values())
    assert denied > 0
    for order in (paths, paths[::-1]):
        out, err = stint("replay", "--quota", "log 12/1m", *order)
        assert f"{order[0]} and 2 more files: 2,500 events" in out and err == ""
        assert "lines  2,500, 0 malformed" in out
        told = replay_json("--quota", "log 12/1m", *order)
        assert (told["events"], told["denied"], told["lines"]) == (2500, denied, 2500)
        plan = json.loads(stint("plan", "--json", "--algorithm", "log", "--periods", "1m",
                                "--target", "0 keys", *order)[0])
        assert plan["proposals"][0]["limit"] == most_in_a_window(events, 60)
    other = tmp_path / "trace"
    other.write_text("0 a\n")
    err = stint("replay", "--quota", "1/1s", paths[0], other, code=1)[1]
    assert f"{other}:1: expected an access log line, found a trace line" in err
    assert "all files must have one format" in err
    err = stint("replay", "--quota", "1/1s", paths[0], tmp_path / "no", code=1)[1]
    assert "No such file" in err
    err = stint("replay", "--quota", "1/1s", tmp_path, code=1)[1]
    assert "is a folder" in err


FORMATS = {
    "trace": "0 a\n0.5 a\n1 b 2\n",
    "combined": line(BEGIN, "a") + line(BEGIN + 1, "a") + line(BEGIN + 2, "b"),
    "common": "".join(f'{host} - - {stamp(BEGIN)} "GET / HTTP/1.0" 200 -\n' for host in "aab"),
    "jsonl": '{"time": 1, "key": "a"}\n{"time": "2", "key": "a"}\n{"time": 3, "key": "b"}\n',
}


@pytest.mark.parametrize("packer", PACKERS)
@pytest.mark.parametrize("name", FORMATS)
def test_formats_are_recognised(tmp_path, name, packer):
    """From a file and from a pipe, after blank lines and comments, by all commands."""
    path = tmp_path / "log"
    for before in ("", "\n# a comment\n  \n", "\ufeff"):
        data = PACKERS[packer]((before + FORMATS[name]).encode())
        path.write_bytes(data)
        for args, given in (((path,), b""), ((), data)):
            told = replay_json("--quota", "9/1s", *args, given=given)
            assert (told["events"], told["keys"], told["malformed"]) == (3, 2, 0)
            assert json.loads(stint("plan", "--json", *args, given=given)[0])["requests"] == 3
        sim = json.loads(stint("sim", "run", "--json", "--quota", "9/1s", "--workload",
                               f"log={path}")[0])
        assert sim["decisions"]["median"] == 3


NAMES = {"trace": "a trace line (TIME KEY [COST])", "combined": "an access log line",
         "jsonl": "a JSON object"}


@pytest.mark.parametrize("given", ["trace", "combined", "jsonl"])
@pytest.mark.parametrize("found", FORMATS)
def test_a_wrong_format_is_said_after_one_line(given, found):
    is_same = given == found or (given, found) == ("combined", "common")
    text = FORMATS[found] + "\n" * 100_000
    out, err = stint("replay", "--quota", "9/1s", "--format", given, given=text,
                     code=0 if is_same else 1)
    assert (out == "") != is_same
    found = "combined" if found == "common" else found
    assert err == ("" if is_same else
                   f"stint: standard input:1: expected {NAMES[given]}, found {NAMES[found]}; "
                   f"choose the format {found}, or leave it out\n")


@pytest.mark.parametrize("args,name,words", [
    (["--key", "user"], "trace", "a trace, which has one column, key; 'user' is for"),
    (["--key", "usr"], "combined", "is an access log: there is no field 'usr'"),
    (["--time", "t"], "combined", "expected a JSON object, found an access log line; time and"),
    (["--key", "user"], "jsonl", 'is not there; found "time", "key"'),
    (["--time", "key"], "jsonl", "'a' is no time"),
])
def test_options_that_the_format_does_not_have(args, name, words):
    out, err = stint("replay", "--quota", "9/1s", *args, given=FORMATS[name], code=1)
    assert words in err and out == ""


def test_a_log_in_no_known_format():
    """The first line is shown, and there is no summary of nothing."""
    text = "2026-03-14 09:00:05 started\n\x1b[31m2026-03-14 stopped\n"
    for args in (["replay", "--quota", "9/1s"], ["plan"]):
        out, err = stint(*args, given=text, code=1)
        assert out == "" and err.count("\n") == 1
        assert "no line of standard input is a trace line (TIME KEY [COST]), an access log" in err
        assert "line 1: 2026-03-14 09:00:05 started" in err
        err = stint(*args, given=text[28:], code=1)[1]
        assert "\x1b" not in err and "line 1: \\x1b[31m2026" in err
    # A start banner before the log does not hide its format.
    told, err = stint("replay", "--json", "--quota", "9/1s", given=text + FORMATS["combined"])
    assert json.loads(told)["events"] == 3 and json.loads(told)["malformed"] == 2
    assert "standard input:1: the first 2 lines are not an access log line" in err


@pytest.mark.parametrize("magic,command", [
    (b"\xfd7zXZ\0", "xzcat"), (b"BZh91AY&SY", "bzcat"), (b"\x04\x22\x4d\x18dd", "lz4cat"),
    (b"PK\x03\x04\x14\0", "unzip -p")])
def test_other_packers_are_named_with_their_command(tmp_path, magic, command):
    path = tmp_path / "log"
    path.write_bytes(magic + bytes(100))
    err = stint("plan", path, code=1)[1]
    assert f"{command} FILE | stint" in err and str(path) in err


def test_zstd_that_is_damaged_gives_all_that_is_before_the_damage(tmp_path):
    text = b"".join(b"%d k%d\n" % (i, i * 2654435761 % 2**32) for i in range(50_000))
    packed = zstd(text)
    path = tmp_path / "log.zst"
    for data, why in ((packed[:len(packed) // 2], "ends too early"),
                      (packed + b"garbage", "other data follows the packed data"),
                      (packed[:len(packed) // 2] + b"\xff" * 100, "damaged at byte")):
        path.write_bytes(data)
        out, err = stint("replay", "--quota", "9/1h", "--decisions", path, code=1)
        assert why in err and str(path) in err
        assert out.splitlines()[-1].split("\t")[:2] == text.splitlines()[
            out.count("\n") - 1].decode().split()
        assert out.count("\n") > 20_000
    path.write_bytes(packed + b"\x50\x2a\x4d\x18\x03\0\0\0abc" + packed)  # with a frame of notes
    assert replay_json("--quota", "9/1h", "--no-sort", path)["events"] == 100_000


def test_lines_of_an_nginx_in_the_wild():
    """IPv6, quotes in requests and agents, empty ones, TLS on a plain port, zones, CRLF."""
    lines = [
        line(BEGIN, "2001:db8::7"),
        line(BEGIN + 7200, "2001:db8::7", offset_min=120),
        line(BEGIN, "192.0.2.9", request='GET /a\\"b HTTP/1.1', agent='say \\"hi\\"'),
        line(BEGIN, "192.0.2.9", agent=""),
        line(BEGIN, "192.0.2.9", request=r"\x16\x03\x01"),
        line(BEGIN, "192.0.2.9", request=""),
        line(BEGIN, "192.0.2.9", offset_min=-330).replace("\n", "\r\n"),
        line(BEGIN, "192.0.2.8").replace(' "-" "curl"', ""),
    ]
    told = replay_json("--quota", "1/1s", given="".join(lines))
    assert (told["events"], told["malformed"], told["keys"]) == (8, 0, 3)
    # The two lines of one address are two hours apart; in local time they would be four.
    told = replay_json("--quota", "log 1/119m", "--sort", given="".join(lines[:2]))
    assert told["denied"] == 0
    told = replay_json("--quota", "log 1/121m", "--sort", given="".join(lines[:2]))
    assert told["denied"] == 1


def test_lines_that_cannot_be_read_are_named_and_the_others_count(tmp_path):
    """A line of 100 kB, one that is cut at the end of the file, an empty file."""
    path = tmp_path / "access.log"
    whole = line(BEGIN)
    path.write_text(whole + line(BEGIN, request="GET /" + "x" * 100_000) + whole + whole[:-40])
    out, err = stint("replay", "--quota", "5/1s", path)
    assert "2 events of 1 key" in out and "4, 2 malformed" in out
    assert f"{path}:2: the line is longer than 65536 bytes" in err
    assert f"{path}:4:" in err and err.count("\n") == 2
    path.write_text("")
    assert "0 events" in stint("replay", "--quota", "5/1s", path)[0]
    assert f"{path} holds no request" in stint("plan", path, code=1)[1]
    assert f"{path} holds no request" in stint("sim", "run", "--quota", "5/1s", "--workload",
                                               f"log={path}", code=1)[1]


def test_the_sample_needs_no_options():
    told = replay_json("--quota", "100/1h", SAMPLE)
    assert (told["events"], told["keys"], told["malformed"]) == (310, 23, 0)
    assert told["quotas"][0]["period_ns"] == 3600 * NS
