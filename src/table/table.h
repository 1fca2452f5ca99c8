/* SPDX-License-Identifier: MIT */
/*
 * A table: one region, and one decision at a time on one key of it. The limiter handles several
 * keys or several verbs together.
 */
#ifndef STINT_TABLE_TABLE_H
#define STINT_TABLE_TABLE_H

#include "algorithm/algorithm.h"
#include "table/intern.h"
#include "table/slot/slots.h"

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
    uint8_t when_full; /* for quotas that do not set it: table_set_when_full() */
    uint64_t ahead_ns; /* the longest period of all its quotas when it was opened; see entry.h */
    bool filled;
};

/*
 * The effect of a charge: how to take it back exactly, if the state has not changed since, and the
 * time under which it is in the state. Under `log` and `buckets` that is the state's own time if a
 * caller has come with a later one; a refund must name it.
 */
struct undo {
    struct pair *at; /* NULL: nothing to swap back */
    struct pair before, after;
    uint64_t entered_ns;
};

/* The pair that blocked this decision, and how often it was read without a change. */
struct waits {
    const struct pair *at; /* NULL: nothing yet */
    struct pair pair;
    unsigned n;
};

/* One decision under way. */
struct asking {
    struct stint_table *table;
    const struct stint_quota
        *quota; /* this table's own copy, or the caller's: intern_algorithm() */
    const struct slots *slots;
    struct hash128 hash;
    struct home home;
    struct stint_ask ask; /* now_ns is the effective time */
    uint64_t rule; /* of the caller's quota: other algorithms may have kept this key's state */
    uint32_t id;
    struct undo *undo; /* may be NULL */
    uint64_t *holder;  /* concurrency: what take wrote; may be NULL */
    uint64_t own_ns;   /* of a wide state: its own time before this decision */
    struct waits waits;
};

static inline enum slot_class table_class(const struct stint_quota *quota)
{
    switch (quota->algorithm) {
    case STINT_GCRA:
    case STINT_FIXED_WINDOW:
        return CLASS_8;
    case STINT_WINDOW:
        return quota->derived.state_size == 8 ? CLASS_8 : CLASS_16;
    case STINT_SLIDING_COUNTER:
        return CLASS_16;
    default:
        return CLASS_WIDE;
    }
}

/*
 * The policy of a full table for quotas that do not set one, for decisions of this process: an enum
 * stint_when_full, STINT_FULL_DEFAULT at first.
 */
static inline void table_set_when_full(struct stint_table *table, uint8_t when_full)
{
    /* relaxed: a decision under way follows either policy. */
    __atomic_store_n(&table->when_full, when_full, __ATOMIC_RELAXED);
}

static inline uint8_t table_when_full(const struct stint_table *table,
                                      const struct stint_quota *quota)
{
    return algorithm_when_full(quota, __atomic_load_n(&table->when_full, __ATOMIC_RELAXED));
}

/* The hash of a key under a quota's rule. */
static inline struct hash128 table_hash(const struct stint_table *table,
                                        const struct stint_quota *quota, const void *key,
                                        size_t key_len)
{
    uint64_t rule = quota->rule != 0 ? quota->rule : quota->derived.params_hash[0];
    return siphash13_128(table->region.fixed.hash_key, rule, key, key_len);
}

/* From now on only table_keeps() uses the last quarter of the entries, in this process. */
void table_reserve_quotas(struct stint_table *table);

/*
 * As stint_table_accepts(), for other callers. table_keeps() is for quotas of the operator: a new
 * one may use a reserved entry. table_stores() is for requests that carry their own quota and get
 * no ticket: a gcra quota is stored without an entry where none is free.
 */
int table_keeps(struct stint_table *table, const struct stint_quota *quota,
                struct stint_error *error);
int table_stores(struct stint_table *table, const struct stint_quota *quota,
                 struct stint_error *error);

/* stint_table_accepts(), and STINT_E_RANGE for a key that is too long. */
int table_accepts(struct stint_table *table, const struct stint_quota *quota, size_t key_len,
                  struct stint_error *error);

/*
 * Decides. `ask->now_ns` is the caller's; waits in the decision are relative to it. NEVER for a
 * quota that table_accepts() refuses.
 */
struct stint_decision table_ask(struct stint_table *table, const struct stint_quota *quota,
                                const void *key, size_t key_len, const struct stint_ask *ask,
                                struct undo *undo, uint64_t *holder);
/* The same for a key whose hash is known and whose blocks were checked. */
struct stint_decision table_ask_hash(struct stint_table *table, const struct stint_quota *quota,
                                     struct hash128 hash, const struct stint_ask *ask,
                                     struct undo *undo, uint64_t *holder);
/* A take of a key whose hash is known, by the fast path where possible. */
struct stint_decision table_take_hash(struct stint_table *table, const struct stint_quota *quota,
                                      struct hash128 hash, uint32_t cost, uint64_t now_ns);
