/* SPDX-License-Identifier: MIT */
/*
 * The most frequent calls: one take on one key, many of them with their memory prefetched, and a
 * take in two steps for lists.
 * A key that has a valid slot under the same quota, in a table without blocks, is decided here in a
 * few lines; everything else goes through table.c.
 */
#include "algorithm/quick.h"
#include "table/table.h"

#include <assert.h>

/* The values of a lookup stay in registers only if all of it is one function. */
#define INLINE __attribute__((always_inline))
#define BATCH 32 /* hashes computed in advance; more than a core's outstanding cache misses */

static bool is_plain(const struct stint_quota *quota, size_t key_len)
{
    return key_len <= STINT_KEY_MAX && quota->derived.checked == 1 && !quota->initial_set;
}

/* Prefetches the key's lines. False if the key must go through table.c. */
INLINE static inline bool set_out_hashed(struct taking *taking, struct stint_table *table,
                                         const struct stint_quota *quota, struct hash128 hash)
{
    assert(table_is_valid(table) && quota->derived.checked);
    taking->quota = quota;
    taking->hash = hash;
    taking->slots = &table->slots[table_class(quota)];
    if (taking->slots->class == CLASS_WIDE)
        return false;
    taking->home = slots_home(taking->slots, taking->hash);
    slots_prefetch(taking->slots, &taking->home);
    uint32_t id = intern_id(&table->intern, quota);
    taking->tag_word = taking->home.tag | id;
    taking->copy = intern_algorithm(&table->intern, id, quota);
    return taking->copy != NULL;
}

INLINE static inline bool set_out(struct taking *taking, struct stint_table *table,
                                  const struct stint_quota *quota, const void *key, size_t key_len)
{
    return is_plain(quota, key_len) &&
           set_out_hashed(taking, table, quota,
                          key_hash(&table->key_hash, table_rule(quota), key, key_len));
}

/* False if the slot is not, or no longer, the key's. */
CAS16_TARGET INLINE static inline bool hit8(const struct taking *taking, const struct seen *seen,
                                            uint64_t now_ns, uint32_t cost,
                                            struct stint_decision *decision)
{
    assert(slots_has(taking->slots, seen->at));
    for (;;) {
        struct pair before = cas16_load(seen->at);
        uint64_t after = before.second;
        if (before.first != taking->tag_word)
            return false;
        algorithm8_take(taking->copy, &after, now_ns, cost, decision);
        if (after == before.second) {
            /* Nothing to swap, so nothing confirms that the two halves match: read again. */
            if (pair_equals(cas16_load(seen->at), before))
                return true;
        } else if (cas16(seen->at, before, (struct pair){before.first, after})) {
            return true;
        }
    }
}

/* The generation in the state's mark must be that of the pair; see place16.c. */
CAS16_TARGET INLINE static inline bool hit16(const struct taking *taking, const struct seen *seen,
                                             uint64_t now_ns, uint32_t cost,
                                             struct stint_decision *decision)
{
    assert(slots_has(taking->slots, seen->at));
    for (;;) {
        struct pair pair = cas16_load(seen->at);
        struct pair before = cas16_load(seen->state);
        uint64_t mark = state_mark(pair.second);
        if (pair.first != taking->tag_word || (before.second & ~STATE_MASK) != mark)
            return false;
        struct word16 after = {before.first, before.second & STATE_MASK};
        algorithm16_take(taking->copy, &after, now_ns, cost, decision);
        struct pair packed = {after.lo, after.hi | mark};
        if (pair_equals(packed, before)) {
            if (pair_equals(cas16_load(seen->state), before))
                return true;
        } else if (cas16(seen->state, before, packed)) {
            return true;
        }
    }
}

__attribute__((noinline)) static struct stint_decision
ask_table(const struct taking *taking, struct stint_table *table, uint32_t cost, uint64_t now_ns)
{
    assert(table_is_valid(table));
    struct stint_ask ask = {.now_ns = now_ns, .cost = cost, .verb = STINT_TAKE};
    return table_ask_hash(table, taking->quota, taking->hash, &ask, NULL, NULL);
}

CAS16_TARGET INLINE static inline struct stint_decision
arrive(const struct taking *taking, struct stint_table *table, uint32_t cost, uint64_t now_ns)
{
    struct stint_decision decision;
    if (table_is_plain_at(table, now_ns)) {
        struct seen seen;
        if (!slots_find_exact(taking->slots, &taking->home, taking->tag_word, &seen))
            return ask_table(taking, table, cost, now_ns);
        if (taking->slots->class == CLASS_8 ? hit8(taking, &seen, now_ns, cost, &decision)
                                            : hit16(taking, &seen, now_ns, cost, &decision))
            return decision;
    }
    return ask_table(taking, table, cost, now_ns);
}

