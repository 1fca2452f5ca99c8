/* SPDX-License-Identifier: MIT */
/* The verbs over one or several quotas; list.c has what they share over lists. */
#include "limiter/list.h"

#include "base/wide_int.h"

#include <assert.h>

static struct stint_decision ask_one(struct stint_table *table, const struct stint_item *item,
                                     uint8_t verb, uint64_t at_ns, uint64_t now_ns)
{
    assert(table_is_valid(table));
    struct stint_ask ask = {.now_ns = now_ns, .at_ns = at_ns, .cost = item->cost, .verb = verb};
    return table_ask(table, item->quota, item->key, item->key_len, &ask, NULL, NULL);
}

struct stint_decision stint_take_all(struct stint_table *table, const struct stint_item *items,
                                     size_t n_items, uint64_t now_ns)
{
    assert(items != NULL || n_items == 0);
    struct list list;
    if (n_items == 1)
        return ask_one(table, items, STINT_TAKE, 0, now_ns);
    if (!list_init(&list, table, items, n_items, now_ns))
        return algorithm_never(0);
    return list_take(&list);
}

struct stint_decision stint_take_upto(struct stint_table *table, const struct stint_item *items,
                                      size_t n_items, uint64_t now_ns)
{
    assert(items != NULL || n_items == 0);
    struct list list;
    if (n_items == 1)
        return ask_one(table, items, STINT_TAKE_UPTO, 0, now_ns);
    if (!list_init(&list, table, items, n_items, now_ns))
        return algorithm_never(0);
    uint32_t most = items[0].cost;
    for (size_t i = 1; i < n_items; i++)
        most = (uint32_t)min_u64(most, items[i].cost);
    if (most > 0)
        return list_take_upto(&list, most);
    for (size_t i = 0; i < list.n_parts; i++)
        list.parts[i].cost = 0; /* nothing is granted */
    return list_ask(&list, STINT_PEEK, 0);
}

struct stint_decision stint_peek(struct stint_table *table, const struct stint_item *items,
                                 size_t n_items, uint64_t now_ns)
{
    assert(items != NULL || n_items == 0);
    struct list list;
    if (!list_init(&list, table, items, n_items, now_ns))
        return algorithm_never(0);
    return list_ask(&list, STINT_PEEK, 0);
}

/* charge and refund move units in every part, and return the least that any moved. */
static struct stint_decision move_all(struct stint_table *table, const struct stint_item *items,
                                      size_t n_items, uint8_t verb, uint64_t at_ns, uint64_t now_ns)
{
    assert(verb == STINT_CHARGE || verb == STINT_REFUND);
    struct list list;
    if (!list_init(&list, table, items, n_items, now_ns))
        return algorithm_never(0);
    return list_ask(&list, verb, at_ns);
}

struct stint_decision stint_charge(struct stint_table *table, const struct stint_item *items,
                                   size_t n_items, uint64_t now_ns)
{
    return move_all(table, items, n_items, STINT_CHARGE, 0, now_ns);
}

struct stint_decision stint_refund(struct stint_table *table, const struct stint_item *items,
                                   size_t n_items, uint64_t granted_at_ns, uint64_t now_ns)
{
    return move_all(table, items, n_items, STINT_REFUND, granted_at_ns, now_ns);
}

int stint_block(struct stint_table *table, const void *key, size_t key_len, uint64_t until_ns,
                uint64_t now_ns)
{
    assert(table_is_valid(table));
    if (key_len > STINT_KEY_MAX || until_ns > STINT_NOW_MAX || now_ns > STINT_NOW_MAX)
        return STINT_E_RANGE;
    if (table->region.read_only)
        return STINT_E_MISMATCH;
    return table_block(table, table_block_hash(table, key, key_len), until_ns,
                       table_effective_now(table, now_ns));
}

void stint_reset(struct stint_table *table, const struct stint_quota *quota, const void *key,
                 size_t key_len, uint64_t now_ns)
{
    assert(quota->derived.checked);
    (void)now_ns;
    if (table->region.read_only)
        return;
    struct hash128 hash = table_hash(table, quota, key, key_len);
    table_unblock(table, table_block_hash(table, key, key_len));
    table_unblock(table, hash);
    table_forget(table, quota, hash);
}

int stint_set_quota(struct stint_table *table, const struct stint_quota *from,
                    const struct stint_quota *to, const void *key, size_t key_len, uint64_t now_ns)
{
    assert(from->derived.checked);
    if (now_ns > STINT_NOW_MAX)
        return STINT_E_RANGE;
    int code = table_accepts(table, to, key_len, NULL);
    if (code != 0)
        return code;
    struct hash128 old = table_hash(table, from, key, key_len);
    struct hash128 new = table_hash(table, to, key, key_len);
    if (table_carry(table, from, old, to, new, table_effective_now(table, now_ns)) == CARRY_REFUSED)
        return STINT_E_FULL;
    return 0;
}
