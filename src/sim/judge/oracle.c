/* SPDX-License-Identifier: MIT */
/* The stated slack of every algorithm, implemented a second time from its definition. */
#include "sim/judge/oracle.h"

#include "algorithm/calendar.h"
#include "base/ns.h"
#include "base/wide_int.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define TICKS_PER_NS 32

static uint64_t ceil_div(uint64_t n, uint64_t d)
{
    return n / d + (n % d != 0);
}

/* The conditions that the algorithm states, and the second period of one of them. */
static uint64_t state_slack(struct oracle *oracle)
{
    const struct stint_quota *quota = &oracle->quota;
    uint64_t limit = quota->limit;
    oracle->knows = !quota->count_denied && !quota->initial_set;
    switch (quota->algorithm) {
    case STINT_WINDOW: {
        uint64_t bunch = ceil_div(limit, quota->resolution);
        oracle->by_time = true;
        oracle->slack_most = limit - bunch + 1;
        return quota->period_ns + ceil_div(quota->period_ns, quota->resolution);
    }
    case STINT_BUCKETS:
        oracle->by_time = quota->time_slack_ns > 0;
        oracle->by_count = quota->count_slack > 0;
        oracle->slack_most = limit;
        oracle->count_most = limit - max_u64(quota->count_slack, 1) + 1;
        return oracle->by_time ? quota->period_ns + quota->time_slack_ns : 0;
    case STINT_LOG:
    case STINT_CONCURRENCY:
        oracle->by_count = true; /* as buckets of one unit each */
        oracle->count_most = limit;
        return 0;
    default:
        oracle->has_algorithm = true;
        return 0;
    }
}

int oracle_init(struct oracle *oracle, const struct stint_quota *quota, uint32_t n_keys,
                uint64_t bytes_max, struct stint_error *error)
{
    assert(quota->derived.checked);
    memset(oracle, 0, sizeof(*oracle));
    oracle->quota = *quota;
    uint64_t periods_ns[2] = {quota->period_ns};
    periods_ns[1] = quota->limit == 0 ? 0 : state_slack(oracle);
    assert(oracle->slack_most <= quota->limit && oracle->count_most <= quota->limit);
    exact_init(&oracle->exact, periods_ns, periods_ns[1] > 0 ? 2 : 1);
    oracle->exact.bytes_max = bytes_max;
    if (quota->algorithm == STINT_GCRA && quota->limit > 0)
        oracle->interval_ticks = mul_div_up(quota->period_ns, TICKS_PER_NS, quota->limit);
    if (!oracle->has_algorithm)
        return 0;
    oracle->algorithms = calloc(n_keys, sizeof(*oracle->algorithms));
    return oracle->algorithms != NULL
               ? 0
               : err_set(error, STINT_E_SYSTEM, "out of memory for %u keys", n_keys);
}

void oracle_deinit(struct oracle *oracle)
{
    exact_deinit(&oracle->exact);
    free(oracle->algorithms);
    memset(oracle, 0, sizeof(*oracle));
}

void oracle_forget(struct oracle *oracle, uint32_t key)
{
    exact_forget(&oracle->exact, key);
    if (oracle->algorithms != NULL)
        oracle->algorithms[key] = (struct oracle_algorithm){0};
}

/* ---- gcra: TAT = max(TAT, now) + cost T; allowed iff that is within now + burst T ---- */

static uint64_t gcra_tat(const struct oracle *oracle, const struct oracle_ask *ask)
{
    uint64_t now_ticks = ask->now_ns * TICKS_PER_NS;
    return max_u64(oracle->algorithms[ask->key].end_or_number, now_ticks);
}

static bool gcra_denies(const struct oracle *oracle, const struct oracle_ask *ask)
{
    uint64_t ahead = gcra_tat(oracle, ask) - ask->now_ns * TICKS_PER_NS;
    struct wide wanted = wide_mul(oracle->interval_ticks, ask->cost);
    struct wide most = wide_mul(oracle->interval_ticks, oracle->quota.burst);
    wanted.lo += ahead;
    wanted.hi += wanted.lo < ahead;
    return wanted.hi > most.hi || (wanted.hi == most.hi && wanted.lo > most.lo);
}

/* ---- fixed_window: a counter that starts again with each window ---- */

static uint64_t grains_up(uint64_t ns, uint64_t grain_ns)
{
    return ceil_div(ns, grain_ns);
}

/*
 * The end of the window that a use opens. A first use counts from the next grain on, and from one
 * later if the window before extends into that grain.
 */
static uint64_t fixed_end(const struct oracle *oracle, uint64_t before_end_ns, uint64_t now_ns)
{
    const struct stint_quota *quota = &oracle->quota;
    int64_t wall_ns = quota->epoch_ns + (int64_t)now_ns, period_ns = (int64_t)quota->period_ns;
    if (quota->align == STINT_ALIGN_FIRST_USE) {
        uint64_t grain_ns = quota->derived.grain_ns, start = grains_up(now_ns, grain_ns);
        bool shared =
            grain_ns > 1 && before_end_ns > 0 && grains_up(before_end_ns, grain_ns) >= start;
        return (start + shared) * grain_ns + quota->period_ns;
    }
    if (quota->align == STINT_ALIGN_EPOCH) {
        int64_t since_ns = wall_ns % period_ns;
        return now_ns + (uint64_t)(period_ns - (since_ns < 0 ? since_ns + period_ns : since_ns));
    }
    struct calendar_window window =
        calendar_window_of((enum stint_align)quota->align, quota->utc_offset_s, wall_ns);
    return now_ns + (uint64_t)(window.end_ns - wall_ns);
}

