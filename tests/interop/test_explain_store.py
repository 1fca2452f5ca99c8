# SPDX-License-Identifier: MIT
"""`stint explain --store` against real servers: names, holders and states of keys, as they are."""
import json
import re
import subprocess

import pytest

from program import SOURCE, stint
from redis_server import Redis
from server import Server, free_port
from store_servers import Cluster, Memcached, Sentinels

RULES = """
domain: api
descriptors:
  - key: ip
    rate_limit: {unit: minute, requests_per_unit: 3}
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 10, algorithm: gcra, store: red}
    shadow: {unit: minute, requests_per_unit: 5}
  - key: here
    rate_limit: {unit: hour, requests_per_unit: 10, store: none}
  - key: hot
    rate_limit: {unit: minute, requests_per_unit: 3000, lease: strict}
  - key: free
    rate_limit: {unlimited: true}
"""


@pytest.fixture(scope="module")
def rules(tmp_path_factory):
    path = tmp_path_factory.mktemp("rules") / "limits.yaml"
    path.write_text(RULES)
    return path


@pytest.fixture(scope="module")
def one_for_all():
    with Redis() as server:
        yield server


@pytest.fixture
def redis(one_for_all):
    """Empty, whatever the test before has left."""
    one_for_all.cli("FLUSHALL")
    return one_for_all


def explain(rules, url, *words, code=0):
    out, _ = stint("explain", "--json", "--rules", rules, "--store", url, "api", *words, code=code)
    return json.loads(out)["descriptors"]


def key_of(rules, url, *words, code=0):
    return explain(rules, url, *words, code=code)[0]["key"]


def script(name):
    return subprocess.run(["/usr/bin/python3", SOURCE / "tools" / "make_scripts.py",
                           SOURCE / "lua", name], capture_output=True, text=True, check=True).stdout


def take(server, name, times=1):
    for _ in range(times):
        server.cli("EVAL", script("window"), 1, name, "take", 1, 0, 0, 3, 60_000_000)


def test_a_key_that_was_never_used(rules, redis):
    found = explain(rules, redis.url, "ip=203.0.113.9")[0]
    assert found["key"] == {"name": "stint:{203.0.113.9}window,60000000,24:api/ip:",
                            "node": f"127.0.0.1:{redis.port}", "slot": None, "bytes": None,
                            "ttl_ms": None, "fault": None}
    assert found["outcome"] == "allow" and found["remaining"] == 2
    assert redis.cli("DBSIZE") == "0", "a look writes nothing"


def test_a_key_that_is_used_up_is_told_with_all_that_it_holds(rules, redis):
    name = key_of(rules, redis.url, "ip=a")["name"]
    take(redis, name, 3)
    found = explain(rules, redis.url, "ip=a", code=3)[0]
    shown = found["key"]
    assert found["outcome"] == "deny" and 0 < found["retry_after_ns"] <= 63_000_000_000
    assert bytes.fromhex(shown["bytes"])[:5] == b"\x11\x00\x00\x00\x03"
    assert len(bytes.fromhex(shown["bytes"])) == int(redis.cli("STRLEN", name))
    assert 0 < shown["ttl_ms"] <= 63_000
    # A second look finds the same: the first has charged nothing.
    assert key_of(rules, redis.url, "ip=a", code=3)["bytes"] == shown["bytes"]


def test_text_names_the_key_as_a_shell_takes_it(rules, redis):
    url = redis.url
    take(redis, key_of(rules, url, "ip=a b'$c{}*")["name"])
    out, _ = stint("explain", "--rules", rules, "--store", url, "api", "ip=a b'$c{}*")
    quoted = next(line.split(None, 1)[1] for line in out.splitlines() if "   key " in line)
    length = subprocess.run(f"redis-cli -p {redis.port} strlen {quoted}", shell=True,
                            capture_output=True, text=True, check=True).stdout
    assert int(length) > 12
    for word in ("node    127.0.0.1:", "bytes   ", "expiry  ", "reset   ", "leaves 1 of 3"):
        assert word in out, word


def test_each_descriptor_is_told_where_it_is(rules, redis):
    found = explain(rules, redis.url, "user=x", ",", "here=x", ",", "free=x", ",", "other=x")
    user = found[0]
    assert user["rule"]["store"] == "red"
    assert user["key"]["name"] == "stint:{x}gcra:api/user:"
    assert user["shadow_key"]["name"].startswith("stint:{x}window,60000000,24:api/user@")
    assert [one["key"] for one in found[1:]] == [None, None, None]


def test_leases_are_told_beside_the_state_that_they_are_of(rules, redis):
    found = explain(rules, redis.url, "hot=x")[0]
    assert found["leases_key"]["name"] == found["key"]["name"] + "!leases"
    assert found["leases_key"]["bytes"] is None
    end_us = int(redis.cli("TIME").split()[0]) * 1_000_000 + 60_000_000
    redis.cli("EVAL", "redis.call('set', KEYS[1], struct.pack('>BI7I4I7I4', 0x81, ARGV[1], 30, "
              "ARGV[1] + 1, 12))", 1, found["leases_key"]["name"], end_us)
    found = explain(rules, redis.url, "hot=x")[0]
    assert found["leases_key"]["bytes"].startswith("81") and found["remaining"] == 3000 - 42 - 1
    out, _ = stint("explain", "--rules", rules, "--store", redis.url, "api", "hot=x")
    assert "units   42 in 2 leases" in out and "!leases'" in out


