# SPDX-License-Identifier: MIT
"""Rules of a control plane: a real server, a real gRPC server of grpcio, sockets between them."""
import signal
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import grpc
import pytest
from control_plane import (ControlPlane, ask, config, descriptor, node_of, policy, response,
                           struct)
from measure import metric
from program import SOURCE, STINT
from rls_messages import OK, OVER_LIMIT, block, number
from server import Server, free_port
from tls_authority import authority  # noqa: F401

FAST = ("--xds-backoff", "20ms", "--xds-backoff-max", "100ms")


def per_hour(requests, key="user", **more):
    return descriptor(key, limit=policy("HOUR", requests), **more)


@pytest.fixture
def plane():
    with ControlPlane() as made:
        yield made


def serve(*planes, options=(), **more):
    urls = [word for one in planes for word in ("--rules", one.url)]
    return Server(*urls, *FAST, *options, **more)


def codes(server, domain, value, n, key="user"):
    with grpc.insecure_channel(f"127.0.0.1:{server.port('grpc')}") as channel:
        return [ask(channel, domain, (key, value)) for _ in range(n)]


def rules_of(server):
    with urllib.request.urlopen(server.url("/rlconfig"), timeout=20) as answer:
        return answer.read().decode()


def xds_metric(server, name, plane, **labels):
    return metric(server.http, f"stint_xds_{name}", control_plane=plane.url, **labels)


# ---- Accepted and refused ------------------------------------------------------------------------


def test_rules_are_accepted_and_in_force(plane):
    options = ("--xds-metadata", "cluster=blue", "--xds-metadata", "empty=",
               "--xds-headers", "x-tenant:acme: one")
    url = plane.url.replace("//", "//envoy-ratelimit@")
    with Server("--rules", url, *FAST, *options) as server:
        first = plane.wait(lambda request: True)
        assert (first.version, first.nonce, first.error) == ("", "", None)
        assert node_of(first) == ("envoy-ratelimit", {"cluster": "blue", "empty": ""})
        assert first.headers["x-tenant"] == "acme: one"
        assert rules_of(server) == ""
        assert xds_metric(server, "connected", plane) == 1
        plane.send("one", config("edge", per_hour(3)))
        assert plane.accepted("one").nonce == "nonce-1"
        assert codes(server, "edge", "a", 5) == [OK] * 3 + [OVER_LIMIT] * 2
        assert rules_of(server) == (
            "edge.user: unit=HOUR requests_per_unit=3, quota: window 3/1h resolution=24, "
            f"shadow_mode: false ({plane.url}/edge)\n")
        assert xds_metric(server, "updates_total", plane) == 1
        assert xds_metric(server, "version_info", plane, version="one") == 1


@pytest.mark.parametrize("bad, expected", [
    ([config("edge", per_hour(9)), config("", per_hour(9), name="nameless")],
     "/nameless: expected a domain that is not empty"),
    ([config("edge", per_hour(9), per_hour(9))],
     '/edge: domain "edge": descriptors[1] (key "user"): the key "user" without value is there'),
    ([config("edge", descriptor("a", below=[descriptor("b"), descriptor("")]))],
     'descriptors[0].descriptors[1] (key ""): expected a key that is not empty'),
    ([config("edge", descriptor("a", limit=policy(requests=4)))], "expected unit: second"),
    ([config("edge", descriptor("a", limit=number(1, 9) + number(2, 4)))], 'unit: expected'),
    ([config("edge", descriptor("a", limit=policy("HOUR", unlimited=True)))], "stands alone"),
    ([config("edge", per_hour(9)), config("edge", per_hour(9), name="again")],
     'domain: "edge" is there already'),
    ([config("edge", per_hour(9)) + b"\xff"], "malformed protobuf"),
    ([config("edge", descriptor(b"\xff\xfe", limit=policy("HOUR", 9)))], "UTF-8"),
])
def test_one_unusable_resource_refuses_all(plane, bad, expected):
    plane.send("good", config("edge", per_hour(2)))
    with serve(plane) as server:
        plane.accepted("good")
        plane.send("bad", *bad)
        refused = plane.refused(expected)
        assert (refused.version, refused.nonce) == ("good", "nonce-2")
        assert codes(server, "edge", "a", 3) == [OK, OK, OVER_LIMIT]
        assert xds_metric(server, "nacks_total", plane) == 1
        server.wait_for("xds_refused")
        plane.send("better", config("edge", per_hour(1)))
        plane.accepted("better")
        assert codes(server, "edge", "b", 2) == [OK, OVER_LIMIT]


