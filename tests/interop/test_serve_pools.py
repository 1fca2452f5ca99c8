# SPDX-License-Identifier: MIT
"""Pools of keys that a server's config file defines: asked at both ports, and told where wrong."""
import json
import signal
import subprocess
import urllib.error
import urllib.request

import pytest

from program import STINT
from server import Server

CONFIG = """\
pools_max: 20
pools:
  - name: search
    quota: 2/1h
    keys: [alpha, {name: gamma, quotas: [1/1h, 5/1d], weight: 3}]
    keys_file: %s
  - {name: spare, order: fill_first}
"""


def write(path, text):
    path.write_text(text)
    return path


@pytest.fixture
def config(tmp_path):
    keys = write(tmp_path / "search.keys", "# of the search service\ndelta\n\n  epsilon\n")
    return write(tmp_path / "stint.yaml", CONFIG % keys)


def next_by_resp(client):
    reply = client.ask("STINT.POOL", "NEXT", "search")
    return dict(zip(reply[::2], reply[1::2]))["key"]


def post(server, verb, **members):
    request = urllib.request.Request(server.url(f"/v1/pools/search/{verb}"),
                                     data=json.dumps(members).encode(),
                                     headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)


def next_by_http(server):
    return post(server, "next")["key"]


def test_keys_are_handed_out_until_each_is_used_up(config):
    """Seven units in all: two of each key, and one of that which has quotas of its own."""
    with Server("--config", config) as server, server.connect() as client:
        given = [next_by_resp(client) for _ in range(4)]
        given += [next_by_http(server) for _ in range(3)]
        assert sorted(given) == sorted(["alpha", "delta", "epsilon"] * 2 + ["gamma"])
        assert next_by_resp(client) is None
        with pytest.raises(urllib.error.HTTPError, match="429"):
            next_by_http(server)
        with urllib.request.urlopen(server.url("/v1/pools"), timeout=20) as answer:
            assert json.load(answer) == {"pools": ["search", "spare"]}
        with urllib.request.urlopen(server.url("/v1/pools/search/status"), timeout=20) as answer:
            keys = {key["key"]: key for key in json.load(answer)["keys"]}
        assert [keys[name]["weight"] for name in ("alpha", "gamma", "delta")] == [1, 3, 1]


def test_what_keys_have_used_outlives_the_server(config, tmp_path):
    state = tmp_path / "state"
    with Server("--config", config, "--state", state) as server, server.connect() as client:
        first = [next_by_resp(client) for _ in range(6)]
    with Server("--config", config, "--state", state) as server, server.connect() as client:
        first.append(next_by_resp(client))
        assert sorted(first) == sorted(["alpha", "delta", "epsilon"] * 2 + ["gamma"])
        assert next_by_resp(client) is None


def test_an_id_is_charged_once_at_both_ports_and_after_a_restart(config, tmp_path):
    state = tmp_path / "state"
    with Server("--config", config, "--state", state) as server, server.connect() as client:
        first = post(server, "next", request_id="one")
        assert "replayed" not in first
        assert post(server, "next", request_id="one") == {**first, "replayed": True}
        reply = client.ask("STINT.POOL", "NEXT", "search", "ID", "one")
        assert dict(zip(reply[::2], reply[1::2]))["key"] == first["key"]
        assert reply[-2:] == ["replayed", 1]
        with pytest.raises(urllib.error.HTTPError, match="409"):
            post(server, "next", request_id="one", cost=2)
        with pytest.raises(urllib.error.HTTPError, match="400"):
            post(server, "next", request_id="")
        back = {"key": first["key"], "granted_at": first["at"], "request_id": "back"}
        assert [post(server, "give_back", **back) for _ in range(2)] == [{"given_back": 1}] * 2
    with Server("--config", config, "--state", state) as server, server.connect() as client:
        assert post(server, "next", request_id="one")["key"] == first["key"]
        assert len([key for key in (next_by_resp(client) for _ in range(8)) if key]) == 7


def test_keys_come_and_go_while_it_serves(config):
    with Server("--config", config) as server, server.connect() as client:
        assert client.ask("STINT.POOL", "ADD", "spare", "new", "QUOTA", "1/1h") == "OK"
        assert client.ask("STINT.POOL", "NEXT", "spare")[1] == "new"
        assert client.ask("STINT.POOL", "REMOVE", "search", "gamma") == "OK"
        assert "gamma" not in [next_by_resp(client) for _ in range(6)]


def printed(config):
    return subprocess.run([STINT, "serve", "--print-config", "--config", config], check=True,
                          capture_output=True, timeout=30).stdout.decode()


