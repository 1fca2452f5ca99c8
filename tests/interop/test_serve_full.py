# SPDX-License-Identifier: MIT
"""A full table under attack: made-up keys flood a small table of a server with default settings.

New users are admitted all the same, a key that is being denied stays denied, and every unit that is
forgotten is counted and reported.
"""
import json
import re
import signal
import time
import urllib.request

import pytest

from program import stint
from server import Server

RULES = """
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: day, requests_per_unit: 10}
  - key: log
    rate_limit: {unit: day, requests_per_unit: 10, algorithm: log}
  - key: token
    rate_limit: {unit: day, requests_per_unit: 10, algorithm: gcra}
  - key: job
    rate_limit: {algorithm: concurrency, requests_per_unit: 2, lease: 1h}
"""
TABLE = ("--keys", 1000, "--keys16", 1000, "--keys-wide", 1000)
FLOOD = 6000
KINDS = ("user", "log", "token")


def words(kind, key, cost=1, verb="STINT.TAKE"):
    return (verb, "DOMAIN", "edge", "DESCRIPTOR", 1, kind, key, "COST", cost)


def pipeline(conn, asks, depth=200):
    """The outcomes of all, asked in pipelines of a bounded depth."""
    outcomes = []
    for begin in range(0, len(asks), depth):
        part = asks[begin:begin + depth]
        conn.sock.sendall(b"".join(conn.encode(*ask) for ask in part))
        outcomes += [conn.read()[1] for _ in part]
    return outcomes


def flood(conn, kind, n=FLOOD, name="made-up"):
    return pipeline(conn, [words(kind, f"{name} {i}") for i in range(n)])


def page(server, path):
    with urllib.request.urlopen(server.url(path), timeout=20) as answer:
        return answer.read().decode()


def metric(server, name):
    return int(re.search(rf"^{re.escape(name)} (\d+)$", page(server, "/metrics"), re.M)[1])


def info(conn, name):
    return int(re.search(rf"^{name}:(\d+)", conn.ask("INFO", "table"), re.M)[1])


