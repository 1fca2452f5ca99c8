/* SPDX-License-Identifier: MIT */
/*
 * One word for each key of a pool that cools down, beside the blocks of the table and in the same
 * slots. The limiter defines the word; here it is an instant with extra bits: from that instant on
 * it has expired, and its slot is free. The low COOLDOWN_LOW_BITS bits are the extra ones, too
 * small a part of the time to matter.
 */
#ifndef STINT_TABLE_COOLDOWN_H
#define STINT_TABLE_COOLDOWN_H

#include "table/table.h"

#define COOLDOWN_ID 2 /* in the tag word; a block has another */
#define COOLDOWN_LOW_BITS 16
#define COOLDOWN_MAX_NS (2 * NS_PER_YEAR) /* no word is later, except those without end */

/* Whether any cooldown of the table may last: most tables have none, and no key is searched for. */
static inline bool cooldown_any(const struct stint_table *table, uint64_t now_ns)
{
    /* acquire: with the latest end of all cooldowns, the one that raised it is visible. */
    return __atomic_load_n(&table->region.header->cooldowns_until_ns, __ATOMIC_ACQUIRE) > now_ns;
}

/* The word of a key; 0 where there is none, or it has expired at now. */
uint64_t cooldown_read(struct stint_table *table, struct hash128 hash, uint64_t now_ns);

enum cooldown_swap {
    COOLDOWN_SWAPPED,
    COOLDOWN_CHANGED, /* the word is no longer `before`: read it again */
    COOLDOWN_FULL,    /* no free slot */
};

/* Replaces what cooldown_read() returned at the same now by another word, atomically; 0 is none. */
enum cooldown_swap cooldown_swap(struct stint_table *table, struct hash128 hash, uint64_t before,
                                 uint64_t after, uint64_t now_ns);

#endif
