# SPDX-License-Identifier: MIT
"""What an operator sees of an application's table: metrics, the log, and the program `stint`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import stint
from stint.prometheus import Collector
from stint.testing import Clock

SOURCE = Path(os.environ["STINT_SOURCE"])
PROGRAM = os.environ["STINT_BIN"]


def program(*words: object) -> str:
    done = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


# ---- Metrics ------------------------------------------------------------------------------------


def scraped(registry: CollectorRegistry) -> dict[str, float]:
    """Each sample as it is written, name and labels, with its value."""
    return {
        sample.name + "".join(f" {k}={v}" for k, v in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
    }


def registered(**tables: stint.Table) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(Collector(tables))
    return registry


def test_metrics_of_a_table() -> None:
    with stint.Table(keys=1000, clock=Clock()) as table:
        registry = registered(app=table)
        window, gcra = stint.Limiter(table, "5/1m"), stint.Limiter(table, "gcra 5/1m")
        for n in range(7):
            window.take(f"w{n}")
            gcra.take(f"g{n}")
        gcra.block("bot", 60)
        samples = scraped(registry)
        info = table.info()
    assert samples["stint_table_keys size=16 table=app"] == 7
    assert samples["stint_table_keys size=8 table=app"] == 7
    assert samples["stint_table_keys size=wide table=app"] == 0
    assert samples["stint_table_quotas table=app"] == 2
    assert samples["stint_blocked_keys table=app"] == 1
    assert samples["stint_table_bytes table=app"] == info["bytes"] > 0
    assert samples["stint_table_places size=16 table=app"] == info["slots16"] >= 1000


def test_a_full_table_is_counted() -> None:
    """Strict quotas let new keys wait, the others forget keys, and both are counted."""
    with stint.Table(keys=64, clock=Clock()) as table:
        registry = registered(app=table)
        window, gcra = stint.Limiter(table, "5/1m"), stint.Limiter(table, "gcra 5/1m")
        refused = sum(not window.take(f"w{n}") for n in range(1000))
        for n in range(1000):
            gcra.take(f"g{n}")
        samples = scraped(registry)
    assert samples["stint_table_full_total outcome=inherit table=app"] >= refused > 0
    evicted = samples["stint_evictions_total lossless=false table=app"]
    assert evicted == samples["stint_table_full_total outcome=evict table=app"] > 0
    assert samples["stint_forgotten_units_total table=app"] == evicted


def test_several_tables_and_one_that_was_closed() -> None:
    first, second = stint.Table(keys=100), stint.Table(keys=200)
    with first, second:
        registry = registered(first=first, second=second)
        samples = scraped(registry)
        assert samples["stint_table_bytes table=first"] < samples["stint_table_bytes table=second"]
        first.close()
        names = scraped(registry)
        assert "stint_table_bytes table=first" not in names
        assert "stint_table_bytes table=second" in names
        with pytest.raises(ValueError, match="Duplicated"):
            registry.register(Collector({"third": second}))


def documented() -> dict[str, tuple[str, set[str]]]:
    """Of docs/metrics.md: name, type and labels."""
    page = (SOURCE / "docs/metrics.md").read_text()
    rows = re.findall(r"(?m)^\| `(stint_\w+)` \| (\w+) \| (.*?) \|", page)
    return {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}


def test_names_are_those_of_the_server() -> None:
    server = documented()
    with stint.Table(keys=100) as table:
        families = list(Collector({"app": table}).collect())
    for family in families:
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = {label for sample in family.samples for label in sample.labels}
        assert server[name] == (family.type, labels - {"table"})
    assert len(families) > 10


# ---- The log ------------------------------------------------------------------------------------


def test_a_full_table_is_logged_once_for_each_scrape(caplog: pytest.LogCaptureFixture) -> None:
    with stint.Table(keys=64, clock=Clock()) as table:
        limiter = stint.Limiter(table, "5/1m")
        registry = registered(app=table)
        scraped(registry)
        assert caplog.messages == []
        for n in range(1000):
            limiter.take(f"k{n}")
        scraped(registry)
        scraped(registry)
        count = table.info()["evictions_inherit"]
        assert caplog.messages == [f"table app: {count} decisions made a new key wait: the table "
                                   "is full; make a new file with more keys"]
        assert [(r.name, r.levelname) for r in caplog.records] == [("stint", "WARNING")]
        registered(app=table)  # a process that starts later repeats nothing
        assert len(caplog.messages) == 1


# ---- The program --------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A table that an application wrote, and closed."""
    path = tmp_path / "app.stint"
    with stint.Table(path, keys=1000) as table:
        login = stint.Limiter(table, "3/1h", name="login")
        api = stint.Limiter(table, "gcra 100/1h", name="api")
        for _ in range(4):
            login.take("203.0.113.9")
        login.take("203.0.113.10")
        api.take("ada", 40)
    return path


