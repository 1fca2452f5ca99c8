# SPDX-License-Identifier: MIT
"""`stint serve` as its users meet it: settings, ports, and how it begins and ends."""
import json
import os
import re
import socket
import signal
import stat
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

import pytest

from program import SOURCE, STINT, stint
from server import Resp, Server

RULES = """
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 3}
"""


def serve(*args, code=1, env=None, **options):
    """What a server that does not start says."""
    done = subprocess.run([STINT, "serve", *map(str, args)], capture_output=True, timeout=30,
                          env={**os.environ, **(env or {})}, **options)
    assert done.returncode == code, (done.returncode, done.stderr.decode())
    return done.stderr.decode()


def printed(*args, env=None):
    done = subprocess.run([STINT, "serve", "--print-config", *map(str, args)], timeout=30,
                          capture_output=True, check=True, env={**os.environ, **(env or {})})
    return done.stdout.decode()


def setting(text, name):
    return re.search(rf"^{name}: (.*)$", text, re.M)[1]


def ask(url, **options):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, **options), timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as answer:
        return answer.code, answer.read().decode()


# ---- settings ----


def test_options_are_stronger_than_variables_and_these_than_the_file(tmp_path):
    config = tmp_path / "stint.yaml"
    config.write_text("keys: 1000\nkeys16: 2000\nblocks: 3000\n")
    text = printed("--config", config, "--keys", 10, env={"STINT_KEYS": "20", "STINT_KEYS16": "30"})
    assert [setting(text, name) for name in ("keys", "keys16", "blocks", "quotas")] == \
        ["10", "30", "3000", "0"]


def test_printed_config_gives_the_same_settings(tmp_path):
    first = printed("--resp", "unix:/tmp/a b.sock,mode=0600", "--resp", "[::1]:7000",
                    "--http", "off", "--rules", 'odd "name"\\\x85\u2028.yaml',
                    "--http-descriptors", "address/32/64, path",
                    "--idle-time", "90s", "--request-size", "2MiB", "--insecure", "--watch", "0")
    config = tmp_path / "stint.yaml"
    config.write_text(first)
    assert printed("--config", config) == first
    assert setting(first, "http") == '["off"]'
    assert setting(first, "idle_time") == "1m30s"
    assert setting(first, "request_size") == str(2 << 20)


def test_a_list_of_a_stronger_origin_takes_the_place_of_a_weaker(tmp_path):
    config = tmp_path / "stint.yaml"
    config.write_text("resp: [127.0.0.1:1, 127.0.0.1:2]\n")
    text = printed("--config", config, env={"STINT_RESP": "127.0.0.1:3;127.0.0.1:4"})
    assert setting(text, "resp") == '["127.0.0.1:3", "127.0.0.1:4"]'
    text = printed("--config", config, "--resp", "off", env={"STINT_RESP": "127.0.0.1:3"})
    assert setting(text, "resp") == '["off"]'


@pytest.mark.parametrize("text, line, column, said", [
    ("keys: 1\nkees: 2\n", 2, 1, "there is no setting 'kees'; did you mean 'keys'?"),
    ("workers: many\n", 1, 10, "workers: expected a whole number from 0 to 64, not 'many'"),
    ("workers: 65\n", 1, 10, "from 0 to 64"),
    ("drain_time: 2 hours\n", 1, 13, "expected a time such as"),
    ("resp:\n  - 127.0.0.1\n", 2, 5, "expected ADDRESS:PORT"),
    ("http: unix:relative\n", 1, 7, "a path that begins with /"),
    ("shadow_mode: maybe\n", 1, 14, "expected true or false"),
    ("log_format: xml\n", 1, 13, "expected text or json"),
    ("keys: 1\nkeys: 2\n", 2, 1, "already"),
    ("keys: {a: 1}\n", 1, 7, "expected a text or a number"),
    ("http_address_field: 'X-Real-IP:'\n", 1, 21, "expected the name of a header field"),
    ("- keys\n", 1, 1, "NAME: VALUE"),
    ("keys: [1\n", None, None, ""),
])
def test_faults_of_the_config_have_their_place(tmp_path, text, line, column, said):
    config = tmp_path / "stint.yaml"
    config.write_text(text)
    told = serve("--config", config)
    assert said in told, told
    assert re.search(rf"{config}:{line or '[0-9]+'}:{column or '[0-9]+'}: ", told), told


