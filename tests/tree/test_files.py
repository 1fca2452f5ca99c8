# SPDX-License-Identifier: MIT
"""What holds for every file of the tree, whatever it does."""

import os
import re
import subprocess
from pathlib import Path

SOURCE = Path(os.environ["STINT_SOURCE"])

LINES_MAX = 900
COLUMNS_MAX = 100
# Files that are longer, with the reason.
LONG = {
    "include/stint.h",  # all that is installed is one header
}

CODE = {".c", ".cc", ".h", ".py", ".sh", ".build", ".gp"}
SPDX = re.compile(r"\A(#!.*\n)?(/\*|#) SPDX-License-Identifier: MIT( \*/)?\n")
SPDX_PAGE = "<!-- SPDX-License-Identifier: MIT -->\n# "


def tracked(*patterns):
    """Files that git knows or would add; in a source archive without git, all of them."""
    listing = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z", "--", *patterns],
        cwd=SOURCE, capture_output=True, text=True, check=False,
    )
    if listing.returncode == 0:
        names = listing.stdout.split("\0")[:-1]
    else:
        names = [p.relative_to(SOURCE) for p in SOURCE.rglob("*") if "build" not in p.parts[0]]
    return [SOURCE / name for name in sorted(map(str, names)) if (SOURCE / name).is_file()]


def code():
    return [path for path in tracked() if path.suffix in CODE]


def shown(path):
    return path.relative_to(SOURCE).as_posix()


def test_there_is_code():
    assert len(code()) > 20


def test_every_file_names_its_license():
    wrong = [shown(p) for p in code() if not SPDX.match(p.read_text())]
    assert not wrong, wrong


def test_every_page_names_its_license_but_decisions():
    """The first line of a decision is its heading, as the index of decisions has it."""
    pages = tracked("docs/*.md")
    decisions = [p for p in pages if p.parent.name == "decisions"]
    assert len(decisions) > 50 and len(pages) - len(decisions) > 30
    wrong = [shown(p) for p in pages
             if not p.read_text().startswith("# " if p in decisions else SPDX_PAGE)]
    assert not wrong, wrong


def test_no_file_is_long():
    wrong = []
    for path in code():
        lines = path.read_text().count("\n")
        if lines > LINES_MAX and shown(path) not in LONG:
            wrong.append(f"{shown(path)}: {lines}")
    assert not wrong, wrong


def test_no_line_is_wide():
    wrong = []
    for path in code():
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if len(line) > COLUMNS_MAX:
                wrong.append(f"{shown(path)}:{number}: {len(line)}")
    assert not wrong, wrong


def test_c_comments_are_block_comments():
    """A C89 or C++ reader of the header is served, and the sources keep one style."""
    literal = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'')
    block = re.compile(r"/\*.*?\*/", re.S)
    wrong = []
    for path in code():
        if path.suffix in {".c", ".h"}:
            text = literal.sub('""', block.sub("", path.read_text()))
            wrong += [f"{shown(path)}: {line}" for line in text.splitlines() if "//" in line]
    assert "//" not in (SOURCE / "include/stint.h").read_text()
    assert not wrong, wrong


def test_nothing_is_left_to_do():
    marks = "|".join(map("".join, [("TO", "DO"), ("FIX", "ME"), ("X", "XX")]))
    words = re.compile(rf"\b(?:{marks})\b")  # mkstemp's row of them is none
    wrong = []
    for path in tracked():
        if path.suffix in CODE | {".md", ".scd", ".txt"} or path.name == "Makefile":
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if words.search(line):
                    wrong.append(f"{shown(path)}:{number}")
    assert not wrong, wrong


def test_every_header_guards_itself():
    for path in tracked("src/*.h"):
        name = path.relative_to(SOURCE / "src").as_posix()
        guard = "STINT_" + re.sub(r"[/.]", "_", name).upper()
        guarded = re.search(rf"^#ifndef {guard}\n#define {guard}$", path.read_text(), re.M)
        assert guarded, shown(path)


def test_every_fuzzer_has_a_corpus():
    build = (SOURCE / "fuzz/meson.build").read_text()
    names = re.search(r"^fuzzers = \[(.*?)\]", build, re.S | re.M)
    for name in re.findall(r"'(\w+)'", names.group(1)):
        assert list((SOURCE / "fuzz/corpus" / name).glob("*")), f"fuzz/corpus/{name} is empty"


def test_one_version():
    """The header's, the build's and the newest in NEWS."""
    header = re.search(r'STINT_VERSION "(.*?)"', (SOURCE / "include/stint.h").read_text()).group(1)
    build = re.search(r"^    version: '(.*?)'", (SOURCE / "meson.build").read_text(), re.M).group(1)
    news = re.search(r"^## ([\d.]+)", (SOURCE / "NEWS.md").read_text(), re.M).group(1)
    assert header == build == news
