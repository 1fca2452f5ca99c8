/* SPDX-License-Identifier: MIT */
/*
 * The key pools of a server, by name: what STINT.POOL and /v1/pools ask. Which keys a pool has, its
 * definition says; what is used of them, and which are cooling down, stands in the table, under the
 * pool's name and the key's, and so outlives the server; or in a store, where all servers that have
 * the same pool find it. Then there may be no answer yet.
 *
 * Any number of threads may call everything but pools_new(), pools_set_stores() and pools_free().
 * Roles are not looked at here: next, give_back, report and each are for ACCESS_ASK, add and remove
 * for ACCESS_ADMINISTER.
 *
 * Codes: STINT_E_GONE for a pool or a key that is not there, STINT_E_SYNTAX and STINT_E_RANGE for
 * what cannot be meant, STINT_E_MISMATCH for a key that is there already, STINT_E_FULL for no room,
 * STINT_E_SYSTEM for a store that does not answer.
 */
#ifndef STINT_SERVICE_POOLS_H
#define STINT_SERVICE_POOLS_H

#include "decide/backend_pool.h"
#include "decide/pending.h"

#define POOLS_MAX 256
/* The `at` of a pool in a store is the store's time since 1970: up to 2^53 us of it. */
#define POOLS_AT_MAX_NS UINT64_C(9007199254740992000)

struct pools;

struct pools *pools_new(struct stint_table *table); /* NULL: no memory */
void pools_free(struct pools *pools);               /* NULL is fine */

/* The stores in which pools may be, by name. */
struct pools_stores {
    const char *const *names;
    size_t n_names;
    /* As backend_pools_ops.list_new, of any thread; STINT_E_MISMATCH where a store keeps no pools.
     */
    int (*list_new)(void *arg, size_t store, const struct backend_pool_definition *given,
                    struct backend_pool_list **list, struct stint_error *error);
    void (*list_free)(struct backend_pool_list *list);
    void *arg;
};

/* Before the first pool. All of it outlives the pools. */
void pools_set_stores(struct pools *pools, const struct pools_stores *stores);

struct pools_key {
    struct span name;
    const struct span *quotas; /* SPECs, all or nothing: 1 … STINT_POOL_QUOTAS_MAX */
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
 * Makes a pool, or makes the keys of one that is there those of the definition: others leave it,
 * also such as were added at run time; a key whose quotas or weight are other ones comes anew, with
 * what it has used under the same quotas. The order and the store of a pool that is there stay
 * (STINT_E_MISMATCH for others). A definition that is refused changes nothing, and so does one
 * with the keys of the last: what was added and removed since stays so.
 */
int pools_define(struct pools *pools, const struct pools_definition *definition, uint64_t now_ns,
                 struct stint_error *error);

/* Whether pools_define() would refuse the definition as it stands; nothing is made. */
int pools_check(struct pools *pools, const struct pools_definition *definition,
                struct stint_error *error);

/* How many there are, and their names in the order in which they were made. */
size_t pools_count(const struct pools *pools);
const char *pools_name(const struct pools *pools, size_t index);

/* ---- Asking ---------------------------------------------------------------------------------- */

#define POOLS_WAITS 1 /* a store was asked */

/*
 * On whose behalf a pool is asked. Where POOLS_WAITS is returned, there is a pending request:
 * whoever asked is told by it when to ask the same once more, with the pending request. Where
 * anything else is returned, the pending request that there may be is to be dropped once the answer
 * has been used, as names of keys live as long.
 */
struct pools_caller {
    struct backend_pools *const *stores; /* of this thread, in the order of pools_stores.names */
    struct pending_requests *pending_requests; /* of this thread */
    uint64_t timeout_ns;
    struct pending *pending; /* NULL: it is asked for the first time */
};

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
    uint64_t granted_at_ns; /* STINT_NEVER_NS: just now */
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

/* Of a pool in a store these change the keys of this server alone. */
int pools_add(struct pools *pools, struct span pool, const struct pools_key *key, uint64_t now_ns,
              struct stint_error *error);
int pools_remove(struct pools *pools, struct pools_caller *caller, struct span pool,
                 struct span key, uint64_t now_ns, struct stint_error *error);

/* Calls `visit` for each key until it returns false; visit must not call into the same pools. */
int pools_each(struct pools *pools, struct pools_caller *caller, struct span pool, uint64_t now_ns,
               bool (*visit)(const struct stint_pool_status *status, void *arg), void *arg,
               struct stint_error *error);

#endif
