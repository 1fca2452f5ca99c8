# SPDX-License-Identifier: MIT
"""The drawings of pages: there, with a source that is there, and in step with the page."""

import re
import sys
import xml.etree.ElementTree as ElementTree

from test_citations import links, pages, target_of
from test_files import SOURCE, shown, tracked

sys.path.insert(0, str(SOURCE / "tools"))
import drawings  # noqa: E402

DESC = "{http://www.w3.org/2000/svg}desc"
DRAWN = re.compile(r"Source: (\S+)")
# Files that a command of the page writes: `--plot FILE`, also in a loop over names.
PLOTTED = re.compile(r"(?m)^[^\n]*--plot [^\n]*$")


def shown_on_pages():
    """(page, picture, text of the page) of each SVG that a page shows or links."""
    return [(name, target_of(name, link)[0], text) for name, text in pages()
            for _, link in links(text) if link.endswith(".svg") and "//" not in link]


def description(path):
    return ElementTree.parse(path).getroot().findtext(DESC) or ""


def test_every_drawing_names_its_source():
    seen = shown_on_pages()
    assert len(seen) > 10
    for page, picture, text in seen:
        path = SOURCE / picture
        assert path.is_file(), f"{page}: {picture}"
        source = DRAWN.search(description(path))
        if source:
            assert (SOURCE / source[1]).is_file(), f"{picture}: {source[1]}"
        else:
            assert PLOTTED.search(text) and path.stem in text, f"{picture}: no source"


def test_every_drawing_is_on_a_page():
    used = {picture for _, picture, _ in shown_on_pages()}
    made = {shown(path) for path in tracked("docs/drawings/*.svg")}
    sources = {path.stem for path in tracked("docs/drawings/*.dot")} | set(drawings.OWN)
    assert made <= used, made - used
    assert {name.rsplit("/", 1)[1] for name in made} == {f"{name}.svg" for name in sources}


def test_drawings_that_need_no_program_are_as_their_source():
    for name, draw in drawings.OWN.items():
        kept = (SOURCE / f"docs/drawings/{name}.svg").read_text()
        assert kept == draw().svg("tools/drawings.py"), f"run tools/drawings.py {name}"


def test_the_window_that_is_drawn_is_the_one_of_the_page():
    """test_readme runs the page's commands, so the drawing shows what the program decides."""
    page = (SOURCE / "docs/how-it-works.md").read_text()
    table = re.search(r"```text\n(2\t7\t.*?)```", page, re.S)[1]
    told = [tuple(line.split("\t")[:4]) for line in table.splitlines()]
    assert told == [tuple(map(str, each)) for each in drawings.decisions()]
