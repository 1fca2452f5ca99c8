# SPDX-License-Identifier: MIT
"""What `make demo-gateway` runs: budgets of teams behind Envoy are kept, and one that is not is an
error."""
import contextlib
import os
import subprocess
import sys

from program import SOURCE
from redis_server import until

BUILD = os.environ.get("STINT_BUILD", str(SOURCE / "build"))
DEMO = SOURCE / "examples/gateway/demo.py"
sys.path.insert(0, str(DEMO.parent))
import demo  # noqa: E402  (its folder is named just above)


def test_every_budget_is_kept():
    done = subprocess.run([sys.executable, DEMO, BUILD], capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1] == "every budget was kept"
    for line in ("red    call 4: 200, 6,500 tokens, 0 left",
                 "red    call 5: 429, the budget is used up; it is free again in 43200 s",
                 "blue   call 3: 200, 9,000 tokens, 0 left",
                 "red    call 2: 200, 12,000 tokens, 0 left",
                 "the large model has 6,000 of 30,000 left today"):
        assert line in lines, done.stdout


def briefly(condition, what):
    return until(condition, what, seconds=1)


def test_a_budget_that_is_not_kept_is_an_error(capsys):
    """Tokens that are taken like requests are not charged if they do not fit."""
    with contextlib.ExitStack() as stack:
        shown = demo.Demo(demo.Gateway(stack, "--grpc-hits", "take"), briefly)
        shown.gateway.set_clock(1971, 1, 31)
        assert shown.gateway.call("red", 19_000)[0] == 200
        shown.charged(lambda: shown.gateway.left_of("red"), 1_000, "red")
        shown.calls_max = 1
        shown.use_up("red", 6_500)
    assert shown.errors == ["red after call 1: 1000 tokens left, expected 0",
                            "red: still not refused"]
    assert "ERROR: red after call 1" in capsys.readouterr().out
