/* SPDX-License-Identifier: MIT */
/*
 * This process's handle on a table: the region, its own copies of the quotas, its slots. And what
 * every decision needs of it before it looks at a slot: the mark, numbers that are unique in the
 * table, this process's identity.
 */
#ifndef STINT_TABLE_HANDLE_H
#define STINT_TABLE_HANDLE_H

#include "algorithm/algorithm.h"
#include "base/key_hash.h"
#include "table/intern.h"
#include "table/slot/slots.h"

#include <assert.h>

/* A pass over the ring of tickets that closes reservations that were never settled: ticket.c. */
struct sweep {
    uint32_t is_at_work; /* 1: a thread works on it */
    uint64_t next;       /* slot to look at */
    uint64_t began_ns;
    uint64_t done_ns; /* those that ended by then have been closed */
};

/* Data of this process alone, emptied in a child by fork (so that no two share a nonce). */
struct process_page {
    uint64_t owner; /* this process in owner words; 0: not computed yet */
    uint64_t nonce; /* next to use; 0 modulo the size of a block: take a new block */
    struct sweep sweep;
};

struct stint_table {
    struct region region;
    struct intern intern;
    struct slots slots[CLASSES];
    struct process_page *process;
    struct stint_quota counters; /* counter_quota() */
    uint8_t when_full;           /* for quotas that do not set it: table_set_when_full() */
    uint64_t ahead_ns; /* the longest period of all its quotas when it was opened; see entry.h */
    bool filled;
    struct key_hash key_hash; /* under the secret of the region */
};

/* Whether the handle is as stint_table_open() made it; shared memory is not read. */
static inline bool table_is_valid(const struct stint_table *table)
{
    return region_is_valid(&table->region) && intern_is_valid(&table->intern) &&
           table->process != NULL && slots_is_valid(&table->slots[CLASS_8]) &&
           slots_is_valid(&table->slots[CLASS_BLOCKS]);
}

/* Writes into an open file what stint_table_snapshot() does; -1 with errno. */
int table_write(const struct stint_table *table, int fd);

_Static_assert(CLASS_8 == 0 && CLASS_16 == 1 && CLASS_WIDE == 2, "table_class() counts");

/* Without a branch: every take asks. */
static inline enum slot_class table_class(const struct stint_quota *quota)
{
    assert(quota->derived.state_size >= 8);
    return (enum slot_class)((quota->derived.state_size > 8) + (quota->derived.state_size > 16));
}

/*
 * The policy of a full table for quotas that do not set one, for decisions of this process: an enum
 * stint_when_full, STINT_FULL_DEFAULT at first.
 */
static inline void table_set_when_full(struct stint_table *table, uint8_t when_full)
{
    assert(table_is_valid(table) && when_full <= STINT_FULL_ALLOW);
    /* relaxed: a decision under way follows either policy. */
    __atomic_store_n(&table->when_full, when_full, __ATOMIC_RELAXED);
}

static inline uint8_t table_when_full(const struct stint_table *table,
                                      const struct stint_quota *quota)
{
    return algorithm_when_full(quota, __atomic_load_n(&table->when_full, __ATOMIC_RELAXED));
}

/* The rule of a quota, or what stands for it: equal parameters share states. */
static inline uint64_t table_rule(const struct stint_quota *quota)
{
    assert(quota->rule != 0 || quota->derived.checked);
    return quota->rule != 0 ? quota->rule : quota->derived.params_hash[0];
}

/* The hash of a key under a rule, or under a number that separates another use of keys. */
struct hash128 table_hash_under(const struct stint_table *table, uint64_t rule, const void *key,
                                size_t key_len);

/* The hash of a key under a quota's rule. */
static inline struct hash128 table_hash(const struct stint_table *table,
                                        const struct stint_quota *quota, const void *key,
                                        size_t key_len)
{
    return table_hash_under(table, table_rule(quota), key, key_len);
}

/* The mark is written at most this often, so that its cache line stays shared among readers. */
#define MARK_STEP_NS NS_PER_MS
void table_raise_mark(struct stint_table *table, uint64_t now_ns);

/* The latest now of all callers, less MARK_STEP_NS at most. */
static inline uint64_t table_mark(const struct stint_table *table)
{
    /* relaxed: see table_effective_now. */
    return __atomic_load_n(&table->region.header->mark_ns, __ATOMIC_RELAXED);
}

/* The effective time: never more than skew_max behind the latest now of all callers. */
static inline uint64_t table_effective_now(struct stint_table *table, uint64_t now_ns)
{
    const struct region_header *header = table->region.header;
    /* relaxed: the mark bounds how stale a time may be; a slightly older mark bounds it as well. */
    uint64_t mark_ns = __atomic_load_n(&header->mark_ns, __ATOMIC_RELAXED);
    if (now_ns >= mark_ns) {
        if (now_ns - mark_ns >= MARK_STEP_NS)
            table_raise_mark(table, now_ns);
        return now_ns;
    }
    return max_u64(now_ns, sub_floor(mark_ns, table->region.fixed.skew_max_ns));
}

/* The same for a decision that changes nothing: the mark stays. */
static inline uint64_t table_effective_peek(const struct stint_table *table, uint64_t now_ns)
{
    return max_u64(now_ns, sub_floor(table_mark(table), table->region.fixed.skew_max_ns));
}

/* The one that a verb wants. */
static inline uint64_t table_effective_for(struct stint_table *table, uint8_t verb, uint64_t now_ns)
{
    return verb == STINT_PEEK ? table_effective_peek(table, now_ns)
                              : table_effective_now(table, now_ns);
}

/* No booking of the table begins later. */
static inline uint64_t table_booked_until(const struct stint_table *table)
{
    /* relaxed: a reader of a state with a booking has read what raised this before: ask.h. */
    return __atomic_load_n(&table->region.header->booked_until_ns, __ATOMIC_RELAXED);
}
void table_raise_booked(struct stint_table *table, uint64_t start_ns);

/* Whether any block of the table may hold at this time. */
static inline bool table_has_blocks(const struct stint_table *table, uint64_t now_ns)
{
    assert(region_is_valid(&table->region));
    /* acquire: with the latest end of all blocks, the block that raised it is visible. */
    return __atomic_load_n(&table->region.header->blocks_until_ns, __ATOMIC_ACQUIRE) > now_ns;
}

/* Whether a time is the effective one, and no key is blocked then: states alone decide. */
static inline bool table_is_plain_at(struct stint_table *table, uint64_t now_ns)
{
    return now_ns <= STINT_NOW_MAX && !table_has_blocks(table, now_ns) &&
           table_effective_now(table, now_ns) == now_ns;
}

/* How long after its expiry a state may still be needed by a caller whose clock is behind. */
static inline uint64_t table_grace_ns(const struct stint_table *table)
{
    return add_sat(table->region.fixed.skew_max_ns, MARK_STEP_NS);
}

/* No decision in the table was made at a later time than this. */
uint64_t table_latest_ns(const struct stint_table *table, uint64_t now_ns);

/* A number unique in this table, for pending slots of class 8, tickets and claims. */
uint64_t table_nonce(struct stint_table *table);

/* This process's identity in the owner words of the table. */
uint64_t table_self(struct stint_table *table);

/* Counts a rare event. */
static inline void table_count(uint64_t *counter, uint64_t by)
{
    /* relaxed: a counter orders nothing. */
    __atomic_fetch_add(counter, by, __ATOMIC_RELAXED);
}

static inline struct region_counters *table_counters(const struct stint_table *table)
{
    assert(region_is_valid(&table->region));
    return &table->region.header->counters;
}

#endif
