/* SPDX-License-Identifier: MIT */
/*
 * A take as most callers request it, decided inline: the most frequent cases are here, the rest
 * calls the algorithm. `decision->stored` is set.
 */
#ifndef STINT_ALGORITHM_QUICK_H
#define STINT_ALGORITHM_QUICK_H

#include "algorithm/gcra.h"
#include "algorithm/window.h"

#include <assert.h>

static inline void algorithm8_take(const struct stint_quota *quota, uint64_t *state,
                                   uint64_t now_ns, uint32_t cost, struct stint_decision *decision)
{
    assert(quota->derived.checked && quota->derived.state_size == 8);
    if (now_ns <= STINT_NOW_MAX && quota->algorithm == STINT_GCRA &&
        gcra_take_plain(quota, state, now_ns, cost, decision))
        return;
    if (now_ns <= STINT_NOW_MAX && quota->algorithm == STINT_WINDOW) {
        if (!window8_take_quick(quota, state, now_ns, cost, decision))
            window8_take(quota, state, now_ns, cost, decision);
        return;
    }
    struct stint_ask ask = {.now_ns = now_ns, .cost = cost, .verb = STINT_TAKE};
    *decision = algorithm_ask(quota, state, &ask);
    decision->stored = 1;
}

static inline void algorithm16_take(const struct stint_quota *quota, struct word16 *state,
                                    uint64_t now_ns, uint32_t cost, struct stint_decision *decision)
{
    assert(quota->derived.checked && quota->derived.state_size == 16);
    if (now_ns <= STINT_NOW_MAX && quota->algorithm == STINT_WINDOW) {
        if (!window16_take_quick(quota, state, now_ns, cost, decision))
            window16_take(quota, state, now_ns, cost, decision);
        return;
    }
    struct stint_ask ask = {.now_ns = now_ns, .cost = cost, .verb = STINT_TAKE};
    *decision = algorithm_ask(quota, state, &ask);
    decision->stored = 1;
}

#endif
