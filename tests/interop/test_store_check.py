# SPDX-License-Identifier: MIT
"""`stint store check` against real servers: each way in, what is wrong with each, no secrets."""
import json
import re
import socket
import subprocess
import threading
import time

import pytest

from program import STINT
from redis_server import Redis, Tls
from server import free_port
from store_servers import Memcached
from tls_authority import Authority


def check(*words, code=0, env=None):
    done = subprocess.run([STINT, "store", "check", "--samples", "5", *map(str, words)],
                          capture_output=True, text=True, timeout=20, env=env)
    assert done.returncode == code, done.stdout + done.stderr
    assert "hush" not in done.stdout + done.stderr
    return done.stdout, done.stderr


def look(*words, code=0):
    return json.loads(check("--json", *words, code=code)[0])


@pytest.fixture(scope="module")
def redis():
    with Redis(appendonly="yes") as server:
        yield server


# ---- Ways in ----


def test_a_single_server_is_fit(redis):
    found = look(f"{redis.url}/3")
    version = re.search(r"redis_version:(\S+)", redis.cli("INFO"))[1]
    assert found["fit"] and found["faults"] == [] and found["warnings"] == []
    assert found["url"] == f"{redis.url}/3"
    assert found["server"] == {"name": "redis", "version": version, "mode": "standalone",
                               "role": "master", "address": f"127.0.0.1:{redis.port}"}
    assert found["scripts"] is True
    assert found["eviction"] == {"policy": "noeviction", "memory_max": 0}
    assert found["persistence"] == {"append_only": "on", "snapshots": "off", "replicas": 0}
    # One clock, read twice.
    assert abs(found["clock"]["ahead_ns"]) <= found["clock"]["error_ns"] + 1_000_000
    trip = found["round_trip"]
    assert trip["samples"] == 5
    assert 0 < trip["median_ns"] <= trip["p90_ns"] <= trip["p99_ns"] <= trip["max_ns"] < 2e9
    assert redis.cli("KEYS", "*") == ""
    assert redis.cli("-n", "3", "KEYS", "*") == ""


def test_text_says_the_same(redis):
    out, _ = check(redis.url)
    assert out.splitlines()[0] == redis.url and out.splitlines()[-1] == "fit"
    for name in ("server", "scripts", "eviction", "persistence", "clock", "round trip"):
        assert re.search(rf"(?m)^  {name} +\S", out), name


def test_the_url_may_stand_in_the_environment(redis):
    assert check(env={"STINT_STORE": redis.url})[0].startswith(redis.url)


def test_the_url_may_stand_in_a_file(redis, tmp_path):
    file = tmp_path / "url"
    file.write_text(f"{redis.url}/2\nno URL\n")
    assert check(f"@{file}")[0].startswith(f"{redis.url}/2\n")
    assert check(env={"STINT_STORE": f"@{file}"})[0].startswith(f"{redis.url}/2\n")
    file.write_text("redis://:hush@:x\n")
    assert f"{file}: " in check(f"@{file}", code=2)[1]
    assert "no-such: No such file" in check(f"@{tmp_path}/no-such", code=2)[1]
    assert "behind @" in check("@", code=2)[1]


def test_of_several_hosts_the_first_that_answers_is_looked_at(redis):
    found = look(f"redis://127.0.0.1:{free_port()},localhost:{redis.port}")
    assert found["server"]["address"] == f"localhost:{redis.port}"


def test_a_unix_socket(redis):
    found = look(f"unix:{redis.socket}")
    assert found["fit"] and found["server"]["address"] == redis.socket
    assert "No such file" in check("unix:/nowhere/socket", code=1)[1]


def test_passwords():
    with Redis(requirepass="hush/1") as server:
        host = f"127.0.0.1:{server.port}"
        out, _ = check(f"redis://:hush%2F1@{host}")
        assert out.startswith(f"redis://:***@{host}\n")
        assert "WRONGPASS" in check(f"redis://:hush@{host}", code=1)[1]
        assert "NOAUTH" in check(f"redis://{host}", code=1)[1]


