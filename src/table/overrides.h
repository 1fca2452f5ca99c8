/* SPDX-License-Identifier: MIT */
/*
 * Quotas of single keys, set at run time in place of their rule's, and kept in the region: they
 * hold for all processes that share the table, and over restarts.
 *
 * A key is named by its hash under its rule (table_hash() of a quota with that rule). Its use is
 * kept: the override has the same `rule`, so the next grant carries the state, as stint_set_quota()
 * describes. There is no undo; set the older quota instead.
 */
#ifndef STINT_TABLE_OVERRIDES_H
#define STINT_TABLE_OVERRIDES_H

#include "table/table.h"

/* Whether any key has a quota of its own: one load, for each decision. */
static inline bool overrides_any(const struct stint_table *table)
{
    /* relaxed: a caller that sets one, and then decides elsewhere, synchronises by other means. */
    return __atomic_load_n(&table->region.header->overrides, __ATOMIC_RELAXED) != 0;
}

/*
 * Sets a key's quota, which must have `rule` (not 0) and be accepted by the table. STINT_E_FULL for
 * one key too many, or one quota; STINT_E_BUSY when a process was stopped while it set another;
 * STINT_E_MISMATCH for a quota without a rule, or one that the table does not accept.
 */
int overrides_set(struct stint_table *table, struct hash128 hash, const struct stint_quota *quota,
                  struct stint_error *error);

/* Returns the key to its rule's quota. STINT_E_GONE if it had no other; STINT_E_BUSY as above. */
int overrides_drop(struct stint_table *table, struct hash128 hash, struct stint_error *error);

/* The key's own quota, with `rule` set. False: it has none. Lock-free. */
bool overrides_find(struct stint_table *table, struct hash128 hash, uint64_t rule,
                    struct stint_quota *quota);

/* At an opening by a single process: drops overrides whose quota is not known, and recounts. */
void overrides_repair(struct stint_table *table);

/* Entry `place` as it may be in a copy of the table. */
#define OVERRIDE_SIZE 32
uint64_t overrides_places(const struct region_fixed *fixed);
void overrides_copy(const struct stint_table *table, uint64_t place, void *to);

#endif
