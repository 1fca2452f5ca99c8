# SPDX-License-Identifier: MIT
"""docs/metrics.md is what a server says of its metrics."""
import sys
from pathlib import Path

from program import STINT

SOURCE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tools"))

import metrics_page  # noqa: E402


def test_the_page_of_metrics_is_current():
    """Else: tools/metrics_page.py build/src/cmd/stint > docs/metrics.md"""
    assert (SOURCE / "docs/metrics.md").read_text() == \
        metrics_page.page(metrics_page.metrics(STINT))
