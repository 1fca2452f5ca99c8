# SPDX-License-Identifier: MIT
"""stint sim utilisation: its CSV and JSON, that a seed is a result, bad input; and the page
docs/utilisation.md, whose commands run, and whose tables a short sweep comes near."""

import csv
import io
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import time

import pytest

from program import SOURCE, STINT, replay_json, stint

PAGE = (SOURCE / "docs/utilisation.md").read_text()
COLUMNS = ["burstiness", "group", "spec", "buckets", "timed_buckets", "time_slack_ns",
           "count_slack", "resolution", "state_bytes", "max_buckets", "most_alive", "seeds",
           "share_low", "share_median", "share_high", "of_exact_low", "of_exact_median",
           "of_exact_high"]
SHORT = ("--seeds", "6", "--periods", "20")
MINUTE = 60 * 10**9


def sweep(*args):
    return stint("sim", "utilisation", *args)[0]


def lines_of(*args):
    return list(csv.DictReader(io.StringIO(sweep("--csv", "-", *args))))


# ---- CSV and JSON -------------------------------------------------------------------------------


def test_csv_has_a_line_for_every_demand_and_quota():
    lines = lines_of("--seeds", 2, "--periods", 3, "--burstiness", "smooth,onoff:20%",
                     "--buckets", "2,5", "--resolution", "10,12-14", "--time_slack", "1m,none",
                     "--count_slack", "none,50", "--also", "gcra 500/10m burst=5")
    assert list(lines[0]) == COLUMNS
    settings = 1 + 4 + 3 + 6 + 3 + 1
    assert len(lines) == 2 * settings
    assert [line["burstiness"] for line in lines[::settings]] == ["smooth", "onoff:20%"]
    groups = [line["group"] for line in lines[:settings]]
    assert groups == ["exact"] + 4 * ["window"] + 9 * ["split"] + 3 * ["grid"] + ["also"]
    for line in lines:
        stint("explain", line["spec"])
        assert line["seeds"] == "2"
        for share in ("share", "of_exact"):
            low, median, high = (float(line[f"{share}_{end}"]) for end in ("low", "median", "high"))
            assert 0 <= low <= median <= high < 1.2
        told = json.loads(stint("explain", "--json", line["spec"])[0])
        assert int(line["state_bytes"]) == told["state_bytes"]
        if line["spec"].startswith("buckets"):
            assert int(line["max_buckets"]) == told["max_buckets"]
            assert 1 <= int(line["most_alive"]) <= int(line["max_buckets"])


def test_json_says_the_same_as_csv():
    args = ("--seeds", 7, "--periods", 4, "--burstiness", "poisson,greedy", "--buckets", 5,
            "--resolution", 24)
    told = json.loads(sweep("--json", *args))
    assert set(told) == {"limit", "period_ns", "demand", "periods", "seed", "seeds", "rounds_done",
                         "decisions", "partial", "burstiness", "settings", "best_splits"}
    assert (told["limit"], told["period_ns"], told["partial"]) == (500, 10 * MINUTE, False)
    assert told["rounds_done"] == 14 and told["burstiness"] == ["poisson", "greedy"]
    lines = lines_of(*args)
    for i, setting in enumerate(told["settings"]):
        for d, name in enumerate(told["burstiness"]):
            line = lines[d * len(told["settings"]) + i]
            assert (line["spec"], line["burstiness"]) == (setting["spec"], name)
            for share, spread in setting["results"][name].items():
                for end, value in spread.items():
                    assert float(line[f"{share}_{end}"]) == pytest.approx(value, abs=1e-6)
    assert [(best["buckets"], best["burstiness"]) for best in told["best_splits"]] == [
        (5, "poisson"), (5, "greedy")]
    assert told["best_splits"][1]["as_good"] == "0-5"


def test_a_seed_is_a_result_with_every_compiler():
    """These figures were printed by gcc and by clang."""
    args = ("--quota", "20/1m", "--periods", 5, "--seeds", 1, "--count_slack", "4,7",
            "--burstiness", "smooth,poisson,onoff:50%")
    assert sweep("--csv", "-", *args) == sweep("--csv", "-", *args)
    assert [line["share_median"] for line in lines_of(*args)] == GOLDEN
    assert [line["share_median"] for line in lines_of("--seed", 2, *args)] != GOLDEN


GOLDEN = ["1.000000", "0.878571", "0.700000", "0.880779", "0.798008", "0.642248", "0.762259",
          "0.716970", "0.616285"]


