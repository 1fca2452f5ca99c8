/* SPDX-License-Identifier: MIT */
/* The log in memory, and what the limits of each algorithm and period would do to it. */
#define _GNU_SOURCE
#include "cmd/plan/plan.h"

#include "base/ns.h"
#include "base/wide_int.h"
#include "cmd/lib/signals.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* ---- The log in memory ----------------------------------------------------------------------- */

#define STEP 256 /* events between two updates of the progress bar */

static int read_all(struct plan_log *log, struct event_list *events, struct event_source *source,
                    struct stint_error *error)
{
    struct progress progress;
    struct event event;
    int code;
    progress_begin(&progress, source->size);
    while ((code = event_source_next(source, &event, error)) > 0) {
        struct event_entry entry = {.at_ns = event.at_ns, .cost = event.cost};
        code = key_set_add(&log->names, event.key, &entry.key, error);
        if (code == 0)
            code = event_list_add(events, entry, error);
        if (code != 0)
            break;
        if (events->n_entries % STEP == 0)
            progress_step(&progress, event_source_bytes_read(source));
    }
    progress_end(&progress);
    return code;
}

static void put_in_order(struct plan_log *log, struct event_list *events)
{
    log->first_ns = log->last_ns = events->entries[0].at_ns;
    uint64_t latest_ns = 0;
    for (size_t i = 0; i < events->n_entries; i++) {
        uint64_t *at_ns = &events->entries[i].at_ns;
        log->first_ns = *at_ns < log->first_ns ? *at_ns : log->first_ns;
        log->late += *at_ns < latest_ns;
        latest_ns = *at_ns > latest_ns ? *at_ns : latest_ns;
        *at_ns = latest_ns;
    }
    log->last_ns = latest_ns;
}

static int group(struct plan_log *log, struct event_list *events,
                 const struct source_options *source, struct stint_error *error)
{
    int code = source->no_sort ? 0 : event_list_sort(events, error);
    if (code != 0)
        return code;
    if (events->n_entries == 0)
        return err_set(error, STINT_E_SYNTAX, "%s holds no request%s", log->name,
                       log->malformed > 0 ? " that can be read" : "");
    put_in_order(log, events);
    uint64_t first_ns = events->entries[0].at_ns;
    uint64_t epoch_ns = log->format == SOURCE_TRACE ? 0 : first_ns - first_ns % NS_PER_DAY;
    return traffic_init(&log->traffic, events, log->names.n_keys, epoch_ns, error);
}

int plan_log_read(struct plan_log *log, const struct plan_options *options,
                  struct stint_error *error)
{
    uint64_t secret[2];
    struct event_source source;
    struct event_list events = {0};
    *log = (struct plan_log){0};
    if (getrandom(secret, sizeof(secret), 0) != sizeof(secret))
        return err_set(error, STINT_E_SYSTEM, "the system gives no random bytes");
    key_set_init(&log->names, secret);
    int code = event_source_open(&source, &options->source, error);
    if (code != 0)
        return code;
    snprintf(log->name, sizeof(log->name), "%s", source.name);
    code = read_all(log, &events, &source, error);
    log->lines = event_source_lines(&source);
    log->format = source.format;
    log->malformed = source.malformed;
    event_source_close(&source);
    if (code == 0)
        code = group(log, &events, &options->source, error);
    event_list_deinit(&events);
    return code;
}

void plan_log_free(struct plan_log *log)
{
    traffic_deinit(&log->traffic);
    key_set_deinit(&log->names);
}

/* ---- The search ------------------------------------------------------------------------------ */

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
