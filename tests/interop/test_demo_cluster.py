# SPDX-License-Identifier: MIT
"""What `make demo-cluster` runs: it shows what it is for, fails where a bound is passed, and leaves
nothing behind when it is stopped."""
import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import admissions
import crowd
import fleet
import pytest
from program import SOURCE
from redis_server import until

sys.path.insert(0, str(SOURCE / "bench/server"))
import demo_cluster  # noqa: E402  (its folder is named just above)

BUILD = os.environ.get("STINT_BUILD", str(SOURCE / "build"))
COMMAND = [str(SOURCE / "bench/server/demo_cluster.py"), BUILD]


def test_it_kills_a_master_and_shows_what_was_granted(tmp_path):
    path = tmp_path / "demo.json"
    done = subprocess.run([*COMMAND, "--seconds", "5", "--rate", "1500", "--keys", "12", "--limit",
                           "40", "--json", str(path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no bound was passed" in done.stdout
    found = json.loads(path.read_text())
    assert found["faults"] == [] and len(found["keys"]) == 12
    struck = [one for one in found["keys"] if one["lost_its_master"]]
    assert 0 < len(struck) < 12
    for one in found["keys"]:
        assert 0.5 * 40 <= one["most_by_store"] <= one["bound"]
        assert one["most_by_callers"] <= one["most_by_store"]
        assert f"{one['key']} " in done.stdout
    assert 0 < found["promoted_after_s"] and found["granted_after_s"] < 30
    for part in found["told"].values():
        assert part["other_keys"]["allow"] > 0
    assert found["told"]["after"]["keys_of_the_lost"]["allow"] > 0


def children(pid):
    return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def heed_interrupts():
    """Which whatever runs in the background of a shell does not."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_it_cleans_up_when_it_is_stopped(tmp_path):
    """^C in its midst, to it and to all that it has started, as a terminal sends it."""
    with subprocess.Popen([*COMMAND, "--seconds", "60", "--rate", "300"], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
                          env={**os.environ, "TMPDIR": str(tmp_path)},
                          preexec_fn=heed_interrupts) as process:
        for line in process.stdout:
            if line.startswith("asked through all three"):
                break
        started = children(process.pid)
        assert len(started) == 9
        os.killpg(process.pid, signal.SIGINT)
        rest, errors = process.communicate(timeout=60)
    assert process.returncode == 130, rest + errors
    assert "all that was started has ended" in rest and "Traceback" not in errors
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started), "all have ended")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("granted,faults", [(40, 0), (41, 1), (80, 1), (81, 1)])
def test_more_than_the_bound_is_a_fault(granted, faults):
    """So many grants of each of two keys within one window: one lost its master, one did not."""
    told = argparse.Namespace(keys=2, limit=40, window=1.0, json=None)
    demo = demo_cluster.Demo(told, crowd, admissions, fleet, None)
    begin = time.time_ns()
    demo.began_ns, demo.killed_ns = begin - 1, begin
    demo.promoted_ns, demo.ended_ns, demo.errors = begin + 10**8, begin + 10**9, 0
    demo.struck = {"user-01"}
    seen = [crowd.Seen(0, "user-00", 1, begin + n, begin + n + 1000, "allow", 1, begin + n, "")
            for n in range(granted)]
    found = demo.judged(seen)
    assert bool(found["faults"]) == bool(faults)
    assert all(fault.startswith("user-00: ") for fault in found["faults"])
    # The other may have its limit twice, but not from one of its masters.
    other = [one._replace(key="user-01") for one in seen]
    before = [one._replace(sent_ns=one.sent_ns - 10**8, answered_ns=one.answered_ns - 10**8)
              for one in other]
    demo.began_ns = begin - 10**9
    assert bool(demo.judged(other[:40] + before[:40])["faults"]) is False
    assert bool(demo.judged(other)["faults"]) == bool(faults)
