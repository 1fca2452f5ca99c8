# SPDX-License-Identifier: MIT
"""Rules and tokens are read anew while the server serves. Real time: files change in it."""
import json
import os
import shutil
import signal
import socket
import statistics
import threading
import time
import urllib.request

from server import Resp, Server

RULES = """
domain: edge
descriptors:
  - key: user
    rate_limit: {name: per_user, unit: day, requests_per_unit: %d}
"""


def take(client, user="ann"):
    """(allowed, remaining) of the rule."""
    reply = client.ask("STINT.TAKE", "DOMAIN", "edge", "DESCRIPTOR", 1, "user", user)
    if isinstance(reply, RuntimeError):
        raise reply
    fields = dict(zip(reply[::2], reply[1::2]))
    return fields["outcome"] == "allow", fields["remaining"]


def post(url):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=20) as got:
            return got.status, json.load(got)
    except urllib.error.HTTPError as got:
        return got.code, json.load(got)


def test_a_changed_file_is_read_and_states_go_on():
    with Server("--watch", "10s", rules=RULES % 10) as server, server.connect() as client:
        assert take(client) == (True, 9)
        server.write_rules(RULES % 20)
        server.wait_for("info reloaded", 5)
        assert take(client) == (True, 18)


def test_sighup_and_post_read_anew():
    with Server("--watch", "0", rules=RULES % 10) as server, server.connect() as client:
        server.write_rules(RULES % 20)
        time.sleep(0.5)
        assert take(client) == (True, 9)  # nobody has said anything
        server.tell(signal.SIGHUP)
        server.wait_for("info reloaded")
        assert take(client) == (True, 18)
        server.write_rules(RULES % 30)
        status, answer = post(server.url("/v1/reload"))
        assert status == 200 and answer["ok"] and answer["generation"] >= 2
        assert take(client) == (True, 27)


def test_a_fault_changes_nothing_and_is_told():
    with Server("--watch", "0", rules=RULES % 10) as server, server.connect() as client:
        server.write_rules("domain: edge\ndescriptors:\n  - kay: user\n")
        server.tell(signal.SIGHUP)
        server.wait_for("error reload_failed")
        assert f"{server.rules}:3:5" in server.log
        assert take(client) == (True, 9)
        status, answer = post(server.url("/v1/reload"))
        assert status >= 400 and "rules.yaml:3:5" in json.dumps(answer)
        metrics = urllib.request.urlopen(server.url("/metrics"), timeout=20).read().decode()
        assert 'stint_config_reloads_total{result="error"} 2' in metrics.replace("failure", "error")
        server.write_rules(RULES % 20)
        assert post(server.url("/v1/reload"))[0] == 200
        assert take(client) == (True, 18)


def test_a_configmap_is_swapped_by_its_symlink(tmp_path):
    """As Kubernetes does it: names lead through ..data, which is renamed over."""
    def version(number, limit):
        folder = tmp_path / f"..{number}"
        folder.mkdir()
        (folder / "rules.yaml").write_text(RULES % limit)
        os.symlink(folder.name, tmp_path / "..data_tmp")
        os.rename(tmp_path / "..data_tmp", tmp_path / "..data")

    version(1, 10)
    os.symlink("..data/rules.yaml", tmp_path / "rules.yaml")
    for named in (tmp_path, tmp_path / "rules.yaml"):
        with Server("--rules", named, "--watch", "10s") as server, server.connect() as client:
            assert take(client) == (True, 9)
            version(2, 20)
            server.wait_for("info reloaded", 5)
            assert take(client) == (True, 18)
        shutil.rmtree(tmp_path / "..2")
        shutil.rmtree(tmp_path / "..1")
        version(1, 10)


def test_looking_now_and_then_finds_what_nobody_tells(tmp_path):
    """The folder that the file really is in is not watched: only its name's is."""
    hidden = tmp_path / "far"
    hidden.mkdir()
    (hidden / "real.yaml").write_text(RULES % 10)
    near = tmp_path / "near"
    near.mkdir()
    os.symlink(hidden / "real.yaml", near / "rules.yaml")
    with Server("--rules", near / "rules.yaml", "--watch", "200ms") as server:
        with server.connect() as client:
            assert take(client) == (True, 9)
            (hidden / "real.yaml").write_text(RULES % 20)
            server.wait_for("info reloaded", 10)
            assert take(client) == (True, 18)


def many_rules(n_rules, limit):
    values = "".join(f"  - {{key: path, value: /p{i}, rate_limit: {{unit: day, requests_per_unit: "
                     f"{limit}}}}}\n" for i in range(n_rules))
    return RULES % limit + values


def test_reloads_under_load_fail_and_delay_nobody():
    """20,000 rules are read again and again: takes go on, none is refused, none waits for it.

    The bound on the wait is that on the longest but one per mille: a busy machine's scheduler may
    hold up any single request.
    """
    waits, failures, ends = [], [], threading.Event()
    with Server("--watch", "0", "--workers", 2, rules=many_rules(20000, 1000000)) as server:
        def asks():
            with server.connect() as client:
                while not ends.is_set():
                    began = time.perf_counter()
                    allowed, _ = take(client)
                    waits.append(time.perf_counter() - began)
                    if not allowed:
                        failures.append("denied")

        threads = [threading.Thread(target=asks, daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        quiet = sorted(waits)
        waits.clear()
        for turn in range(5):
            server.write_rules(many_rules(20000, 1000001 + turn))
            server.tell(signal.SIGHUP)
            server.wait_for("info reloaded", 30, times=turn + 1)
        ends.set()
        for thread in threads:
            thread.join(20)
        assert not failures and len(waits) > 200
        loaded = sorted(waits)
        assert loaded[len(loaded) * 99 // 100] < 0.010 + 4 * quiet[len(quiet) * 99 // 100], \
            (statistics.median(waits), loaded[-10:])
        assert "reload_failed" not in server.log
