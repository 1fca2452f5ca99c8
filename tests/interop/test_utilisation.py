# SPDX-License-Identifier: MIT
"""tools/utilisation.py: its CSV, its statistics, bad input; and the page docs/utilisation.md, whose
commands run, and whose tables short runs come near."""

import csv
import io
import itertools
import json
import re
import shlex
import subprocess
import sys

import pytest

from program import SOURCE, replay_json, stint

sys.path.insert(0, str(SOURCE / "tools"))
import utilisation  # noqa: E402

PAGE = (SOURCE / "docs/utilisation.md").read_text()
SHORT = ("--seeds", "6", "--periods", "20")


def script(*args, code=0, cwd=None):
    done = subprocess.run([sys.executable, SOURCE / "tools/utilisation.py", *map(str, args)],
                          capture_output=True, text=True, timeout=300, check=False, cwd=cwd)
    assert done.returncode == code, done.stderr
    return done.stdout, done.stderr


def lines_of(*args):
    return list(csv.DictReader(io.StringIO(script("--csv", "-", *args)[0])))


def test_csv_has_a_line_for_every_demand_and_quota():
    lines = lines_of("--seeds", 2, "--periods", 3, "--burstiness", "smooth,onoff:20%",
                     "--buckets", "2,5", "--resolution", "10,12-14", "--time_slack", "1m,none",
                     "--count_slack", "none,50", "--also", "gcra 500/10m burst=5")
    settings = 1 + 4 + 3 + 6 + 3 + 1
    assert len(lines) == 2 * settings
    assert [line["burstiness"] for line in lines[::settings]] == ["smooth", "onoff:20%"]
    groups = [line["group"] for line in lines[:settings]]
    assert groups == ["exact"] + 4 * ["window"] + 9 * ["split"] + 3 * ["grid"] + ["also"]
    for line in lines[:settings]:
        told = json.loads(stint("explain", "--json", line["spec"])[0])
        assert int(line["state_bytes"]) == told["state_bytes"] and line["seeds"] == "2"
        if line["group"] == "split":
            assert told["max_buckets"] <= int(line["buckets"])
    for line in lines:
        for share in ("share", "of_exact"):
            low, median, high = (float(line[f"{share}_{end}"]) for end in ("low", "median", "high"))
            assert 0 <= low <= median <= high < 1.2


def test_a_seed_is_a_result_with_every_compiler():
    """These figures were printed by gcc and by clang."""
    args = ("--quota", "20/1m", "--periods", 5, "--seeds", 1, "--count_slack", "4,7",
            "--burstiness", "smooth,poisson,onoff:50%")
    assert [line["share_median"] for line in lines_of(*args)] == GOLDEN
    assert [line["share_median"] for line in lines_of("--seed", 2, *args)] != GOLDEN


GOLDEN = ["1.000000", "0.878571", "0.700000", "0.880779", "0.798008", "0.642248", "0.762259",
          "0.716970", "0.616285"]


def test_statistics_counted_by_hand():
    # The least number of agreeing signs at 1 in 20, both sides: from a table of the sign test.
    for n, least in ((1, 2), (5, 6), (6, 6), (8, 8), (9, 8), (12, 10), (15, 12), (20, 15),
                     (25, 18)):
        assert utilisation.agreeing(n) == least
    assert utilisation.spread([0.4, 0.1, 0.3, 0.4, 0.2]) == pytest.approx((0.2, 0.3, 0.4))
    assert utilisation.spread([0.5]) == [0.5] * 3
    exact, other = (utilisation.Setting("also", "", "", shares={"smooth": shares}) for shares in (
        [0.8, 0.5, 1, 1, 1, 1, 1, 0], [0.4, 0.4, 0.1, 0.2, 0.3, 0.5, 0.6, 0]))
    assert utilisation.figures([exact], other, "smooth", "exact") == pytest.approx(
        [0.5, 0.8, 0.1, 0.2, 0.3, 0.5, 0.6, 1])
    assert not utilisation.is_worse(other, exact, "smooth")  # 7 of 8 may be chance
    exact.shares["smooth"][7] = 1
    assert utilisation.is_worse(other, exact, "smooth")
    assert not utilisation.is_worse(exact, other, "smooth")


