# SPDX-License-Identifier: MIT
"""`stint replay --store` against real servers: decisions are the engine's, and nothing is left."""
import json
import random
import signal
import subprocess
import time

import pytest

from program import STINT, replay_decisions, replay_json, stint
from redis_server import Redis, until
from server import free_port
from store_servers import Cluster, Memcached, Sentinels

LAWS = ["window 20/10s", "window 20/7s resolution=12", "gcra 20/10s", "gcra 100/7s burst=3",
        "fixed_window 20/10s", "fixed_window 30/10s align=first_use", "sliding_counter 20/11s",
        "log 20/10s", "buckets 20/10s time_slack=1s count_slack=3", "concurrency 5 lease=2s"]


def trace(events, seed=1, keys=200, rate=200):
    chance, at, lines = random.Random(seed), 0.0, []
    for _ in range(events):
        at += chance.expovariate(rate)
        key = int(chance.paretovariate(0.7)) % keys
        lines.append(f"{at:.7f} k{key} {chance.choice([1, 1, 1, 2, 3])}\n")
    return "".join(lines)


@pytest.fixture(scope="module")
def redis():
    with Redis() as server:
        yield server


@pytest.fixture(autouse=True)
def check_that_nothing_is_left(redis):
    yield
    assert redis.cli("DBSIZE") == "0"


@pytest.mark.parametrize("law", LAWS)
def test_each_law_is_decided_as_the_engine_does(redis, law):
    given = trace(3000)
    found = replay_json("--quota", law, "--store", redis.url, given=given)
    assert found["store"]["differing"] == 0 and found["events"] == 3000
    assert found["denied"] > 100 and found["allowed"] > 100
    assert found["store"]["url"] == redis.url
    assert found["store"]["prefix"].startswith("stint:replay:")
    # The figures are the store's: they are those of a replay without one.
    alone = replay_json("--quota", law, given=given)
    assert [found[name] for name in ("allowed", "denied", "allowed_units")] == [
        alone[name] for name in ("allowed", "denied", "allowed_units")]


@pytest.mark.parametrize("verb", ["take", "take_upto", "peek"])
def test_lists_are_decided_as_the_engine_does(redis, verb):
    quotas = ["--quota", "window 20/10s", "--quota", "gcra 60/1m", "--quota", "window 20/10s"]
    found = replay_json("--verb", verb, *quotas, "--store", redis.url, given=trace(2000, seed=2))
    assert found["store"]["differing"] == 0


@pytest.mark.parametrize("law", ["window 20/7m", "sliding_counter 20/11m", "fixed_window 20/7m",
                                 "fixed_window 400/1d align=calendar",
                                 "fixed_window 400/1d align=calendar utc_offset=+05:30"])
def test_logs_begin_their_windows_where_the_store_does(redis, law):
    chance, at, lines = random.Random(3), 1_790_000_000.0, []
    for _ in range(2000):
        at += chance.expovariate(0.2)
        lines.append(json.dumps({"time": round(at, 9), "key": f'u{chance.randrange(3)} "é" '}))
    found = replay_json("--format", "jsonl", "--quota", law, "--store", redis.url,
                        given="\n".join(lines))
    assert found["store"]["differing"] == 0 and found["denied"] > 0


def test_decisions_are_printed_in_their_order(redis):
    given = trace(1000, seed=4)
    whole = [line.split() for line in given.splitlines()]
    decided = replay_decisions("--quota", "window 20/10s", "--store", redis.url, given=given)
    assert [line[1] for line in decided] == [line[1] for line in whole]


def test_text_says_where_it_was_decided(redis):
    out, _ = stint("replay", "--quota", "5/1s", "--store", redis.url, given="0 a\n1 a\n")
    line = next(line for line in out.splitlines() if line.startswith("store "))
    assert line.startswith(f"store  {redis.url}: ")
    assert line.endswith("all are those of the embedded engine")


