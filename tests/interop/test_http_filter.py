# SPDX-License-Identifier: MIT
"""examples/http_filter.c: the library inside a server of several threads, asked by several."""
import collections
import contextlib
import http.client
import os
import re
import subprocess
import threading

import pytest

FILTER = os.environ.get("STINT_HTTP_FILTER", "")
ASKS = 300  # of each thread
FIELDS = ("Retry-After", "RateLimit", "RateLimit-Policy")


@contextlib.contextmanager
def filtering(of_client, of_server):
    """A server on a free port; its (host, port)."""
    running = subprocess.Popen([FILTER, "0", of_client, of_server], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
    try:
        yield re.fullmatch(r"http://(.*):(\d+)\n", running.stdout.readline()).groups()
    finally:
        running.stdin.close()
        assert running.wait(timeout=20) == 0


def ask(host, port, source="127.0.0.1", times=1):
    """(status, fields) of each answer, over one connection."""
    connection = http.client.HTTPConnection(host, int(port), timeout=20, source_address=(source, 0))
    answers = []
    for _ in range(times):
        connection.request("GET", "/")
        answer = connection.getresponse()
        answer.read()
        answers.append((answer.status, {name: answer.getheader(name) for name in FIELDS}))
    connection.close()
    return answers


def hammer(host, port, sources):
    """All answers to threads that ask at once, one for each source."""
    answers = []
    threads = [threading.Thread(target=lambda source=source: answers.extend(
        ask(host, port, source, ASKS))) for source in sources]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == ASKS * len(sources)
    return answers


@pytest.mark.parametrize("limit", [1, 100, 2 * ASKS - 1])
def test_two_threads_of_one_client_get_exactly_the_limit(limit):
    with filtering(f"window {limit}/1h", "window 100000/1h") as server:
        answers = hammer(*server, ["127.0.0.1"] * 2)
    assert collections.Counter(status for status, _ in answers) == {
        200: limit, 429: 2 * ASKS - limit}
    left = sorted(int(re.search(r";r=(\d+);", fields["RateLimit"])[1])
                  for status, fields in answers if status == 200)
    assert left == list(range(limit))
    for status, fields in answers:
        assert fields["RateLimit-Policy"] == f'"client";q={limit};w=3600'
        if status == 200:
            assert fields["Retry-After"] is None
        else:
            # Slots of window are a 24th of the hour: nothing is back before it, nor much later.
            assert 3500 < int(fields["Retry-After"]) <= 3600 + 150
            assert re.fullmatch(r'"client";r=0;t=\d+', fields["RateLimit"])


def test_clients_do_not_take_from_each_other():
    with filtering("window 50/1h", "window 100000/1h") as server:
        answers = hammer(*server, ["127.0.0.1", "127.0.0.2"])
    assert collections.Counter(status for status, _ in answers) == {200: 100, 429: 2 * ASKS - 100}


def test_a_server_that_is_busy_says_503():
    """Whoever asks: no client is over its own limit."""
    with filtering("window 1000/1h", "window 80/1h") as server:
        answers = hammer(*server, ["127.0.0.1", "127.0.0.2"])
    assert collections.Counter(status for status, _ in answers) == {200: 80, 503: 2 * ASKS - 80}
    for status, fields in answers:
        if status == 503:
            assert fields["RateLimit-Policy"] == '"server";q=80;w=3600'
            assert 3500 < int(fields["Retry-After"]) <= 3600 + 150


def test_wrong_usage():
    assert subprocess.run([FILTER], capture_output=True).returncode == 2
    done = subprocess.run([FILTER, "0", "5 per minute", "5/1s"], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("http_filter: ")
