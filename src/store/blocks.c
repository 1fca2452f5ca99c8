/* SPDX-License-Identifier: MIT */
/*
 * Blocked keys: a small table of its own in the region, so that a flood of other keys evicts none.
 * An entry is (tag, instant). The latest instant of all stands in the header: tables without a
 * block, or whose blocks are over, never look here.
 */
#include "store/place.h"

#include "base/wide_int.h"

#define BLOCK_TWEAK UINT64_C(0x6b636f6c62) /* keys of blocks are hashed apart from all rules */

static const struct stint_quota block_policy = {.when_full = STINT_FULL_DENY};

struct hash128 table_block_hash(const struct stint_table *table, const void *key, size_t key_len)
{
    return siphash13_128(table->region.header->fixed.hash_key, BLOCK_TWEAK, key, key_len);
}

static void raise_latest(struct stint_table *table, uint64_t until_ns)
{
    uint64_t *latest = &table->region.header->blocks_until_ns;
    uint64_t seen = __atomic_load_n(latest, __ATOMIC_RELAXED);
    /* release: it is raised before the block is published, so nobody misses one that is. */
    while (seen < until_ns && !__atomic_compare_exchange_n(latest, &seen, until_ns, true,
                                                           __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
    }
}

CAS16_TARGET static bool put(struct asking *asking, const struct seen *seen, uint64_t until_ns)
{
    bool pending = (seen->pair.first & TAG_PENDING) != 0;
    struct pair after = {asking->home.tag | 1, until_ns};
    if (!pending)
        after.second = max_u64(until_ns, seen->pair.second);
    else if (slots_settle(asking->slots, &asking->home, seen) != SETTLE_MINE)
        return false;
    return cas16(seen->at, seen->pair, after);
}

CAS16_TARGET static bool publish(struct asking *asking, const struct place *place)
{
    struct pair pending = {asking->home.tag | TAG_PENDING | 1, table_nonce(asking->table)};
    return cas16(place->seen.at, place->seen.pair, pending);
}

int table_block(struct stint_table *table, struct hash128 hash, uint64_t until_ns, uint64_t now_ns)
{
    struct asking asking = {
        .table = table,
        .quota = &block_policy,
        .slots = &table->slots[CLASS_BLOCKS],
        .hash = hash,
        .home = slots_home(&table->slots[CLASS_BLOCKS], hash),
        .ask = {.now_ns = now_ns},
    };
    raise_latest(table, until_ns);
    for (;;) {
        struct seen seen = slots_find(asking.slots, &asking.home);
        if (seen.at == NULL) {
            struct place place = place_choose(&asking);
            if (place.seen.at == NULL)
                return STINT_E_FULL;
            publish(&asking, &place);
        } else if (put(&asking, &seen, until_ns)) {
            return 0;
        }
    }
}

CAS16_TARGET void table_unblock(struct stint_table *table, struct hash128 hash)
{
    const struct slots *slots = &table->slots[CLASS_BLOCKS];
    struct home home = slots_home(slots, hash);
    for (;;) {
        struct seen seen = slots_find(slots, &home);
        if (seen.at == NULL || slots_withdraw(slots, &seen))
            return;
    }
}

uint64_t table_blocked_until(struct stint_table *table, struct hash128 hash)
{
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
