# SPDX-License-Identifier: MIT
"""`stint replay`: forms of input, options, and what it prints."""
import bisect
import collections
import gzip
import json
import os
import pty
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import zlib

import pytest

from program import (NS, SAMPLE, SOURCE, STINT, interrupted, replay_decisions, replay_json,
                     stint, wait_until_read)

sys.path.insert(0, str(SOURCE / "tests/property"))
import stint_abi as abi  # noqa: E402
import stint_table  # noqa: E402

READER_BLOCK = 256 * 1024
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


def test_late_lines_are_decided_at_the_latest_time_seen_unless_sorted(tmp_path):
    trace = "0 a\n10 b\n5 a\n"
    lines = replay_decisions("--quota", "log 1/8s", given=trace)
    assert [(f[0], f[3]) for f in lines] == [("0", "allow"), ("10", "allow"), ("5", "allow")]
    assert replay_json("--quota", "log 1/8s", given=trace)["late"] == 1
    lines = replay_decisions("--quota", "log 1/8s", "--sort", given=trace)
    assert [(f[0], f[3]) for f in lines] == [("0", "allow"), ("5", "deny"), ("10", "allow")]
    path = tmp_path / "trace"
    path.write_text(trace)
    assert replay_decisions("--quota", "log 1/8s", path) == lines
    assert replay_json("--quota", "log 1/8s", "--no-sort", path)["late"] == 1


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


def test_a_malformed_line_is_named_with_its_own_file(tmp_path):
    """Its format is known only when the next file is read."""
    for name, text in (("a", "no line\n"), ("b", "1 a\n")):
        (tmp_path / name).write_text(text)
    err = stint("replay", "--quota", "5/1s", tmp_path / "a", tmp_path / "b")[1]
    assert f"{tmp_path}/a:1: expected a trace line" in err


def test_strict_stops_at_the_first_malformed_line():
    out, err = stint("replay", "--quota", "5/1s", "--strict", "--decisions",
                     given="1 a\nx\n2 a\n", code=1)
    assert "standard input:2:" in err
    assert len(out.splitlines()) == 1


def test_input_of_another_format_is_bad_input():
    out, err = stint("replay", "--quota", "5/1s", "--format", "trace", SAMPLE, code=1)
    assert (out, err) == ("", f"stint: {SAMPLE}:1: expected a trace line (TIME KEY [COST]), found "
                          "an access log line; choose the format combined, or leave it out\n")


def test_gzip_is_read_like_plain_text(tmp_path):
    """One member, several, padded; from a file and from a pipe."""
    text = SAMPLE.read_bytes()
    args = ("--quota", "60/1h", "--no-sort")
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


def decided(data, tmp_path):
    """The lines that were decided before the input broke off, and what was said; always exits 1."""
    path = tmp_path / "damaged.gz"
    path.write_bytes(data)
    out, err = stint("replay", "--quota", "9/1h", "--decisions", path, code=1)
    assert stint("replay", "--quota", "9/1h", "--decisions", "-", given=data, code=1) == (
        out, err.replace(str(path), "standard input"))
    assert str(path) in err
    return ["\t".join(line.split("\t")[:2]) for line in out.splitlines()], err


def inflated(data):
    """What zlib itself gets out of the bytes there are."""
    return zlib.decompressobj(wbits=31).decompress(data)


