/* SPDX-License-Identifier: MIT */
/* What the files of the front share. */
#ifndef STINT_BACKEND_FRONT_FRONT_PARTS_H
#define STINT_BACKEND_FRONT_FRONT_PARTS_H

#include "backend/breakers.h"
#include "backend/front/denials.h"
#include "backend/front/front.h"

#define FRONT_ITEMS_FEW 4
#define FRONT_STOPPED                                                                              \
    "the store failed several times in a row; requests to it are stopped for a while"

struct front {
    struct backend store;
    struct front_options options;
    struct breakers breakers;
    uint64_t failed_over_ns; /* when it was noticed; 0: never */
    uint64_t failovers;      /* the servers concerned */
    struct denials *denials; /* NULL: none */
    struct front_ask *free_asks;
    struct backend_metrics *metrics;
    struct backend_metrics own_metrics; /* an answer that no caller waits for */
    /* Pools in the same store; NULL: not in use. */
    struct backend_pools pools, *inner_pools;
    struct backend_pools_ops pools_ops;
};

/* The known state of an item when its request was sent. */
struct front_item {
    struct denial_name name;
    uint32_t cost;
};

/*
 * One request in progress. The front gets the answer even if the caller has cancelled: else a store
 * slower than its callers' timeouts would never count as unavailable.
 */
struct front_ask {
    struct front *front;
    struct front_ask *next;
    struct backend_op inner;
    struct backend_op *op; /* the caller's; NULL: cancelled */
    struct breakers_pass pass;
    uint64_t asked_ns;
    uint8_t verb;
    bool is_cached, is_dropping;          /* what its answer does to the denials */
    struct front_failover_work *failover; /* where it takes several steps */
    size_t n_items;
    struct front_item *items;
    struct stint_decision *each;
    void *many; /* memory for both, if there are many items */
    struct front_item few_items[FRONT_ITEMS_FEW];
    struct stint_decision few_each[FRONT_ITEMS_FEW];
};

/* The most that can be left under a quota. */
static inline uint32_t front_capacity(const struct stint_quota *quota)
{
    return quota->algorithm == STINT_GCRA ? quota->burst : quota->limit;
}

/* The result of a request. */
struct front_outcome {
    uint8_t outcome, fault; /* of its answer */
    bool is_local, at_once;
    uint64_t failed; /* the servers; 0 and FAILED: all of the request */
    uint64_t asked_ns, now_ns;
};
/* Counts it, and tells the breakers. */
void front_settle(struct front *front, const struct breakers_pass *pass,
                  const struct front_outcome *result);

#endif