static bool fixed_denies(const struct oracle *oracle, const struct oracle_ask *ask)
{
    const struct oracle_algorithm *algorithm = &oracle->algorithms[ask->key];
    uint64_t units = ask->now_ns < algorithm->end_or_number ? algorithm->units : 0;
    return units + ask->cost > oracle->quota.limit;
}

static void fixed_admit(struct oracle *oracle, const struct oracle_ask *ask)
{
    struct oracle_algorithm *algorithm = &oracle->algorithms[ask->key];
    if (ask->now_ns >= algorithm->end_or_number)
        *algorithm = (struct oracle_algorithm){
            fixed_end(oracle, algorithm->end_or_number, ask->now_ns), 0, 0};
    algorithm->units += ask->cost;
}

/* ---- sliding_counter: previous (W - elapsed) + (current + cost) W <= N W ---- */

/* The counters at a given time; a time before their window is its first. */
static struct oracle_algorithm sliding_at(const struct oracle *oracle, const struct oracle_ask *ask,
                                          uint64_t *elapsed_ns)
{
    struct oracle_algorithm algorithm = oracle->algorithms[ask->key];
    uint64_t period_ns = oracle->quota.period_ns, number = ask->now_ns / period_ns;
    *elapsed_ns = 0;
    if (number < algorithm.end_or_number)
        return algorithm;
    *elapsed_ns = ask->now_ns % period_ns;
    if (number == algorithm.end_or_number)
        return algorithm;
    return (struct oracle_algorithm){number, 0,
                                     number == algorithm.end_or_number + 1 ? algorithm.units : 0};
}

static bool sliding_denies(const struct oracle *oracle, const struct oracle_ask *ask)
{
    uint64_t elapsed_ns, period_ns = oracle->quota.period_ns;
    struct oracle_algorithm algorithm = sliding_at(oracle, ask, &elapsed_ns);
    struct wide old = wide_mul(algorithm.before, period_ns - elapsed_ns);
    struct wide sum = wide_mul(algorithm.units + ask->cost, period_ns);
    struct wide most = wide_mul(oracle->quota.limit, period_ns);
    sum.lo += old.lo;
    sum.hi += old.hi + (sum.lo < old.lo);
    return sum.hi > most.hi || (sum.hi == most.hi && sum.lo > most.lo);
}

/* ---- All ---- */

static bool algorithm_denies(const struct oracle *oracle, const struct oracle_ask *ask)
{
    switch (oracle->quota.algorithm) {
    case STINT_GCRA:
        return gcra_denies(oracle, ask);
    case STINT_FIXED_WINDOW:
        return fixed_denies(oracle, ask);
    default:
        return sliding_denies(oracle, ask);
    }
}

static void algorithm_admit(struct oracle *oracle, const struct oracle_ask *ask)
{
    uint64_t elapsed_ns;
    struct oracle_algorithm algorithm;
    switch (oracle->quota.algorithm) {
    case STINT_GCRA:
        oracle->algorithms[ask->key].end_or_number =
            gcra_tat(oracle, ask) + ask->cost * oracle->interval_ticks;
        return;
    case STINT_FIXED_WINDOW:
        fixed_admit(oracle, ask);
        return;
    default:
        algorithm = sliding_at(oracle, ask, &elapsed_ns);
        algorithm.units += ask->cost;
        oracle->algorithms[ask->key] = algorithm;
    }
}

struct oracle_view oracle_look(struct oracle *oracle, const struct oracle_ask *ask)
{
    uint64_t most = exact_units(&oracle->exact, ask->key, 0, ask->counted_ns) + ask->cost;
    struct oracle_view view = {.has_space = most <= oracle->quota.limit, .is_justified = true};
    if (!oracle->knows)
        return view;
    if (oracle->has_algorithm)
        view.is_justified = algorithm_denies(oracle, ask);
    /*
     * Both conditions are about at most the limit and at least the same units: without free units
     * neither can hold.
     */
    if (view.has_space && oracle->by_count && most <= oracle->count_most)
        view.is_justified = false;
    if (view.has_space && oracle->by_time &&
        exact_units(&oracle->exact, ask->key, 1, ask->counted_ns) + ask->cost <= oracle->slack_most)
        view.is_justified = false;
    return view;
}

int oracle_admit(struct oracle *oracle, const struct oracle_ask *ask, struct stint_error *error)
{
    if (oracle->has_algorithm)
        algorithm_admit(oracle, ask);
    return exact_add(&oracle->exact, ask->key, (struct exact_run){ask->counted_ns, ask->cost},
                     error);
}
