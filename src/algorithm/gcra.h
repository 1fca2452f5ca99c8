/* SPDX-License-Identifier: MIT */
/*
 * The inline part of gcra that nearly every decision takes: a take that is allowed, or plainly
 * denied. gcra.c has the whole algorithm, and the reasons why it is right; lua/gcra.lua is the same
 * for Redis. A wait is rounded up in each of the three.
 */
#ifndef STINT_ALGORITHM_GCRA_H
#define STINT_ALGORITHM_GCRA_H

#include "algorithm/algorithm.h"

#include <assert.h>

#define GCRA_TICKS_PER_NS_LOG2 5

static inline uint64_t gcra_ns_up(uint64_t ticks)
{
    uint64_t mask = (UINT64_C(1) << GCRA_TICKS_PER_NS_LOG2) - 1;
    return (ticks >> GCRA_TICKS_PER_NS_LOG2) + ((ticks & mask) != 0);
}

/* The reciprocal is low by less than one part in 2^64: one correction makes the quotient exact. */
static inline uint64_t gcra_whole_units(const struct stint_quota *quota, uint64_t ticks)
{
    uint64_t interval = quota->derived.interval_ticks;
    uint64_t units = mul_hi(ticks, quota->derived.reciprocal);
    units += ticks - units * interval >= interval;
    assert(interval > 0 && ticks - units * interval < interval);
    return units;
}

/* `ahead`: how far the TAT is ahead of now, in ticks. */
static inline void gcra_answer_ahead(const struct stint_quota *quota, uint64_t ahead,
                                     uint64_t space, uint64_t time_left, uint32_t granted,
                                     struct stint_decision *decision)
{
    uint32_t remaining = (uint32_t)gcra_whole_units(quota, min_u64(space, time_left));
    assert(remaining <= quota->burst);
    algorithm_answer(decision, STINT_ALLOW, granted, quota->burst, remaining);
    decision->retry_after_ns = 0;
    decision->reset_after_ns = gcra_ns_up(ahead);
}

/* Fills in what is free and when all will be, for a state that has just been decided. */
static inline void gcra_answer(const struct stint_quota *quota, uint64_t tat, uint64_t now_ticks,
                               uint32_t granted, struct stint_decision *decision)
{
    uint64_t ahead = sub_floor(tat, now_ticks);
    gcra_answer_ahead(quota, ahead, sub_floor(quota->derived.capacity_ticks, ahead),
                      UINT64_MAX - max_u64(tat, now_ticks), granted, decision);
}

/* Moves the TAT by 1 to `burst` units; false, and nothing changed, if that is not allowed. */
static inline bool gcra_charge_quick(const struct stint_quota *quota, uint64_t *state,
                                     uint64_t now_ns, uint32_t cost)
{
    assert(now_ns <= STINT_NOW_MAX && quota->algorithm == STINT_GCRA);
    uint64_t now_ticks = now_ns << GCRA_TICKS_PER_NS_LOG2;
    uint64_t base = max_u64(*state, now_ticks);
    uint64_t tat = base + cost * quota->derived.interval_ticks;
    if (cost - 1 >= quota->burst || tat < base || tat - now_ticks > quota->derived.capacity_ticks)
        return false;
    *state = tat;
    return true;
}

/* The answer to such a charge, which needs no comparison: the TAT is ahead of now. */
static inline void gcra_answer_charged(const struct stint_quota *quota, uint64_t tat,
                                       uint64_t now_ns, uint32_t cost,
                                       struct stint_decision *decision)
{
    uint64_t ahead = tat - (now_ns << GCRA_TICKS_PER_NS_LOG2);
    assert(ahead <= quota->derived.capacity_ticks);
    gcra_answer_ahead(quota, ahead, quota->derived.capacity_ticks - ahead, UINT64_MAX - tat, cost,
                      decision);
}

/* A take of 1 to `burst` units; false, and nothing changed, if it is not allowed. */
static inline bool gcra_take_quick(const struct stint_quota *quota, uint64_t *state,
                                   uint64_t now_ns, uint32_t cost, struct stint_decision *decision)
{
    if (!gcra_charge_quick(quota, state, now_ns, cost))
        return false;
    gcra_answer_charged(quota, *state, now_ns, cost, decision);
    return true;
}

/* A denial of 1 to `burst` units that is not counted; false, and nothing written, if allowed. */
static inline bool gcra_deny_quick(const struct stint_quota *quota, uint64_t state, uint64_t now_ns,
                                   uint32_t cost, struct stint_decision *decision)
{
    assert(now_ns <= STINT_NOW_MAX && quota->algorithm == STINT_GCRA);
    uint64_t now_ticks = now_ns << GCRA_TICKS_PER_NS_LOG2;
    uint64_t base = max_u64(state, now_ticks);
    uint64_t tat = base + cost * quota->derived.interval_ticks;
    if (cost - 1 >= quota->burst || tat < base || tat == UINT64_MAX || quota->count_denied ||
        tat - now_ticks <= quota->derived.capacity_ticks)
        return false;
    gcra_answer(quota, state, now_ticks, 0, decision);
    decision->outcome = STINT_DENY;
    decision->retry_after_ns = gcra_ns_up(tat - now_ticks - quota->derived.capacity_ticks);
    return true;
}

#endif