def test_warnings_are_for_files(plane, tmp_path):
    """Envoy Gateway's keys end with *, and are meant so."""
    (tmp_path / "own.yaml").write_text(
        "domain: own\ndescriptors: [{key: 'u*', rate_limit: {unit: hour, requests_per_unit: 1}}]\n")
    plane.send("1", config("edge", per_hour(1, key="rule-0-match-*")))
    with serve(plane, options=("--rules", tmp_path)) as server:
        plane.accepted("1")
        assert codes(server, "edge", "a", 2, key="rule-0-match-*") == [OK, OVER_LIMIT]
        server.wait_for("own.yaml")
        plane.send("2", config("edge", per_hour(2, key="rule-0-match-*")))
        plane.accepted("2")
        server.wait_for("xds_accepted", times=2)
        warnings = [line for line in server.log.splitlines() if "rules_warning" in line]
        assert warnings and all("own.yaml" in line for line in warnings)


def test_another_type_is_refused(plane):
    with serve(plane):
        plane.wait(lambda request: True)
        plane.send_bytes(response("1", [config("edge", per_hour(1))], "n", kind="some.Type"))
        assert 'found "some.Type"' in plane.refused("expected type").error


def test_domains_that_are_absent_are_gone(plane):
    plane.send("1", config("edge", per_hour(1)), config("api", per_hour(1)))
    with serve(plane) as server:
        plane.accepted("1")
        assert codes(server, "edge", "a", 2) == [OK, OVER_LIMIT]
        plane.send("2", config("api", per_hour(1)))
        plane.accepted("2")
        assert codes(server, "edge", "a", 2) == [OK, OK]
        assert codes(server, "api", "a", 2) == [OK, OVER_LIMIT]
        plane.send("3")
        plane.accepted("3")
        assert codes(server, "api", "a", 2) == [OK, OK]
        assert rules_of(server) == ""


def test_the_use_of_a_key_outlives_a_changed_rule(plane):
    plane.send("1", config("edge", per_hour(3)))
    with serve(plane) as server:
        plane.accepted("1")
        assert codes(server, "edge", "a", 3) == [OK] * 3
        plane.send("2", config("edge", per_hour(4)))
        plane.accepted("2")
        assert codes(server, "edge", "a", 2) == [OK, OVER_LIMIT]


def test_every_field_has_its_meaning(plane):
    plane.send("1", config(
        "edge",
        descriptor("free", limit=policy(unlimited=True)),
        descriptor("never", limit=policy("DAY")),
        descriptor("watched", limit=policy("WEEK", 1, name="weekly"), shadow_mode=True),
        descriptor("spent", limit=policy("HOUR", 100), quota_mode=True),
        descriptor("tagged", "v*", limit=policy("YEAR", 5, name="y", replaces=["weekly"]),
                   metadata={"team": "blue"}, detailed_metric=True),
        descriptor("deep", below=[descriptor("er", "x", limit=policy("MINUTE", 7))]),
    ))
    with serve(plane) as server:
        plane.accepted("1")
        assert codes(server, "edge", "a", 2, key="free") == [OK, OK]
        assert codes(server, "edge", "a", 1, key="never") == [OVER_LIMIT]
        assert codes(server, "edge", "a", 2, key="watched") == [OK, OK]
        lines = [line.partition(": ")[0::2] for line in rules_of(server).splitlines()]
        said = {key: text for key, text in lines}
        assert "unlimited" in said["edge.free"]
        assert "unit=WEEK requests_per_unit=1," in said["edge.watched"]
        assert "shadow_mode: true, name: weekly" in said["edge.watched"]
        assert ("unit=YEAR requests_per_unit=5, quota: fixed_window 5/1y align=calendar"
                in said["edge.tagged=v*"])
        assert "unit=MINUTE requests_per_unit=7," in said["edge.deep.er=x"]


