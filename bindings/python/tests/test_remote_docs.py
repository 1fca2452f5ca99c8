# SPDX-License-Identifier: MIT
"""The examples of the page run, one after the other, against a server."""
from __future__ import annotations

import pages
from remote_server import Server

CONFIG = "pools: [{name: openai, keys: [{name: first, quotas: [2/1m]}]}]\n"
RULES = """
domain: shop
descriptors:
  - {key: user, rate_limit: {unit: minute, requests_per_unit: 5}}
  - {key: plan, value: free, rate_limit: {unit: minute, requests_per_unit: 1000}}
"""


def test_examples(tmp_path, capsys):
    config, rules = tmp_path / "config.yaml", tmp_path / "rules.yaml"
    config.write_text(CONFIG)
    rules.write_text(RULES)
    with Server("--config", str(config), "--rules", str(rules)) as running:
        names = pages.run(
            pages.DOCS / "python-remote.md", 4,
            ("stint://127.0.0.1:7379", running.url("stint")), (r"timeout=[0-9.]+", "timeout=20"),
            (r'(AsyncTable\("[^"]*")', r"\1, timeout=20"),
            ('on_error="allow"', 'on_error="raise", timeout=20'))
        assert names["keys"].next().name == "first"
        for name in ("limiter", "table"):
            names[name].close()
    printed = capsys.readouterr().out.split("\n")
    assert printed[:5] == ["98766", "99 19", "1", "4", "998"]