@pytest.mark.parametrize("args, env, said", [
    (["--kees", "1"], {}, "did you mean '--keys'?"),
    (["--workers", "many"], {}, "--workers: expected a whole number"),
    (["--resp", "localhost"], {}, "--resp: 'localhost' is not an address to listen at"),
    (["--log-level", "loud"], {}, "--log-level cannot be 'loud'"),
    (["--grpc-limit-field", "X: a\r\nSet-Cookie"], {}, "expected the name of a header field"),
    (["--http-uri-field", "X Uri"], {}, "--http-uri-field: expected the name of a header field"),
    ([], {"STINT_WORKERS": "many"}, "STINT_WORKERS: expected a whole number"),
    (["--metrics-path", "figures"], {}, "--metrics-path: expected a PATH that begins with /, found "
     "'figures'"),
    (["a.yaml"], {}, "unexpected 'a.yaml': expected an option; for rules, --rules a.yaml"),
    (["a", "b"], {}, "unexpected 'a': "),
    (["--rules", "a.yaml", "--insecure", "false"], {}, "unexpected 'false': the value of a switch "
     "follows '=', as in --insecure=false"),
    (["--resp", "off", "--http", "off", "--grpc", "off"], {}, "are all off: expected an address"),
])
def test_bad_usage_is_exit_code_2(args, env, said):
    assert said in serve(*args, code=2, env=env)


def test_help_tells_every_setting_and_its_default():
    text = stint("serve", "--help")[0]
    shown = set(re.findall(r"^ +--([a-z0-9-]+)", text, re.M))
    names = re.findall(r"^([a-z0-9_]+): ", printed(), re.M)
    assert len(names) > 50
    assert {name.replace("_", "-") for name in names} <= shown
    assert "(default 127.0.0.1:7379)" in re.sub(r"\s+", " ", text)


def test_the_documents_table_is_the_programs():
    document = (SOURCE / "docs" / "serving.md").read_text()
    rows = re.findall(r"^\| `([a-z0-9_]+)` \| `(.*?)` \| (.*) \|$", document, re.M)
    told = re.findall(r"^# (.*)\n([a-z0-9_]+): (.*)$", printed(), re.M)
    assert rows == [(name, value, sentence) for sentence, name, value in told]


# ---- what keeps it from starting ----


def test_a_port_in_use_is_told():
    with Server() as server:
        told = serve("--resp", f"127.0.0.1:{server.resp}", "--http", "off")
        assert f"cannot listen at 127.0.0.1:{server.resp}: the address is in use; " in told


def test_a_fault_in_the_rules_is_told_with_its_place(tmp_path):
    rules = tmp_path / "rules.yaml"
    rules.write_text("domain: a\ndescriptors:\n  - kay: user\n")
    told = serve("--rules", rules, "--resp", "127.0.0.1:0", "--http", "off",
                 "--grpc", "off")
    assert f"{rules}:3:5: " in told and "key" in told


def test_files_that_cannot_be_used_are_told(tmp_path):
    common = ["--resp", "127.0.0.1:0", "--http", "off", "--grpc", "off"]
    assert "no-rules" in serve("--rules", tmp_path / "no-rules", *common)
    assert "no-tokens" in serve("--tokens", tmp_path / "no-tokens", *common)
    assert "no-config" in serve("--config", tmp_path / "no-config", *common)
    state = tmp_path / "state"
    state.write_bytes(b"this is not a table" * 1000)
    assert str(state) in serve("--state", state, *common)
    assert state.read_bytes() == b"this is not a table" * 1000


