#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures how much of a limit its callers get to use.

Quotas of one limit and period decide over the same requests, in virtual time: each is a run of
`stint sim run --json`. The result is the share of the limit that each admits, and the share of what
an exact count (`log`) admits of the same requests, beside the bytes of a state. The method and the
results are in docs/utilisation.md.

Without --buckets, --time_slack, --count_slack and --resolution, the splits of 10, 20, 40 and 100
buckets between time and count are tried, and all resolutions of window; with some of them, these
alone. LIST is values separated by commas; numbers also as FIRST-LAST.
"""

import argparse
import concurrent.futures
import csv
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent
UNITS_NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9,
            "d": 86400 * 10**9}
DEMANDS = "smooth,poisson,onoff:50%,onoff:20%,onoff:5%,greedy"
WARM_PERIODS = 2  # that a run leaves out; see share_of_limit in stint-sim(1)
SPLITS_SHOWN = 20  # of one number of buckets; the CSV has all
SPLITS_DRAWN = 24
NAME_WIDTH = 33


class Failure(Exception):
    """What ends the script with a message; `code` is its exit status."""

    def __init__(self, message, code=2):
        super().__init__(message)
        self.code = code


def duration_ns(text):
    parts = re.findall(r"(\d+(?:\.\d+)?)(ns|us|ms|s|m|h|d)", text)
    if not parts or "".join(map("".join, parts)) != text:
        raise Failure(f"'{text}' is not a length of time; expected one like 200ms or 1m30s")
    return round(sum(float(number) * UNITS_NS[unit] for number, unit in parts))


def div_up(part, by):
    return -(-part // by)


# ---- What is measured ----------------------------------------------------------------------------


@dataclass
class Setting:
    """A quota, the group of the table that it stands in, and its results."""

    group: str  # exact, window, split, grid or also
    name: str
    spec: str
    buckets: int = None  # of a split: how many may be alive, and how many of these are for time
    timed: int = None
    place: tuple = ()  # in the grid
    bytes: int = None
    shares: dict = field(default_factory=dict)  # by demand, a share of the limit for each seed


@dataclass
class Quota:
    limit: int
    period: str

    @property
    def period_ns(self):
        return duration_ns(self.period)

    def __str__(self):
        period = re.sub(r"(\d)([a-z]+)", r"\1 \2 ", self.period).strip()
        return f"{self.limit:,} units in " + re.sub(r"\bm\b", "min", period)

    @classmethod
    def read(cls, text):
        match = re.fullmatch(r"(\d+)/(\w+)", text)
        if not match:
            raise Failure(f"--quota is LIMIT/PERIOD alone, not '{text}'; --also takes any SPEC")
        return cls(int(match.group(1)), match.group(2))

    def spec(self, algorithm, time_slack_ns=0, count_slack=0):
        return (f"{algorithm} {self.limit}/{self.period}"
                + (f" time_slack={time_slack_ns}ns" if time_slack_ns else "")
                + (f" count_slack={count_slack}" if count_slack else ""))


def splits(quota, buckets):
    """Of so many buckets: none for time (B), then a = 1, 2, … of them (AB), then time alone (A)."""
    if not 2 <= buckets <= quota.limit:
        raise Failure(f"a limit of {quota.limit} can be split over 2 to {quota.limit} buckets")
    for timed in range(buckets + 1):
        alone = timed == buckets  # time alone needs one bucket more than there are slots of time
        slots = buckets - 1 if alone else timed
        slack_ns = div_up(quota.period_ns, slots) if slots else 0
        count = 0 if alone else div_up(quota.limit - timed, buckets - timed)
        names = ([f"time_slack=W/{slots}" if slots > 1 else "time_slack=W"] if slots else []) + (
            [f"count_slack={count}"] if count else [])
        yield Setting("split", " ".join(names), quota.spec("buckets", slack_ns, count), buckets,
                      slots)


def settings_of(options, quota):
    yield Setting("exact", "log, exact", quota.spec("log"))
    for number in options.resolution:
        yield Setting("window", f"window resolution={number}",
                      quota.spec("window") + f" resolution={number}")
    for buckets in options.buckets:
        yield from splits(quota, buckets)
    for slack in options.time_slack:
        for count in options.count_slack:
            names = [f"{name}={value}" for name, value in (("time_slack", slack),
                                                           ("count_slack", count))
                     if value != "none"]
            if names:
                yield Setting("grid", " ".join(names), quota.spec("buckets") + " "
                              + " ".join(names), place=(slack, count))
    for spec in options.also:
        yield Setting("also", spec, spec)


def workload(demand, quota, multiple):
    """The demand as a workload of stint-sim(1), and whether seeds differ."""
    rate = f"rate={quota.limit * multiple:.9f}/{quota.period}"
    if demand == "smooth":
        # Rounded up: the request that is due when a unit comes back must not be a nanosecond early.
        every_ns = math.ceil(quota.period_ns / (quota.limit * multiple))
        return f"herd clients=1 every={every_ns}ns", False
    if demand == "poisson":
        return f"poisson {rate}", True
    if demand == "greedy":
        return "greedy", False
    match = re.fullmatch(r"onoff:([1-9]\d?)%(?:/(\w+))?", demand)
    if not match:
        raise Failure(f"--burstiness cannot have '{demand}'; expected smooth, poisson, greedy or "
                      "onoff:SHARE%[/CYCLE] with a share from 1% to 99%, as in onoff:20%/1h")
    cycle_ns = duration_ns(match.group(2) or quota.period)
    on_ns = max(1, cycle_ns * int(match.group(1)) // 100)
    return f"onoff {rate} on={on_ns}ns off={cycle_ns - on_ns}ns alpha=1.5", True


def simulate(stint, options, quota, setting, demand):
    """Fills in the shares of a setting for a demand."""
    text, differ = workload(demand, quota, options.demand)
    seeds = options.seeds if differ else 1
    done = subprocess.run(
        [stint, "sim", "run", "--json", "--oracle", "off", "--quota", setting.spec, "--workload",
         text, "--seed", str(options.seed), "--seeds", str(seeds), "--decisions", str(10**18),
         "--length", f"{(WARM_PERIODS + options.periods + 1) * quota.period_ns}ns"],
        capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failure(done.stderr.split("\n")[0].removeprefix("stint sim run: "), done.returncode)
    told = json.loads(done.stdout)
    own = told["quotas"][0]
    if own["share_of_limit"]["median"] is None:
        raise Failure(f"{setting.spec}: the run did not reach its end")
    # As a share of what --quota allows, which --also need not.
    scale = own["limit"] / own["period_ns"] / (quota.limit / quota.period_ns)
    shares = [share * scale for share in own["share_of_limit"]["by_seed"]]
    setting.spec, setting.bytes = own["quota"], told["bytes_per_key"]["median"]
    setting.shares[demand] = shares if differ else shares * options.seeds


def measure(stint, options, quota):
    """All settings with their shares; what a default cannot be is left out."""
    settings = list(settings_of(options, quota))
    for demand in options.burstiness:
        workload(demand, quota, options.demand)
    left_out = {}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        # The first demand alone shows which settings there are.
        for demands in options.burstiness[:1], options.burstiness[1:]:
            runs = {pool.submit(simulate, stint, options, quota, setting, demand): setting
                    for setting in settings if id(setting) not in left_out for demand in demands}
            for run, setting in runs.items():
                try:
                    run.result()
                except Failure as failure:
                    if options.chosen or setting.group in ("exact", "also"):
                        pool.shutdown(cancel_futures=True)
                        raise
                    left_out[id(setting)] = failure
    for setting in settings:
        if id(setting) in left_out:
            print(f"left out: {setting.name}: {left_out[id(setting)]}", file=sys.stderr)
    return [setting for setting in settings if id(setting) not in left_out]


# ---- What is computed of it ----------------------------------------------------------------------


def figures(settings, setting, demand, of):
    """By seed; where the exact count admitted nothing, nothing was lost."""
    shares = setting.shares[demand]
    if of == "full":
        return shares
    return [share / exact if exact else 1.0
            for share, exact in zip(shares, settings[0].shares[demand])]


def spread(values):
    """The median, and the ends of the middle half."""
    if len(values) == 1:
        return values * 3
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, median, high


def agreeing(n):
    """The sign test: how many of n seeds must agree, or chance may have it so 1 time in 20."""
    tail, r = 0.0, n + 1
    while r > 0 and 2 * (tail + math.comb(n, r - 1) / 2**n) <= 0.05:
        r -= 1
        tail += math.comb(n, r) / 2**n
    return r


def is_worse(setting, than, demand):
    pairs = list(zip(setting.shares[demand], than.shares[demand]))
    return sum(mine < its for mine, its in pairs) >= agreeing(len(pairs))


def best_splits(settings, buckets, demand):
    """The best split, and the a of all that are as good, as runs: "0, 3-7"."""
    found = [setting for setting in settings if setting.buckets == buckets]
    best = max(found, key=lambda setting: spread(figures(settings, setting, demand, "exact"))[1])
    runs = []
    for a in [a for a, setting in enumerate(found) if not is_worse(setting, best, demand)]:
        if runs and runs[-1][1] == a - 1:
            runs[-1][1] = a
        else:
            runs.append([a, a])
    return best, ", ".join(f"{a}-{b}" if b > a else f"{a}" for a, b in runs)


# ---- Tables --------------------------------------------------------------------------------------


def write_csv(out, options, settings):
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow(["burstiness", "group", "spec", "buckets", "timed_buckets", "state_bytes",
                    "seeds"]
                   + [f"{of}_{end}" for of in ("share", "of_exact")
                      for end in ("low", "median", "high")])
    for demand in options.burstiness:
        for setting in settings:
            lines.writerow(
                [demand, setting.group, setting.spec, setting.buckets, setting.timed,
                 setting.bytes, options.seeds]
                + [f"{value:.6f}" for of in ("full", "exact")
                   for value in spread(figures(settings, setting, demand, of))])


def is_shown(setting, place):
    """Of many splits every n-th is shown, the first two and the last two always."""
    step = (setting.buckets or 0) // SPLITS_SHOWN
    return step <= 1 or place <= 1 or place + 1 >= setting.buckets or place % step == 0


def print_group(options, settings, title, group):
    widths = {demand: max(9, len(demand)) for demand in options.burstiness}
    print(f"\n{title:<{NAME_WIDTH}} bytes "
          + " ".join(f"{demand:>{widths[demand]}}" for demand in options.burstiness))
    spreads = [{demand: spread(figures(settings, setting, demand, options.of))
                for demand in options.burstiness} for setting in group]
    for place, setting in enumerate(group):
        if is_shown(setting, place):
            print(f"{setting.name:<{NAME_WIDTH}} {setting.bytes:>5} " + " ".join(
                f"{100 * spreads[place][demand][1]:>{widths[demand]}.2f}" for demand in widths))
    print(f"{'  widest middle half of the seeds':<{NAME_WIDTH + 6}} " + " ".join(
        f"{100 * max(row[demand][2] - row[demand][0] for row in spreads):>{widths[demand]}.2f}"
        for demand in widths))


def print_best(options, settings):
    needed = agreeing(options.seeds)
    print("\nBest splits, by what they admit of the exact count. a is the number of buckets for "
          "time: 0 is form B,\nall of them form A.")
    print("So few seeds tell no two splits apart: 6 are needed." if needed > options.seeds else
          f"As good are those that the best does not pass in {needed} seeds of {options.seeds}: "
          "that may be chance.")
    print(f"\n{'buckets':>7}  {'burstiness':<14}  {'best':<33} {'of exact':>8}  "
          f"{'middle half':<13}  as good: a")
    for buckets in options.buckets:
        for demand in options.burstiness:
            best, ties = best_splits(settings, buckets, demand)
            low, median, high = (100 * value for value in
                                 spread(figures(settings, best, demand, "exact")))
            half = f"{low:.2f}-{high:.2f}"
            print(f"{buckets:>7}  {demand:<14}  {best.name:<33} {median:>8.2f}  {half:<13}  {ties}")


def print_tables(options, quota, settings):
    whole = "the limit" if options.of == "full" else "what the exact count admits"
    print(f"{quota}, asked for {options.demand:.10g} times over; "
          f"{options.periods} periods, {options.seeds} seeds from {options.seed} on.\n"
          f"Units admitted, in % of {whole}: the median of the seeds.")
    titles = {"exact": "the yardstick", "window": "window", "grid": "buckets, by slack",
              "also": "others"}
    groups = {}
    for setting in settings:
        groups.setdefault((setting.group, setting.buckets), []).append(setting)
    for (group, buckets), members in groups.items():
        print_group(options, settings, titles.get(group, f"{buckets} buckets, split"), members)
    if options.buckets:
        print_best(options, settings)


# ---- The picture ---------------------------------------------------------------------------------


def matrix_of(options, settings):
    """What is drawn: title, labels of x and y, names of columns, and rows of (name, settings)."""
    def rows(name, cells):
        return [(name(demand), demand, cells) for demand in options.burstiness]

    if len(options.buckets) == 1 and options.buckets[0] < SPLITS_DRAWN:
        cells = [setting for setting in settings if setting.buckets]
        names = ["0: B"] + [str(a) for a in range(1, len(cells) - 1)] + ["A"]
        return (f"{options.buckets[0]} buckets, split between time and count",
                "buckets that are there for time, W/O", "burstiness", names, rows(str, cells))
    if options.buckets:
        names = ["0: B"] + [str(10 * tenth) for tenth in range(1, 10)] + ["all: A"]
        found = []
        for demand in options.burstiness:
            for buckets in options.buckets:
                cells = [setting for setting in settings if setting.buckets == buckets]
                found.append((f"{demand}, {buckets}", demand,
                              [cells[(buckets * tenth + 5) // 10] for tenth in range(11)]))
        return ("buckets, split between time and count",
                "share of the buckets that is there for time, W/O, in %", "burstiness, buckets",
                names, found)
    if options.time_slack:
        grid = {setting.place: setting for setting in settings if setting.group == "grid"}
        return ("buckets, by slack", "time_slack", "burstiness, count_slack", options.time_slack,
                [(f"{demand}, {count}", demand,
                  [grid.get((slack, count)) for slack in options.time_slack])
                 for demand in options.burstiness for count in options.count_slack])
    cells = [setting for setting in settings if setting.group == "window"]
    return ("window, by resolution", "resolution of window", "burstiness",
            [setting.name.split("=")[1] for setting in cells], rows(str, cells))


def quote(text):
    """A string of gnuplot in which nothing has a meaning."""
    return "'" + "".join(c if c.isprintable() else "?" for c in text).replace("'", "''") + "'"


def array(name, texts):
    return f"array {name}[{len(texts)}] = [{', '.join(map(quote, texts))}]\n"


def draw(options, quota, settings):
    formats = {"-": "text", ".svg": "svg", ".png": "png"}
    kind = formats[options.plot if options.plot == "-" else Path(options.plot).suffix]
    title, x_label, y_label, columns, rows = matrix_of(options, settings)
    rows.reverse()  # from below
    if not columns:
        raise Failure("--plot draws splits, a grid of slacks or resolutions; ask for one of them")
    title += f": {quota}, asked for {options.demand:.10g} times that".replace(" units", "")
    label = "% of the limit" if options.of == "full" else "% of what an exact count admits"
    data = "".join(
        f"{x} {y} "
        + (f"{100 * spread(figures(settings, cell, demand, options.of))[1]:.9g}" if cell else "NaN")
        + "\n" for y, (_, demand, cells) in enumerate(rows) for x, cell in enumerate(cells))
    program = (
        f"format = '{kind}'\noutput = ''\ncolumns = 100\nrows = 30\ndata = '$data'\nn = 0\n"
        f"$data << END_OF_DATA\n{data}END_OF_DATA\ntitle = {quote(title)}\n"
        f"x_label = {quote(x_label)}\ny_label = {quote(y_label)}\nvalue_label = {quote(label)}\n"
        f"n_x = {len(columns)}\nn_y = {len(rows)}\n" + array("x_name", columns)
        + array("y_name", [name for name, _, _ in rows])
        + "".join((SOURCE / "plots" / name).read_text() for name in ("common.gp", "heat.gp")))
    try:
        done = subprocess.run(["gnuplot", "--default-settings"], input=program.encode(),
                              capture_output=True, check=False)
    except FileNotFoundError:
        raise Failure("--plot needs gnuplot; Debian's package is gnuplot-nox", 1) from None
    if done.returncode != 0 or not done.stdout:
        raise Failure(f"gnuplot failed: {done.stderr.decode()}", 1)
    if options.plot == "-":
        sys.stdout.write(done.stdout.decode())
    else:
        Path(options.plot).write_bytes(done.stdout)


# ---- The bound on buckets ------------------------------------------------------------------------


def alive_after(uses, quota, slack_ns, count):
    """How many buckets are alive after each use, by the law of `buckets`; (at_ns, units) each."""
    period_ns = quota.period_ns
    buckets = []  # first use, last use, units; the newest last
    for at_ns, units in uses:
        buckets = [bucket for bucket in buckets if bucket[1] + period_ns > at_ns]
        while units > 0:
            newest = buckets[-1] if buckets else None
            if (newest is None or (slack_ns and at_ns - newest[0] >= slack_ns)
                    or (count and newest[2] >= count)):
                buckets.append(newest := [at_ns, at_ns, 0])
            fits = min(units, count - newest[2]) if count else units
            newest[1] = at_ns
            newest[2] += fits
            units -= fits
        yield len(buckets)


def bound_uses(quota, slack_ns, count, twice):
    """One unit a bucket, O apart, and at the end all that is left, in full buckets.

    With `twice`, a second use just before O keeps the first bucket alive until nearly W + O.
    """
    uses, left, at_ns, last_ns = [], quota.limit, 0, 0
    if slack_ns > 0 and count != 1:
        uses.append((0, 1))
        left -= 1
        if twice and slack_ns > 1 and left > 1:
            last_ns = slack_ns - 1
            uses.append((last_ns, 1))
            left -= 1
        end_ns = (slack_ns - 1 if twice and slack_ns > 1 else 0) + quota.period_ns
        at_ns = slack_ns
        while at_ns + slack_ns < end_ns and left > 1:
            uses.append((at_ns, 1))
            left -= 1
            at_ns += slack_ns
        at_ns = min(at_ns, end_ns - 1)
    return uses + [(at_ns, left)] if left > 0 else uses


def bound_trace(quota, slack_ns, count):
    """The uses that come nearest to the bound: (at_ns, units, alive after it)."""
    traces = []
    for twice in (True, False):
        uses = bound_uses(quota, slack_ns, count, twice)
        alive = alive_after(uses, quota, slack_ns, count)
        traces.append([(at_ns, units, n) for (at_ns, units), n in zip(uses, alive)])
    return max(traces, key=lambda trace: max(n for _, _, n in trace))


def print_bound(stint, spec):
    explained = subprocess.run([stint, "explain", "--json", spec], capture_output=True, text=True,
                               check=False)
    match = re.fullmatch(r"buckets (\d+)/(\w+)((?: \w+=\w+)+)", spec)
    if explained.returncode != 0 or not match:
        raise Failure(explained.stderr.strip() or f"--bound is for buckets, not for '{spec}'")
    quota = Quota(int(match.group(1)), match.group(2))
    slacks = dict(word.split("=") for word in match.group(3).split())
    slack_ns = duration_ns(slacks["time_slack"]) if "time_slack" in slacks else 0
    trace = bound_trace(quota, slack_ns, int(slacks.get("count_slack", 0)))
    bound = json.loads(explained.stdout)["max_buckets"]
    most = max(alive for _, _, alive in trace)
    print(f"# {spec}\n# at most {bound} buckets can be alive; after these uses {most} are")
    for at_ns, units, alive in trace:
        print(f"{at_ns // 10**9}.{at_ns % 10**9:09d} key {units} # {alive} alive")


# ---- The command line ----------------------------------------------------------------------------


def words(text):
    found = text.split(",")
    if "" in found or len(set(found)) < len(found):
        raise argparse.ArgumentTypeError(f"'{text}' has an empty value, or one twice")
    return found


def numbers(text):
    found = []
    for word in words(text):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", word)
        if not match or int(match.group(2) or match.group(1)) < int(match.group(1)):
            raise argparse.ArgumentTypeError(f"'{word}' is not a whole number or FIRST-LAST")
        found += range(int(match.group(1)), int(match.group(2) or match.group(1)) + 1)
    return found


def number_from(least, most, kind=int):
    def read(text):
        if not re.fullmatch(r"\d+" if kind is int else r"\d+(\.\d+)?", text) or \
                not least <= kind(text) <= most:
            raise argparse.ArgumentTypeError(f"must be a number from {least} to {most}: '{text}'")
        return kind(text)
    return read


def picture(text):
    if text != "-" and Path(text).suffix not in (".svg", ".png"):
        raise argparse.ArgumentTypeError(f"'{text}' does not end with .svg or .png")
    return text


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--quota", default="500/10m", metavar="LIMIT/PERIOD", help="default 500/10m")
    add("--demand", default=1.05, type=number_from(0.01, 1000, float), metavar="MULTIPLE",
        help="units asked for, as a multiple of the limit (default 1.05)")
    add("--burstiness", default=words(DEMANDS), type=words, metavar="LIST",
        help="how they come: smooth, poisson, onoff:SHARE%%[/CYCLE] (on for that share of the "
             "time), greedy (default all, with shares of 50, 20 and 5 %%)")
    add("--buckets", default=[], type=numbers, metavar="LIST",
        help="every split of so many buckets between time and count")
    add("--time_slack", default=[], type=words, metavar="LIST",
        help="buckets with each of these, or none, with each --count_slack")
    add("--count_slack", default=[], type=words, metavar="LIST",
        help="buckets with each of these, or none, with each --time_slack")
    add("--resolution", default=[], type=numbers, metavar="LIST",
        help="window with each of these, from 10 to 112")
    add("--also", default=[], action="append", metavar="SPEC",
        help="any other quota beside them, held against the limit of --quota")
    add("--seeds", default=15, type=number_from(1, 999), metavar="N",
        help="runs of each demand (default 15)")
    add("--seed", default=1, type=number_from(0, 2**62), metavar="N",
        help="the first of them (default 1)")
    add("--periods", default=60, type=number_from(1, 100000), metavar="N",
        help="periods that a run measures (default 60)")
    add("--of", default="full", choices=["full", "exact"],
        help="of what tables and picture show the share: full is the limit, exact is what log "
             "admits")
    add("--csv", metavar="FILE", help="every figure as a line of CSV; - is standard output")
    add("--plot", type=picture, metavar="FILE", help="draw FILE.svg or FILE.png; - draws letters")
    add("--bound", metavar="SPEC",
        help="print a trace, for stint replay, of uses that have the most of these buckets alive")
    options = parser.parse_args()
    if options.csv == "-" and options.plot == "-":
        parser.error("only one of --csv - and --plot - can have standard output")
    if options.time_slack or options.count_slack:
        options.time_slack = options.time_slack or ["none"]
        options.count_slack = options.count_slack or ["none"]
    options.chosen = bool(options.buckets or options.resolution or options.time_slack)
    return options


def main():
    options = read_options()
    stint = os.environ.get("STINT_BIN") or shutil.which("stint") or str(
        SOURCE / "build/src/cmd/stint")
    if options.bound:
        print_bound(stint, options.bound)
        return
    quota = Quota.read(options.quota)
    if not options.chosen:
        options.buckets = [n for n in (10, 20, 40, 100) if n <= quota.limit]
        options.resolution = range(10, 25)
    settings = measure(stint, options, quota)
    options.buckets = [n for n in options.buckets if any(s.buckets == n for s in settings)]
    if options.csv == "-":
        write_csv(sys.stdout, options, settings)
    elif options.plot != "-":
        print_tables(options, quota, settings)
    if options.csv not in (None, "-"):
        with open(options.csv, "w", encoding="utf8") as out:
            write_csv(out, options, settings)
    if options.plot:
        draw(options, quota, settings)


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        print(f"utilisation: {failure}", file=sys.stderr)
        sys.exit(failure.code)
    except OSError as error:
        print(f"utilisation: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(1)
