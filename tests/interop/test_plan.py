# SPDX-License-Identifier: MIT
"""`stint plan`: its proposals against every limit there is, tried one by one."""
import collections
import json
import os
import pty
import random
import re
import signal
import subprocess
import time

import pytest

from program import (ACCESS, NS, SAMPLE, STINT, interrupted, replay_decisions, replay_json,
                     stint)


def plan(*args, **given):
    return json.loads(stint("plan", "--json", *args, **given)[0])


def trace_of(events):
    return "".join(f"{at} k{key} {cost}\n" for at, key, cost in events)


def random_events(seed, costs=(1,)):
    """A few keys, in bursts and pauses; all in whole seconds, so that much is simultaneous."""
    dice = random.Random(seed)
    at, events = 0, []
    for _ in range(dice.randrange(1, 120)):
        at += dice.choice((0, 0, 0, 1, 1, 2, 7, 30))
        key = min(int(dice.paretovariate(0.6)), 12)
        events.append((at, key, dice.choice(costs)))
    return events


def denied_by_log(events, limit, period_s):
    """Who is denied how often, by a list of all uses. Nothing of the program's is in here."""
    uses, denied = collections.defaultdict(list), collections.Counter()
    for at, key, cost in events:
        recent = sum(units for used_at, units in uses[key] if used_at > at - period_s)
        if recent + cost > limit:
            denied[f"k{key}"] += 1
        else:
            uses[key].append((at, cost))
    return denied


