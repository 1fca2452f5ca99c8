/* SPDX-License-Identifier: MIT */
/*
 * What the files of a key pool share. pool.c has the list of keys and applies reports; pool_next.c
 * chooses one of them, and has their status. Every key has a state of its own.
 *
 * The list belongs to this process. next, report and the like hold the lock for reading, add and
 * remove change the list. Nothing in the region waits for the lock: a process that is killed with
 * it takes it along.
 */
#ifndef STINT_LIMITER_POOL_H
#define STINT_LIMITER_POOL_H

#include "limiter/list.h"
#include "table/pool_records.h"

/* Answers point to it, also after the key was removed: it stays until the pool is closed. */
struct pool_name {
    struct pool_name *after; /* among those of removed keys */
    char text[];
};

/*
 * The time before which there is no unit, as a failed take of one has returned: the key is not
 * tried before. It is valid as long as nothing has returned to the pool: `sum` is the record's
 * count of returns then, plus the instants, so that words mixed from two threads do not match.
 */
struct pool_wait {
    uint64_t until_ns, reset_ns, sum; /* reset_ns: when the key equals a new one */
};

struct pool_key {
    const char *name; /* of `kept` */
    struct pool_name *kept;
    struct pool_wait wait;
    uint64_t age; /* keys that were added before, ever */
    uint32_t weight, n_quotas;
    struct hash128 hash;                          /* of the pool's name and the key's */
    struct hash128 states[STINT_POOL_QUOTAS_MAX]; /* the hashes of its states */
    struct stint_quota quotas[];                  /* n_quotas of them */
};

struct stint_pool {
    struct stint_table *table;
    struct pool_record *record; /* in the region */
    struct pool_wait wait;      /* of all keys */
    uint32_t first_back;        /* the key that ends it, in the order of age */
    uint32_t lock;              /* LOCK_WRITER, and the number of readers */
    uint8_t order;              /* enum stint_pool_order */
    size_t n_keys, keys_max;
    struct pool_key **by_name, **by_age;
    struct pool_key **by_turn; /* the heaviest first, then by name */
    uint64_t *round;           /* [w]: turns of a round in its first w passes; see pool_next.c */
    uint64_t ages;
    struct pool_name *old_names; /* of removed keys; a key of the same name reuses its own */
    size_t name_len;
    char name[STINT_POOL_NAME_MAX];
};

/* What holds while the list does not change: under the lock, for readers too. */
static inline bool pool_is_valid(const struct stint_pool *pool)
{
    return pool->table != NULL && pool->record != NULL && pool->by_name != NULL &&
           pool->by_age != NULL && pool->by_turn != NULL && pool->n_keys <= pool->keys_max &&
           pool->n_keys <= pool->ages && pool->order <= STINT_LEAST_USED &&
           pool->name_len <= STINT_POOL_NAME_MAX && pool->round[0] == 0 &&
           pool->round[1] == pool->n_keys;
}

static inline bool pool_key_is_valid(const struct pool_key *key)
{
    return key->name != NULL && key->kept != NULL && key->n_quotas >= 1 &&
           key->n_quotas <= STINT_POOL_QUOTAS_MAX && key->weight >= 1 &&
           key->weight <= STINT_POOL_WEIGHT_MAX;
}

void pool_lock_shared(struct stint_pool *pool);
void pool_unlock_shared(struct stint_pool *pool);

/*
 * Whether stint_pool_open() would make it, beside others that were checked before: *n_new of these
 * need space in the table, 0 at first.
 */
int pool_check_new(struct stint_table *table, const struct stint_pool_options *options,
                   uint32_t *n_new, struct stint_error *error);

/* Refuses quotas that no key of a pool can have, of a table or of a store. */
int pool_check_quota(const struct stint_quota *quota, struct stint_error *error);

/* NULL, with an error, if there is none of this name. */
struct pool_key *pool_find(struct stint_pool *pool, const char *name, struct stint_error *error);
/*
 * A key by what can be kept of its name in a record: half of its keyed hash, the same in every
 * process. NULL: the pool has no such key. A name is valid until the pool is closed.
 */
uint64_t pool_name_hash(const struct stint_pool *pool, const char *name);
const char *pool_name_of(struct stint_pool *pool, uint64_t name_hash);
/* The checks of stint_pool_report() that hold for any pool. */
int pool_check_report(int outcome, uint64_t cooldown_ns, uint64_t now_ns,
                      struct stint_error *error);

/* The index, in the order of age, of the first key that is not younger than this. */
size_t pool_age_index(const struct stint_pool *pool, uint64_t age);

/* ---- pool.c, reports ------------------------------------------------------------------------ */

struct pool_cooldown {
    uint64_t ends_ns;        /* 0: never cooled down; STINT_NEVER_NS: out */
    uint64_t failures, code; /* in turn; of its length */
    uint8_t standing;        /* FREE, COOLING, BACKING_OFF or IS_OUT */
};
struct pool_cooldown pool_cooldown_of(struct stint_pool *pool, const struct pool_key *key,
                                      uint64_t now_ns);

#endif
