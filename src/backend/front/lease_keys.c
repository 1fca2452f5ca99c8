/* SPDX-License-Identifier: MIT */
/*
 * The keys with leases, now or lately: found by their hash, removed by their age; and what is
 * decided by the leases that a key holds.
 */
#include "backend/front/lease_parts.h"

#include "algorithm/algorithm.h"
#include "backend/item_copy.h"
#include "base/ns.h"
#include "base/wide_int.h"

#include <stdlib.h>

/* ---- Finding --------------------------------------------------------------------------------- */

/* Names are not hashed: the rule's own number replaces them, and is_same() compares them. */
static uint64_t hash_of(const struct lease *lease, const struct backend_item *item)
{
    uint64_t tweak = item->quota->derived.params_hash[0] ^ item->quota->rule;
    return siphash13_128(lease->options.secret, tweak, item->key.ptr, item->key.len).lo;
}

static bool is_same(const struct lease_key *key, const struct backend_item *item)
{
    return key->item->is_values == item->is_values && key->store.tag == item->rule->store.tag &&
           item_is_same(key->item, item);
}

/* ---- Age ------------------------------------------------------------------------------------- */

static void unlink_age(struct lease_key *key)
{
    struct lease *lease = key->home;
    *(key->newer != NULL ? &key->newer->older : &lease->newest) = key->older;
    *(key->older != NULL ? &key->older->newer : &lease->oldest) = key->newer;
}

static void link_newest(struct lease_key *key)
{
    struct lease *lease = key->home;
    key->newer = NULL;
    key->older = lease->newest;
    *(lease->newest != NULL ? &lease->newest->newer : &lease->oldest) = key;
    lease->newest = key;
}

struct lease_key *lease_find(const struct lease *lease, const struct backend_item *item,
                             uint64_t now_ns)
{
    uint64_t hash = hash_of(lease, item);
    struct lease_key *key = lease->buckets[hash % lease->n_buckets];
    while (key != NULL && (key->hash != hash || !is_same(key, item)))
        key = key->next;
    if (key == NULL)
        return NULL;
    key->asked_ns = now_ns;
    if (key->newer != NULL) {
        unlink_age(key);
        link_newest(key);
    }
    return key;
}

void lease_remove(struct lease_key *key)
{
    struct lease *lease = key->home;
    struct lease_key **place = &lease->buckets[key->hash % lease->n_buckets];
    while (*place != key)
        place = &(*place)->next;
    *place = key->next;
    unlink_age(key);
    free(key->item);
    lease->n_keys--;
    key->next = lease->free_keys;
    lease->free_keys = key;
}

struct lease_key *lease_new_key(struct lease *lease, const struct backend_item *item,
                                uint64_t now_ns)
{
    uint64_t hash = hash_of(lease, item);
    struct lease_key *key = lease->free_keys;
    if (key != NULL)
        lease->free_keys = key->next;
    else
        key = malloc(sizeof(*key));
    if (key == NULL)
        return NULL;
    *key = (struct lease_key){.home = lease,
                              .hash = hash,
                              .item = item_copy(item, 1),
                              .store = item->rule->store,
                              .units = 1,
                              .limit = most_units(item->quota),
                              .asked_ns = now_ns};
    if (key->item == NULL) {
        key->next = lease->free_keys;
        lease->free_keys = key;
        return NULL;
    }
    key->next = lease->buckets[hash % lease->n_buckets];
    lease->buckets[hash % lease->n_buckets] = key;
    link_newest(key);
    lease->n_keys++;
    if (lease->n_keys == 1 && lease->options.hurry != NULL)
        lease->options.hurry(lease->options.arg);
    return key;
}

/* ---- What a key holds -------------------------------------------------------------------------
 */

void lease_drop(struct lease_key *key, size_t i)
{
    lease_count(key->home, -(int64_t)key->held[i].lease.left);
    key->n_held--;
    memmove(&key->held[i], &key->held[i + 1], (key->n_held - i) * sizeof(key->held[0]));
}

void lease_drop_ended(struct lease_key *key, uint64_t now_ns)
{
    for (size_t i = key->n_held; i-- > 0;)
        if (now_ns >= key->held[i].until_ns ||
            (key->held[i].lease.left == 0 && key->held[i].lease.ends_ns == 0))
            lease_drop(key, i);
}

/* ---- What a key decides by them -------------------------------------------------------------- */

