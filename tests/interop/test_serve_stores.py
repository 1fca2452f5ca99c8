# SPDX-License-Identifier: MIT
"""The settings of shared stores as their users meet them; other tests have real stores."""
import json
import os
import re
import signal

import pytest

from measure import metric
from redis_server import Redis, until
from server import Server
from test_serve import ask, printed, serve, setting

RULES = """
domain: d
descriptors:
  - key: own
    rate_limit: {unit: hour, requests_per_unit: 3, store: none}
  - key: fast
    rate_limit: {unit: hour, requests_per_unit: 3, store: fast}
"""
SHARED = """
domain: d
descriptors:
  - {key: shared, rate_limit: {unit: second, requests_per_unit: 1000}}
"""
NOBODY = "fast=redis://:hunter2@127.0.0.1:1"  # nobody listens there


def command_lines(server):
    """Of the server and of whatever it has started, as everybody on the machine sees them."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                text = file.read().decode(errors="replace")
        except OSError:
            continue
        if server.folder in text:
            found.append(text)
    return found


# ---- What the log tells ----


def test_the_log_says_that_a_store_is_away_and_why_and_that_it_is_back():
    with Redis(requirepass="hunter1") as redis:
        url = f"redis://:hunter2@127.0.0.1:{redis.port}"
        with Server("--store", url, "--store", NOBODY, rules=RULES) as server:
            server.wait_for("store_away", times=2)
            text = "\n".join(server.lines)
            assert re.search(r'warn store_away: .* store=default reason=".*WRONGPASS', text)
            assert re.search(r'warn store_away: .* store=fast reason=".*Connection refused', text)
            redis.cli("-a", "hunter1", "CONFIG", "SET", "requirepass", "hunter2")
            server.wait_for("store_back")
            assert "store=default" in next(x for x in server.lines if "store_back" in x)
            assert server.log.count("store_away") == 2 and "hunter" not in server.log


def test_the_log_says_once_why_a_store_refuses_all():
    """Also where the script's command is allowed, but not to load the script."""
    target = {"domain": "d", "descriptors": [{"entries": [{"key": "shared"}]}]}
    with Redis() as redis:
        redis.cli("ACL", "SETUSER", "fleet", "on", ">p", "~*", "&*", "+@all", "-script")
        with Server("--store", f"redis://fleet:p@127.0.0.1:{redis.port}", "--workers", "1",
                    rules=SHARED) as server:
            def status_until(text):
                until(lambda: server.post("/v1/take", target)[0] and text in server.log, text)
            status_until("store_away")
            assert re.search('store=default reason="the store does not permit .*NOPERM', server.log)
            assert metric(server.http, "stint_store_errors_total", reason="other") >= 5
            assert metric(server.http, "stint_store_errors_total", reason="unreachable") == 0
            redis.cli("ACL", "SETUSER", "fleet", "+script")
            status_until("store_back")
            assert server.log.count("store_away") == 1


# ---- Passwords ----


@pytest.mark.parametrize("how", ["option", "environment", "file"])
def test_a_password_is_not_printed(tmp_path, how):
    urls = ["redis://:hunter2@h:1", "fast=rediss://me:hunter2@h"]
    if how == "option":
        text = printed("--store", urls[0], f"--store={urls[1]}")
    elif how == "environment":
        text = printed(env={"STINT_STORE": ";".join(urls)})
    else:
        config = tmp_path / "stint.yaml"
        config.write_text(f"store: ['{urls[0]}', '{urls[1]}']\n")
        text = printed("--config", config)
    assert setting(text, "store") == '["redis://:***@h:1", "fast=rediss://me:***@h"]'
    assert "hunter2" not in text


def test_a_password_is_not_seen_in_the_process_list(tmp_path):
    options = ["--state", tmp_path / "state", "--store", NOBODY,
               "--store=redis://:hunter2@127.0.0.1:2"]
    with Server(*options, rules=RULES) as server:
        lines = command_lines(server)
        assert len(lines) == 2  # one is ready to start a successor
        server.tell(signal.SIGUSR2)
        server.wait_for("handed_over")
        assert server.process.wait(30) == 0
        server.wait_for("started: serving", times=2)
        successor = int(re.findall(r"serving pid=(\d+)", server.log)[1])
        try:
            lines += command_lines(server)
        finally:
            os.kill(successor, signal.SIGTERM)
        server.wait_for("stopped", times=2)
        assert len(lines) > 2 and "hunter2" not in server.log
    for line in lines:
        assert "hunter2" not in line
        assert "fast=redis://:*******@127.0.0.1:1" in line
        assert "--store=redis://:*******@127.0.0.1:2" in line


