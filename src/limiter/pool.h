/* SPDX-License-Identifier: MIT */
/*
 * What the files of a key pool share. pool.c has the list of keys; pool_next.c chooses one of them;
 * pool_bench.c knows what reports make of a key; pool_turns.c keeps equal keys in one pair of words
 * while that can be, and changes over when it cannot.
 *
 * The list is this process's own. next, report and the like read it with the lock held for reading,
 * add and remove change it. Nothing in the region waits for the lock: whoever is killed with it
 * takes it along.
 */
#ifndef STINT_LIMITER_POOL_H
#define STINT_LIMITER_POOL_H

#include "limiter/list.h"
#include "store/turns.h"

/* Answers point to it, and may be read when the key is gone: it stays until the pool is closed. */
struct pool_name {
    struct pool_name *after; /* among those of removed keys */
    char text[];
};

struct pool_key {
    const char *name; /* of `kept` */
    struct pool_name *kept;
    uint64_t age; /* keys that were added before, ever */
    uint32_t weight, n_quotas;
    struct hash128 hash;                          /* of the pool's name and the key's */
    struct hash128 states[STINT_POOL_QUOTAS_MAX]; /* where its states are */
    struct stint_quota quotas[];                  /* n_quotas of them */
};

struct stint_pool {
    struct stint_table *table;
    struct turns turns;
    uint32_t lock; /* LOCK_WRITER, and how many read */
    uint8_t order; /* enum stint_pool_order */
    size_t n_keys, keys_max;
    struct pool_key **by_name, **by_age;
    struct pool_key **by_turn; /* the heaviest first, then by name */
    uint64_t *round;           /* [w]: turns of a round in its first w passes; see pool_next.c */
    uint64_t ages;
    struct pool_name *old_names; /* of removed keys; a key of the same name takes its own again */
    struct hash128 names_sum;    /* of all keys' hashes */
    size_t name_len;
    char name[STINT_POOL_NAME_MAX];
};

void pool_lock_shared(struct stint_pool *pool);
void pool_unlock_shared(struct stint_pool *pool);

/* NULL, with a sentence, where there is none of this name. */
struct pool_key *pool_find(struct stint_pool *pool, const char *name, struct stint_error *error);
/* What stint_pool_report() refuses of any pool. */
int pool_check_report(int outcome, uint64_t cooldown_ns, uint64_t now_ns,
                      struct stint_error *error);

/* One decision of all the key's quotas, all or nothing; the verbs are those of list.h. */
struct stint_decision pool_key_ask(struct stint_pool *pool, const struct pool_key *key,
                                   uint8_t verb, uint32_t cost, uint64_t at_ns, uint64_t now_ns);

/* ---- pool_bench.c ---------------------------------------------------------------------------- */

struct pool_bench {
    uint64_t ends_ns; /* 0: it may be used; STINT_NEVER_NS: out */
    uint32_t failures;
    uint8_t standing; /* FREE, COOLING, BACKING_OFF or IS_OUT */
};
struct pool_bench pool_bench_of(struct stint_pool *pool, const struct pool_key *key,
                                uint64_t now_ns);
/* Lifts STINT_POOL_OUT, and nothing else. */
void pool_bench_let_in(struct stint_pool *pool, const struct pool_key *key, uint64_t now_ns);

/* ---- pool_turns.c ---------------------------------------------------------------------------- */

/* Works out anew what the list of keys makes of the pair; with the lock held for writing. */
void pool_turns_refresh(struct stint_pool *pool);

/*
 * What the pair says: LIVE (it has decided), SHUT, or PER_KEY. If somebody has to change over on
 * the way, does it. now_ns is the effective time.
 */
struct turns_step pool_turns_step(struct stint_pool *pool, enum turns_wish wish, uint64_t now_ns);
/* The same wish to leave, before this process's list changes: only from a pair of these keys. */
void pool_turns_leave_own(struct stint_pool *pool, uint64_t now_ns);

/* The decision of one key, `ahead` turns after the one that is next, out of the pool's. */
struct stint_decision pool_turns_share(const struct stint_pool *pool, uint64_t state,
                                       uint32_t ahead, uint64_t now_ns);
struct stint_decision pool_turns_decision(const struct stint_pool *pool,
                                          const struct stint_decision *all);

#endif
