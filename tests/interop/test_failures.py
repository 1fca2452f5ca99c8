# SPDX-License-Identifier: MIT
"""Every failure says what was wrong, where, and what to do next: a command line, its exit code, and
what standard error has. {folder} has a file `lines`, a file and a folder that another user owns."""
import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest

from program import SOURCE, STINT
from server import free_port

OFF = ["--resp", "off", "--http", "off", "--grpc", "off"]
ONE = ["--resp", "127.0.0.1:0", *OFF[2:]]
POOL = ["--state", "{folder}/pool", "--quota", "9/1h", "--keys"]
MISSING = "No such file or directory; check the path and its folder"
CLOSED = "Permission denied; give this user permission with chmod or chown"
START = "Connection refused; start a server with `stint serve`, or name one with --server or "
STORE = "redis://127.0.0.1:{free}"


ROWS = [
    # What listens.
    *((["serve", *OFF[:2 * i], *OFF[2 * i + 2:], option, "127.0.0.1:{used}"], 1,
       "127.0.0.1:{used}: the address is in use; choose another with " + option)
      for i, option in enumerate(OFF[::2])),
    (["serve", *OFF[2:], "--resp", "unix:{folder}/none/socket"], 1,
     MISSING + ", or choose another with --resp"),
    (["serve", *OFF[2:], "--resp", "unix:{folder}/lines"], 1,
     "a file that is no socket; remove it, or choose another path with --resp"),
    (["serve", *ONE, "--control", "{folder}/none/socket"], 1,
     MISSING + ", or choose another with --control"),
    (["serve", *ONE, "--control", "{folder}/lines"], 1,
     "a file that is no socket; remove it, or choose another path with --control"),
    (["serve", *OFF[2:], "--insecure", "--resp", "192.0.2.1:7379"], 1,
     "; give an interface of this machine that address, or choose another with --resp"),
    # Files.
    (["replay", "--quota", "1/1s", "{folder}/none"], 1, "cannot open {folder}/none: " + MISSING),
    (["plan", "{folder}/none"], 1, "cannot open {folder}/none: " + MISSING),
    (["table", "{folder}/none"], 1, "cannot open {folder}/none: " + MISSING),
    (["rules", "check", "{folder}/none"], 1, "cannot read {folder}/none: " + MISSING),
    (["serve", *ONE, "--rules", "{folder}/none"], 1, "{folder}/none: " + MISSING),
    (["serve", *ONE, "--config", "{folder}/none"], 1, "{folder}/none: " + MISSING),
    (["serve", *ONE, "--tokens", "{folder}/none"], 1, "{folder}/none: " + MISSING),
    (["serve", *ONE, "--state", "{folder}/none/state"], 1, MISSING),
    (["take", "--quota", "1/1s", "--token-file", "{folder}/none", "k"], 1, MISSING),
    (["pool", "next", *POOL, "@{folder}/none"], 1, "{folder}/none: " + MISSING),
    (["pool", "next", "--state", "{folder}/none/pool", *POOL[2:], "a"], 1, MISSING),
    # Words.
    (["serve", "--htp", "x"], 2, "'--htp'; did you mean '--http'? `stint serve --help` lists all"),
    (["serve", "--zzzz"], 2, "'--zzzz'; the nearest are --"),
    (["serve", "--zzzz"], 2, "; `stint serve --help` lists all"),
    (["replai"], 2, "'replai'; did you mean 'replay'? `stint help` lists all"),
    (["frobnicate"], 2, "'frobnicate'; the nearest are replay, pace and take; `stint help` lists"),
    (["sim", "wrst"], 2, "'sim wrst'; did you mean 'worst'? `stint help sim` lists all"),
    (["plan", "--target", "1%", "{folder}/lines"], 2,
     "'1%' does not say of what it is a share; expected 'deny at most 1% of keys' or 'deny at most "
     "1% of requests'"),
    # Servers and stores that are not there.
    (["take", "--quota", "1/1s", "--server", "http://127.0.0.1:{free}", "k"], 1,
     "http://127.0.0.1:{free}/v1/take: " + START + "STINT_URL"),
    (["take", "--quota", "1/1s", "--server", "unix:{folder}/none", "k"], 1,
     "unix:{folder}/none: No such file or directory; start a server with `stint serve`, or name"),
    (["top", "--once", "http://127.0.0.1:{free}"], 1, START + "STINT_URL"),
    (["rls", "health", "127.0.0.1:{free}"], 1,
     "Connection refused; start a server with `stint serve`, or name one with SERVER"),
    (["store", "check"], 2, "as an argument or in STINT_STORE"),
    (["store", "check", STORE], 1,
     "127.0.0.1:{free}: Connection refused; the address is that of URL, and `redis-cli -u URL"),
    (["STINT_STORE=" + STORE, "store", "check"], 1,
     "127.0.0.1:{free}: Connection refused; the address is that of STINT_STORE, and `redis-cli"),
    (["replay", "--quota", "1/1s", "--store", STORE, "{folder}/lines"], 1,
     "127.0.0.1:{free}: Connection refused; `stint store check URL` tests it"),
    (["explain", "--rules", f"{SOURCE}/examples/rules", "--store", STORE, "edge",
      "remote_address=192.0.2.7"], 1,
     "--store: 127.0.0.1:{free}: Connection refused; `stint store check URL` tests it"),
    # Another list of keys.
    (["pool", "report", *POOL, "a,b", "zebra", "ok"], 1,
     "--keys holds no key 'zebra'; give the same --keys as the command that used it, or one of its "
     "2 names"),
]

