# SPDX-License-Identifier: MIT
"""One word for one thing: words that this project does not use, with what it writes instead."""

import os
import re
import subprocess
from pathlib import Path

SOURCE = Path(os.environ["STINT_SOURCE"])

# Whole words, and whole parts of names in code: "hub" is also hub_open() and HUB_MAX.
INSTEAD = {
    "benched": "cooling down",
    "choked": "backpressured",
    "dies|dead|deaths?": "expires, expired, expiry; of a process: has ended",
    "doors?": "frontend",
    "dues": "timer queue",
    "errands?": "pending request",
    "gates?|seats?": "connection limiter, slot",
    "guards?": "front; breaker, denial cache, failover policy",
    "he|him|his|himself|nobody|somebody|anybody|whoever": "the caller, the client, the process",
    "hub": "server state",
    "laws?": "algorithm",
    "lent": "borrowed",
    "mend(s|ed|ing)?": "repair",
    "newcomers?": "new key",
    "parked": "suspended",
    "robbed": "taken over",
    "sentences?": "message",
    "starters?": "respawn helper",
    "stand_ins?|stood_in": "fallback",
    "strangers?": "unauthenticated client",
}
ORDINARY = {"src/sim/workload/random.c": "Zipf's law"}

SUFFIXES = {".c", ".h", ".md", ".scd", ".lua", ".proto", ".js", ".html", ".py", ".pyi", ".go",
            ".yaml", ".conf", ".cfg", ".service", ".tpl", ""}
TEST_NAME = re.compile(r"\btest_\w+|::\w+")
WORD = re.compile(rf"(?<![a-zA-Z])({'|'.join(INSTEAD)})(?![a-zA-Z])", re.I)


def texts():
    """Records of decisions are history, and figures of old runs are data."""
    listing = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "--", "src", "include", "docs", "lua",
         "bindings", "examples", "contrib", "packaging", "README.md", "NEWS.md", "CONTRIBUTING.md",
         "SECURITY.md"],
        cwd=SOURCE, capture_output=True, text=True, check=True).stdout
    for name in listing.splitlines():
        path = SOURCE / name
        if path.suffix in SUFFIXES and path.is_file() and not name.startswith("docs/decisions/0"):
            yield name, path.read_text()


def test_one_word_for_one_thing():
    wrong = []
    for name, text in texts():
        for number, line in enumerate(text.splitlines(), 1):
            line = TEST_NAME.sub("", line.replace(ORDINARY.get(name, "\0"), ""))
            wrong += [f"{name}:{number}: {found[0]}" for found in WORD.finditer(line)]
    assert not wrong, f"{len(wrong)} places, see INSTEAD:\n" + "\n".join(wrong)
