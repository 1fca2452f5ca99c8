/* SPDX-License-Identifier: MIT */
/*
 * The table of algorithms, the calls through it, and the cases that are the same for each: a time
 * above STINT_NOW_MAX, and a limit of 0. And the public calls for caller-owned states, which one
 * thread uses; the table shares states between threads.
 */
#include "algorithm/algorithm.h"

#include <assert.h>
#include <string.h>

static const struct algorithm *const algorithms[] = {
    [STINT_WINDOW] = &algorithm_window,
    [STINT_BUCKETS] = &algorithm_buckets,
    [STINT_LOG] = &algorithm_log,
    [STINT_GCRA] = &algorithm_gcra,
    [STINT_FIXED_WINDOW] = &algorithm_fixed_window,
    [STINT_SLIDING_COUNTER] = &algorithm_sliding_counter,
    [STINT_CONCURRENCY] = &algorithm_concurrency,
    [STINT_COUNTER] = &algorithm_expiring_counter,
};

#define ALGORITHMS (int)(sizeof(algorithms) / sizeof(algorithms[0]))

_Static_assert(STINT_COUNTER == STINT_CONCURRENCY + 1, "numbers are in files, and never reused");

static const struct algorithm *algorithm_of(const struct stint_quota *quota)
{
    assert(quota->algorithm >= STINT_WINDOW && quota->algorithm < ALGORITHMS);
    return algorithms[quota->algorithm];
}

const char *stint_algorithm_name(int algorithm)
{
    return algorithm >= STINT_WINDOW && algorithm < ALGORITHMS ? algorithms[algorithm]->name : NULL;
}

int algorithm_check(struct stint_quota *quota, struct stint_error *error)
{
    assert(!quota->derived.checked);
    return algorithm_of(quota)->check(quota, error);
}

static bool is_closed(const struct stint_quota *quota, const struct stint_ask *ask)
{
    return ask->now_ns > STINT_NOW_MAX || quota->limit == 0;
}

/* Under a limit of 0 nothing fits, and nothing ever comes back. */
static struct stint_decision closed_answer(const struct stint_quota *quota,
                                           const struct stint_ask *ask)
{
    bool gives_back = ask->verb == STINT_REFUND || ask->verb == ALGORITHM_REFUND_BOOKED ||
                      ask->verb == STINT_UNBOOK;
    assert(is_closed(quota, ask));
    if (ask->now_ns > STINT_NOW_MAX || (ask->cost > 0 && !gives_back))
        return algorithm_never(most_units(quota));
    return (struct stint_decision){.outcome = STINT_ALLOW};
}

struct stint_decision algorithm_ask(const struct stint_quota *quota, void *state,
                                    const struct stint_ask *ask)
{
    assert(quota->derived.checked && state != NULL);
    if (is_closed(quota, ask))
        return closed_answer(quota, ask);
    struct stint_decision decision = algorithm_of(quota)->ask(quota, state, ask);
    /* Whatever the memory of the state held. */
    assert(decision.outcome <= STINT_NEVER && decision.granted <= ask->cost &&
           (decision.outcome == STINT_ALLOW || decision.granted == 0));
    return decision;
}

uint64_t algorithm_expires_at(const struct stint_quota *quota, const void *state)
{
    assert(quota->derived.checked && state != NULL);
    return algorithm_of(quota)->expires_at(quota, state);
}

void algorithm_fill(const struct stint_quota *quota, void *state, uint64_t until_ns)
{
    assert(quota->derived.checked && state != NULL);
    if (quota->limit > 0)
        algorithm_of(quota)->fill(quota, state, until_ns);
    else
        memset(state, 0, quota->derived.state_size); /* it denies everything as it is */
}

static bool is_never_used(const struct stint_quota *quota, const void *state)
{
    assert(quota->derived.state_size > 0);
    const unsigned char *bytes = state;
    for (uint32_t i = 0; i < quota->derived.state_size; i++)
        if (bytes[i] != 0)
            return false;
    return true;
}

