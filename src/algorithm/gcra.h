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

/* A take of 1 to `burst` units: the TAT before it, at least now, and after it. */
struct gcra_trial {
    uint64_t now_ticks, base, tat;
};

/* False if the cost is 0 or above the burst, or the TAT exceeds a word: gcra.c decides then. */
static inline bool gcra_try(const struct stint_quota *quota, uint64_t state, uint64_t now_ns,
                            uint32_t cost, struct gcra_trial *trial)
{
    assert(now_ns <= STINT_NOW_MAX && quota->algorithm == STINT_GCRA);
    trial->now_ticks = now_ns << GCRA_TICKS_PER_NS_LOG2;
    trial->base = max_u64(state, trial->now_ticks);
    trial->tat = trial->base + cost * quota->derived.interval_ticks;
    return trial->tat >= trial->base && cost - 1 < quota->burst;
}

static inline bool gcra_fits(const struct stint_quota *quota, const struct gcra_trial *trial)
{
    return trial->tat - trial->now_ticks <= quota->derived.capacity_ticks;
}

/* The answer if it fits; the state becomes trial->tat. */
static inline void gcra_allow(const struct stint_quota *quota, const struct gcra_trial *trial,
                              uint32_t cost, struct stint_decision *decision)
{
    assert(gcra_fits(quota, trial));
    uint64_t ahead = trial->tat - trial->now_ticks;
    gcra_answer_ahead(quota, ahead, quota->derived.capacity_ticks - ahead, UINT64_MAX - trial->tat,
                      cost, decision);
}

/*
 * The answer if it does not fit; the state stays. False, and nothing written, where gcra.c has to
 * decide: denials are counted, or the TAT is the largest of a word.
 */
static inline bool gcra_deny(const struct stint_quota *quota, const struct gcra_trial *trial,
                             struct stint_decision *decision)
{
    if (quota->count_denied || trial->tat == UINT64_MAX)
        return false;
    uint64_t ahead = trial->base - trial->now_ticks, capacity = quota->derived.capacity_ticks;
    gcra_answer_ahead(quota, ahead, sub_floor(capacity, ahead), UINT64_MAX - trial->base, 0,
                      decision);
    decision->outcome = STINT_DENY;
    decision->retry_after_ns = gcra_ns_up(trial->tat - trial->now_ticks - capacity);
    return true;
}

/* A take, allowed or denied; false, and nothing changed, where gcra.c has to decide. */
static inline bool gcra_take_plain(const struct stint_quota *quota, uint64_t *state,
                                   uint64_t now_ns, uint32_t cost, struct stint_decision *decision)
{
    struct gcra_trial trial;
    if (!gcra_try(quota, *state, now_ns, cost, &trial))
        return false;
    if (!gcra_fits(quota, &trial))
        return gcra_deny(quota, &trial, decision);
    gcra_allow(quota, &trial, cost, decision);
    *state = trial.tat;
    return true;
}

#endif