def test_the_prefix_is_that_of_the_servers(rules, redis):
    found = json.loads(stint("explain", "--json", "--rules", rules, "--store", redis.url,
                             "--prefix", "a b:", "api", "ip=x")[0])["descriptors"][0]
    assert found["key"]["name"] == "a%20b:{x}window,60000000,24:api/ip:"


def test_rules_explain_is_the_same_command(rules, redis):
    words = ["--rules", rules, "--store", redis.url, "api", "ip=x"]
    texts = [stint(*command, *words)[0] for command in (["explain"], ["rules", "explain"])]
    plain = [re.sub(r"after [0-9.]+ s", "", text) for text in texts]  # which has moved on
    assert plain[0] == plain[1]


def test_what_is_no_state_is_told(rules, redis):
    name = key_of(rules, redis.url, "ip=bad")["name"]
    redis.cli("SET", name, "junk")
    _, err = stint("explain", "--rules", rules, "--store", redis.url, "api", "ip=bad", code=1)
    assert "--store: the key in the store holds no state that this version can read" in err


def test_a_password_is_used_and_not_told(rules):
    with Redis(requirepass="hush") as server:
        url = f"redis://:hush@127.0.0.1:{server.port}"
        out, err = stint("explain", "--rules", rules, "--store", url, "api", "ip=x")
        assert "node    127.0.0.1:" in out and "hush" not in out + err
        _, err = stint("explain", "--rules", rules, "--store", f"redis://127.0.0.1:{server.port}",
                       "api", "ip=x", code=1)
        assert "NOAUTH" in err or "password" in err


def test_a_store_that_is_not_there_is_told(rules):
    port = free_port()
    _, err = stint("explain", "--rules", rules, "--store", f"redis://127.0.0.1:{port}", "api",
                   "ip=x", code=1)
    assert f"127.0.0.1:{port}: Connection refused" in err


@pytest.mark.parametrize("words, sentence", [
    (["--store", "redis://127.0.0.1", "api", "ip=x"], "expected --rules PATH"),
    (["--rules", "x", "--store", "redis://127.0.0.1", "--state", "y", "api", "ip=x"],
     "not in both"),
    (["--rules", "x", "--prefix", "y", "api", "ip=x"], "--prefix is of the keys of --store"),
    (["--rules", "x", "--store", "what", "api", "ip=x"], "begins with redis://"),
    (["--rules", "x", "--store-timeout", "1s", "api", "ip=x"], "without --store"),
])
def test_bad_usage(words, sentence):
    assert sentence in stint("explain", *words, code=2)[1]


def test_without_a_store_a_quota_is_explained():
    assert "What is allowed" in stint("explain", "window 100/60s")[0]


def test_a_cluster_says_which_node_has_it(rules):
    with Cluster(masters=3, replicas=0) as cluster:
        url = f"redis-cluster://127.0.0.1:{cluster.masters[1].port}"
        nodes = set()
        for i in range(12):
            key = key_of(rules, url, f"ip={i}")
            assert key["slot"] == cluster.slot_of(key["name"])
            owner = cluster.owner(key["slot"])
            assert key["node"] == f"127.0.0.1:{owner.port}"
            take(owner, key["name"])
            assert key_of(rules, url, f"ip={i}")["bytes"] is not None
            nodes.add(key["node"])
        assert len(nodes) > 1


def test_sentinels_lead_to_the_master(rules):
    with Sentinels(replicas=1) as sentinels:
        key = key_of(rules, sentinels.url, "ip=x")
        assert key["node"] == f"127.0.0.1:{sentinels.master.port}"


def test_memcached_tells_how_a_key_stands_and_no_more(rules):
    with Memcached() as server:
        found = explain(rules, server.url, "ip=x")[0]
        assert found["outcome"] == "allow" and found["remaining"] == 2
        assert found["key"]["node"] is None and found["key"]["bytes"] is None


def test_a_name_in_memcached_is_that_which_servers_use(tmp_path):
    """Long ones are hashed; what stands in the braces is as the rule says."""
    rules = tmp_path / "limits.yaml"
    rules.write_text("domain: api\nstore_tag: domain\ndescriptors:\n  - key: user\n"
                     "    rate_limit: {unit: minute, requests_per_unit: 3}\n")
    with Memcached() as store, Server("--store", store.url, "--store-prefix", "a b:",
                                      rules=rules.read_text()) as server:
        for user, name in (("x,y", "a%20b:{api}window,60000000,24:api/user:x%2Cy"),
                           ("x" * 300, None)):
            found, _ = stint("explain", "--json", "--rules", rules, "--store", store.url,
                             "--prefix", "a b:", "api", f"user={user}")
            shown = json.loads(found)["descriptors"][0]["key"]["name"]
            assert shown == name or (name is None and re.fullmatch("a%20b:#[0-9a-f]{64}", shown))
            assert store.ask(f"mg {shown} s") == "EN\r\n"
            with server.connect() as client:
                client.ask("STINT.TAKE", "DOMAIN", "api", "DESCRIPTOR", 1, "user", user)
            assert store.ask(f"mg {shown} s").startswith("HD s")