@pytest.mark.parametrize("args,code,told", [
    (["--burstyness", "smooth"], 2, "unrecognized arguments"),
    (["--burstiness", "smoth"], 2, "smooth, poisson, greedy or onoff"),
    (["--burstiness", "onoff:0%"], 2, "from 1% to 99%"),
    (["--burstiness", "smooth,smooth"], 2, "one twice"),
    (["--quota", "gcra 5/1m"], 2, "LIMIT/PERIOD alone"),
    (["--quota", "5/1q"], 2, "not a length of time"),
    (["--quota", "8190/1m"], 2, "a limit of 8189"),
    (["--demand", "inf"], 2, "from 0.01 to 1000"),
    (["--buckets", "501"], 2, "2 to 500 buckets"),
    (["--buckets", "9-5"], 2, "FIRST-LAST"),
    (["--resolution", "113"], 2, "resolution"),
    (["--time_slack", "11m"], 2, "time_slack"),
    (["--also", "concurrency 5"], 2, "lease"),
    (["--seeds", "0"], 2, "from 1 to 999"),
    (["--plot", "picture.gif"], 2, ".svg or .png"),
    (["--csv", "/nowhere/at/all.csv", "--seeds", "1", "--periods", "1", "--resolution", "10"], 1,
     "/nowhere"),
    (["--bound", "window 5/1m"], 2, "for buckets"),
    (["surplus"], 2, "unrecognized arguments"),
], ids=lambda value: " ".join(value) if isinstance(value, list) else None)
def test_bad_input_is_reported(args, code, told):
    _, err = script(*args, code=code)
    assert told in err and "Traceback" not in err


def test_what_a_default_cannot_be_is_left_out():
    out, err = script("--quota", "12/100us", "--seeds", 1, "--periods", 1, "--burstiness", "smooth")
    assert "left out: window resolution=10: " in err
    assert "10 buckets, split" in out and "20 buckets" not in out


# ---- The bound on buckets -----------------------------------------------------------------------


def test_replay_admits_the_trace_of_the_bound(tmp_path):
    spec = "buckets 500/10m time_slack=1m count_slack=50"
    trace = tmp_path / "trace"
    trace.write_text(script("--bound", spec)[0])
    assert replay_json("--quota", spec, trace)["denied_units"] == 0


def bound_of(limit, period_ns, slack_ns, count):
    """By the formula of docs/algorithms.md."""
    if slack_ns == 0:
        return -(-limit // count)
    timed = -(-period_ns // slack_ns)
    if count == 0:
        return min(limit, timed + 1)
    return limit if count == 1 or limit <= timed else timed + -(-(limit - timed) // count)


def test_the_trace_reaches_what_the_exhaustive_search_does():
    """Of all configurations up to 6 units and 6 ns: tests/unit/algorithm/exhaustive_buckets.c."""
    below = {0: 0, 1: 0}
    for limit, period_ns in itertools.product(range(1, 7), range(1, 7)):
        for slack_ns in range(period_ns + 1):
            for count in range(slack_ns == 0, limit + 1):
                trace = utilisation.bound_trace(
                    utilisation.Quota(limit, f"{period_ns}ns"), slack_ns, count)
                assert sum(units for _, units, _ in trace) == limit
                alive = max(alive for _, _, alive in trace)
                below[bound_of(limit, period_ns, slack_ns, count) - alive] += 1
    assert below == {0: 511, 1: 182}


# ---- docs/utilisation.md ------------------------------------------------------------------------


def commands():
    return [line for block in re.findall(r"(?ms)^```sh\n(.*?)^```", PAGE)
            for line in block.splitlines()]


@pytest.mark.parametrize("command", commands())
def test_the_commands_of_the_page_run(command, tmp_path):
    program, *words = shlex.split(command)
    assert program == "tools/utilisation.py"
    if "--bound" not in words:
        words += ["--seeds", "1", "--periods", "2"]
    out, err = script(*words, cwd=tmp_path)
    assert err == ""
    if "--plot" in words:
        picture = words[words.index("--plot") + 1]
        drawn = (tmp_path / picture).read_text()
        kept = (SOURCE / "docs/utilisation" / picture).read_text()
        # The same axes; the values are those of fewer seeds.
        for names in re.findall(r"<text>(?:<tspan[^>]*>)?([^<]*[a-z][^<]*)<", kept):
            assert names in drawn
        assert drawn.count("–<") == kept.count("–<")  # cells without a value
    if "--bound" in words:
        (told,) = re.findall(r"(?s)--bound .*?```text\n(.*?)```", PAGE)
        assert out == told


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
        return line["group"] == "window" and line["spec"].endswith(f"={match.group(1)}")
    if match := re.fullmatch(r"(\d+) buckets: (.*)", name):
        number, split = int(match.group(1)), match.group(2)
        timed = {"B": 0, "AB, 4 for time": 4, "AB, half and half": number // 2,
                 "A": number - 1}[split]
        return (line["buckets"] == str(number) and line["timed_buckets"] == str(timed)
                and ("count_slack" not in line["spec"]) == (split == "A"))
    if name == "window 500/10m":
        return line["group"] == "window" and line["spec"].endswith("=24")
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


def test_other_algorithms_come_near_their_table(short):
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
                     and line["timed_buckets"] == str(timed) and "count_slack" in line["spec"]]
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
