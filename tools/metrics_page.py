#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: metrics_page.py STINT > docs/metrics.md

Writes the page of metrics from what a server says of them at /metrics: HELP, TYPE and labels.
tests/interop/test_metrics_page.py compares it with the page in docs.
"""
import http.client
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

RULES = """\
domain: edge
descriptors:
  - key: user
    detailed_metric: true
    rate_limit: {unit: hour, requests_per_unit: 1}
    shadow: {unit: hour, requests_per_unit: 1}
"""
CONFIG = "pools: [{name: search, quota: 1/1h, keys: [alpha]}]\n"
HEAD = """\
<!-- SPDX-License-Identifier: MIT -->
# Metrics

Each family of metrics at `/metrics`, as the server itself describes it. `tools/metrics_page.py`
writes this page. Beside Prometheus text, OpenMetrics is returned if `Accept` asks for it.
`/v1/stats` has most of them as JSON. A counter is never reset while the process runs.

[Monitoring](monitoring.md) has a dashboard and alerts. What metrics mean in use:
[reservations](http.md#metrics-of-reservations), [descriptors without a
rule](http.md#descriptors-without-a-rule), [shared stores](http.md#metrics-of-shared-stores),
[traces](traces.md#what-it-costs).
"""
PARTS = [
    ("Decisions and frontends",
     r"stint_(?!table_|store_|lease_|deny_cache|evictions|forgotten|xds_)",
     "Of the whole server. The label `rule` is the path of a rule, whatever its `name` is: its "
     "keys, with the values\nthat the file gives them, joined by dots, such as "
     "`path=/login.remote_address`. "
     "`value` has values\nof requests, for rules that show them (`detailed_metric`). A request "
     "that waits (`WAIT`, `wait_ms`) counts once, with its\nreply, and a pool's each time that it "
     "is evaluated."),
    ("The table", r"stint_(table_|evictions|forgotten)", "Of the server's own table."),
    ("Shared stores", r"stint_(store_|lease_|deny_cache)",
     "One series for each store of the server (`--store`)."),
    ("Control planes", r"stint_xds_",
     "One series for each control plane that sends rules ([xds.md](xds.md))."),
    ("Names of envoyproxy/ratelimit", r"ratelimit_",
     "With the setting `metrics_names: envoyproxy` or `both`. Each entry of a descriptor has a "
     "label: `key1`, `key2` and so on."),
]


def ask(connection, method, path, body=None):
    """The text of the answer; the connection stays."""
    connection.request(method, path, body, {"Content-Type": "application/json"})
    return connection.getresponse().read().decode()


def meet_a_limit(port):
    """Opens connections until the server refuses one."""
    held = []
    try:
        while True:
            held.append(http.client.HTTPConnection("127.0.0.1", port, timeout=60))
            ask(held[-1], "GET", "/healthz")
    except (ConnectionError, http.client.HTTPException):
        for connection in held:
            connection.close()


def metrics(stint):
    """The text at /metrics of a server in which every family has a series."""
    with tempfile.TemporaryDirectory() as folder:
        rules = Path(folder) / "rules.yaml"
        rules.write_text(RULES, encoding="utf-8")
        config = Path(folder) / "stint.yaml"
        config.write_text(CONFIG, encoding="utf-8")
        with subprocess.Popen(
                [stint, "serve", "--resp", "off", "--grpc", "off", "--http", "127.0.0.1:0",
                 "--metrics-names", "both", "--config", config, "--rules", rules,
                 "--connections-per-address", "3", "--rules", "xds://127.0.0.1:1",
                 "--store", "away=memcached://127.0.0.1:1", "--traces", "http://127.0.0.1:1"],
                stderr=subprocess.PIPE, text=True) as server:
            try:
                port = next(int(found[1]) for line in server.stderr
                            if (found := re.search(r"listens: .*:(\d+)$", line)))
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                for key, user in (("user", "ann"), ("user", "ann"), ("usr", "bob")):
                    descriptor = {"entries": [{"key": key, "value": user}]}
                    ask(connection, "POST", "/v1/take",
                        json.dumps({"domain": "edge", "descriptors": [descriptor]}))
                ask(connection, "POST", "/v1/cancel", json.dumps({"ticket": 32 * "0"}))
                meet_a_limit(port)
                return ask(connection, "GET", "/metrics")
            finally:
                server.terminate()
                server.stderr.read()


def families(text):
    """(name, type, labels, help) of each, by name."""
    types = dict(re.findall(r"(?m)^# TYPE (\S+) (\S+)$", text))
    for name, told in sorted(re.findall(r"(?m)^# HELP (\S+) (.*)$", text)):
        series = re.findall(rf"(?m)^{name}(?:_bucket|_sum|_count)?\{{(.*)\}} ", text)
        labels = dict.fromkeys(label for one in series
                               for label in re.findall(r'(\w+)="(?:[^"\\]|\\.)*"', one))
        yield name, types[name], list(labels), told


def page(text):
    rows = list(families(text))
    parts = [HEAD]
    for title, pattern, told in PARTS:
        parts.append(f"## {title}\n\n{told}\n\n| metric | type | labels | |\n|---|---|---|---|\n" +
                     "".join(f"| `{name}` | {kind} | {', '.join(f'`{each}`' for each in labels)} "
                             f"| {said} |\n" for name, kind, labels, said in rows
                             if re.match(pattern, name)))
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(page(metrics(sys.argv[1])))