@pytest.mark.parametrize("kind", KINDS)
def test_a_flood_of_made_up_keys_keeps_nobody_out_and_frees_no_denied_key(kind):
    with Server(*TABLE, rules=RULES) as server, server.connect() as attacker, \
            server.connect() as client:
        assert client.ask(*words(kind, "used up", 10))[1] == "allow"
        assert client.ask(*words(kind, "half", 5))[1] == "allow"
        granted = 15
        denied_meanwhile = 0
        for wave in range(6):
            outcomes = flood(attacker, kind, FLOOD // 6, f"made-up {wave}")
            granted += outcomes.count("allow")
            denied_meanwhile += client.ask(*words(kind, "used up"))[1] == "deny"
        assert denied_meanwhile == 6
        users = pipeline(client, [words(kind, f"user {i}") for i in range(1000)])
        granted += users.count("allow")
        assert users.count("allow") >= 990, f"{users.count('allow')} of 1,000 new users"
        assert client.ask(*words(kind, "used up"))[1] == "deny"
        # Among keys that used a unit each, the one that used half of its quota stays, too.
        assert pipeline(client, [words(kind, "half")] * 6) == ["allow"] * 5 + ["deny"]
        granted += 5

        forgotten = metric(server, "stint_forgotten_units_total")
        size = {"user": "keys16", "log": "keys_wide", "token": "keys8"}[kind]
        # Every key that is left holds one unit, but for two of ten.
        assert granted - forgotten == info(client, size) + 2 * 9
        assert forgotten == metric(server, 'stint_evictions_total{lossless="false"}') > 5000
        assert json.loads(page(server, "/v1/stats"))["table"]["forgotten_units"] == forgotten
        assert info(client, "forgotten_units") == forgotten
        server.wait_for("table_full: states were evicted", 5)
        time.sleep(2.5)  # the server looks once a second, and reports once a minute
    lines = [line for line in server.log.splitlines() if "table_full: " in line]
    assert len(lines) == 1 and re.search(r"evictions=\d+ units=\d+", lines[0]), lines


def test_a_rule_says_inherit_for_itself():
    """The setting is for rules that leave it open: this one would rather deny than forget."""
    rules = RULES.replace("requests_per_unit: 10}", "requests_per_unit: 10, when_full: inherit}", 1)
    with Server(*TABLE, rules=rules) as server, server.connect() as conn:
        outcomes = flood(conn, "user")
        assert outcomes[-1000:].count("deny") == 1000
        assert set(flood(conn, "token")) == {"allow"}
        assert info(conn, "evictions_inherit") > 1000


def test_the_setting_is_for_all_that_leaves_it_open():
    """Rules, and quotas that requests bring along."""
    with Server("--table-full", "inherit", *TABLE, rules=RULES) as server, \
            server.connect() as conn:
        for kind in KINDS:
            assert flood(conn, kind)[-1000:].count("deny") == 1000
        spec = pipeline(conn, [("STINT.TAKE", "QUOTA", "100/1d when_full=evict", i)
                               for i in range(100)])
        assert spec.count("deny") > 50  # states that nothing may evict hold all places
        assert metric(server, "stint_forgotten_units_total") == 0
        assert "table_full" not in server.log


def test_holders_are_never_evicted():
    with Server(*TABLE, rules=RULES) as server, server.connect() as conn:
        held = pipeline(conn, [(*words("job", "mine", 2, "STINT.RESERVE"), "LIFETIME", 600000)])
        assert held == ["allow"]
        assert set(pipeline(conn, [words("job", f"made-up {i}") for i in range(3000)])) == \
            {"allow", "deny"}
        assert conn.ask(*words("job", "mine"))[1] == "deny"
        assert metric(server, "stint_forgotten_units_total") == 0


def test_a_block_outlives_a_flood():
    with Server(*TABLE, rules=RULES) as server, server.connect() as conn:
        assert conn.ask("STINT.BLOCK", "DOMAIN", "edge", "DESCRIPTOR", 1, "user", "bad",
                        "FOR", 3600000) == "OK"
        flood(conn, "user")
        assert conn.ask(*words("user", "bad"))[1] == "deny"


def test_another_setting_holds_at_once_for_the_states_of_a_file(tmp_path):
    """A state keeps what its rule said of a full table, and nothing where it said nothing."""
    options = (*TABLE, "--state", tmp_path / "state")
    with Server(*options, "--table-full", "inherit", rules=RULES) as server, \
            server.connect() as conn:
        assert conn.ask(*words("user", "used up", 10))[1] == "allow"
        assert flood(conn, "user")[-1000:].count("deny") == 1000
    with Server(*options, rules=RULES) as server, server.connect() as conn:
        assert conn.ask(*words("user", "used up"))[1] == "deny"
        users = pipeline(conn, [words("user", f"user {i}") for i in range(1000)])
        assert users.count("allow") >= 990
        forgotten = metric(server, "stint_forgotten_units_total")
        assert forgotten > 500
    with Server(*options, "--table-full", "deny", rules=RULES) as server, server.connect() as conn:
        assert flood(conn, "user", 1000, "again").count("deny") > 980
        assert metric(server, "stint_forgotten_units_total") == forgotten
        assert conn.ask(*words("user", "used up"))[1] == "deny"


def test_a_reload_puts_another_setting_and_another_rule_in_force(tmp_path):
    config = tmp_path / "stint.yaml"
    config.write_text("table_full: inherit\n")
    with Server(*TABLE, "--config", config, "--watch", "0", rules=RULES) as server, \
            server.connect() as conn:
        assert conn.ask(*words("user", "used up", 10))[1] == "allow"
        assert flood(conn, "user")[-1000:].count("deny") == 1000

        config.write_text("table_full: evict\n")
        server.tell(signal.SIGHUP)
        server.wait_for("reloaded: ")
        users = pipeline(conn, [words("user", f"user {i}") for i in range(1000)])
        assert users.count("allow") >= 990 and "needs_restart" not in server.log
        assert conn.ask(*words("user", "used up"))[1] == "deny"

        # From here on the rule says it for itself: states that were made under it stay.
        server.write_rules(RULES.replace("_unit: 10}", "_unit: 10, when_full: inherit}", 1))
        server.tell(signal.SIGHUP)
        server.wait_for("reloaded: ", times=2)
        assert conn.ask(*words("user", "used up"))[1] == "deny"
        flood(conn, "user", name="kept")
        forgotten = metric(server, "stint_forgotten_units_total")
        assert flood(conn, "user", 1000, "late").count("deny") == 1000
        assert metric(server, "stint_forgotten_units_total") == forgotten
        assert conn.ask(*words("user", "used up"))[1] == "deny"
        policies = []
        for kind in ("user", "log", "job"):
            explained = conn.ask("STINT.EXPLAIN", "DOMAIN", "edge", "DESCRIPTOR", 1, kind, "x")
            status = explained[explained.index("statuses") + 1][0]
            policies.append(status[status.index("when_full") + 1])
        assert policies == ["inherit", "evict", "inherit"]