@pytest.mark.parametrize("text, said", [
    ("redsi://:hunter2@h", "a store's URL begins with redis://"),
    ("redis://:hunter2@h/x", ""),
    ("redis://:hunter2@h:99999", ""),
    ("a/b=redis://:hunter2@h", ""),
    ("none=redis://:hunter2@h", "no store can be called none"),
])
def test_a_bad_url_is_refused_without_its_password(tmp_path, text, said):
    config = tmp_path / "stint.yaml"
    config.write_text(f"workers: 1\nstore: '{text}'\n")
    for told in (serve("--store", text, code=2), serve(code=2, env={"STINT_STORE": text}),
                 serve("--config", config)):
        assert said in told and "hunter2" not in told
    assert f"{config}:2:8: store: " in told


def test_a_file_has_the_url(tmp_path):
    file = tmp_path / "url"
    file.write_text("http://:hunter2@h\n")
    told = serve("--store", f"@{file}", "--resp", "off", "--http", "off", "--grpc", "127.0.0.1:0")
    assert f"store default: {file}: a store's URL begins with" in told and "hunter2" not in told
    file.write_text("redis://:hunter2@127.0.0.1:1\n")
    with Server("--store", f"fast=@{file}", rules=RULES) as server:
        assert setting(printed("--store", f"fast=@{file}"), "store") == f'["fast=@{file}"]'
    assert "hunter2" not in server.log
    file.unlink()
    assert str(file) in serve("--store", f"@{file}")


# ---- Away from the beginning ----

LOCAL = """
domain: d
descriptors:
  - key: empty
    rate_limit: {unit: hour, requests_per_unit: 11, on_store_error: local, local_start: empty,
                 local_for: 2h}
  - key: full
    rate_limit: {unit: hour, requests_per_unit: 11, on_store_error: local, local_for: 2h}
  - key: silent
    rate_limit: {unit: hour, requests_per_unit: 11}
  - key: own
    rate_limit: {unit: hour, requests_per_unit: 11, store: none}
"""


def allowed(server, key, value="x"):
    """How many of twenty requests in a row are."""
    body = json.dumps({"domain": "d", "descriptors": [{"entries": [{"key": key, "value": value}]}]})
    return sum(ask(server.url("/json"), data=body.encode())[0] == 200 for _ in range(20))


def test_a_share_is_what_a_node_decides_by():
    store = ["--store", "redis://127.0.0.1:1", "--store-nodes", 2]
    with Server(*store, rules=LOCAL) as server:
        assert allowed(server, "empty") == 5
        assert allowed(server, "full") == 0 and allowed(server, "silent") == 0
        assert allowed(server, "own") == 11
    with Server(*store, "--store-on-error", "allow", rules=LOCAL) as server:
        assert allowed(server, "silent") == 20


def test_nodes_that_know_each_other_leave_nothing_over():
    names = ["--store", "redis://127.0.0.1:1", "--store-node-names", "a", "--store-node-names", "b"]
    with Server(*names, "--store-node", "a", rules=LOCAL) as one, \
            Server(*names, "--store-node", "b", rules=LOCAL) as other:
        shares = [(allowed(one, "empty", str(i)), allowed(other, "empty", str(i)))
                  for i in range(12)]
    assert set(shares) == {(5, 6), (6, 5)}


# ---- Rules ----


def test_rules_name_stores_that_there_are(tmp_path):
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES)
    told = serve("--rules", rules, "--store", "redis://127.0.0.1:1")
    assert (f'{rules}:7:59: store: there is no store "fast"; expected default, none') in told
    told = serve("--rules", rules)
    assert 'expected none: no store is known here' in told


def test_stores_stay_until_a_restart(tmp_path):
    config = tmp_path / "stint.yaml"
    config.write_text(f"store: '{NOBODY}'\nwatch: 0\n")
    with Server("--config", config, rules=RULES) as server:
        config.write_text("store: 'slow=redis://:hunter3@127.0.0.1:1'\nwatch: 0\n")
        server.tell(signal.SIGHUP)
        server.wait_for("warn needs_restart")
        assert 'settings=store' in server.log
        server.wait_for("reloaded")  # the rules name a store that is there
        server.write_rules(RULES.replace("store: fast", "store: slow"))
        server.tell(signal.SIGHUP)
        server.wait_for('there is no store \\"slow\\"; expected fast, none')
    assert "hunter" not in server.log


def test_two_stores_of_one_name_are_refused():
    told = serve("--store", "redis://a", "--store", "redis://b")
    assert "there are two that are called default" in told
