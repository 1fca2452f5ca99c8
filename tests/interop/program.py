# SPDX-License-Identifier: MIT
"""Runs the program as a user does; the tests beside this file look at what it says."""
import json
import fcntl
import os
import pathlib
import signal
import subprocess
import sys
import termios
import time

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


def waits(process, asleep=True, mask="SigCgt"):
    """Whether SIGINT, bit 2, is in that mask of /proc, and the process sleeps in a system call."""
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    is_in = int(status.split(mask + ":")[1].split()[0], 16) & 2
    return is_in and (not asleep or "State:\tS" in status)


def wait_until_read(running, mask="SigCgt"):
    """Until a program has read all that its standard input has, and waits for more."""
    deadline = time.monotonic() + 30
    while (int.from_bytes(fcntl.ioctl(running.stdin, termios.FIONREAD, bytes(4)), sys.byteorder)
           or not waits(running, mask=mask)):
        assert time.monotonic() < deadline
        time.sleep(0.001)


def signals_waiting(pid):
    """The mask of those that were sent to the process, and that it has not caught."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(status.split("ShdPnd:")[1].split()[0], 16)


def interrupted(*args, given=b""):
    """
    Interrupts the program after it has read what is given, while its standard input is still open.
    Returns (stdout, stderr, code).
    """
    with subprocess.Popen([STINT, *map(str, args)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, bufsize=0) as running:
        running.stdin.write(given)
        wait_until_read(running)
        running.send_signal(signal.SIGINT)
        out, err = running.stdout.read(), running.stderr.read()
        return out.decode(), err.decode(errors="replace"), running.wait(60)


def replay_json(*args, **given):
    return json.loads(stint("replay", "--json", *args, **given)[0])


def replay_decisions(*args, **given):
    """The fields of every line that --decisions prints."""
    out = stint("replay", "--decisions", *args, **given)[0]
    return [line.split("\t") for line in out.splitlines()]