OTHERS_ROWS = [
    (["replay", "--quota", "1/1s", "{folder}/closed"], "cannot open {folder}/closed: " + CLOSED),
    (["rules", "check", "{folder}/closed"], "{folder}/closed: " + CLOSED),
    (["serve", *ONE, "--tokens", "{folder}/closed"], "{folder}/closed: " + CLOSED),
    (["serve", *ONE, "--state", "{folder}/state"], CLOSED),
    (["serve", *OFF[2:], "--resp", "unix:{folder}/socket"],
     "unix:{folder}/socket: " + CLOSED + ", or choose another with --resp"),
]


@pytest.fixture(scope="module")
def places():
    """In a folder that every user can enter."""
    folder = Path(tempfile.mkdtemp(prefix="stint-failures-"))
    (folder / "lines").write_text("0 a\n")
    (folder / "closed").write_text("")
    (folder / "closed").chmod(0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield {"folder": folder, "used": listener.getsockname()[1], "free": free_port()}
    folder.chmod(0o700)
    shutil.rmtree(folder)


def fail(words, places, before=()):
    words = [word.format(**places) for word in words]
    variables = dict(word.split("=", 1) for word in words[:1] if word.startswith("STINT_"))
    environment = {name: value for name, value in os.environ.items()
                   if name not in ("STINT_URL", "STINT_STORE")}
    done = subprocess.run([*before, STINT, *words[len(variables):]], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=60, check=False,
                          env={**environment, **variables})
    return done.returncode, done.stderr


@pytest.mark.parametrize("words,code,told", ROWS, ids=[" ".join(row[0])[:60] for row in ROWS])
def test_a_failure(words, code, told, places):
    found, err = fail(words, places)
    assert found == code and told.format(**places) in err


@pytest.mark.parametrize("words,told", OTHERS_ROWS, ids=lambda row: " ".join(row)[:60])
def test_a_failure_of_a_user_without_permission(words, told, places):
    places["folder"].chmod(0o555)
    before = ["setpriv", "--reuid=65534", "--clear-groups"] if os.geteuid() == 0 else []
    found, err = fail(words, places, before)
    places["folder"].chmod(0o755)
    assert found == 1 and told.format(**places) in err
