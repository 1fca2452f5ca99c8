# SPDX-License-Identifier: MIT
"""Writes the page of the peers, its pictures and the short form in README, from the results alone.

What the text says of figures is computed from them; all else holds for any run.
"""
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import result

PLOTS = Path(__file__).resolve().parents[2] / "plots"
NAMES = {"ns": "ns", "us": "µs", "B": "B"}
HEADINGS = {
    "keyed-uniform-1": "uniform, 1 thread", "keyed-zipf-1": "Zipf, 1 thread",
    "keyed-uniform-2": "uniform, 2 threads", "keyed-zipf-2": "Zipf, 2 threads",
    "one-granted": "granted", "one-denied": "denied",
    "memory-key": "bytes per key",
    "resp-1": "one at a time", "resp-16": "pipelines of 16",
    "rls-10x100": "10 connections, 100 streams each", "rls-50x1": "50 connections, one stream each",
    "rls-steady": "2,000 a second", "rls-steady-p50": "its latency, median",
    "rls-steady-p99": "its latency, 99th percentile",
    "rls-steady-p999": "its latency, 99.9th percentile",
    "server-memory-resp": "RESP, 1,000,000 keys", "server-memory-rls": "gRPC, 200,000 keys",
    "http-get": "GET", "http-post": "POST",
}


@dataclass(frozen=True)
class Section:
    title: str
    text: str
    prefixes: tuple
    show: tuple = ("cost",)


SECTIONS = [
    Section("Libraries: a million keys", """\
Each program makes the texts of a million keys, asks for each once, and then takes one unit of
the keys of a sequence that is the same for all: every key equally often, or the key of rank r
as often as 1/r (Zipf). The quota is 100 a minute, with a burst of 100 where there is one, by
the clock of the peer. Threads share one limiter. Python and Node have one thread.

In forms with a clock or a time of 1 ms a thread reads the clock once a millisecond, and the others
read what it wrote. Their ratios are to stint with such a time.

With two threads the figure is the processor time of both for one take, and takes per second are
by the clock on the wall.""",
            ("keyed-",), ("cost", "per_second", "granted")),
    Section("Libraries: one limiter", """\
One limiter without keys, or one key where the peer has nothing less: 100,000,000 a second, of
which nearly all are granted, and 100 a minute, of which nearly all are denied. Reading the
clock is included.""", ("one-",)),
    Section("Libraries: memory", """\
A new limiter is asked once for each of a million keys, whose texts are made for it, as a server
makes them of requests. Resident memory after it less that before; † is the heap in use after a
collection, and what is resident is more.""",
            ("memory-key",)),
    Section("Servers: RESP", """\
Server and load have a core each; a Redis behind a server shares the server's core. Processor
time of the server, with all that is behind it, for one request. The limit is 100 an hour, a
million random keys, most of them live.""", ("resp",),
            ("cost", "per_second")),
    Section("Servers: ShouldRateLimit over gRPC", """\
The same for Envoy's rate limit service: one descriptor of a random user. The rows of 2,000 a
second are an open loop: the latency counts from when a request was due.""", ("rls",),
            ("cost", "per_second")),
    Section("Servers: HTTP", """\
`GET` is what a proxy asks: `/auth` of stint, against a request that nginx limits itself. `POST`
is JSON: `/v1/take`, against `/throttle` of throttlecrab. wrk, 50 connections.""", ("http",),
            ("cost", "per_second")),
    Section("Servers: memory", """\
Resident memory of each new key, which was asked for once. A Redis behind a server counts.""",
            ("server-memory",)),
]
INTRO = """\
<!-- SPDX-License-Identifier: MIT -->
# stint beside its peers

<!-- Written by `make bench-peers`; edit bench/peers/page.py instead. -->
`make bench-peers` builds every peer at the version below, outside of the tree, gives all of
them the same work in one run, and writes this page.
[bench/peers/README.md](../bench/peers/README.md) describes how each is asked.
[bench.md](bench.md) compares stint with baselines that no limiter can do without.

- **Processor time, not the clock on the wall**, so that others on the machine cost what they do
  to its caches and no more.
- **In turns.** A turn measures every peer of a row, one after the other; the others are paused,
  or idle. The figure is the median of the turns after one that warms up. The ratio is that to
  stint in the same turn: its median, and its middle half in brackets. A ratio above 1 is a peer
  that needs more than stint.
- **The fastest configuration that its documentation names**, for each peer: see [the
  list](#peers).
- **⚑ is bound by the client**: the load needed more time than what it measured, so requests per
  second are a lower bound for the server. The processor time of the server is not affected.
"""
STRICT = """\
## How strict they are

The most units that were granted in any window of {window}, of a limit of {limit} per window.
Three patterns, each with several seeds: a burst just before and just after the edge of a
window; a burst, then requests at twice the rate of the refill; far too many requests at all
times but for pauses of random length.

It is measured from outside, in real time. A grant counts if both its request was sent and its
reply came within the window, so no figure is more than what was admitted. It can be a few units
less: what was granted while a window began or ended.
"""
WHY = """\
## Where stint needs more, and why

Rows in which a peer needed less than `gcra` of stint in this run, by more than the middle half
of its turns, each with the same kind of clock:

{slower}

What stint does that others do not, in every take of a table: a hash under a secret of the table,
so that chosen keys do not collide; a search in several sets of slots, so that memory is bounded and
no sweep is needed; a swap of 16 bytes, so that no charge reaches the slot of another key; and a
clock that counts suspend and goes on over restarts. That is more than twice the instructions
of governor (counted by callgrind: some 490 and 216 for a take of a key of 16 bytes). Where each
take waits for memory, a processor begins as many takes at once as it can hold instructions. So the
ratio depends on the processor: [bench.md](bench.md#one-row-on-three-processors) has three.
Callers that have several keys at once pass them in one call, which waits for them together.
`window` keeps 16 bytes per key, to be strict. A time that a thread of its own advances saves the
reading of a clock.
"""


