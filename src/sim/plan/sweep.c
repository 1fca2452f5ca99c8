/* SPDX-License-Identifier: MIT */
/*
 * Runs a sweep: every demand, seed by seed, past all settings at once; and what came of it.
 *
 * A round begins with states that were never used and lets some periods go by before it measures.
 * Units of the first and of the last measured period count by part, rising and falling, so that it
 * hardly matters where in a period a quota is that gives back all of its units at one instant.
 */
#include "sim/plan/sweep.h"

#include "algorithm/algorithm.h"
#include "base/wide_int.h"
#include "sim/workload/workload.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WARM_PERIODS 2    /* no state remembers longer */
#define ONOFF_ALPHA 1.5   /* heavy tails: the variance is infinite, the mean is not */
#define PHASE_STREAM 4711 /* of the seed: what the workload does not draw from */

/* ---- One round ---- */

static uint64_t round_ns(const struct sweep_terms *terms)
{
    return (WARM_PERIODS + terms->periods + UINT64_C(1)) * terms->period_ns;
}

/* By how much a unit counts that is admitted at this instant. */
static double weight_at(const struct sweep_terms *terms, uint64_t at_ns)
{
    uint64_t from_ns = WARM_PERIODS * terms->period_ns, to_ns = round_ns(terms);
    if (at_ns < from_ns || at_ns >= to_ns)
        return 0;
    uint64_t inside_ns = min_u64(at_ns - from_ns, to_ns - at_ns);
    return inside_ns >= terms->period_ns ? 1 : (double)inside_ns / (double)terms->period_ns;
}

static struct stint_decision ask(const struct sweep *sweep, const struct sweep_setting *setting,
                                 const struct stint_ask *ask)
{
    return stint_state_ask(&setting->quota, sweep->states + setting->state_at, ask);
}

static void count(struct sweep *sweep, size_t at, const struct stint_ask *ask, uint32_t granted)
{
    struct sweep_setting *setting = &sweep->settings[at];
    sweep->weighed[at] += granted * weight_at(&sweep->terms, ask->now_ns);
    if (setting->quota.algorithm != STINT_BUCKETS)
        return;
    uint32_t alive =
        buckets_living(&setting->quota, sweep->states + setting->state_at, ask->now_ns);
    if (alive > setting->most_alive)
        setting->most_alive = alive;
}

/* One unit is asked of every setting. */
static void ask_all(struct sweep *sweep, uint64_t now_ns)
{
    struct stint_ask one = {.now_ns = now_ns, .cost = 1, .verb = STINT_TAKE};
    for (size_t i = 0; i < sweep->n_settings; i++)
        if (ask(sweep, &sweep->settings[i], &one).outcome == STINT_ALLOW)
            count(sweep, i, &one, 1);
    sweep->asked += sweep->n_settings;
}

static void run_smooth(struct sweep *sweep, double phase)
{
    const struct sweep_terms *terms = &sweep->terms;
    double gap_ns = (double)terms->period_ns / ((double)terms->limit * terms->demand);
    double end_ns = (double)round_ns(terms);
    for (uint64_t i = 0; ((double)i + phase) * gap_ns < end_ns; i++)
        ask_all(sweep, (uint64_t)(((double)i + phase) * gap_ns));
}

/* Every setting by itself: each is asked again when it has said that something will be free. */
static void run_greedy(struct sweep *sweep, double phase)
{
    uint64_t begin_ns = (uint64_t)(phase * (double)sweep->terms.period_ns);
    uint64_t end_ns = round_ns(&sweep->terms);
    for (size_t i = 0; i < sweep->n_settings; i++) {
        const struct sweep_setting *setting = &sweep->settings[i];
        struct stint_ask all = {.now_ns = begin_ns, .cost = UINT32_MAX, .verb = STINT_TAKE_UPTO};
        while (all.now_ns < end_ns) {
            struct stint_decision decision = ask(sweep, setting, &all);
            sweep->asked++;
            if (decision.outcome == STINT_ALLOW)
                count(sweep, i, &all, decision.granted);
            else if (decision.outcome == STINT_NEVER || decision.retry_after_ns >= end_ns)
                break;
            else
                all.now_ns += decision.retry_after_ns;
        }
    }
}

