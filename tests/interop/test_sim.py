# SPDX-License-Identifier: MIT
"""`stint sim run` and `stint sim compare` as their users meet them: the same seed gives the same
figures, adversaries meet the bounds that `stint explain` states, and what cannot be meant is said.
"""
import csv
import io
import json
import os
import pathlib
import signal
import subprocess
import time

import pytest

from program import SAMPLE, SOURCE, STINT, interrupted, stint

FIGURES = {"decisions", "keys", "allowed", "denied", "never", "units_asked", "units_allowed",
           "share_allowed", "judged", "false_denials", "share_false", "false_longest",
           "false_longest_ns", "unjustified_denials", "waits_tried", "waits_too_long",
           "waits_too_short", "fairness_keys", "fairness_clients", "unstored", "evicted",
           "bytes_per_key", "oracle_bytes", "ns_per_decision"}
OF_QUOTA = {"most_admitted", "utilisation", "share_of_limit"}
HEAD = {"workload", "seed", "runs", "length_ns", "partial", "quotas"}
TERMS = {"quota", "limit", "period_ns", "max_in_any_window", "bound_broken"}

QUOTAS = ["window 100/60s", "buckets 100/10m time_slack=1m count_slack=10", "log 100/60s",
          "gcra 100/60s burst=20", "fixed_window 100/60s", "sliding_counter 100/60s",
          "concurrency 10 lease=30s"]
ADVERSARIES = ["edge", "late_bucket", "slot_edge", "idle_burst", "flood", "clock_steps"]
# Whom each adversary is made for, and what it reaches.
PREY = {("edge", "fixed_window 100/60s"): 200, ("edge", "sliding_counter 100/60s"): 199,
        ("idle_burst", "gcra 100/60s burst=20"): 119, ("slot_edge", "window 100/60s"): 100,
        ("late_bucket", "buckets 100/10m time_slack=1m count_slack=10"): 100,
        ("flood", "log 100/60s"): 100, ("clock_steps", "window 100/60s"): 100}


def run_json(quotas, workload, *options, command="run", **given):
    quotas = [quotas] if isinstance(quotas, str) else quotas
    words = [word for quota in quotas for word in ("--quota", quota)]
    return json.loads(stint("sim", command, "--json", *words, "--workload", workload, *options,
                            **given)[0])


def without_time(told):
    """All but what a clock says."""
    for place in [told, *told["quotas"]]:
        place.pop("ns_per_decision", None)
    return told


def test_json_has_these_members_and_no_others():
    told = run_json("100/60s", "poisson", "--seeds", 2)
    assert told.keys() == HEAD | FIGURES
    assert told["quotas"][0].keys() == TERMS | OF_QUOTA
    for name in FIGURES:
        assert told[name].keys() == {"median", "min", "max", "by_seed"}, name
        assert len(told[name]["by_seed"]) == 2
        low, mid, high = (told[name][key] for key in ("min", "median", "max"))
        assert low is None or low <= mid <= high
    compared = run_json(["100/60s", "log 100/60s"], "poisson", "--seeds", 2, command="compare")
    assert compared.keys() == HEAD
    for quota in compared["quotas"]:
        assert quota.keys() == TERMS | OF_QUOTA | FIGURES


def test_figures_add_up():
    told = run_json("100/60s", "poisson load=2 keys=5 cost=uniform:1:3", "--seeds", 1)
    one = {name: figure["median"] for name, figure in told.items() if name in FIGURES}
    assert one["decisions"] == one["allowed"] + one["denied"] + one["never"] == one["judged"]
    assert one["share_allowed"] == pytest.approx(one["units_allowed"] / one["units_asked"])
    assert one["share_false"] == pytest.approx(one["false_denials"] / one["judged"])
    assert one["keys"] == 5 and one["bytes_per_key"] == 16
    assert told["length_ns"] == 100 * 60 * 10**9
    assert 0.9 < told["quotas"][0]["utilisation"]["median"] <= 1


@pytest.mark.parametrize("adversary", ADVERSARIES)
@pytest.mark.parametrize("quota", QUOTAS)
def test_an_adversary_reaches_its_prey_and_passes_nobody(quota, adversary):
    bound = json.loads(stint("explain", "--json", quota)[0])["max_in_any_window"]
    told = run_json(quota, adversary, "--seeds", 3, "--decisions", 20000)
    (judged,) = told["quotas"]
    assert judged["max_in_any_window"] == bound and not judged["bound_broken"]
    assert judged["most_admitted"]["max"] <= bound
    assert told["unjustified_denials"]["max"] == 0
    assert told["waits_too_long"]["max"] == told["waits_too_short"]["max"] == 0
    if (adversary, quota) in PREY:
        assert judged["most_admitted"]["min"] == PREY[adversary, quota]