/* Restores the bits from before, if the state is still as that charge left it. */
bool table_undo(const struct undo *undo);

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

/* No booking of the table begins later. */
static inline uint64_t table_booked_until(const struct stint_table *table)
{
    /* relaxed: a refund by the caller that booked comes after the booking. */
    return __atomic_load_n(&table->region.header->booked_until_ns, __ATOMIC_RELAXED);
}
void table_raise_booked(struct stint_table *table, uint64_t start_ns);

/* Whether any block of the table may hold at this time. */
static inline bool table_has_blocks(const struct stint_table *table, uint64_t now_ns)
{
    /* acquire: with the latest end of all blocks, the block that raised it is visible. */
    return __atomic_load_n(&table->region.header->blocks_until_ns, __ATOMIC_ACQUIRE) > now_ns;
}

/* How long after its expiry a state may still be needed by a caller whose clock is behind. */
static inline uint64_t table_grace_ns(const struct stint_table *table)
{
    return add_sat(table->region.fixed.skew_max_ns, MARK_STEP_NS);
}

/*
 * A thread may be stopped for long after it has computed a new key's time and before it finds that
 * the key has no state; the state may have expired and its slot been reused meanwhile. So the time
 * is checked again: true if it has advanced, and the decision must be repeated.
 */
bool table_catch_up(struct asking *asking);

/* Whether a state with this id has the quota's algorithm: equal parameters may have two ids. */
static inline bool table_same_algorithm(const struct asking *asking, uint64_t tag_word)
{
    uint32_t id = (uint32_t)(tag_word & TAG_ID_MASK);
    if (id == asking->id)
        return true;
    const struct stint_quota *writer = intern_quota(&asking->table->intern, id);
    return writer != NULL && intern_same_params(writer, asking->quota);
}

/* No decision in the table was made at a later time than this. */
uint64_t table_latest_ns(const struct stint_table *table, uint64_t now_ns);

/* concurrency, by the value that take returned. */
bool table_release(struct stint_table *table, const struct stint_quota *quota, struct hash128 hash,
                   uint64_t now_ns, uint64_t holder, uint32_t *units);
bool table_renew(struct stint_table *table, const struct stint_quota *quota, struct hash128 hash,
                 uint64_t now_ns, uint64_t *holder);

/* Replaces the key's state under a quota, or its rule, by one that was never used. */
void table_forget(struct stint_table *table, const struct stint_quota *quota, struct hash128 hash);

enum carry {
    CARRY_NONE, /* there is no such state */
    CARRY_DONE,
    CARRY_REFUSED, /* there is, and it stays: no slot for the other, or its owner is at work */
};

/*
 * Charges what a key's state still holds to its state under `to`, then forgets it: in that order,
 * so that others may briefly see units twice, never missing. Within one rule the next charge does
 * all this itself.
 */
enum carry table_carry(struct stint_table *table, const struct stint_quota *from,
                       struct hash128 from_hash, const struct stint_quota *to,
                       struct hash128 to_hash, uint64_t now_ns);

/* For a state that could not be read: it has changed, its owner is stuck, or it is damaged. */
void table_get_past(struct asking *asking, const struct seen *seen);

/*
 * The decision of a peek of left + 1 units if no more than `left` were free: on a copy of the key's
 * state, from which the other units are taken first. For reports of takes that were not made.
 */
struct stint_decision table_foresee(struct stint_table *table, const struct stint_quota *quota,
                                    struct hash128 hash, uint32_t left, uint64_t now_ns);

/* Blocks: docs/semantics.md, 3.7. Each key, or one key under one rule, by its hash. */
int table_block(struct stint_table *table, struct hash128 hash, uint64_t until_ns, uint64_t now_ns);
void table_unblock(struct stint_table *table, struct hash128 hash);
uint64_t table_blocked_until(struct stint_table *table, struct hash128 hash);
struct hash128 table_block_hash(const struct stint_table *table, const void *key, size_t key_len);

/* A number unique in this table, for pending slots of class 8, tickets and claims. */
uint64_t table_nonce(struct stint_table *table);

/* This process's identity in the owner words of the table. */
uint64_t table_self(struct stint_table *table);

/*
 * As stint_table_info(), for callers that need it every second: live states are counted in at most
 * sets_max sets of each class, and extrapolated.
 */
void table_metrics(const struct stint_table *table, uint64_t now_ns, uint64_t sets_max,
                   struct stint_table_info *info);

/* Counts a rare event. */
static inline void table_count(uint64_t *counter, uint64_t by)
{
    /* relaxed: a counter orders nothing. */
    __atomic_fetch_add(counter, by, __ATOMIC_RELAXED);
}

static inline struct region_counters *table_counters(const struct stint_table *table)
{
    return &table->region.header->counters;
}

#endif
