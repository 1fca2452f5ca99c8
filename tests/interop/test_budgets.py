# SPDX-License-Identifier: MIT
"""docs/budgets.md: every command of the page is run, in its order, and says what the page says."""
import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from builds import INTEROP, go_program
from program import SOURCE, STINT, stint
from transcript import at_free_ports

PAGE = (SOURCE / "docs/budgets.md").read_text()
RULES = SOURCE / "examples/budgets/rules.yaml"
END = "---- end of block ----"
DAY_S = 86400


def blocks():
    """(commands, what they print) of each block, in order."""
    return re.findall(r"^```sh\n(.*?)^```\n(?:```text\n(.*?)^```\n)?", PAGE, re.M | re.S)


def expected(told):
    """Lengths of time are those of the day on which the page was written; `...` is any lines."""
    pattern = re.escape(told.rstrip("\n"))
    pattern = re.sub(r"more\\ in\\ [^\n]*", "more in [^\n]+", pattern)
    pattern = re.sub(r"denies\\ for\\ [^\n]*", r"denies for \\d+\\.\\d{3} s \\(.*\\)", pattern)
    return re.sub(r"(?m)^\\\.\\\.\\\.$", "(?:.|\n)+", pattern)


@pytest.fixture
def page(tmp_path):
    """The whole page in one shell, in a folder of its own, on ports of this test."""
    program = go_program(INTEROP / "grpcurl", "grpcurl",
                         "github.com/fullstorydev/grpcurl/cmd/grpcurl")
    shutil.copytree(SOURCE / "examples", tmp_path / "examples")
    script = "".join(f"{commands}\necho '{END}'\n" for commands, _ in blocks())
    script = at_free_ports(script, ("8080", "8081"))
    path = f"{Path(STINT).parent}:{program.parent}:{os.environ['PATH']}"
    # The page uses budgets of a day and a month: neither may end while it runs.
    left_s = DAY_S - time.time() % DAY_S
    if left_s < 30:
        time.sleep(left_s + 1)
    # Whatever fails, no server outlives the shell.
    script = "trap 'kill $(jobs -p) 2> jobs.log' EXIT\n" + script
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True,
                          text=True, timeout=120, env={**os.environ, "PATH": path}, check=False)
    return tmp_path, done


def test_the_page_from_top_to_bottom(page):
    folder, done = page
    printed = done.stdout.split(f"{END}\n")
    assert len(blocks()) > 10 and len(printed) == len(blocks()) + 1, done.stderr
    for (commands, told), found in zip(blocks(), printed):
        assert re.fullmatch(expected(told), found.rstrip("\n")), \
            f"{commands}\n{told}----\n{found}\n{done.stderr}"
    assert done.stderr == ""
    # Nothing is left behind: no server, and no state beside the page's own small files.
    log = (folder / "stint.log").read_text()
    assert log.count("stopped: stopped") == 2
    assert not list(folder.glob("*.table"))


def test_show_and_explain_speak_of_calendars():
    show = stint("rules", "show", RULES)[0]
    assert "At most 100000 units in each calendar day. Across the edge between two of them at " \
        "most 200000 in any 1d." in show
    assert [rule["hits"] for rule in json.loads(stint("rules", "show", "--json", RULES)[0])] \
        == ["charge"] * 4
    told = stint("rules", "explain", "--rules", RULES, "llm", "team=red")[0]
    assert re.search(r"leaves 1,999,999 of 2,000,000; all of it again in \d+ \w+", told)


def test_the_rules_of_the_page_are_the_example():
    (shown,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.M | re.S)
    assert RULES.read_text().endswith(shown)
