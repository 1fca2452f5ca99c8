# SPDX-License-Identifier: MIT
"""Runs the program as a user does; the tests beside this file look at what it says."""
import json
import os
import pathlib
import subprocess

SOURCE = pathlib.Path(os.environ.get("STINT_SOURCE", pathlib.Path(__file__).parents[2]))
STINT = os.environ.get("STINT_BIN", str(SOURCE / "build" / "src" / "cmd" / "stint"))
SAMPLE = SOURCE / "examples" / "sample.log"
ACCESS = SOURCE.parent / "shared" / "data" / "access-10k.log"
NS = 1_000_000_000
HOUR = 3600 * NS


def stint(*args, given=b"", code=0):
    """Runs the program; returns (stdout, stderr) as text. A code of None is any."""
    if isinstance(given, str):
        given = given.encode()
    done = subprocess.run([STINT, *map(str, args)], input=given, capture_output=True, timeout=120)
    assert code in (None, done.returncode), done.stderr.decode(errors="replace")
    return done.stdout.decode(), done.stderr.decode(errors="replace")


def replay_json(*args, **given):
    return json.loads(stint("replay", "--json", *args, **given)[0])


def replay_decisions(*args, **given):
    """The fields of every line that --decisions prints."""
    out = stint("replay", "--decisions", *args, **given)[0]
    return [line.split("\t") for line in out.splitlines()]
