/* SPDX-License-Identifier: MIT */
/*
 * Key pools whose states are in a store outside of this process, as whoever answers for a pool sees
 * them: what may be asked, and how the answers come. remote/ implements it over Redis and Valkey.
 *
 * A list may be used by any thread; the rest belongs to the thread of one worker, as a
 * shared_store does, with which it comes and goes.
 */
#ifndef STINT_DECIDE_SHARED_POOL_H
#define STINT_DECIDE_SHARED_POOL_H

#include "decide/shared.h"

/*
 * The keys of a pool, as every ask says them. It is fixed: whoever adds or removes a key makes
 * another one, and finds all that was used. For every worker that has the same store.
 */
struct shared_pool_list;

enum shared_pool_verb {
    SHARED_POOL_NEXT,
    SHARED_POOL_STATUS,
    SHARED_POOL_GIVE_BACK,
    SHARED_POOL_REPORT,
    SHARED_POOL_LET_IN, /* lifts STINT_POOL_OUT, and nothing else: before a key is removed */
};

struct shared_pool_ask {
    uint8_t verb;                        /* enum shared_pool_verb */
    const struct shared_pool_list *list; /* stays until the answer has been read */
    struct span key;      /* the name: of all but NEXT and STATUS. Borrowed for the call */
    uint32_t cost;        /* NEXT, GIVE_BACK */
    bool probe;           /* NEXT, as in struct stint_pool_ask */
    uint8_t outcome;      /* REPORT: enum stint_pool_outcome */
    uint64_t cooldown_ns; /* of STINT_POOL_COOL */
    uint64_t at_ns;       /* GIVE_BACK: granted_at_ns, or STINT_NEVER_NS */
    uint64_t now_ns;      /* by the clock of this process: stint_now() */
    uint64_t deadline_ns; /* by the same clock: an answer after it is none */
    uint64_t stopped;     /* as in struct shared_ask */
};

struct shared_pool_answer {
    uint8_t outcome;   /* SHARED_WAITS, _DECIDED, _FAILED; _REFUSED: the list has no such key */
    uint8_t fault;     /* of FAILED: enum shared_fault */
    const char *error; /* FAILED, REFUSED: a sentence that lives as long as the store */
    uint64_t servers;  /* as in struct shared_answer; 0: nobody was asked */
    struct stint_pool_answer next; /* the name is the list's; the time is the store's, since 1970 */
    uint32_t given_back;
    /* STATUS: the asker's memory, with room for all keys; in the order in which they were added. */
    struct stint_pool_status *statuses;
};

/* One ask on its way: as struct shared_op. Zero it, set `answered` and answer.statuses. */
struct shared_pool_op {
    struct shared_pool_answer answer;
    /* Called once, but only where ask() left SHARED_WAITS; never from within ask(). */
    void (*answered)(struct shared_pool_op *op, uint64_t now_ns);
    void *arg;
    void *at_work; /* the store's, while it waits */
};

struct shared_pools;

struct shared_pool_definition {
    struct span name;
    uint8_t order; /* enum stint_pool_order */
    /* In the order in which they were added; their quotas were checked. Copied. */
    const struct stint_pool_key *keys;
    size_t n_keys;
};

struct shared_pools_ops {
    /*
     * STINT_E_RANGE for too many keys, STINT_E_MISMATCH for a name that is there twice and for
     * quotas that no store can keep, STINT_E_SYSTEM without memory.
     */
    int (*list_new)(const struct shared_pools *pools, const struct shared_pool_definition *given,
                    struct shared_pool_list **list, struct stint_error *error);
    void (*list_free)(struct shared_pool_list *list); /* NULL is fine */
    size_t (*list_len)(const struct shared_pool_list *list);
    /* Answers at once, or leaves SHARED_WAITS. Never blocks. */
    void (*ask)(struct shared_pools *pools, const struct shared_pool_ask *ask,
                struct shared_pool_op *op);
    /* Nobody wants this answer any more: `op` is not touched again. It may be done all the same. */
    void (*forget)(struct shared_pools *pools, struct shared_pool_op *op);
};

/* First member of every kind of them. */
struct shared_pools {
    const struct shared_pools_ops *ops;
};

#endif