def test_hits_of_descriptors_are_charged(plane):
    """As envoyproxy/ratelimit: recorded, whether they fit or not."""
    plane.send("1", config("edge", per_hour(1000)))
    with serve(plane) as server:
        plane.accepted("1")
        with grpc.insecure_channel(f"127.0.0.1:{server.port('grpc')}") as channel:
            got = [ask(channel, "edge", ("user", "a"), own=hits) for hits in (0, 950, 0, 200, 0)]
        assert got == [OK, OK, OK, OVER_LIMIT, OVER_LIMIT]


def test_the_page_shows_what_the_server_says(plane):
    page = (SOURCE / "docs/xds.md").read_text(encoding="utf-8")
    shown = "xds://127.0.0.1:18000"
    plane.send("1", config("edge", per_hour(3)))
    with serve(plane) as server:
        plane.accepted("1")
        assert f"```text\n{rules_of(server).replace(plane.url, shown)}```\n" in page
        plane.send("2", config("edge", per_hour(3), per_hour(3)))
        error = plane.refused("is there already").error
        assert f"```text\n{error.replace(plane.url, shown)}\n```\n" in page


# ---- Lost connections ----------------------------------------------------------------------------


def test_a_lost_control_plane_changes_nothing(plane):
    plane.send("1", config("edge", per_hour(2)))
    with serve(plane) as server:
        plane.accepted("1")
        port = plane.port
        plane.stop()
        server.wait_for("xds_lost")
        assert xds_metric(server, "connected", plane) == 0
        assert codes(server, "edge", "a", 3) == [OK, OK, OVER_LIMIT]
        with ControlPlane(port) as again:
            first = again.wait(lambda request: True)
            assert (first.version, first.nonce) == ("", "")
            server.wait_for("xds_connected", times=2)
            again.send("2", config("edge", per_hour(1)))
            again.accepted("2")
            assert codes(server, "edge", "b", 2) == [OK, OVER_LIMIT]


def test_the_kernel_looks_for_a_silent_control_plane(plane):
    with serve(plane):
        plane.wait(lambda request: True)
        peer = f"0100007F:{plane.port:04X}"
        ends = time.monotonic() + 20
        timer = None
        while timer is None or timer[0] != "02":  # else its last bytes are not acknowledged yet
            assert time.monotonic() < ends, timer
            rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()]
            (timer,) = [row[5].split(":") for row in rows if row[2] == peer and row[3] == "01"]
        assert int(timer[1], 16) <= 30_00  # of keepalive, in 1/100 s


def test_a_server_starts_before_its_control_plane():
    port = free_port()
    with Server("--rules", f"xds://127.0.0.1:{port}", *FAST) as server:
        server.wait_for("xds_lost")
        with ControlPlane(port) as late:
            late.send("1", config("edge", per_hour(1)))
            late.accepted("1")
            assert codes(server, "edge", "b", 2) == [OK, OVER_LIMIT]


def test_ready_with_rules_waits_for_them(plane):
    with serve(plane, options=["--ready-with-rules"]) as server:
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(server.url("/readyz"), timeout=20)
        plane.send("1", config("edge", per_hour(1)))
        plane.accepted("1")
        with urllib.request.urlopen(server.url("/readyz"), timeout=20) as answer:
            assert answer.status == 200


