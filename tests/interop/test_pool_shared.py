# SPDX-License-Identifier: MIT
"""A pool that several use at once, that waits, and that is used as its man page shows."""
import collections
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from pool import Pool
from program import SOURCE, STINT, stint


# ---- Several at once ----------------------------------------------------------------------------

LOOP = 'while key=$("$0" pool next "$@") || { [ $? = 3 ] && exit; exit 9; }; do echo "$key"; done'


def shells(count, pool, loop=LOOP):
    command = ["sh", "-c", loop, STINT, *map(str, pool.arguments())]
    return [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
            for _ in range(count)]


@pytest.mark.parametrize("quota,weights", [
    ("window 20/10m", []),                    # constant memory
    ("log 20/10m", []),                       # a state for each key
    ("window 20/10m", ["--weight", "b=3"]),
])
def test_two_shells_at_once_share_the_pool(tmp_path, quota, weights):
    """Together they get what the quotas give, all of it, and no key passes its own."""
    pool = Pool(tmp_path, "a,b,c", quota, *weights)
    running = shells(2, pool)
    drawn = [process.communicate(timeout=60)[0].split() for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert collections.Counter(drawn[0] + drawn[1]) == {"a": 20, "b": 20, "c": 20}
    assert all(drawn)


def test_whoever_is_killed_leaves_the_pool_as_it_is(tmp_path):
    """kill -9, again and again, of one that asks: no key passes its limit, and others go on."""
    pool = Pool(tmp_path, "a,b,c", "window 60/10m")
    drawn = []
    for _ in range(15):
        (victim,) = shells(1, pool)
        drawn.append(victim.stdout.readline().strip())
        time.sleep(0.01)  # somewhere in its work
        os.killpg(victim.pid, signal.SIGKILL)
        drawn.extend(victim.stdout.read().split())
        victim.wait(10)
        victim.stdout.close()
    killed = 15
    (last,) = shells(1, pool)
    drawn.extend(last.communicate(timeout=60)[0].split())
    assert last.returncode == 0
    counts = collections.Counter(drawn)
    assert set(counts) == {"a", "b", "c"} and max(counts.values()) <= 60
    # Each that was killed may have charged one use that nobody got.
    assert 180 - killed <= sum(counts.values()) <= 180


def test_real_time_with_two_shells(tmp_path):
    """Never more than 4 of a key in any 300 ms, by times taken after each was given: later ones
    make a window only longer. Real time, as the clock of the table is part of what is shown."""
    pool = Pool(tmp_path, "a,b", "window 4/300ms")
    arguments = [str(word) for word in pool.arguments()[:-2]]
    loop = ('for i in 1 2 3 4 5 6 7 8 9 10; do '
            'before=$(date +%s%N); key=$("$0" pool next --wait "$@") || exit 1; '
            'echo "$key $before $(date +%s%N)"; done')
    running = [subprocess.Popen(["sh", "-c", loop, STINT, *arguments], stdout=subprocess.PIPE,
                                text=True) for _ in range(2)]
    lines = [line.split() for process in running
             for line in process.communicate(timeout=60)[0].splitlines()]
    assert [process.returncode for process in running] == [0, 0] and len(lines) == 20
    for name in "ab":
        # A use lies between its two times: five of them wholly within 300 ms would be too many.
        spans = sorted((int(end), int(begin)) for key, begin, end in lines if key == name)
        for first, last in zip(spans, spans[4:]):
            within = [begin for end, begin in spans if first[0] <= end <= last[0]]
            assert last[0] - min(within) >= 300_000_000


# ---- Waiting ------------------------------------------------------------------------------------

def real(tmp_path, quota="log 1/400ms"):
    return ["--state", str(tmp_path / "real.stint"), "--keys", "a", "--quota", quota]


def test_wait_waits_until_a_key_is_free(tmp_path):
    arguments = real(tmp_path)
    started = time.monotonic()
    assert stint("pool", "next", *arguments)[0] == "a\n"
    assert stint("pool", "next", "--wait", *arguments)[0] == "a\n"
    assert stint("pool", "next", "--wait=20s", *arguments)[0] == "a\n"
    assert 0.8 <= time.monotonic() - started < 20


def test_wait_does_not_wait_in_vain(tmp_path):
    arguments = real(tmp_path, "log 1/1h")
    stint("pool", "next", *arguments)
    started = time.monotonic()
    wait = float(stint("pool", "next", "--wait=10s", *arguments, code=3)[0])
    assert time.monotonic() - started < 5 and 3500 < wait <= 3600
    stint("pool", "report", "a", "out", *arguments)
    assert stint("pool", "next", "--wait", *arguments, code=3)[0] == "never\n"


def test_wait_sees_what_others_give_back(tmp_path):
    """The key would return in an hour; it comes back when it is given back."""
    arguments = real(tmp_path, "log 1/1h")
    stint("pool", "next", *arguments)
    with subprocess.Popen([STINT, "pool", "next", "--wait", *arguments], stdout=subprocess.PIPE,
                          text=True) as waiting:
        time.sleep(0.2)
        assert waiting.poll() is None
        stint("pool", "give-back", "a", *arguments)
        assert waiting.communicate(timeout=10)[0] == "a\n"
        assert waiting.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_wait_and_takes_no_key(tmp_path, number):
    arguments = real(tmp_path, "log 1/2s")
    stint("pool", "next", *arguments)
    with subprocess.Popen([STINT, "pool", "next", "--wait", *arguments],
                          stdout=subprocess.PIPE) as waiting:
        time.sleep(0.2)
        waiting.send_signal(number)
        assert waiting.wait(5) == -number
        assert waiting.stdout.read() == b""
    assert stint("pool", "next", "--wait", *arguments)[0] == "a\n"


def test_a_signal_that_is_ignored_does_not_end_the_wait(tmp_path):
    """As in the background of a script, where shells have SIGINT ignored."""
    arguments = real(tmp_path, "log 1/1s")
    stint("pool", "next", *arguments)
    command = ["sh", "-c", 'trap "" INT; exec "$0" pool next --wait "$@"', STINT, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as waiting:
        comm = Path(f"/proc/{waiting.pid}/comm")
        ends = time.monotonic() + 20
        while comm.read_text() != "stint\n":  # it was the shell, which ignores nothing at first
            assert time.monotonic() < ends
            time.sleep(0.01)
        time.sleep(0.2)
        waiting.send_signal(signal.SIGINT)
        assert waiting.communicate(timeout=10)[0] == "a\n"
        assert waiting.returncode == 0


def test_a_name_that_could_not_be_printed_is_not_charged(tmp_path):
    pool = Pool(tmp_path, "a", "log 1/10m")
    command = [STINT, "pool", "next", *map(str, pool.arguments())]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1 and b"cannot write to standard output" in done.stderr
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert done.returncode == 1
    assert pool.next() == "a"


# ---- The example of the man page ----------------------------------------------------------------

def test_the_example_with_curl(tmp_path):
    """As it stands in the page. A stand-in for curl says 429 once, and refuses one key always. It
    finds no secret among its arguments."""
    page = (SOURCE / "docs/man/stint-pool.1.scd").read_text()
    (script,) = re.findall(r"```\n(set -- .*?)```", page, re.S)
    script = script.replace("\\\\", "\\").replace("500/10m", "3/1s")
    curl = tmp_path / "curl"
    curl.write_text("""#!/bin/sh
case "$*" in *"-s -K - -o page -w"*http*) ;; *) exit 9;; esac
case "$*" in *Zq*) exit 8;; esac
read -r name equals rest
secret=${rest#\\"Authorization: Bearer } secret=${secret%\\"}
echo "$secret" >> used
case $secret in
Zq-bad) printf '401 ';;
*) if [ ! -e once ]; then touch once; printf '429 1'; else printf '200 '; fi;;
esac
""")
    curl.chmod(0o755)
    (tmp_path / "keys").write_text("a Zq-one\nbad Zq-bad\nc Zq-three\n")
    (tmp_path / "keys").chmod(0o600)
    (tmp_path / "urls").write_text("http://x/\n" * 9)
    path = f"{tmp_path}:{os.path.dirname(STINT)}:{os.environ['PATH']}"
    done = subprocess.run(["sh", "-c", script], cwd=tmp_path, env=dict(os.environ, PATH=path),
                          capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    used = collections.Counter((tmp_path / "used").read_text().split())
    assert used["Zq-bad"] == 1 and sum(used.values()) == 9
    state = ["--state", tmp_path / "pool.stint", "--keys", f"@{tmp_path}/keys",
             "--quota", "3/1s"]
    told = {key["key"]: key["standing"]
            for key in json.loads(stint("pool", "status", "--json", *state)[0])["keys"]}
    assert told["bad"] == "out"