def denied_by_gcra(events, limit, period_s, burst):
    """The law of gcra in whole numbers of 1/32 ns."""
    interval = -(-period_s * NS * 32 // limit)
    arrival, denied = collections.defaultdict(int), collections.Counter()
    for at, key, cost in events:
        now = at * NS * 32
        trial = max(arrival[key], now) + cost * interval
        if trial > now + burst * interval:
            denied[f"k{key}"] += 1
        else:
            arrival[key] = trial
    return denied


def denied_by_replay(trace, spec):
    return collections.Counter(
        f[1] for f in replay_decisions("--quota", spec, given=trace) if f[3] != "allow")


def meets(denied, target, n_keys, n_requests):
    """`target` is (number, is it percent, of what)."""
    number, is_percent, of = target
    whole, touched = ((n_keys, len(denied)) if of == "keys" else
                      (n_requests, sum(denied.values())))
    return touched <= (whole * number // 100 if is_percent else number)


def say_target(target):
    number, is_percent, of = target
    return f"deny at most {number}{' % of' if is_percent else ''} {of}"


def check_told(told, denied):
    """Numbers and names of a proposal, or of a point of the curve."""
    assert told["keys_touched"] == len(denied)
    assert told["requests_denied"] == sum(denied.values())
    if "keys" in told:
        assert {k["key"]: k["requests_denied"] for k in told["keys"]} == dict(denied)
        counts = [k["requests_denied"] for k in told["keys"]]
        assert counts == sorted(counts, reverse=True)


TARGETS = [(0, False, "keys"), (1, False, "keys"), (20, True, "keys"), (100, True, "keys"),
           (0, False, "requests"), (5, True, "requests"), (30, True, "requests")]


@pytest.mark.parametrize("seed", range(8))
def test_log_against_every_limit(seed):
    """The least of all limits that meet the target, with the very numbers of the list of uses."""
    events = random_events(seed, (1,) if seed % 2 else (1, 1, 2, 5))
    n_keys = len({key for _, key, _ in events})
    for target in TARGETS:
        told = plan("--format", "trace", "--algorithm", "log", "--periods", "1s,10s,2m",
                    "--target", say_target(target), "--names", 100, given=trace_of(events))
        assert (told["requests"], told["keys"]) == (len(events), n_keys)
        for proposal, period_s in zip(told["proposals"], (1, 10, 120)):
            def denied(limit):
                return denied_by_log(events, limit, period_s)
            found = proposal["limit"]
            check_told(proposal, denied(found))
            assert meets(denied(found), target, n_keys, len(events))
            assert found == 1 or not meets(denied(found - 1), target, n_keys, len(events))
            if target[2] == "keys":  # no smaller one does, either
                assert found == min(limit for limit in range(1, found + 1) if meets(
                    denied(limit), target, n_keys, len(events)))
        for point in told["frontier"]:
            check_told(point, denied_by_log(events, point["limit"], point["period_ns"] // NS))


@pytest.mark.parametrize("seed", range(4))
def test_window_against_replay(seed):
    """The engine itself decides, slack and all; without a table, and yet alike."""
    events = [event for part in range(6) for event in random_events(100 * seed + part)]
    trace = trace_of(sorted(events, key=lambda event: event[0]))
    n_keys = len({key for _, key, _ in events})
    for target in TARGETS:
        told = plan("--format", "trace", "--periods", "10s,2m", "--target", say_target(target),
                    "--names", 100, given=trace)
        for proposal in told["proposals"]:
            period = f"{proposal['period_ns'] // NS}s"
            denied = denied_by_replay(trace, f"{proposal['limit']}/{period}")
            check_told(proposal, denied)
            assert meets(denied, target, n_keys, len(events))
            if proposal["limit"] > 1:
                assert not meets(denied_by_replay(trace, f"{proposal['limit'] - 1}/{period}"),
                                 target, n_keys, len(events))
    for point in told["frontier"]:
        check_told(point, denied_by_replay(trace, point["quota"]))


@pytest.mark.parametrize("seed", range(6))
def test_gcra_against_every_burst(seed):
    events = random_events(1000 + seed, (1, 1, 3))
    n_keys = len({key for _, key, _ in events})
    for target in TARGETS:
        args = ("--format", "trace", "--periods", "7s,2m", "--target", say_target(target))
        told = plan("--algorithm", "window,gcra", "--names", 100, *args, given=trace_of(events))
        for window, proposal in zip(told["proposals"][::2], told["proposals"][1::2]):
            limit, period_s = proposal["limit"], proposal["period_ns"] // NS
            assert limit == window["limit"]

            def denied(burst):
                return denied_by_gcra(events, limit, period_s, burst)
            check_told(proposal, denied(proposal["burst"]))
            assert proposal["burst"] == next(burst for burst in range(1, 1000) if meets(
                denied(burst), target, n_keys, len(events)))


def test_a_window_with_slack_needs_more_than_the_exact_count():
    """540 a minute fit 540 exactly, and yet the engine denies: it is asked, and not a formula."""
    events = [(at, key, 1) for at in range(0, 600) for key in range(3) for _ in range(8 + key)]
    trace = trace_of(events)
    told = plan("--format", "trace", "--periods", "1m", "--algorithm", "log,window", "--target",
                "1 key", given=trace)
    exact, window = told["proposals"]
    assert exact["limit"] == 9 * 60 and window["limit"] > exact["limit"]
    check_told(window, denied_by_replay(trace, window["quota"]))


def test_the_real_log():
    """Whatever stands in the text is what replaying the proposal says."""
    if not ACCESS.exists():
        pytest.skip("the real log is not here")
    out, _ = stint("plan", ACCESS, "--key", "ip")
    assert "10,000 requests of 1,753 keys" in out
    lines = re.findall(r"^  (window \S+) touches ([\d,]+) of 1,753 keys \(.*?\), ([\d,]+) of 10,000"
                       r" requests \(.*?\):\n((?:    .*\n)*)", out, re.M)
    assert [line[0].split("/")[1] for line in lines] == ["1s", "10s", "1m", "1h", "1d"]
    for spec, keys, requests, names in lines:
        denied = collections.Counter(f[1] for f in replay_decisions(
            "--quota", spec, ACCESS) if f[3] != "allow")
        assert (keys, requests) == (str(len(denied)), str(sum(denied.values())))
        assert len(denied) <= 1
        assert re.findall(r"    (\S+) \((\d+) denied\)", names) == [
            (key, str(n)) for key, n in denied.items()]


@pytest.mark.parametrize("more", [[], ["--no-sort"]])
def test_late_lines_count_as_replay_has_them(more):
    trace = "".join(f"{at} a\n" for at in (0, 9, 1, 2, 8, 3, 20, 4, 5, 21, 40))
    told = plan("--format", "trace", "--algorithm", "log", "--periods", "4s", "--target", "0 keys",
                *more, given=trace)
    assert told["late"] == (6 if more else 0)
    limit = told["proposals"][0]["limit"]
    for at, touched in ((limit, 0), (limit - 1, 1)):
        lines = replay_decisions("--quota", f"log {at}/4s", *(more or ["--sort"]), given=trace)
        assert any(f[3] == "deny" for f in lines) == touched
    assert limit == (5 if more else 4)


def rules_of(tmp_path, *args, **given):
    """The rules file as PyYAML-free text and the proposal that it holds."""
    path = tmp_path / "rules.yaml"
    told = plan("--out", path, "--domain", "web", *args, **given)
    chosen = [p for p in told["proposals"] if p.get("chosen")]
    assert len(chosen) == 1
    return path.read_text(), chosen[0], told


def test_the_file_of_rules(tmp_path):
    """Of the proposals it has the one that denies most; the same file is read back by `rules`."""
    text, chosen, told = rules_of(tmp_path, "--format", "combined", "--key", "ip+path", SAMPLE,
                                  "--target", "2 keys", "--periods", "1m,90s")
    assert chosen["requests_denied"] == max(p["requests_denied"] for p in told["proposals"])
    period = {60: "unit: minute", 90: "period: 1m30s"}[chosen["period_ns"] // NS]
    assert text.endswith(f'''domain: "web"
descriptors:
  - key: "ip"
    descriptors:
      - key: "path"
        rate_limit:
          algorithm: window
          {period}
          requests_per_unit: {chosen["limit"]}
''')
    text, chosen, _ = rules_of(tmp_path, "--format", "trace", "--algorithm", "gcra", "--periods",
                               "1h", "--target", "0 keys", given="0 a\n1 a\n900 a\n1800 a\n")
    assert 'key: "key"' in text and "unit: hour" in text and f"burst: {chosen['burst']}" in text
    assert chosen["burst"] < chosen["limit"]


@pytest.mark.parametrize("domain", [
    'a"b\\c', "a\tb\x7f", "a\u0085b", "\ufeffa", "a\u2028", "\ufffe", "\uffff",
    "\U0001ffff\U000e0001", "\u00e4\u20ac\U0001f600", 4096 * "w"])
def test_the_file_of_rules_holds_any_domain(tmp_path, domain):
    """Also one with characters that YAML refuses or folds: replay finds it under the same name."""
    path = tmp_path / "rules.yaml"
    plan("--periods", "1s", "--out", path, "--domain", domain, given="0 a\n0 a\n")
    told = replay_json("--rules", path, "--domain", domain, "--descriptors", "key",
                       given="0 a\n0 a\n0 a\n")
    assert (told["allowed"], told["denied"]) == (2, 1)


@pytest.mark.parametrize("args, log", [
    (["--format", "combined", "--key", "ip", "--target", "2 keys"], SAMPLE),
    (["--format", "combined", "--key", "ip+path", "--target", "5 % of requests", "--sort"], SAMPLE),
    (["--format", "combined", "--key", "ip/64+path", "--target", "2 keys", "--sort"], SAMPLE),
    (["--format", "combined", "--key", "ip", "--algorithm", "gcra", "--sort"], ACCESS),
    (["--format", "combined", "--key", "ip", "--periods", "30s"], ACCESS),
])
def test_replaying_the_file_of_rules_gives_its_numbers(tmp_path, args, log):
    """As a server that loads the file would have decided."""
    if not log.exists():
        pytest.skip("the real log is not here")
    _, chosen, told = rules_of(tmp_path, *args, "--names", 1000, log)
    columns = args[args.index("--key") + 1].replace("+", ",")
    again = json.loads(stint(
        "replay", "--json", "--format", "combined", "--rules", tmp_path / "rules.yaml", "--domain",
        "web", "--descriptors", columns, "--popular", 1000,
        *(["--sort"] if "--sort" in args else []), log)[0])
    assert chosen["requests_denied"] > 0
    assert (again["events"], again["denied"]) == (told["requests"], chosen["requests_denied"])
    assert len(again["denied_most"]) == chosen["keys_touched"]
    assert sorted(k["denied_units"] for k in again["denied_most"]) == sorted(
        k["requests_denied"] for k in chosen["keys"])


def test_nothing_to_write_is_no_success(tmp_path):
    path = tmp_path / "rules.yaml"
    args = ("--format", "trace", "--periods", "1m", "--target", "0 keys", "--domain", "d")
    trace = "0 a 4000000000\n1 a 4000000000\n"
    out, err = stint("plan", *args, "--out", path, given=trace, code=1)
    assert "no limit keeps to the target" in out and "is not written" in err
    assert not path.exists()
    told = json.loads(stint("plan", "--json", *args, "--out", path, given=trace, code=1)[0])
    assert told["proposals"][0]["quota"] is None and "no limit" in told["proposals"][0]["why"]
    err = stint("plan", *args, "--out", tmp_path / "no" / "folder", given="0 a\n", code=1)[1]
    assert "cannot write" in err


def test_keys_are_named_up_to_the_number_that_is_asked_for():
    trace = "".join(f"0 key{key}\n" * (key + 2) for key in range(9)) + "0 \x1b[31m\n" * 30
    out, _ = stint("plan", "--format", "trace", "--periods", "1s", "--target", "8 keys",
                   "--algorithm", "log", "--names", 3, given=trace)
    assert "log 3/1s touches 8 of 10 keys (80 %)" in out
    assert re.search(r"    \\x1b\[31m \(27 denied\)\n    key8 \(7 denied\)\n"
                     r"    key7 \(6 denied\)\n    and 5 more\n", out)


def limits_drawn(text, panel):
    """The x of every point of each curve in a panel (a or b) of an SVG, but for the legend's."""
    curves = [group for group in text.split('<g id="gnuplot_plot_')
              if re.match(rf'\d+{panel}"', group)]
    points = [re.findall(r"#gpPt6' transform='translate\(([\d.]+),", curve) for curve in curves]
    legend = max(float(x) for curve in points for x in curve) if panel == "a" else None
    return [[x for x in curve if float(x) != legend] for curve in points if curve]


def test_picture(tmp_path):
    """Both panels have one axis of limits; the proposals and the target are marked."""
    path = tmp_path / "plan.svg"
    told = plan(SAMPLE, "--target", "2 keys", "--plot", path)
    text = path.read_text()
    for words in ("keys denied at least once", "requests denied", "limit per 1 h (window)",
                  "the proposed limit", "target: at most 2 of 23 keys", "limit: units per period"):
        assert f">{words}<" in text, words
    assert limits_drawn(text, "a") == limits_drawn(text, "b")
    assert [len(curve) for curve in limits_drawn(text, "b")] == [3] * 5
    for proposal in told["proposals"]:
        assert text.count(f'>{proposal["limit"]}<') >= 2
    assert stint("plan", SAMPLE, "--plot", "-")[0].count("\n") > 60
    stint("plan", SAMPLE, "--target", "1 % of requests", "--plot", path)
    assert ">target: at most 3 of 310 requests<" in path.read_text()


def test_a_picture_without_a_proposal(tmp_path):
    """What can be drawn is."""
    path = tmp_path / "plan.svg"
    trace = "0 a 4000000000\n1 a 4000000000\n2 b\n" + "".join(f"3 k{i}\n" for i in range(30))
    stint("plan", "--periods", "1m", "--target", "0 keys", "--plot", path, given=trace)
    assert "target: at most 0 of 32 keys" in path.read_text()
    assert "the proposed limit" not in path.read_text()
    assert stint("plan", SAMPLE, "--plot", "-")[0].count("\n") > 60


@pytest.mark.parametrize("args, words", [
    (["--target", "few"], "expected a target"),
    (["--target", "101 % of keys"], "more than all"),
    (["--periods", "1s,1x"], "--periods must be"),
    (["--periods", "1s,1000ms"], "twice"),
    (["--periods", "0s"], "--periods 0s"),
    (["--periods", "20y"], "--periods"),
    (["--periods", "6672d"], "and at most 6671d, not '6672d'\n"),
    (["--periods", "99999999d"], "and at most 6671d, not '99999999d'\n"),
    (["--periods", ",".join(f"{n}s" for n in range(1, 18))], "more than 16"),
    (["--algorithm", "fixed_window"], "--algorithm cannot be"),
    (["--algorithm", "gcra,gcra"], "twice"),
    (["--format", "trace", "--key", "ip"], "--key is for logs"),
    (["--format", "combined", "--key", "ipp"], "--key"),
    (["--format", "combined", "--time", "t"], "jsonl"),
    (["--sort", "--no-sort"], "exclude each other"),
    (["--out", "x.yaml"], "--domain"),
    (["--domain", "web"], "--out"),
    (["--out", "x.yaml", "--domain", ""], "empty"),
    (["--out", "x.yaml", "--domain", "w\udcffb"], r"must be text in UTF-8, not 'w\xffb'"),
    (["--out", "x.yaml", "--domain", 4097 * "w"], "has 4097 bytes; expected at most 4096"),
    (["--names", "0"], "--names must be"),
    (["--plot", "x.pdf"], "svg"),
    (["--plot", "-", "--json"], "mix"),
    (["--peroids", "1s"], "did you mean '--periods'"),
    ([""], "FILE is empty"),
])
def test_bad_usage(args, words):
    assert words in stint("plan", *args, code=2)[1]


def test_bad_input(tmp_path):
    assert "no-such-file" in stint("plan", tmp_path / "no-such-file", code=1)[1]
    assert "found an access log line" in stint("plan", "--format", "trace", SAMPLE, code=1)[1]
    assert "holds no request" in stint("plan", given="", code=1)[1]
    assert ":2:" in stint("plan", "--format", "trace", "--strict", given="0 a\nx\n", code=1)[1]
    assert plan("--format", "trace", given="0 a\nx\n1 a\n")["malformed"] == 1


def test_interrupted_while_it_reads_it_plans_what_it_has():
    """The second ^C would end the search, as the first one does after the input."""
    given = b"0 a\n" * 3 + b"1 b\n2 not-the-end"
    out, err, code = interrupted("plan", "--json", "--periods", "1s", given=given)
    told = json.loads(out)
    assert (told["requests"], told["proposals"][0]["limit"], told["interrupted"]) == (4, 3, True)
    assert "breaks off in this line" in err and "the plan of the 4 requests" in err and code == 1
    assert interrupted("plan") == ("", "stint: standard input holds no request\n", 1)


def test_interrupted_it_tells_what_it_has(tmp_path):
    """The first ^C ends the search; proposals that are there are told to be not all."""
    path = tmp_path / "long.trace"
    with path.open("w") as out:
        for at in range(150_000):
            out.write(f"{at // 50} k{at % 7} {1 + at % 3}\n" * 2)
    periods = ",".join(f"{n}s" for n in range(1, 17))
    args = [STINT, "plan", "--format", "trace", "--periods", periods, "--target",
            "10 % of requests", "--json", str(path)]
    # The progress on a terminal says when the search is on.
    main, terminal = pty.openpty()
    running = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=terminal)
    os.close(terminal)
    seen = b""
    while b"periods" not in seen:
        seen += os.read(main, 4096)
    time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    out = running.communicate(timeout=60)[0]
    os.close(main)
    told = json.loads(out)
    assert running.returncode == 1 and told["interrupted"]
    assert len(told["proposals"]) < 16
