#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: grafana_picture.py BUILD PICTURE.svg [SECONDS]

Draws rows of the dashboard as a Prometheus has them that scraped a server under load, in good times
and in bad ones: tests/interop/monitored.py. Grafana is not needed, and the picture is not its own.
"""
import math
import os
import re
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "interop"), str(ROOT / "tools")]

import grafana  # noqa: E402
from drawings import GREY, INK, SOFT, Drawing  # noqa: E402

SECONDS = 120
RATE_S, STEP_S = 5, 2
SHOWN = {"Overview": 8, "Decisions": 6, "Requests and connections": 3, "Table": 3,
         "Shared stores": 6}  # the first panels of these rows

# Of Okabe and Ito: colour-blind readers tell them apart, too.
COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8a8a8a", "#b8a800"]
RED, GREEN = "#c4314b", "#2c8a4b"
COLUMN_PX, GAP_PX, ROW_PX, STAT_PX, CHART_PX = 50, 6, 26, 66, 200
LEGEND_MAX = 5
PREFIXES = [(1e9, "G"), (1e6, "M"), (1e3, "k"), (1, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n")]
ENDS = {"s": "s", "ops": "/s", "reqps": "/s", "cps": "/s", "Bps": "B/s", "short": ""}


# ---- A server under load -----------------------------------------------------------------------


def filled_in(expr):
    return re.sub(r"\$\w+", ".*", expr.replace("$__rate_interval", f"{RATE_S}s"))


def watch(build, seconds):
    """{query: [(labels, [(time, value)])]} of the panels, and from when to when."""
    os.environ["STINT_BIN"] = str(Path(build, "src/cmd/stint").resolve())
    from monitored import RULES, flood, lose, misbehave, monitored, reload  # reads STINT_BIN

    with tempfile.TemporaryDirectory() as folder, \
            monitored(Path(folder)) as (server, redis, _, prometheus):
        began = time.time()
        events = [(0.2, lambda: flood(server)),
                  (0.35, lambda: misbehave(server)),
                  (0.45, lambda: reload(server, RULES.replace("per_unit: 30,", "per_unit: 60,"))),
                  (0.55, lambda: reload(server, "domain: [\n")),
                  (0.65, lambda: reload(server, RULES)),
                  (0.75, lambda: lose(redis, 5))]
        for part, happen in events:
            time.sleep(max(0, began + part * seconds - time.time()))
            happen()
        time.sleep(max(0, began + seconds - time.time()))
        began, ended = began + RATE_S, time.time()
        return {query: prometheus.query_range(filled_in(query), began, ended, STEP_S)
                for row, panels in grafana.ROWS if row in SHOWN
                for panel in panels[:SHOWN[row]] for _, query in panel.queries}, began, ended


# ---- Numbers and names -------------------------------------------------------------------------


def number(value, unit):
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    least = 1 if unit == "short" else 0
    size, prefix = next((each for each in PREFIXES if abs(value) >= each[0] >= least), (1, ""))
    text = f"{value / size:.3g}" if value else "0"
    space = " " if prefix + ENDS[unit] and not ENDS[unit].startswith("/") else ""
    return f"{text}{space}{prefix}{ENDS[unit]}"


def legend(text, labels):
    return re.sub(r"{{(\w+)}}", lambda match: labels.get(match[1], ""), text).strip() or "no rule"


def series_of(panel, data):
    """[(name, {second: value})], the largest first. An instance is always the same one here."""
    found = []
    for text, query in panel.queries:
        for labels, values in data[query]:
            points = {at: value for at, value in values if value == value}
            name = legend(text.replace("{{instance}} ", "").replace("{{instance}}", "server"),
                          labels)
            if points:
                found.append((name, points))
    return sorted(found, key=lambda each: -max(each[1].values()))


def axis(most):
    """The step of an axis from 0 to `most`: 1, 2 or 5 times a power of ten, at most 5 of them."""
    power = 10 ** math.floor(math.log10(most / 5))
    return next(step * power for step in (1, 2, 5, 10) if most / (step * power) <= 5)


# ---- Panels ------------------------------------------------------------------------------------


def draw_stat(picture, panel, found, x, y, width):
    picture.text(x + 10, y + 19, panel.title, size=12, fill=SOFT)
    name, points = found[0] if found else ("", {0: 0})
    last = points[max(points)]
    is_bad = panel.bad is not None and last >= panel.bad
    shown = name if panel.queries[0][0] else number(last, panel.unit)
    picture.text(x + 10, y + 50, shown, size=21, fill=RED if is_bad else GREEN)


def stacked(found):
    """Each series on those before it; a missing value is 0."""
    below, piled = {}, []
    for name, points in found:
        below = {at: below.get(at, 0) + points.get(at, 0) for at in {*below, *points}}
        piled.append((name, below))
    return piled


def draw_chart(picture, panel, found, x, y, width, begin, end):
    lines = stacked(found) if panel.stacked else found
    left, right, top, bottom = x + 58, x + width - 12, y + 32, y + 142
    most = max([panel.most or 0, *(max(points.values()) for _, points in lines)]) or 1
    step = axis(most)
    scale = (bottom - top) / (math.ceil(most / step - 1e-9) * step)
    picture.text(x + 10, y + 19, panel.title, size=12.5, fill=INK, bold=True)
    for i in range(math.ceil(most / step - 1e-9) + 1):
        level = bottom - i * step * scale
        picture.line(left, level, right, level, stroke=GREY, line=0.7)
        words = (panel.values or {}).get(i * step) if panel.values else number(i * step, panel.unit)
        if words:
            picture.text(left - 6, level + 4, words, size=10, anchor="end", fill=SOFT)
    per_s = (right - left) / (end - begin)
    for at in range(0, int(end - begin) + 1, int(axis(end - begin))):
        picture.text(left + at * per_s, bottom + 14, f"{at} s", size=10, anchor="middle", fill=SOFT)
    for i, (_, points) in reversed(list(enumerate(lines))):
        corners = [(left + (at - begin) * per_s, bottom - value * scale)
                   for at, value in sorted(points.items())]
        colour = COLOURS[i % len(COLOURS)]
        if panel.stacked:
            picture.path([(corners[0][0], bottom), *corners, (corners[-1][0], bottom)],
                         stroke="none", fill=colour)
        else:
            picture.path(corners, stroke=colour, line=1.4)
    draw_legend(picture, [name for name, _ in found], x + 10, y + 174, width - 20)


def draw_legend(picture, names, x, y, width):
    shown = names[:LEGEND_MAX]
    if len(names) > LEGEND_MAX:
        shown.append(f"and {len(names) - LEGEND_MAX} more")
    at = x
    for i, name in enumerate(shown):
        space = 6.1 * len(name) + 24
        if at + space > x + width:
            at, y = x, y + 16
        if i < LEGEND_MAX:
            picture.line(at, y - 4, at + 10, y - 4, stroke=COLOURS[i % len(COLOURS)], line=2.5)
        picture.text(at + 14, y, name, size=10.5, fill=SOFT)
        at += space


def draw(data, begin, end):
    rows = [(row, panels[:SHOWN[row]]) for row, panels in grafana.ROWS if row in SHOWN]
    places, y = [], 10
    for row, panels in rows:
        places.append((row, None, 0, y))
        y, x = y + ROW_PX, 0
        height = STAT_PX if panels[0].kind == "stat" else CHART_PX
        for panel in panels:
            if x == grafana.COLUMNS:
                x, y = 0, y + height + GAP_PX
            places.append((row, panel, x, y))
            x += panel.width
        y += height + 2 * GAP_PX
    picture = Drawing(grafana.COLUMNS * COLUMN_PX + 20, y, "The dashboard of stint")
    for row, panel, x, y in places:
        if panel is None:
            picture.text(12, y + 17, row, size=14, bold=True)
            continue
        left, width = 10 + x * COLUMN_PX, panel.width * COLUMN_PX - GAP_PX
        is_stat = panel.kind == "stat"
        picture.box(left, y, width, STAT_PX if is_stat else CHART_PX, fill="#ffffff", stroke=GREY,
                    round_=3)
        found = series_of(panel, data)
        if is_stat:
            draw_stat(picture, panel, found, left, y, width)
        else:
            draw_chart(picture, panel, found, left, y, width, begin, end)
    return picture


def main(build, path, seconds=SECONDS):
    data, begin, end = watch(build, float(seconds))
    text = draw(data, begin, end).svg("tools/grafana_picture.py")
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    main(*sys.argv[1:])
