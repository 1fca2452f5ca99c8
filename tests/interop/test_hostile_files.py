# SPDX-License-Identifier: MIT
"""Files that are no files, that change while they are in use, clocks that are far off, odd keys.

A path is the user's; what is found there may be another's. The program says what is wrong and
ends: it never waits for a pipe, is never ended by a signal, and calls no file damaged that is not.
"""
import contextlib
import datetime
import functools
import os
import pathlib
import signal
import socket
import subprocess

import pytest

from program import SAMPLE, SOURCE, STINT, stint
from server import Server

WRONG_CLOCK = os.environ.get("STINT_WRONG_CLOCK", "")
SERVE = ["serve", "--resp", "127.0.0.1:0"]
TLS = [*SERVE, "--resp-tls", "127.0.0.1:0"]
TEXT = str(SOURCE / "LICENSE")  # a regular file
TAKE = ["take", "--server", "https://127.0.0.1:1", "k", "--quota", "1/1s"]

# Every option and argument that names a file which is read to its end, or a table.
NAMES_A_FILE = {
    "table": ["table"],
    "rules check": ["rules", "check"],
    "rules show": ["rules", "show"],
    "rules explain --rules": ["rules", "explain", "d", "a=b", "--rules"],
    "serve --rules": [*SERVE, "--rules"],
    "serve --config": ["serve", "--config"],
    "serve --tokens": [*SERVE, "--tokens"],
    "serve --state": [*SERVE, "--state"],
    "serve --tls-certificate": [*TLS, "--tls-key", TEXT, "--tls-certificate"],
    "serve --tls-key": [*TLS, "--tls-certificate", TEXT, "--tls-key"],
    "serve --store": [*SERVE, "--store", "@"],
    "serve --store-ca-file": [*SERVE, "--store", "rediss://127.0.0.1:1", "--store-ca-file"],
    "replay --rules": ["replay", str(SAMPLE), "--domain", "d", "--descriptors", "ip", "--rules"],
    "replay --state": ["replay", "--quota", "1/1s", "--format", "combined", str(SAMPLE), "--state"],
    "pool --keys": ["pool", "status", "--quota", "1/1s", "--state", "none", "--keys", "@"],
    "pool --state": ["pool", "status", "--quota", "1/1s", "--keys", "a,b", "--state"],
    "store check": ["store", "check", "@"],
    "take --token-file": ["take", "--server", "http://127.0.0.1:1", "k", "--quota", "1/1s",
                          "--token-file"],
    "take --ca-file": [*TAKE, "--ca-file"],
    "take --cert-file": [*TAKE, "--cert-file"],
    "rls ask --token-file": ["rls", "ask", "--domain", "d", "--descriptor", "a=b", "127.0.0.1:1",
                             "--token-file"],
}


TAKES_A_FOLDER = ("rules check", "rules show", "rules explain --rules", "serve --rules",
                  "replay --rules")


def make_pipe(path):
    os.mkfifo(path)


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


@pytest.mark.parametrize("name,make", [
    (name, make) for name in NAMES_A_FILE
    for make in (make_pipe, make_socket, "/dev/zero", os.mkdir)
    if make is not os.mkdir or name not in TAKES_A_FOLDER])
def test_what_is_no_file_is_refused_at_once(tmp_path, name, make):
    words = list(NAMES_A_FILE[name])
    path = tmp_path / "given"
    if callable(make):
        make(path)
    else:
        path = make
    path = str(path)
    words = [*words[:-1], "@" + path] if words[-1] == "@" else [*words, path]
    done = subprocess.run([STINT, *words], stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=20, text=True, check=False)
    assert done.returncode in (1, 2), (words, done.stderr)
    assert path in done.stderr, (words, done.stderr)


@pytest.mark.parametrize("words", [["rules", "check"], ["replay", "--quota", "1/1s"]])
def test_a_pipe_that_is_handed_over_is_read(words):
    rules = b"domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1}}]\n"
    given = rules if words[0] == "rules" else b"1 k\n"
    stint(*words, "-", given=given)
    stint(*words, "/dev/stdin", given=given)


def test_standard_input_without_end_is_refused():
    with open("/dev/zero", "rb") as endless:
        done = subprocess.run([STINT, "rules", "check", "-"], stdin=endless, capture_output=True,
                              timeout=60, check=False)
    assert done.returncode == 1


# ---- A file that is cut -----------------------------------------------------------------------