def test_stint_table_shows_it(path: Path) -> None:
    text = program("table", path)
    assert "window 3/1h resolution=24: 2 live, 1 denying" in text
    assert "gcra 100/1h: 1 live, 0 denying" in text
    assert re.search(r"(?m)^ +[0-9a-f]{16} +0 of 3 .* window 3/1h", text)


def test_stint_table_reads_it_while_it_is_in_use(path: Path) -> None:
    with stint.Table(path) as table:
        stint.Limiter(table, "gcra 100/1h", name="api").take("bob")
        shown = json.loads(program("table", "--json", path))
    live = {quota["quota"]: quota["live"] for quota in shown["quotas"]}
    assert live == {"window 3/1h resolution=24": 2, "gcra 100/1h": 2}


def test_the_module_shows_the_same(path: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "stint", "table", str(path)],
                          capture_output=True, text=True, check=True)
    rows = dict(line.split(None, 1) for line in done.stdout.splitlines())
    shown = json.loads(program("table", "--json", path))
    assert int(rows["bytes"]) == shown["bytes"]
    assert (int(rows["live16"]), int(rows["live8"])) == (2, 1)


def test_scripts_share_a_pool_with_an_application(tmp_path: Path) -> None:
    """`stint pool` and stint.Pool, on one file: each key has one unit an hour."""
    path = tmp_path / "pool.stint"
    words = ["--state", path, "--pool", "mail", "--keys", "first,second", "--quota", "1/1h"]
    with stint.Table(path, keys=100) as table:
        pool = stint.Pool(table, "mail", ["first", "second"], quota="1/1h")
        names = {pool.next().name, program("pool", "next", *words).strip()}
        assert names == {"first", "second"}
        assert not pool.next()
    done = subprocess.run([PROGRAM, "pool", "next", *map(str, words)], capture_output=True)
    assert done.returncode == 3


def test_a_file_is_for_its_owner_alone(path: Path) -> None:
    assert path.stat().st_mode & 0o777 == 0o600


OPEN = ("import sys, stint\n"
        "try: stint.Table(sys.argv[1], keys=1_000_000)\n"
        "except stint.TableError as error: print(error.code, error)\n")


def container(*words: object, shell: str) -> str:
    """What a shell prints in namespaces of its own, as in a container; words are its arguments."""
    done = subprocess.run(["unshare", *map(str, words[:2]), "--map-root-user", "sh", "-c", shell,
                           "sh", *map(str, words[2:]), sys.executable, OPEN],
                          capture_output=True, text=True, timeout=60)
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"no namespaces here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_table_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    """In a container /dev/shm has 64 MB: the file is not made, and no process gets SIGBUS later."""
    told = container("--mount", "--fork", tmp_path,
                     shell='mount -t tmpfs -o size=1m tmpfs "$1" && exec "$2" -c "$3" "$1/app"')
    assert told.startswith("SYSTEM ") and "/app" in told and "No space left" in told


def test_another_container_is_refused_while_a_table_is_in_use(path: Path) -> None:
    """Its processes could not see whether one of these has ended."""
    shell = 'exec "$2" -c "$3" "$1"'
    with stint.Table(path):
        assert container("--pid", "--fork", path, shell=shell).startswith("BUSY ")
    assert container("--pid", "--fork", path, shell=shell) == ""
