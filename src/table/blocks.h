/* SPDX-License-Identifier: MIT */
/*
 * The places of blocks, in which benches stand too: pairs of a tag word and a word that is worth
 * nothing from the instant on that it says. Which of the two it is, the id in the tag word tells.
 */
#ifndef STINT_TABLE_BLOCKS_H
#define STINT_TABLE_BLOCKS_H

#include "table/slot/place.h"

#define BLOCK_ID 1
#define COOLDOWN_ID 2

/* For putting a word there: where no place is free, that is said, and nobody's word goes. */
struct asking blocks_asking(struct stint_table *table, struct hash128 hash, uint64_t now_ns);

/*
 * Puts a pending slot into the best place there is; false where there is none. The caller looks for
 * the key once more anyway, and so tries a lost race again.
 */
bool blocks_publish(const struct asking *asking, uint32_t id);

/* The word of a key, or 0. */
uint64_t blocks_read(const struct stint_table *table, struct hash128 hash);

#endif
