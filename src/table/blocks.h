/* SPDX-License-Identifier: MIT */
/*
 * The slots of blocks and of cooldowns: pairs of a tag word and a word that holds an instant, and
 * expires then. The id in the tag word is that of a block or of a cooldown.
 */
#ifndef STINT_TABLE_BLOCKS_H
#define STINT_TABLE_BLOCKS_H

#include "table/slot/place.h"

#define BLOCK_ID 1
#define COOLDOWN_ID 2

/* For writing a word: where no slot is free, that is returned, and no other word is evicted. */
struct asking blocks_asking(struct stint_table *table, struct hash128 hash, uint64_t now_ns);

/*
 * Puts a pending slot into the best place; false if there is none. The caller searches for the key
 * once more anyway, and so repeats a lost race.
 */
bool blocks_publish(const struct asking *asking, uint32_t id);

/* The word of a key, or 0. */
uint64_t blocks_read(const struct stint_table *table, struct hash128 hash);

#endif
