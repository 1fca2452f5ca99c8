# SPDX-License-Identifier: MIT
"""Rules over xDS from control planes that others wrote: go-control-plane's server, what Envoy
Gateway sends, the example of envoyproxy/ratelimit, and the descriptors of Envoy AI Gateway.

The control plane is a process of its own, and tells what the server said to it.
"""
import contextlib
import threading
import time

import grpc
import pytest
import rls_messages
from control_plane import config, descriptor, policy
from go_control_plane import NODE, GoControlPlane
from rls_messages import OK, OVER_LIMIT, ask_with
from server import Server
from tls_authority import EC, RSA

RETRIES = ["--xds-backoff", "100ms", "--xds-backoff-max", "200ms"]


@pytest.fixture
def plane():
    with GoControlPlane() as control_plane:
        yield control_plane


def serving(control_plane, *options, **given):
    scheme = given.pop("scheme", "xds")
    return Server("--rules", f"{scheme}://{NODE}@{control_plane.address}", *RETRIES, *options,
                  **given)


class Asking:
    """Decisions of a server, over one connection."""

    def __init__(self, server):
        self.server = server

    def __enter__(self):
        self.channel = grpc.insecure_channel(f"127.0.0.1:{self.server.port('grpc')}")
        self.ask = ask_with(self.channel)
        return self

    def __exit__(self, *_):
        self.channel.close()

    def whole(self, name, *entries, **options):
        return self.ask(rls_messages.request(
            name, *[rls_messages.descriptor(*each, **options) for each in entries]), timeout=20)

    def codes(self, times, name, *entries, **options):
        """The overall code of each of so many equal requests."""
        return [self.whole(name, *entries, **options).code for _ in range(times)]


@contextlib.contextmanager
def asking(control_plane, *options, **given):
    with serving(control_plane, *options, **given) as server, Asking(server) as client:
        yield server, client


def users(requests, name="edge"):
    return config(name, descriptor("user", "", policy("HOUR", requests)))


USER = [("user", "u")]


# ---- go-control-plane ----

def test_rules_come_from_it_and_are_accepted(plane):
    plane.set("one", users(2))
    with asking(plane) as (_, client):
        plane.accepted("one")
        assert client.codes(3, "edge", USER) == [OK, OK, OVER_LIMIT]
        assert client.codes(1, "other", USER) == [OK]
        subscribed = plane.found("request")[0]
        assert subscribed["node"] == NODE and "version" not in subscribed


def test_a_changed_policy_holds_once_it_is_accepted(plane):
    """Units in use stay in use."""
    plane.set("one", users(2))
    with asking(plane) as (_, client):
        plane.accepted("one")
        assert client.codes(3, "edge", USER) == [OK, OK, OVER_LIMIT]
        plane.set("two", users(3))
        plane.accepted("two")
        assert client.codes(2, "edge", USER) == [OK, OVER_LIMIT]


@pytest.mark.parametrize("wrong, said", [
    (config("edge", descriptor("", "", policy("HOUR", 1))), "key"),
    (config("edge", descriptor("user", "", policy(None, 1))), "unit"),
    (config("", descriptor("user", "", policy("HOUR", 1))), "domain"),
])
def test_a_message_with_one_wrong_resource_is_refused_as_a_whole(plane, wrong, said):
    plane.set("one", users(2))
    with asking(plane) as (server, client):
        plane.accepted("one")
        plane.set("two", users(9, "good"), wrong)
        nack = plane.wait_for("request", version="one", times=2)
        assert said in nack["error"]
        server.wait_for("warn")
        assert client.codes(3, "edge", USER) == [OK, OK, OVER_LIMIT]
        assert client.whole("good", USER).statuses[0].limit is None
        plane.set("three", users(3))
        plane.accepted("three")
        assert client.codes(2, "edge", USER) == [OK, OVER_LIMIT]


def test_domains_that_are_absent_are_gone(plane):
    plane.set("one", users(1), users(1, "second"))
    with asking(plane) as (_, client):
        plane.accepted("one")
        for name in ("edge", "second"):
            assert client.codes(2, name, USER) == [OK, OVER_LIMIT]
        plane.set("two", users(1))
        plane.accepted("two")
        assert client.codes(1, "edge", USER) == [OVER_LIMIT]
        assert client.codes(2, "second", USER) == [OK, OK]
        plane.set("three")
        plane.accepted("three")
        assert client.codes(2, "edge", USER) == [OK, OK]