static void workload_text(const struct sweep_terms *terms, const struct sweep_demand *demand,
                          char *text, size_t text_size)
{
    if (demand->burstiness == SWEEP_POISSON) {
        snprintf(text, text_size, "poisson load=%.9f", terms->demand);
        return;
    }
    uint64_t cycle_ns = demand->cycle_ns > 0 ? demand->cycle_ns : terms->period_ns;
    uint64_t on_ns = max_u64(1, (uint64_t)(demand->on_share * (double)cycle_ns));
    snprintf(text, text_size, "onoff load=%.9f on=%lluns off=%lluns alpha=%.2f", terms->demand,
             (unsigned long long)on_ns, (unsigned long long)(cycle_ns - on_ns), ONOFF_ALPHA);
}

static int run_workload(struct sweep *sweep, const struct sweep_demand *demand, uint64_t seed,
                        struct stint_error *error)
{
    char text[128];
    struct workload workload;
    struct sim_event event;
    const struct workload_terms terms = {
        .quota = &sweep->settings[0].quota, .seed = seed, .end_ns = round_ns(&sweep->terms)};
    workload_text(&sweep->terms, demand, text, sizeof(text));
    int code = workload_parse(&workload, text, error);
    if (code == 0)
        code = workload_begin(&workload, &terms, error);
    if (code != 0)
        return code;
    while (workload_next(&workload, &event))
        ask_all(sweep, event.at_ns);
    workload_end(&workload);
    return 0;
}

static double *share_at(const struct sweep *sweep, size_t setting, size_t demand, uint32_t seed)
{
    return &sweep->shares[(demand * sweep->terms.seeds + seed) * sweep->n_settings + setting];
}

int sweep_round(struct sweep *sweep, struct stint_error *error)
{
    const struct sweep_terms *terms = &sweep->terms;
    assert(sweep->rounds < sweep_rounds(sweep));
    size_t demand = sweep->rounds % sweep->n_demands;
    uint32_t seed = (uint32_t)(sweep->rounds / sweep->n_demands);
    struct random random;
    random_init(&random, terms->seed + seed, PHASE_STREAM);
    double phase = random_unit(&random);
    memset(sweep->states, 0, sweep->states_size * sizeof(*sweep->states));
    memset(sweep->weighed, 0, sweep->n_settings * sizeof(*sweep->weighed));
    int code = 0;
    if (sweep->demands[demand].burstiness == SWEEP_SMOOTH)
        run_smooth(sweep, phase);
    else if (sweep->demands[demand].burstiness == SWEEP_GREEDY)
        run_greedy(sweep, phase);
    else
        code = run_workload(sweep, &sweep->demands[demand], terms->seed + seed, error);
    if (code != 0)
        return code;
    for (size_t i = 0; i < sweep->n_settings; i++)
        *share_at(sweep, i, demand, seed) =
            sweep->weighed[i] / ((double)terms->limit * (double)terms->periods);
    sweep->rounds++;
    return 0;
}

static int check_terms(const struct sweep *sweep, struct stint_error *error)
{
    const struct sweep_terms *terms = &sweep->terms;
    assert(terms->seeds > 0 && terms->seeds <= SWEEP_SEEDS_MAX);
    assert(terms->periods > 0 && terms->periods <= SWEEP_PERIODS_MAX);
    struct wide all = wide_mul(terms->period_ns, WARM_PERIODS + terms->periods + UINT64_C(1));
    if (all.hi > 0 || all.lo > STINT_NOW_MAX)
        return err_set(error, STINT_E_RANGE,
                       "%u periods and %d before them are more than 18 years; ask for fewer",
                       (unsigned)terms->periods, WARM_PERIODS + 1);
    if (!(terms->demand * terms->limit * terms->periods <= SWEEP_ASKS_MAX))
        return err_set(error, STINT_E_RANGE,
                       "%g times the limit in %u periods is more than %g requests", terms->demand,
                       (unsigned)terms->periods, SWEEP_ASKS_MAX);
    if (terms->demand * terms->limit > (double)terms->period_ns)
        return err_set(error, STINT_E_RANGE, "more than one request in a nanosecond");
    return 0;
}

