# SPDX-License-Identifier: MIT
"""A budget in the real proxy of LiteLLM, with two workers that share a table file.

Of what litellm[proxy] names only the packages are installed that the proxy imports when it starts.
"""
from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from fake_provider import FakeProvider
from support import reserved_port

import stint

PATIENCE = 300.0  # s: the proxy starts in 10 s on an idle machine
MESSAGES = [{"role": "user", "content": "one two three four"}]
ESTIMATE = 11 + 5
USED = 4 + 5
LIMITS = {"tokens": "log 400/1h", "requests": "log 10/1h", "money": "gcra 1000000/1d"}
CALLBACK = f"""
import os, stint
from stint.litellm import Budget, by
table = stint.Table(os.environ["STINT_TABLE"])
budget = Budget(key=by("end_user"), **{{
    name: stint.Limiter(table, quota, name=name) for name, quota in {LIMITS!r}.items()}})
"""


def until(condition: Callable[[], bool], seen: Callable[[], Any] = lambda: None) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"the condition did not come true: {seen()}"
        time.sleep(0.05)


class Proxy:
    def __init__(self, provider: FakeProvider, folder: Path, port: int) -> None:
        self.provider = provider
        self.key = f"sk-{secrets.token_hex(32)}"
        self.table = stint.Table(str(folder / "llm.stint"))
        self.limiters = {name: stint.Limiter(self.table, quota, name=name)
                         for name, quota in LIMITS.items()}
        self.url = f"http://127.0.0.1:{port}"
        models = (("big", "gpt-4o"), ("small", "gpt-4o-mini"))
        (folder / "callback.py").write_text(CALLBACK)
        (folder / "config.yaml").write_text(json.dumps({
            "model_list": [{"model_name": name, "litellm_params": {
                "model": f"openai/{model}", "api_base": provider.url, "api_key": "k",
                "max_retries": 0}} for name, model in models],
            "litellm_settings": {"callbacks": ["callback.budget"]},
            "router_settings": {"num_retries": 1, "retry_after": 0, "disable_cooldowns": True,
                                "fallbacks": [{"big": ["small"]}]},
            "general_settings": {"master_key": self.key}}))
        self.log = folder / "proxy.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [Path(sys.executable).with_name("litellm"), "--config", "config.yaml",
                 "--host", "127.0.0.1", "--port", str(port),
                 "--num_workers", "2", "--run_gunicorn"], cwd=folder, stdout=log, stderr=log,
                env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True",
                     "PYTHONPATH": str(folder), "STINT_TABLE": str(folder / "llm.stint")})

    def is_up(self) -> bool:
        assert self.process.poll() is None, f"the proxy has ended: {self.log.read_text()}"
        try:
            return httpx.get(f"{self.url}/health/liveliness", timeout=5).status_code == 200
        except httpx.HTTPError:
            return False

    def request(self, user: str, **more: Any) -> dict[str, Any]:
        return {"url": f"{self.url}/v1/chat/completions", "timeout": PATIENCE,
                "headers": {"authorization": f"Bearer {self.key}"},
                "json": {"model": "big", "messages": MESSAGES, "max_tokens": 5, "user": user,
                         **more}}

    def ask(self, user: str, **more: Any) -> httpx.Response:
        return httpx.post(**self.request(user, **more))

    def counts(self, user: str) -> tuple[int, int]:
        peeks = [self.limiters[name].peek(json.dumps([user]), 0) for name in ("tokens", "requests")]
        return tuple(peek.limit - peek.remaining for peek in peeks)  # type: ignore[return-value]


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with FakeProvider() as provider, reserved_port() as port:
        started = Proxy(provider, tmp_path_factory.mktemp("proxy"), port)
        try:
            until(started.is_up, started.log.read_text)
            yield started
        finally:
            provider.release()
            started.process.terminate()
            started.process.wait(PATIENCE)
            started.table.close()


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_is_charged_what_it_used(proxy: Proxy, stream: bool) -> None:
    user = f"used {stream}"
    assert proxy.ask(user, stream=stream).status_code == 200
    until(lambda: proxy.counts(user) == (USED, 1))


def test_workers_share_the_budget(proxy: Proxy) -> None:
    with ThreadPoolExecutor(40) as threads:
        responses = list(threads.map(lambda _: proxy.ask("many"), range(40)))
    assert Counter(response.status_code for response in responses) == {200: 10, 429: 30}
    refused = next(response for response in responses if response.status_code == 429)
    assert 3000 < int(refused.headers["retry-after"]) <= 3600
    assert "the budget of requests is used up" in refused.json()["error"]["message"]
    until(lambda: proxy.counts("many") == (10 * USED, 10))


@pytest.mark.parametrize(("name", "faults", "others", "status", "charged"), [
    ("retry", [500], [], 200, (USED, 1)),
    ("fallback", [500, 500], [], 200, (USED, 1)),
    ("all fail", [500] * 2, [500] * 2, 500, (0, 0)),
    ("no answer", ["no response"], [], 200, (ESTIMATE + USED, 2)),
    ("broken stream", ["break first"], [], 200, (ESTIMATE + USED, 2)),
])
def test_attempts(proxy: Proxy, name: str, faults: list[Any], others: list[Any], status: int,
                  charged: tuple[int, int]) -> None:
    proxy.provider.faults["gpt-4o"] = list(faults)
    proxy.provider.faults["gpt-4o-mini"] = list(others)
    assert proxy.ask(name, stream=name == "broken stream").status_code == status
    until(lambda: proxy.counts(name) == charged, seen=lambda: proxy.counts(name))


def test_a_stream_whose_words_were_seen_is_not_asked_for_again(proxy: Proxy) -> None:
    proxy.provider.faults["gpt-4o"] = ["break later"]
    with httpx.stream("POST", **proxy.request("late", stream=True)) as response:
        assert response.status_code == 200
        for line in response.iter_lines():
            if "word0" in line:
                proxy.provider.release()
    until(lambda: proxy.counts("late") == (ESTIMATE, 1), seen=lambda: proxy.counts("late"))
    proxy.provider.released.clear()


def test_a_client_that_leaves_is_charged(proxy: Proxy) -> None:
    with httpx.stream("POST", **proxy.request("left", stream=True)) as response:
        next(response.iter_bytes())
    until(lambda: 0 < proxy.counts("left")[0] <= ESTIMATE)


def test_a_client_that_gives_up_is_charged(proxy: Proxy) -> None:
    proxy.provider.faults["gpt-4o"] = ["hang"] * 2
    proxy.provider.faults["gpt-4o-mini"] = ["hang"] * 2
    before = len(proxy.provider.statuses())
    assert proxy.ask("gave up", timeout=0.3).status_code == 408

    def sent() -> int:
        """Attempts that the provider got: one that gives up before it is connected is free."""
        return len(proxy.provider.statuses()) - before
    until(lambda: sent() > 0 and proxy.counts("gave up") == (sent() * ESTIMATE, sent()),
          seen=lambda: (sent(), proxy.counts("gave up")))
    assert sent() <= 4
