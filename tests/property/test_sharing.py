# SPDX-License-Identifier: MIT
"""B13, B24, B26, B29: threads and processes on one table admit exactly what one would."""

import os
import signal
import threading

import pytest

import stint_abi as abi
from oracle import UseLog
from stint_table import Table
from strategies import MINUTE, S

K = abi.K
SPECS = ["window 500/1m", "window 500/1m resolution=12", "window 500/1m resolution=100",
         "gcra 500/1m", "log 500/1m",
         "fixed_window 500/1m", "sliding_counter 500/1m",
         "buckets 500/1m time_slack=6s count_slack=50"]


def run_threads(count, work):
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("spec", SPECS)
def test_threads_on_one_key_admit_exactly_n_without_a_spurious_error(spec):
    """B13, B24: no retry cap, no lost update; every answer is an ALLOW or a true DENY."""
    quota, answers = abi.parse(spec), [[] for _ in range(4)]
    with Table(keys_wide=16, wide_size=8192) as table:
        table.at(S)

        def work(number):
            for _ in range(300):
                answers[number].append(table.take(quota, b"hot").outcome)

        run_threads(4, work)
    outcomes = [outcome for part in answers for outcome in part]
    assert outcomes.count("allow") == 500
    assert outcomes.count("deny") == 700


def test_threads_over_lists_in_any_order_conserve_units():
    """B8: keys named in opposite orders, duplicates too: no deadlock, no unit lost or minted."""
    quota, granted = abi.parse("window 300/1m"), [0] * 4
    with Table() as table:
        table.at(S)

        def work(number):
            names = [b"a", b"b", b"c"][:: 1 if number % 2 else -1]
            for _ in range(200):
                items = [(quota, name, 1) for name in names] + [(quota, names[0], 1)]
                granted[number] += table.take_all(*items).outcome == "allow"

        run_threads(4, work)
        total = sum(granted)
        left = [table.peek((quota, k, 0)).remaining for k in (b"a", b"b", b"c")]
        kept = table.info().undo_kept_units
    for remaining, uses in zip(left, (1, 1, 1)):
        assert 300 - 2 * total - kept <= remaining <= 300 - uses * total
    assert total >= 100


def in_children(count, work):
    """Runs work(number) in forked children; the sum of what each of them returns."""
    pipes = []
    for number in range(count):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(write, b"%d" % work(number))
            os._exit(0)
        os.close(write)
        pipes.append((child, read))
    total = 0
    for child, read in pipes:
        total += int(os.read(read, 20) or b"0")
        os.close(read)
        os.waitpid(child, 0)
    return total


@pytest.mark.parametrize("spec", SPECS)
def test_forked_processes_share_one_limit(spec):
    """B26: prefork does not multiply the limit."""
    quota = abi.parse(spec)
    with Table(memory=K.STINT_MEMORY_SHARED, keys_wide=16, wide_size=8192) as table:
        table.at(S)
        granted = in_children(
            4, lambda _: sum(table.take(quota, b"hot").granted for _ in range(300)))
        assert granted == 500
        assert table.take(quota, b"hot").outcome == "deny"


@pytest.mark.parametrize("spec", SPECS)
def test_a_killed_process_leaves_a_valid_table(spec, tmp_path):
    """B26: kill -9 in the middle of its work; others go on, and no window holds more than N."""
    quota = abi.parse(spec)
    bound = abi.lib.stint_max_in_any_window(abi.c.byref(quota))
    with Table(path=str(tmp_path / "table").encode(), keys_wide=16, wide_size=8192) as table:
        table.at(S)
        for turn in range(10):
            read, write = os.pipe()
            child = os.fork()
            if child == 0:
                while True:
                    table.take(quota, b"hot %d" % turn)
                    os.write(write, b".")
            os.read(read, 1 + turn)  # it is at work
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(read)
            os.close(write)
            table.take(quota, b"hot %d" % turn, 0)
        uses = UseLog()
        for turn in range(60):
            table.at(S + turn * 2 * S)
            uses.add(table.now, table.take_upto((quota, b"hot 3", 100)).granted)
        assert 0 < uses.most_in_any(MINUTE) <= bound


def test_a_file_keeps_its_states_over_a_restart(tmp_path):
    """B21, B26: counters are not lost on a restart, and the limit does not start afresh."""
    path, quota = str(tmp_path / "table").encode(), abi.parse("window 5/1m")
    with Table(path=path) as table:
        table.at(S).take(quota, b"key", 5)
        table.block(b"bad", MINUTE)
    with Table(path=path) as table:
        assert table.info().restored
        assert table.at(2 * S).take(quota, b"key").outcome == "deny"
        assert table.take(quota, b"bad").outcome == "deny"
        assert table.at(3 * MINUTE).take(quota, b"key", 5).outcome == "allow"


def test_a_file_that_is_not_a_table_is_refused(tmp_path):
    """B29: magic, version and sizes stand in the header, and are looked at before anything else."""
    path = tmp_path / "table"
    with Table(path=str(path).encode()) as table:
        table.at(S).take(abi.parse("window 5/1m"), b"key")
    good = path.read_bytes()
    for name, text in (("empty", b""), ("short", good[:100]), ("zeros", bytes(len(good))),
                       ("text", b"not a table\n" * 1000), ("cut", good[:len(good) // 2]),
                       ("flipped", bytes([good[0] ^ 1]) + good[1:])):
        broken = tmp_path / name
        broken.write_bytes(text)
        if name == "empty":
            continue  # an empty file is a new table's
        with pytest.raises(abi.Refused) as refusal:
            Table(path=str(broken).encode())
        assert refusal.value.code in (K.STINT_E_CORRUPT, K.STINT_E_VERSION), name


def test_a_real_clock_does_not_open_what_a_virtual_one_made(tmp_path):
    """B3, B4: times of different clocks are never compared."""
    path = str(tmp_path / "table").encode()
    with Table(path=path):
        pass
    with pytest.raises(abi.Refused):
        Table(path=path, clock=K.STINT_CLOCK_REAL)
    with Table(clock=K.STINT_CLOCK_REAL) as table:
        first = abi.lib.stint_now(table.handle)
        assert abi.lib.stint_now(table.handle) >= first


def test_a_snapshot_opens_as_a_table_with_the_same_states(tmp_path):
    quota, error = abi.parse("window 5/1m"), abi.Error()
    with Table() as table:
        table.at(S).take(quota, b"key", 4)
        path = str(tmp_path / "copy").encode()
        code = abi.lib.stint_table_snapshot(table.handle, abi.c.c_char_p(path), abi.c.byref(error))
        assert code == K.STINT_OK, error.message
        with Table(path=path, must_exist=True) as copy:
            assert copy.at(S).peek((quota, b"key", 0)).remaining == 1
