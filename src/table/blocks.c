/* SPDX-License-Identifier: MIT */
/*
 * Blocked keys: a small table of its own in the region, so that a flood of other keys evicts none.
 * An entry is (tag, instant). The header has the latest instant of all: a table without blocks, or
 * whose blocks have all expired, never searches here.
 */
#include "table/cooldown.h"

#include "base/wide_int.h"
#include "table/slot/place.h"

#include <assert.h>

#define BLOCK_ID 1

#define BLOCK_TWEAK UINT64_C(0x6b636f6c62) /* separates hashes of blocked keys from all rules */

static const struct stint_quota block_policy = {.when_full = STINT_FULL_DENY};

struct hash128 table_block_hash(const struct stint_table *table, const void *key, size_t key_len)
{
    assert(key != NULL || key_len == 0);
    return table_hash_under(table, BLOCK_TWEAK, key, key_len);
}

static struct asking blocks_asking(struct stint_table *table, struct hash128 hash, uint64_t now_ns)
{
    assert(table_is_valid(table));
    const struct slots *slots = &table->slots[CLASS_BLOCKS];
    return (struct asking){
        .table = table,
        .quota = &block_policy,
        .slots = slots,
        .hash = hash,
        .home = slots_home(slots, hash),
        .ask = {.now_ns = now_ns},
    };
}

CAS16_TARGET static bool blocks_publish(const struct asking *asking, uint32_t id)
{
    assert(asking->slots->class == CLASS_BLOCKS);
    struct place place = place_choose(asking);
    if (place.seen.at == NULL)
        return false;
    struct pair pending = {asking->home.tag | TAG_PENDING | id, table_nonce(asking->table)};
    cas16(place.seen.at, place.seen.pair, pending);
    return true;
}

/* Writes a word, 0: none, to a slot of the key, valid or pending. False: begin again. */
CAS16_TARGET static bool put(const struct asking *asking, const struct seen *seen, uint32_t id,
                             uint64_t until_ns)
{
    assert(slots_has(asking->slots, seen->at));
    bool pending = (seen->pair.first & TAG_PENDING) != 0;
    struct pair word = {asking->home.tag | id, until_ns};
    if (pending && slots_settle(asking->slots, &asking->home, seen) != SETTLE_MINE)
        return false;
    return until_ns == 0 ? slots_withdraw(asking->slots, seen) : cas16(seen->at, seen->pair, word);
}

int table_block(struct stint_table *table, struct hash128 hash, uint64_t until_ns, uint64_t now_ns)
{
    assert(table_is_valid(table));
    struct asking asking = blocks_asking(table, hash, now_ns);
    /* Before the block is written, so that no reader skips an existing block. */
    region_raise(&table->region.header->blocks_until_ns, until_ns);
    for (;;) {
        struct seen seen = slots_find(asking.slots, &asking.home);
        bool pending = (seen.pair.first & TAG_PENDING) != 0;
        if (seen.at == NULL) {
            if (!blocks_publish(&asking, BLOCK_ID))
                return STINT_E_FULL;
        } else if (put(&asking, &seen, BLOCK_ID,
                       pending ? until_ns : max_u64(until_ns, seen.pair.second))) {
            return 0;
        }
    }
}

CAS16_TARGET void table_unblock(struct stint_table *table, struct hash128 hash)
{
    assert(table_is_valid(table));
    const struct slots *slots = &table->slots[CLASS_BLOCKS];
    struct home home = slots_home(slots, hash);
    for (;;) {
        struct seen seen = slots_find(slots, &home);
        if (seen.at == NULL || slots_withdraw(slots, &seen))
            return;
    }
}

uint64_t table_blocked_until(const struct stint_table *table, struct hash128 hash)
{
    assert(table_is_valid(table));
    const struct slots *slots = &table->slots[CLASS_BLOCKS];
    struct home home = slots_home(slots, hash);
    for (;;) {
        struct seen seen = slots_find(slots, &home);
        if (seen.at == NULL || (seen.pair.first & TAG_PENDING) != 0)
            return 0;
        if (pair_equals(cas16_load(seen.at), seen.pair))
            return seen.pair.second;
    }
}

/* ---- Cooldowns ------------------------------------------------------------------------------- */

uint64_t cooldown_read(struct stint_table *table, struct hash128 hash, uint64_t now_ns)
{
    assert(table_is_valid(table));
    if (!cooldown_any(table, now_ns))
        return 0;
    uint64_t word = table_blocked_until(table, hash);
    return word > now_ns ? word : 0;
}

enum cooldown_swap cooldown_swap(struct stint_table *table, struct hash128 hash, uint64_t before,
                                 uint64_t after, uint64_t now_ns)
{
    assert(table_is_valid(table));
    struct asking asking = blocks_asking(table, hash, now_ns);
    /* Before the cooldown is written, so that no reader skips an existing one. */
    region_raise(&table->region.header->cooldowns_until_ns, after);
    for (;;) {
        struct seen seen = slots_find(asking.slots, &asking.home);
        bool pending = (seen.pair.first & TAG_PENDING) != 0;
        bool lasts = seen.at != NULL && !pending && seen.pair.second > now_ns;
        uint64_t stands = lasts ? seen.pair.second : 0;
        if (stands != before)
            return COOLDOWN_CHANGED;
        if (stands == 0 && after == 0)
            return COOLDOWN_SWAPPED;
        if (seen.at == NULL) {
            if (!blocks_publish(&asking, COOLDOWN_ID))
                return COOLDOWN_FULL;
        } else if (put(&asking, &seen, COOLDOWN_ID, after)) {
            return COOLDOWN_SWAPPED;
        }
    }
}