# ---- Restarts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("number_of_end", [signal.SIGTERM, signal.SIGKILL])
def test_a_restart_begins_with_the_last_rules(plane, tmp_path, number_of_end):
    state = ("--state", tmp_path / "state", "--control", "off")
    plane.send("1", config("edge", per_hour(9)))
    with serve(plane, options=state) as server:
        plane.accepted("1")
        plane.send("2", config("edge", per_hour(2)))
        plane.accepted("2")
        assert codes(server, "edge", "a", 1) == [OK]
        server.tell(number_of_end)
        server.wait()
    plane.stop()
    with serve(plane, options=state) as server:
        server.wait_for("xds_kept")
        assert codes(server, "edge", "a", 2) == [OK, OVER_LIMIT]
    kept = tmp_path / "state.xds"
    assert kept.stat().st_mode & 0o777 == 0o600
    damage(kept)
    with serve(plane, options=state) as server:
        assert codes(server, "edge", "a", 2) == [OVER_LIMIT] * 2 or rules_of(server) == ""


def damage(path):
    """Flips a byte in the content of each slot."""
    with open(path, "r+b") as out:
        for slot in 0, 128 << 20:
            out.seek(slot + 70)
            byte = out.read(1)
            if byte:
                out.seek(slot + 70)
                out.write(bytes([byte[0] ^ 1]))


def test_a_file_that_conflicts_with_kept_rules_wins(plane, tmp_path):
    state = ("--state", tmp_path / "state", "--control", "off")
    plane.send("1", config("edge", per_hour(9)))
    with serve(plane, options=state):
        plane.accepted("1")
    plane.stop()
    rules = "domain: edge\ndescriptors: [{key: user, rate_limit: {unit: hour, " \
            "requests_per_unit: 1}}]\n"
    with serve(plane, options=state, rules=rules) as server:
        server.wait_for("xds_dropped")
        assert codes(server, "edge", "a", 2) == [OK, OVER_LIMIT]


# ---- Several sources -----------------------------------------------------------------------------

FILE = """\
domain: file
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: %d}
"""


def test_files_and_control_planes_stand_side_by_side(plane):
    plane.send("1", config("edge", per_hour(1)))
    with ControlPlane() as other:
        other.send("7", config("api", per_hour(1)))
        with serve(plane, other, rules=FILE % 1) as server:
            plane.accepted("1")
            other.accepted("7")
            for domain in "file", "edge", "api":
                assert codes(server, domain, "a", 2) == [OK, OVER_LIMIT], domain
            server.write_rules(FILE % 2)
            server.wait_for("reloaded")
            assert codes(server, "file", "b", 3) == [OK, OK, OVER_LIMIT]
            for domain in "edge", "api":
                assert codes(server, domain, "b", 2) == [OK, OVER_LIMIT], domain
            other.send("8", config("file", per_hour(1)))
            assert server.rules in other.refused("is there already, in line 1 of").error
            other.send("9", config("edge", per_hour(1)))
            assert f"{plane.url}/edge" in other.refused(f"already, of {plane.url}/edge").error


def test_a_broken_file_refuses_no_control_plane(plane):
    with serve(plane, rules=FILE % 1) as server:
        plane.wait(lambda request: True)
        server.write_rules("domain: [")
        server.wait_for("reload_failed")
        plane.send("1", config("edge", per_hour(1)))
        plane.accepted("1")
        assert codes(server, "file", "a", 2) == [OK, OVER_LIMIT]
        assert codes(server, "edge", "a", 2) == [OK, OVER_LIMIT]


def test_a_control_plane_has_the_settings_although_a_file_is_broken(plane, tmp_path):
    (tmp_path / "broken.yaml").write_text("domain: [")
    options = ("--rules", tmp_path / "broken.yaml", "--rules-may-fail", "--default-algorithm",
               "gcra")
    with serve(plane, options=options) as server:
        plane.send("1", config("edge", per_hour(3)))
        plane.accepted("1")
        assert "quota: gcra 3/1h" in rules_of(server)


# ---- TLS -----------------------------------------------------------------------------------------


def credentials_of(authority, certificate, key):  # noqa: F811
    return grpc.ssl_server_credentials(
        [(Path(key).read_bytes(), Path(certificate).read_bytes())],
        Path(authority.certificate).read_bytes(), require_client_auth=True)


