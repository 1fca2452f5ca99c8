/* SPDX-License-Identifier: MIT */
/*
 * The dispatch over all algorithms, and the two cases that are the same for each: a time above
 * STINT_NOW_MAX, and a limit of 0.
 */
#include "algorithm/algorithm.h"

#include <assert.h>
#include <string.h>

static inline bool is_closed(const struct stint_quota *quota, const struct stint_ask *ask)
{
    return ask->now_ns > STINT_NOW_MAX || quota->limit == 0;
}

/* Under a limit of 0 nothing fits, and nothing ever comes back. */
static struct stint_decision closed_answer(const struct stint_quota *quota,
                                           const struct stint_ask *ask)
{
    bool gives_back = ask->verb == STINT_REFUND || ask->verb == ALGORITHM_REFUND_BOOKED ||
                      ask->verb == STINT_UNBOOK;
    if (ask->now_ns > STINT_NOW_MAX || (ask->cost > 0 && !gives_back))
        return algorithm_never(most_units(quota));
    return (struct stint_decision){.outcome = STINT_ALLOW};
}

struct stint_decision algorithm8_ask(const struct stint_quota *quota, uint64_t *state,
                                     const struct stint_ask *ask)
{
    assert(quota->derived.checked);
    if (is_closed(quota, ask))
        return closed_answer(quota, ask);
    switch (quota->algorithm) {
    case STINT_WINDOW:
        return window8_ask(quota, state, ask);
    case STINT_GCRA:
        return gcra_ask(quota, state, ask);
    default:
        assert(quota->algorithm == STINT_FIXED_WINDOW);
        return fixed_window_ask(quota, state, ask);
    }
}

struct stint_decision algorithm16_ask(const struct stint_quota *quota, struct word16 *state,
                                      const struct stint_ask *ask)
{
    assert(quota->derived.checked);
    if (is_closed(quota, ask))
        return closed_answer(quota, ask);
    if (quota->algorithm == STINT_WINDOW)
        return window16_ask(quota, state, ask);
    assert(quota->algorithm == STINT_SLIDING_COUNTER);
    return sliding_counter_ask(quota, state, ask);
}

struct stint_decision algorithm_wide_ask(const struct stint_quota *quota, void *state,
                                         const struct stint_ask *ask)
{
    assert(quota->derived.checked);
    if (is_closed(quota, ask))
        return closed_answer(quota, ask);
    switch (quota->algorithm) {
    case STINT_BUCKETS:
        return buckets_ask(quota, state, ask);
    case STINT_LOG:
        return log_ask(quota, state, ask);
    default:
        assert(quota->algorithm == STINT_CONCURRENCY);
        return concurrency_ask(quota, state, ask);
    }
}

uint64_t algorithm8_expires_at(const struct stint_quota *quota, uint64_t state)
{
    switch (quota->algorithm) {
    case STINT_WINDOW:
        return window8_expires_at(quota, state);
    case STINT_GCRA:
        return gcra_expires_at(quota, state);
    default:
        assert(quota->algorithm == STINT_FIXED_WINDOW);
        return fixed_window_expires_at(quota, state);
    }
}

uint64_t algorithm16_expires_at(const struct stint_quota *quota, struct word16 state)
{
    if (quota->algorithm == STINT_WINDOW)
        return window16_expires_at(quota, state);
    assert(quota->algorithm == STINT_SLIDING_COUNTER);
    return sliding_counter_expires_at(quota, state);
}

uint64_t algorithm_wide_expires_at(const struct stint_quota *quota, const void *state)
{
    switch (quota->algorithm) {
    case STINT_BUCKETS:
        return buckets_expires_at(quota, state);
    case STINT_LOG:
        return log_expires_at(quota, state);
    default:
        assert(quota->algorithm == STINT_CONCURRENCY);
        return concurrency_expires_at(quota, state);
    }
}

uint64_t algorithm8_fill(const struct stint_quota *quota, uint64_t until_ns)
{
    switch (quota->algorithm) {
    case STINT_WINDOW:
        return window8_fill(quota, until_ns);
    case STINT_GCRA:
        return gcra_fill(quota, until_ns);
    default:
        assert(quota->algorithm == STINT_FIXED_WINDOW);
        return fixed_window_fill(quota, until_ns);
    }
}

