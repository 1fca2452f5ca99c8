# SPDX-License-Identifier: MIT
"""What rules write to the log, and how little a flood of requests can make them write."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

import stint
from stint import _log
from stint.http import Request, Rule, header
from stint.testing import Clock


class Time:
    """The clock of the log, which the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Time:
    clock = Time()
    monkeypatch.setattr(_log, "monotonic", clock)
    caplog.set_level(logging.INFO, "stint")
    return clock


@pytest.fixture
def login() -> Iterator[stint.Limiter]:
    with stint.Table(keys=64, clock=Clock()) as table:
        yield stint.Limiter(table, "1/1h", name="login")


def request(path: str = "/login", method: str = "POST", key: str = "ann") -> Request:
    fields = {"X-Key": [key]}
    return Request(None, method, path, "", lambda name: fields.get(name, []), lambda: None)


def test_refusals_are_logged_at_info(
    login: stint.Limiter, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    rule = Rule(login, header("X-Key"))
    assert rule.decide(request()).passes and caplog.messages == []
    assert not rule.decide(request()).passes
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("stint.http", "INFO")
    assert record.getMessage() == "refused: 'POST /login' by login"


def test_a_flood_writes_one_line_a_second(
    login: stint.Limiter, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever the requests say; the next line says how many were left out."""
    rule = Rule(login, "all")
    rule.decide(request())
    for n in range(10_000):
        rule.decide(request(f"/{n}"))
    assert len(caplog.messages) == 1
    time.now += _log.PERIOD_S
    rule.decide(request("/last"))
    assert caplog.messages[1:] == [
        "refused: 'POST /last' by login (and 9999 more since the last such line)"]
    time.now += _log.PERIOD_S
    rule.decide(request("/later"))
    assert caplog.messages[2] == "refused: 'POST /later' by login"
    # A rule has lines of its own, so that a flood of one does not hide what another refuses.
    Rule(login, "all").decide(request("/other"))
    assert "/other" in caplog.messages[3]


HOSTILE = "\r\nstint.http ERROR \x1b[31m\u202e\u2028\ud800" + "x" * 100_000


@pytest.mark.parametrize("part", ["path", "method", "key"])
def test_a_line_stays_one_line(
    part: str, login: stint.Limiter, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    value = HOSTILE.encode("ascii", "ignore").decode() if part == "key" else HOSTILE
    rule = Rule(login, (header("X-Key"), "all"), log_key=True)
    for _ in range(2):
        rule.decide(request(**{part: value}))
    (line,) = caplog.messages
    assert line.isascii() and line.isprintable() and len(line) < 1200
    assert "\\x1b[31m" in line, "shown, escaped"


def test_keys_are_shown_if_the_rule_says_so(
    login: stint.Limiter, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    login.take("header:x-key:sk-secret")
    for log_key in (False, True):
        Rule(login, header("X-Key"), log_key=log_key).decide(request(key="sk-secret"))
    assert ["sk-secret" in line for line in caplog.messages] == [False, True]


def test_a_dry_run_warns(
    login: stint.Limiter, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    rule = Rule(login, "all", enforce=False)
    assert all(rule.decide(request()).passes for _ in range(100))
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("WARNING", "would be refused: 'POST /login' by login")]


@pytest.mark.parametrize("when_full, outcome", [("deny", "deny"), ("allow", "allow")])
def test_a_full_table_warns(
    when_full: str, outcome: str, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    with stint.Table(keys=64, clock=Clock()) as table:
        api = stint.Limiter(table, f"9/1h when_full={when_full}", name="api")
        rule = Rule([api, (stint.Limiter(table, "gcra 99/1h", name="all"), "all")],
                    header("X-Key"))
        assert all(rule.decide(request(key=f"a{n}")).passes for n in range(10))
        assert caplog.messages == [], "keys that are new are no trouble"
        for n in range(1000):
            rule.decide(request(key=f"k{n}"))
    warnings = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert warnings == [f"the table is full, and when_full decided on a new key ({outcome}); "
                        "make a new file with more keys"]


class Away:
    """A limiter whose server does not answer."""

    name = "away"
    quotas = (stint.Quota("2/1m"),)

    def __init__(self, error: Exception) -> None:
        self.error = error

    def take(self, key: Any, cost: int = 1) -> stint.Decision:
        raise self.error

    peek = refund = take


def test_errors_of_limiters_are_bounded(time: Time, caplog: pytest.LogCaptureFixture) -> None:
    rule = Rule(Away(stint.Error("no\nreply" + "x" * 10_000)), "all")
    for _ in range(100):
        assert rule.decide(request()).status == 503
    ((level, line),) = [(r.levelname, r.getMessage()) for r in caplog.records]
    assert level == "ERROR" and "\n" not in line and len(line) < 400
    caplog.clear()
    assert Rule(Away(stint.Error("away")), "all", enforce=False).decide(request()).passes
    assert "passed" in caplog.messages[0]


@pytest.mark.parametrize("on_error", ["allow", "deny"])
def test_a_server_that_is_gone_is_logged_whatever_on_error_decides(
    on_error: str, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    limiter = stint.Limiter.connect("stint://127.0.0.1:1", "9/1m", name="api", on_error=on_error)
    rule = Rule(limiter, "all")
    for _ in range(20):
        assert rule.decide(request()).passes == (on_error == "allow")
    limiter.close()
    warnings = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert len(warnings) == 1 and "127.0.0.1:1" in warnings[0]
    assert f"on_error did ({on_error})" in warnings[0]


def test_take_logs_nothing(login: stint.Limiter, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    assert [bool(login.take("ann")) for _ in range(3)] == [True, False, False]
    assert caplog.records == []
