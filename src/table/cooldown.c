/* SPDX-License-Identifier: MIT */
/* Reads and swaps the words of keys that cool down, in the slots of blocks. */
#include "table/cooldown.h"

#include "base/wide_int.h"
#include "table/blocks.h"

uint64_t cooldown_read(struct stint_table *table, struct hash128 hash, uint64_t now_ns)
{
    if (!cooldown_any(table, now_ns))
        return 0;
    uint64_t word = blocks_read(table, hash);
    return word > now_ns ? word : 0;
}

/* True where the swap is done. */
CAS16_TARGET static bool put(const struct asking *asking, const struct seen *seen, uint64_t after)
{
    bool pending = (seen->pair.first & TAG_PENDING) != 0;
    struct pair word = {asking->home.tag | COOLDOWN_ID, after};
    if (pending && slots_settle(asking->slots, &asking->home, seen) != SETTLE_MINE)
        return false;
    return after == 0 ? slots_withdraw(asking->slots, seen) : cas16(seen->at, seen->pair, word);
}

enum cooldown_swap cooldown_swap(struct stint_table *table, struct hash128 hash, uint64_t before,
                                 uint64_t after, uint64_t now_ns)
{
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
        } else if (put(&asking, &seen, after)) {
            return COOLDOWN_SWAPPED;
        }
    }
}

void cooldown_repair(struct stint_table *table)
{
    const struct slots *slots = &table->slots[CLASS_BLOCKS];
    uint64_t blocks_until_ns = 0, cooldowns_until_ns = 0;
    uint64_t now_ns = table_latest_ns(table, region_now(&table->region));
    for (uint64_t slot = 0; slot < slots->sets * WAYS; slot++) {
        uint8_t *set = slots->base + slot / WAYS * slots->set_size;
        struct seen seen = slots_see(slots, set, (unsigned)(slot % WAYS));
        bool is_cooldown = (seen.pair.first & TAG_ID_MASK) == COOLDOWN_ID;
        uint64_t *latest_ns = is_cooldown ? &cooldowns_until_ns : &blocks_until_ns;
        bool lasts = seen.pair.second >> COOLDOWN_LOW_BITS == UINT64_MAX >> COOLDOWN_LOW_BITS;
        if (is_cooldown && !lasts && seen.pair.second > add_sat(now_ns, COOLDOWN_MAX_NS)) {
            slots_withdraw(slots, &seen);
            table_count(&table_counters(table)->states_damaged, 1);
        } else if (seen.pair.first != 0) {
            *latest_ns = max_u64(*latest_ns, seen.pair.second);
        }
    }
    table->region.header->blocks_until_ns = blocks_until_ns;
    table->region.header->cooldowns_until_ns = cooldowns_until_ns;
}
