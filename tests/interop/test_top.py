# SPDX-License-Identifier: MIT
"""`stint top` over several servers, and the half-life of what it shows."""
import contextlib
import json
import os
import socket
import subprocess
import time
import urllib.request

from program import STINT
from redis_server import until
from server import Server, free_port

RULES = """\
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 5}
  - key: path
    rate_limit: {unit: hour, requests_per_unit: 100}
"""


def take(server, name, value, times=1):
    with server.connect() as client:
        for _ in range(times):
            client.ask("STINT.TAKE", "DOMAIN", "shop", "DESCRIPTOR", 1, name, value)


def top(*words, code=0, env=None):
    done = subprocess.run([STINT, "top", "--once", "--interval", "50ms", *words], timeout=60,
                          capture_output=True, text=True, env={**os.environ, **(env or {})},
                          check=False)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def page(server):
    with urllib.request.urlopen(server.url("/v1/top"), timeout=20) as answer:
        return json.load(answer)


def test_servers_are_added_up_by_key_and_rule():
    with Server(rules=RULES) as one, Server(rules=RULES) as two:
        take(one, "user", "ann", 7)
        take(two, "user", "ann", 4)
        take(two, "user", "bob", 9)
        take(one, "path", "ann", 3)
        urls = [one.url(""), two.url("")]
        look = json.loads(top("--json", "--order", "asked", *urls))
        denied = json.loads(top("--json", "--keys", "1", *urls))
        text = top(*urls)
    assert look["servers"] == [{"url": url, "error": None} for url in urls]
    keys = {(key["rule"], key["key"]): key for key in look["keys"]}
    assert [(key["rule"], key["key"]) for key in look["keys"]] == \
        [("user", "ann"), ("user", "bob"), ("path", "ann")]
    assert 10.5 < keys["user", "ann"]["asked"] <= 11
    assert 1.9 < keys["user", "ann"]["denied"] <= 2
    rules = {rule["rule"]: rule for rule in look["stats"]["rules"]}
    assert (rules["user"]["allow"], rules["user"]["deny"]) == (5 + 4 + 5, 2 + 4)
    assert rules["path"]["allow"] == 3
    assert look["stats"]["totals"]["allow"] == 17
    assert [key["key"] for key in denied["keys"]] == ["bob"]
    lines = text.splitlines()
    assert lines[0] == "sums of 2 of 2 servers; durations are those of the slowest"
    assert lines[1].startswith("stint ") and "ann" in text


def test_a_server_that_does_not_answer_is_named():
    port = free_port()
    gone = f"http://127.0.0.1:{port}"
    with Server(rules=RULES) as server:
        take(server, "user", "ann", 2)
        text = top(gone, server.url(""))
        look = json.loads(top("--json", "--order", "asked", gone, server.url("")))
    assert text.splitlines()[0].startswith("sums of 1 of 2 servers")
    assert text.splitlines()[1].startswith(f"no answer of {gone}: ")
    assert look["servers"][0]["url"] == gone and str(port) in look["servers"][0]["error"]
    assert look["servers"][1]["error"] is None
    assert [key["key"] for key in look["keys"]] == ["ann"]
    said = top(gone, f"http://127.0.0.1:{free_port()}", code=1)
    assert "none of 2 servers answers" in said and len(said.splitlines()) == 1


def test_servers_that_hang_cost_one_timeout_together():
    with Server(rules=RULES) as server, contextlib.ExitStack() as stack:
        take(server, "user", "ann", 2)
        hanging = []
        for _ in range(8):  # connections are accepted by the kernel, and never answered
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            hanging.append(f"http://127.0.0.1:{listener.getsockname()[1]}")
        begun = time.monotonic()
        look = json.loads(top("--json", "--timeout", "1s", "--order", "asked", *hanging[:4],
                              server.url(""), *hanging[4:]))
        took_s = time.monotonic() - begun
    assert [one["url"] for one in look["servers"] if one["error"] is None] == [server.url("")]
    assert all("timed out" in one["error"].lower() for one in look["servers"]
               if one["url"] in hanging)
    assert [key["key"] for key in look["keys"]] == ["ann"]
    assert 1 <= took_s < 4, "8 timeouts of 1 s, one after the other, take 8 s"


def test_one_url_is_that_server_alone():
    with Server(rules=RULES) as server:
        take(server, "user", "ann", 7)
        look = json.loads(top("--json", server.url("")))
        by_option = json.loads(top("--json", "--server", server.url("")))
    assert "servers" not in look and [key["key"] for key in look["keys"]] == ["ann"]
    assert look["stats"]["rules"] == by_option["stats"]["rules"]
    assert "at most 64 servers" in top(*["http://127.0.0.1:1"] * 65, code=2)


def test_the_half_life_is_a_setting():
    with Server("--popular-half-life", "1s", rules=RULES) as fast, Server(rules=RULES) as slow:
        for server in (fast, slow):
            take(server, "user", "ann", 64)
        begun = time.monotonic()
        assert page(slow)["half_life_ns"] == 60 * 10**9
        assert page(fast)["half_life_ns"] == 10**9
        until(lambda: page(fast)["keys"][0]["asked"] < 16, "two half-lives")
        assert time.monotonic() - begun > 1.8, "64 units are 16 after 2 s"
        assert page(slow)["keys"][0]["asked"] > 64 * 0.5 ** ((time.monotonic() - begun + 2) / 60)
    for wrong in ("500ms", "366d"):
        done = subprocess.run([STINT, "serve", "--popular-half-life", wrong], capture_output=True,
                              text=True, timeout=20, check=False)
        assert done.returncode != 0 and "popular-half-life" in done.stderr.replace("_", "-")
