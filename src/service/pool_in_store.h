/* SPDX-License-Identifier: MIT */
/* A key pool whose states are in a store, and the parsed keys that pools are made of. */
#ifndef STINT_SERVICE_POOL_IN_STORE_H
#define STINT_SERVICE_POOL_IN_STORE_H

#include "service/pools.h"

/* Copies a name for the pools of the library, which take a terminated text. */
struct pools_name {
    char text[STINT_POOL_NAME_MAX + 1];
};

/* A key with parsed SPECs. */
struct parsed_key {
    struct pools_name name;
    struct stint_quota quotas[STINT_POOL_QUOTAS_MAX];
    struct stint_pool_key key; /* points to the name and the quotas */
};

struct pool_in_store;

/* A new pool has no keys; pool_in_store_set() must follow, also for none. NULL: no memory. */
struct pool_in_store *pool_in_store_new(const struct pools_stores *stores, size_t store,
                                        const struct pools_name *name, uint8_t order);
void pool_in_store_free(struct pool_in_store *pool); /* NULL is allowed */

size_t pool_in_store_at(const struct pool_in_store *pool);
uint8_t pool_in_store_order(const struct pool_in_store *pool);

/* One thread at a time for the next three. The keys are copied. */
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
/* The number of statuses in the answer. */
size_t pool_in_store_count(const struct pools_caller *caller);

#endif