def test_users_of_an_access_control_list():
    users = ["user all on >hush ~stint:* +@all",
             "user few on >hush ~stint:* +hello +ping +time +get +set +del +eval +evalsha "
             "+script|load +command",
             "user keyless on >hush ~other:* +@all",
             "user scriptless on >hush ~stint:* +@all -script"]
    with Redis(*users, appendonly="yes") as server:
        def url(name):
            return f"redis://{name}:hush@127.0.0.1:{server.port}"
        assert look(url("all"))["warnings"] == []
        few = look(url("few"))
        assert few["fit"] and few["eviction"]["policy"] is None
        assert few["persistence"]["append_only"] is None
        assert any("after_failover" in line and "NOPERM" in line for line in few["warnings"])
        for name, told in {"keyless": "stint:{check}", "scriptless": "SCRIPT LOAD"}.items():
            found = look(url(name), code=3)
            assert not found["fit"] and found["scripts"] is False
            assert told in found["faults"][0]
        assert "WRONGPASS" in check(url("nobody"), code=1)[1]


# ---- TLS ----


def test_tls_with_client_certificates(authority, tmp_path):
    tls = Tls(authority, "server")
    cert, key = authority.sign("client")
    with Redis(tls=tls) as server:
        for host in ("127.0.0.1", "localhost"):
            url = f"rediss://{host}:{server.port}"
            assert look("--ca-file", tls.ca, "--cert-file", cert, "--key-file", key, url)["fit"]
        # Without ours, with a stranger's authority, and with none of TLS.
        assert check("--ca-file", tls.ca, url, code=1)[1].count("\n") == 1
        other = Authority(tmp_path, "other")
        refused = check("--ca-file", other.certificate, "--cert-file", cert, "--key-file", key,
                        url, code=1)[1]
        assert "NOT trusted" in refused
        assert "TLS" in check(f"redis://127.0.0.1:{server.port}", code=1)[1]
        # A certificate is for the names that it bears.
        by_name = f"rediss://127.0.0.2:{server.port}"
        assert check("--ca-file", tls.ca, by_name, code=1)[1]
    assert "no.pem" in check("--ca-file", "no.pem", "rediss://127.0.0.1", code=1)[1]


def test_a_certificate_must_bear_the_name(authority):
    tls = Tls(authority, "server")
    with Redis(tls=tls, bind="127.0.0.1 127.0.0.2", tls_auth_clients="no") as server:
        assert look("--ca-file", tls.ca, f"rediss://127.0.0.1:{server.port}")["fit"]
        told = check("--ca-file", tls.ca, f"rediss://127.0.0.2:{server.port}", code=1)[1]
        assert "name" in told and "certificate" in told


# ---- Who is no store ----


def test_nobody_is_there():
    port = free_port()
    assert check(f"redis://127.0.0.1:{port}", code=1)[1] == \
        (f"stint: 127.0.0.1:{port}: Connection refused; the address is that of URL, and "
         "`redis-cli -u URL ping` tests it\n")
    assert "nowhere.invalid" in check("redis://nowhere.invalid", code=1)[1]


def serve_once(answer):
    """A port that says `answer` to one who comes; None: nothing, ever."""
    listener = socket.create_server(("127.0.0.1", 0))

    def run():
        peer, _ = listener.accept()
        with peer, listener:
            if answer is not None:
                peer.recv(1000)
                peer.sendall(answer)
            while peer.recv(1000):
                pass

    threading.Thread(target=run, daemon=True).start()
    return f"redis://127.0.0.1:{listener.getsockname()[1]}"


