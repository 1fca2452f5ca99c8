# SPDX-License-Identifier: MIT
"""docs/python-moving.md: its programs under gunicorn with four workers, before and after."""

from __future__ import annotations

import asyncio
import http.client
import itertools
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fake_provider import FakeProvider

PAGE = Path(__file__).resolve().parents[3] / "docs" / "python-moving.md"
TABLE = "/dev/shm/app.stint"
LIMIT, WAIT_S = 10, 60
ADDRESSES = [f"127.0.0.{n}" for n in range(11, 16)]
OTHER_ADDRESSES = [f"127.0.1.{n}" for n in range(1, 255)]
DENIED = {"flask-limiter": 429, "slowapi": 429, "django-ratelimit": 403, "PyrateLimiter": 429}

DIFFS = dict(re.findall(r"^## (\S+)\n+```diff\n(.*?)```", PAGE.read_text(), re.M | re.S))


def program(diff: str, without: str) -> str:
    return "".join(line[1:] for line in diff.splitlines(keepends=True) if line[0] != without)


@contextmanager
def served(folder: Path, source: str, *options: str) -> Iterator[int]:
    """The program, run by its own first line; yields the port once several workers answer."""
    (folder / "app.py").write_text(source.replace(TABLE, str(folder / "app.stint")))
    command = [sys.executable, "-m", *source.splitlines()[0].removeprefix("# ").split(), *options]
    log = folder / "log"
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener, log.open("wb") as err:
        server = subprocess.Popen(
            [*command, "-b", f"fd://{listener.fileno()}"],
            cwd=folder, stderr=err, pass_fds=[listener.fileno()],
        )
        try:
            port, processes = listener.getsockname()[1], set[str]()
            deadline = time.monotonic() + WAIT_S
            for address in itertools.cycle(OTHER_ADDRESSES):
                assert time.monotonic() < deadline and server.poll() is None, log.read_text()
                status, body = get(port, address)
                processes |= {body} if status == 200 else set()
                if len(processes) > 1:
                    break
            yield port
        finally:
            server.send_signal(signal.SIGTERM)
            assert server.wait(WAIT_S) == 0, log.read_text()


def get(port: int, address: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(
        "127.0.0.1", port, timeout=WAIT_S, source_address=(address, 0)
    )
    try:
        connection.request("GET", "/login")
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def burst(port: int, each: int) -> list[tuple[str, int, str]]:
    """Requests of all addresses, eight at a time: (address, status, body)."""
    addresses = ADDRESSES * each
    with ThreadPoolExecutor(8) as pool:
        replies = pool.map(lambda address: get(port, address), addresses)
        return [(address, *reply) for address, reply in zip(addresses, replies, strict=True)]


def test_the_page_has_a_program_for_each_package() -> None:
    assert DIFFS.keys() == {*DENIED, "LiteLLM"}
    assert len(PAGE.read_text().splitlines()) <= 200


@pytest.mark.parametrize("package", DENIED)
def test_before_each_worker_has_a_limit_of_its_own(package: str, tmp_path: Path) -> None:
    passed, deadline = 0, time.monotonic() + WAIT_S
    with served(tmp_path, program(DIFFS[package], without="+"), "--preload") as port:
        while passed <= LIMIT * len(ADDRESSES):
            assert time.monotonic() < deadline, passed
            passed += sum(status == 200 for _, status, _ in burst(port, 2 * LIMIT))


@pytest.mark.parametrize("package", DENIED)
def test_after_all_workers_share_the_limit(package: str, tmp_path: Path) -> None:
    granting = set[str]()
    for attempt in range(5):  # once more where the kernel has given one worker all that is granted
        folder = tmp_path / str(attempt)
        folder.mkdir()
        with served(folder, program(DIFFS[package], without="-")) as port:
            replies = burst(port, 3 * LIMIT)
        for address in ADDRESSES:
            statuses = [status for of, status, _ in replies if of == address]
            assert statuses.count(200) == LIMIT
            assert statuses.count(DENIED[package]) == 2 * LIMIT
        granting = {body for _, status, body in replies if status == 200}
        if len(granting) > 1:
            break
    assert len(granting) > 1


@pytest.mark.filterwarnings("ignore")  # of LiteLLM's own
@pytest.mark.parametrize(("without", "is_kept"), [("+", False), ("-", True)])
def test_a_budget_of_calls_at_the_same_time(
    without: str, is_kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # no list of prices from the network
    import litellm

    monkeypatch.setattr(litellm, "callbacks", [])
    monkeypatch.setattr(litellm, "suppress_debug_info", True)
    monkeypatch.chdir(tmp_path)  # where a BudgetManager writes
    app: dict[str, Any] = {}
    source = program(DIFFS["LiteLLM"], without)
    exec(source.replace(TABLE, str(tmp_path / "app.stint")), app)

    async def day() -> list[Any]:
        calls = [[app["ask"]("alice", "a question") for _ in range(20)] for _ in range(2)]
        return [a for burst in calls for a in await asyncio.gather(*burst, return_exceptions=True)]

    with FakeProvider() as provider:
        monkeypatch.setenv("OPENAI_API_BASE", provider.url)
        monkeypatch.setenv("OPENAI_API_KEY", "key")
        answers = asyncio.run(day())
    calls = provider.calls
    spent = sum(sum(litellm.cost_per_token("gpt-4o", c.prompt, c.completion)) for c in calls)
    assert (spent <= 0.001) == is_kept
    refused = [answer for answer in answers if isinstance(answer, Exception)]
    assert len(refused) + len(calls) == 40 and len(calls) >= 4
    assert all(isinstance(answer, litellm.RateLimitError if is_kept else RuntimeError)
               for answer in refused)