def test_it_is_killed_and_restarted_without_a_failed_request(plane):
    plane.set("one", users(1_000_000), users(1, "small"))
    with asking(plane) as (_, client):
        plane.accepted("one")
        assert client.codes(2, "small", USER) == [OK, OVER_LIMIT]
        ended, answers = threading.Event(), []

        def hammer():
            while not ended.is_set():
                answers.append(client.whole("edge", USER).code)

        thread = threading.Thread(target=hammer)
        thread.start()
        for version in ("two", "three"):
            plane.kill()
            time.sleep(0.3)  # some tries fail
            assert client.codes(1, "small", USER) == [OVER_LIMIT]
            plane.start()
            plane.set(version, users(1_000_000), users(1, "small"))
            plane.accepted(version)
        ended.set()
        thread.join(20)
        assert set(answers) == {OK} and len(answers) > 100
        assert client.codes(1, "small", USER) == [OVER_LIMIT]


def test_headers_are_sent(plane):
    plane.set("one", users(1))
    with serving(plane, "--xds-headers", "x-cluster:west"):
        plane.accepted("one")
        headers = plane.found("opened")[0]["headers"]
        assert headers["x-cluster"] == "west" and headers["content-type"] == "application/grpc"


@pytest.mark.parametrize("kind", [EC, RSA])
def test_tls_on_both_sides(authority, kind):
    """Go lists RSA-PSS alone for TLS 1.3: the certificate of an RSA key is sent nevertheless."""
    certificate, key = authority.sign("plane", key=kind)
    own, own_key = authority.sign("limiter", key=kind)
    with GoControlPlane("-cert", certificate, "-key", key, "-client-ca",
                      authority.certificate) as plane:
        plane.set("one", users(1))
        with asking(plane, "--xds-ca-file", authority.certificate, "--xds-cert-file", own,
                    "--xds-key-file", own_key, scheme="xdss") as (_, client):
            plane.accepted("one")
            assert client.codes(2, "edge", USER) == [OK, OVER_LIMIT]
        n_opened = len(plane.found("opened"))
        with serving(plane, "--xds-ca-file", authority.certificate, scheme="xdss") as server:
            server.wait_for("warn xds")
        assert len(plane.found("opened")) == n_opened


# ---- What Envoy Gateway sends: xds/gateway.yaml is what its user wrote ----

LISTENER, POLICY = "default/eg/http", "default/shop"
SHOP = "httproute/default/shop/rule/0/match/0/www_example_com"
MODEL = "httproute/default/model/rule/0/match/0/model_example_com"
ADDRESS = [("masked_remote_address", "0.0.0.0/0"), ("remote_address", "192.0.2.7")]


def of_route(route, *entries):
    """The descriptor that its Envoy sends: the route, then what the rule matched."""
    return [(route, route), *entries]


def test_policies_of_envoy_gateway(plane):
    plane.replay("1", "limits")
    with asking(plane) as (_, client):
        plane.accepted("1")
        by_user = of_route(SHOP, ("rule-0-match-0", "ann"))
        login = of_route(SHOP, ("rule-1-method", "rule-1-method"), ("rule-1-path", "rule-1-path"))
        trial = of_route(SHOP, ("rule-3-match-0", "rule-3-match-0"), ("rule-3-match-1", "q"))
        shared = [("default/shop/rule/4", "default/shop/rule/4"), ("rule-0-match-0", "acme")]
        assert client.codes(5, LISTENER, by_user) == [OK] * 3 + [OVER_LIMIT] * 2
        assert client.codes(3, LISTENER, login) == [OK] * 2 + [OVER_LIMIT]
        by_address = client.whole(LISTENER, of_route(SHOP, *ADDRESS)).statuses[0]
        assert (by_address.limit, by_address.unit) == (1000, "DAY")
        assert client.codes(3, LISTENER, trial) == [OK] * 3
        assert client.codes(6, POLICY, shared) == [OK] * 5 + [OVER_LIMIT]
        team = of_route(MODEL, ("rule-0-match-0", "red"))
        assert client.codes(1, LISTENER, team, hits=0) == [OK]
        assert client.codes(2, LISTENER, team, hits=700) == [OK, OVER_LIMIT]
        assert client.codes(1, LISTENER, team, hits=0) == [OVER_LIMIT]
        plane.replay("2", "changed")
        plane.accepted("2")
        assert client.codes(3, LISTENER, by_user) == [OK] * 2 + [OVER_LIMIT]
        plane.replay("3", "none")
        plane.accepted("3")
        assert client.codes(2, LISTENER, by_user) == [OK] * 2


def test_one_network_in_two_rules_is_refused_as_by_envoyproxy_ratelimit(plane):
    """The message has equal descriptors at one level; the policy before stays."""
    plane.replay("1", "limits")
    with asking(plane) as (_, client):
        plane.accepted("1")
        plane.replay("2", "same-cidr")
        nack = plane.wait_for("request", version="1", times=2)
        assert LISTENER in nack["error"] and "masked_remote_address" in nack["error"]
        by_user = of_route(SHOP, ("rule-0-match-0", "ann"))
        assert client.codes(4, LISTENER, by_user) == [OK] * 3 + [OVER_LIMIT]