WORKLOADS = ["poisson keys=100 zipf=1.1 cost=lognormal:2:1 churn=5m", "onoff", "mmpp retry=backoff",
             "diurnal cost=pareto:1:1.5 cost_max=20", "herd jitter=1s retry=obey", "closed",
             "greedy keys=3", "clock_steps", "flood"]


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_seed_repeats_a_run_and_another_does_not(workload):
    options = ["--seeds", 2, "--decisions", 5000]
    once = without_time(run_json("100/60s", workload, *options))
    assert once == without_time(run_json("100/60s", workload, *options))
    other = without_time(run_json("100/60s", workload, "--seed", 77, *options))
    figures = {name for name in FIGURES if name in once}
    if "greedy" not in workload:
        assert any(once[name] != other[name] for name in figures)


# The figures of one run, with every compiler that this test is run with.
KNOWN = {
    "poisson keys=100 zipf=1.1 cost=lognormal:2:1 churn=5m": [5000, 16332, 7117],
    "onoff": [5000, 5000, 1818],
    "mmpp retry=backoff": [5000, 5000, 795],
    "diurnal cost=pareto:1:1.5 cost_max=20": [5000, 11126, 6458],
    "herd jitter=1s retry=obey": [5000, 5000, 2500],
    "closed": [5000, 5000, 1623],
}


@pytest.mark.parametrize("workload", KNOWN)
def test_every_compiler_draws_the_same(workload):
    told = run_json("100/60s", workload, "--seeds", 1, "--decisions", 5000)
    assert [told[name]["median"] for name in ("decisions", "units_asked", "units_allowed")] \
        == KNOWN[workload]


def test_other_builds_at_hand_agree():
    """Where builds by other compilers stand beside this one, their figures are the same bits. One
    that is older than a source may have drawn otherwise."""
    build = pathlib.Path(os.environ.get("STINT_BUILD", STINT)).resolve()
    changed = max(path.stat().st_mtime for path in [*(SOURCE / "src").rglob("*.[ch]"),
                                                    SOURCE / "meson.build"])
    others = [path for path in SOURCE.glob("build*/src/cmd/stint")
              if path.stat().st_mtime > changed and build not in path.resolve().parents]
    command = ["sim", "compare", "--json", "--quota", "100/60s", "--quota", "gcra 100/60s",
               "--workload", WORKLOADS[0], "--seeds", "2", "--decisions", "3000"]
    mine = without_time(json.loads(stint(*command)[0]))
    for other in others:
        done = subprocess.run([other, *command], capture_output=True, text=True, check=True)
        assert without_time(json.loads(done.stdout)) == mine, other
    assert mine["quotas"][0]["decisions"]["median"] == 3000


def test_compare_gives_all_the_same_requests():
    told = run_json(["100/60s", "log 100/60s", "gcra 50/30s", "1000/1h"], "onoff load=1.5 keys=4",
                    "--length", "1h", "--seeds", 3, command="compare")
    assert len({json.dumps(quota["units_asked"]) for quota in told["quotas"]}) == 1
    assert [quota["quota"].split()[0] for quota in told["quotas"]] \
        == ["window", "log", "gcra", "window"]


def test_compare_as_text_and_csv_say_what_json_says():
    words = ["--quota", "100/60s", "--quota", "fixed_window 100/60s", "--workload", "edge",
             "--seeds", 1]
    text = stint("sim", "compare", *words)[0].splitlines()
    assert [line.split("  ")[0] for line in text[2:]] \
        == ["quota", "window 100/1m resolution=24", "fixed_window 100/1m"]
    assert "100 of 100" in text[3] and "200 of 200" in text[4]
    rows = list(csv.DictReader(io.StringIO(stint("sim", "compare", "--csv", *words)[0])))
    told = run_json(["100/60s", "fixed_window 100/60s"], "edge", "--seeds", 1, command="compare")
    for row, quota in zip(rows, told["quotas"], strict=True):
        assert row["quota"] == quota["quota"] and int(row["runs"]) == 1
        for name in FIGURES - {"ns_per_decision"} | OF_QUOTA:
            value = quota[name]["median"]
            assert (float(row[name]) if row[name] else None) == pytest.approx(value)