def test_mutual_tls_with_files_that_are_read_anew(authority):  # noqa: F811
    """The first certificate of the client is of no authority that the control plane knows."""
    credentials = credentials_of(authority, *authority.sign("plane"))
    own, key = authority.sign("client", to="client-good")
    certificate = authority.folder / "client.pem"
    openssl_self_signed = type(authority)(authority.folder, "stranger")
    bad, bad_key = openssl_self_signed.sign("client", to="client-bad")
    certificate.write_bytes(bad.read_bytes())
    client_key = authority.folder / "client.key"
    client_key.write_bytes(bad_key.read_bytes())
    with ControlPlane(credentials=credentials) as plane:
        plane.send("1", config("edge", per_hour(1)))
        url = plane.url.replace("xds:", "xdss:")
        with Server("--rules", url, *FAST, "--xds-ca-file", authority.certificate,
                    "--xds-cert-file", certificate, "--xds-key-file", client_key) as server:
            server.wait_for("xds_lost")
            for path, good in (client_key, key), (certificate, own):
                path.with_suffix(".new").write_bytes(good.read_bytes())
                path.with_suffix(".new").rename(path)
            plane.accepted("1")
            assert codes(server, "edge", "a", 2) == [OK, OVER_LIMIT]


@pytest.mark.parametrize("names, server_name, works", [
    ("DNS:control.example", "control.example", True),
    ("DNS:control.example", None, False),
])
def test_the_name_of_the_certificate_is_checked(authority, names, server_name, works):  # noqa: F811
    certificate, key = authority.sign("named", names=names)
    credentials = grpc.ssl_server_credentials([(key.read_bytes(), certificate.read_bytes())])
    option = ["--xds-server-name", server_name] if server_name else []
    with ControlPlane(credentials=credentials) as plane:
        plane.send("1", config("edge", per_hour(1)))
        url = plane.url.replace("xds:", "xdss:")
        with Server("--rules", url, *FAST, "--xds-ca-file", authority.certificate,
                    *option) as server:
            server.wait_for("xds_accepted" if works else "xds_lost")
            assert works or "name" in server.log.partition("xds_lost")[2]


# ---- Bad settings and hostile peers --------------------------------------------------------------


@pytest.mark.parametrize("options, expected", [
    (["--rules", "xds://"], "expected xds://HOST:PORT"),
    (["--rules", "xds://a:0"], "expected xds://HOST:PORT"),
    (["--rules", "xds://@a:1"], "expected a node of 1 to 255 bytes"),
    (["--rules", "xds://a:1", "--rules", "xds://n@a:1"], "xds://a:1 is there twice"),
    (["--rules", "xds://a:1", "--xds-ca-file", "x"], "none is: expected xdss://HOST:PORT"),
    (["--rules", "xdss://a:1", "--xds-key-file", "x"], "xds_key_file goes with xds_cert_file"),
    (["--rules", "xds://a:1", "--xds-headers", "Name:x"], "a name in lower case"),
    (["--rules", "xds://a:1", "--xds-headers", "te:x"], "that gRPC does not use itself"),
    (["--rules", "xds://a:1", "--xds-metadata", "x"], "expected KEY=VALUE"),
])
def test_settings_that_cannot_be_used(options, expected):
    done = subprocess.run([STINT, "serve", *options], capture_output=True, timeout=20, check=False)
    assert done.returncode == 1
    assert expected in done.stderr.decode()


def test_a_flood_of_responses_is_slowed_down(plane):
    """Each is answered, a few in a second, and the server decides meanwhile."""
    with serve(plane) as server:
        plane.wait(lambda request: True)
        begin = time.monotonic()
        for version in range(12):
            plane.send(str(version), config("edge", per_hour(1 + version)))
        assert codes(server, "none", "a", 3) == [OK] * 3
        plane.accepted("11")
        assert time.monotonic() - begin >= 1.1  # eleven waits of 100 ms
        assert codes(server, "edge", "a", 13)[-2:] == [OK, OVER_LIMIT]