struct word16 algorithm16_fill(const struct stint_quota *quota, uint64_t until_ns)
{
    if (quota->algorithm == STINT_WINDOW)
        return window16_fill(quota, until_ns);
    assert(quota->algorithm == STINT_SLIDING_COUNTER);
    return sliding_counter_fill(quota, until_ns);
}

void algorithm_wide_fill(const struct stint_quota *quota, void *state, uint64_t until_ns)
{
    switch (quota->algorithm) {
    case STINT_BUCKETS:
        buckets_fill(quota, state, until_ns);
        break;
    case STINT_LOG:
        log_fill(quota, state, until_ns);
        break;
    default:
        assert(quota->algorithm == STINT_CONCURRENCY);
        concurrency_fill(quota, state, until_ns);
    }
}

/* Under a limit of 0 nothing is ever charged; no valid now is above STINT_NOW_MAX. */
bool algorithm8_is_valid(const struct stint_quota *quota, uint64_t state, uint64_t now_ns)
{
    now_ns = min_u64(now_ns, STINT_NOW_MAX);
    if (state == 0 || quota->limit == 0)
        return state == 0;
    switch (quota->algorithm) {
    case STINT_WINDOW:
        return window8_is_valid(quota, state, now_ns);
    case STINT_GCRA:
        return gcra_is_valid(quota, state, now_ns);
    default:
        assert(quota->algorithm == STINT_FIXED_WINDOW);
        return fixed_window_is_valid(quota, state, now_ns);
    }
}

bool algorithm16_is_valid(const struct stint_quota *quota, struct word16 state, uint64_t now_ns)
{
    bool is_new = state.lo == 0 && state.hi == 0;
    now_ns = min_u64(now_ns, STINT_NOW_MAX);
    if (is_new || quota->limit == 0 || state.hi >> (64 - WORD16_STORE_BITS) != 0)
        return is_new;
    if (quota->algorithm == STINT_WINDOW)
        return window16_is_valid(quota, state, now_ns);
    assert(quota->algorithm == STINT_SLIDING_COUNTER);
    return sliding_counter_is_valid(quota, state, now_ns);
}

static bool is_zero(const unsigned char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != 0)
            return false;
    return true;
}

bool algorithm_wide_is_valid(const struct stint_quota *quota, const void *state, uint64_t now_ns)
{
    now_ns = min_u64(now_ns, STINT_NOW_MAX);
    if (quota->limit == 0)
        return is_zero(state, quota->derived.state_size);
    switch (quota->algorithm) {
    case STINT_BUCKETS:
        return buckets_is_valid(quota, state, now_ns);
    case STINT_LOG:
        return log_is_valid(quota, state, now_ns);
    default:
        assert(quota->algorithm == STINT_CONCURRENCY);
        return concurrency_is_valid(quota, state, now_ns);
    }
}

size_t algorithm8_held(const struct stint_quota *quota, uint64_t state, uint64_t now_ns,
                       struct held_run *runs)
{
    switch (quota->algorithm) {
    case STINT_WINDOW:
        return window8_held(quota, state, now_ns, runs);
    case STINT_GCRA:
        return gcra_held(quota, state, now_ns, runs);
    default:
        assert(quota->algorithm == STINT_FIXED_WINDOW);
        return fixed_window_held(quota, state, now_ns, runs);
    }
}

size_t algorithm16_held(const struct stint_quota *quota, struct word16 state, uint64_t now_ns,
                        struct held_run *runs)
{
    if (quota->algorithm == STINT_WINDOW)
        return window16_held(quota, state, now_ns, runs);
    assert(quota->algorithm == STINT_SLIDING_COUNTER);
    return sliding_counter_held(quota, state, now_ns, runs);
}

size_t algorithm_wide_held(const struct stint_quota *quota, const void *state, uint64_t now_ns,
                           struct held_run *runs)
{
    switch (quota->algorithm) {
    case STINT_BUCKETS:
        return buckets_held(quota, state, now_ns, runs);
    case STINT_LOG:
        return log_held(quota, state, now_ns, runs);
    default:
        assert(quota->algorithm == STINT_CONCURRENCY);
        return concurrency_held(quota, state, now_ns, runs);
    }
}

