# SPDX-License-Identifier: MIT
"""The dashboard and the alerts, on a real Prometheus that scrapes a server under load.

Real time: Prometheus knows no other. promtool evaluates the alerts' own tests in virtual time.
"""
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from monitored import RULES, flood, lose, misbehave, monitored, reload, send_rules
from prometheus import SCRAPE_S
from program import STINT
from redis_server import Redis, until
from server import Server
from test_readme import blocks

SOURCE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tools"))

import grafana  # noqa: E402

DASHBOARD = SOURCE / "packaging/dashboards/stint.json"
ALERTS = SOURCE / "packaging/alerts/stint.rules.yaml"
TESTS = SOURCE / "packaging/alerts/stint.tests.yaml"
RUNBOOKS = SOURCE / "docs/runbooks.md"
PAGE = SOURCE / "docs/monitoring.md"
OBJECTIVES = SOURCE / "docs/operating.md"
PATH = f"{Path(STINT).parent}:{os.environ['PATH']}"
NEEDED = 8  # scrapes before what happens to the server, and after it

# What Grafana puts in. "All" is the variable's allValue.
VARIABLES = {"$__rate_interval": f"{4 * SCRAPE_S}s",
             **{f"${name}": ".*" for name in ("job", "instance", "domain", "rule")}}

# Queries that may stay at 0 here, with what would raise them.
QUIET = {
    ("Descriptors without a limit", "all rules in shadow mode"): "the setting shadow_mode",
    ("Closed too early, or not given back", "the ring of tickets was full"):
        "65,536 open reservations",
    ("Closed too early, or not given back", "too many open in a store"): "the same in a store",
    ("Closed too early, or not given back", "units not given back"):
        "reservations that outlive the period of their limit",
    ("Failovers, and requests for doubtful keys after them", "{{store}} denied or charged"):
        "the setting after_failover",
    ("memcached: conflicts", "{{store}} conflicts"): "several servers",
    ("memcached: conflicts", "{{store}} timed out"): "several servers",
    ("memcached: conflicts", "{{store}} damaged"): "a damaged memory",
    ("memcached: clock of another server ahead", "{{instance}} {{store}}"): "several machines",
}


def filled_in(expr):
    for name, value in VARIABLES.items():
        expr = expr.replace(name, value)
    assert "$" not in expr, expr
    return expr


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """A Prometheus that has seen a server in good times and in bad ones, and from when to when."""
    with monitored(tmp_path_factory.mktemp("monitored"), [ALERTS]) as parts:
        server, redis, plane, prometheus = parts
        began = time.time()
        # A rate needs the counter before it rises.
        until(lambda: prometheus.scrapes() >= NEEDED, f"{NEEDED} scrapes", seconds=60)
        misbehave(server)
        flood(server)
        assert reload(server, RULES.replace("per_unit: 30,", "per_unit: 31,")) == 200
        assert reload(server, "domain: [\n") == 500
        send_rules(plane)
        plane.stop()
        lose(redis, 2)
        seen = prometheus.scrapes()
        until(lambda: prometheus.scrapes() >= seen + NEEDED, f"{NEEDED} scrapes", seconds=60)
        yield prometheus, began, time.time()


def queries():
    return [pytest.param(panel["title"], target["legendFormat"], target["expr"],
                         id=f"{panel['title']}: {target['legendFormat']}")
            for panel in json.loads(DASHBOARD.read_text())["panels"]
            for target in panel.get("targets", ())]


def highest(prometheus, expr, began, ended):
    """Of all values of all series that are numbers: a share of nothing is none."""
    series = prometheus.query_range(filled_in(expr), began, ended, SCRAPE_S)
    return max((value for _, values in series for _, value in values if value == value),
               default=None)


# ---- The dashboard ------------------------------------------------------------------------------


def test_the_dashboard_is_current():
    """Else: tools/grafana.py > packaging/dashboards/stint.json"""
    assert DASHBOARD.read_text() == grafana.text()


@pytest.mark.parametrize("title,legend,expr", queries())
def test_each_query_has_data(watched, title, legend, expr):
    value = highest(watched[0], expr, *watched[1:])
    assert value is not None, "no series"
    assert value > 0 or (title, legend) in QUIET


def test_quiet_queries_are_of_the_dashboard():
    known = {tuple(each.values[:2]) for each in queries()}
    assert set(QUIET) <= known, set(QUIET) - known


def test_legends_name_labels_of_their_series(watched):
    prometheus, began, ended = watched
    for each in queries():
        title, legend, expr = each.values
        for labels, _ in prometheus.query_range(filled_in(expr), began, ended, SCRAPE_S):
            # Quotas that callers bring along have no domain and no rule.
            wanted = set(re.findall(r"{{(\w+)}}", legend)) - {"domain", "rule"}
            assert wanted <= set(labels), f"{title}: {legend}: {labels}"


@pytest.mark.parametrize("name,values", [
    ("job", ["stint"]), ("instance", None), ("domain", ["edge", "plane"]),
    ("rule", ["account", "login", "model", "partner", "tenant", "tokens", "user"])])
def test_variables_list_what_there_is(watched, name, values):
    variables = json.loads(DASHBOARD.read_text())["templating"]["list"]
    (query,) = [each["query"]["query"] for each in variables if each["name"] == name]
    selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", query).groups()
    found = watched[0].ask(f"label/{label}/values", **{"match[]": filled_in(selector)})
    assert label == name and found and found == (values or found)