def test_deep_and_large_resources_are_refused(plane):
    deep = descriptor("a", limit=policy("HOUR", 1))
    for _ in range(3000):
        deep = descriptor("a", below=[deep])
    value = block(3, "end")
    for _ in range(3000):
        value = block(6, block(1, value))  # lists in lists, in metadata
    metadata = block(8, block(1, block(1, "m") + block(2, value)))
    with serve(plane) as server:
        plane.wait(lambda request: True)
        for version, resource in enumerate([
                config("edge", deep),
                config("edge", descriptor("a") + metadata),
                config("edge") + block(3, b"") * 1_000_001,
                config("edge") + block(3, b"") * 900_000]):  # each is an error
            plane.send(f"bad-{version}", resource)
            plane.wait(lambda one, nonce=f"nonce-{version + 1}":
                       one.nonce == nonce and one.error is not None, 60)
        plane.send("good", config("edge", per_hour(1)))
        plane.accepted("good")
        assert codes(server, "edge", "a", 2) == [OK, OVER_LIMIT]


def test_a_response_above_the_limit_ends_the_connection(plane):
    plane.send("1", config("edge", per_hour(1)))
    with serve(plane) as server:
        plane.accepted("1")
        plane.send("2", config("edge", descriptor("a" * (17 << 20))))
        server.wait_for("xds_lost")
        server.wait_for("16777216")
        assert codes(server, "edge", "a", 2) == [OK, OVER_LIMIT]


def test_empty_metadata_is_no_metadata(plane):
    plane.send("1", config("edge", descriptor("a", limit=policy("HOUR", 1)) + block(8, struct({}))))
    with serve(plane):
        plane.accepted("1")


# ---- Processes -----------------------------------------------------------------------------------


def test_a_successor_begins_with_the_rules_and_its_predecessor_lets_go(plane, tmp_path):
    ports = [word for port in ("--resp", "--http", "--grpc")
             for word in (port, f"127.0.0.1:{free_port()}")]
    options = ["--state", tmp_path / "state", "--drain-time", "1s", *ports]
    plane.send("1", config("edge", per_hour(3)))
    with serve(plane, options=options) as server:
        plane.accepted("1")
        assert codes(server, "edge", "a", 1) == [OK]
        with serve(plane, options=[*options, "--replace"]) as successor:
            successor.wait_for("xds_kept")
            assert server.wait() == 0
            assert codes(successor, "edge", "a", 3) == [OK, OK, OVER_LIMIT]
            plane.wait(lambda request: request.stream == 1 and request.nonce)
            plane.send("2", config("edge", per_hour(4)))
            assert plane.accepted("2").stream == 1
            assert codes(successor, "edge", "a", 2) == [OK, OVER_LIMIT]


def test_another_control_plane_needs_a_restart(plane, tmp_path):
    plane.send("1", config("edge", per_hour(1)))
    settings = tmp_path / "stint.yaml"
    settings.write_text(f"rules: ['{plane.url}']\n")
    with Server("--config", settings, *FAST) as server:
        plane.accepted("1")
        settings.write_text("rules: ['xds://127.0.0.1:1']\n")
        server.tell(signal.SIGHUP)
        server.wait_for("needs_restart")
        server.wait_for("reloaded")
        assert "control planes" in server.log
        assert codes(server, "edge", "a", 2) == [OK, OVER_LIMIT]


def test_a_certificate_that_is_not_there_is_waited_for(authority, tmp_path):  # noqa: F811
    certificate, key = authority.sign("plane")
    credentials = grpc.ssl_server_credentials([(key.read_bytes(), certificate.read_bytes())])
    ca = tmp_path / "ca.pem"
    with ControlPlane(credentials=credentials) as plane:
        plane.send("1", config("edge", per_hour(1)))
        url = plane.url.replace("xds:", "xdss:")
        with Server("--rules", url, *FAST, "--xds-ca-file", ca) as server:
            server.wait_for(str(ca))
            ca.write_bytes(authority.certificate.read_bytes())
            plane.accepted("1")
            assert codes(server, "edge", "a", 2) == [OK, OVER_LIMIT]
