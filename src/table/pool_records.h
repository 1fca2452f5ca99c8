/* SPDX-License-Identifier: MIT */
/*
 * What processes share of a key pool beside the states of its keys: the next turn, and how often
 * something returned that may end a wait. A record is found by the pool's name, and keeps it.
 */
#ifndef STINT_TABLE_POOL_RECORDS_H
#define STINT_TABLE_POOL_RECORDS_H

#include "table/table.h"

struct pool_record {
    struct pair name; /* its hash; 0, 0: free */
    uint64_t turn;    /* the next turn of a round. Any value is valid */
    uint64_t returns; /* units that were given back, and changed reports */
    uint64_t check;   /* of the name; 0: its creator ended before it was written */
    uint64_t unused[3];
};
_Static_assert(sizeof(struct pool_record) == POOL_RECORD_SIZE, "regions count on it");

/* The record of a pool, created if new; the caller hashes its name. */
int pool_record_open(struct stint_table *table, struct hash128 name, struct pool_record **record,
                     struct stint_error *error);

/*
 * Whether it could be opened, and no others are opened before than those checked before. *n_new: of
 * these, how many need a free record; counted on.
 */
int pool_record_check(struct stint_table *table, struct hash128 name, uint32_t *n_new,
                      struct stint_error *error);

/* Reads the next turn, and advances it: false if another caller was faster. */
static inline uint64_t pool_record_turn(const struct pool_record *record)
{
    /* relaxed: a turn orders nothing else. */
    return __atomic_load_n(&record->turn, __ATOMIC_RELAXED);
}

static inline bool pool_record_turn_on(struct pool_record *record, uint64_t from, uint64_t to)
{
    return __atomic_compare_exchange_n(&record->turn, &from, to, false, __ATOMIC_RELAXED,
                                       __ATOMIC_RELAXED);
}

static inline uint64_t pool_record_returns(const struct pool_record *record)
{
    /* acquire: the states that had returned by then are visible. */
    return __atomic_load_n(&record->returns, __ATOMIC_ACQUIRE);
}

/* After a state was changed so that a known wait does not hold any more. */
static inline void pool_record_count_return(struct pool_record *record)
{
    /* release: the state is changed before. */
    __atomic_fetch_add(&record->returns, 1, __ATOMIC_RELEASE);
}

/* For a table that nothing else has open: forgets records whose name is damaged. */
void pool_records_repair(struct stint_table *table);

/* For snapshots, and for metrics. */
void pool_records_copy(const struct stint_table *table, uint64_t i, void *to);
uint32_t pool_records_used(const struct stint_table *table);

#endif
