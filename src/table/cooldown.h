/* SPDX-License-Identifier: MIT */
/*
 * One word for each key of a pool that the far side has cooling down, beside the blocks of the
 * table and in the same places. What the word means is the limiter's; here it is an instant with
 * small print: from the instant on it is worth nothing, and its place is free. The low
 * COOLDOWN_LOW_BITS bits are the small print, too little of the time to matter.
 */
#ifndef STINT_TABLE_COOLDOWN_H
#define STINT_TABLE_COOLDOWN_H

#include "table/table.h"

#define COOLDOWN_LOW_BITS 16
#define COOLDOWN_MAX_NS (2 * NS_PER_YEAR) /* no word is later, but those that last for ever */

/* Whether any bench of the table may last: most tables have none, and no key is looked for. */
static inline bool cooldown_any(const struct stint_table *table, uint64_t now_ns)
{
    /* acquire: with the latest end of all benches, the bench that raised it is seen. */
    return __atomic_load_n(&table->region.header->cooldowns_until_ns, __ATOMIC_ACQUIRE) > now_ns;
}

/* The word of a key; 0 where there is none, or it is over at now. */
uint64_t cooldown_read(struct stint_table *table, struct hash128 hash, uint64_t now_ns);

enum cooldown_swap {
    COOLDOWN_SWAPPED,
    COOLDOWN_CHANGED, /* it is not `before` any more: read it again */
    COOLDOWN_FULL,    /* no place for one more */
};

/* Swaps what cooldown_read() gave at the same now for another word, in one step; 0 is none. */
enum cooldown_swap cooldown_swap(struct stint_table *table, struct hash128 hash, uint64_t before,
                                 uint64_t after, uint64_t now_ns);

/*
 * For a table that nobody else has open: counts anew how late benches and blocks end. What no
 * report can have left is lifted: that somebody else may answer 429 once more is no promise broken.
 */
void cooldown_repair(struct stint_table *table);

#endif
