/* SPDX-License-Identifier: MIT */
/* What the parts of the guard share. */
#ifndef STINT_BACKEND_FRONT_GUARD_PARTS_H
#define STINT_BACKEND_FRONT_GUARD_PARTS_H

#include "backend/breakers.h"
#include "backend/front/denials.h"
#include "backend/front/guard.h"

#define GUARD_ITEMS_FEW 4
#define GUARD_STOPPED "the store has failed to answer several times, and is not asked for a while"

struct guard {
    struct shared_store store;
    struct guard_options options;
    struct breakers breakers;
    uint64_t failed_over_ns; /* when it was noticed; 0: never */
    uint64_t failovers;      /* of which it is known */
    struct denials *denials; /* NULL: none */
    struct guard_ask *free_asks;
    struct store_figures *figures;
    struct store_figures own_figures; /* where nobody wants them */
    /* Pools in the same store; NULL: nobody has asked for them. */
    struct shared_pools pools, *inner_pools;
    struct shared_pools_ops pools_ops;
};

/* What is known of an item when its ask has gone. */
struct guard_item {
    struct denial_name name;
    uint32_t cost;
};

/*
 * One ask on its way. The answer comes to the guard, also where the asker has forgotten it: else a
 * store that is slower than its askers are patient would never be found to be away.
 */
struct guard_ask {
    struct guard *guard;
    struct guard_ask *next;
    struct shared_op inner;
    struct shared_op *op; /* the asker's; NULL: he has forgotten it */
    struct breakers_pass pass;
    uint64_t asked_ns;
    uint8_t verb;
    bool is_cached, is_dropping;     /* what its answer does to the denials */
    struct guard_cautious *cautious; /* where it takes several steps */
    size_t n_items;
    struct guard_item *items;
    struct stint_decision *each;
    void *many; /* memory of both, where they are not a few */
    struct guard_item few_items[GUARD_ITEMS_FEW];
    struct stint_decision few_each[GUARD_ITEMS_FEW];
};

/* The most that can be left under a quota. */
static inline uint32_t guard_capacity(const struct stint_quota *quota)
{
    return quota->algorithm == STINT_GCRA ? quota->burst : quota->limit;
}

/* One decision out of those of all items: docs/semantics.md, 3.2. */
struct stint_decision guard_sum(const struct stint_decision *each, size_t n);

/*
 * Asks the store behind, if the breakers let it. True: guard_go_on() will be called; false: it was
 * answered at once, and ask->inner.answer says how.
 */
bool guard_send(struct guard_ask *ask, const struct shared_ask *asked);

/* How an ask came out. */
struct guard_outcome {
    uint8_t outcome, fault; /* of its answer */
    bool is_local, at_once;
    uint64_t failed; /* the servers; 0 and FAILED: all that were asked */
    uint64_t asked_ns, now_ns;
};
/* Counts it, and tells the breakers. */
void guard_settle(struct guard *guard, const struct breakers_pass *pass,
                  const struct guard_outcome *told);

/* ---- Denials --------------------------------------------------------------------------------- */

/* Fills ask->items. True: it was denied out of the cache, and ask->inner.answer says so. */
bool guard_denies(struct guard_ask *ask, const struct shared_ask *asked);
/* Takes from an answer what it says about the keys. */
void guard_learns(struct guard_ask *ask, const struct shared_answer *answer);

/* ---- Caution --------------------------------------------------------------------------------- */

/* Whether the failover is so recent that keys of this ask are to be looked at first. */
bool guard_is_cautious(const struct guard *guard, const struct shared_ask *asked);
/* As guard_send(), in steps. */
bool guard_begin_cautious(struct guard_ask *ask, const struct shared_ask *asked);
/* The next step, once one is answered. True: another one is waited for. */
bool guard_go_on(struct guard_ask *ask, uint64_t now_ns);
void guard_end_cautious(struct guard_ask *ask);

#endif