@pytest.mark.parametrize("name", ["many bytes from few", "text"])
def test_gzip_that_is_cut_gives_all_that_is_before_the_cut(name, tmp_path):
    """Every whole line is decided, wherever the cut is; the last one, if it is cut, is named."""
    lines = {"many bytes from few": [b"%d k" % (i // 5000) + b"x" * 99 for i in range(50_000)],
             "text": [b"%d %x" % (i, i * 2654435761 % 2**32) for i in range(4000)]}[name]
    data = gzip.compress(b"".join(line + b"\n" for line in lines))
    # Where the bytes there are come to just more than is asked of zlib at once, it holds some back.
    full = bisect.bisect(range(len(data)), READER_BLOCK, key=lambda n: len(inflated(data[:n])))
    lengths = {19, full, full + 1, *range(len(data) - 10, len(data), 3),
               *range(len(data) // 4, len(data), len(data) // 4)}
    for length in sorted(length for length in lengths if length < len(data)):
        there = inflated(data[:length])
        whole, rest = there.count(b"\n"), there.rpartition(b"\n")[2]
        got, err = decided(data[:length], tmp_path)
        assert got == [line.decode().replace(" ", "\t") for line in lines[:whole]], length
        assert (f"at byte {length}: its packed data ends too early "
                f"(after {len(there)} inflated") in err
        assert (f":{whole + 1}: the input breaks off in this line" in err) == (rest != b""), length


def test_gzip_that_is_damaged_gives_all_that_is_before_the_damage(tmp_path):
    """A wrong checksum or length, wrong data, and whatever follows a member that is none."""
    text = b"".join(b"%d k\n" % i for i in range(1000))
    whole = [f"{i}\tk" for i in range(1000)]
    data = gzip.compress(text)
    for at, why in ((-5, "incorrect data check"), (-1, "incorrect length check")):
        flipped = bytearray(data)
        flipped[at] ^= 1
        got, err = decided(bytes(flipped), tmp_path)
        assert got == whole and why in err and "breaks off" not in err
    for garbage in (b"g", b"garbage", b"\0\0garbage"):
        got, err = decided(data + garbage, tmp_path)
        at = len(data) + garbage.index(b"g")
        assert got == whole and f"at byte {at}: other data follows the packed data" in err
    got, err = decided(data + data[:5], tmp_path)
    assert got == whole and "ends too early" in err
    got, err = decided(data + b"\x1f\x8b\x08\xff" + data[4:], tmp_path)
    assert got == whole and "unknown header flags" in err
    # A block of a kind that does not exist, after one that is whole.
    packer = zlib.compressobj(wbits=31)
    data = packer.compress(text) + packer.flush(zlib.Z_FULL_FLUSH) + b"\x07"
    got, err = decided(data, tmp_path)
    assert got == whole and "invalid block type" in err


def test_gzip_without_text_is_empty_input(tmp_path):
    """No bytes at all, one empty member, several."""
    for data in (b"", gzip.compress(b""), gzip.compress(b"") * 3 + bytes(7)):
        path = tmp_path / "empty.gz"
        path.write_bytes(data)
        assert replay_json("--quota", "1/1s", path)["lines"] == 0
    joined = gzip.compress(b"0 a\n1") + gzip.compress(b"") + gzip.compress(b" b\n")
    assert [f[1] for f in replay_decisions("--quota", "1/1s", given=joined)] == ["a", "b"]


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
    args = ("--quota", spec, "--format", "combined", "--keys", "1000", "--no-sort")
    whole = replay_decisions(*args, SAMPLE)
    state = ("--state", tmp_path / "state")
    parts = [replay_decisions(*args, *state, given=b"".join(part))
             for part in (lines[:150], lines[150:])]
    assert parts[0] + parts[1] == whole
    assert any(f[3] == "deny" for f in parts[1])


def test_a_replay_that_is_interrupted_leaves_a_table_that_goes_on(tmp_path):
    """What was decided until then is in the file, which serves the next."""
    path = tmp_path / "state"
    args = ("--quota", "log 5/1h", "--keys", "100", "--state", path)
    assert interrupted("replay", *args, given=b"0 a\n" * 3 + b"1 b\n" * 1000)[2] == 1
    assert [f[3] for f in replay_decisions(*args, given="2 a\n2 a\n2 a\n2 b\n")] == [
        "allow", "allow", "deny", "deny"]


@pytest.mark.parametrize("more", [[], ["--sort"], ["--format", "trace", "--no-sort"]])
@pytest.mark.parametrize("pack", [bytes, lambda text: gzip.compress(text)[:-9]])
def test_interrupted_while_it_reads_it_tells_what_it_decided(more, pack):
    """A line that is not complete does not count; the others do, also if they are sorted first."""
    trace = b"1 a\n0 a\n" + b"5 b\n" * 2000 + b"6 not-the-end"
    args = ("replay", "--quota", "5/1s", *more)
    out, err, code = interrupted(*args, "--json", given=pack(trace))
    told = json.loads(out)
    assert (told["events"], told["allowed"], told["interrupted"]) == (2002, 7, True)
    assert "interrupted: these are the decisions until then" in err and code == 1
    out, err, code = interrupted(*args, "--decisions", given=pack(trace))
    assert out.count("\n") == 2002 and "interrupted" in err and code == 1
    assert not replay_json("--quota", "5/1s", given=trace)["interrupted"]


def test_an_ignored_interrupt_stays_ignored():
    """As in the background of a script, where shells have SIGINT ignored."""
    args = ["sh", "-c", 'trap "" INT; exec "$0" replay --quota 5/1s --decisions', STINT]
    with subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        running.stdin.write(b"0 a\n")
        running.stdin.flush()
        wait_until_read(running, "SigIgn")
        running.send_signal(signal.SIGINT)
        out = running.communicate(b"1 a\n", timeout=60)[0]
        assert out.count(b"\n") == 2 and running.returncode == 0


def test_a_fifo_that_no_program_writes_to_can_be_interrupted(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    out, err, code = interrupted("replay", "--quota", "5/1s", tmp_path / "fifo")
    assert "0 events" in out and "interrupted" in err and code == 1
    writer = subprocess.Popen(["sh", "-c", 'sleep 0.1; echo 0 a >"$0"', tmp_path / "fifo"])
    assert "1 event of 1 key" in stint("replay", "--quota", "5/1s", tmp_path / "fifo")[0]
    assert writer.wait() == 0


def test_a_state_file_that_is_not_for_this_replay_is_refused(tmp_path):
    """Too narrow for the quota, or of a clock that runs by itself; and what would do is said."""
    path = tmp_path / "narrow"
    stint("replay", "--quota", "9/1m", "--state", path, "--keys", "9", given="0 a\n")
    err = stint("replay", "--quota", "log 9/1m", "--state", path, given="0 a\n", code=1)[1]
    assert "at most 16" in err and "--state goes on with" in err
    path = tmp_path / "real"
    with stint_table.Table(path=bytes(path), clock=abi.K.STINT_CLOCK_REAL) as table:
        assert table.at(abi.lib.stint_now(table.handle)).take(abi.parse("9/1h"), b"a").granted == 1
        before = path.read_bytes()
        out = stint("table", path)[0]  # while it is in use
        assert "real clock" in out and "8 of 9" in out
        err = stint("replay", "--quota", "9/1h", "--state", path, given="0 a\n", code=1)[1]
        assert "real clock" in err and "--state goes on with" in err and str(path) in err
        assert path.read_bytes() == before


@pytest.mark.skipif(os.geteuid() == 0 and shutil.which("setpriv") is None,
                    reason="root may write everything")
def test_a_file_that_may_only_be_read(tmp_path):
    """It can be looked into, and not be written."""
    path = tmp_path / "state"
    stint("replay", "--quota", "9/1m", "--state", path, "--keys", "9", given="0 a\n")
    path.chmod(0o400)
    plain = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]

    def run(*args):
        return subprocess.run([*(plain if os.geteuid() == 0 else []), STINT, *args], input=b"0 a\n",
                              capture_output=True, timeout=60, check=False)
    done = run("table", path)
    assert done.returncode == 0 and b"8 of 9" in done.stdout
    done = run("replay", "--quota", "9/1m", "--state", path)
    assert done.returncode == 1 and f"{path}: Permission denied".encode() in done.stderr


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


def test_who_types_is_told_that_lines_are_awaited():
    """Without FILE on a terminal; never in a pipe, and not for those who say `-`."""
    for args, told in (((), True), (("-",), False)):
        leader, follower = pty.openpty()
        with subprocess.Popen([STINT, "replay", "--quota", "9/1s", *args], stdin=follower,
                              stdout=subprocess.PIPE, stderr=follower) as running:
            os.write(leader, b"0 a\n\x04")
            assert b"1 event of 1 key" in running.stdout.read()
            assert running.wait(60) == 0
            os.set_blocking(leader, False)
            assert (b"^D ends" in os.read(leader, 4096)) == told
        os.close(leader)
        os.close(follower)


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


def test_popular_keys_are_counted_exactly():
    """By units, asked and denied; of equals those that came first; names as they are."""
    dice = random.Random(5)
    events = [(at, f"k{int(dice.paretovariate(0.5)) % 400}", dice.choice((1, 1, 3)))
              for at in range(3000)]
    trace = "".join(f"{at} {key} {cost}\n" for at, key, cost in events)
    asked, denied = collections.Counter(), collections.Counter()
    for fields in replay_decisions("--quota", "9/1m", given=trace):
        asked[fields[1]] += int(fields[2])
        denied[fields[1]] += int(fields[2]) if fields[3] != "allow" else 0
    for n in (1, 7, 1000):
        told = replay_json("--quota", "9/1m", "--popular", n, given=trace)
        # Counter keeps the order of the input, and its sort is stable.
        assert [(k["key"], k["allowed_units"] + k["denied_units"], k["denied_units"])
                for k in told["asked_most"]] == [
                    (key, units, denied[key]) for key, units in asked.most_common(n)]
        assert [(k["key"], k["denied_units"]) for k in told["denied_most"]] == [
            (key, units) for key, units in denied.most_common(n) if units > 0]
    assert "asked_most" not in replay_json("--quota", "9/1m", given=trace)
    out = stint("replay", "--quota", "9/1m", "--popular", 2, given=trace)[0]
    (top, top_units), = asked.most_common(1)
    first = rf" +{top_units:,} +{denied[top]:,} +{top}\n"
    assert re.search(rf"\nkeys asked most +asked +denied\n{first}", out)
    assert "summary" in stint("replay", "--quota", "9/1m", "--popular", 2, "--decisions", code=2)[1]
    assert "--popular must be" in stint("replay", "--quota", "9/1m", "--popular", 0, code=2)[1]
