/* SPDX-License-Identifier: MIT */
/* What the parts of the front share. */
#ifndef STINT_BACKEND_FRONT_FRONT_PARTS_H
#define STINT_BACKEND_FRONT_FRONT_PARTS_H

#include "backend/breakers.h"
#include "backend/front/denials.h"
#include "backend/front/front.h"

#define FRONT_ITEMS_FEW 4
#define FRONT_STOPPED "the store has failed to answer several times, and is not asked for a while"

struct front {
    struct backend store;
    struct front_options options;
    struct breakers breakers;
    uint64_t failed_over_ns; /* when it was noticed; 0: never */
    uint64_t failovers;      /* of which it is known */
    struct denials *denials; /* NULL: none */
    struct front_ask *free_asks;
    struct backend_metrics *metrics;
    struct backend_metrics own_metrics; /* where nobody wants them */
    /* Pools in the same store; NULL: nobody has asked for them. */
    struct backend_pools pools, *inner_pools;
    struct backend_pools_ops pools_ops;
};

/* What is known of an item when its ask has gone. */
struct front_item {
    struct denial_name name;
    uint32_t cost;
};

/*
 * One ask on its way. The answer comes to the front, also where the asker has forgotten it: else a
 * store that is slower than its askers are patient would never be found to be away.
 */
struct front_ask {
    struct front *front;
    struct front_ask *next;
    struct backend_op inner;
    struct backend_op *op; /* the asker's; NULL: he has forgotten it */
    struct breakers_pass pass;
    uint64_t asked_ns;
    uint8_t verb;
    bool is_cached, is_dropping;          /* what its answer does to the denials */
    struct front_failover_work *cautious; /* where it takes several steps */
    size_t n_items;
    struct front_item *items;
    struct stint_decision *each;
    void *many; /* memory of both, where they are not a few */
    struct front_item few_items[FRONT_ITEMS_FEW];
    struct stint_decision few_each[FRONT_ITEMS_FEW];
};

/* The most that can be left under a quota. */
static inline uint32_t front_capacity(const struct stint_quota *quota)
{
    return quota->algorithm == STINT_GCRA ? quota->burst : quota->limit;
}

/* One decision out of those of all items: docs/semantics.md, 3.2. */
struct stint_decision front_sum(const struct stint_decision *each, size_t n);

/*
 * Asks the store behind, if the breakers let it. True: front_go_on() will be called; false: it was
 * answered at once, and ask->inner.answer says how.
 */
bool front_send(struct front_ask *ask, const struct backend_request *asked);

/* How an ask came out. */
struct front_outcome {
    uint8_t outcome, fault; /* of its answer */
    bool is_local, at_once;
    uint64_t failed; /* the servers; 0 and FAILED: all that were asked */
    uint64_t asked_ns, now_ns;
};
/* Counts it, and tells the breakers. */
void front_settle(struct front *front, const struct breakers_pass *pass,
                  const struct front_outcome *told);

/* ---- Denials --------------------------------------------------------------------------------- */

/* Fills ask->items. True: it was denied out of the cache, and ask->inner.answer says so. */
bool front_denies(struct front_ask *ask, const struct backend_request *asked);
/* Takes from an answer what it says about the keys. */
void front_learns(struct front_ask *ask, const struct backend_answer *answer);

/* ---- Caution --------------------------------------------------------------------------------- */

/* Whether the failover is so recent that keys of this ask are to be looked at first. */
bool front_is_in_failover(const struct front *front, const struct backend_request *asked);
/* As front_send(), in steps. */
bool front_begin_failover(struct front_ask *ask, const struct backend_request *asked);
/* The next step, once one is answered. True: another one is waited for. */
bool front_go_on(struct front_ask *ask, uint64_t now_ns);
void front_end_failover(struct front_ask *ask);

#endif
