# SPDX-License-Identifier: MIT
"""`stint sim worst`: what it finds, that replay finds the same, and how it answers wrong usage."""
import json
import signal
import subprocess
import time

import pytest

from measure import cpu_s
from program import NS, STINT, replay_json, stint, waits
from redis_server import until

KEYS = ["quota", "max_in_any_window", "bound", "reached", "broken", "period_ns", "until_ns",
        "requests", "cut", "steps_back", "other_verbs", "interrupted", "seed", "tries",
        "decisions", "time_ns", "trace"]


def worst(spec, *args, tries=1500):
    """Bounded by tries, not by time: the same everywhere."""
    out, _ = stint("sim", "worst", "--json", "--quota", spec, "--tries", tries, "--time", "60s",
                   *args)
    return json.loads(out)


def replayed(spec, trace):
    """What an independent run of the limiter, through a table, counts over the same trace."""
    quota, = replay_json("--quota", spec, given=trace)["quotas"]
    return quota["most_admitted"]


@pytest.mark.parametrize("spec, most", [
    ("fixed_window 100/60s", 200),
    ("fixed_window 100/60s align=first_use", 199),
    ("fixed_window 1000/1mo align=calendar", 2000),
    ("sliding_counter 100/60s", 199),
    ("gcra 100/60s", 199),
    ("gcra 100/60s burst=20", 119),
    ("gcra 7/1s burst=3", 9),
    ("window 100/60s", 100),
    ("window 100/60s resolution=12", 100),
    ("window 100/60s resolution=100", 100),
    ("buckets 500/10m time_slack=1m", 500),
    ("buckets 500/10m count_slack=50", 500),
    ("buckets 500/10m time_slack=1m count_slack=50", 500),
    ("log 5/1s", 5),
    ("log 8000/1s", 8000),
    ("concurrency 10 lease=30s", 10),
    # Asked in runs, where one by one would be a million lines.
    ("fixed_window 1000000/1s", 2_000_000),
    ("sliding_counter 1000000/1s", 1_999_999),
    ("gcra 1000000/1s", 1_999_999),
    ("gcra 1000000/1s burst=10000", 1_009_999),
    ("window 1000000/1s", 1_000_000),
])
def test_the_worst_of_each_law_is_found_and_replay_agrees(spec, most):
    found = worst(spec, "--verbs", "take")
    assert not found["other_verbs"]
    assert found["max_in_any_window"] == most
    assert replayed(spec, found["trace"]) == most
    lines = found["trace"].splitlines()
    assert len(lines) == found["requests"] < 500
    explained = json.loads(stint("explain", "--json", spec)[0])
    assert found["bound"] == explained["max_in_any_window"] >= most
    assert found["reached"] == (found["bound"] == most)
    assert not found["broken"] and not found["cut"] and not found["steps_back"]


@pytest.mark.parametrize("spec, most", [
    ("window 100/60s", 100),
    ("window 100/60s resolution=12", 100),
    ("window 1000003/1h", 1_000_003),
    ("buckets 500/10m time_slack=1m", 500),
    ("buckets 500/10m count_slack=50", 500),
    ("buckets 500/10m time_slack=1m count_slack=50", 500),
    ("log 5/1s", 5),
    ("log 8000/1s", 8000),
    ("gcra 100/60s burst=20", 119),
    ("fixed_window 100/60s", 200),
    ("concurrency 10 lease=30s", 10),
])
def test_charges_refunds_and_releases_break_no_bound(spec, most):
    found = worst(spec, "--seed", 5, tries=3000)
    assert found["max_in_any_window"] == most and not found["broken"]


def test_a_sequence_with_a_refund_says_whose_and_is_no_trace_for_replay():
    """The use that opened the window is given back: 199 by takes alone."""
    spec = "fixed_window 100/60s align=first_use"
    found = worst(spec, tries=3000)
    assert found["max_in_any_window"] == 200 and found["other_verbs"]
    lines = found["trace"].splitlines()
    assert any(line.split()[2] == "refund" and line.split()[4:6] == ["of", "line"]
               for line in lines)
    err = stint("replay", "--quota", spec, given=found["trace"], code=None)[1]
    assert "'refund' is no cost" in err


def test_json_has_stable_keys():
    found = worst("gcra 100/60s burst=20", "--seed", 7)
    assert list(found) == KEYS
    assert found["quota"] == "gcra 100/1m burst=20"
    assert found["seed"] == 7 and found["tries"] == 1500
    assert found["decisions"] > 1500 and found["time_ns"] > 0
    assert found["period_ns"] == 60 * NS and not found["interrupted"]