def test_a_list_of_quotas_has_figures_of_each():
    told = run_json(["5/1s", "20/60s"], "poisson rate=10/1s keys=3", "--seeds", 2)
    short, long = told["quotas"]
    assert 1 < short["most_admitted"]["max"] <= 5 and long["most_admitted"]["max"] == 20
    text = stint("sim", "run", "--quota", "5/1s", "--quota", "20/60s", "--workload", "poisson")[0]
    assert "\nwindow 5/1s" in text and "\nwindow 20/1m" in text


def test_the_sample_log():
    """The figures of replay, since nothing of that log is late once it is sorted."""
    workload = f"log={SAMPLE} format=combined key=ip"
    told = run_json("100/1h", workload)
    replayed = json.loads(stint("replay", "--json", "--sort", "--quota", "100/1h", "--format",
                                "combined", SAMPLE)[0])
    assert told["runs"] == 1
    for name in ("keys", "allowed", "denied"):
        assert told[name]["median"] == replayed[name]
    assert told["quotas"][0]["most_admitted"]["median"] \
        == replayed["quotas"][0]["most_admitted"]
    # A hundred times as slow, nobody comes too often; a hundred times as fast, many do.
    assert run_json("100/1h", workload + " scale=0.01x")["denied"]["median"] == 0
    assert run_json("10/1m", workload + " scale=100x")["denied"]["median"] \
        > run_json("10/1m", workload)["denied"]["median"]


def test_logs_in_other_formats(tmp_path):
    trace = tmp_path / "trace"
    trace.write_text("0 a\n0 b 2\n1 a\n2 a 5\n")
    told = run_json("log 2/60s", f"log={trace}")
    assert told["units_asked"]["median"] == 9 and told["keys"]["median"] == 2
    assert told["allowed"]["median"] == 3 and told["never"]["median"] == 1
    lines = tmp_path / "jsonl"
    lines.write_text('{"t": 3, "who": "a", "n": 2}\n{"t": 4, "who": "a", "n": 1}\n')
    told = run_json("log 2/60s", f"log={lines} format=jsonl time=t key=who cost=n")
    assert told["units_asked"]["median"] == 3 and told["denied"]["median"] == 1


BAD = [
    (["--workload", "poisson"], "expected --quota"),
    (["--quota", "100/60s"], "expected --workload"),
    (["--quota", "100/60s", "--workload", "poison"], "did you mean 'poisson'?"),
    (["--quota", "100/60s", "--workload", "poisson lod=3"], "did you mean 'load'?"),
    (["--quota", "100/60s", "--workload", "poisson load=x"], "load must be a number"),
    (["--quota", "100/60s", "--workload", "log=x format=combine"], "did you mean 'combined'?"),
    (["--quota", "100/60s", "--workload", "edge", "--workload", "edge"], "expected one --workload"),
    (["--quota", "100/60s", "--workload", "edge", "--sedes", "3"], "did you mean '--seeds'?"),
    (["--quota", "100/60s", "--workload", "edge", "--seeds", "0"], "--seeds must be a whole"),
    (["--quota", "100/60s", "--workload", "edge", "--oracle", "maybe"], "expected on or off"),
    (["--quota", "100/60s", "--workload", "edge", "--length", "0s"], "--length must be above 0"),
    (["--quota", "100/60s", "--workload", "edge", "more"], "found 'more'"),
    (["--quota", "100/60s initial=3", "--workload", "edge"], "initial is not for a simulation"),
    (["--quota", "100", "--workload", "edge"], "is no quota"),
    (["--quota", "9/60s", "--workload", "herd jitter=61s"], "jitter=1m1s is longer than every=1m"),
    (["--quota", "100/60s", "--workload", "onoff rate=1/1s on=1ns off=1us"], "so short"),
]


@pytest.mark.parametrize("command", ["run", "compare"])
@pytest.mark.parametrize("words,sentence", BAD, ids=[sentence for _, sentence in BAD])
def test_what_cannot_be_meant_is_said(command, words, sentence):
    out, err = stint("sim", command, *words, code=2)
    assert sentence in " ".join(err.split()) and out == ""


