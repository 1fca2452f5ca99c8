# SPDX-License-Identifier: MIT
"""The examples of the page on web frameworks run, as one application, and limit it."""
from __future__ import annotations

from pathlib import Path

import pages
import web  # noqa: F401 (Django's settings, for its REST framework)
from fastapi.testclient import TestClient

import stint.drf


def test_examples(shm: Path) -> None:
    names = pages.run(pages.DOCS / "python-web.md", 3, ("/dev/shm/", f"{shm}/"))
    with TestClient(names["app"]) as client:
        replies = [client.post("/login") for _ in range(6)]
    assert [reply.status_code for reply in replies] == [200] * 5 + [429]
    policies = replies[0].headers["RateLimit-Policy"]
    assert all(name in policies for name in ('"login"', '"api:100/1m"', '"api:1000/1h"'))
    assert issubclass(names["PerUser"], stint.drf.Throttle)
    assert names["PerUser"].rule is names["api"]
    names["table"].close()
