# SPDX-License-Identifier: MIT
"""What an operator sees of an application's table: metrics, the log, and the program `stint`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

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
        if name == "stint_limiter_decisions_total":  # a server has rules, not limiters
            continue
        labels = {label for sample in family.samples for label in sample.labels}
        assert server[name] == (family.type, labels - {"table"})
    assert len(families) > 10


# ---- Decisions by limiter -----------------------------------------------------------------------


def test_decisions_are_counted_by_limiter_and_outcome() -> None:
    with stint.Table(keys=100, clock=Clock()) as table:
        login = stint.Limiter(table, "3/1m", name="login")
        same = stint.Limiter(table, "3/1m", name="login")
        plain = stint.Limiter(table, "gcra 5/1m", "9/1h")
        for _ in range(4):
            login.take("ann")
        same.take("bob")
        login.take("ann", 9)
        plain.take_upto("ann", 9)
        plain.reserve("bob", 2)
        for verb in (login.peek, plain.peek):
            verb("ann")
        login.charge("ann", 1)
        login.refund("ann", 1)
        assert table.decisions() == {
            "login": {"allow": 4, "deny": 1, "never": 1},
            "gcra 5/1m, window 9/1h resolution=24": {"allow": 2, "deny": 0, "never": 0},
        }
        samples = scraped(registered(app=table))
    assert samples["stint_limiter_decisions_total limiter=login outcome=allow table=app"] == 4
    assert samples["stint_limiter_decisions_total limiter=login outcome=deny table=app"] == 1


def test_names_without_end_are_counted_together() -> None:
    with stint.Table(keys=9000, quotas=4000) as table:
        for n in range(1100):
            stint.Limiter(table, "3/1m", name=f"tenant {n}").take("ann")
        counts = table.decisions()
    assert len(counts) == 1001
    assert counts["(further limiters)"] == {"allow": 100, "deny": 0, "never": 0}
    assert counts["tenant 999"]["allow"] == 1


def test_counts_outlive_the_limiter_and_the_table_is_closed() -> None:
    table = stint.Table(keys=100)
    stint.Limiter(table, "3/1m", name="\x00ü").take("ann")
    table.close()
    assert table.decisions() == {"\x00ü": {"allow": 1, "deny": 0, "never": 0}}


def test_a_rule_counts_the_refusals_that_it_finds_by_looking() -> None:
    from stint.http import Request, Rule

    with stint.Table(keys=100, clock=Clock()) as table:
        few, many = stint.Limiter(table, "1/1m", name="few"), stint.Limiter(table, "9/1m", name="m")
        rule = Rule([few, many], "all")
        request = Request(None, "GET", "/", "", lambda name: (), lambda: None)
        assert [rule.decide(request).passes for _ in range(3)] == [True, False, False]
        assert table.decisions()["few"] == {"allow": 1, "deny": 2, "never": 0}
        assert table.decisions()["m"] == {"allow": 1, "deny": 0, "never": 0}


def test_a_forked_process_begins_at_0() -> None:
    with stint.Table(keys=100) as table:
        login = stint.Limiter(table, "3/1h", name="login")
        login.take("ann")
        child = os.fork()
        if child == 0:
            login.take("ann")
            os._exit(table.decisions()["login"]["allow"])
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
        assert table.decisions()["login"]["allow"] == 1


WORKERS = """
import os, sys
import stint
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from stint.prometheus import Collector, publish

tables = {"app": stint.Table(keys=100)}
login = stint.Limiter(tables["app"], "100/1h", name="login")
for _ in range(5):
    login.take("ann")
publish(tables)
for n in range(1, 4):
    if os.fork() == 0:
        for _ in range(n):
            login.take("ann")
            publish(tables)
        publish(tables)
        os._exit(0)
for _ in range(3):
    assert os.wait()[1] == 0
