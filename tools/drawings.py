#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws docs/drawings/*.svg: boxes and arrows of *.dot with graphviz, the others here.

Run it after a change of a source: `tools/drawings.py`, or `ninja -C build drawings`. It needs `dot`
(package graphviz). Neither the build nor a test needs it.
"""

import argparse
import re
import subprocess
import sys
from html import escape
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent
FOLDER = SOURCE / "docs/drawings"
FONT = "DejaVu Sans, Verdana, sans-serif"
MONO = "DejaVu Sans Mono, Menlo, monospace"

# A light card with dark ink reads on any background.
CARD, INK, SOFT = "#fbfbf9", "#1f2630", "#5c6673"
BLUE, GREEN, SAND, VIOLET, GREY = "#7ea6d6", "#7dbb8c", "#e3b565", "#b094cf", "#d9dce1"
LINE = "#4a5568"


class Drawing:
    """A picture in the making; coordinates are pixels."""

    def __init__(self, width, height, title):
        self.width, self.height, self.title = width, height, title
        self.parts = []

    def box(self, x, y, width, height, fill="none", stroke=LINE, line=1.0, dash=None, round_=0):
        dash = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{round_:g}" '
            f'fill="{fill}" stroke="{stroke}" stroke-width="{line:g}"{dash}/>')

    def line(self, x1, y1, x2, y2, stroke=LINE, line=1.0, dash=None):
        dash = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" '
                          f'stroke="{stroke}" stroke-width="{line:g}"{dash}/>')

    def path(self, points, stroke=LINE, line=1.0, fill="none"):
        corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{corners}" fill="{fill}" stroke="{stroke}" '
                          f'stroke-width="{line:g}"/>')

    def text(self, x, y, words, size=13, anchor="start", fill=INK, bold=False, font=FONT):
        weight = ' font-weight="bold"' if bold else ""
        halo = f' stroke="{CARD}" stroke-width="6" paint-order="stroke"' if bold else ""
        self.parts.append(f'<text x="{x:g}" y="{y:g}" font-family="{font}" font-size="{size}" '
                          f'text-anchor="{anchor}" fill="{fill}"{weight}{halo} '
                          f'xml:space="preserve">{escape(words)}</text>')

    def svg(self, source):
        return "\n".join([
            '<?xml version="1.0" encoding="UTF-8"?>',
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" '
            f'viewBox="0 0 {self.width} {self.height}">',
            f"<title>{escape(self.title)}</title>",
            f"<desc>Source: {source}</desc>",
            f'<rect width="100%" height="100%" rx="6" fill="{CARD}"/>',
            *self.parts, "</svg>", ""])


# ---- The window: bars and stars ------------------------------------------------------------------

LIMIT, PERIOD_S, RESOLUTION = 30, 60, 10
BUNCH = -(-LIMIT // RESOLUTION)
BARS = RESOLUTION + 1
REQUESTS = [(2, 7), (20, 4), (45, 19), (50, 1), (66, 7), (66, 6), (84, 1)]
SHOWN = [(2, 7), (20, 4), (45, 19), (66, 6)]


class Window:
    """The algorithm `window` without refunds and charges, where bunches divide the limit."""

    def __init__(self):
        self.bunches = []  # [slot, units used], oldest first

    def take(self, now_s, cost):
        slot = now_s * RESOLUTION // PERIOD_S
        self.bunches = [each for each in self.bunches if each[0] > slot - BARS]
        remaining = LIMIT - sum(used for _, used in self.bunches)
        rest = BUNCH - self.bunches[-1][1] if self.bunches else 0
        remaining = (LIMIT // BUNCH - len(self.bunches)) * BUNCH + rest
        if cost > remaining:
            return "deny", remaining
        left = cost
        while left > 0:
            if not self.bunches or self.bunches[-1][1] == BUNCH:
                self.bunches.append([slot, 0])
            part = min(left, BUNCH - self.bunches[-1][1])
            self.bunches[-1] = [slot, self.bunches[-1][1] + part]
            left -= part
        return "allow", remaining - cost

    def string(self, slot):
        """The bits of the state, a group for each slot."""
        return " ".join("1" + "0" * sum(at == each for at, _ in self.bunches)
                        for each in range(slot - BARS + 1, slot + 1))


def decisions():
    """As `stint replay --decisions` prints them: time, cost, outcome, units left."""
    window = Window()
    return [(now_s, cost, *window.take(now_s, cost)) for now_s, cost in REQUESTS]


def window_drawing():
    left, column, row_height, top = 118, 31, 150, 58
    first, last = -RESOLUTION, 11
    picture = Drawing(left + (last - first + 1) * column + 20, top + 4 * row_height + 46,
                      "window 30/1m resolution=10 after four takes")
    picture.text(20, 28, "window 30/1m resolution=10: slots of 6 s, bunches of 3 units. "
                         "It remembers 11 slots.", size=14, bold=True)
    window, row = Window(), 0
    for now_s, cost in REQUESTS:
        if window.take(now_s, cost)[0] == "deny" or (now_s, cost) not in SHOWN:
            continue
        slot = now_s * RESOLUTION // PERIOD_S
        y = top + row * row_height
        ground = y + 104

        def at(number):
            return left + (number - first) * column

        picture.text(20, ground - 46, f"{now_s} s", size=15, bold=True)
        picture.text(20, ground - 26, f"take {cost}")
        used = sum(units for _, units in window.bunches)
        picture.text(20, ground - 8, f"{used} of {LIMIT} used", size=12, fill=SOFT)
        picture.box(at(slot - BARS + 1), y + 4, BARS * column, 100, fill="#eef3fa", stroke="none")
        for number in range(first, last + 2):
            inside = slot - BARS + 1 <= number <= slot + 1
            picture.line(at(number), y + 4 if inside else ground - 8, at(number), ground,
                         stroke="#b9c6d8" if inside else "#d5d5d0")
        picture.line(at(first), ground, at(last + 1), ground)
        for number in range(slot - BARS + 1, slot + 1):
            here = [units for at_slot, units in window.bunches if at_slot == number]
            for i, units in enumerate(here):
                for unit in range(BUNCH):
                    picture.box(at(number) + 3.5 + unit * 8, ground - 13 * (i + 1), 8, 11,
                                fill=GREEN if unit < units else "#ffffff", line=0.8)
        picture.text(at(slot - BARS + 1), ground + 19, window.string(slot), size=13, font=MONO)
        row += 1
    axis = top + 4 * row_height - 2
    for number in range(first, last + 2, 2):
        picture.text(left + (number - first) * column, axis + 2, str(number * 6), size=12,
                     anchor="middle", fill=SOFT)
    picture.text(left + (last + 1 - first) * column, axis + 20, "time, s", size=12, anchor="end",
                 fill=SOFT)
    picture.text(20, axis + 36, "1: a slot, oldest first.  0: a bunch charged to it.  "
                                "Green: units used.", size=13)
    return picture


# ---- The region and its slots --------------------------------------------------------------------


def cells(picture, x, y, height, parts, size=12):
    """Boxes side by side: (width, text, colour)."""
    for width, words, fill in parts:
        picture.box(x, y, width, height, fill=fill)
        lines = words.split("\n")
        for i, words_of_line in enumerate(lines):
            picture.text(x + width / 2, y + height / 2 + 4.5 + (i - (len(lines) - 1) / 2) * 16,
                         words_of_line, size=size, anchor="middle")
        x += width
    return x


def zoom(picture, from_left, from_right, y1, to_left, to_right, y2):
    picture.line(from_left, y1, to_left, y2, stroke="#9aa3af", dash="4 3")
    picture.line(from_right, y1, to_right, y2, stroke="#9aa3af", dash="4 3")


def region_drawing():
    picture = Drawing(820, 496, "The region of a table, a set of slots, and a slot")
    picture.text(20, 28, "The region: one piece of memory, sizes fixed, offsets in place of "
                         "pointers", size=14, bold=True)
    cells(picture, 20, 42, 48, [
        (66, "header", GREY), (66, "quotas", GREY), (66, "tickets", GREY), (58, "pools", GREY),
        (82, "overrides", GREY), (82, "request\nids", GREY), (106, "8-byte\nclass", GREEN),
        (106, "16-byte\nclass", BLUE), (76, "wide\nclass", VIOLET), (72, "blocks", SAND)])

    zoom(picture, 440, 546, 90, 20, 800, 138)
    picture.text(20, 132, "8-byte class: sets of 8 slots. A key has four sets, by its hash.",
                 size=14, bold=True)
    for i in range(12):
        mine = i in (3, 8)
        picture.box(20 + i * 65, 142, 65, 36, fill=GREEN if mine else "#eef7f0",
                    line=2 if mine else 0.8)
        if mine:
            picture.text(52.5 + i * 65, 165, "a home", size=12, anchor="middle")
    zoom(picture, 215, 280, 178, 20, 800, 222)
    picture.text(20, 216, "a set: 128 bytes, two cache lines", size=14, bold=True)
    for i in range(8):
        picture.box(20 + i * 97.5, 226, 97.5, 34, fill=GREEN if i == 2 else "#eef7f0")
        picture.text(68.75 + i * 97.5, 248, f"slot {i}", size=12, anchor="middle")
    picture.line(410, 222, 410, 264, line=2.5)

    zoom(picture, 215, 312.5, 260, 20, 800, 304)
    picture.text(20, 298, "a slot: 16 bytes, changed by one swap (cas16)", size=14, bold=True)
    cells(picture, 20, 308, 46, [
        (300, "hash of the key\n48 bits", SAND), (80, "pending\n1 bit", SAND),
        (100, "quota's id\n15 bits", SAND), (300, "state of the algorithm\n64 bits", GREEN)])

    picture.text(20, 386, "16-byte class: tag and state are two swaps; a generation ties them",
                 size=14, bold=True)
    cells(picture, 20, 396, 46, [
        (230, "tag word\nhash, pending, id", SAND), (160, "generation\n64 bits", BLUE)])
    cells(picture, 420, 396, 46, [
        (230, "state of the algorithm\n112 bits", GREEN), (60, "frozen\n1 bit", BLUE),
        (90, "generation\n15 bits", BLUE)])
    picture.text(20, 470, "one pair of words, swapped in one step", size=12, fill=SOFT)
    picture.text(420, 470, "the state, swapped in one step", size=12, fill=SOFT)
    return picture


# ---- Leases and reservations: what a limit is made of --------------------------------------------


def bars_drawing(title, limit, legend, rows):
    left, width, row_height = 318, 480, 56
    picture = Drawing(820, 80 + len(rows) * row_height, title)
    picture.text(20, 28, title, size=14, bold=True)
    x = left
    for fill, words in legend:
        picture.box(x, 42, 14, 14, fill=fill)
        picture.text(x + 20, 54, words, size=12)
        x += 40 + 7.4 * len(words)
    for i, (when, what, parts) in enumerate(rows):
        y = 74 + i * row_height
        picture.text(20, y + 16, when, bold=True)
        picture.text(20, y + 33, what, size=12, fill=SOFT)
        assert sum(units for units, *_ in parts) == limit
        cells(picture, left, y, 36,
              [(units * width / limit, words, fill) for units, fill, words in parts])
    return picture


def lease_drawing():
    free, used, first, second = "#ffffff", GREEN, BLUE, SAND
    return bars_drawing(
        "lease: strict, lease_units: 100. A limit of 1,000 as the store sees it", 1000,
        [(used, "charged"), (first, "leased to A"), (second, "leased to B"), (free, "free")],
        [("A leases 100 units", "nothing is charged yet",
          [(100, first, "100"), (900, free, "900 free")]),
         ("B leases 100 units", "both grant without the store",
          [(100, first, "100"), (100, second, "100"), (800, free, "800 free")]),
         ("A returns: 60 used, 40 not", "60 are charged now",
          [(60, used, "60"), (100, second, "100"), (840, free, "840 free")]),
         ("B is killed; its lease ends", "all 100 are charged at that time",
          [(160, used, "160"), (840, free, "840 free")])])


def reservation_drawing():
    free, used, held = "#ffffff", GREEN, SAND
    return bars_drawing(
        "A reservation under window 2400/1m", 2400,
        [(used, "used"), (held, "reserved, counts as used"), (free, "free")],
        [("reserve 600", "charged at once; gives a ticket",
          [(600, held, "600"), (1800, free, "1,800 free")]),
         ("settle the ticket at 200", "400 come back",
          [(200, used, "200"), (2200, free, "2,200 free")]),
         ("or: settle at 700", "100 more are recorded, never refused",
          [(700, used, "700"), (1700, free, "1,700 free")]),
         ("or: no settle, on_expiry: keep", "stays charged as estimated",
          [(600, used, "600"), (1800, free, "1,800 free")]),
         ("or: no settle, on_expiry: release", "all come back after the deadline",
          [(2400, free, "2,400 free")])])


OWN = {"window": window_drawing, "region": region_drawing, "lease": lease_drawing,
       "reservation": reservation_drawing}


# ---- Graphviz ------------------------------------------------------------------------------------


def with_dot(path):
    """dot's SVG on a card, without what differs between versions of dot."""
    options = [f"-{kind}fontname=DejaVu Sans" for kind in "GNE"]
    options += ["-Nfontsize=13", "-Efontsize=12", f"-Nfontcolor={INK}", f"-Efontcolor={INK}",
                "-Gbgcolor=transparent"]
    drawn = subprocess.run(["dot", "-Tsvg", *options, path], capture_output=True, text=True,
                           check=True).stdout
    drawn = re.sub(r"<!DOCTYPE.*?>\n", "", drawn, flags=re.S)
    drawn = re.sub(r"<!--.*?-->\n?", "", drawn, flags=re.S)
    drawn = re.sub(r' standalone="no"', "", drawn)
    drawn = drawn.replace('font-family="DejaVu Sans"', f'font-family="{FONT}"')
    card = (f"<desc>Source: {shown(path)}</desc>\n"
            f'<rect width="100%" height="100%" rx="6" fill="{CARD}"/>\n')
    return re.sub(r"(<svg .*?>\n)", lambda match: match[1] + card, drawn, count=1, flags=re.S)


def shown(path):
    return path.relative_to(SOURCE).as_posix()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="*", help="only these, for example window")
    names = parser.parse_args().name
    sources = {path.stem: path for path in sorted(FOLDER.glob("*.dot"))}
    unknown = set(names) - set(sources) - set(OWN)
    if unknown:
        sys.exit(f"no such drawing: {', '.join(sorted(unknown))}; "
                 f"expected {', '.join(sorted({*sources, *OWN}))}")
    for name in names or sorted({*sources, *OWN}):
        if name in OWN:
            text = OWN[name]().svg("tools/drawings.py")
        else:
            text = with_dot(sources[name])
        (FOLDER / f"{name}.svg").write_text(text)
        print(shown(FOLDER / f"{name}.svg"))


if __name__ == "__main__":
    main()
