# SPDX-License-Identifier: MIT
"""Metrics of tables for prometheus_client, and warnings about tables in the log.

    from prometheus_client import REGISTRY
    REGISTRY.register(stint.prometheus.Collector({"app": table}))

The names are those of the server's metrics where they mean the same. All processes that share a
table report the same values of it: scrape any of them. Decisions of limiters are counted by each
process for itself. In the multiprocess mode of prometheus_client the endpoint adds them up:
register the collector in the registry that the endpoint returns, and call publish() in each worker.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Iterator, Mapping

from prometheus_client import Counter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from .table import Table

logger = logging.getLogger("stint")

# name, what it counts, its label, and the entries of Table.info() with the label's values
_GAUGES: tuple[tuple[str, str, str, dict[str, str]], ...] = (
    ("stint_table_bytes", "Memory of the table.", "", {"bytes": ""}),
    ("stint_table_keys", "Keys with a live state, by its size in bytes.", "size",
     {"live8": "8", "live16": "16", "live_wide": "wide"}),
    ("stint_table_places", "Slots for keys, by the size of their states.", "size",
     {"slots8": "8", "slots16": "16", "slots_wide": "wide"}),
    ("stint_table_quotas", "Different quotas known to the table.", "", {"quotas": ""}),
    ("stint_table_quotas_max", "Different quotas that the table can hold.", "",
     {"quotas_max": ""}),
    ("stint_blocked_keys", "Keys blocked now, by a ban or a call.", "", {"blocked": ""}),
)
_COUNTERS: tuple[tuple[str, str, str, dict[str, str]], ...] = (
    ("stint_evictions", "States whose slots were reused for other keys: expired ones, and live "
     "ones.", "lossless", {"evictions_lossless": "true", "evictions_evict": "false"}),
    ("stint_forgotten_units", "Units that evicted states still counted: their keys may use so many "
     "more.", "", {"forgotten_units": ""}),
    ("stint_table_full", "Decisions on new keys that found no free slot.", "outcome",
     {"evictions_inherit": "inherit", "evictions_evict": "evict", "full_denied": "deny",
      "full_allowed": "allow"}),
    ("stint_undo_kept_units", "Units charged by a denied list of quotas that could not be "
     "returned.", "", {"undo_kept_units": ""}),
    ("stint_tickets_dropped", "Reservations closed as estimated, as the ring was full.", "",
     {"tickets_dropped": ""}),
    ("stint_reservations_expired", "Reservations that were not settled by their deadline.",
     "action", {"reservations_expired": "keep"}),
    ("stint_owners_displaced", "States whose lock was taken over from a process that had ended or "
     "was stuck.", "", {"owners_displaced": ""}),
    ("stint_states_damaged", "States found damaged when the table was opened.", "",
     {"states_damaged": ""}),
)
_DECISIONS = ("stint_limiter_decisions", "Decisions of the limiters of a table in this process, by "
              "the limiter's name.", ("table", "limiter", "outcome"))
_LARGER = "the table is full; make a new file with more keys"
# Entries of Table.info() that a healthy table does not raise, with what to log.
_TROUBLES = {
    "evictions_inherit": f"decisions made a new key wait: {_LARGER}",
    "evictions_evict": f"live states were evicted: {_LARGER}",
    "full_denied": f"decisions denied a new key: {_LARGER}",
    "full_allowed": f"decisions allowed a new key that was not stored: {_LARGER}",
    "tickets_dropped": "reservations were closed as estimated; make a new file with more tickets",
    "states_damaged": "states were damaged when the file was opened: their keys are full for one "
                      "period, or forgotten",
}


class Collector:
    """Metrics of tables, for CollectorRegistry.register().

    tables: a value of the label `table` for each table. A scrape reads every slot of the tables,
    some milliseconds for 100,000 keys, and logs a WARNING (logger `stint`) for each trouble that a
    table has had since the scrape before. Tables that were closed are left out. Any thread.
    """

    def __init__(self, tables: Mapping[str, Table]) -> None:
        self._tables = dict(tables)
        self._seen: dict[tuple[str, str], int] = {}
        for name, info in self._infos():
            if info["filled"]:
                logger.warning("table %s: the system ended without closing it; keys that were in "
                               "use are full for one period", name)
            self._warn(name, info, since_opening=False)

    def describe(self) -> Iterator[Metric]:
        """Names and types alone: a second collector in a registry is refused."""
        for kinds, family in ((_GAUGES, GaugeMetricFamily), (_COUNTERS, CounterMetricFamily)):
            for name, text, _, _ in kinds:
                yield family(name, text)
        if not _is_multiprocess():
            yield CounterMetricFamily(*_DECISIONS[:2])

    def collect(self) -> Iterator[Metric]:
        infos = list(self._infos())
        for name, info in infos:
            self._warn(name, info)
        for kinds, family in ((_GAUGES, GaugeMetricFamily), (_COUNTERS, CounterMetricFamily)):
            for metric_name, text, label, entries in kinds:
                labels = ["table", label] if label else ["table"]
                metric = family(metric_name, text, labels=labels)
                for name, info in infos:
                    for entry, value in entries.items():
                        metric.add_metric([name, value] if label else [name], info[entry])
                yield metric
        if not _is_multiprocess():
            decisions = CounterMetricFamily(*_DECISIONS[:2], labels=_DECISIONS[2])
            for values, count in _decisions_of(self._tables):
                decisions.add_metric(values, count)
            yield decisions

    def _infos(self) -> Iterator[tuple[str, dict[str, int]]]:
        for name, table in self._tables.items():
            if not table.closed:
                yield name, table.info()

    def _warn(self, name: str, info: Mapping[str, int], *, since_opening: bool = True) -> None:
        for entry, text in _TROUBLES.items():
            before = self._seen.get((name, entry), 0)
            self._seen[name, entry] = info[entry]
            # What a file counted before this process is not news, but for damage at its opening.
            if info[entry] > before and (since_opening or entry == "states_damaged"):
                logger.warning("table %s: %d %s", name, info[entry] - before, text)


# ---- Decisions ----------------------------------------------------------------------------------


def _decisions_of(tables: Mapping[str, Table]) -> Iterator[tuple[tuple[str, str, str], int]]:
    for name, table in tables.items():
        if not table.closed:
            for limiter, outcomes in table.decisions().items():
                for outcome, count in outcomes.items():
                    yield (name, limiter, outcome), count


def _is_multiprocess() -> bool:
    """As prometheus_client finds out."""
    return "PROMETHEUS_MULTIPROC_DIR" in os.environ or "prometheus_multiproc_dir" in os.environ


@functools.lru_cache(None)
def _counter() -> Counter:
    """In no registry: its values are in files, which MultiProcessCollector reads."""
    return Counter(*_DECISIONS, registry=None)


class _Published:
    """What publish() has added so far in one process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.counts: dict[tuple[str, str, str], int] = {}


_published = _Published()


def publish(tables: Mapping[str, Table]) -> None:
    """In multiprocess mode: adds the decisions since the call before to this worker's metrics.

    tables: as for Collector. Each worker calls it, such as after a request, or once a second: it
    takes some microseconds. Decisions that follow the last call of a worker are missing. Without
    multiprocess mode it does nothing, as the collector reports the decisions itself. Any thread.
    """
    global _published
    if not _is_multiprocess():
        return
    if _published.pid != os.getpid():
        _published = _Published()  # a child begins at 0, and a fork may have left the lock held
    with _published.lock:
        for labels, count in _decisions_of(tables):
            before = _published.counts.get(labels, -1)
            if count == before:
                continue
            if not 0 <= before < count:  # new, or of a table that was opened anew
                before = 0
            _counter().labels(*labels).inc(count - before)
            _published.counts[labels] = count
