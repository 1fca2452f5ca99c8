# SPDX-License-Identifier: MIT
"""One table in many processes and threads: forked, spawned, killed."""

from __future__ import annotations

import json
import os
import pickle
import random
import signal
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import stint
from stint.testing import Clock
from support import PATIENCE, Grants, finish, fork, most_in_any_window, until

MS = 10**6


def test_forked_processes_share_anonymous_memory(clock: Clock) -> None:
    with stint.Table(keys=100, clock=clock) as table:
        limiter = stint.Limiter(table, "1000/1m", "gcra 900/1h", "log 500/1h", name="hot")
        grants = Grants(4, 1000)

        def work(process: int) -> None:
            for _ in range(400):
                before = table.now()
                if limiter.take("key"):
                    grants.record(process, before, table.now(), 1)

        children = [fork(lambda process=process: work(process)) for process in range(3)]
        work(3)
        finish(*children)
        assert len(grants.all()) == 500
        assert not limiter.take("key")


def test_a_fork_in_the_middle_of_use(shm: Path) -> None:
    """Threads take while others fork; children use what they inherit, and open the file again."""
    path, spec, limit = shm / "table", "sliding_counter 1000000000/1h", 10**9
    with stint.Table(path, keys=100) as table:
        limiter = stint.Limiter(table, spec)
        holder = stint.Limiter(table, "concurrency 400 lease=1h")
        is_over = threading.Event()
        taken = [0, 0]

        def take(thread: int) -> None:
            while not is_over.is_set():
                for _ in range(100):
                    taken[thread] += limiter.take("key").granted
                time.sleep(0.001)  # lets the thread that forks have the interpreter

        def child() -> None:
            assert limiter.take("key")
            with holder.hold("key"):
                pass
            limiter.reserve("key", 5).settle(1)
            with stint.Table(path) as again:
                assert stint.Limiter(again, spec).take("key")
            table.close()

        threads = [threading.Thread(target=take, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        try:
            finish(*[fork(child) for _ in range(50)])
        finally:
            is_over.set()
            for thread in threads:
                thread.join()
        assert limit - limiter.peek("key", 0).remaining == sum(taken) + 50 * 3
        assert holder.peek("key", 0).remaining == 400


def test_a_spawned_process_opens_the_file(shm: Path) -> None:
    with stint.Table(shm / "table", keys=100) as table:
        limiter = stint.Limiter(table, "10/1h", "20/1d", name="login")
        assert limiter.take("key", 4)
        code = ("import pickle, sys; limiter = pickle.load(sys.stdin.buffer);"
                "print(limiter.take('key', 4).remaining, limiter.name, len(limiter.quotas))")
        done = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(limiter),
                              stdout=subprocess.PIPE, check=True)
        assert done.stdout.split() == [b"2", b"login", b"2"]
        assert not limiter.take("key", 3)


@pytest.mark.parametrize("make", [stint.Table, lambda: stint.Table(clock=Clock())])
def test_memory_that_a_spawned_process_cannot_reach(make: type[stint.Table]) -> None:
    with make() as table, pytest.raises(TypeError, match=r"Table\(path\)"):
        pickle.dumps(table)


def test_a_pickled_table_that_is_gone(shm: Path) -> None:
    with stint.Table(shm / "table", keys=16) as table:
        data = pickle.dumps(table)
    (shm / "table").unlink()
    with pytest.raises(stint.TableError):
        pickle.loads(data)
    assert not (shm / "table").exists()


def test_threads_take_exactly_what_there_is(table: stint.Table) -> None:
    limiter = stint.Limiter(table, "1000/1m", "log 500/1h", name="hot")
    granted = []

    def work() -> None:
        granted.append(sum(limiter.take("key").granted for _ in range(300)))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(granted) == 8 and sum(granted) == 500


def test_other_interpreters_of_the_process(shm: Path) -> None:
    """Each has a module of its own; from 3.12 on also one with its own lock."""
    newer = sys.version_info >= (3, 13)
    interpreters = pytest.importorskip("_interpreters" if newer else "_xxsubinterpreters")
    path = str(shm / "table")
    code = (f"import stint; table = stint.Table({path!r});"
            "limiter = stint.Limiter(table, '3/1h'); assert limiter.take('key');"
            "assert isinstance(limiter.peek('key'), stint.Decision); del limiter, table")
    with stint.Table(path, keys=16) as table:
        limiter = stint.Limiter(table, "3/1h")
        for kind in ("isolated", "legacy"):
            made = (interpreters.create(kind) if newer
                    else interpreters.create(isolated=kind == "isolated"))
            failed = (interpreters.exec if newer else interpreters.run_string)(made, code)
            assert failed is None, failed
            interpreters.destroy(made)
        assert limiter.take("key") and not limiter.take("key")


def test_eight_processes_on_one_key(clock: Clock) -> None:
    """100 a second by the table's time: exactly 100, each time that a window has passed."""
    with stint.Table(keys=16, clock=clock) as table:
        limiter = stint.Limiter(table, "100/1s")
        for _ in range(5):
            grants = Grants(8, 200)

            def work(process: int, grants: Grants = grants) -> None:
                for _ in range(200):
                    if limiter.take("key"):
                        grants.record(process, 0, 0, 1)

            finish(*[fork(lambda process=process: work(process)) for process in range(8)])
            assert len(grants.all()) == 100
            clock.advance(limiter.take("key").retry_after)


def test_eight_processes_in_real_time(shm: Path) -> None:
    """No second of the table's time has more than 100 grants, and the key is never stuck."""
    grants = Grants(8, 2000)
    path = shm / "table"

    def work(process: int) -> None:
        with stint.Table(path, keys=16) as table:
            limiter = stint.Limiter(table, "100/1s")
            end = time.monotonic() + PATIENCE
            while len(grants.all()) < 400 and time.monotonic() < end:
                for _ in range(100):
                    before = table.now()
                    if limiter.take("key"):
                        grants.record(process, before, table.now(), 1)
                time.sleep(0)

    with stint.Table(path, keys=16):
        finish(*[fork(lambda process=process: work(process)) for process in range(8)])
    recorded = grants.all()
    assert len(recorded) >= 400
    assert most_in_any_window(recorded, 10**9) <= 100


KILLS = 1000
AT_ONCE = 3
# Words that are swapped, one in 16 bytes, an owner's lock, and all of them in one request.
KILLED_QUOTAS = [("window 40/40ms",), ("gcra 40/40ms burst=10",), ("log 40/40ms",),
                 ("buckets 40/40ms time_slack=10ms count_slack=10",),
                 ("window 60/60ms", "log 50/50ms", "gcra 40/40ms burst=10")]


def limiters_of(table: stint.Table) -> list[stint.Limiter]:
    return [stint.Limiter(table, *quotas, name=str(number))
            for number, quotas in enumerate(KILLED_QUOTAS)]


def test_workers_are_killed_at_random(shm: Path) -> None:
    """1,000 kills: no quota is exceeded in any window, and no key is ever stuck."""
    rng = random.Random(20261123)
    grants = [Grants(KILLS + AT_ONCE, 400) for _ in KILLED_QUOTAS]
    with stint.Table(shm / "table", keys=100, keys_wide=100) as table:
        limiters = limiters_of(table)

        def work(process: int, seed: int) -> None:
            own = random.Random(seed)
            while True:
                number = own.randrange(len(limiters))
                if grants[number].is_full(process):
                    signal.pause()  # a grant without a record would be no evidence
                cost = own.randrange(1, 4)
                before = table.now()
                if limiters[number].take("key", cost):
                    grants[number].record(process, before, table.now(), cost)

        def start(process: int) -> int:
            return fork(lambda: work(process, process))

        workers = [start(process) for process in range(AT_ONCE)]
        processes = list(range(AT_ONCE))
        try:
            for killed in range(KILLS):
                victim = rng.randrange(AT_ONCE)
                # On a busy machine it would otherwise die before it has asked for anything.
                idle_ends = time.monotonic() + 0.02
                while (not any(granted.count(processes[victim]) for granted in grants)
                       and time.monotonic() < idle_ends):
                    time.sleep(0.0002)
                time.sleep(rng.random() * 0.002)
                os.kill(workers[victim], signal.SIGKILL)
                _, status = os.waitpid(workers[victim], 0)
                assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
                processes[victim] = AT_ONCE + killed
                workers[victim] = start(processes[victim])
        finally:
            for worker in workers:
                os.kill(worker, signal.SIGKILL)
                os.waitpid(worker, 0)
        for limiter, granted in zip(limiters, grants):
            records = granted.all()
            assert len(records) > 100, f"{limiter} hardly ran"
            for quota in limiter.quotas:
                most = most_in_any_window(records, quota.period_ns)
                assert most <= quota.max_in_any_window, f"{limiter}: {most} of {quota}"
            until(lambda limiter=limiter: bool(limiter.take("key", 3)), f"{limiter} is free again")
            until(lambda limiter=limiter: limiter.peek("key", 0).reset_after == 0,
                  f"{limiter} is as new")
        with stint.Table(shm / "table") as again:
            assert not again.info()["filled"] and again.info()["states_damaged"] == 0


# ---- Files that are no table of this version -----------------------------------------------------

VERSION_AT = 8  # bytes: after the magic number, the version of the layout
OPEN = "import stint, sys; stint.Table(sys.argv[1])"


def damage(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def test_a_table_of_another_version(shm: Path) -> None:
    path = shm / "table"
    stint.Table(path, keys=16).close()
    (version,) = struct.unpack_from("=I", path.read_bytes(), VERSION_AT)
    damage(path, VERSION_AT, struct.pack("=I", version + 1))
    with pytest.raises(stint.TableError) as caught:
        stint.Table(path)
    assert caught.value.code == "VERSION" and "version" in str(caught.value)
    assert isinstance(caught.value, OSError)
    damage(path, VERSION_AT, struct.pack("=I", version))
    stint.Table(path).close()


def test_two_versions_at_once(shm: Path) -> None:
    """A process of this version has the table open when one of the next tries to."""
    path = shm / "table"
    with stint.Table(path, keys=16) as table:
        limiter = stint.Limiter(table, "2/1h")
        (version,) = struct.unpack_from("=I", path.read_bytes(), VERSION_AT)
        damage(path, VERSION_AT, struct.pack("=I", version + 1))
        done = subprocess.run([sys.executable, "-c", OPEN, str(path)], text=True,
                              stderr=subprocess.PIPE, check=False)
        assert done.returncode == 1 and "TableError" in done.stderr and "version" in done.stderr
        damage(path, VERSION_AT, struct.pack("=I", version))
        assert limiter.take("key", 2) and not limiter.take("key")


def test_a_command_shows_a_table(shm: Path) -> None:
    with stint.Table(shm / "table", keys=100) as table:
        stint.Limiter(table, "1/1h").take("key")
        shown = subprocess.run([sys.executable, "-m", "stint", "table", shm / "table"], text=True,
                               stdout=subprocess.PIPE, check=True).stdout
    values = dict(line.split() for line in shown.splitlines())
    assert values["live16"] == "1" and json.loads(values["bytes"]) == (shm / "table").stat().st_size


@pytest.mark.parametrize(("arguments", "status", "words"), [
    (["explain", "gcra", "100/1m", "burst=20"], 0, "119"),
    (["explain", "widnow 1/1s"], 1, 'did you mean "window"?'),
    (["table", "/nonexistent/table"], 1, "No such file"),
    (["table", "/etc/passwd"], 1, "/etc/passwd"),
    ([], 2, "COMMAND"),
    (["--version"], 0, stint.__version__),
])
def test_commands(arguments: list[str], status: int, words: str) -> None:
    done = subprocess.run([sys.executable, "-m", "stint", *arguments], text=True,
                          capture_output=True, check=False)
    assert done.returncode == status and "Traceback" not in done.stderr
    assert words in (done.stdout if status == 0 else done.stderr)


def test_a_reader_that_leaves() -> None:
    with subprocess.Popen([sys.executable, "-m", "stint", "explain", "1/1s"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
