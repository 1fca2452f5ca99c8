# SPDX-License-Identifier: MIT
"""docs/operating.md, followed from top to bottom."""
from program import SOURCE
from test_compat import clean
from transcript import follow


def test_the_page_from_top_to_bottom(tmp_path):
    follow((SOURCE / "docs/operating.md").read_text(), tmp_path, ("8080",), clean())
