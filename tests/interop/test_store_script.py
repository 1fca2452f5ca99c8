# SPDX-License-Identifier: MIT
"""`stint store script`: what it prints runs in redis-cli, and is the file that is installed."""

import subprocess
import sys
from pathlib import Path

import pytest

from program import STINT
from redis_server import Redis

SOURCE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tools"))

import make_scripts  # noqa: E402


def script(*words, code=0):
    done = subprocess.run([STINT, "store", "script", *words], capture_output=True, text=True,
                          timeout=20, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def redis():
    with Redis() as server:
        yield server


def test_every_script_is_printed_as_the_store_is_given_it():
    names = script()[0].split()
    assert names == list(make_scripts.NAMES)
    for name in names:
        assert script(name) == (make_scripts.script(SOURCE / "lua", name), "")


def test_an_unknown_name_is_answered_with_the_nearest():
    out, err = script("roling_window", code=2)
    assert out == ""
    assert "there is no script 'roling_window'; did you mean 'rolling_window'?" in err
    assert "`stint store script` lists all" in script("???????", code=2)[1]
    assert "expected one NAME" in script("window", "log", code=2)[1]


def test_the_rolling_window_runs_in_redis_cli(redis, tmp_path):
    """By --eval of the file, and by the digest that SCRIPT LOAD replies."""
    text, _ = script("rolling_window")
    path = tmp_path / "rolling_window.lua"
    path.write_text(text, encoding="utf-8")

    def run(*words):
        return redis.cli(*words, check=False).split()

    def evaluate(*words):
        return run("--eval", path, "mail:alice", ",", *words)

    minute, sub = 60_000_000, 5_000_000
    assert evaluate(100, 70, minute, sub, 0)[:3] == ["70", "30", "0"]
    assert evaluate(100, 31, minute, sub, 0)[:2] == ["0", "30"]
    assert evaluate(100, 70, minute, sub, 1)[:3] == ["30", "0", "0"]
    assert evaluate(0, 1, minute, sub, 1)[:3] == ["0", "0", "-1"]
    (sha,) = run("script", "load", text)
    assert run("evalsha", sha, 1, "mail:bob", 5, 5, minute, sub, 0)[:2] == ["5", "0"]
    assert "too small for a window of 60000000: expected at least 117879 us" in " ".join(
        evaluate(1000, 1, minute, 1, 0))