login.take("ann")
publish(tables)
registry = CollectorRegistry()
MultiProcessCollector(registry)
registry.register(Collector(tables))
sys.stdout.write(generate_latest(registry).decode())
"""


def test_workers_are_added_up_in_multiprocess_mode(tmp_path: Path) -> None:
    """5 in the parent before the forks, 1 + 2 + 3 in its children, which have ended, and 1."""
    done = subprocess.run([sys.executable, "-c", WORKERS], capture_output=True, text=True,
                          env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"(?m)^stint_limiter_decisions_total\{(.*)\} (.*)$", done.stdout)
    counts = {labels: float(value) for labels, value in rows}
    assert counts['limiter="login",outcome="allow",table="app"'] == 5 + 1 + 2 + 3 + 1
    assert len(rows) == 3, "one of each outcome, from one source"
    assert re.search(r'(?m)^stint_table_keys\{size="16",table="app"\} 1.0$', done.stdout)


def test_publish_does_nothing_without_multiprocess_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    from stint.prometheus import _counter, publish

    monkeypatch.delenv("PROMETHEUS_MULTIPROC_DIR", raising=False)
    with stint.Table(keys=100) as table:
        stint.Limiter(table, "1/1m", name="x").take("a")
        publish({"app": table})
    assert _counter().collect()[0].samples == []


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


def look(path: Path, *words: str) -> dict[str, Any]:
    shown = program("top", "--once", "--json", "--interval", "10ms", *words, "--state", path)
    return cast("dict[str, Any]", json.loads(shown))


def test_stint_top_shows_a_table_in_use(path: Path) -> None:
    """The application holds its locks meanwhile: reading takes none, and writes nothing."""
    with stint.Table(path) as table:
        login = stint.Limiter(table, "3/1h", name="login")
        jobs = stint.Limiter(table, "concurrency 5 lease=1h", name="jobs")
        api = stint.Limiter(table, "gcra 100/1h", name="api")
        with jobs.hold("report"), api.reserve("ada", 7):
            before = path.stat()
            shown = look(path)
            text = program("top", "--once", "--interval", "10ms", "--state", path)
            assert path.stat().st_mtime_ns == before.st_mtime_ns
            assert shown["tickets_open"] == 2
        login.take("new")
        after = look(path, "--order", "asked", "--keys", "1")
    quotas = {quota["quota"]: quota for quota in shown["quotas"]}
    assert quotas["gcra 100/1h"]["live"] == 1
    assert 44 <= quotas["gcra 100/1h"]["used"] <= 47
    assert quotas["window 3/1h resolution=24"] == {
        "quota": "window 3/1h resolution=24", "live": 2, "denying": 1, "used": 4}
    assert shown["keys"][0]["remaining"] == 0 and shown["keys"][0]["limit"] == 3
    assert 0 <= shown["idle_ns"] < 600 * 10**9
    assert re.search(r"(?m)^ +0 +3 +3 +\d+ s  [0-9a-f]{16}   window 3/1h", text)
    assert "tickets open 2 of 65,536" in text and str(path) in text.splitlines()[0]
    assert after["fill"]["16_byte"]["live"] == 3
    assert [key["limit"] for key in after["keys"]] == [100], "of ada, who has used the most units"


def test_stint_top_needs_no_more_than_read_permission(path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("another user can only be had as root")
    path.chmod(0o604)
    for folder in path.parents[:3]:
        folder.chmod(folder.stat().st_mode | 0o005)
    words = ["top", "--once", "--json", "--interval", "10ms", "--state", str(path)]

    def as_other() -> None:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)

    with stint.Table(path):
        done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=60,
                              preexec_fn=as_other)
        assert done.returncode == 0, done.stderr
        assert len(json.loads(done.stdout)["keys"]) == 3
        path.chmod(0o600)
        done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=60,
                              preexec_fn=as_other)
    assert done.returncode == 1 and "Permission denied" in done.stderr


def test_stint_top_shows_counters_that_expire(tmp_path: Path) -> None:
    path = tmp_path / "app.stint"
    with stint.Table(path, keys=100) as table:
        table.count("hits", 41, 60)
        shown = look(path, "--order", "asked")
        text = program("top", "--once", "--interval", "10ms", "--state", path)
    assert shown["keys"][0]["count"] == 41
    assert re.search(r"(?m)^ +- +- +41 +\d+ s  [0-9a-f]{16}   counter$", text)


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
