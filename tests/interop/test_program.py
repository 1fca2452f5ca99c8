# SPDX-License-Identifier: MIT
"""explain, try, pace and table, and how every command answers wrong usage."""
import json
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from program import NS, STINT, signals_waiting, stint

# ---- explain, try -------------------------------------------------------------------------------

EXPLAIN_KEYS = ["algorithm", "limit", "period_ns", "burst", "max_in_any_window", "slack",
                "state_bytes", "max_buckets", "when_full"]


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
    ("log 5/1s", {"algorithm": "log", "max_in_any_window": 5, "when_full": None}),
    ("log 5/1s when_full=inherit", {"when_full": "inherit"}),
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
    assert "Retry-After can be 63 for a period of 1m." in " ".join(out.split())
    assert "Retry-After" not in stint("explain", "log 100/60s")[0]


@pytest.mark.parametrize("spec, size, advice", [
    ("window 100/1m", 16, None), ("gcra 100/1m", 8, None),
    ("window 100/1m resolution=24", 16, None),
    ("window 100/1m resolution=100", 32, "such keys, set a larger keys_wide and wide_size: 32"),
    ("log 30/1m", 264, "such keys, set a larger keys_wide and wide_size: 264"),
    ("concurrency 510 lease=30s", 4096, "keys_wide and wide_size: 4096"),
    ("concurrency 511 lease=30s", 4104, "by default 4096: set wide_size: 4104"),
])
def test_explain_says_what_wide_states_need(spec, size, advice):
    """Up to 16 bytes they need nothing, and above 4096 the default is too small."""
    words = " ".join(stint("explain", spec)[0].split())
    assert f"{size} bytes of state per key" + ("," if advice else ".") in words
    assert advice in words if advice else "wide_size" not in words


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


def test_try_reads_lines_as_replay_reads_a_trace():
    """Blanks are spaces or tabs, before, between and behind."""
    out = stint("try", "--times", "log 3/60s", given=" 0 \n\t1\t 2 \n2\n")[0]
    assert [line.split()[0] for line in out.splitlines()] == ["ALLOW", "ALLOW", "DENY"]
    assert stint("try", "log 3/60s", given="  \n 2\t\n1\n")[0].split()[::7] == [
        "ALLOW", "ALLOW", "DENY"]
    out, err = stint("try", "--times", "3/60s", given="0 1 2\n1 4294967296\n", code=1)
    assert out == "" and "line 1: '1 2' is no cost" in err and "line 2: '4294967296'" in err


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
    assert time.monotonic() - started < 20


def test_pace_in_batches():
    """Full batches go at once, the last one at the end; a batch is one write."""
    started = time.monotonic()
    out = stint("pace", "--quota", "log 6/300ms", "--batch", "3", given="".join(
        f"{i}\n" for i in range(8)))[0]
    assert out == "".join(f"{i}\n" for i in range(8))
    assert 0.3 <= time.monotonic() - started < 20


def test_pace_lingers_no_longer_than_asked():
    """A batch that does not fill goes `linger` after its first line, while the input stays open."""
    command = [STINT, "pace", "--quota", "100/1s", "--batch", "50", "--linger", "150ms"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          bufsize=0) as running:
        started = time.monotonic()
        running.stdin.write(b"a\nb\n")
        assert running.stdout.readline() == b"a\n"
        waited = time.monotonic() - started
        assert 0.15 <= waited < 20
        assert running.stdout.readline() == b"b\n"
        running.stdin.close()
        assert running.wait(10) == 0


def read_until_paced(quota, first, **options):
    running = subprocess.Popen([STINT, "pace", "--quota", quota], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, **options)
    running.stdin.write(b"a\nb\nc\nd\n")
    assert running.stdout.readline() == first
    return running


def wait_until_caught(pid):
    """Until no signal waits for that process."""
    ends = time.monotonic() + 20
    while signals_waiting(pid) != 0:
        assert time.monotonic() < ends
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_pace_releases_what_it_read_after_a_signal(number):
    with read_until_paced("log 1/200ms", b"a\n") as running:
        running.send_signal(number)
        assert running.stdout.read() == b"b\nc\nd\n"
        assert running.wait(10) == 0
        running.stdin.close()