def test_all_includes_quotas_that_callers_bring(watched):
    """These have no domain and no rule: a list of the known values would leave them out."""
    (panel,) = [each for each in queries() if each.values[0] == "Decisions"]
    of_rules = panel.values[2].replace("$rule", ".+")
    assert highest(watched[0], of_rules, *watched[1:]) < \
        highest(watched[0], panel.values[2], *watched[1:])


def test_reloads_are_marked(watched):
    (annotation,) = json.loads(DASHBOARD.read_text())["annotations"]["list"]
    assert highest(watched[0], annotation["expr"], *watched[1:]) >= 1


# ---- The alerts ---------------------------------------------------------------------------------


def alerts():
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"]
            for rule in group["rules"] if "alert" in rule]


def test_each_alert_is_seen_silent_firing_and_silent_again():
    tested = {}
    for test in yaml.safe_load(TESTS.read_text())["tests"]:
        tested[test["name"]] = [bool(at.get("exp_alerts")) for at in test["alert_rule_test"]
                                if at["alertname"] == test["name"]]
    assert list(tested) == [alert["alert"] for alert in alerts()]
    assert all(states == [False, True, False] for states in tested.values()), tested


def test_alerts_look_at_series_that_a_server_has(watched):
    for alert in alerts():
        selectors = re.findall(r"\b((?:stint|job)_\w+(?::\w+)*(?:\{[^}]*\})?)", alert["expr"])
        selectors = [each for each in selectors if "_" in each]
        assert selectors
        for selector in selectors:
            assert watched[0].query(selector), f"{alert['alert']}: {selector}"


FIRES = {"StintControlPlaneLost", "StintControlPlaneRefused", "StintReloadFailed",
         "StintTableFull", "StintConnectionsRefused", "StintUnknownDomain",
         "StintReservationsNotSettled", "StintStoreFailover", "StintStoreErrors"}
LOADED = {"StintPoolExhausted", "StintTableNearlyFull", "StintStoreSlow", "StintDecisionsSlow"}


def test_alerts_of_a_server_in_bad_times(watched):
    """Some wait for minutes until they fire. Those that a slow machine may cause may be active."""
    rules = [rule for group in watched[0].ask("rules")["groups"] for rule in group["rules"]]
    assert all(rule["health"] == "ok" for rule in rules), rules
    active = {rule["name"] for rule in rules if rule.get("state", "inactive") != "inactive"}
    assert FIRES <= active <= FIRES | LOADED


# ---- The pages ----------------------------------------------------------------------------------


def test_each_alert_has_a_runbook():
    headings = re.findall(r"(?m)^### (\w+)$", RUNBOOKS.read_text())
    assert headings == [alert["alert"] for alert in alerts()]
    for alert in alerts():
        url = f"docs/runbooks.md#{alert['alert'].lower()}"
        assert alert["annotations"]["runbook_url"] == url and alert["annotations"]["summary"]
        assert alert["labels"]["severity"] in {"critical", "warning", "info"}


@pytest.fixture(scope="module")
def variables(tmp_path_factory):
    """What the first block of the runbooks sets, of a server that runs."""
    folder = tmp_path_factory.mktemp("runbooks")
    config, state = folder / "stint.yaml", folder / "limits"
    config.write_text("pools: [{name: search, quota: 500/10m, keys: [alpha, beta]}]\n")
    with Redis() as redis, Server("--rules", "examples/rules", "--config", config, "--store",
                                  redis.url, "--state", state) as server:
        with server.connect() as client:
            reply = client.ask("STINT.RESERVE", "QUOTA", "9/1m", "k", "LIFETIME", 60_000)
            assert "ticket" in reply
            client.throttle("key", 15, 30, 60)
        yield dict(os.environ, PATH=PATH, rules="examples/rules", server=server.url(""),
                   store=redis.url, state=str(state))


def runbook_commands():
    (_, first, _), *others = blocks(RUNBOOKS, "sh")
    assert re.findall(r"(?m)^(\w+)=", first) == ["server", "rules", "state", "store"]
    lines = [line for _, inside, _ in others for line in inside.splitlines()]
    assert len(lines) > 20
    return sorted(set(lines))


@pytest.mark.parametrize("command", runbook_commands())
def test_commands_of_runbooks_show_something(command, variables):
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], env=variables, cwd=SOURCE,
                          capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize("command,output", [each[1:] for each in blocks(PAGE, "sh")])
def test_commands_of_the_page_show_what_it_says(command, output):
    done = subprocess.run(["sh", "-c", command], env=dict(os.environ, PATH=PATH), cwd=SOURCE,
                          capture_output=True, text=True, check=False)
    assert done.stdout.strip().replace("\n\n\n", "\n\n") == output.strip(), done.stderr


def test_the_scrape_configuration_is_valid(tmp_path):
    (block,) = [inside for _, inside, _ in blocks(PAGE, "yaml")]
    path = tmp_path / "prometheus.yml"
    path.write_text(block)
    done = subprocess.run(["promtool", "check", "config", "--syntax-only", path],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_objectives_are_shares_and_counts(watched):
    """The same queries, over the time that there is."""
    values = []
    for _, query, _ in blocks(OBJECTIVES, "promql"):
        (value,) = watched[0].query(query.replace("30d", "5m").replace(":1m]", ":1s]")).values()
        values.append(value)
    available, fast, forgotten, stores, rules = values
    assert 0 < fast <= 1 and forgotten > 0, values
    # The server was there; the Redis and the rules were not, for a while.
    assert available == 1 and 0 < stores < 1 and 0 < rules < 1, values
