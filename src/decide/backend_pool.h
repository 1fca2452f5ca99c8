/* SPDX-License-Identifier: MIT */
/*
 * Key pools whose states are in a store outside of this process: the requests that a pool takes and
 * how it replies. backend/ implements it over Redis and Valkey.
 *
 * A list may be used by any thread. The rest belongs to the thread of one worker and lives as long
 * as its backend.
 */
#ifndef STINT_DECIDE_BACKEND_POOL_H
#define STINT_DECIDE_BACKEND_POOL_H

#include "decide/backend.h"

/*
 * The keys of a pool, as every request lists them. A list is fixed: to add or remove a key, make
 * another list; it finds all that was used. Used by every worker that has the same store.
 */
struct backend_pool_list;

enum backend_pool_verb {
    BACKEND_POOL_NEXT,
    BACKEND_POOL_STATUS,
    BACKEND_POOL_GIVE_BACK,
    BACKEND_POOL_REPORT,
    BACKEND_POOL_LET_IN, /* lifts STINT_POOL_OUT and nothing else: before a key is removed */
};

struct backend_pool_request {
    uint8_t verb;                         /* enum backend_pool_verb */
    const struct backend_pool_list *list; /* stays until the answer has been read */
    struct span key;      /* the name: all verbs but NEXT and STATUS. Borrowed for the call */
    uint32_t cost;        /* NEXT, GIVE_BACK */
    bool probe;           /* NEXT, as in struct stint_pool_ask */
    uint8_t outcome;      /* REPORT: enum stint_pool_outcome */
    uint64_t cooldown_ns; /* of STINT_POOL_COOL */
    uint64_t at_ns;       /* GIVE_BACK: granted_at_ns, or STINT_NEVER_NS */
    uint64_t now_ns;      /* by the clock of this process: stint_now() */
    uint64_t deadline_ns; /* by the same clock: a later reply does not count */
    uint64_t stopped;     /* as in struct backend_request */
};

struct backend_pool_answer {
    uint8_t outcome;   /* BACKEND_WAITS, _DECIDED, _FAILED; _REFUSED: the list has no such key */
    uint8_t fault;     /* of FAILED: enum backend_error */
    const char *error; /* FAILED, REFUSED: a message, as in struct backend_answer */
    uint64_t servers;  /* as in struct backend_answer; 0: no server got the request */
    struct stint_pool_answer next; /* the name is the list's; the time is the store's, since 1970 */
    uint32_t given_back;
    /* STATUS: the caller's memory, with space for all keys; in the order of their addition. */
    struct stint_pool_status *statuses;
};

/* One request in progress, as backend_op. Zero it, then set `answered` and answer.statuses. */
struct backend_pool_op {
    struct backend_pool_answer answer;
    /* Called once, and only where ask() left BACKEND_WAITS; never from within ask(). */
    void (*answered)(struct backend_pool_op *op, uint64_t now_ns);
    void *arg;
    void *at_work; /* the pools', while it waits */
};

struct backend_pools;

struct backend_pool_definition {
    struct span name;
    uint8_t order; /* enum stint_pool_order */
    /* In the order in which they were added; their quotas are checked already. Copied. */
    const struct stint_pool_key *keys;
    size_t n_keys;
};

struct backend_pools_ops {
    /*
     * STINT_E_RANGE for too many keys, STINT_E_MISMATCH for a repeated name and for quotas that no
     * store can keep, STINT_E_SYSTEM without memory.
     */
    int (*list_new)(const struct backend_pools *pools, const struct backend_pool_definition *given,
                    struct backend_pool_list **list, struct stint_error *error);
    void (*list_free)(struct backend_pool_list *list); /* NULL is fine */
    size_t (*list_len)(const struct backend_pool_list *list);
    /* Answers at once, or leaves BACKEND_WAITS. Never blocks. */
    void (*ask)(struct backend_pools *pools, const struct backend_pool_request *ask,
                struct backend_pool_op *op);
    /* The answer is no longer wanted: `op` is not touched again. The request may still be done. */
    void (*forget)(struct backend_pools *pools, struct backend_pool_op *op);
};

/* First member of every kind of pools. */
struct backend_pools {
    const struct backend_pools_ops *ops;
};

#endif
