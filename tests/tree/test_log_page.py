# SPDX-License-Identifier: MIT
"""docs/log.md is what the sources write to the log, and no field takes another's name."""
import sys

from test_files import SOURCE

sys.path.insert(0, str(SOURCE / "tools"))

import log_page  # noqa: E402


def test_the_page_of_events_is_current():
    """Else: tools/log_page.py > docs/log.md"""
    assert (SOURCE / "docs/log.md").read_text() == log_page.page()


def test_every_kind_is_written_somewhere():
    kinds, fields = log_page.kinds(), log_page.fields()
    assert len(kinds) > 30
    assert not set(kinds) - set(fields)


def test_no_field_is_named_as_the_head_of_a_line():
    """A JSON object that has a name twice is read in different ways."""
    head = {"time", "level", "event", "message", "suppressed"}
    wrong = {kind: set(names) & head for kind, names in log_page.fields().items()
             if set(names) & head}
    assert not wrong, wrong