def test_a_key_with_another_quota_is_counted_anew(tmp_path):
    """And a reload of pools alone names no generation of rules, as there is none."""
    text = "pools:\n  - {name: search, quotas: [%s, 9/1d], keys: [alpha]}\n"
    config = write(tmp_path / "stint.yaml", text % "2/1h")
    with Server("--config", config, "--watch", "0") as server, server.connect() as client:
        for quota, given in [("2/1h", 2), ("3/1h", 3), ("2/1h", 0), ("8/1h", 4)]:
            write(config, text % quota)
            before = server.log.count("info reloaded")
            server.tell(signal.SIGHUP)
            server.wait_for("info reloaded", times=before + 1)
            assert [next_by_resp(client) for _ in range(given + 1)] == given * ["alpha"] + [None]
        assert "generation" not in server.log


def test_printed_pools_are_read_again(config, tmp_path):
    first = printed(config)
    again = write(tmp_path / "again.yaml", first)
    assert printed(again) == first
    assert '{name: "gamma", quotas: ["1/1h", "5/1d"], weight: 3}' in first
    assert "pools_max: 20\n" in first and "order: fill_first\n" in first
    with Server("--config", again) as server, server.connect() as client:
        assert next_by_resp(client) is not None


def of_one(fields):
    return "pools:\n  - {name: a, %s}\n" % fields


@pytest.mark.parametrize("text, place, said", [
    ("pools: 16\n", "1:8", "pools: expected a list of pools"),
    ("pools: []\npools: []\n", "2:1", "already"),
    ("pool: []\n", "1:1", "did you mean 'pools'?"),
    ("pools:\n  - one\n", "2:5", "expected a pool"),
    ("pools:\n  - {order: fill_first}\n", "2:5", "name: expected a name, found none"),
    ("pools:\n  - name: a\n  - name: a\n", "3:5", "the pool a is there already, in line 2"),
    ("pools:\n  - name: a b\n", "2:11", "a blank"),
    (of_one("ordr: x"), "2:15", 'did you mean "order"?'),
    (of_one("order: x"), "2:22", "expected round_robin, fill_first or least_used"),
    (of_one("quota: 5"), "2:22", "expected LIMIT/PERIOD"),
    (of_one("quota: 1/1s, quotas: [1/1s]"), "2:36", "expected one of both"),
    (of_one("quotas: [1/1s, 2/1s, 3/1s, 4/1s, 5/1s]"), "2:23", "1 to 4"),
    (of_one("quotas: []"), "2:23", "1 to 4"),
    (of_one("keys: k"), "2:21", "keys: expected a list of names"),
    (of_one("keys: [k]"), "2:22", "expected a quota"),
    (of_one("keys_file: /k"), "2:26", "expected `quota` of the pool"),
    (of_one('quota: 1/1s, keys: [""]'), "2:35", "an empty text"),
    (of_one("quota: 1/1s, keys: [~]"), "2:35", "expected NAME or {name: NAME}"),
    (of_one("quota: 1/1s, keys: [k, l, {name: k}]"), "2:41", "the key k is there already"),
    (of_one("quota: 1/1s, keys: [{name: k, weight: 0}]"), "2:53", "from 1"),
    (of_one("quota: 1/1s, keys: [{name: k, weight: 1001}]"), "2:53", "at most 1000"),
    (of_one("quota: concurrency 5 lease=1m, keys: [k]"), "2:5", "concurrency"),
    (of_one("quota: 1/1s, keys_file: /no/keys"), "2:5", "/no/keys"),
])
def test_faults_have_their_place_and_nothing_is_served(tmp_path, text, place, said):
    config = write(tmp_path / "stint.yaml", text)
    done = subprocess.run([STINT, "serve", "--config", config, "--resp", "127.0.0.1:0", "--http",
                           "off"], capture_output=True, timeout=30)
    told = done.stderr.decode()
    assert done.returncode == 1
    assert f"{config}:{place}: " in told and said in told, told


def test_a_secret_in_a_file_of_keys_is_refused_and_not_repeated(tmp_path):
    keys = write(tmp_path / "keys", "one\ntwo hunter2\n")
    config = write(tmp_path / "stint.yaml", of_one(f"quota: 1/1s, keys_file: {keys}"))
    done = subprocess.run([STINT, "serve", "--config", config, "--resp", "127.0.0.1:0", "--http",
                           "off"], capture_output=True, timeout=30)
    told = done.stderr.decode()
    assert done.returncode == 1
    assert f"{keys}, line 2: expected a NAME alone" in told and "hunter2" not in told
