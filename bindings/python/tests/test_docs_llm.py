# SPDX-License-Identifier: MIT
"""The examples of the section on language models run as they are written."""
from __future__ import annotations

import asyncio
import gc
import os
from pathlib import Path
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # no list of prices from the network

import litellm  # noqa: E402
import pages  # noqa: E402
import pytest  # noqa: E402
from fake_provider import FakeProvider  # noqa: E402


@pytest.mark.filterwarnings("ignore")  # of LiteLLM and its clients
def test_examples(shm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(litellm, "callbacks", [])
    chat: dict[str, Any] = {"max_tokens": 5, "messages": [{"role": "user", "content": "Hello"}]}
    with FakeProvider() as provider:
        base = provider.url.removesuffix("/v1")
        monkeypatch.setenv("OPENAI_BASE_URL", provider.url)
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", base)
        names = pages.run(pages.DOCS / "python-llm.md", 4, (r"https://api\.\w+\.com", base),
                          ("/dev/shm/", f"{shm}/"), ("…", "-"))
        asyncio.run(names["client"].messages.create(model="claude", **chat))
    litellm.in_memory_llm_clients_cache.flush_cache()
    names.clear()
    gc.collect()  # what the clients left open is reported here, where it is ignored
    assert [call.key for call in provider.calls] == ["k", "sk--2", "sk-ant--1"]
    assert all(call.status == 200 for call in provider.calls)