def test_no_redis_at_all():
    assert "invalid reply from Redis" in check(serve_once(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
                                             code=1)[1]
    assert "neither Redis nor Valkey" in check(serve_once(b"+hello\r\n"), code=1)[1]
    assert "refuses HELLO: ERR unknown" in check(serve_once(b"-ERR unknown command\r\n"),
                                                 code=1)[1]
    # Real time: that is what a timeout is about.
    assert "within 200 ms" in check("--timeout", "200ms", serve_once(None), code=1)[1]


RUDE = b"\x1b[31m\x07\n\xff"


def rude_redis(peer):
    """A server that tries to steer the terminal of whoever asks it, until he leaves."""
    def bulk(text):
        return b"$%d\r\n%s\r\n" % (len(text), text)

    replies = {
        b"HELLO": b"*8\r\n" + b"".join(bulk(word) for word in (
            b"server", b"redis", b"version", b"7.0" + RUDE, b"mode", b"alone" + RUDE, b"role",
            b"master")),
        b"INFO": bulk(b"role:master\r\nmaxmemory_policy:x" + RUDE[:-2] + b"\r\naof_enabled:0\r\n"),
        b"CONFIG": b"*2\r\n" + bulk(b"save") + bulk(RUDE),
        b"SCRIPT": b"-NOPERM" + RUDE + b"\r\n",
        b"COMMAND": b"*1\r\n$-1\r\n",
        b"TIME": b"*2\r\n" + bulk(b"1") + bulk(b"1"),
    }
    while said := peer.recv(10_000):
        word = said.split(b"\r\n")[2].upper()
        peer.sendall(replies.get(word, b"+PONG\r\n"))


def rude_memcached(peer):
    while said := peer.recv(10_000):
        if said.startswith(b"version"):
            peer.sendall(b"VERSION 1.6.99" + RUDE[:-2] + b"\xff\r\nSTAT pid 1\r\nEND\r\n")
        elif said.startswith(b"stats"):
            peer.sendall(b"STAT pid 1\r\nEND\r\n")
        else:
            peer.sendall(b"ERROR" + b"\r\n")


@pytest.mark.parametrize("scheme, serve", [("redis", rude_redis), ("memcached", rude_memcached)])
def test_what_servers_say_is_shown_as_text(scheme, serve):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def run():
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                with peer:
                    serve(peer)

        threading.Thread(target=run, daemon=True).start()
        url = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
        for words in ([], ["--json"]):
            done = subprocess.run([STINT, "store", "check", "--samples", "2", *words, url],
                                  capture_output=True, timeout=20)
            assert done.returncode == 3, done
            assert not re.search(rb"[\0-\x09\x0b-\x1f\x7f]", done.stdout), done.stdout
            lines = done.stdout.splitlines()
            assert all(line == url.encode() or re.match(rb"  |fault: |warning: |not fit|\{", line)
                       for line in lines), lines
        listener.shutdown(socket.SHUT_RDWR)


def test_usage():
    for words, told in ((["redis://:hush@a:x"], "not a host"), (["memcached://a/1"], "databases"),
                        (["redis://a", "redis://b"], "one URL"), ([], "expected the URL"),
                        (["--ca-file", "x", "redis://a"], "go with rediss"),
                        (["--samples", "0", "redis://a"], "--samples")):
        assert told in check(*words, code=2, env={})[1]


# ---- What is wrong with a store ----


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_eviction_is_warned_of(policy):
    with Redis(maxmemory="100mb", maxmemory_policy=policy, appendonly="yes") as server:
        found = look(server.url)
        assert found["fit"] and found["eviction"] == {"policy": policy, "memory_max": 104857600}
        assert len(found["warnings"]) == 1 and policy in found["warnings"][0]


def test_what_a_restart_forgets_is_warned_of(redis):
    with Redis() as server:
        assert "kept over a restart" in look(server.url)["warnings"][0]
    with Redis(save="3600 1") as server:
        found = look(server.url)
        assert found["warnings"] == [] and found["persistence"]["snapshots"] == "3600 1"


def test_a_replica_is_a_fault(redis):
    with Redis(replicaof=f"127.0.0.1 {redis.port}") as replica:
        found = look(replica.url, code=3)
        assert found["server"]["role"] == "replica"
        assert any("takes no writes" in line for line in found["faults"])


def test_a_full_server_is_a_fault():
    with Redis(maxmemory="1", appendonly="yes") as server:
        assert any("OOM" in line for line in look(server.url, code=3)["faults"])


# ---- Several servers ----


@pytest.fixture(scope="module")
def cluster():
    """Three masters and no replica, by the cluster's own tool."""
    made = []
    try:
        for _ in range(3):
            made.append(Redis(appendonly="yes", cluster_enabled="yes",
                              cluster_port=free_port()))
        nodes = [f"127.0.0.1:{server.port}" for server in made]
        made[0].cli("--cluster", "create", *nodes, "--cluster-yes")
        ends = time.monotonic() + 30
        while not all("cluster_state:ok" in server.cli("CLUSTER", "INFO") for server in made):
            assert time.monotonic() < ends
            time.sleep(0.05)
        yield made
    finally:
        for server in made:
            server.stop()


def test_a_cluster(cluster):
    for server in cluster:
        server.cli("CONFIG", "RESETSTAT")
    found = look(cluster[1].url.replace("redis:", "redis-cluster:"))
    assert found["fit"] and found["faults"] == [] and found["scripts"] is True
    assert found["cluster"] == {"masters": 3, "replicas": 0, "slots_served": 16384}
    assert found["sentinel"] is None and found["server"]["mode"] == "cluster"
    assert len(found["warnings"]) == 1 and "replica" in found["warnings"][0]
    for server in cluster:
        # The script has run on each of them, and left nothing.
        assert "cmdstat_evalsha:calls=1," in server.cli("INFO", "COMMANDSTATS")
        assert server.cli("KEYS", "*") == ""
    assert "expected redis-cluster://" in look(cluster[0].url, code=3)["faults"][0]


def test_a_cluster_without_a_master_for_some_slots(cluster):
    url = cluster[0].url.replace("redis:", "redis-cluster:")
    cluster[0].cli("CLUSTER", "DELSLOTS", "7")
    try:
        found = look(url, code=3)
        assert found["cluster"]["slots_served"] < 16384
        assert any("have no master" in line for line in found["faults"])
    finally:
        cluster[0].cli("CLUSTER", "ADDSLOTS", "7")


def test_no_cluster_where_one_is_meant(redis):
    told = check("--json", redis.url.replace("redis:", "redis-cluster:"), code=3)[0]
    assert "expected redis://" in told


def test_sentinels_lead_to_the_master(redis):
    with Redis(f"sentinel monitor main 127.0.0.1 {redis.port} 1", program="redis-sentinel") as one:
        url = f"redis-sentinel://127.0.0.1:{one.port}"
        found = look(f"{url}/main/2")
        assert found["fit"] and found["server"]["address"] == f"127.0.0.1:{redis.port}"
        assert found["sentinel"] == {"sentinels": 1, "quorum": 1} and found["cluster"] is None
        assert "no master named 'other'" in check(f"{url}/other", code=1)[1]
        faults = look(f"redis://127.0.0.1:{one.port}", code=3)["faults"]
        assert any("redis-sentinel://" in line for line in faults)
    with Redis(f"sentinel monitor main 127.0.0.1 {redis.port} 2", program="redis-sentinel") as one:
        found = look(f"redis-sentinel://127.0.0.1:{one.port}/main")
        assert any("NOQUORUM" in line for line in found["warnings"])
    told = check(redis.url.replace("redis:", "redis-sentinel:") + "/main", code=1)[1]
    assert "no sentinel" in told


# ---- memcached ----


def test_memcached_is_fit():
    with Memcached("-I", "2m", megabytes=100) as server:
        found = look(server.url)
        assert found["fit"] and found["faults"] == found["warnings"] == []
        (one,) = found["servers"]
        assert one["name"] == "memcached" and one["swaps"] is True
        assert f"VERSION {one['version']}" in server.ask("version")
        assert one["address"] == f"127.0.0.1:{server.port}"
        assert one["memory"]["max"] == 100 << 20 and one["memory"]["item_max"] == 2 << 20
        assert one["eviction"] == {"on": True, "evicted": 0}
        assert one["round_trip"]["samples"] == 5
        assert server.stats()["curr_items"] == "0"
        out, _ = check(server.url)
        assert out.splitlines()[0] == server.url and out.splitlines()[-1] == "fit"
        for name in ("server", "memory", "eviction", "swaps", "round trip", "persistence"):
            assert re.search(rf"(?m)^  {name} +\S", out), name


def test_what_is_wrong_with_a_memcached():
    with Memcached("-C") as server:
        assert "without -C" in look(server.url, code=3)["faults"][0]
    with Memcached("-M") as server:
        found = look(server.url)
        assert found["fit"] and "-M" in found["warnings"][0]
        assert found["servers"][0]["eviction"]["on"] is False
    assert "refused" in check(f"memcached://127.0.0.1:{free_port()}", code=1)[1]


def test_no_memcached_at_all(redis):
    assert "memcached" in check(redis.url.replace("redis:", "memcached:"), code=1)[1]


def test_each_memcached_of_several_is_looked_at():
    with Memcached() as one, Memcached("-C") as other:
        url = f"memcached://127.0.0.1:{one.port},127.0.0.1:{other.port}"
        found = look(url, code=3)
        assert [server["swaps"] for server in found["servers"]] == [True, False]
        assert found["faults"][0].startswith(f"127.0.0.1:{other.port}: ")