/* Under a limit of 0 nothing is ever charged; no valid now is above STINT_NOW_MAX. */
bool algorithm_is_valid(const struct stint_quota *quota, const void *state, uint64_t now_ns)
{
    const struct word16 *words = state;
    assert(quota->derived.checked && state != NULL);
    bool is_new = is_never_used(quota, state);
    if (is_new || quota->limit == 0)
        return is_new;
    if (quota->derived.state_size == sizeof(*words) && words->hi >> (64 - WORD16_STORE_BITS) != 0)
        return false;
    return algorithm_of(quota)->is_valid(quota, state, min_u64(now_ns, STINT_NOW_MAX));
}

size_t algorithm_held(const struct stint_quota *quota, const void *state, uint64_t now_ns,
                      uint64_t latest_ns, struct held_run *runs)
{
    assert(quota->derived.checked && state != NULL && latest_ns >= now_ns);
    size_t n_runs = algorithm_of(quota)->held(quota, state, now_ns, runs);
    assert(n_runs <= HELD_RUNS_MAX);
    /* A slot may end later. The times of log are exact, and those of booked places still to come.
     */
    for (size_t i = 0; i < n_runs && quota->algorithm != STINT_LOG; i++)
        runs[i].at_ns = min_u64(runs[i].at_ns, latest_ns);
    return n_runs;
}

uint64_t algorithm_own_ns(const struct stint_quota *quota, const void *state)
{
    const struct algorithm *algorithm = algorithm_of(quota);
    assert(quota->derived.checked && state != NULL);
    return algorithm->own_ns != NULL ? algorithm->own_ns(quota, state) : 0;
}

void algorithm_pass(const struct stint_quota *quota, void *state, uint64_t at_ns)
{
    const struct algorithm *algorithm = algorithm_of(quota);
    assert(at_ns <= STINT_NOW_MAX && quota->limit > 0);
    if (algorithm->pass != NULL)
        algorithm->pass(quota, state, at_ns);
}

size_t algorithm_groups(const struct stint_quota *quota, const void *state, uint64_t now_ns,
                        struct held_group groups[HELD_GROUPS_MAX])
{
    const struct algorithm *algorithm = algorithm_of(quota);
    assert(quota->derived.checked && now_ns <= STINT_NOW_MAX);
    if (quota->limit == 0 || algorithm->groups == NULL)
        return 0;
    size_t n_groups = algorithm->groups(quota, state, now_ns, groups);
    assert(n_groups <= HELD_GROUPS_MAX);
    return n_groups;
}

/*
 * In the strict algorithms a charge keeps the newest units. The others would go into debt, which a
 * change of quota must not cause: there, as much is taken as fits.
 */
struct stint_ask algorithm_carry_ask(const struct stint_quota *quota, const struct held_run *run)
{
    assert(run->units > 0 && quota->derived.checked);
    return (struct stint_ask){
        .now_ns = run->at_ns,
        .cost = (uint32_t)min_u64(run->units, UINT32_MAX),
        .verb = algorithm_has_debt(quota) ? STINT_TAKE_UPTO : STINT_CHARGE,
    };
}

void algorithm_carry(const struct stint_quota *quota, void *state, const struct held_run *runs,
                     size_t n_runs)
{
    assert(n_runs <= HELD_RUNS_MAX);
    memset(state, 0, quota->derived.state_size);
    for (size_t i = 0; i < n_runs; i++) {
        struct stint_ask ask = algorithm_carry_ask(quota, &runs[i]);
        algorithm_ask(quota, state, &ask);
    }
}

/* ---- Caller-owned states --------------------------------------------------------------------- */

struct stint_decision stint_state_ask(const struct stint_quota *quota, void *state,
                                      const struct stint_ask *ask)
{
    struct stint_ask own = *ask;
    own.verb = algorithm_own_verb(quota, ask->verb);
    return algorithm_ask(quota, state, &own);
}

