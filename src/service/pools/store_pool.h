/* SPDX-License-Identifier: MIT */
/*
 * A pool in a store. Its keys are a roster, which is replaced as a whole; a pending request keeps
 * its roster until the answer has been used. After a store's reply that no key is free, it gets no
 * request before one is free, at most for a second: that reply costs the store most.
 *
 * One thread at a time changes keys; any number may make the calls.
 */
#ifndef STINT_SERVICE_POOLS_STORE_POOL_H
#define STINT_SERVICE_POOLS_STORE_POOL_H

#include "service/pools/parsed_keys.h"

struct store_pool;

/* Checks that the definition's store exists and can keep such keys. */
int store_pool_new(struct store_pool **made, const struct pools_stores *stores,
                   const struct pools_definition *given, const struct parsed_keys *keys,
                   struct stint_error *error);
void store_pool_free(struct store_pool *pool); /* NULL is allowed */

/* ---- Keys ------------------------------------------------------------------------------------ */

/* STINT_E_MISMATCH unless both have the same order, in the same store. */
int store_pool_check_fits(const struct store_pool *pool, const struct store_pool *other,
                          struct stint_error *error);
/* Moves the keys of `from` to `pool`, and frees `from`. */
void store_pool_replace_keys(struct store_pool *pool, struct store_pool *from);

int store_pool_add(struct store_pool *pool, const struct parsed_key *key,
                   struct stint_error *error);
int store_pool_remove(struct store_pool *pool, const char *name, struct stint_error *error);

/* ---- Calls: POOLS_WAITS, and the caller has a pending request -------------------------------- */

/* 0: *answer is valid as long as the caller's pending request. */
int store_pool_ask(struct store_pool *pool, struct pools_caller *caller,
                   struct backend_pool_request *ask, const struct backend_pool_answer **answer,
                   struct stint_error *error);
int store_pool_next(struct store_pool *pool, struct pools_caller *caller,
                    const struct stint_pool_ask *ask, struct stint_pool_answer *answer,
                    struct stint_error *error);
int store_pool_each(struct store_pool *pool, struct pools_caller *caller, uint64_t now_ns,
                    bool (*visit)(const struct stint_pool_status *status, void *arg), void *arg,
                    struct stint_error *error);

#endif
