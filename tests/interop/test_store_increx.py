# SPDX-License-Identifier: MIT
"""Windows of the first use on a server that has INCREX. None is to be had here: a proxy before a
real redis-server answers it as Redis 8.8 documents it, by a script; all else is the server's own.
"""
import os
import socket
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from redis_server import Redis

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "store"))
from increx import SCRIPT  # noqa: E402

LOAD = os.environ["STINT_STORE_LOAD"]
LIMIT, WINDOW_S = 40, 1
SPEC = f"fixed_window {LIMIT}/{WINDOW_S}s align=first_use"
# A grant is told with the time of a command behind it, the start of a window by its millisecond;
# and between the two commands the proxy may have to wait for a core.
SLACK_NS = 250 * 10**6
SECONDS = 4
ALLOWED, DENIED = (1, 0, 0), (1, 0, 1)


def command_of(stream):
    """The words of one command, None at the end."""
    line = stream.readline()
    if not line:
        return None
    assert line.startswith(b"*"), line
    words = []
    for _ in range(int(line[1:])):
        length = int(stream.readline()[1:])
        words.append(stream.read(length + 2)[:-2])
    return words


def reply_of(stream):
    """The bytes of one reply."""
    line = stream.readline()
    kind, rest = line[:1], line[1:].strip()
    if kind == b"$" and int(rest) >= 0:
        return line + stream.read(int(rest) + 2)
    if kind in b"*%" and int(rest) > 0:
        items = int(rest) * (2 if kind == b"%" else 1)
        return line + b"".join(reply_of(stream) for _ in range(items))
    return line


def bytes_of(words):
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word)
                                             for word in words)


class Proxy:
    """Before a server: `lacks` may name what this version of INCREX does not know."""

    def __init__(self, port, lacks=None):
        self.port_behind, self.lacks, self.asked = port, lacks, Counter()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def increx(self, words):
        key, options = words[1], [word.upper() for word in words[2:]]
        if self.lacks in options:
            return None
        assert options[::2] == [b"BYINT", b"UBOUND", b"PX", b"ENX"]
        return [b"EVAL", SCRIPT.encode(), b"1", key, *options[1::2], b"ENX"]

    def serve(self, client):
        with client, socket.create_connection(("127.0.0.1", self.port_behind)) as server:
            asked, told = client.makefile("rb"), server.makefile("rb")
            try:
                while words := command_of(asked):
                    name = words[0].upper().decode()
                    self.asked[name] += 1
                    if words[1:] == [b"INFO", b"increx"]:
                        client.sendall(b"*1\r\n*1\r\n$6\r\nincrex\r\n")
                        continue
                    if name == "INCREX" and (words := self.increx(words)) is None:
                        client.sendall(b"-ERR syntax error\r\n")
                        continue
                    server.sendall(bytes_of(words))
                    client.sendall(reply_of(told))
            except OSError:
                pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()


def loads(*ports, keys=2, rate=300):
    """Grants by key of all who ask, each through a port of his own: the store's times."""
    processes = [subprocess.Popen(
        [LOAD, f"redis://127.0.0.1:{port}", str(rate), str(keys), "1", "1", SPEC, "200", "take"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for port in ports]
    time.sleep(SECONDS)
    grants, outcomes = defaultdict(list), Counter()
    for process in processes:
        out, _ = process.communicate(timeout=20)
        for line in out.splitlines():
            words = line.split()
            if words[0] == "figures":
                continue
            outcomes[int(words[3]), int(words[4]), int(words[5])] += 1  # outcome, fault, verdict
            if int(words[6]) > 0:
                grants[words[7]].append(int(words[2]))
    return grants, outcomes


def assert_windows(grants):
    """No window from a first use has more than the limit; and every full one has all of it."""
    full = 0
    for times in grants.values():
        times.sort()
        while times:
            ends = times[0] + WINDOW_S * 10**9 - SLACK_NS
            inside = [at for at in times if at < ends]
            assert len(inside) <= LIMIT
            full += len(inside) == LIMIT
            times = times[len(inside):]
    assert full >= 2, "it was asked for more than there was"


def assert_decided(outcomes):
    """Both ways; a machine that is busy elsewhere may leave some without an answer in time."""
    assert outcomes[ALLOWED] > LIMIT and outcomes[DENIED] > LIMIT
    assert all(outcome == 1 or (outcome == 2 and fault in (1, 2, 3))
               for outcome, fault, _ in outcomes)


@pytest.fixture
def redis():
    with Redis() as server:
        yield server


def test_takes_are_counted_by_it(redis):
    with Proxy(redis.port) as proxy:
        grants, outcomes = loads(proxy.port)
    assert_windows(grants)
    assert proxy.asked["INCREX"] > proxy.asked["EVALSHA"], "until it was known, and no more"
    assert_decided(outcomes)


def test_servers_with_it_and_without_share_one_limit(redis):
    """A node that has found no INCREX, on the same keys: each goes on with what the other began."""
    with Proxy(redis.port) as proxy:
        grants, outcomes = loads(proxy.port, redis.port)
    assert_windows(grants)
    assert proxy.asked["INCREX"] > 100, "no state of a script has put an end to it"
    assert_decided(outcomes)


def test_one_that_knows_no_bounds_is_not_used(redis):
    with Proxy(redis.port, lacks=b"UBOUND") as proxy:
        grants, outcomes = loads(proxy.port)
    assert_windows(grants)
    assert proxy.asked["INCREX"] < 50 < proxy.asked["EVALSHA"], "once for each connection"
    assert_decided(outcomes)
