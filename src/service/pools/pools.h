/* SPDX-License-Identifier: MIT */
/*
 * The key pools of a server, by name, for STINT.POOL and /v1/pools. The definition lists the keys
 * of a pool. Their use and cooldowns are kept in the table, under the pool's and the key's names,
 * and so outlive the server; or in a store, where all servers with the same pool find them. Then
 * the answer may come later.
 *
 * Any number of threads may call everything but pools_new(), pools_set_stores() and pools_free().
 * Roles are not checked here: next, give_back, report and each are for ACCESS_ASK, add and remove
 * for ACCESS_ADMINISTER.
 *
 * Codes: STINT_E_GONE for an unknown pool or key, STINT_E_SYNTAX and STINT_E_RANGE for invalid
 * arguments, STINT_E_MISMATCH for a key that exists already, STINT_E_FULL where there is no free
 * space, STINT_E_SYSTEM for a store that does not answer.
 */
#ifndef STINT_SERVICE_POOLS_POOLS_H
#define STINT_SERVICE_POOLS_POOLS_H

#include "decide/backend_pool.h"
#include "decide/pending.h"

#define POOLS_MAX 256
/* The `at` of a pool in a store is the store's time since 1970, up to 2^53 us. */
#define POOLS_AT_MAX_NS UINT64_C(9007199254740992000)

struct pools;

struct pools *pools_new(struct stint_table *table); /* NULL: no memory */
void pools_free(struct pools *pools);               /* NULL is allowed */

/* The stores that may hold pools, by name. */
struct pools_stores {
    const char *const *names;
    size_t n_names;
    /* As backend_pools_ops.list_new, for any thread; STINT_E_MISMATCH where a store keeps no
     * pools. */
    int (*list_new)(void *arg, size_t store, const struct backend_pool_definition *given,
                    struct backend_pool_list **list, struct stint_error *error);
    void (*list_free)(struct backend_pool_list *list);
    void *arg;
};

/* Call before the first pool is made. The arguments outlive the pools. */
void pools_set_stores(struct pools *pools, const struct pools_stores *stores);

struct pools_key {
    struct span name;
    const struct span *quotas; /* SPECs that all have to allow: 1 … STINT_POOL_QUOTAS_MAX */
    size_t n_quotas;
    uint32_t weight; /* 0 = 1 */
};

struct pools_definition {
    struct span name;
    struct span store; /* its name; empty: the table */
    uint8_t order;     /* enum stint_pool_order */
    size_t keys_max;   /* 0 = 1,024, or what the keys need if that is more. In a store: 1,024 */
    const struct pools_key *keys;
    size_t n_keys;
};

/*
 * Makes a pool, or changes the keys of an existing one to those of the definition. Other keys are
 * removed, also keys that were added at run time; a key with another quota or weight is replaced,
 * and keeps its use under the same quotas. The order and the store of an existing pool cannot
 * change (STINT_E_MISMATCH). A rejected definition changes nothing. Neither does one with the same
 * keys as the last: keys added and removed since then stay so.
 */
int pools_define(struct pools *pools, const struct pools_definition *definition, uint64_t now_ns,
                 struct stint_error *error);

/* New pools among definitions that are checked before any of them is made. Zeroed: none yet. */
struct pools_new {
    size_t n;
    uint32_t n_in_table; /* that need space there */
};
/*
 * Whether pools_define() would reject the definition after those that were checked with the same
 * `new`; makes nothing.
 */
int pools_check(struct pools *pools, const struct pools_definition *definition,
                struct pools_new *new, struct stint_error *error);

/* A pool whose calls may have an id; STINT_E_SYNTAX for one in a store. */
int pools_in_table(struct pools *pools, struct span name, struct stint_pool **pool,
                   struct stint_error *error);

/* The number of pools, and their names in the order in which they were made. */
size_t pools_count(const struct pools *pools);
const char *pools_name(const struct pools *pools, size_t index);

/* ---- Calls ----------------------------------------------------------------------------------- */

#define POOLS_WAITS 1 /* a store request is pending */

/*
 * The context of a call. POOLS_WAITS means that there is a pending request, which gives the time to
 * repeat the same call with it. After any other result the caller drops the pending request, if
 * there is one, once it has used the answer: names of keys are valid as long as the request.
 */
struct pools_caller {
    struct backend_pools *const *stores;       /* of this thread, in the order of
                                                * pools_stores.names */
    struct pending_requests *pending_requests; /* of this thread */
    uint64_t timeout_ns;
    struct pending *pending; /* NULL: the first call */
};

/* What pools_next() replied. A request that waits counts each time that it is evaluated. */
enum pools_result { POOLS_KEY, POOLS_WAIT, POOLS_NEVER, POOLS_ERROR, POOLS_RESULTS };

/* Of a pool by its index, as pools_name(). */
uint64_t pools_results(const struct pools *pools, size_t index, enum pools_result result);

static inline enum pools_result pools_result_of(int code, const struct stint_pool_answer *answer)
{
    if (code != 0)
        return POOLS_ERROR;
    if (answer->name != NULL)
        return POOLS_KEY;
    return answer->wait_ns == STINT_NEVER_NS ? POOLS_NEVER : POOLS_WAIT;
}

/*
 * Each as the function stint_pool_… of its name; `caller` may be NULL for a pool in the table.
 * answer->name of such a pool is valid until pools_free().
 */
int pools_next(struct pools *pools, struct pools_caller *caller, struct span pool,
               const struct stint_pool_ask *ask, struct stint_pool_answer *answer,
               struct stint_error *error);

struct pools_return {
    struct span key;
    uint32_t cost;
    uint64_t granted_at_ns; /* STINT_NEVER_NS: now */
};
int pools_give_back(struct pools *pools, struct pools_caller *caller, struct span pool,
                    const struct pools_return *back, uint64_t now_ns, uint32_t *given_back,
                    struct stint_error *error);

struct pools_report {
    struct span key;
    int outcome;          /* enum stint_pool_outcome */
    uint64_t cooldown_ns; /* STINT_POOL_COOL; else 0 */
};
int pools_report(struct pools *pools, struct pools_caller *caller, struct span pool,
                 const struct pools_report *report, uint64_t now_ns, struct stint_error *error);

/* For a pool in a store these change the keys of this server only. */
int pools_add(struct pools *pools, struct span pool, const struct pools_key *key, uint64_t now_ns,
              struct stint_error *error);
int pools_remove(struct pools *pools, struct pools_caller *caller, struct span pool,
                 struct span key, uint64_t now_ns, struct stint_error *error);

/* Calls `visit` for each key until it returns false; visit must not call into the same pools. */
int pools_each(struct pools *pools, struct pools_caller *caller, struct span pool, uint64_t now_ns,
               bool (*visit)(const struct stint_pool_status *status, void *arg), void *arg,
               struct stint_error *error);

#endif