size_t stint_state_size(const struct stint_quota *quota)
{
    assert(quota->derived.checked);
    return quota->derived.state_size;
}

void stint_state_init(const struct stint_quota *quota, void *state, uint64_t now_ns)
{
    memset(state, 0, stint_state_size(quota));
    if (!quota->initial_set)
        return;
    assert(quota->initial <= most_units(quota));
    struct stint_ask ask = {.now_ns = now_ns, .cost = most_units(quota) - quota->initial};
    stint_state_ask(quota, state, &ask);
}

uint64_t stint_state_expires_at(const struct stint_quota *quota, const void *state)
{
    return algorithm_expires_at(quota, state);
}

void stint_state_fill(const struct stint_quota *quota, void *state, uint64_t until_ns)
{
    algorithm_fill(quota, state, until_ns);
}

/* The meaning of a state does not depend on its table policy, nor on what new ones begin with. */
static bool states_mean_the_same(const struct stint_quota *a, const struct stint_quota *b)
{
    assert(a->derived.checked && b->derived.checked);
    struct stint_quota like_a = *b;
    like_a.rule = a->rule;
    like_a.when_full = a->when_full;
    like_a.initial = a->initial;
    like_a.initial_set = a->initial_set;
    return memcmp(a, &like_a, sizeof(like_a)) == 0;
}

void stint_state_convert(const struct stint_quota *from, const void *from_state,
                         const struct stint_quota *to, void *to_state, uint64_t now_ns)
{
    assert(from->derived.checked && to->derived.checked);
    if (states_mean_the_same(from, to)) {
        memmove(to_state, from_state, to->derived.state_size);
        return;
    }
    /*
     * Units that are over by now are not carried, so the new state must not decide earlier: a
     * caller whose clock is behind would find them in neither state.
     */
    uint64_t at_ns = min_u64(max_u64(now_ns, algorithm_own_ns(from, from_state)), STINT_NOW_MAX);
    bool keeps_time = to->limit > 0 && !is_never_used(from, from_state);
    struct held_run runs[HELD_RUNS_MAX];
    size_t n_runs = algorithm_held(from, from_state, at_ns, at_ns, runs);
    algorithm_carry(to, to_state, runs, n_runs);
    if (keeps_time)
        algorithm_pass(to, to_state, at_ns);
}

struct stint_decision stint_state_hold(const struct stint_quota *quota, void *state,
                                       uint64_t now_ns, uint32_t cost, uint64_t *holder)
{
    assert(quota->derived.checked && quota->algorithm == STINT_CONCURRENCY);
    struct stint_ask ask = {.now_ns = now_ns, .cost = cost, .verb = STINT_TAKE};
    *holder = 0;
    if (now_ns > STINT_NOW_MAX || quota->limit == 0)
        return algorithm_ask(quota, state, &ask);
    struct stint_decision decision = concurrency_hold(quota, state, &ask, holder);
    assert((*holder != 0) == (decision.granted > 0));
    return decision;
}

int stint_state_release(const struct stint_quota *quota, void *state, uint64_t now_ns,
                        uint64_t holder)
{
    assert(quota->derived.checked && quota->algorithm == STINT_CONCURRENCY);
    uint32_t units;
    if (now_ns > STINT_NOW_MAX)
        return STINT_E_RANGE;
    return concurrency_holder(quota, state, now_ns, &holder, &units) ? STINT_OK : STINT_E_GONE;
}

int stint_state_renew(const struct stint_quota *quota, void *state, uint64_t now_ns,
                      uint64_t *holder)
{
    assert(quota->derived.checked && quota->algorithm == STINT_CONCURRENCY);
    if (now_ns > STINT_NOW_MAX)
        return STINT_E_RANGE;
    return concurrency_holder(quota, state, now_ns, holder, NULL) ? STINT_OK : STINT_E_GONE;
}
