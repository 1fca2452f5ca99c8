/* SPDX-License-Identifier: MIT */
/* Caller-owned states of 8 and 16 bytes: the algorithm, in a loop around one swap. */
#include "algorithm/quick.h"
#include "table/slot/cas16.h"

#include <assert.h>

void stint_cell8_init(const struct stint_quota *quota, struct stint_cell8 *cell, uint64_t now_ns)
{
    assert(quota->derived.state_size == 8);
    uint64_t state = 0;
    stint_state_init(quota, &state, now_ns);
    /* release: a thread that learns of the cell sees it initialised. */
    __atomic_store_n(&cell->word, state, __ATOMIC_RELEASE);
}

struct stint_decision stint_cell8_ask(const struct stint_quota *quota, struct stint_cell8 *cell,
                                      const struct stint_ask *ask)
{
    assert(quota->derived.state_size == 8);
    /* relaxed throughout: there is no data beside the word, and the swap confirms what was read. */
    struct stint_ask own = *ask;
    own.verb = algorithm_own_verb(quota, ask->verb);
    uint64_t before = __atomic_load_n(&cell->word, __ATOMIC_RELAXED);
    for (;;) {
        uint64_t after = before;
        struct stint_decision decision = algorithm_ask(quota, &after, &own);
        decision.stored = 1;
        if (after == before || __atomic_compare_exchange_n(&cell->word, &before, after, true,
                                                           __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            return decision;
    }
}

__attribute__((noinline)) static struct stint_decision cell8_take(const struct stint_quota *quota,
                                                                  struct stint_cell8 *cell,
                                                                  uint64_t now_ns, uint32_t cost)
{
    struct stint_decision decision;
    uint64_t before = __atomic_load_n(&cell->word, __ATOMIC_RELAXED);
    for (;;) {
        uint64_t after = before;
        algorithm8_take(quota, &after, now_ns, cost, &decision);
        if (after == before || __atomic_compare_exchange_n(&cell->word, &before, after, true,
                                                           __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            return decision;
    }
}

/* A take of gcra needs no memory but its state, so it has a function of its own. */
struct stint_decision stint_cell8_take(const struct stint_quota *quota, struct stint_cell8 *cell,
                                       uint64_t now_ns, uint32_t cost)
{
    struct stint_decision decision;
    struct gcra_trial trial;
    uint64_t before = __atomic_load_n(&cell->word, __ATOMIC_RELAXED);
    if (quota->algorithm != STINT_GCRA || now_ns > STINT_NOW_MAX ||
        !gcra_try(quota, before, now_ns, cost, &trial))
        return cell8_take(quota, cell, now_ns, cost);
    if (!gcra_fits(quota, &trial))
        return gcra_deny(quota, &trial, &decision) ? decision
                                                   : cell8_take(quota, cell, now_ns, cost);
    if (!__atomic_compare_exchange_n(&cell->word, &before, trial.tat, false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED))
        return cell8_take(quota, cell, now_ns, cost);
    gcra_allow(quota, &trial, cost, &decision);
    return decision;
}

static struct pair *cell_pair(struct stint_cell16 *cell)
{
    assert((uintptr_t)cell % sizeof(struct pair) == 0);
    return (struct pair *)(void *)cell->word;
}

CAS16_TARGET void stint_cell16_init(const struct stint_quota *quota, struct stint_cell16 *cell,
                                    uint64_t now_ns)
{
    assert(quota->derived.state_size == 16);
    struct pair *at = cell_pair(cell);
    _Alignas(16) uint64_t state[2] = {0, 0};
    stint_state_init(quota, state, now_ns);
    while (!cas16(at, cas16_load(at), (struct pair){state[0], state[1]})) {
    }
}

CAS16_TARGET struct stint_decision stint_cell16_ask(const struct stint_quota *quota,
                                                    struct stint_cell16 *cell,
                                                    const struct stint_ask *ask)
{
    assert(quota->derived.state_size == 16);
    struct pair *at = cell_pair(cell);
    for (;;) {
        struct pair before = cas16_load(at);
        struct word16 state = {before.first, before.second};
        struct stint_decision decision = algorithm_ask(quota, &state, ask);
        decision.stored = 1;
        struct pair after = {state.lo, state.hi};
        if (pair_equals(after, before)) {
            /* Nothing to swap, so nothing confirms that the two halves match: read again. */
            if (pair_equals(cas16_load(at), before))
                return decision;
            continue;
        }
        if (cas16(at, before, after))
            return decision;
    }
}

CAS16_TARGET struct stint_decision stint_cell16_take(const struct stint_quota *quota,
                                                     struct stint_cell16 *cell, uint64_t now_ns,
                                                     uint32_t cost)
{
    struct stint_decision decision;
    struct pair *at = cell_pair(cell);
    for (;;) {
        struct pair before = cas16_load(at);
        struct word16 state = {before.first, before.second};
        algorithm16_take(quota, &state, now_ns, cost, &decision);
        struct pair after = {state.lo, state.hi};
        if (!pair_equals(after, before) ? cas16(at, before, after)
                                        : pair_equals(cas16_load(at), before))
            return decision;
    }
}
