# SPDX-License-Identifier: MIT
"""`stint take|peek|reset` against the server itself, as a shell script has them."""
import hashlib
import json
import secrets
import subprocess
import threading
import time

import pytest

from program import STINT, stint
from server import Server

RULES = """
domain: web
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 3}
  - key: path
    descriptors:
      - key: method
        rate_limit: {unit: hour, requests_per_unit: 1}
"""


@pytest.fixture(scope="module")
def server():
    with Server(rules=RULES) as made:
        yield made


def ask(verb, server, *args, code=0):
    return stint(verb, "--server", server.url(""), *args, code=code)


def test_a_quota_is_exact_and_reset_forgets(server):
    who = ("--quota", "3/1h", "mail:ann")
    for left in (2, 1, 0):
        ask("peek", server, *who)
        assert json.loads(ask("take", server, "--json", *who)[0])["remaining"] == left
    for verb in ("take", "peek"):
        wait = ask(verb, server, *who, code=3)[0]
        assert 3500 < float(wait) <= 3600 + 150  # an hour and a slot of window
    assert ask("take", server, "--cost", 4, *who, code=3)[0] == "never\n"
    ask("take", server, "--quota", "3/1h", "mail:bob")
    assert ask("reset", server, *who) == ("", "")
    assert json.loads(ask("take", server, "--json", *who)[0])["remaining"] == 2


def test_rules_are_asked_all_or_nothing(server):
    both = ("--domain", "web", "user=ann", "path=/login,method=POST")
    ask("take", server, *both)
    told = json.loads(ask("take", server, "--json", *both, code=3)[0])
    assert (told["outcome"], told["binding"]) == ("deny", 1)
    # What the second refused was not charged to the first.
    for code in (0, 0, 3):
        ask("take", server, "--domain", "web", "user=ann", code=code)
    ask("reset", server, *both)
    ask("take", server, *both)


@pytest.mark.parametrize("verb", ["take", "peek"])
def test_what_nothing_limits_is_told(server, verb):
    """A mistyped name allows everything: people see it, and scripts get what they got."""
    out, told = ask(verb, server, "--domain", "wbe", "user=ann")
    assert (out, told) == (
        "", "stint: nothing limits descriptor 1: no rules have the domain 'wbe'\n")
    told = ask(verb, server, "--domain", "web", "user=eve", "usr=eve")[1]
    assert told == (
        "stint: nothing limits descriptor 2: no rule of the domain 'web' matches it\n")
    told = json.loads(ask(verb, server, "--json", "--domain", "web", "usr=eve")[0])
    assert told["statuses"][0]["unmatched"] == "descriptor"
    status, explained = server.post("/v1/explain", {
        "domain": "wbe", "descriptors": [{"entries": [{"key": "user", "value": "ann"}]}]})
    assert status == 200 and explained["statuses"][0]["unmatched"] == "domain"


def test_the_server_waits(server):
    who = ("--quota", "1/300ms", "waiter")
    begun = time.monotonic()
    ask("take", server, *who)
    ask("take", server, "--wait", "20s", *who)
    assert 0.3 <= time.monotonic() - begun < 20
    who = ("--quota", "1/1h", "waiter in vain")
    ask("take", server, *who)
    assert 3500 < float(ask("take", server, "--wait", "1ms", *who, code=3)[0]) <= 3750


def test_a_retry_is_charged_once(server):
    who = ("--quota", "5/1h", "--json", "retry")
    first = json.loads(ask("take", server, "--id", "job-1", *who)[0])
    again = json.loads(ask("take", server, "--id", "job-1", *who)[0])
    assert (first["remaining"], again["remaining"], again["replayed"]) == (4, 4, True)
    assert json.loads(ask("take", server, "--id", "job-2", *who)[0])["remaining"] == 3
    err = ask("take", server, "--id", "job-1", "--quota", "5/1h", "other", code=1)[1]
    assert "409" in err


def test_scripts_that_ask_at_once_get_exactly_the_limit(server):
    codes = []

    def loop():
        for _ in range(15):
            codes.append(subprocess.run(
                [STINT, "take", "--server", server.url(""), "--quota", "20/1h", "crowd"],
                capture_output=True, timeout=60).returncode)
    threads = [threading.Thread(target=loop) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes) == [0] * 20 + [3] * 10


def test_what_the_server_refuses_is_told(server):
    assert "400" in ask("take", server, "--id", "x" * 500, "--quota", "5/1h", "k", code=1)[1]
    assert "400" in ask("take", server, "--wait", "100h", "--quota", "5/1h", "k", code=1)[1]


@pytest.mark.parametrize("role, verb, code", [
    ("ask", "take", 0), ("ask", "reset", 1), ("administer", "take", 1), ("administer", "reset", 0)])
def test_tokens_have_roles(tmp_path, role, verb, code):
    secret = secrets.token_hex(32)
    tokens, mine, other = (tmp_path / name for name in ("tokens", "mine", "other"))
    tokens.write_text(f"script {role} sha256:{hashlib.sha256(secret.encode()).hexdigest()}\n")
    tokens.chmod(0o600)
    mine.write_text(secret + "\n")
    other.write_text("0" * 64 + "\n")
    with Server("--tokens", tokens) as server:
        who = ("--quota", "5/1h", "k")
        err = ask(verb, server, "--token-file", mine, *who, code=code)[1]
        assert "403" in err if code else err == ""
        assert "401" in ask(verb, server, *who, code=1)[1]
        assert "401" in ask(verb, server, "--token-file", other, *who, code=1)[1]


def test_a_unix_socket(tmp_path):
    path = tmp_path / "http.sock"
    with Server("--resp", "off", "--http", f"unix:{path}", ports=False):
        stint("take", "--server", f"unix:{path}", "--quota", "1/1h", "k")
        stint("take", "--server", f"unix:{path}", "--quota", "1/1h", "k", code=3)


def test_no_server_is_no_decision(server):
    """One that ends between two questions is an error, not a denial."""
    with Server() as other:
        url = other.url("")
        stint("take", "--server", url, "--quota", "1/1h", "k")
    assert stint("take", "--server", url, "--quota", "1/1h", "k", code=1)[0] == ""