def test_a_difference_is_told_and_is_the_exit_code(redis):
    """Somebody else writes into the keys of this run."""
    process = subprocess.Popen(
        [STINT, "replay", "--json", "--quota", "fixed_window 1/1h", "--store", redis.url],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdin.write("".join(f"{i / 1e6:.6f} k\n" for i in range(30000)))
    process.stdin.flush()
    key = until(lambda: redis.cli("KEYS", "stint:replay:*"), "the key of the run")
    redis.cli("DEL", key)
    out, err = process.communicate("".join(f"{i / 1e6:.6f} k\n" for i in range(30000, 40000)),
                                   timeout=60)
    assert process.returncode == 3, err
    found = json.loads(out)
    # One more was allowed, and from then on the store is as the engine again, but for the end.
    assert found["store"]["differing"] >= 1 and found["allowed"] == 2
    assert "the store says allow, 0 left, and the engine deny, 0 left" in err


def test_what_a_store_cannot_count_is_refused(redis):
    _, err = stint("replay", "--quota", "window 20/1500ns", "--store", redis.url, given="0 a\n",
                   code=1)
    assert "a shared store counts in microseconds" in err


@pytest.mark.parametrize("words, sentence", [
    (["--rules", "x", "--domain", "d", "--descriptors", "key"], "expected no --rules"),
    (["--quota", "1/1s", "--state", "x"], "expected no --state"),
])
def test_what_goes_not_with_a_store(redis, words, sentence):
    _, err = stint("replay", *words, "--store", redis.url, code=2)
    assert sentence in err


def test_a_url_that_cannot_be_meant_is_bad_usage():
    assert "begins with redis://" in stint("replay", "--quota", "1/1s", "--store", "http://x",
                                           code=2)[1]


def test_a_store_that_is_not_there_is_told():
    port = free_port()
    _, err = stint("replay", "--quota", "1/1s", "--store", f"redis://127.0.0.1:{port}",
                   "--store-timeout", "300ms", given="0 a\n", code=1)
    assert f"127.0.0.1:{port}: Connection refused" in err
    assert "may be left" not in err


def test_a_store_that_goes_away_is_told_and_what_may_be_left():
    with Redis() as server:
        process = subprocess.Popen(
            [STINT, "replay", "--quota", "5/1s", "--store", server.url, "--store-timeout", "500ms"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        process.stdin.write(trace(2000, seed=5))
        process.stdin.flush()
        until(lambda: server.cli("KEYS", "stint:replay:*"), "keys of the run")
        server.pause()
        _, err = process.communicate(trace(2000, seed=6), timeout=60)
        assert process.returncode == 1
        assert "keys that begin with stint:replay:" in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_and_leaves_nothing(redis, number):
    process = subprocess.Popen(
        [STINT, "replay", "--json", "--quota", "5/1s", "--store", redis.url],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdin.write(trace(2000, seed=7))
    process.stdin.flush()
    until(lambda: redis.cli("KEYS", "stint:replay:*"), "keys of the run")
    process.send_signal(number)
    time.sleep(0.1)
    out, err = process.communicate(trace(20000, seed=8), timeout=60)
    assert process.returncode == 0 and "ended by a signal" in err
    assert 0 < json.loads(out)["events"] < 20000


def test_whoever_closes_the_pipe_leaves_nothing_either(redis, tmp_path):
    (tmp_path / "trace").write_text(trace(60000, seed=9))
    process = subprocess.Popen(
        [STINT, "replay", "--decisions", "--quota", "5/1s", "--store", redis.url,
         tmp_path / "trace"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.wait(60) == 1
    assert b"Broken pipe" in process.stderr.read()
    process.stderr.close()


def test_keys_of_others_stay(redis):
    redis.cli("SET", "stint:{a}window,1000000,24:x:", "theirs")
    stint("replay", "--quota", "5/1s", "--store", redis.url, given=trace(500))
    assert redis.cli("GET", "stint:{a}window,1000000,24:x:") == "theirs"
    redis.cli("DEL", "stint:{a}window,1000000,24:x:")


def test_through_a_cluster():
    with Cluster(masters=3, replicas=0) as cluster:
        url = f"redis-cluster://127.0.0.1:{cluster.masters[0].port}"
        found = replay_json("--quota", "window 20/10s", "--quota", "gcra 60/1m", "--store", url,
                            given=trace(2000))
        assert found["store"]["differing"] == 0 and found["denied"] > 100
        assert [master.cli("DBSIZE") for master in cluster.masters] == ["0", "0", "0"]
        assert all(int(master.info("total_commands_processed")) > 200
                   for master in cluster.masters)


def test_through_sentinels():
    with Sentinels(replicas=1) as sentinels:
        found = replay_json("--quota", "window 20/10s", "--store", sentinels.url,
                            given=trace(1000))
        assert found["store"]["differing"] == 0
        assert sentinels.master.cli("DBSIZE") == "0"


@pytest.mark.parametrize("law", ["window 20/10s", "gcra 20/10s", "fixed_window 20/10s"])
def test_through_memcached(law):
    with Memcached() as server:
        found = replay_json("--quota", law, "--store", server.url, given=trace(1000))
        assert found["store"]["differing"] == 0 and found["denied"] > 50
