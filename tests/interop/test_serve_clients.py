# SPDX-License-Identifier: MIT
"""`stint serve` asked by clients of Redis of other languages: go-redis, jedis and Lettuce.

Each is one process that holds the same session over RESP2 and over RESP3, with a token, and is not
told that the server is restarted in its midst. Their versions are pinned in tests/interop/go and
tests/interop/java; what is fetched and built once stays in the build folder. A registry that cannot
be reached is an error. Quotas are of an hour, so that real time gives nothing back meanwhile.
"""
import hashlib
import json
import subprocess

import pytest

from builds import INTEROP, built, go_program, make, needs
from server import Server, free_port

SECRET = "0123456789abcdef0123456789abcdef"


@pytest.fixture(scope="module")
def go_client():
    return [go_program(INTEROP / "go", "session")]


def make_java(folder):
    make(folder, ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars"],
         "the packages of pom.xml")
    make(folder, ["javac", "-cp", "jars/*", "-d", "classes", *(
        path.name for path in folder.glob("*.java"))], "the jars that Maven has copied")


@pytest.fixture(scope="module")
def java():
    needs("mvn", "javac", "java")
    folder = built(INTEROP / "java", make_java)
    # The quickest start: these programs live for a second.
    return ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp",
            f"{folder}/classes:{folder}/jars/*"]


@pytest.fixture
def options(tmp_path):
    """Of a server with a token and a state, which comes back to the same port."""
    tokens = tmp_path / "tokens"
    tokens.write_text(f"shop ask sha256:{hashlib.sha256(SECRET.encode()).hexdigest()}\n")
    tokens.chmod(0o600)
    return ["--tokens", tokens, "--state", tmp_path / "state", "--workers", 2, "--http", "off",
            "--resp", f"127.0.0.1:{free_port()}"]


def talk(command, options):
    """What a client tells of its two sessions, between which the server was another."""
    with Server(*options) as server:
        client = subprocess.Popen([*map(str, command), str(server.resp), SECRET],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True)
        try:
            first = client.stdout.readline()
            assert first == '"restart"\n', first + client.communicate(timeout=60)[1][-3000:]
            server.stop()
            with Server(*options):
                rest, errors = client.communicate("\n", timeout=60)
        finally:
            client.kill()
            client.wait()
    assert client.returncode == 0, errors[-3000:]
    return [json.loads(line) for line in rest.splitlines()]


def check(told):
    assert [session["protocol"] for session in told] == [2, 3]
    for session in told:
        without, wrong = session["refused"]
        assert "NOAUTH" in without and "WRONGPASS" in wrong, session["refused"]
        throttled = session["throttled"]
        assert [reply[:4] for reply in throttled[:3]] == [
            [0, 3, 2, -1], [0, 3, 1, -1], [0, 3, 0, -1]]
        assert throttled[3][:3] == [1, 3, 0] and 3590 <= throttled[3][3] <= 3600
        taken = session["taken"]
        assert (taken["outcome"], taken["granted"], taken["remaining"]) == ("allow", 2, 3), taken
        assert taken["at"].isdigit()
        assert session["pipelined"] == 600
        assert session["nonsense"].startswith("ERR "), session["nonsense"]
        assert "unknown command" in session["get"], session["get"]
        assert "unknown command" in session["subscribe"], session["subscribe"]
        # Errors are answers: the connection goes on.
        assert session["after"] == ""
        # Another process, the same limit.
        assert session["restarted"][:3] == [1, 3, 0]


def test_go_redis(go_client, options):
    check(talk(go_client, options))


def test_jedis(java, options):
    check(talk([*java, "JedisSession"], options))


def test_lettuce(java, options):
    check(talk([*java, "LettuceSession"], options))
