/* SPDX-License-Identifier: MIT */
/*
 * Caller-owned states, under any algorithm: the public calls for bytes that one thread uses. The
 * table shares states between threads.
 */
#include "algorithm/algorithm.h"

#include <assert.h>
#include <string.h>

enum form { FORM_8, FORM_16, FORM_WIDE };

static enum form form_of(const struct stint_quota *quota)
{
    assert(quota->derived.checked);
    switch (quota->algorithm) {
    case STINT_BUCKETS:
    case STINT_LOG:
    case STINT_CONCURRENCY:
        return FORM_WIDE;
    default:
        return quota->derived.state_size == 8 ? FORM_8 : FORM_16;
    }
}

static uint64_t load8(const void *state)
{
    uint64_t word;
    memcpy(&word, state, sizeof(word));
    return word;
}

static struct word16 load16(const void *state)
{
    struct word16 words;
    memcpy(&words, state, sizeof(words));
    return words;
}

struct stint_decision stint_state_ask(const struct stint_quota *quota, void *state,
                                      const struct stint_ask *ask)
{
    struct stint_decision decision;
    switch (form_of(quota)) {
    case FORM_8: {
        uint64_t word = load8(state);
        struct stint_ask own = *ask;
        own.verb = algorithm_own_verb(quota, ask->verb);
        decision = algorithm8_ask(quota, &word, &own);
        memcpy(state, &word, sizeof(word));
        return decision;
    }
    case FORM_16: {
        struct word16 words = load16(state);
        decision = algorithm16_ask(quota, &words, ask);
        memcpy(state, &words, sizeof(words));
        return decision;
    }
    default:
        return algorithm_wide_ask(quota, state, ask);
    }
}

void stint_state_init(const struct stint_quota *quota, void *state, uint64_t now_ns)
{
    memset(state, 0, stint_state_size(quota));
    if (!quota->initial_set)
        return;
    uint32_t capacity = quota->algorithm == STINT_GCRA ? quota->burst : quota->limit;
    struct stint_ask ask = {.now_ns = now_ns, .cost = capacity - quota->initial};
    stint_state_ask(quota, state, &ask);
}

uint64_t stint_state_expires_at(const struct stint_quota *quota, const void *state)
{
    switch (form_of(quota)) {
    case FORM_8:
        return algorithm8_expires_at(quota, load8(state));
    case FORM_16:
        return algorithm16_expires_at(quota, load16(state));
    default:
        return algorithm_wide_expires_at(quota, state);
    }
}

void stint_state_fill(const struct stint_quota *quota, void *state, uint64_t until_ns)
{
    switch (form_of(quota)) {
    case FORM_8: {
        uint64_t word = algorithm8_fill(quota, until_ns);
        memcpy(state, &word, sizeof(word));
        break;
    }
    case FORM_16: {
        struct word16 words = algorithm16_fill(quota, until_ns);
        memcpy(state, &words, sizeof(words));
        break;
    }
    default:
        algorithm_wide_fill(quota, state, until_ns);
    }
}

static size_t held(const struct stint_quota *quota, const void *state, uint64_t now_ns,
                   struct held_run *runs)
{
    switch (form_of(quota)) {
    case FORM_8:
        return algorithm8_held(quota, load8(state), now_ns, runs);
    case FORM_16:
        return algorithm16_held(quota, load16(state), now_ns, runs);
    default:
        return algorithm_wide_held(quota, state, now_ns, runs);
    }
}

static uint64_t own_ns(const struct stint_quota *quota, const void *state)
{
    switch (form_of(quota)) {
    case FORM_8:
        return algorithm8_own_ns(quota, load8(state));
    case FORM_16:
        return algorithm16_own_ns(quota, load16(state));
    default:
        return algorithm_wide_own_ns(quota, state);
    }
}

static bool is_never_used(const struct stint_quota *quota, const void *state)
{
    const unsigned char *bytes = state;
    for (uint32_t i = 0; i < quota->derived.state_size; i++)
        if (bytes[i] != 0)
            return false;
    return true;
}

/* The meaning of a state does not depend on its table policy, nor on what new ones begin with. */
static bool states_mean_the_same(const struct stint_quota *a, const struct stint_quota *b)
{
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
    if (states_mean_the_same(from, to)) {
        memmove(to_state, from_state, to->derived.state_size);
        return;
    }
    /*
     * Units that are over by now are not carried, so the new state must not decide earlier: a
     * caller whose clock is behind would find them in neither state.
     */
    uint64_t at_ns = min_u64(max_u64(now_ns, own_ns(from, from_state)), STINT_NOW_MAX);
    bool keeps_time = to->limit > 0 && !is_never_used(from, from_state);
    struct held_run runs[HELD_RUNS_MAX];
    size_t n_runs = held(from, from_state, at_ns, runs);
    switch (form_of(to)) {
    case FORM_8: {
        uint64_t word = algorithm8_carry(to, runs, n_runs);
        if (keeps_time)
            algorithm8_pass(to, &word, at_ns);
        memcpy(to_state, &word, sizeof(word));
        break;
    }
    case FORM_16: {
        struct word16 words = algorithm16_carry(to, runs, n_runs);
        if (keeps_time)
            algorithm16_pass(to, &words, at_ns);
        memcpy(to_state, &words, sizeof(words));
        break;
    }
    default:
        algorithm_wide_carry(to, to_state, runs, n_runs);
        if (keeps_time)
            algorithm_wide_pass(to, to_state, at_ns);
    }
}

struct stint_decision stint_state_hold(const struct stint_quota *quota, void *state,
                                       uint64_t now_ns, uint32_t cost, uint64_t *holder)
{
    assert(quota->derived.checked && quota->algorithm == STINT_CONCURRENCY);
    struct stint_ask ask = {.now_ns = now_ns, .cost = cost, .verb = STINT_TAKE};
    *holder = 0;
    if (now_ns > STINT_NOW_MAX || quota->limit == 0)
        return algorithm_wide_ask(quota, state, &ask);
    return concurrency_hold(quota, state, &ask, holder);
}

int stint_state_release(const struct stint_quota *quota, void *state, uint64_t now_ns,
                        uint64_t holder)
{
    assert(quota->derived.checked && quota->algorithm == STINT_CONCURRENCY);
    uint32_t units;
    return concurrency_release(quota, state, now_ns, holder, &units) ? STINT_OK : STINT_E_GONE;
}

int stint_state_renew(const struct stint_quota *quota, void *state, uint64_t now_ns,
                      uint64_t *holder)
{
    assert(quota->derived.checked && quota->algorithm == STINT_CONCURRENCY);
    return concurrency_renew(quota, state, now_ns, holder) ? STINT_OK : STINT_E_GONE;
}