def test_pace_leaves_an_ignored_interrupt_ignored():
    """As in the background of a script, where shells have SIGINT ignored."""
    with subprocess.Popen(["sh", "-c", 'trap "" INT; exec "$0" pace --quota 100/1s', STINT],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as running:
        for line in (b"a\n", b"b\n"):
            running.stdin.write(line)
            assert running.stdout.readline() == line
            running.send_signal(signal.SIGINT)
        assert running.communicate(b"c\n", timeout=60)[0] == b"c\n" and running.returncode == 0


def test_pace_hands_over_what_it_read_after_a_second_signal(tmp_path):
    """To standard error, or to the file that --rest names: no line is lost."""
    with read_until_paced("log 1/1h", b"a\n") as running:
        running.send_signal(signal.SIGINT)
        wait_until_caught(running.pid)  # else both are one
        running.send_signal(signal.SIGINT)
        assert running.stdout.read() == b""
        assert running.stderr.read().endswith(b"\nb\nc\nd\n")
        assert running.wait(10) == 1
        running.stdin.close()


def told_after_a_closed_output(rest):
    """What pace says that has read three lines and could release one."""
    with subprocess.Popen([STINT, "pace", "--quota", "log 1/100ms", "--rest", rest],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          bufsize=0) as running:
        running.stdin.write(b"a\nb\nc\n")
        running.stdin.close()
        assert running.stdout.readline() == b"a\n"
        running.stdout.close()
        assert running.wait(10) == 1
        return running.stderr.read()


def test_pace_hands_over_what_a_closed_output_did_not_take(tmp_path):
    rest = tmp_path / "rest"
    rest.write_bytes(b"before\n")
    assert b"2 lines" in told_after_a_closed_output(rest)
    assert rest.read_bytes() == b"before\nb\nc\n"


def test_pace_hands_over_what_a_full_file_did_not_take():
    assert told_after_a_closed_output("/dev/full").endswith(b"here are the others:\nb\nc\n")


def test_pace_tells_that_a_line_is_cut(tmp_path):
    rest = tmp_path / "rest"
    out, err = stint("pace", "--quota", "3/1s", "--batch", "3", "--rest", rest, code=1,
                     given=b"a\n" + (1 << 21) * b"b" + b"\nc\n")
    cut = re.search(r"longer than 1048576 bytes; no more is read\nstint: 2 lines were read and not "
                    r"released; the last one is cut after (\d+) bytes\n", err)
    assert out == "" and rest.read_bytes() == b"a\n" + int(cut[1]) * b"b" + b"\n"


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
    (["frobnicate"], "replay"), (["replay", "-q", "1/1s"], "'--quota'"),
    (["replay", "-quota=1/1s"], "'--quota'"), (["explain", "-j", "1/1s"], "'--json'"),
    (["pace", "-x"], "--linger"), (["--verion"], "version"), (["explain", "-5/1s"], "--json"),
])
def test_wrong_words_are_answered_with_the_nearest_right_one(args, hint):
    out, err = stint(*args, code=2)
    assert out == "" and hint in err


