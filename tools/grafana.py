#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: grafana.py > packaging/dashboards/stint.json

Writes the Grafana dashboard from the rows and queries below. tests/interop/test_monitoring.py
compares it with the file, and runs each query on a Prometheus that scrapes a loaded server.
"""
import json
import sys
from dataclasses import dataclass

COLUMNS = 24
RATE = "[$__rate_interval]"

# Selectors. `.*` of "All" also matches decisions on quotas that callers bring along: these have an
# empty domain and rule, which a list of the known values would leave out.
SERVER = 'job=~"$job", instance=~"$instance"'
RULE = f'{SERVER}, domain=~"$domain", rule=~"$rule"'
DENIED = f'{RULE}, outcome=~"deny|never|banned"'
DECIDED = f'{RULE}, outcome!="replaced"'


def rate(metric, by="", where=SERVER, function="rate"):
    return f"sum{f' by ({by})' if by else ''} ({function}({metric}{{{where}}}{RATE}))"


def quantile(q, metric, by=""):
    le = f"{by}, le" if by else "le"
    return f"histogram_quantile({q}, {rate(f'{metric}_bucket', le)})"


def denied_share(by=""):
    """Of the descriptors that were decided. One that another rule replaced was not."""
    metric = "stint_decisions_total"
    return f"{rate(metric, by, DENIED)}\n/ {rate(metric, by, DECIDED)}"


def of_servers(function, metric, by="instance"):
    return f"{function} by ({by}) ({metric}{{{SERVER}}})"


# `keys`, `keys16` and `keys_wide` are reached at 3/4 of the slots.
TABLE_FILL = (f"max by (instance, size) (stint_table_keys{{{SERVER}}}\n"
              f"/ (0.75 * stint_table_places{{{SERVER}}}))")


@dataclass
class Panel:
    title: str
    unit: str
    queries: list  # (legend, PromQL)
    text: str = ""  # what it means, at the panel's (i)
    kind: str = "timeseries"
    width: int = 8
    stacked: bool = False
    most: float = None  # of the axis
    bad: float = None  # a stat is red from this value on
    values: dict = None  # names of numbers


def stat(title, unit, query, text="", legend="", **more):
    return Panel(title, unit, [(legend, query)], text, kind="stat", width=3, **more)


ROWS = [
    ("Overview", [
        stat("Servers", "short", f"count(stint_build_info{{{SERVER}}})"),
        stat("Decisions", "ops", rate("stint_decisions_total", where=RULE)),
        stat("Denied", "percentunit", denied_share(),
             "Share of the descriptors that were decided: outcomes deny, never and banned."),
        stat("Decision, p99", "s", quantile(0.99, "stint_decision_duration_seconds"),
             "One batch of requests in 64 is measured. Waits for stores are not included.",
             bad=0.001),
        stat("Fullest table", "percentunit", f"max({TABLE_FILL})",
             "Live keys, of the capacity that keys, keys16 and keys_wide set.", bad=0.9),
        stat("Stores unavailable", "short",
             f"count(stint_store_away_seconds{{{SERVER}}} > 0) or vector(0)",
             "Pairs of a server and a store that it cannot reach.", bad=1),
        stat("Failed reloads", "short",
             f"count(stint_config_last_reload_successful{{{SERVER}}} == 0) or vector(0)",
             "Servers whose last reload failed. They keep the rules before it.", bad=1),
        stat("Version", "short", f"count by (version) (stint_build_info{{{SERVER}}})",
             legend="{{version}}"),
    ]),
    ("Decisions", [
        Panel("Decisions by outcome", "ops",
              [("{{outcome}}", rate("stint_decisions_total", "outcome", RULE))],
              "allow and deny; never: more units than the limit has; banned: the key is blocked; "
              "shadow: over the limit and allowed; replaced: another rule applied.", stacked=True),
        Panel("Denied share of a rule, highest 10", "percentunit",
              [("{{domain}} {{rule}}", f"topk(10, {denied_share('domain, rule')})")], most=1),
        Panel("Decision duration", "s",
              [(f"p{100 * q:g}", quantile(q, "stint_decision_duration_seconds"))
               for q in (0.5, 0.99, 0.999)],
              "One batch of requests in 64 is measured. Waits for stores are not included."),
        Panel("Units granted by a rule, highest 10", "cps",
              [("{{domain}} {{rule}}",
                f"topk(10, {rate('stint_units_total', 'domain, rule', RULE)})")]),
        Panel("What candidates and shadow rules would deny", "ops",
              [("candidate of {{domain}} {{rule}}",
                rate("stint_candidate_over_total", "domain, rule", RULE)),
               ("shadow {{domain}} {{rule}}",
                rate("stint_decisions_total", "domain, rule", f'{RULE}, outcome="shadow"'))]),
        Panel("Descriptors without a limit", "ops",
              [("no rule in {{domain}}",
                rate("stint_unmatched_descriptors_total", "domain",
                     f'{SERVER}, domain=~"$domain"')),
               ("no such domain", rate("stint_unknown_domain_descriptors_total")),
               ("all rules in shadow mode", rate("stint_all_shadow_requests_total"))],
              "They are allowed. The log names the domain and the keys."),
    ]),
    ("Requests and connections", [
        Panel("Requests by verb", "reqps",
              [("{{frontend}} {{verb}}", rate("stint_requests_total", "frontend, verb"))]),
        Panel("Errors", "reqps",
              [("{{frontend}} {{error}}", rate("stint_request_errors_total", "frontend, error")),
               ("{{frontend}} malformed", rate("stint_malformed_total", "frontend")),
               ("{{frontend}} wrong secret", rate("stint_wrong_secrets_total", "frontend"))]),
        Panel("Connections open", "short",
              [("{{instance}} {{frontend}}",
                of_servers("sum", "stint_connections", "instance, frontend"))]),
        Panel("Connections opened and refused", "cps",
              [("{{frontend}} opened", rate("stint_connections_opened_total", "frontend")),
               ("{{frontend}} refused: {{reason}}",
                rate("stint_connections_refused_total", "frontend, reason"))]),
        Panel("Bytes", "Bps",
              [("{{frontend}} received", rate("stint_received_bytes_total", "frontend")),
               ("{{frontend}} sent", rate("stint_sent_bytes_total", "frontend"))]),
        Panel("Key pools", "reqps",
              [("{{pool}} {{result}}", rate("stint_pool_next_total", "pool, result"))],
              "Requests for a key. wait: no key is free now; never: no key can have that cost."),
    ]),
    ("Table", [
        Panel("Live keys, of the configured capacity", "percentunit",
              [("{{instance}} {{size}}", TABLE_FILL)],
              "By the size of a state: keys (8 bytes), keys16, keys_wide. Near 1, new keys find "
              "their slots full."),
        Panel("Slots reused", "ops",
              [('{{instance}} lossless={{lossless}}',
                rate("stint_evictions_total", "instance, lossless"))],
              "lossless=true: expired states. lossless=false: live states, which were forgotten."),
        Panel("New keys without a free slot", "ops",
              [("{{instance}} {{outcome}}", rate("stint_table_full_total", "instance, outcome"))],
              "What table_full or when_full did with them."),
        Panel("Units forgotten", "cps",
              [("{{instance}}", rate("stint_forgotten_units_total", "instance"))],
              "Their keys may use so many units more than the limit."),
        Panel("Different quotas, of the capacity", "percentunit",
              [("{{instance}}",
                f"max by (instance) (stint_table_quotas{{{SERVER}}}\n"
                f"/ stint_table_quotas_max{{{SERVER}}})")]),
        Panel("Blocked keys, overrides, kept replies", "short",
              [(f"{{{{instance}}}} {name}", of_servers("max", metric)) for name, metric in
               (("blocked", "stint_blocked_keys"), ("overrides", "stint_overrides"),
                ("replies", "stint_kept_answers"))]),
    ]),
    ("Reservations", [
        Panel("Requests for reservations", "reqps",
              [("{{verb}}", rate("stint_requests_total", "verb",
                                 f'{SERVER}, verb=~"reserve|settle|cancel|renew"'))]),
        Panel("Never settled", "ops",
              [("{{action}}", rate("stint_reservations_expired_total", "action"))],
              "keep: charged as estimated; floor: a number of units stays charged; release: all "
              "is given back."),
        Panel("Closed too early, or not given back", "cps",
              [("the ring of tickets was full", rate("stint_tickets_dropped_total")),
               ("too many open in a store", f"{rate('stint_expiries_lost_total')}\n"
                f"+ (sum(rate(stint_store_tickets_dropped_total{{{SERVER}}}{RATE})) "
                "or vector(0))"),
               ("units not given back", rate("stint_expiry_kept_units_total"))]),
    ]),
    ("Shared stores", [
        Panel("Requests to stores", "reqps",
              [("{{store}}", rate("stint_store_asks_total", "store")),
               ("{{store}} denied by the cache", rate("stint_deny_cache_hits_total", "store"))]),
        Panel("Store requests without a decision", "reqps",
              [("{{store}} {{reason}}", rate("stint_store_errors_total", "store, reason"))]),
        Panel("Store latency", "s",
              [(f"{{{{store}}}} p{100 * q:g}", quantile(q, "stint_store_latency_seconds", "store"))
               for q in (0.5, 0.99)]),
        Panel("Breaker", "short",
              [("{{instance}} {{store}}",
                of_servers("max", "stint_store_state", "instance, store"))], most=2,
              values={0: "closed", 1: "probing", 2: "open"}),
        Panel("Unavailable for", "s",
              [("{{instance}} {{store}}",
                of_servers("max", "stint_store_away_seconds", "instance, store"))]),
        Panel("Units leased and not used", "short",
              [("{{instance}} {{store}}",
                of_servers("sum", "stint_lease_units", "instance, store"))]),
        Panel("Failovers, and requests for doubtful keys after them", "short",
              [("{{store}} failovers",
                rate("stint_store_failovers_total", "store", function="increase")),
               ("{{store}} denied or charged",
                rate("stint_store_cautious_total", "store", function="increase"))]),
        Panel("memcached: conflicts", "cps",
              [("{{store}} conflicts", rate("stint_store_conflicts_total", "store")),
               ("{{store}} timed out", rate("stint_store_busy_total", "store")),
               ("{{store}} damaged", rate("stint_store_damaged_total", "store"))]),
        Panel("memcached: clock of another server ahead", "s",
              [("{{instance}} {{store}}",
                of_servers("max", "stint_store_clock_skew_seconds", "instance, store"))]),
    ]),
    ("Configuration", [
        Panel("Rules in force", "short", [("{{instance}}", of_servers("max", "stint_rules"))]),
        Panel("Reloads", "short",
              [("{{instance}} {{result}}",
                rate("stint_config_reloads_total", "instance, result", function="increase"))]),
        Panel("Last reload", "short",
              [("{{instance}}",
                of_servers("min", "stint_config_last_reload_successful"))], most=1,
              values={0: "failed", 1: "succeeded"}),
    ]),
    ("Control planes", [
        Panel("Connected", "short",
              [("{{instance}} {{control_plane}}",
                of_servers("min", "stint_xds_connected", "instance, control_plane"))], most=1,
              values={0: "lost", 1: "connected"}),
        Panel("Updates, and responses refused", "short",
              [(f"{{{{control_plane}}}} {name}",
                rate(metric, "control_plane", function="increase")) for name, metric in
               (("updates", "stint_xds_updates_total"), ("refused", "stint_xds_nacks_total"))]),
        Panel("Time since the last update", "s",
              [("{{instance}} {{control_plane}}",
                of_servers("max", "stint_xds_update_age_seconds", "instance, control_plane"))],
              "A control plane sends nothing while nothing changes."),
    ]),
]
# Annotations know no $__rate_interval, and are evaluated once a minute.
RELOADED = f"changes(stint_config_generation{{{SERVER}}}[1m]) > 0"


# ---- Grafana's form ------------------------------------------------------------------------------

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
GREEN_RED = [{"color": "green", "value": None}]


def defaults(panel):
    """What holds for all series of a panel."""
    of_all = {"unit": panel.unit, "min": 0}
    if panel.most is not None:
        of_all["max"] = panel.most
    if panel.values:
        of_all["mappings"] = [{"type": "value", "options": {
            str(value): {"text": text, "index": i}
            for i, (value, text) in enumerate(panel.values.items())}}]
    if panel.kind == "stat":
        red = [] if panel.bad is None else [{"color": "red", "value": panel.bad}]
        of_all["thresholds"] = {"mode": "absolute", "steps": GREEN_RED + red}
    else:
        of_all["custom"] = {"drawStyle": "line", "lineWidth": 1,
                            "fillOpacity": 30 if panel.stacked else 10, "showPoints": "never",
                            "stacking": {"mode": "normal" if panel.stacked else "none"}}
    return of_all


def options(panel):
    if panel.kind != "stat":
        return {"legend": {"displayMode": "list", "placement": "bottom"},
                "tooltip": {"mode": "multi", "sort": "desc"}}
    return {"colorMode": "value", "graphMode": "area",
            "textMode": "value_and_name" if panel.queries[0][0] else "value",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}


def targets(panel):
    return [{"refId": chr(ord("A") + i), "expr": expr, "legendFormat": legend,
             "editorMode": "code", "range": True} for i, (legend, expr) in enumerate(panel.queries)]


def panels():
    """In rows; a row of the grid has 24 columns."""
    number, y = 0, 0
    for title, of_row in ROWS:
        number += 1
        yield {"id": number, "type": "row", "title": title, "collapsed": False, "panels": [],
               "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1}}
        x, y = 0, y + 1
        for panel in of_row:
            height = 4 if panel.kind == "stat" else 8
            if x == COLUMNS:
                x, y = 0, y + height
            number += 1
            yield {"id": number, "type": panel.kind, "title": panel.title,
                   "description": panel.text, "datasource": SOURCE,
                   "gridPos": {"x": x, "y": y, "w": panel.width, "h": height},
                   "fieldConfig": {"defaults": defaults(panel), "overrides": []},
                   "options": options(panel), "targets": targets(panel)}
            x += panel.width
        y += height


def variable(name, metric):
    query = f"label_values({metric}, {name})"
    return {"name": name, "label": name.capitalize(), "type": "query", "datasource": SOURCE,
            "query": {"query": query, "refId": name}, "refresh": 2, "sort": 1,
            "multi": True, "includeAll": True, "allValue": ".*",
            "current": {"text": ["All"], "value": ["$__all"]}}


def dashboard():
    return {
        "title": "stint", "uid": "stint", "tags": ["stint", "rate limit"], "editable": True,
        "description": "Servers of stint: decisions, table, shared stores, configuration.",
        "schemaVersion": 39, "version": 1, "refresh": "30s", "timezone": "browser",
        "time": {"from": "now-1h", "to": "now"}, "graphTooltip": 1,
        "annotations": {"list": [{
            "name": "Rules put in force", "enable": True, "iconColor": "blue",
            "datasource": SOURCE, "expr": RELOADED, "titleFormat": "{{instance}}"}]},
        "templating": {"list": [
            {"name": "datasource", "label": "Data source", "type": "datasource",
             "query": "prometheus", "current": {}},
            variable("job", "stint_build_info"),
            variable("instance", 'stint_build_info{job=~"$job"}'),
            variable("domain", f"stint_decisions_total{{{SERVER}}}"),
            variable("rule", f'stint_decisions_total{{{SERVER}, domain=~"$domain"}}'),
        ]},
        "panels": list(panels()),
    }


def text():
    return json.dumps(dashboard(), indent=2) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
