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
    const struct slots *slots = &table->slots[table_class(quota)];
    if (!slots->is_quick)
        return false;
    uint64_t tag = slots_tag(hash);
    struct near near = slots_near(slots, hash, tag);
    slots_prefetch(slots, &near);
    uint32_t id = intern_id(&table->intern, quota);
    *taking = (struct taking){
        .quota = quota,
        .copy = intern_algorithm(&table->intern, id, quota),
        .slots = slots,
        .hash = hash,
        .near = near,
        .tag_word = tag | id,
    };
    return taking->copy != NULL;
}

INLINE static inline bool set_out(struct taking *taking, struct stint_table *table,
                                  const struct stint_quota *quota, const void *key, size_t key_len)
{
    return is_plain(quota, key_len) &&
           set_out_hashed(taking, table, quota,
                          key_hash(&table->key_hash, table_rule(quota), key, key_len));
}

/* NULL: the key has no valid slot under this quota. */
INLINE static inline struct pair *find(const struct taking *taking)
{
    struct pair *at = slots_find_near(&taking->near, taking->tag_word);
    return at != NULL ? at : slots_find_exact(taking->slots, taking->hash, taking->tag_word);
}

/* Whether the state was as it was read, and now is as decided. */
CAS16_TARGET INLINE static inline bool confirm(struct pair *at, struct pair before,
                                               struct pair after)
{
    /* Nothing to swap, so nothing confirms that the two halves match: read again. */
    return pair_equals(before, after) ? pair_equals(cas16_load(at), before)
                                      : cas16(at, before, after);
}

/* False if the slot is not, or no longer, the key's. */
CAS16_TARGET INLINE static inline bool hit8(const struct taking *taking, struct pair *at,
                                            uint64_t now_ns, uint32_t cost,
                                            struct stint_decision *decision)
{
    assert(slots_has(taking->slots, at));
    for (;;) {
        struct pair before = cas16_load(at);
        uint64_t after = before.second;
        if (before.first != taking->tag_word)
            return false;
        algorithm8_take(taking->copy, &after, now_ns, cost, decision);
        if (confirm(at, before, (struct pair){before.first, after}))
            return true;
    }
}

/* The generation in the state's mark must be that of the pair; see place16.c. */
CAS16_TARGET INLINE static inline bool hit16(const struct taking *taking, struct pair *at,
                                             uint64_t now_ns, uint32_t cost,
                                             struct stint_decision *decision)
{
    assert(slots_has(taking->slots, at));
    struct pair *state = slots_state16(at);
    for (;;) {
        struct pair pair = cas16_load(at);
        struct pair before = cas16_load(state);
        uint64_t mark = state_mark(pair.second);
        if (pair.first != taking->tag_word || (before.second & ~STATE_MASK) != mark)
            return false;
        struct word16 after = {before.first, before.second & STATE_MASK};
        algorithm16_take(taking->copy, &after, now_ns, cost, decision);
        if (confirm(state, before, (struct pair){after.lo, after.hi | mark}))
            return true;
    }
}

/* Its arguments are values: the address of a lookup would keep it in memory in its callers. */
__attribute__((noinline)) static struct stint_decision ask_hash(struct stint_table *table,
                                                                const struct stint_quota *quota,
                                                                struct hash128 hash, uint32_t cost,
                                                                uint64_t now_ns)
{
    assert(table_is_valid(table));
    struct stint_ask ask = {.now_ns = now_ns, .cost = cost, .verb = STINT_TAKE};
    return table_ask_hash(table, quota, hash, &ask, NULL, NULL);
}

CAS16_TARGET __attribute__((noinline)) static struct stint_decision
hit(const struct taking *taking, struct stint_table *table, struct pair *at, uint32_t cost,
    uint64_t now_ns)
{
    struct stint_decision decision;
    if (taking->slots->class == CLASS_8 ? hit8(taking, at, now_ns, cost, &decision)
                                        : hit16(taking, at, now_ns, cost, &decision))
        return decision;
    return ask_hash(table, taking->quota, taking->hash, cost, now_ns);
}

/*
 * What gcra decides most often is inline. The rest is a call with a copy of the lookup, so that the
 * values of the lookup itself are in registers.
 */
CAS16_TARGET INLINE static inline struct stint_decision
arrive(const struct taking *taking, struct stint_table *table, uint32_t cost, uint64_t now_ns)
{
    struct pair *at = find(taking);
    if (at == NULL)
        return ask_hash(table, taking->quota, taking->hash, cost, now_ns);
    if (taking->copy->algorithm == STINT_GCRA) {
        struct stint_decision decision;
        struct pair before = cas16_load(at);
        uint64_t after = before.second;
        if (before.first == taking->tag_word &&
            gcra_take_plain(taking->copy, &after, now_ns, cost, &decision) &&
            confirm(at, before, (struct pair){before.first, after}))
            return decision;
    }
    struct taking in_memory = *taking;
    return hit(&in_memory, table, at, cost, now_ns);
}

