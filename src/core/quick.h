/* SPDX-License-Identifier: MIT */
/*
 * The takes that are made most, inline: allowed, and the state is of the simplest kind. False means
 * "ask the law": nothing was decided and nothing changed.
 */
#ifndef STINT_CORE_QUICK_H
#define STINT_CORE_QUICK_H

#include "core/gcra.h"
#include "core/window.h"

static inline bool law8_take_quick(const struct stint_quota *quota, uint64_t *state,
                                   uint64_t now_ns, uint32_t cost, struct stint_decision *decision)
{
    if (now_ns > STINT_NOW_MAX)
        return false;
    if (quota->algorithm == STINT_GCRA)
        return gcra_take_quick(quota, state, now_ns, cost, decision);
    if (quota->algorithm == STINT_WINDOW)
        return window8_take_quick(quota, state, now_ns, cost, decision);
    return false;
}

static inline bool law16_take_quick(const struct stint_quota *quota, struct word16 *state,
                                    uint64_t now_ns, uint32_t cost, struct stint_decision *decision)
{
    return now_ns <= STINT_NOW_MAX && quota->algorithm == STINT_WINDOW &&
           window16_take_quick(quota, state, now_ns, cost, decision);
}

#endif
