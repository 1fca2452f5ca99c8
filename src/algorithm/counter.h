/* SPDX-License-Identifier: MIT */
/*
 * The verbs of the algorithms that count units in windows, fixed_window and sliding_counter. Both
 * admit what fits under the limit; charges may go N into debt, and then a cost of 0 is denied, too.
 */
#ifndef STINT_ALGORITHM_COUNTER_H
#define STINT_ALGORITHM_COUNTER_H

#include "algorithm/algorithm.h"

#include <assert.h>

/* What they differ in; `state` is the algorithm's own, unpacked at now. */
struct counter {
    uint64_t (*used)(const void *state);
    /* Late in the table's life a window may need more bits than there are: false, nothing fits. */
    bool (*add)(void *state, uint64_t units);
    /* Returns how many came back. */
    uint64_t (*refund)(void *state, const struct stint_ask *ask);
    uint64_t (*wait_ns)(const void *state, uint32_t cost);
    uint64_t (*reset_ns)(const void *state);
};

static inline struct stint_decision counter_answer(const struct counter *counter,
                                                   const struct stint_quota *quota,
                                                   const void *state, uint64_t granted)
{
    uint32_t remaining = (uint32_t)sub_floor(quota->limit, counter->used(state));
    return algorithm_allow(quota, (uint32_t)granted, remaining, counter->reset_ns(state));
}

/* Inline, so that its calls are direct. A PEEK changes *state, too: it is not to be stored. */
__attribute__((always_inline)) static inline struct stint_decision
counter_ask(const struct counter *counter, const struct stint_quota *quota, void *state,
            const struct stint_ask *ask)
{
    assert(ask->now_ns <= STINT_NOW_MAX && quota->limit > 0);
    bool whole = ask->verb == STINT_TAKE || ask->verb == STINT_PEEK;
    uint64_t limit = quota->limit, used = counter->used(state), free = sub_floor(limit, used);
    uint64_t units = min_u64(ask->cost, free);
    bool is_denied = used > limit || (whole ? ask->cost > free : ask->cost > 0 && free == 0);
    if (ask->verb == STINT_BOOK || ask->verb == STINT_UNBOOK)
        return algorithm_never(quota->limit); /* no window can be charged in the future */
    if (ask->verb == STINT_REFUND)
        return counter_answer(counter, quota, state, counter->refund(state, ask));
    if (ask->verb == STINT_CHARGE) {
        units = min_u64(ask->cost, sub_floor(2 * limit, used));
    } else if (whole && ask->cost > quota->limit) {
        return algorithm_refuse(counter_answer(counter, quota, state, 0), STINT_NEVER_NS);
    } else if (is_denied) {
        if (quota->count_denied && ask->verb == STINT_TAKE && used < 2 * limit)
            counter->add(state, min_u64(ask->cost, 2 * limit - used));
        return algorithm_refuse(counter_answer(counter, quota, state, 0),
                                counter->wait_ns(state, whole ? ask->cost : ask->cost > 0));
    }
    if (units > 0 && !counter->add(state, units))
        return algorithm_refuse(counter_answer(counter, quota, state, 0), STINT_NEVER_NS);
    return counter_answer(counter, quota, state, units);
}

#endif