# ---- The example of envoyproxy/ratelimit: examples/xds-sotw-config-server/resource.go ----

MINUTE = "MINUTE"
EXAMPLE = [
    config("mongo_cps", descriptor("database", "users", policy("SECOND", 500)),
           descriptor("database", "default", policy("SECOND", 500))),
    config("rl", descriptor("category", "account",
                            policy(MINUTE, 4, replaces=["bkthomps", "fake_name"])),
           descriptor("source_cluster", "proxy", below=[
               descriptor("destination_cluster", "bkthomps",
                          policy(MINUTE, 2, replaces=["bkthomps"])),
               descriptor("destination_cluster", "mock", policy(MINUTE, 1)),
               descriptor("destination_cluster", "override",
                          policy(MINUTE, 2, replaces=["banned_limit"])),
               descriptor("destination_cluster", "fake", policy(MINUTE, 2, name="fake_name"))]),
           descriptor("foo", "", policy(MINUTE, 2), below=[
               descriptor("bar", "", policy(MINUTE, 3), detailed_metric=True),
               descriptor("bar", "bkthomps", policy(MINUTE, 1, name="bkthomps")),
               descriptor("bar", "banned", policy(MINUTE, 0, name="banned_limit")),
               descriptor("baz", "", policy("SECOND", 1)),
               descriptor("baz", "not-so-shady", policy(MINUTE, 3)),
               descriptor("baz", "shady", policy(MINUTE, 3), shadow_mode=True),
               descriptor("bay", "", policy(unlimited=True))]),
           descriptor("qux", "", policy(unlimited=True)))]
BANNED, OVERRIDE = [("foo", "f"), ("bar", "banned")], [
    ("source_cluster", "proxy"), ("destination_cluster", "override")]
# (domain, descriptors, how often, how often it passes): what envoyproxy/ratelimit answered.
SEQUENCE = [
    ("rl", [[("category", "account")]], 6, 4),
    ("rl", [[("source_cluster", "proxy"), ("destination_cluster", "mock")]], 3, 1),
    ("rl", [[("foo", "f")]], 4, 2),
    ("rl", [[("foo", "f"), ("bar", "x")]], 5, 3),
    ("rl", [[("foo", "f"), ("bar", "bkthomps")]], 3, 1),
    ("rl", [BANNED], 2, 0),
    ("rl", [BANNED, OVERRIDE], 4, 2),
    ("rl", [[("foo", "g"), ("baz", "shady")]], 5, 5),
    ("rl", [[("foo", "g"), ("bay", "x")]], 5, 5),
    ("rl", [[("qux", "x")]], 5, 5),
    ("rl", [[("unknown", "x")]], 2, 2),
    ("mongo_cps", [[("database", "users")]], 3, 3),
]


def test_the_example_of_envoyproxy_ratelimit(plane):
    plane.set("1", *EXAMPLE)
    # The clock stands still: no request of a limit is in its next second or minute.
    with asking(plane, "--clock", "virtual") as (_, client):
        plane.accepted("1")
        for name, descriptors, times, passes in SEQUENCE:
            assert client.codes(times, name, *descriptors) == [OK] * passes + [OVER_LIMIT] * (
                times - passes), descriptors


# ---- Envoy AI Gateway: budgets of models that are tried in turn, in quota mode ----

def test_quota_mode_of_ai_gateway(plane):
    """A request is over limit only once both backends have no quota left for its team."""
    by_team, names = "rule-0-x-team-match-0", ("default/first", "default/second")
    plane.set("1", config("ai-gateway-quota", *[
        descriptor("backend_name", name, below=[
            descriptor("model_name_override", "gpt", below=[
                descriptor(by_team, "", policy("DAY", tokens), quota_mode=True)])])
        for name, tokens in zip(names, (100, 200))]))
    with asking(plane) as (_, client):
        plane.accepted("1")
        both = [[("backend_name", name), ("model_name_override", "gpt"), (by_team, "red")]
                for name in names]
        codes = []
        for each in [both[0]] * 2 + [both[1]] * 3:
            client.whole("ai-gateway-quota", each, hits=70)
            answer = client.whole("ai-gateway-quota", *both, hits=0)
            codes.append((answer.code, *answer.codes))
        assert codes == [(OK, OK, OK), (OK, OVER_LIMIT, OK), (OK, OVER_LIMIT, OK),
                         (OK, OVER_LIMIT, OK), (OVER_LIMIT, OVER_LIMIT, OVER_LIMIT)]