def test_the_same_seed_finds_the_same_trace():
    spec = "sliding_counter 100/60s"
    first, again = worst(spec, "--seed", 3), worst(spec, "--seed", 3)
    del first["time_ns"], again["time_ns"]
    assert first == again
    assert worst(spec, "--seed", 4)["decisions"] != first["decisions"]


def test_what_is_printed_goes_through_a_pipe_into_replay():
    spec = "gcra 100/60s burst=20"
    out = stint("sim", "worst", "--quota", spec, "--tries", 1500)[0]
    assert "# most admitted in any 1 min: 119, of at most 119 by its algorithm" in out
    assert replayed(spec, out) == 119
    lines = [line for line in out.splitlines() if not line.startswith("#")]
    # With what is left of the burst at the start of each line, no time is in vain.
    assert sum(int(line.split()[2]) for line in lines) == 119


def test_the_trace_may_go_to_a_file(tmp_path):
    path = tmp_path / "worst.trace"
    out = stint("sim", "worst", "--quota", "fixed_window 100/60s", "--tries", 500,
                "--trace", path)[0]
    assert "of at most 200 by its algorithm" in out and "#" not in out and " k " not in out
    assert replayed("fixed_window 100/60s", path.read_text()) == 200
    found = worst("fixed_window 100/60s", "--trace", path)
    assert path.read_text().endswith(found["trace"])


def test_a_limit_of_nothing():
    found = worst("window 0/1s", tries=50)
    assert (found["max_in_any_window"], found["bound"], found["trace"]) == (0, 0, "")
    assert found["until_ns"] is None


def test_the_search_ends_in_time():
    """Real time: that is what --time is about."""
    begun = time.monotonic()
    found = json.loads(stint("sim", "worst", "--json", "--quota", "100/60s", "--time", "300ms")[0])
    assert found["time_ns"] >= 300_000_000
    assert time.monotonic() - begun < 20


def test_interrupted_it_prints_the_best_so_far():
    """Real time: a signal has none other."""
    with subprocess.Popen([STINT, "sim", "worst", "--json", "--quota", "fixed_window 100/60s",
                           "--time", "1h"], stdout=subprocess.PIPE, text=True) as running:
        until(lambda: cpu_s(running.pid) >= 0.5, "it searches")
        running.send_signal(signal.SIGINT)
        found = json.loads(running.communicate(timeout=60)[0])
        assert running.returncode == 0
    assert found["interrupted"] and found["max_in_any_window"] == 200
    assert replayed("fixed_window 100/60s", found["trace"]) == 200


@pytest.mark.parametrize("args, told", [
    ([], "expected --quota"),
    (["--quota", "fixed_windw 100/60s"], 'did you mean "fixed_window"'),
    (["--quota", "100"], "is no quota"),
    (["--quota", "100/60s", "--quota", "5/1s"], "expected one --quota"),
    (["--quota", "100/60s initial=empty"], "initial"),
    (["--quota", "100/60s", "--sed", "1"], "did you mean '--seed'"),
    (["--quota", "100/60s", "--seed", "x"], "--seed must be a whole number"),
    (["--quota", "100/60s", "--tries", "0"], "--tries must be a whole number from 1"),
    (["--quota", "100/60s", "--verbs", "tak"], "did you mean 'take'"),
    (["--quota", "100/60s", "--time", "soon"], "--time must be a length of time"),
    (["100/60s"], "is no option; a quota is given as --quota '100/60s'"),
])
def test_wrong_usage_is_told(args, told):
    out, err = stint("sim", "worst", *args, code=2)
    assert told in err and out == ""


def test_a_search_that_is_ended_leaves_the_last_trace(tmp_path):
    path = tmp_path / "worst.trace"
    path.write_text("1 k 2\n")
    with subprocess.Popen([STINT, "sim", "worst", "--quota", "100/60s", "--time", "1h", "--trace",
                           path]) as running:
        until(lambda: waits(running, asleep=False), "it catches SIGINT")
        running.kill()
    assert path.read_text() == "1 k 2\n"
    stint("sim", "worst", "--quota", "100/60s", "--tries", 10, "--trace", path)
    assert "1 k 2\n" not in path.read_text()


def test_a_trace_that_cannot_be_written_is_told(tmp_path):
    """At once, and not after an hour of searching."""
    begun = time.monotonic()
    err = stint("sim", "worst", "--quota", "100/60s", "--time", "1h", "--trace",
                tmp_path / "none" / "x", code=1)[1]
    assert "cannot write" in err and "No such file" in err
    assert time.monotonic() - begun < 20
    err = stint("sim", "worst", "--quota", "100/60s", "--tries", 10, "--trace", "/dev/full",
                code=1)[1]
    assert "cannot write /dev/full: No space left" in err
