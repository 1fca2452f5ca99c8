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
    assert process.returncode == 1 and "interrupted" in err
    told = json.loads(out)
    assert 0 < told["events"] < 20000 and told["interrupted"]


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


@pytest.fixture(scope="module")
def memcached():
    with Memcached() as server:
        yield server


@pytest.fixture(params=["redis", "memcached"])
def store(request):
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize("law", LAWS)
def test_through_memcached(memcached, law):
    if law.startswith("concurrency"):
        _, err = stint("replay", "--quota", law, "--store", memcached.url, given="0 a\n", code=1)
        assert "memcached supports no concurrency: a slot needs a holder" in err
        return
    found = replay_json("--quota", law, "--store", memcached.url, given=trace(1000))
    assert found["store"]["differing"] == 0 and found["denied"] > 50


def access_log(events, seed=1):
    """Of one hour in 2025: at such times a state of memcached counts from an epoch of its own."""
    chance, at, lines = random.Random(seed), 0.0, []
    for _ in range(events):
        at += chance.expovariate(2)
        second, key = int(at), int(chance.paretovariate(0.7)) % 30
        lines.append(f"10.0.0.{key} - - [10/Oct/2025:13:{second // 60:02d}:{second % 60:02d} "
                     f'+0000] "GET /{key % 3} HTTP/1.1" 200 5\n')
    return "".join(lines)


@pytest.mark.parametrize("law", ["window 3/7s", "log 7/1m", "fixed_window 9/1h", "gcra 5/1m",
                                 "buckets 7/1m time_slack=7s", "sliding_counter 11/7m"])
def test_an_access_log_is_decided_as_the_engine_does(store, law):
    found = replay_json("--format", "combined", "--quota", law, "--store", store.url,
                        given=access_log(700))
    assert found["store"]["differing"] == 0 and found["never"] == 0
    assert found["allowed"] > 50 and found["denied"] > 50


# ---- Rules ----

RULES = """\
domain: api
descriptors:
  - key: ip
    rate_limit: {unit: minute, requests_per_unit: 9}
    shadow: {unit: minute, requests_per_unit: 5, algorithm: log}
    descriptors:
      - key: path
        rate_limit: {unit: minute, requests_per_unit: 4, algorithm: gcra}
      - key: path
        value: /1
        rate_limit: {unit: minute, requests_per_unit: 3, algorithm: sliding_counter, lease: fast}
        ban: {after: 5, for: 2m}
  - key: path
    quota_mode: true
    rate_limit: {unit: minute, requests_per_unit: 60, algorithm: buckets, count_slack: 3}
  - key: quiet
    shadow_mode: true
    rate_limit: {unit: hour, requests_per_unit: 20, algorithm: fixed_window, store: none}
"""


@pytest.fixture
def rules(tmp_path):
    path = tmp_path / "rules.yaml"
    path.write_text(RULES)
    return ["--rules", path, "--domain", "api", "--format", "combined",
            "--descriptors", "ip;ip,path;path;quiet=ip", "--keys", "1000"]


@pytest.mark.parametrize("verb", ["take", "take_upto", "peek"])
def test_rules_are_decided_as_the_engine_does(store, rules, verb):
    """Every count of every rule, too: candidates, shadows, quota_mode and bans among them."""
    given = access_log(1000)
    found = replay_json(*rules, "--verb", verb, "--store", store.url, given=given)
    alone = replay_json(*rules, "--verb", verb, given=given)
    assert found["store"]["differing"] == 0 and found["events"] == 1000
    assert found["store"]["prefix"].startswith("stint:replay:")
    assert found["rules"] == alone["rules"]
    assert [found[name] for name in ("allowed", "denied", "denied_most")] == [
        alone[name] for name in ("allowed", "denied", "denied_most")]
    if verb == "take":
        assert found["denied"] > 100 and any(rule["banned"] for rule in found["rules"])


def test_rules_that_a_store_cannot_keep_are_named(memcached, tmp_path):
    path = tmp_path / "rules.yaml"
    path.write_text("domain: d\ndescriptors:\n  - key: job\n    rate_limit: "
                    "{algorithm: concurrency, requests_per_unit: 3, lease: 5s}\n")
    words = ["--rules", path, "--domain", "d", "--descriptors", "job=key"]
    _, err = stint("replay", *words, "--store", memcached.url, given="0 a\n", code=1)
    assert "job: memcached supports no concurrency" in err
    port = free_port()
    path.write_text("domain: d\ndescriptors:\n  - key: job\n    rate_limit: "
                    "{unit: minute, requests_per_unit: 3}\n")
    _, err = stint("replay", *words, "--store", f"redis://127.0.0.1:{port}", "--store-timeout",
                   "300ms", given="0 a\n", code=1)
    assert "--store: " in err and str(port) in err