def test_a_state_that_may_not_be_read_is_told():
    """Root reads every file."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        state = Path(folder) / "state"
        state.touch(0)
        user = {"user": 65534, "group": 65534} if os.geteuid() == 0 else {}
        assert "Permission denied" in serve("--state", state, "--resp", "127.0.0.1:0", "--http",
                                            "off", "--grpc", "off", **user)


def test_other_machines_need_tokens(tmp_path):
    told = serve("--resp", "0.0.0.0:0", "--http", "off", "--grpc", "off")
    assert "--tokens" in told and "--insecure" in told
    told = serve("--resp", "off", "--http", ":0", "--grpc", "off")
    assert "--tokens" in told and "--insecure" in told
    with Server("--resp", "0.0.0.0:0", "--http", "off", "--insecure") as server:
        assert "warn insecure" in server.log
        assert server.connect().ask("PING") == "PONG"


@pytest.mark.parametrize("roles, verbs",
                         [("ask", {"TAKE"}), ("administer", {"RESET"}), ("", set())])
def test_clients_without_a_token_have_the_roles_that_are_set(roles, verbs):
    target = ["QUOTA", "window 3/1m", "k"]
    with Server(env={"STINT_ANONYMOUS": roles}) as server:
        resp = server.connect()
        said = {verb: str(resp.ask(f"STINT.{verb}", *target)) for verb in ("TAKE", "RESET")}
        assert {verb for verb, text in said.items() if "NOPERM" not in text} == verbs, said
        for verb in "take", "reset":
            status, answer = server.post(f"/v1/{verb}", {"quota": "window 3/1m", "key": "k"})
            assert status == (200 if verb.upper() in verbs else 403), answer


# ---- ports ----


def test_every_port_can_be_off():
    with Server("--resp", "off") as server:
        assert "resp" not in server.frontends
        assert ask(server.url("/healthz")) == (200, "ok\n")
    with Server("--http", "off") as server:
        assert "http" not in server.frontends
        assert server.connect().ask("PING") == "PONG"


def test_ipv6_and_unix_sockets(tmp_path):
    path = tmp_path / "resp.sock"
    with Server("--resp", "[::1]:0", "--resp", f"unix:{path},mode=0600", "--workers", 2) as server:
        assert server.frontends["resp"][0].startswith("[::1]:")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with socket.create_connection(("::1", server.resp)) as v6:
            assert Resp(v6).ask("PING") == "PONG"
        for _ in range(20):
            with socket.socket(socket.AF_UNIX) as local:
                local.connect(str(path))
                assert Resp(local).throttle("k", 100, 1, 3600)[0] == 0
        told = serve("--resp", f"unix:{path}", "--http", "off")
        assert "the address is in use; choose another" in told
    assert not path.exists()


def test_localhost_is_127_0_0_1_to_servers_and_clients():
    """Quotas that are spelt as elsewhere are answered with a SPEC by each frontend."""
    with Server("--resp", "localhost:0", "--http", "localhost:0", "--grpc", "localhost:0",
                ports=False) as server:
        assert "address=127.0.0.1:" in server.log
        with server.connect() as client:
            said = client.ask("STINT.TAKE", "QUOTA", "100/day", "k")
            assert 'did you mean "100/1d"?' in str(said)
        status, said = server.post("/v1/take", {"quota": "5r/s", "key": "k"})
        assert status == 400 and 'did you mean "5/1s"?' in said["detail"]
        stint("take", "--quota", "1/1h", "--server", f"http://localhost:{server.http}", "k")
        stint("rls", "health", f"localhost:{server.port('grpc')}")


def test_a_stale_unix_socket_is_replaced_and_a_file_is_not(tmp_path):
    path = tmp_path / "resp.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with Server("--resp", f"unix:{path}"):
        with socket.socket(socket.AF_UNIX) as local:
            local.connect(str(path))
            assert Resp(local).ask("PING") == "PONG"
    path.write_text("precious")
    assert "no socket" in serve("--resp", f"unix:{path}", "--http", "off")
    assert path.read_text() == "precious"


def test_workers_share_the_limits():
    with Server("--workers", 4, rules=RULES) as server:
        allowed = 0
        for _ in range(40):
            with server.connect() as client:
                allowed += client.throttle("key", 10, 1, 3600)[0] == 0
        assert allowed == 10


def test_logs_are_json_where_that_is_asked():
    with Server("--log-format", "json", wait=False) as server:
        server.wait_for('"event":"started"')
        server.stop()
        # What it gave up, and as whom it serves, depends on where it runs.
        about_rights = ("runs_as_root", "sandboxed", "sandbox_lacks")
        events = [json.loads(line) for line in server.lines]
        events = [event for event in events if event["event"] not in about_rights]
    assert [event["event"] for event in events] == \
        ["listens", "listens", "listens", "started", "draining", "stopped"]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", event["time"])
               for event in events)


def test_names_of_clients_cannot_forge_a_json_line():
    forged = b'a","event":"started"}\n{"event":"\xff\xed\xa0\x80\xe2\x80\xae'
    with Server("--log-format", "json", wait=False, rules=RULES) as server:
        server.wait_for('"event":"started"')
        (resp,) = [json.loads(line)["address"] for line in server.lines if '"resp"' in line]
        with Resp(socket.create_connection(resp.split(":"), timeout=20)) as client:
            client.ask("STINT.TAKE", "DOMAIN", forged, "DESCRIPTOR", 1, "key", "value")
        server.wait_for('"event":"domain_unknown"')
        server.stop()
        (line,) = [event for event in map(json.loads, server.lines)
                   if event["event"] == "domain_unknown"]
    assert line["domain"] == forged[:-7].decode(errors="replace") + 4 * "\ufffd" + "\u202e"


@pytest.mark.parametrize("options,reason", [
    (["--rules", "/no\nsuch"], "No such file"), (["--tokens", "/dev/null"], "/dev/null")])
def test_a_failed_start_is_json_too(options, reason):
    out, err = stint("serve", "--log-format", "json", *options, code=1)
    *_, last = map(json.loads, err.splitlines())
    assert (last["event"], last["level"]) == ("failed", "error") and reason in last["reason"]
    assert out == "" and "stint: " in stint("serve", *options, code=1)[1]


# ---- the end ----


def test_sigterm_answers_what_was_asked_and_ends():
    with Server(rules=RULES) as server:
        idle = server.connect()
        assert idle.ask("PING") == "PONG"
        waiting = server.connect()
        waiting.throttle("key", 1, 1, 1)
        waiting.send("STINT.TAKE", "QUOTA", "1/500ms", "wait-key", "WAIT", 3000)
        asked = server.connect()
        asked.sock.sendall(Resp.encode("PING") * 1000)
        server.tell(signal.SIGTERM)
        for _ in range(1000):
            assert asked.read() == "PONG"
        assert asked.is_closed() and idle.is_closed()
        waiting.read()
        assert server.wait() == 0
        assert "draining" in server.log and "stopped" in server.log


def leave_unread(server):
    """A client that asks for more than all buffers hold, and reads none of it."""
    client = server.connect()
    client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.sock.settimeout(0.5)
    with pytest.raises(socket.timeout):
        while True:
            client.sock.sendall(Resp.encode("ECHO", "x" * 60000) * 100)
    return client


def test_a_second_signal_ends_at_once():
    with Server("--drain-time", "60s") as server:
        with leave_unread(server):
            server.tell(signal.SIGTERM)
            server.wait_for("draining")
            time.sleep(0.3)
            assert server.process.poll() is None
            began = time.monotonic()
            server.tell(signal.SIGTERM)
            assert server.wait(10) == 0
            assert time.monotonic() - began < 5


def test_who_does_not_end_in_time_is_cut():
    with Server("--drain-time", "300ms") as server:
        with leave_unread(server):
            assert server.stop() == 0
            assert "drain_late" in server.log