def amount(value, unit):
    """Three digits are as many as these figures bear."""
    if unit == "units":
        return str(value)
    if unit == "us" and value < 100:
        return f"{value:.2f} µs" if value < 10 else f"{value:.1f} µs"
    return f"{value:,.0f} {NAMES.get(unit, unit)}" if value >= 10 else f"{value:.1f} {NAMES[unit]}"


def cost(one):
    text = amount(one["value"], one["unit"])
    marks = "⚑" * (one.get("bound") == "client") + "†" * (one.get("note") == "heap")
    if one["ratio"] is not None and one["peer"] != "stint":
        text += f", **{one['ratio']:.2f}** ({one['ratio_q1']:.2f}–{one['ratio_q3']:.2f})"
    return text + (f" {marks}" if marks else "")


def kernel(where):
    """Its version, without the name of a build."""
    return "Linux " + ".".join(re.findall(r"\d+", where["kernel"])[:2])


def heading(row):
    return HEADINGS.get(row["row"], row["row"])


def rate(one):
    return f"{one['per_second']:,.0f}" if "per_second" in one else ""


def granted(one):
    return f"{100 * one['granted']:.1f} %" if "granted" in one else ""


SHOWN = {"cost": ("", cost), "per_second": ("Per second, by the clock on the wall:", rate),
         "granted": ("Share that was granted:", granted)}


def table(heading, lines):
    yield "| " + " | ".join(heading) + " |"
    yield "|---|---|" + "--:|" * (len(heading) - 2)
    for line in lines:
        yield "| " + " | ".join(line) + " |"
    yield ""


def matrix(rows, show):
    """Peers below each other, rows beside each other."""
    columns = list(dict.fromkeys(row["row"] for row in rows))
    peers = list(dict.fromkeys((row["peer"], row["form"]) for row in rows))
    cells = {(row["peer"], row["form"], row["row"]): show(row) for row in rows}
    lines = [[bold(peer), form, *(cells.get((peer, form, column), "") for column in columns)]
             for peer, form in peers]
    lines = [line for line in lines if any(line[2:])]
    if lines:
        yield from table(["", "", *(HEADINGS.get(name, name) for name in columns)], lines)


def bold(peer):
    return "**stint**" if peer == "stint" else peer


def of_section(section, rows):
    return [row for row in rows if row["row"].startswith(section.prefixes)]


def section_text(section, rows):
    chosen = of_section(section, rows)
    if not chosen:
        return
    yield f"## {section.title}"
    yield ""
    yield section.text
    yield ""
    for name in section.show:
        before, show = SHOWN[name]
        lines = list(matrix(chosen, show))
        if lines:
            yield from ([before, ""] if before else [])
            yield from lines
    notes = [f"- {row['peer']}, {row['form']}, {heading(row)}: {row['note']}"
             for row in chosen if row.get("note") not in (None, "", "heap")]
    if notes:
        yield from ["<details><summary>Beside the figures</summary>", "", *notes, "",
                    "</details>", ""]