uint64_t algorithm8_own_ns(const struct stint_quota *quota, uint64_t state)
{
    switch (quota->algorithm) {
    case STINT_WINDOW:
        return window8_own_ns(quota, state);
    case STINT_GCRA:
        return 0;
    default:
        assert(quota->algorithm == STINT_FIXED_WINDOW);
        return fixed_window_own_ns(quota, state);
    }
}

uint64_t algorithm16_own_ns(const struct stint_quota *quota, struct word16 state)
{
    if (quota->algorithm == STINT_WINDOW)
        return window16_own_ns(quota, state);
    assert(quota->algorithm == STINT_SLIDING_COUNTER);
    return sliding_counter_own_ns(quota, state);
}

uint64_t algorithm_wide_own_ns(const struct stint_quota *quota, const void *state)
{
    switch (quota->algorithm) {
    case STINT_BUCKETS:
        return buckets_own_ns(quota, state);
    case STINT_LOG:
        return log_own_ns(quota, state);
    default:
        assert(quota->algorithm == STINT_CONCURRENCY);
        return 0;
    }
}

void algorithm8_pass(const struct stint_quota *quota, uint64_t *state, uint64_t at_ns)
{
    assert(at_ns <= STINT_NOW_MAX && quota->limit > 0);
    switch (quota->algorithm) {
    case STINT_WINDOW:
        window8_pass(quota, state, at_ns);
        break;
    case STINT_GCRA:
        gcra_pass(quota, state, at_ns);
        break;
    default:
        assert(quota->algorithm == STINT_FIXED_WINDOW);
        fixed_window_pass(quota, state, at_ns);
    }
}

void algorithm16_pass(const struct stint_quota *quota, struct word16 *state, uint64_t at_ns)
{
    assert(at_ns <= STINT_NOW_MAX && quota->limit > 0);
    if (quota->algorithm == STINT_WINDOW) {
        window16_pass(quota, state, at_ns);
        return;
    }
    assert(quota->algorithm == STINT_SLIDING_COUNTER);
    sliding_counter_pass(quota, state, at_ns);
}

void algorithm_wide_pass(const struct stint_quota *quota, void *state, uint64_t at_ns)
{
    assert(at_ns <= STINT_NOW_MAX && quota->limit > 0);
    if (quota->algorithm == STINT_BUCKETS)
        buckets_pass(quota, state, at_ns);
    else if (quota->algorithm == STINT_LOG)
        log_pass(quota, state, at_ns);
}

/*
 * In the strict algorithms a charge keeps the newest units. The others would go into debt, which a
 * change of quota must not cause: there, as much is taken as fits.
 */
struct stint_ask algorithm_carry_ask(const struct stint_quota *quota, const struct held_run *run)
{
    return (struct stint_ask){
        .now_ns = run->at_ns,
        .cost = (uint32_t)min_u64(run->units, UINT32_MAX),
        .verb = algorithm_has_debt(quota) ? STINT_TAKE_UPTO : STINT_CHARGE,
    };
}

uint64_t algorithm8_carry(const struct stint_quota *quota, const struct held_run *runs,
                          size_t n_runs)
{
    assert(n_runs <= HELD_RUNS_MAX);
    uint64_t state = 0;
    for (size_t i = 0; i < n_runs; i++) {
        struct stint_ask ask = algorithm_carry_ask(quota, &runs[i]);
        algorithm8_ask(quota, &state, &ask);
    }
    return state;
}

struct word16 algorithm16_carry(const struct stint_quota *quota, const struct held_run *runs,
                                size_t n_runs)
{
    assert(n_runs <= HELD_RUNS_MAX);
    struct word16 state = {0, 0};
    for (size_t i = 0; i < n_runs; i++) {
        struct stint_ask ask = algorithm_carry_ask(quota, &runs[i]);
        algorithm16_ask(quota, &state, &ask);
    }
    return state;
}

void algorithm_wide_carry(const struct stint_quota *quota, void *state, const struct held_run *runs,
                          size_t n_runs)
{
    assert(n_runs <= HELD_RUNS_MAX);
    memset(state, 0, quota->derived.state_size);
    for (size_t i = 0; i < n_runs; i++) {
        struct stint_ask ask = algorithm_carry_ask(quota, &runs[i]);
        algorithm_wide_ask(quota, state, &ask);
    }
}
