# SPDX-License-Identifier: MIT
"""The examples of the page run, one after the other, against a server."""
from __future__ import annotations

import re
from pathlib import Path

from remote_server import Server

PAGE = Path(__file__).resolve().parents[3] / "docs/python-remote.md"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.M | re.S)


def test_examples(tmp_path, capsys):
    config = tmp_path / "config.yaml"
    config.write_text("pools: [{name: openai, keys: [{name: first, quotas: [2/1m]}]}]\n")
    blocks = BLOCK.findall(PAGE.read_text())
    assert len(blocks) >= 3
    with Server("--config", str(config)) as running:
        names: dict[str, object] = {}
        for block in blocks:
            code = block.replace("stint://127.0.0.1:7379", running.url("stint"))
            code = re.sub(r"timeout=[0-9.]+", "timeout=20", code)
            code = re.sub(r"(AsyncTable\(\"[^\"]*\")", r"\1, timeout=20", code)
            code = code.replace('on_error="allow"', 'on_error="raise", timeout=20')
            exec(compile(code, "docs", "exec"), names)  # noqa: S102
        assert names["keys"].next().name == "first"
        for name in ("limiter", "table"):
            names[name].close()
    printed = capsys.readouterr().out.split("\n")
    assert printed[:3] == ["98766", "99 19", "1"]