# ---- Bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize("args,code,told", [
    (["--burstyness", "smooth"], 2, "did you mean '--burstiness'"),
    (["--burstiness", "smoth"], 2, "smooth, poisson, greedy or onoff"),
    (["--burstiness", "onoff:0%"], 2, "from 1% to 99%"),
    (["--burstiness", "onoff:5%/"], 2, "onoff:20%/1h"),
    (["--burstiness", "smooth,smooth"], 2, "smooth is there twice"),
    (["--burstiness", "smooth,,poisson"], 2, "an empty value"),
    (["--quota", "gcra 5/1m"], 2, "LIMIT/PERIOD alone"),
    (["--quota", "5/1q"], 2, "is no quota"),
    (["--quota", "0/1m"], 2, "nothing to be used"),
    (["--quota", "8190/1m"], 2, "a limit of 8189"),
    (["--quota", "5/3000d"], 2, "18 years"),
    (["--demand", "0"], 2, "from 0.01 to 1000"),
    (["--demand", "inf"], 2, "from 0.01 to 1000"),
    (["--demand", "1e3"], 2, "from 0.01 to 1000"),
    (["--buckets", "1"], 2, "2 to 500 buckets"),
    (["--buckets", "501"], 2, "2 to 500 buckets"),
    (["--buckets", "20,20"], 2, "has 20 twice"),
    (["--buckets", "9-5"], 2, "runs backwards"),
    (["--buckets", "many"], 2, "a whole number"),
    (["--buckets", "2-200"], 2, "more than 128 values"),
    (["--resolution", "9"], 2, "resolution"),
    (["--resolution", "25"], 2, "resolution"),
    (["--time_slack", "0s"], 2, "cannot be 0"),
    (["--time_slack", "11m"], 2, "time_slack"),
    (["--time_slack", "none"], 2, "time_slack"),
    (["--count_slack", "501"], 2, "count_slack"),
    (["--also", "concurrency 5 lease=1m"], 2, "no period"),
    (["--seeds", "0"], 2, "from 1 to 999"),
    (["--periods", "x"], 2, "a whole number"),
    (["--periods", "100000", "--demand", "1000"], 2, "requests"),
    (["--of", "everything"], 2, "full or exact"),
    (["--json", "--csv", "-"], 2, "standard output"),
    (["--plot", "picture.gif"], 2, ".svg or .png"),
    (["--csv", "/nowhere/at/all.csv", "--seeds", "1", "--periods", "1", "--resolution", "10"], 1,
     "cannot write /nowhere"),
    (["--bound", "window 5/1m"], 2, "for buckets, not for window"),
    (["--bound", "buckets 5/1m"], 2, "is no quota"),
    (["--bound", "buckets 5/1m count_slack=1", "--csv", "-"], 2, "neither --csv nor --plot"),
    (["surplus"], 2, "options alone"),
], ids=lambda value: " ".join(value) if isinstance(value, list) else None)
def test_bad_input_is_told(args, code, told):
    out, err = stint("sim", "utilisation", *args, code=code)
    assert told in err and out == ""


def test_what_a_default_cannot_be_is_left_out_and_told():
    out, err = stint("sim", "utilisation", "--quota", "12/100us", "--seeds", 1, "--periods", 1)
    assert "left out: resolution 10: window" in err
    assert "10 buckets, split" in out and "20 buckets" not in out


def has_worked(run, seconds):
    """Waits for the time that it spent working, not for the clock: others work here too."""
    stat = pathlib.Path(f"/proc/{run.pid}/stat")
    while run.poll() is None:
        user, system = stat.read_text().rsplit(")", 1)[1].split()[11:13]
        if int(user) + int(system) >= seconds * os.sysconf("SC_CLK_TCK"):
            return
        time.sleep(0.02)