def test_what_cannot_be_read_is_said(tmp_path):
    _, err = stint("sim", "run", "--quota", "1/1s", "--workload", f"log={tmp_path}/no", code=1)
    assert "No such file" in err
    log = f"log={SAMPLE} format=trace"
    _, err = stint("sim", "run", "--quota", "1/1s", "--workload", log, code=1)
    assert "found an access log line; choose the format combined" in err
    _, err = stint("sim", "run", "--quota", "1/1s", "--workload", f"{log} key=ip", code=1)
    assert "a trace has its keys" in err
    _, err = stint("sim", "nun", code=2)
    assert "did you mean 'run'?" in err
    assert "expected a subcommand" in stint("sim", code=2)[1]
    assert "too many" not in stint("help", "sim", "run")[1]


def test_memory_that_is_used_up_is_said():
    words = ["--quota", "100/60s", "--workload", "poisson keys=20000", "--seeds", 1, "--decisions",
             100000]
    out, err = stint("sim", "run", *words, "--memory", 1, "--json")
    told = json.loads(out)
    assert "had used up its memory" in err
    assert 0 < told["judged"]["median"] < told["decisions"]["median"] == 100000
    assert told["oracle_bytes"]["median"] <= 1e6
    assert stint("sim", "run", *words)[1] == ""


def test_without_an_oracle_nothing_is_judged():
    told = run_json("100/60s", "poisson", "--oracle", "off", "--seeds", 1)
    assert told["false_denials"]["median"] is None and told["decisions"]["median"] > 0
    assert told["quotas"][0]["most_admitted"]["median"] is None
    judged = run_json("100/60s", "poisson", "--seeds", 1)
    assert judged["allowed"] == told["allowed"]
    text = stint("sim", "run", "--quota", "100/60s", "--workload", "poisson", "--oracle", "off")[0]
    assert "false denials" not in text and "most admitted" not in text


def test_a_table_that_is_too_small_is_said():
    """Strict quotas hold all the same; others claim no bound then."""
    out, err = stint("sim", "run", "--quota", "5/60s", "--workload", "poisson keys=5000", "--keys",
                     100, "--seeds", 1, "--decisions", 20000, "--json")
    told = json.loads(out)
    assert told["unstored"]["median"] > 0 and told["evicted"]["median"] == 0 and err == ""
    assert told["quotas"][0]["most_admitted"]["median"] <= 5
    _, err = stint("sim", "run", "--quota", "gcra 5/60s", "--workload", "poisson keys=5000",
                   "--keys", 100, "--seeds", 1, "--decisions", 20000)
    assert "no bound holds then" in err


@pytest.mark.parametrize("command", ["run", "compare"])
def test_interrupted_it_prints_what_it_has(command):
    """In real time, as signals have no other; the program runs far longer than the test waits."""
    words = [STINT, "sim", command, "--json", "--quota", "100/60s", "--quota", "gcra 100/60s",
             "--workload", "poisson keys=1000", "--length", "3000d", "--decisions", "4000000000"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True) as process:
        # Not before it catches the signal: bit 2 of the mask that /proc shows.
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
            if int(status.split("SigCgt:")[1].split()[0], 16) & 2:
                break
            time.sleep(0.01)
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    told = json.loads(out)
    assert told["partial"] is True
    if told["quotas"][0].get("decisions", told.get("decisions"))["max"]:
        assert "interrupted" in err


def test_interrupted_while_it_reads_a_log_it_has_no_result():
    out, err, code = interrupted("sim", "run", "--quota", "1/1s", "--workload", "log=-",
                                 given=b"0 a\n1 a\n")
    assert (out, code) == ("", 1) and "interrupted before all of standard input was read" in err


def test_a_picture_is_drawn(tmp_path):
    """Where there is gnuplot; elsewhere its data are there, and that is said."""
    for command in ("run", "compare"):
        picture = tmp_path / f"{command}.svg"
        done = subprocess.run([STINT, "sim", command, "--quota", "100/60s", "--workload",
                               "onoff load=2", "--seeds", "1", "--plot", picture],
                              capture_output=True, text=True, check=False)
        drawn = picture.exists()
        assert done.returncode == (0 if drawn else 1)
        assert "100/1m" in picture.read_text() if drawn else "gnuplot" in done.stderr
    _, err = stint("sim", "compare", "--json", "--quota", "1/1s", "--workload", "edge", "--plot",
                   "-", code=2)
    assert "would mix" in " ".join(err.split())
