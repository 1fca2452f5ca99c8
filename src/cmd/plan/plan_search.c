/* SPDX-License-Identifier: MIT */
/* Searches period by period, and in each for the target and for the points of the curve. */
#define _GNU_SOURCE
#include "base/wide_int.h"
#include "cmd/lib/interrupt.h"
#include "cmd/plan/plan.h"

#include <stdlib.h>
#include <string.h>

static bool goes_on(void *arg)
{
    (void)arg;
    return !interrupt_seen();
}

/* ---- Touched keys ---- */

struct naming {
    struct plan_named *named;
    size_t n, max;
};

/* A plan_sees: keeps the keys that are denied most; of equal ones the first. */
static void name_key(void *arg, uint32_t key, uint64_t requests)
{
    struct naming *naming = arg;
    size_t at = naming->n;
    while (at > 0 && naming->named[at - 1].denied < requests)
        at--;
    if (at == naming->max)
        return;
    naming->n += naming->n < naming->max;
    memmove(&naming->named[at + 1], &naming->named[at],
            (naming->n - 1 - at) * sizeof(naming->named[0]));
    naming->named[at] = (struct plan_named){key, requests};
}

static int name_keys(struct plan_curve *curve, const struct plan *plan, size_t names,
                     struct stint_error *error)
{
    curve->named = calloc(names, sizeof(*curve->named));
    if (curve->named == NULL)
        return err_set(error, STINT_E_SYSTEM, "out of memory for the names of %zu keys", names);
    struct naming naming = {curve->named, 0, names};
    const struct plan_sees sees = {name_key, &naming};
    struct plan_touch touch;
    int code = plan_try(plan, &curve->proposal.quota, &touch, &sees, error);
    curve->n_named = naming.n;
    return code;
}

/* ---- Curves ---- */

/* 1, 2, 5, 10, 20, 50 … */
static uint64_t next_step(uint64_t step)
{
    uint64_t power = 1;
    while (step >= 10 * power)
        power *= 10;
    return step == 0 ? 1 : step / power == 2 ? 5 * power : 2 * step;
}

static void add_point(struct plan_curve *curve, const struct plan_proposal *point)
{
    const struct stint_quota *before =
        curve->n_points > 0 ? &curve->points[curve->n_points - 1].quota : NULL;
    if (before == NULL || before->limit != point->quota.limit ||
        before->burst != point->quota.burst)
        curve->points[curve->n_points++] = *point;
}

/* Up to a tenth of the keys: a limit that touches more is not of interest. */
static int find_points(struct plan_curve *curve, const struct plan *plan, struct stint_error *error)
{
    uint64_t keys_max = max_u64(plan->traffic->n_keys / 10, 1);
    for (uint64_t keys = 0; keys <= keys_max && curve->n_points < PLAN_POINTS_MAX;
         keys = next_step(keys)) {
        struct plan_proposal point;
        const struct plan_target target = {.of_keys = true, .number = keys};
        int code = plan_least(plan, curve->algorithm, &target, &point, error);
        if (code != 0)
            return code;
        if (point.found == PLAN_FOUND)
            add_point(curve, &point);
    }
    return 0;
}

static int find_curve(struct plan_curve *curve, const struct plan *plan,
                      const struct plan_options *options, struct stint_error *error)
{
    int code = plan_least(plan, curve->algorithm, &options->target, &curve->proposal, error);
    if (code == 0 && curve->proposal.found == PLAN_FOUND)
        code = name_keys(curve, plan, options->names, error);
    return code != 0 ? code : find_points(curve, plan, error);
}

static int find_curves(struct plan_result *result, const struct plan *plan,
                       const struct plan_options *options, struct stint_error *error)
{
    for (size_t i = 0; i < options->n_algorithms; i++) {
        struct plan_curve *curve = &result->curves[result->n_curves];
        *curve =
            (struct plan_curve){.algorithm = options->algorithms[i], .period_ns = plan->period_ns};
        int code = find_curve(curve, plan, options, error);
        if (code != 0) {
            free(curve->named);
            return code;
        }
        result->n_curves++;
    }
    return 0;
}

int plan_search(struct plan_result *result, const struct plan_log *log,
                const struct plan_options *options, struct stint_error *error)
{
    struct plan plan;
    struct progress progress;
    result->n_curves = 0;
    result->interrupted = false;
    int code = plan_init(&plan, &log->traffic, error);
    if (code != 0)
        return code;
    plan.goes_on = goes_on;
    interrupt_catch();
    progress_begin(&progress, options->n_periods);
    progress.what = "periods";
    for (size_t i = 0; code == 0 && i < options->n_periods; i++) {
        progress_step(&progress, i);
        code = plan_set_period(&plan, options->periods_ns[i], error);
        if (code == 0)
            code = find_curves(result, &plan, options, error);
    }
    progress_end(&progress);
    plan_deinit(&plan);
    result->interrupted = code == PLAN_STOPPED;
    return code == PLAN_STOPPED ? 0 : code;
}

void plan_result_free(struct plan_result *result)
{
    for (size_t i = 0; i < result->n_curves; i++)
        free(result->curves[i].named);
    result->n_curves = 0;
}

const struct plan_curve *plan_chosen(const struct plan_result *result)
{
    const struct plan_curve *chosen = NULL;
    for (size_t i = 0; i < result->n_curves; i++) {
        const struct plan_proposal *proposal = &result->curves[i].proposal;
        if (proposal->found == PLAN_FOUND &&
            (chosen == NULL || proposal->touch.requests > chosen->proposal.touch.requests))
            chosen = &result->curves[i];
    }
    return chosen;
}
