# SPDX-License-Identifier: MIT
"""Stores of several servers that speak TLS alone and let nobody in without his name: each
connection, also to whoever takes over, and to sentinels, says it anew and looks at certificates."""
import time

import pytest

from crowd import between, outcomes
from fleet import (KEYS, LIMIT, WINDOW_S, Fleet, check_bound, check_waits, fleet_rules,
                   wait_until_calm, wait_until_served)
from redis_server import Tls, until
from store_servers import Cluster, Sentinels

RULES = fleet_rules(on_store_error="deny")
ACL = (("keeper", "kept", "~* &* +@all"), ("fleet", "hush", "~stint:* &* +@all"))


@pytest.fixture(scope="module")
def tls(authority):
    return Tls(authority, "server")


@pytest.fixture(scope="module")
def options(authority):
    """Of stint serve: whom it trusts, and who it is."""
    certificate, key = authority.sign("client")
    return ["--store-ca-file", authority.certificate, "--store-cert-file", certificate,
            "--store-key-file", key]


def as_fleet(url):
    """The same servers by TLS, as the user who may do less."""
    kind, _, rest = url.partition("://")
    return f"{kind.replace('redis', 'rediss', 1)}://fleet:hush@{rest}"


def check_log(fleet):
    assert "hush" not in "".join(server.log for server in fleet.servers)


def test_a_cluster_by_tls_and_name(tls, options):
    with Cluster(replicas=0, tls=tls, acl=ACL, tls_cluster="yes") as store, \
            Fleet(2, as_fleet(store.url), *options, rules=RULES) as fleet:
        with fleet.crowd(rate=900) as crowd:
            wait_until_served(crowd, 2)
            until(lambda: {one.key for one in crowd.snapshot() if one.outcome == "allow"} ==
                  set(KEYS), "keys of all masters are granted")
            # Whoever is thrown out comes again, and says who he is.
            for node in store.masters:
                node.cli("CLIENT", "KILL", "USER", "fleet")
            wait_until_served(crowd, 2)
            wait_until_calm(crowd)
        assert all(node.cli("DBSIZE") != "0" for node in store.masters)
        check_log(fleet)
    check_bound(crowd.seen)
    check_waits(crowd.seen)


def test_sentinels_by_tls_and_name(tls, options):
    with Sentinels(replicas=1, tls=tls, acl=ACL) as store, \
            Fleet(2, as_fleet(store.url), *options, rules=RULES) as fleet:
        with fleet.crowd(rate=900) as crowd:
            wait_until_served(crowd, 2)
            time.sleep(WINDOW_S)  # so that something was granted before
            leader = store.leader()
            leader.kill()
            store.switched_from(leader)
            switched_ns = time.time_ns()
            wait_until_served(crowd, 2, 30)
            wait_until_calm(crowd)
        switches = store.switches()
        check_log(fleet)
    check_bound(crowd.seen, limit=(1 + switches) * LIMIT)
    check_waits(crowd.seen)
    assert outcomes(between(crowd.seen, switched_ns))["allow"] > 0


def test_who_has_another_name_is_not_served(tls, options):
    """A client without a name is not let in, either. The log shows the error, not the password."""
    with Sentinels(replicas=0, sentinels=3, tls=tls, acl=ACL) as store:
        url = as_fleet(store.url).replace("hush", "guessed")
        with Fleet(1, url, *options, rules=RULES) as fleet, fleet.crowd(rate=200) as crowd:
            until(lambda: len(crowd.snapshot()) > 100, "it answers")
            until(lambda: "unavailable" in fleet.readiness(fleet.servers[0])[1],
                  "the store is unavailable")
            assert "guessed" not in fleet.servers[0].log
    assert outcomes(crowd.seen)["allow"] == 0