def strict_text(rows, window="one second"):
    found = [row for row in rows if row["row"] == "strictness"]
    if not found:
        return
    yield STRICT.format(window=window, limit=found[0]["limit"])
    patterns = list(found[0]["patterns"])
    yield from table(["", "", *patterns, "most"], [
        [bold(row["peer"]), row["form"], *(str(row["patterns"][name]) for name in patterns),
         f"**{row['value']}**"] for row in sorted(found, key=lambda row: row["value"])])


def slower_text(rows):
    lines = [f"- {row['peer']} ({row['form']}), {section.title}, "
             f"{heading(row)}: {row['ratio']:.2f} "
             f"({row['ratio_q1']:.2f}–{row['ratio_q3']:.2f})"
             for section in SECTIONS for row in of_section(section, rows)
             if row["peer"] != "stint" and not row.get("floor")
             and row["ratio"] is not None and row["ratio_q3"] < 1]
    return "\n".join(lines) or "none."


def machine_text(results):
    where = results["machine"]
    yield "## Machine and versions"
    yield ""
    yield f"{where['cpu']}, {where['cores']} cores, {where['memory_gb']} GB, " \
          f"{kernel(where)}, {where['libc']}, {where['compiler']}, {where['optimization']}, " \
          f"huge pages {where['transparent_huge_pages']}, load average " \
          f"{where['load_average']:.1f} at the start, {where['date']}, commit {where['commit']}."
    yield ""
    yield f"Turns: {results['turns']}. Building took {results['building_s'] / 60:.0f} minutes, " \
          f"all of it {results['seconds'] / 60:.0f}. The command: `make bench-peers`."
    yield ""
    yield from (f"- {name}: {said}" for name, said in where["tools"].items())
    yield ""


def peers_text(results):
    yield "## Peers"
    yield ""
    for peer in results["peers"]:
        name = f"[{peer['name']}]({peer['url']})" if peer["url"] else f"**{peer['name']}**"
        yield f"- {name}, {peer['version']}: " + (
            f"not measured: {peer['missing']}." if peer["missing"] else f"{peer['fastest']}.")
        yield from (f"  - built by `{command}`" for command in
                    ([] if peer["missing"] else peer["build"]))
    yield ""


def page_text(results, pictures):
    rows = results["rows"]
    yield INTRO
    if results["quick"]:
        yield "**From a quick run, which only shows that everything runs: its figures of time and "
        yield "memory have no meaning.**"
        yield ""
    for title, name in pictures:
        yield f"![{title}](pictures/{name})"
        yield ""
    for section in SECTIONS:
        yield from section_text(section, rows)
    yield from strict_text(rows)
    yield WHY.format(slower=slower_text(rows))
    yield from peers_text(results)
    yield from machine_text(results)


# ---- Pictures ----


