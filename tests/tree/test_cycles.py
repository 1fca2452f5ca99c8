# SPDX-License-Identifier: MIT
"""Cycles of files: a file of src/ that needs, over others, itself.

An edge is a symbol: `x` needs `y` where an object of x calls or reads what an object of y defines.
docs/architecture.md names the cycles that stay, with their reasons; any other one fails here.
"""

import os
import subprocess
from collections import defaultdict
from pathlib import Path

SOURCE = Path(os.environ["STINT_SOURCE"])
BUILD = Path(os.environ["STINT_BUILD"])


def needs():
    """file of src/ -> the files whose symbols it uses."""
    objects = sorted((BUILD / "src").glob("**/lib*.a.p/*.o"))
    assert len(objects) > 200
    listing = subprocess.run(["nm", "-A", "--no-sort", *objects], check=True, capture_output=True,
                             text=True).stdout
    by_file = defaultdict(lambda: (set(), set()))
    # Meson writes slashes of a source's path as underscores.
    files = {"_".join(p.relative_to(SOURCE / "src").parts) + ".o":
             p.relative_to(SOURCE / "src").as_posix()[:-2] for p in (SOURCE / "src").rglob("*.c")}
    for line in listing.splitlines():
        path, rest = line.rsplit(":", 1)
        # Relative to the folder of the library's meson.build, which is src/ or src/cmd/.
        folder, name = Path(path).parent.parent.relative_to(BUILD / "src"), Path(path).name
        file = files.get("_".join([*folder.parts, name]))
        if file is None:
            continue  # made when it was built
        *_, kind, symbol = rest.split()
        if kind == "U":
            by_file[file][1].add(symbol)
        elif kind.isupper():
            by_file[file][0].add(symbol)
    home = {symbol: file for file, (defined, _) in by_file.items() for symbol in defined}
    return {file: {home[name] for name in needed if name in home} - {file}
            for file, (_, needed) in by_file.items()}


def reached(graph, file):
    """All files that a file needs, over others."""
    found, ahead = set(), {file}
    while ahead:
        found |= ahead
        ahead = set().union(*(graph.get(each, ()) for each in ahead)) - found
    return set().union(*(graph.get(each, ()) for each in found))


def cycles(graph):
    """Groups of files each of which needs every other."""
    reach = {file: reached(graph, file) for file in graph}
    return {tuple(sorted(other for other in reach[file] if file in reach.get(other, ())))
            for file in graph if file in reach[file]}


def test_every_cycle_is_named_with_its_reason():
    page = (SOURCE / "docs/architecture.md").read_text()
    section = page.split("\n## Cycles of files\n")[1].split("\n## ")[0]
    rows = [row.strip("| ").split("|") for row in section.splitlines() if row.startswith("| `")]
    named = {tuple(row[0].strip(" `").split()): row[1].strip() for row in rows}
    found = cycles(needs())
    new = "\n".join(" ".join(cycle) for cycle in sorted(found - named.keys()))
    assert not new, f"cycles that docs/architecture.md does not name:\n{new}"
    gone = "\n".join(" ".join(cycle) for cycle in sorted(named.keys() - found))
    assert not gone, f"docs/architecture.md names cycles that are gone:\n{gone}"
    assert all(named.values())
