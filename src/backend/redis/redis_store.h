/* SPDX-License-Identifier: MIT */
/*
 * A store over Redis or Valkey: asks become scripts on keys of their names, and replies answers.
 * What lies in one slot is one script, all or nothing. Several slots are asked at once, and what
 * was taken in some of them is given back where others deny: a list may be denied falsely for a
 * moment, and never lets more pass. docs/decisions/0037.
 */
#ifndef STINT_BACKEND_REDIS_REDIS_STORE_H
#define STINT_BACKEND_REDIS_REDIS_STORE_H

#include "backend/redis/router.h"
#include "decide/shared_pool.h"

#define REDIS_STORE_PREFIX_DEFAULT "stint:"
#define REDIS_STORE_PREFIX_MAX 256

struct redis_store_options {
    struct router_options router; /* its dialer's clock is that of asks */
    const char *prefix;           /* of all keys; copied. NULL: the default */
};

/*
 * NULL: no memory, or a prefix that is too long; the dialer is the caller's still. Freed by its
 * operations, and router and dialer with it.
 */
struct shared_store *redis_store_new(const struct redis_store_options *options);

/* Key pools there; valid as long as the store. No breaker stands before them. */
struct shared_pools *redis_store_pools(struct shared_store *store);
/*
 * A list of keys for any store with this prefix (NULL: the default), before there is one; as
 * shared_pools_ops.list_new.
 */
int redis_store_pool_list(const char *prefix, const struct shared_pool_definition *given,
                          struct shared_pool_list **list, struct stint_error *error);
void redis_store_pool_list_free(struct shared_pool_list *list);
/* Valid as long as the store. */
const struct router_figures *redis_store_figures(const struct shared_store *store);
const char *redis_store_fault(const struct shared_store *store);
/* For whoever owns the loop: the router behind it. */
struct router *redis_store_router(struct shared_store *store);

#endif
