# SPDX-License-Identifier: MIT
"""Man pages: one for each command, made of the program's tables and of docs/man."""
import re
import subprocess
import sys
from pathlib import Path

import pytest

from program import STINT

SOURCE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tools"))

import man_page  # noqa: E402

FOLDER = SOURCE / "docs/man"
PAGES = {page: [FOLDER / f"{prose}.1.scd" for prose in re.findall(r"'([\w-]+)'", proses)]
         for page, proses in re.findall(r"^    '([\w-]+)': \[(.*)\],$",
                                        (FOLDER / "meson.build").read_text(), re.M)}
COMMANDS = man_page.commands(STINT)


def names_of(command):
    return {option["name"] for option in command["options"]}


def test_every_command_has_a_page():
    assert set(PAGES) == set(COMMANDS) | {"stint"}
    assert {path for paths in PAGES.values() for path in paths} == set(FOLDER.glob("*.1.scd"))


@pytest.mark.parametrize("page", PAGES)
def test_a_page(page, tmp_path):
    """scdoc and man(1) read it, and show each option or each command."""
    source = subprocess.run([sys.executable, man_page.__file__, STINT, page, *PAGES[page]],
                            stdout=subprocess.PIPE, check=True).stdout
    roff = subprocess.run(["scdoc"], input=source, stdout=subprocess.PIPE, check=True).stdout
    path = tmp_path / f"{page}.1"
    path.write_bytes(roff)
    text = subprocess.run(["man", "-l", path], stdout=subprocess.PIPE, text=True, check=True,
                          env={"MANWIDTH": "200", "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
                          ).stdout
    shown = re.sub("\x1b\\[[0-9;]*m|.\b", "", text)
    command = man_page.described(STINT, *COMMANDS.get(page, []))
    for option in command.get("options", []):
        assert re.search(rf"(?m)^ +(--.*, )?--{option['name']}\b", shown), option["name"]
    for row in command.get("commands", []):
        assert f"{page}-{row['name']}(1)" in shown
    assert shown.startswith(f"{page}(1)") and f"\n       {page} - " in shown


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.1.scd")), ids=lambda path: path.stem)
def test_longer_text_is_for_options_that_exist(path):
    known = {name for page, paths in PAGES.items() if path in paths and page in COMMANDS
             for name in names_of({"options": [], **man_page.described(STINT, *COMMANDS[page])})}
    text = man_page.sections(path).get("OPTIONS", "")
    assert {name for names, _ in man_page.entries(text)[1] for name in names} <= known