static struct stint_decision take_long_way(struct stint_table *table,
                                           const struct stint_quota *quota, const void *key,
                                           size_t key_len, uint32_t cost, uint64_t now_ns)
{
    assert(table_is_valid(table));
    struct stint_ask ask = {.now_ns = now_ns, .cost = cost, .verb = STINT_TAKE};
    return table_ask(table, quota, key, key_len, &ask, NULL, NULL);
}

/*
 * A key's text may be in no cache, and a processor looks ahead by a fixed number of instructions:
 * while it waits for the slot of one key, it reaches the first instructions of the next take, and
 * not the hash, which reads the text.
 */
CAS16_TARGET struct stint_decision stint_take(struct stint_table *table,
                                              const struct stint_quota *quota, const void *key,
                                              size_t key_len, uint32_t cost, uint64_t now_ns)
{
    __builtin_prefetch(key);
    assert(table_is_valid(table));
    struct taking taking;
    if (!table_is_plain_at(table, now_ns) || !set_out(&taking, table, quota, key, key_len))
        return take_long_way(table, quota, key, key_len, cost, now_ns);
    return arrive(&taking, table, cost, now_ns);
}

/*
 * Reading a processor's counter waits for all that is under way but the lines that were only
 * prefetched. So the clock is read after the key and before its slot.
 */
CAS16_TARGET struct stint_decision stint_take_now(struct stint_table *table,
                                                  const struct stint_quota *quota, const void *key,
                                                  size_t key_len, uint32_t cost)
{
    __builtin_prefetch(key);
    assert(table_is_valid(table));
    struct taking taking;
    bool is_set_out = set_out(&taking, table, quota, key, key_len);
    uint64_t now_ns = stint_now(table);
    if (!is_set_out || !table_is_plain_at(table, now_ns))
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
    if (!table_is_plain_at(table, now_ns) || !set_out_hashed(&taking, table, quota, hash))
        return ask_hash(table, quota, hash, cost, now_ns);
    return arrive(&taking, table, cost, now_ns);
}

/* ---- A take in two steps --------------------------------------------------------------------- */

bool table_set_out(struct taking *taking, struct stint_table *table,
                   const struct stint_quota *quota, struct hash128 hash)
{
    return !quota->initial_set && set_out_hashed(taking, table, quota, hash);
}

/* The two halves of a pair may not match: then the decision is wrong, and the swap fails. */
CAS16_TARGET static bool plan8(const struct taking *taking, struct pair *at, uint64_t now_ns,
                               uint32_t cost, struct undo *plan, struct stint_decision *decision)
{
    struct pair before = cas16_load(at);
    uint64_t after = before.second;
    algorithm8_take(taking->copy, &after, now_ns, cost, decision);
    *plan = (struct undo){at, before, {before.first, after}, now_ns};
    return before.first == taking->tag_word;
}

CAS16_TARGET static bool plan16(const struct taking *taking, struct pair *at, uint64_t now_ns,
                                uint32_t cost, struct undo *plan, struct stint_decision *decision)
{
    struct pair *state = slots_state16(at);
    struct pair pair = cas16_load(at), before = cas16_load(state);
    const uint64_t mark = state_mark(pair.second);
    struct word16 after = {before.first, before.second & STATE_MASK};
    algorithm16_take(taking->copy, &after, now_ns, cost, decision);
    *plan = (struct undo){state, before, {after.lo, after.hi | mark}, now_ns};
    return pair.first == taking->tag_word && (before.second & ~STATE_MASK) == mark;
}

bool table_plan(const struct taking *taking, uint32_t cost, uint64_t now_ns, struct undo *plan,
                struct stint_decision *decision)
{
    struct pair *at = find(taking);
    return at != NULL && (taking->slots->class == CLASS_8 ? plan8 : plan16)(taking, at, now_ns,
                                                                            cost, plan, decision);
}

CAS16_TARGET bool table_carry_out(const struct undo *plan)
{
    assert(plan->at != NULL);
    return confirm(plan->at, plan->before, plan->after);
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
        bool is_plain_time = table_is_plain_at(table, now_ns);
        for (size_t i = 0; i < n; i++)
            __builtin_prefetch(items[at + i].key);
        for (size_t i = 0; i < n; i++) {
            const struct stint_item *item = &items[at + i];
            on_the_way[i] =
                is_plain_time && set_out(&takings[i], table, item->quota, item->key, item->key_len);
        }
        for (size_t i = 0; i < n; i++) {
            const struct stint_item *item = &items[at + i];
            decisions[at + i] = on_the_way[i] ? arrive(&takings[i], table, item->cost, now_ns)
                                              : take_long_way(table, item->quota, item->key,
                                                              item->key_len, item->cost, now_ns);
        }
    }
}