/* Takes units from held leases, the oldest first; returns the time of the grant. */
static uint64_t hand_out(struct lease_key *key, uint32_t units)
{
    uint64_t at_ns = 0;
    key->used += units;
    lease_count(key->home, -(int64_t)units);
    for (size_t i = 0; i < key->n_held && units > 0; i++) {
        struct lease_held *held = &key->held[i];
        uint32_t taken = units < held->lease.left ? units : held->lease.left;
        if (taken == 0)
            continue;
        held->lease.left -= taken;
        units -= taken;
        /* Of several leases: the earlier one, in whole microseconds, which names none. */
        at_ns = at_ns == 0 && units == 0 ? held->at_ns
                : at_ns == 0             ? held->at_ns - held->at_ns % NS_PER_US
                                         : at_ns;
    }
    return at_ns;
}

static struct stint_decision decision_of(const struct lease_key *key, uint32_t left,
                                         uint64_t now_ns)
{
    uint64_t remaining = min_u64((uint64_t)key->remaining + left, key->limit);
    return (struct stint_decision){
        .stored = 1,
        .limit = key->limit,
        .remaining = (uint32_t)remaining,
        .reset_after_ns = sub_floor(key->reset_ns, now_ns),
    };
}

/* A peek of more than is held here goes to the store, and a cost of 0 only returns numbers. */
bool lease_serve(struct lease_key *key, uint8_t verb, uint32_t cost, uint64_t now_ns,
                 struct backend_answer *answer)
{
    uint32_t left = lease_left(key);
    if (verb == REQUEST_TAKE_UPTO && left > 0 && lease_denies(key, verb, cost, now_ns))
        cost = cost < left ? cost : left; /* the store has no more */
    bool fits = left > 0 && cost <= left;
    if (!fits && cost > 0 && lease_denies(key, verb, cost, now_ns)) {
        answer->sum = decision_of(key, left, now_ns);
        answer->sum.outcome = STINT_DENY;
        answer->sum.retry_after_ns = key->retry_ns - now_ns;
    } else if (fits) {
        bool is_peek = verb == REQUEST_PEEK;
        answer->at_ns = key->held[0].at_ns;
        if (!is_peek && cost > 0)
            answer->at_ns = hand_out(key, cost);
        answer->sum = decision_of(key, left - cost, now_ns);
        answer->sum.granted = cost;
    } else {
        return false;
    }
    answer->outcome = BACKEND_DECIDED;
    answer->is_local = true;
    return true;
}

void lease_add_upto(struct lease_key *key, uint32_t cost, struct backend_answer *answer)
{
    struct stint_decision *sum = &answer->sum;
    uint32_t granted = sum->outcome == STINT_ALLOW ? sum->granted : 0;
    uint32_t added = (uint32_t)min_u64(lease_spare(key), cost - granted);
    if (answer->outcome != BACKEND_DECIDED || added == 0)
        return;
    uint64_t at_ns = hand_out(key, added);
    if (granted > 0) /* of two times, in whole microseconds: it names no lease */
        at_ns = min_u64(at_ns - at_ns % NS_PER_US, answer->at_ns);
    answer->at_ns = at_ns;
    sum->outcome = STINT_ALLOW;
    sum->granted = granted + added;
    sum->remaining = (uint32_t)min_u64((uint64_t)sum->remaining + lease_left(key), sum->limit);
    sum->retry_after_ns = 0;
}

/* Units of this worker's lease, not used after all: no other node ever counted them as used. */
bool lease_refund(struct lease_key *key, const struct backend_request *ask, uint64_t now_ns,
                  struct backend_answer *answer)
{
    uint32_t cost = ask->items[0].cost;
    if (ask->at_ns == STINT_NEVER_NS || ask->at_ns % NS_PER_US == 0)
        return false;
    for (size_t i = 0; i < key->n_held; i++) {
        struct lease_held *held = &key->held[i];
        if (held->at_ns != ask->at_ns || held->lease.units - held->lease.left < cost)
            continue;
        held->lease.left += cost;
        lease_count(key->home, cost);
        *answer = (struct backend_answer){
            .outcome = BACKEND_DECIDED,
            .is_local = true,
            .at_ns = ask->at_ns,
            .sum = decision_of(key, lease_left(key), now_ns),
        };
        answer->sum.granted = cost;
        return true;
    }
    return false;
}
