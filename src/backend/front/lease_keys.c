/* SPDX-License-Identifier: MIT */
/* The keys with leases, now or lately: found by their hash, removed by their age. */
#include "backend/front/lease_parts.h"

#include <stdlib.h>

#define LOOKED_AT_MAX 8 /* of the oldest, to find a removable one */

/* ---- Copies ---------------------------------------------------------------------------------- */

static struct span keep(uint8_t **at, struct span span)
{
    struct span kept = span_of(*at, span.len);
    if (span.len > 0)
        memcpy(*at, span.ptr, span.len);
    *at += span.len;
    return kept;
}

bool lease_copy_item(const struct backend_item *item, struct backend_item *copy,
                     struct stint_quota *quota, struct rule *rule, uint8_t **bytes)
{
    const char *domain = item->rule != NULL ? item->rule->domain : NULL;
    size_t domain_size = domain != NULL ? strlen(domain) + 1 : 0;
    uint8_t *at = malloc(item->name.len + item->key.len + domain_size + 1);
    if (at == NULL)
        return false;
    *bytes = at;
    *copy = *item;
    *quota = *item->quota;
    copy->quota = quota;
    copy->name = keep(&at, item->name);
    copy->key = keep(&at, item->key);
    if (item->rule == NULL)
        return true;
    *rule = (struct rule){.store = item->rule->store};
    rule->store.label = rule->store.name = rule->store.shadow_name = NULL;
    if (domain != NULL)
        rule->domain = (const char *)keep(&at, span_of(domain, domain_size)).ptr;
    copy->rule = rule;
    return true;
}

/* ---- Finding --------------------------------------------------------------------------------- */

/* Names are not hashed: the rule's own number replaces them, and is_same() compares them. */
static uint64_t hash_of(const struct lease *lease, const struct backend_item *item)
{
    uint64_t tweak = item->quota->derived.params_hash[0] ^ item->quota->rule;
    return siphash13_128(lease->options.secret, tweak, item->key.ptr, item->key.len).lo;
}

static bool spans_are_equal(struct span a, struct span b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

static bool is_same(const struct lease_key *key, const struct backend_item *item)
{
    return memcmp(key->quota.derived.params_hash, item->quota->derived.params_hash,
                  sizeof(key->quota.derived.params_hash)) == 0 &&
           key->item.is_values == item->is_values && key->rule.store.tag == item->rule->store.tag &&
           spans_are_equal(key->item.name, item->name) && spans_are_equal(key->item.key, item->key);
}

static struct lease_key *find(struct lease *lease, const struct backend_item *item, uint64_t hash)
{
    struct lease_key *key = lease->buckets[hash % lease->n_buckets];
    while (key != NULL && (key->hash != hash || !is_same(key, item)))
        key = key->next;
    return key;
}

struct lease_key *lease_find(struct lease *lease, const struct backend_item *item)
{
    return find(lease, item, hash_of(lease, item));
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

void lease_touch(struct lease_key *key, uint64_t now_ns)
{
    key->asked_ns = now_ns;
    if (key->newer == NULL)
        return;
    unlink_age(key);
    link_newest(key);
}

bool lease_is_busy(const struct lease_key *key)
{
    return key->pins > 0 || key->asking != 0 || key->first != NULL;
}

void lease_remove(struct lease_key *key)
{
    struct lease *lease = key->home;
    struct lease_key **place = &lease->buckets[key->hash % lease->n_buckets];
    while (*place != key)
        place = &(*place)->next;
    *place = key->next;
    unlink_age(key);
    lease_count(lease, -(int64_t)lease_left(key));
    free(key->bytes);
    lease->n_keys--;
    key->next = lease->free_keys;
    lease->free_keys = key;
}

/* Whether there is space now. If all of the oldest hold something, one gives it back. */
static bool make_space(struct lease *lease, uint64_t now_ns)
{
    if (lease->n_keys < lease->options.keys)
        return true;
    struct lease_key *key = lease->oldest, *holding = NULL;
    for (unsigned i = 0; i < LOOKED_AT_MAX && key != NULL; i++, key = key->newer) {
        if (lease_is_busy(key))
            continue;
        lease_drop_ended(key, now_ns);
        if (lease_left(key) == 0) {
            lease_remove(key);
            return true;
        }
        if (holding == NULL)
            holding = key;
    }
    if (holding != NULL)
        lease_give_back(holding, now_ns);
    return false;
}

struct lease_key *lease_key_of(struct lease *lease, const struct backend_item *item)
{
    uint64_t hash = hash_of(lease, item), now_ns;
    struct lease_key *key = find(lease, item, hash);
    if (key != NULL) {
        key->rule.store.lease = item->rule->store.lease;
        key->rule.store.lease_units = item->rule->store.lease_units;
        key->rule.store.lease_term_ns = item->rule->store.lease_term_ns;
        return key;
    }
    now_ns = lease_now(lease);
    if (lease->is_draining || !make_space(lease, now_ns))
        return NULL;
    key = lease->free_keys;
    if (key != NULL)
        lease->free_keys = key->next;
    else
        key = malloc(sizeof(*key));
    if (key == NULL)
        return NULL;
    *key = (struct lease_key){.home = lease, .hash = hash, .units = 1, .asked_ns = now_ns};
    if (!lease_copy_item(item, &key->item, &key->quota, &key->rule, &key->bytes)) {
        key->next = lease->free_keys;
        lease->free_keys = key;
        return NULL;
    }
    key->limit = key->quota.algorithm == STINT_GCRA ? key->quota.burst : key->quota.limit;
    key->next = lease->buckets[hash % lease->n_buckets];
    lease->buckets[hash % lease->n_buckets] = key;
    link_newest(key);
    lease->n_keys++;
    if (lease->n_keys == 1 && lease->options.hurry != NULL)
        lease->options.hurry(lease->options.arg);
    return key;
}
