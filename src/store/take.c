/* SPDX-License-Identifier: MIT */
/* The two calls that are made most: one take on one key, and many of them with their memory fetched
 * ahead. */
#include "store/table.h"

#define BATCH 32 /* hashes kept ahead; more than a core has misses under way */

struct stint_decision stint_take(struct stint_table *table, const struct stint_quota *quota,
                                 const void *key, size_t key_len, uint32_t cost, uint64_t now_ns)
{
    struct stint_ask ask = {.now_ns = now_ns, .cost = cost, .verb = STINT_TAKE};
    return table_ask(table, quota, key, key_len, &ask, NULL, NULL);
}

static bool is_plain(const struct stint_item *item)
{
    return item->key_len <= STINT_KEY_MAX && item->quota->derived.checked == 1 &&
           !item->quota->initial_set;
}

void stint_take_batch(struct stint_table *table, const struct stint_item *items,
                      struct stint_decision *decisions, size_t n_items, uint64_t now_ns)
{
    struct hash128 hashes[BATCH];
    /* acquire: with the latest end of all blocks, the block that raised it is seen. */
    uint64_t blocked_ns =
        __atomic_load_n(&table->region.header->blocks_until_ns, __ATOMIC_ACQUIRE);
    for (size_t at = 0; at < n_items; at += BATCH) {
        size_t n = n_items - at < BATCH ? n_items - at : BATCH;
        for (size_t i = 0; i < n; i++) {
            const struct stint_item *item = &items[at + i];
            if (!is_plain(item))
                continue;
            hashes[i] = table_hash(table, item->quota, item->key, item->key_len);
            table_prefetch(table, item->quota, hashes[i]);
        }
        for (size_t i = 0; i < n; i++) {
            const struct stint_item *item = &items[at + i];
            struct stint_ask ask = {.now_ns = now_ns, .cost = item->cost, .verb = STINT_TAKE};
            decisions[at + i] =
                is_plain(item) && blocked_ns <= now_ns
                    ? table_ask_hash(table, item->quota, hashes[i], &ask, NULL, NULL)
                    : table_ask(table, item->quota, item->key, item->key_len, &ask, NULL, NULL);
        }
    }
}
