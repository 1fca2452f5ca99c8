/* SPDX-License-Identifier: MIT */
/*
 * A backend over Redis or Valkey: requests become scripts on keys of their names, and replies
 * become answers. The items of one slot are one script, all or nothing. Several slots run in
 * parallel, and if some deny, the units of the others are given back: a list may be denied falsely
 * meanwhile, but never admits more. docs/decisions/0037.
 */
#ifndef STINT_BACKEND_REDIS_REDIS_BACKEND_H
#define STINT_BACKEND_REDIS_REDIS_BACKEND_H

#include "backend/redis/router.h"
#include "decide/backend_pool.h"

#define REDIS_STORE_PREFIX_DEFAULT "stint:"
#define REDIS_STORE_PREFIX_MAX 256

struct redis_backend_options {
    struct router_options router; /* its dialer's clock is that of requests */
    const char *prefix;           /* of all keys; copied. NULL: the default */
};

/*
 * NULL: no memory, or a prefix that is too long; the dialer then stays the caller's. Its operations
 * free it, with router and dialer.
 */
struct backend *redis_backend_new(const struct redis_backend_options *options);

/* Key pools there; valid as long as the backend. No breaker protects them. */
struct backend_pools *redis_backend_pools(struct backend *store);
/*
 * A list of keys for any store with this prefix (NULL: the default), before one exists; as
 * backend_pools_ops.list_new. pool_backend_free() frees it.
 */
int redis_backend_pool_list(const char *prefix, const struct backend_pool_definition *given,
                            struct backend_pool_list **list, struct stint_error *error);
/* Valid as long as the store. */
const struct router_metrics *redis_backend_metrics(const struct backend *store);
const char *redis_backend_error(const struct backend *store);
/* For the owner of the loop: the router behind it. */
struct router *redis_backend_router(struct backend *store);

#endif