def test_an_interrupted_sweep_prints_what_it_has():
    with subprocess.Popen([STINT, "sim", "utilisation", "--json", "--seeds", "999", "--periods",
                           "50", "--buckets", "5", "--burstiness", "smooth,poisson"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        has_worked(run, 0.6)
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=60)
    assert run.returncode == 1 and b"interrupted: these are the results of" in err
    told = json.loads(out)
    assert told["partial"] and 2 <= told["rounds_done"] < 2 * 999
    assert told["settings"][0]["results"]["smooth"]["share"]["median"] == pytest.approx(1, abs=0.02)


# ---- The bound on buckets -----------------------------------------------------------------------


def test_twenty_buckets_are_alive_and_replay_admits_the_trace(tmp_path):
    spec = "buckets 500/10m time_slack=1m count_slack=50"
    told = json.loads(sweep("--json", "--bound", spec))
    assert (told["bound"], told["most_alive"]) == (20, 20)
    assert [use["alive"] for use in told["trace"]] == [1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20]
    assert sum(use["units"] for use in told["trace"]) == 500
    trace = tmp_path / "trace"
    trace.write_text(sweep("--bound", spec))
    assert replay_json("--quota", spec, trace)["denied_units"] == 0


# ---- docs/utilisation.md ------------------------------------------------------------------------


def commands():
    return [line for block in re.findall(r"(?ms)^```sh\n(.*?)^```", PAGE)
            for line in block.splitlines()]


@pytest.mark.parametrize("command", commands())
def test_the_commands_of_the_page_run(command, tmp_path):
    words = shlex.split(command)
    assert words[:3] == ["stint", "sim", "utilisation"]
    words[0] = STINT
    if "--bound" not in words:
        words += ["--seeds", "1", "--periods", "2"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120,
                          check=False)
    assert done.returncode == 0 and done.stderr == ""
    if "--plot" in words:
        picture = words[words.index("--plot") + 1]
        drawn = (tmp_path / picture).read_text()
        kept = (SOURCE / "docs/utilisation" / picture).read_text()
        # The same axes; the values are those of fewer seeds.
        for names in re.findall(r"<text>(?:<tspan[^>]*>)?([^<]*[a-z][^<]*)<", kept):
            assert names in drawn
    if "--bound" in words:
        (told,) = re.findall(r"(?s)--bound .*?```text\n(.*?)```", PAGE)
        assert done.stdout == told


def tables():
    """Rows of the tables with a column for each burstiness: (which, name, values, widest)."""
    found = []
    for table in re.findall(r"(?m)^\| quota \| bytes \|.*\n(?:\|.*\n)+", PAGE):
        rows = [[cell.strip(" `") for cell in line.strip("|").split("|")]
                for line in table.splitlines()]
        found.append((rows[0], rows[2:]))
    return found


@pytest.fixture(scope="module")
def short():
    return lines_of(*SHORT, "--buckets", "10,20,40", "--resolution", "10,12,16,24",
                    "--also", "gcra 450/10m burst=51", "--also", "gcra 250/10m burst=251",
                    "--also", "fixed_window 500/10m", "--also", "sliding_counter 500/10m")


def chosen(name, line):
    """Whether a line of the CSV is the one that a row of the page names."""
    if name == "log`, exact":
        return line["group"] == "exact"
    if match := re.fullmatch(r"window` resolution (\d+)", name):
        return line["group"] == "window" and line["resolution"] == match.group(1)
    if match := re.fullmatch(r"(\d+) buckets: (.*)", name):
        number, split = int(match.group(1)), match.group(2)
        timed = {"B": 0, "AB, 4 for time": 4, "AB, half and half": number // 2,
                 "A": number - 1}[split]
        return (line["buckets"] == str(number) and line["timed_buckets"] == str(timed)
                and (line["count_slack"] == "") == (split == "A"))
    if name == "window 500/10m":
        return line["group"] == "window" and line["resolution"] == "24"
    return line["group"] == "also" and line["spec"] == name


@pytest.mark.parametrize("which,share", [(0, "share"), (1, "of_exact")])
def test_a_short_sweep_comes_near_the_tables(which, share, short):
    """Within the widest middle half that the table states, and 1 % for the fewer periods."""
    header, rows = tables()[which]
    assert rows[-1][0] == "widest middle half" and len(rows) == 1 + 4 + 16 + 1
    for name, size, *values in rows[:-1]:
        if name.startswith("100 "):
            continue
        for burstiness, value, widest in zip(header[2:], values, rows[-1][2:]):
            (line,) = [line for line in short
                       if line["burstiness"] == burstiness and chosen(name, line)]
            assert line["state_bytes"] == size
            near = abs(100 * float(line[f"{share}_median"]) - float(value))
            assert near <= float(widest) + 1, (name, burstiness, line[f"{share}_median"])


def test_other_laws_come_near_their_table(short):
    header, rows = tables()[2]
    assert len(rows) == 5
    for name, size, most, *values in rows:
        spec = json.loads(stint("explain", "--json", name)[0])
        assert (spec["state_bytes"], spec["max_in_any_window"]) == (int(size), int(most))
        for burstiness, value in zip(header[3:], values):
            (line,) = [line for line in short
                       if line["burstiness"] == burstiness and chosen(name, line)]
            widest = 16 if burstiness.startswith("onoff") else 1
            assert abs(100 * float(line["share_median"]) - float(value)) <= widest


def test_what_the_page_advises_is_so(short):
    """The order among splits, where it is far above what chance does."""
    def of_exact(buckets, timed, burstiness, lines=short):
        (median,) = [float(line["of_exact_median"]) for line in lines
                     if line["buckets"] == str(buckets) and line["burstiness"] == burstiness
                     and line["timed_buckets"] == str(timed) and line["count_slack"] != ""]
        return 100 * median

    for steady in ("smooth", "poisson"):
        for buckets in (10, 20, 40):
            by_count = of_exact(buckets, 0, steady)
            even = of_exact(buckets, buckets // 2, steady)
            by_time = of_exact(buckets, buckets - 1, steady)
            assert even < by_time - 1 and even < by_count - 1
            # The page's formula, near which also those are whose k does not divide N.
            assert abs(by_count - 100 / (1 + (-(-500 // buckets) - 1) / 525)) < 1.5
    # A count_slack that divides the limit: one bucket more is worse.
    lines = lines_of(*SHORT, "--buckets", "10,11", "--burstiness", "onoff:20%")
    assert of_exact(10, 0, "onoff:20%", lines) > of_exact(11, 0, "onoff:20%", lines) + 1
    # And a few for time mend most of that.
    assert of_exact(11, 2, "onoff:20%", lines) > of_exact(11, 0, "onoff:20%", lines) + 1
