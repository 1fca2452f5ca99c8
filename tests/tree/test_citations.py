# SPDX-License-Identifier: MIT
"""What the tree cites is in the tree: files, headings, numbered sections, pages in the index."""

import os
import re
from pathlib import Path

from test_files import SOURCE, shown, tracked

PROSE = {".md", ".scd", ".txt"}
CODE = {".c", ".cc", ".h", ".py", ".sh", ".lua", ".build", ".conf", ".yaml"}
INDEX = "docs/README.md"
PACKAGE = "bindings/python"  # has folders of its own, and its files cite paths in it

# Names that stand for any file of their kind.
PLACEHOLDER = re.compile(r"(?:^|/)(?:FOLDER|NAME\.|name\.|noun\.|test_noun\.)")
# Texts of other places that were cited once.
FOREIGN = re.compile(r"\b(?:" + "|".join(map("".join, [("SEMAN", "TICS"), ("CONTR", "ACTS")])) +
                     r")\b|(?<![\w./-])shared" + r"/")
LOUD_PAGE = re.compile(r"(?<![\w/.-])[A-Z]{4,}\.md\b")

FENCED = re.compile(r"^( *)(```|~~~).*?^\1\2[ \t]*$", re.M | re.S)
INLINE_CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.S)
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.M)
LINK = re.compile(r"\]\(<?([^)\s>]+)>?(?: +\"[^\"]*\")?\)|<a href=\"([^\"]+)\"")
# A decision that was overturned may name what went with it.
PAST = re.compile(r"^Superseded by \[", re.M)
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|//")
# "docs/semantics.md, 3.2" and "docs/http.md, *Recipes*", also over the end of a line.
SECTION = re.compile(r"(docs/[\w/-]+\.md),\s+(?:[*#/]+ )?(?:(\d+(?:\.\d+)*)|\*([^*]+)\*)")


NAMES = [shown(path) for path in tracked()]
FOLDERS = {parent.as_posix() for name in NAMES for parent in Path(name).parents}
TOP = sorted({name.split("/")[0] for name in NAMES if "/" in name})
CITED = re.compile(r"(?<![\w./<{-])((?:" + "|".join(map(re.escape, TOP)) +
                   r")/[\w/-]+\.(?:md|c|cc|h|py|sh|lua|scd))\b(?![\w*])")


def texts(kinds):
    for name in NAMES:
        if Path(name).suffix in kinds or Path(name).name == "Makefile":
            yield name, (SOURCE / name).read_text()


def pages():
    return texts({".md"})


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def blanked(pattern, text):
    """The text without what matches, its lines where they were."""
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match.group(0)), text)


def headings(text):
    return HEADING.findall(blanked(FENCED, text))


def anchors(text):
    """As GitHub names them."""
    found, seen = set(), {}
    for heading in headings(text):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        times = seen.get(slug, 0)
        seen[slug] = times + 1
        found.add(f"{slug}-{times}" if times else slug)
    return found


def links(text):
    plain = blanked(INLINE_CODE, blanked(FENCED, text))
    for match in LINK.finditer(plain):
        yield line_of(text, match.start()), match.group(1) or match.group(2)


def target_of(name, link):
    """The file or folder that a relative link of a page leads to, and the anchor in it."""
    path, _, anchor = link.partition("#")
    joined = os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name
    return Path(joined).as_posix(), anchor


def test_links_of_pages_lead_somewhere():
    known = {name: anchors(text) for name, text in pages()}
    wrong = []
    for name, text in pages():
        for line, link in links(text):
            if ELSEWHERE.match(link):
                continue
            target, anchor = target_of(name, link)
            if target not in NAMES and target not in FOLDERS:
                wrong.append(f"{name}:{line}: {link}: no such file")
            elif anchor and anchor not in known.get(target, ()):
                wrong.append(f"{name}:{line}: {link}: no such heading")
    assert not wrong, "\n".join(wrong)


def test_no_text_of_another_place_is_cited():
    wrong = []
    for name, text in texts(PROSE | CODE):
        for match in FOREIGN.finditer(text):
            wrong.append(f"{name}:{line_of(text, match.start())}: {match.group(0)}")
        for match in LOUD_PAGE.finditer(text):
            if match.group(0) not in {Path(known).name for known in NAMES}:
                wrong.append(f"{name}:{line_of(text, match.start())}: {match.group(0)}")
    assert not wrong, "\n".join(wrong)


def test_files_that_are_cited_by_path_are_there():
    wrong = []
    for name, text in texts(PROSE | CODE):
        if name.startswith("docs/decisions/") and PAST.search(text):
            continue
        searched = blanked(LINK, text)
        for match in CITED.finditer(searched):
            path = match.group(1)
            there = path in NAMES or f"{PACKAGE}/{path}" in NAMES
            if not there and not PLACEHOLDER.search(path):
                wrong.append(f"{name}:{line_of(text, match.start())}: {path}")
    assert not wrong, "\n".join(wrong)


def test_sections_that_are_cited_are_there():
    titles = {name: headings(text) for name, text in pages()}
    wrong = []
    for name, text in texts(PROSE | CODE):
        for match in SECTION.finditer(text):
            page, number, title = match.groups()
            title = re.sub(r"\s+", " ", title) if title else None
            if not any(heading == title or heading.split(" ")[0].rstrip(".") == number
                       for heading in titles.get(page, ())):
                wrong.append(f"{name}:{line_of(text, match.start())}: {match.group(0)}")
    assert not wrong, "\n".join(wrong)


def test_every_page_is_in_the_index():
    text = (SOURCE / INDEX).read_text()
    linked = {target_of(INDEX, link)[0] for _, link in links(text)}
    wrong = [name for name in NAMES
             if re.fullmatch(r"docs/[^/]+\.md", name) and name not in linked | {INDEX}]
    assert not wrong, f"{INDEX} does not link {wrong}"
    assert "docs/decisions/README.md" in linked