int sweep_begin(struct sweep *sweep, struct stint_error *error)
{
    int code = check_terms(sweep, error);
    if (code != 0)
        return code;
    assert(sweep->n_demands > 0 && sweep->states == NULL);
    sweep->states = aligned_alloc(16, sweep->states_size * sizeof(*sweep->states));
    sweep->weighed = calloc(sweep->n_settings, sizeof(*sweep->weighed));
    sweep->shares = calloc(sweep_rounds(sweep) * sweep->n_settings, sizeof(*sweep->shares));
    if (sweep->states == NULL || sweep->weighed == NULL || sweep->shares == NULL)
        return err_set(error, STINT_E_SYSTEM, "out of memory for %zu settings", sweep->n_settings);
    return 0;
}

/* ---- Results ---- */

uint32_t sweep_seeds_done(const struct sweep *sweep, size_t demand)
{
    return (uint32_t)((sweep->rounds + sweep->n_demands - 1 - demand) / sweep->n_demands);
}

double sweep_share(const struct sweep *sweep, size_t setting, size_t demand, uint32_t seed)
{
    return *share_at(sweep, setting, demand, seed);
}

/* Where nobody asked, nothing was lost. */
double sweep_of_exact(const struct sweep *sweep, size_t setting, size_t demand, uint32_t seed)
{
    double exact = *share_at(sweep, 0, demand, seed);
    return exact > 0 ? *share_at(sweep, setting, demand, seed) / exact : 1;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Between two of the sorted values where the place is between them. */
static double quantile(const double *sorted, uint32_t n, double part)
{
    double place = part * (n - 1);
    uint32_t below = (uint32_t)place;
    double rest = place - below;
    return rest > 0 ? sorted[below] + rest * (sorted[below + 1] - sorted[below]) : sorted[below];
}

struct sweep_spread sweep_spread(const struct sweep *sweep, size_t setting, size_t demand,
                                 double (*figure)(const struct sweep *sweep, size_t setting,
                                                  size_t demand, uint32_t seed))
{
    double values[SWEEP_SEEDS_MAX];
    uint32_t n = sweep_seeds_done(sweep, demand);
    if (n == 0)
        return (struct sweep_spread){0};
    for (uint32_t seed = 0; seed < n; seed++)
        values[seed] = figure(sweep, setting, demand, seed);
    qsort(values, n, sizeof(*values), by_size);
    return (struct sweep_spread){quantile(values, n, 0.25), quantile(values, n, 0.5),
                                 quantile(values, n, 0.75)};
}

/* ---- Comparisons ---- */

/* The sign test: r heads or more of n fair throws, or as many tails, in at most 1 case of 20. */
uint32_t sweep_agreeing(uint32_t n)
{
    double exactly = 1, tail = 0; /* the chance of r heads, and of r or more */
    for (uint32_t i = 0; i < n; i++)
        exactly /= 2;
    uint32_t r = n + 1;
    while (r > 0 && 2 * (tail + exactly) <= 0.05) {
        tail += exactly;
        r--;
        exactly *= (double)r / (double)(n - r + 1);
    }
    return r;
}

bool sweep_is_worse(const struct sweep *sweep, size_t setting, size_t than, size_t demand)
{
    uint32_t n = sweep_seeds_done(sweep, demand), less = 0;
    for (uint32_t seed = 0; seed < n; seed++)
        less += sweep_share(sweep, setting, demand, seed) < sweep_share(sweep, than, demand, seed);
    return less >= sweep_agreeing(n);
}

size_t sweep_best_split(const struct sweep *sweep, uint32_t buckets, size_t demand)
{
    size_t best = 0;
    double most = -1;
    for (size_t i = 0; i < sweep->n_settings; i++) {
        const struct sweep_setting *setting = &sweep->settings[i];
        if (setting->group != SWEEP_SPLIT || setting->buckets != buckets)
            continue;
        double median = sweep_spread(sweep, i, demand, sweep_of_exact).median;
        if (median > most) {
            most = median;
            best = i;
        }
    }
    return best;
}