def figure(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def picture(path, title, unit, rows):
    """Bars by plots/peers.gp; False without gnuplot or rows."""
    if not rows or shutil.which("gnuplot") is None:
        return False
    rows = sorted(rows, key=lambda row: row["value"])
    names = [f"{row['peer']}, {row['form']}" for row in rows]
    block = "\n".join(f"{row['value']:.6g} {int(row['peer'] == 'stint')}" for row in rows)
    settings = "".join(
        f"name[{i}] = {quoted(name)}\nbeside[{i}] = {quoted(figure(row['value']))}\n"
        for i, (name, row) in enumerate(zip(names, rows), 1))
    script = f"""format = 'svg'
output = {quoted(str(path))}
title = {quoted(title)}
unit = {quoted(unit)}
n = {len(rows)}
array name[n]
array beside[n]
{settings}$rows << END
{block}
END
data = '$rows'
load {quoted(str(PLOTS / 'common.gp'))}
load {quoted(str(PLOTS / 'peers.gp'))}
"""
    subprocess.run(["gnuplot"], input=script, text=True, check=True)
    path.write_text(path.read_text().replace("<desc>", "<desc>Source: plots/peers.gp . ", 1))
    return True


PICTURES = [
    ("peers-keyed.svg", "A take of one of a million keys, uniform, one thread",
     "ns of processor time", "keyed-uniform-1"),
    ("peers-strictness.svg", "The most in any window, of a limit of 100", "units", "strictness"),
]


# ---- README ----


ALGORITHMS = ("gcra", "window")
KEPT_TIME = "of 1 ms"  # in the names of forms whose clock or time a thread advances
SHORT = [  # title, row, whether of those forms or of the others
    ("keyed take, 1 M keys, uniform", "keyed-uniform-1", False),
    ("the same, a time of 1 ms", "keyed-uniform-1", True),
    ("keyed take, 1 M keys, Zipf", "keyed-zipf-1", False),
    ("the same, a time of 1 ms", "keyed-zipf-1", True),
    ("memory of a key", "memory-key", False),
    ("`CL.THROTTLE`, pipelines of 16", "resp-16", False),
    ("`ShouldRateLimit`, 10 × 100 streams", "rls-10x100", False),
    ("`/auth`", "http-get", False),
]


def by_algorithm(rows):
    """Stint's first form of each algorithm."""
    mine = [row for row in rows if row["peer"] == "stint"]
    found = {name: [row for row in mine if name in row["form"]] for name in ALGORITHMS}
    return [(name, forms[0]) for name, forms in found.items() if forms]


def short_lines(title, rows, compare):
    """A line for each algorithm, under one title."""
    for i, (name, mine) in enumerate(by_algorithm(rows)):
        yield f"|{' ' if i else f' {title} '}| `{name}` | {amount(mine['value'], mine['unit'])} " \
              f"| {compare(mine)} |"


def short_table(rows):
    yield "| | algorithm | stint | nearest peer |"
    yield "|---|---|--:|---|"
    for title, name, kept in SHORT:
        chosen = [row for row in rows
                  if row["row"] == name and (KEPT_TIME in row["form"]) == kept]
        others = [row for row in chosen if row["peer"] != "stint" and not row.get("floor")]
        if others:
            best = min(others, key=lambda row: row["value"])

            def compare(mine, best=best):
                ratio = result.of(None, None, None, None, best["values"], mine["values"])
                ratios = {name: ratio[name] for name in ("ratio", "ratio_q1", "ratio_q3")}
                return f"{best['peer']}, {best['form']}: {cost({**best, **ratios})}"
            yield from short_lines(title, chosen, compare)
    strict = [row for row in rows if row["row"] == "strictness"]
    if strict:
        others = sorted({row["value"] for row in strict if row["peer"] != "stint"})
        yield from short_lines(f"most in any window, of a limit of {strict[0]['limit']}", strict,
                               lambda mine: f"{others[0]} to {others[-1]}")


def short_text(results):
    """A table of a few lines between the marks of README."""
    where = results["machine"]
    lines = list(short_table(results["rows"]))
    yield f"{where['cpu']}, {where['cores']} cores, {kernel(where)}, {where['date'][:10]}:"
    yield ""
    yield from lines
    if any("⚑" in line for line in lines):
        yield ""
        yield "⚑ is bound by the client: the rate is that of the load. The processor time of " \
              "the server is not affected."


def put_between(path, mark, text):
    """Replaces what is between <!-- MARK --> and <!-- /MARK -->."""
    page = path.read_text()
    before, begin, rest = page.partition(f"<!-- {mark} -->\n")
    _, end, after = rest.partition(f"<!-- /{mark} -->")
    if not begin or not end:
        raise ValueError(f"{path} has no <!-- {mark} --> … <!-- /{mark} -->")
    path.write_text(before + begin + text + "\n" + end + after)


def write(results, folder, readme):
    """Writes peers.md and its pictures below `folder`, and the short form; returns the paths."""
    (folder / "pictures").mkdir(parents=True, exist_ok=True)
    drawn = []
    for name, title, unit, row in PICTURES:
        path = folder / "pictures" / name
        if picture(path, title, unit, [one for one in results["rows"] if one["row"] == row]):
            drawn.append((title, name))
    page = folder / "peers.md"
    page.write_text("\n".join(page_text(results, drawn)).rstrip() + "\n")
    written = [page, *(folder / "pictures" / name for _, name in drawn)]
    if readme:
        put_between(readme, "peers", "\n".join(short_text(results)))
        written.append(readme)
    return written
