# SPDX-License-Identifier: MIT
"""`stint serve` asked by clients of Redis that others wrote: redis-cli, redis-benchmark, redis-py
and ioredis.

Real time, as clients and sockets know no other: quotas are of an hour, so that nothing comes back
meanwhile.
"""
import json
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from npm_clients import node  # noqa: F401 (a fixture)
from program import SOURCE, stint
from server import Server

redis = pytest.importorskip("redis")

SECRET = "0123456789abcdef0123456789abcdef"
FIGURES = ["outcome", "granted", "limit", "remaining", "retry_after_ms", "reset_after_ms",
           "binding", "at"]
HOUR_S = 3600


@pytest.fixture(scope="module")
def server():
    with Server() as running:
        yield running


def run(program, *arguments, text=None):
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    done = subprocess.run([program, *map(str, arguments)], input=text, capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def cli(server, *arguments, text=None):
    return run("redis-cli", "-p", server.resp, *arguments, text=text)


def connect(server, **options):
    return redis.Redis(port=server.resp, decode_responses=True, **options)


# ---- redis-cli -----------------------------------------------------------------------------------


def test_redis_cli_is_answered_in_five_numbers(server):
    replies = [cli(server, "CL.THROTTLE", "cli", 1, 1, HOUR_S).split() for _ in range(3)]
    assert replies[0] == ["0", "2", "1", "-1", "3600"]
    assert replies[1][:4] == ["0", "2", "0", "-1"] and 7198 <= int(replies[1][4]) <= 7200
    assert replies[2][:3] == ["1", "2", "0"] and 3590 <= int(replies[2][3]) <= 3600


def test_redis_cli_speaks_resp3(server):
    shown = cli(server, "-3", "--no-raw", "STINT.TAKE", "QUOTA", "gcra 5/1h", "cli3")
    assert re.findall(r'"(\w+)" => ', shown) == FIGURES, shown
    assert '"limit" => (integer) 5' in shown


def test_redis_cli_reads_commands_from_a_pipe(server):
    text = "PING\nSTINT.TAKE QUOTA 'gcra 1/1h' pipe\nECHO \"two words\"\nNOTHING\n"
    lines = cli(server, text=text).splitlines()
    assert lines[0] == "PONG" and lines[1] == "outcome" and lines[2] == "allow"
    assert "two words" in lines and any("unknown command 'NOTHING'" in line for line in lines)


def test_redis_cli_pipe_mode_counts_all_replies(server):
    command = b"*5\r\n$11\r\nCL.THROTTLE\r\n$4\r\nmass\r\n$1\r\n9\r\n$1\r\n1\r\n$4\r\n3600\r\n"
    done = subprocess.run(["redis-cli", "-p", str(server.resp), "--pipe"], input=command * 5000,
                          capture_output=True, timeout=120)
    assert b"errors: 0, replies: 5000" in done.stdout, done.stdout


def test_redis_cli_shows_the_commands(server):
    names = cli(server, "COMMAND", "LIST").split()
    documented = (SOURCE / "docs/protocol.md").read_text().lower()
    missing = [name for name in names if name.removeprefix("stint.") not in documented]
    assert "cl.throttle" in names and not missing


# ---- redis-benchmark -----------------------------------------------------------------------------


@pytest.mark.parametrize("pipeline", [1, 16])
def test_redis_benchmark_gets_every_answer(server, pipeline):
    done = run("redis-benchmark", "-p", server.resp, "-n", 20000, "-c", 20, "-P", pipeline,
               "-r", 1000, "--csv", "CL.THROTTLE", "key:__rand_int__", 99, 100, 60)
    assert float(done.splitlines()[-1].split('","')[1]) > 0
    assert "rror" not in done, done


def test_redis_benchmark_admits_exactly_the_limit(server):
    run("redis-benchmark", "-p", server.resp, "-n", 5000, "-c", 50, "-q",
        "CL.THROTTLE", "bench", 99, 1, HOUR_S)
    limited, limit, remaining = connect(server).execute_command(
        "CL.THROTTLE", "bench", 99, 1, HOUR_S, 0)[:3]
    assert (limited, limit, remaining) == (0, 100, 0)


# ---- redis-py ------------------------------------------------------------------------------------


def test_redis_py_admits_exactly_the_limit_in_a_pipeline(server):
    pipeline = connect(server).pipeline(transaction=False)
    for _ in range(30):
        pipeline.execute_command("CL.THROTTLE", "py", 9, 1, HOUR_S)
    assert [reply[0] for reply in pipeline.execute()] == [0] * 10 + [1] * 20


def test_redis_py_knows_the_keys_of_throttle(server):
    client = connect(server)
    client.execute_command("CL.THROTTLE", "kept", 1, 1, HOUR_S)
    assert client.exists("kept", "never") == 1
    assert 3_590_000 <= client.pttl("kept") <= 3_600_000
    assert 3590 <= client.ttl("kept") <= 3600
    assert client.delete("kept", "never") == 1
    assert client.unlink("kept") == 0


def test_redis_py_says_hello_in_its_way(server):
    client = connect(server, client_name="tests", health_check_interval=1)
    assert client.ping() and client.echo("x") == "x"
    assert client.client_getname() == "tests"
    assert client.client_id() > 0
    assert client.config_get("save") == {"save": ""}
    assert client.info()["stint_version"]
    assert client.command()["cl.throttle"]["first_key_pos"] == 1


def test_redis_py_takes_reserves_and_settles(server):
    client = connect(server)
    quota = ("QUOTA", "gcra 10/1h", "tokens")
    flat = client.execute_command("STINT.RESERVE", *quota, "COST", 8, "LIFETIME", 60000)
    reserved = dict(zip(flat[::2], flat[1::2]))
    assert reserved["outcome"] == "allow" and reserved["remaining"] == 2
    client.execute_command("STINT.SETTLE", reserved["ticket"], 3)
    with pytest.raises(redis.ResponseError, match="GONE"):
        client.execute_command("STINT.SETTLE", reserved["ticket"], 3)
    flat = client.execute_command("STINT.PEEK", *quota, "COST", 0)
    assert dict(zip(flat[::2], flat[1::2]))["remaining"] == 7


def test_one_counter_over_both_protocols_kill_9_and_in_the_file(tmp_path):
    path = tmp_path / "state"
    hour_ms = HOUR_S * 1000
    with Server("--state", path) as running:
        count = connect(running).execute_command("STINT.COUNT", "hits", 5, hour_ms)
        assert count == ["count", 5, "expires_after_ms", hour_ms]
        status, count = running.post("/v1/count", {"key": "hits", "amount": 7, "expiry_ms": 1})
        assert (status, count["count"]) == (200, 12) and hour_ms / 2 < count["expires_after_ms"]
        running.kill()
    (told,) = json.loads(stint("table", "--json", path)[0])["keys"]
    assert (told["quota"], told["count"]) == ("counter", 12)
    shown = stint("table", path)[0]
    assert re.search(rf"{told['key_hash']} +12 +\S+( \S+)? +counter$", shown, re.M), shown
    with Server("--state", path) as running:
        assert running.post("/v1/count", {"key": "hits"})[1]["count"] == 12
        assert running.post("/v1/count_reset", {"key": "hits"}) == (200, {"ok": True})
        assert connect(running).execute_command("STINT.COUNT", "hits")[1] == 0


def test_counts_of_many_clients_are_each_given_once(server):
    def add(client):
        pipe = client.pipeline(transaction=False)
        for _ in range(500):
            pipe.execute_command("STINT.COUNT", "many", 1, HOUR_S * 1000)
        return [reply[1] for reply in pipe.execute()]

    with ThreadPoolExecutor(4) as pool:
        got = list(pool.map(add, [connect(server) for _ in range(4)]))
    assert sorted(sum(got, [])) == list(range(1, 2001))


def test_a_wait_is_as_long_as_it_has_to_be(server):
    client = connect(server)
    take = ("STINT.TAKE", "QUOTA", "gcra 1/300ms", "slow", "WAIT", 5000)
    stamps = []
    for _ in range(3):
        flat = client.execute_command(*take)
        reply = dict(zip(flat[::2], flat[1::2]))
        assert reply["outcome"] == "allow"
        stamps.append(int(reply["at"]))
    # Never before its time, by the server's own clock; how late, the machine decides.
    assert all(later - sooner >= 300_000_000 for sooner, later in zip(stamps, stamps[1:]))


def test_redis_py_is_asked_for_its_token(tmp_path):
    tokens = tmp_path / "tokens"
    digest = subprocess.run(["sha256sum"], input=SECRET.encode(), capture_output=True, check=True)
    tokens.write_text(f"shop ask sha256:{digest.stdout.split()[0].decode()}\n")
    tokens.chmod(0o600)
    with Server("--tokens", tokens) as guarded:
        with pytest.raises(redis.AuthenticationError):
            connect(guarded).ping()
        with pytest.raises(redis.RedisError, match="WRONGPASS"):
            connect(guarded, password=SECRET[::-1]).ping()
        assert connect(guarded, password=SECRET).ping()
        shop = connect(guarded, username="shop", password=SECRET)
        assert shop.execute_command("CL.THROTTLE", "t", 1, 1, HOUR_S)[0] == 0
        with pytest.raises(redis.exceptions.NoPermissionError):
            shop.execute_command("STINT.RESET", "QUOTA", "1/1h", "t")


# ---- ioredis -------------------------------------------------------------------------------------


def test_ioredis(server, node):  # noqa: F811
    replies = json.loads(node("session.js", server.resp))
    assert replies["status"] == ["ready"]
    assert replies["first"] == [0, 3, 2, -1, 3600]
    assert [reply[:3] for _, reply in replies["pipeline"]] == [
        [0, 3, 1], [0, 3, 0], [1, 3, 0], [1, 3, 0]]
    assert replies["taken"]["remaining"] == 3 and isinstance(replies["taken"]["at"], str)
    assert replies["refunded"] == 2 or replies["refunded"] == 1  # a part may have flowed back
    assert replies["deleted"] == 1
    assert replies["error"].startswith("ERR ")
    assert replies["quit"] == "OK"