def test_a_table_that_is_cut_in_use_ends_the_server_with_a_sentence(tmp_path):
    state = tmp_path / "state"
    with contextlib.ExitStack() as at_end:
        server = Server("--state", state, "--control", "off")
        at_end.callback(server.process.kill)
        with server.connect() as resp:
            resp.throttle("a", 1, 1, 60)
            os.truncate(state, 4096)
            with contextlib.suppress(OSError, EOFError, AssertionError):
                for i in range(64):
                    resp.throttle(f"key{i}", 1, 1, 60)
        assert server.process.wait(20) == 1
        server.reader.join(20)
    assert f"{state} was cut" in server.log
    out, err = stint("table", state, code=1)
    assert "is cut" in err and not out


# ---- Time namespaces --------------------------------------------------------------------------


def unshared(boottime):
    return ("unshare", "--user", "--map-root-user", "--time", "--boottime", str(boottime), "--fork",
            "--kill-child=TERM", STINT)


@functools.cache
def why_no_time_namespace():
    try:
        done = subprocess.run([*unshared(1000), "version"], capture_output=True, check=False)
    except FileNotFoundError:
        return "there is no program unshare"
    return "" if done.returncode == 0 else f"no time namespaces: {done.stderr.decode().strip()}"


@pytest.mark.parametrize("boottime", [1_000_000, 1_000])
def test_a_table_is_not_shared_between_time_namespaces(tmp_path, boottime):
    if why_no_time_namespace():
        pytest.skip(why_no_time_namespace())
    state = tmp_path / "state"
    words = ["serve", "--resp", "127.0.0.1:0", "--state", str(state), "--control", "off",
             "--sandbox", "off"]
    with Server(*words[1:]) as server, server.connect() as resp:
        assert resp.throttle("k", 1, 1, 3600)[0] == 0
        for command in (words, ["table", str(state)]):
            done = subprocess.run([*unshared(boottime), *command], capture_output=True, text=True,
                                  timeout=20, check=False)
            assert done.returncode == 1 and "another time namespace" in done.stderr, done.stderr
            assert "damaged" not in done.stderr


@pytest.mark.parametrize("first, second", [(0, 1_000_000), (1_000_000, 0), (50_000, 2_000_000)])
def test_a_table_goes_on_in_another_time_namespace(tmp_path, first, second):
    """What was used counts there as it did, whatever the clock says there."""
    if why_no_time_namespace():
        pytest.skip(why_no_time_namespace())
    options = ["--state", tmp_path / "state", "--control", "off", "--sandbox", "off"]
    for boottime, denied in ((first, 0), (second, 1), (first, 1)):
        with Server(*options, command=(*unshared(boottime), "serve")) as server:
            with server.connect() as resp:
                assert resp.throttle("k", 1, 1, 3600)[0] == denied
            # unshare itself does not end before its child does.
            children = pathlib.Path(f"/proc/{server.pid}/task/{server.pid}/children")
            os.kill(int(children.read_text()), signal.SIGTERM)
            server.wait()


# ---- Clocks -----------------------------------------------------------------------------------

YEARS = (1_900, 1970, 2_115, 2_117, 2_199, 2_200, 2_261, 2_263, 9_000)
CALENDAR = """
domain: d
descriptors:
  - key: a
    rate_limit: {unit: day, requests_per_unit: 1, calendar: utc, algorithm: fixed_window}
  - key: b
    rate_limit: {unit: month, requests_per_unit: 1, calendar: utc, utc_offset: "+14:00"}
  - key: c
    rate_limit: {unit: year, requests_per_unit: 1, calendar: utc, utc_offset: "-12:00"}
"""


@pytest.mark.parametrize("year", YEARS)
def test_a_server_serves_whatever_year_it_is(tmp_path, year):
    if not os.path.exists(WRONG_CLOCK):
        pytest.skip("STINT_WRONG_CLOCK names no library")
    ahead_s = int((year - datetime.datetime.now().year) * 365.2425 * 86400)
    env = {"LD_PRELOAD": WRONG_CLOCK, "WRONG_CLOCK_S": str(ahead_s)}
    options = ["--state", tmp_path / "state", "--control", "off"]
    for denied in (False, True):  # once more: the file is not taken to be damaged
        with Server(*options, rules=CALENDAR, env=env) as server:
            for key in "abc":
                entries = [{"key": key, "value": "x"}]
                asks = {"domain": "d", "descriptors": [{"entries": entries}]}
                status, _ = server.post("/v1/take", asks)
                assert status == (429 if denied else 200), (key, server.log)


# ---- Keys -------------------------------------------------------------------------------------


def test_top_shows_a_key_of_any_bytes():
    with Server() as server:
        with server.connect() as resp:
            for _ in range(50):
                resp.throttle(b"a\0b\xe2\x80\xaec", 1, 1, 3600)
        out, _ = stint("top", "--once", "--server", server.url(""))
        assert r"a\x00b\u{202e}c" in out
        out, _ = stint("top", "--once", "--json", "--server", server.url(""))
        assert r"a\u0000b" in out