static struct stint_decision take_long_way(struct stint_table *table,
                                           const struct stint_quota *quota, const void *key,
                                           size_t key_len, uint32_t cost, uint64_t now_ns)
{
    assert(table_is_valid(table));
    struct stint_ask ask = {.now_ns = now_ns, .cost = cost, .verb = STINT_TAKE};
    return table_ask(table, quota, key, key_len, &ask, NULL, NULL);
}

CAS16_TARGET struct stint_decision stint_take(struct stint_table *table,
                                              const struct stint_quota *quota, const void *key,
                                              size_t key_len, uint32_t cost, uint64_t now_ns)
{
    assert(table_is_valid(table));
    struct taking taking;
    if (table_has_blocks(table, now_ns) || !set_out(&taking, table, quota, key, key_len))
        return take_long_way(table, quota, key, key_len, cost, now_ns);
    return arrive(&taking, table, cost, now_ns);
}

CAS16_TARGET struct stint_decision table_take_hash(struct stint_table *table,
                                                   const struct stint_quota *quota,
                                                   struct hash128 hash, uint32_t cost,
                                                   uint64_t now_ns)
{
    assert(table_is_valid(table));
    struct taking taking;
    if (table_has_blocks(table, now_ns) || !set_out_hashed(&taking, table, quota, hash)) {
        struct stint_ask ask = {.now_ns = now_ns, .cost = cost, .verb = STINT_TAKE};
        return table_ask_hash(table, quota, hash, &ask, NULL, NULL);
    }
    return arrive(&taking, table, cost, now_ns);
}

/* ---- A take in two steps --------------------------------------------------------------------- */

bool table_set_out(struct taking *taking, struct stint_table *table,
                   const struct stint_quota *quota, struct hash128 hash)
{
    return !quota->initial_set && set_out_hashed(taking, table, quota, hash);
}

/* The two halves of a pair may not match: then the decision is wrong, and the swap fails. */
CAS16_TARGET static bool plan8(const struct taking *taking, const struct seen *seen,
                               uint64_t now_ns, uint32_t cost, struct undo *plan,
                               struct stint_decision *decision)
{
    struct pair before = cas16_load(seen->at);
    uint64_t after = before.second;
    algorithm8_take(taking->copy, &after, now_ns, cost, decision);
    *plan = (struct undo){seen->at, before, {before.first, after}, now_ns};
    return before.first == taking->tag_word;
}

CAS16_TARGET static bool plan16(const struct taking *taking, const struct seen *seen,
                                uint64_t now_ns, uint32_t cost, struct undo *plan,
                                struct stint_decision *decision)
{
    struct pair pair = cas16_load(seen->at), before = cas16_load(seen->state);
    const uint64_t mark = state_mark(pair.second);
    struct word16 after = {before.first, before.second & STATE_MASK};
    algorithm16_take(taking->copy, &after, now_ns, cost, decision);
    *plan = (struct undo){seen->state, before, {after.lo, after.hi | mark}, now_ns};
    return pair.first == taking->tag_word && (before.second & ~STATE_MASK) == mark;
}

bool table_plan(const struct taking *taking, uint32_t cost, uint64_t now_ns, struct undo *plan,
                struct stint_decision *decision)
{
    struct seen seen;
    if (!slots_find_exact(taking->slots, &taking->home, taking->tag_word, &seen))
        return false;
    return (taking->slots->class == CLASS_8 ? plan8 : plan16)(taking, &seen, now_ns, cost, plan,
                                                              decision);
}

CAS16_TARGET bool table_carry_out(const struct undo *plan)
{
    assert(plan->at != NULL);
    if (pair_equals(plan->before, plan->after)) /* nothing to write */
        return pair_equals(cas16_load(plan->at), plan->before);
    return cas16(plan->at, plan->before, plan->after);
}

/* ---- Many takes ------------------------------------------------------------------------------ */

CAS16_TARGET void stint_take_batch(struct stint_table *table, const struct stint_item *items,
                                   struct stint_decision *decisions, size_t n_items,
                                   uint64_t now_ns)
{
    assert(table_is_valid(table));
    assert(items != NULL || n_items == 0);
    struct taking takings[BATCH];
    bool on_the_way[BATCH];
    for (size_t at = 0; at < n_items; at += BATCH) {
        size_t n = n_items - at < BATCH ? n_items - at : BATCH;
        bool has_blocks = table_has_blocks(table, now_ns);
        for (size_t i = 0; i < n; i++) {
            const struct stint_item *item = &items[at + i];
            on_the_way[i] =
                !has_blocks && set_out(&takings[i], table, item->quota, item->key, item->key_len);
        }
        for (size_t i = 0; i < n; i++) {
            const struct stint_item *item = &items[at + i];
            decisions[at + i] = on_the_way[i] ? arrive(&takings[i], table, item->cost, now_ns)
                                              : take_long_way(table, item->quota, item->key,
                                                              item->key_len, item->cost, now_ns);
        }
    }
}