@pytest.mark.parametrize("args", [
    [], ["replay"], ["replay", "--quota"], ["replay", "--quota", ""], ["explain"], ["try"],
    ["table"], ["replay", "--quota", "0/0s"], ["pace"], ["pace", "--quota", "1/1s", "file"],
    ["version", "x"],
    ["replay", "--quota", "1/1s", "a", ""], ["replay", "--quota", "1/1s", "--keys", "0"],
    ["replay", "--quota", "1/1s", "--keys", "1e6"],
    ["replay", "--quota", "1/1s", "--format", "trace", "--key", "ip"],
    ["replay", "--quota", "1/1s", "--format", "combined", "--key", "ip/129"],
    ["replay", "--quota", "1/1s", "--format", "combined", "--time", "t"], ["replay", "-x"],
    ["help", "replay", "x"], ["replay", "--quota", "1/1s", ""], ["explain", " "],
    ["replay", "--quota", "1/1s", "--state", ""], ["replay", "--quota", "1/1s", "-", "-"],
    ["explain", "9" * 600], ["explain", "--", "-5/1s"], ["try", "3/60s", "4"],
    ["pace", "--quota", "1/1s", "-"], ["table", "a", "b"], ["table", "--keys", "-1", "a"],
    ["pace", "--quota", "1/1s", "--quota", "window 1/1000ms"],
    ["replay"] + ["--quota", "1/1s"] * 33,
    ["pace"] + [f"--quota={n}/1s" for n in range(1, 34)],
    ["pace", "--quota", "1/1s", "--linger", "soon"],
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
    assert re.fullmatch(r"stint \d+\.\d+\.\d+( \([0-9a-f]{12}\))?\n", stint("version")[0])
    assert stint("--version")[0] == stint("version")[0]
    for word in ("help", "version"):
        assert stint("help", word)[0] == stint(word, "--help")[0]


@pytest.mark.parametrize("args", [
    ["replay", "--quota", "1/1s"], ["plan"], ["plan", "-"], ["pace", "--quota", "1/1s"],
    ["sim", "run", "--quota", "1/1s", "--workload", "log=-"], ["try", "--times", "1/1s"],
    ["token", "hash", "shop"]], ids=" ".join)
def test_a_standard_input_that_cannot_be_read_is_told(args):
    """A folder, and an input that is closed."""
    for redirect, reasons in (("<.", ("standard input is a folder", ": Is a directory")),
                              ("<&-", (": Bad file descriptor",))):
        done = subprocess.run(["sh", "-c", f'"$0" "$@" {redirect}', STINT, *args], text=True,
                              capture_output=True, timeout=60, check=False)
        assert done.returncode == 1 and done.stdout == ""
        assert "standard input" in done.stderr and any(why in done.stderr for why in reasons)


WRITING = [
    ["help"], ["version"], ["replay", "--help"], ["explain", "1/1s"], ["explain", "--json", "1/1s"],
    ["try", "--times", "1/1s"], ["pace", "--quota", "1/1s"], ["table", "TABLE"],
    ["table", "--json", "TABLE"], ["replay", "--quota", "1/1s"],
    ["replay", "--quota", "1/1s", "--json"], ["replay", "--quota", "1/1s", "--decisions"],
    ["replay", "--quota", "1/1s", "--decisions", "--json", "--sort"],
]


@pytest.fixture(scope="module")
def table_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "state"
    stint("replay", "--quota", "3/1m", "--state", path, "--keys", "9", given="0 a\n")
    return path


@pytest.mark.parametrize("args", WRITING, ids=" ".join)
def test_an_output_that_cannot_be_written_is_told(args, table_file):
    """A full disk, and an output that is closed."""
    args = [STINT] + [str(table_file) if arg == "TABLE" else arg for arg in args]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(args, input=b"0\n" if "try" in args else b"0 a\n", stdout=full,
                              stderr=subprocess.PIPE, timeout=60, check=False)
    assert done.returncode == 1 and b"cannot write to standard output" in done.stderr
    assert b"No space" in done.stderr or "try" in args
    done = subprocess.run(["sh", "-c", '"$0" "$@" >&-', *args], capture_output=True, timeout=60,
                          input=b"0\n" if "try" in args else b"0 a\n", check=False)
    assert done.returncode == 1 and b"cannot write to standard output" in done.stderr


def test_a_full_disk_ends_a_long_replay_early():
    """Not after hours: what follows could not be seen by anyone."""
    with open("/dev/full", "wb") as full, subprocess.Popen(
            [STINT, "replay", "--quota", "1/1s", "--decisions"], stdin=subprocess.PIPE,
            stdout=full, stderr=subprocess.PIPE) as running:
        with pytest.raises(BrokenPipeError):
            for _ in range(1000):
                running.stdin.write(b"0 a\n" * 10_000)
        assert running.wait(60) == 1
        assert b"cannot write" in running.stderr.read()


def test_a_reader_that_has_seen_enough_ends_the_program():
    """As in `| head -1`: by SIGPIPE, without a word."""
    with subprocess.Popen(["yes", "0 a"], stdout=subprocess.PIPE) as events, subprocess.Popen(
            [STINT, "replay", "--quota", "1/1s", "--decisions"], stdin=events.stdout,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        events.stdout.close()
        assert running.stdout.readline().startswith(b"0\ta\t1\tallow")
        running.stdout.close()
        assert running.wait(60) == -signal.SIGPIPE
        assert running.stderr.read() == b""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_not_taken_for_a_file(closed, tmp_path):
    """The next file to be opened has the number of the closed stream: results would go into it."""
    trace, path = tmp_path / "trace", tmp_path / "state"
    trace.write_text("".join(f"0 k{i % 7}\n" for i in range(9000)))
    args = ["replay", "--quota", "log 3/1m", "--keys", "9", "--decisions", "--state", str(path)]
    source = "-" if closed.startswith(">") else str(trace)
    with trace.open("rb") as given:
        done = subprocess.run(["sh", "-c", f'"$0" "$@" {closed}', STINT, *args, source],
                              stdin=given, capture_output=True, timeout=60, check=False)
    assert done.returncode == (1 if ">&- " in closed or closed == ">&-" else 0)
    assert json.loads(stint("table", "--json", path)[0])["fill"]["wide"]["live"] == 7
    assert trace.read_text().startswith("0 k0\n0 k1\n")
    done = subprocess.run(["sh", "-c", '"$0" replay --quota 1/1s <&-', STINT], capture_output=True,
                          timeout=60, check=False)
    assert done.returncode == 1 and b"cannot read standard input" in done.stderr


@pytest.mark.parametrize("spec,meant", [("100/day", "100/1d"), ("100 per minute", "100/1m"),
                                        ("5r/s", "5/1s")])
def test_quotas_spelt_as_elsewhere_are_answered_with_a_spec(spec, meant):
    """By every command; the SPEC that is named is one."""
    for args in (["replay", "--quota", spec], ["sim", "run", "--quota", spec, "--workload", "edge"],
                 ["take", "--quota", spec, "k"], ["pace", "--quota", spec], ["explain", spec],
                 ["try", spec], ["pool", "status", "--quota", spec, "--keys", "/dev/null"]):
        err = " ".join(stint(*args, code=2)[1].split())
        assert f'did you mean "{meant}"?' in err, args
    assert stint("explain", meant)[0]
    assert "did you mean 5m?" in stint("plan", "--periods", "5min", code=2)[1]
