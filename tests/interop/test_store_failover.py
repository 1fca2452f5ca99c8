# SPDX-License-Identifier: MIT
"""Stores of several servers, one of which goes while they are asked: sentinels and clusters put
another in its place, slots move, cables are pulled.

A replica that takes over has what had reached it: what it had not is free again. So a window in
which a master was lost may see N before and N after; in all others, and wherever nothing was lost,
N is the most.
"""
import time

import pytest

from admissions import S
from crowd import between, errors, outcomes, within
from fleet import (KEYS, LIMIT, WINDOW_S, Fleet, check_bound, check_waits, fleet_rules,
                   wait_until_calm, wait_until_served)
from network import Network, why_not
from redis_server import Redis, until
from store_servers import Cluster, Sentinels

RULES = fleet_rules(on_store_error="deny")
FAILS_OVER_S = 30
# One, and one more where on a machine that is busy the new master is taken for lost as well.
SWITCHES_MAX = 2


def settle(crowd, fleet):
    wait_until_served(crowd, len(fleet.servers), FAILS_OVER_S)
    time.sleep(WINDOW_S + 0.5)


def check_lives(seen, lost_ns, masters):
    """N before a master was lost, N after, 2 N over both; and so on with each further master."""
    check_bound([one for one in seen if one.sent_ns < lost_ns])
    check_bound(between(seen, lost_ns), limit=(masters - 1) * LIMIT)
    check_bound(seen, limit=masters * LIMIT)


# ---- Replicas ----


def test_a_replica_is_promoted_by_hand():
    """redis:// with both: whoever is master then is asked, though the other still answers."""
    with Redis() as old, Redis(replicaof=f"127.0.0.1 {old.port}",
                               repl_diskless_sync_delay=0) as new:
        until(lambda: new.info("master_link_status") == "up", "the replica follows")
        url = f"redis://127.0.0.1:{old.port},127.0.0.1:{new.port}"
        with Fleet(3, url, rules=RULES) as fleet, fleet.crowd(rate=900) as crowd:
            settle(crowd, fleet)
            # Nothing is lost: it has all before it takes over.
            old.cli("FAILOVER", "TO", "127.0.0.1", new.port)
            until(lambda: new.info("role") == "master", "the replica is master")
            settle(crowd, fleet)
            wait_until_calm(crowd)
            assert old.info("role") == "slave"
    check_bound(crowd.seen)
    check_waits(crowd.seen)


def test_sentinels_replace_a_master_that_is_killed():
    with Sentinels() as store, Fleet(3, store.url, rules=RULES) as fleet:
        with fleet.crowd(rate=900) as crowd:
            settle(crowd, fleet)
            leader = store.leader()
            lost_ns = time.time_ns()
            leader.kill()
            store.switched_from(leader)
            settle(crowd, fleet)
            wait_until_calm(crowd)
        switches = store.switches()
    assert 1 <= switches <= SWITCHES_MAX
    check_lives(crowd.seen, lost_ns, 1 + switches)
    check_waits(crowd.seen)


# ---- Clusters ----


@pytest.fixture(scope="module")
def cluster():
    with Cluster() as servers:
        yield servers


def slots_by_key(cluster, server):
    """{key: slot}, of the names under which the store has them."""
    found = {}
    for node in cluster.running():
        for name in node.cli("KEYS", "*").split():
            for key in KEYS:
                if key + "}" in name:
                    found[key] = cluster.slot_of(name)
    return found


def test_slots_that_move_under_load(cluster):
    """All there are of the keys that are asked for, from each master to the next, and half of them
    asked for while they are between two: nobody notices, and nothing is granted twice."""
    cluster.wait_until_whole()
    with Fleet(3, cluster.url, rules=RULES) as fleet, fleet.crowd(rate=900) as crowd:
        settle(crowd, fleet)
        slots = set(slots_by_key(cluster, fleet.servers[0]).values())
        assert len(slots) == len(KEYS)
        masters = [node for node in cluster.running() if node.info("role") == "master"]
        began_ns = time.time_ns()
        for slot in sorted(slots):
            owner = cluster.owner(slot)
            to = masters[(masters.index(owner) + 1) % len(masters)]
            cluster.migrate(slot, to, at_half=lambda: time.sleep(0.05))
        moved_ns = time.time_ns()
        settle(crowd, fleet)
    check_bound(crowd.seen)
    check_waits(crowd.seen)
    moving = between(crowd.seen, began_ns, moved_ns)
    assert outcomes(moving)["allow"] > 50 and not errors(moving)


def test_a_master_of_a_cluster_is_killed(cluster):
    cluster.wait_until_whole()
    before = cluster.promotions()
    with Fleet(3, cluster.url, rules=RULES) as fleet, fleet.crowd(rate=900) as crowd:
        settle(crowd, fleet)
        slots = slots_by_key(cluster, fleet.servers[0])
        victim = cluster.owner(slots[KEYS[0]])
        spared = {key for key, slot in slots.items() if cluster.owner(slot) is not victim}
        assert 0 < len(spared) < len(KEYS)
        lost_ns = time.time_ns()
        victim.kill()
        cluster.wait_for_promotion(slots[KEYS[0]], victim)
        back_ns = time.time_ns()
        settle(crowd, fleet)
        wait_until_calm(crowd)
        victim.start()  # it comes back, as a replica of whoever has taken its place
        victim.wait()
        until(lambda: victim.info("role") == "slave", "the master that was killed follows")
        settle(crowd, fleet)
        switches = cluster.promotions() - before
    assert 1 <= switches <= SWITCHES_MAX
    check_lives(crowd.seen, lost_ns, 1 + switches)
    check_bound([one for one in crowd.seen if one.key in spared], limit=switches * LIMIT)
    check_waits(crowd.seen)
    # Keys whose master lives are asked all the while, though a third of the store is away.
    meanwhile = between([one for one in crowd.seen if one.key in spared], lost_ns, back_ns)
    assert outcomes(meanwhile)["allow"] > max(50, 0.3 * len(meanwhile)), outcomes(meanwhile)


# ---- Cables ----


def since_the_cut(seen, cut_ns, until_ns=None):
    """What was asked of the server that is cut off, and of the other one."""
    away = within(seen, cut_ns + S // 2, until_ns)
    return ([one for one in away if one.frontend == frontend] for frontend in (0, 1))


def enough(seen, cut_ns):
    here, there = since_the_cut(seen, cut_ns)
    return len(here) > 100 and outcomes(there)["allow"] > 50


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_a_server_is_cut_off_from_the_store():
    """Nothing comes back from there, not even a refusal. The others go on; it denies, and is in
    order again once its cable is back."""
    with Network(3) as network:
        *machines, place = network.machines
        with Redis(host=place.store_address, prefix=place.prefix, protected_mode="no") as redis, \
                Fleet(2, redis.url, rules=RULES, machines=machines) as fleet, \
                fleet.crowd(rate=900) as crowd:
            settle(crowd, fleet)
            machines[0].cut()
            cut_ns = time.time_ns()
            time.sleep(2)
            until(lambda: enough(crowd.snapshot(), cut_ns), "both were asked for long enough")
            mended_ns = time.time_ns()
            machines[0].mend()
            settle(crowd, fleet)
            wait_until_calm(crowd)
    check_bound(crowd.seen)
    check_waits(crowd.seen)
    here, _ = since_the_cut(crowd.seen, cut_ns, mended_ns)
    assert outcomes(here)["allow"] == 0
