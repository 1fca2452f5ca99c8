/* SPDX-License-Identifier: MIT */
/* What the files of pools share: keys as they were read, and pools whose states are in a store. */
#ifndef STINT_SERVICE_POOLS_PARTS_H
#define STINT_SERVICE_POOLS_PARTS_H

#include "base/siphash.h"
#include "service/pools.h"

#include <pthread.h>

/* A name as the pools of the library want it. */
struct pools_name {
    char text[STINT_POOL_NAME_MAX + 1];
};

/* A key whose SPECs were read. */
struct parsed_key {
    struct pools_name name;
    struct stint_quota quotas[STINT_POOL_QUOTAS_MAX];
    struct stint_pool_key key; /* points to the name and the quotas */
};

struct pool_in_store;

struct pools {
    struct stint_table *table;
    struct pools_stores stores;
    pthread_mutex_t lock; /* for who adds a pool, or changes the keys of one to a definition */
    size_t n_pools;
    struct stint_pool *pools[POOLS_MAX]; /* NULL: it is in a store */
    struct pool_in_store *in_store[POOLS_MAX];
    struct pools_name names[POOLS_MAX];
    struct hash128 defined[POOLS_MAX]; /* as defined last; under the lock */
};

/* ---- pools.c --------------------------------------------------------------------------------- */

/* Where the pool is; STINT_E_GONE. */
int pools_find(const struct pools *pools, struct span name, size_t *at, struct stint_error *error);
/* What else a name must be, the library checks. `whose` is "pool" or "key". */
int pools_copy_name(struct pools_name *name, struct span from, const char *whose,
                    struct stint_error *error);

/* ---- pools_store.c: a pool in a store -------------------------------------------------------- */

/* It has no keys, and must be given some, or none, before it is asked. NULL: no memory. */
struct pool_in_store *pool_in_store_new(const struct pools_stores *stores, size_t store,
                                        const struct pools_name *name, uint8_t order);
void pool_in_store_free(struct pool_in_store *pool); /* NULL is fine */

size_t pool_in_store_at(const struct pool_in_store *pool);
uint8_t pool_in_store_order(const struct pool_in_store *pool);

/* The next three by one thread at a time. The keys are copied. */
int pool_in_store_set(struct pool_in_store *pool, const struct parsed_key *keys, size_t n_keys,
                      struct stint_error *error);
int pool_in_store_add(struct pool_in_store *pool, const struct parsed_key *key,
                      struct stint_error *error);
int pool_in_store_take_out(struct pool_in_store *pool, const struct pools_name *key,
                           struct stint_error *error);

int pool_in_store_next(struct pool_in_store *pool, struct pools_caller *caller,
                       const struct stint_pool_ask *ask, struct stint_pool_answer *answer,
                       struct stint_error *error);
/* All other verbs; 0: *answer is valid as long as the caller's pending request. */
int pool_in_store_ask(struct pool_in_store *pool, struct pools_caller *caller,
                      struct backend_pool_request *ask, const struct backend_pool_answer **answer,
                      struct stint_error *error);
/* How many statuses the answer has. */
size_t pool_in_store_count(const struct pools_caller *caller);

#endif
