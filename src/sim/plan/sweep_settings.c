/* SPDX-License-Identifier: MIT */
/* What a sweep compares: demands by name, and quotas of its limit and period. */
#include "algorithm/spec.h"
#include "sim/plan/sweep.h"

#include <stdlib.h>
#include <string.h>

#define SETTINGS_FIRST 64

/* ---- Demands ---- */

/* `50%`: a whole number from 1 to 99. */
static bool read_share(struct span text, double *share)
{
    unsigned percent = 0;
    if (text.len < 2 || text.len > 3 || text.ptr[text.len - 1] != '%')
        return false;
    for (size_t i = 0; i + 1 < text.len; i++) {
        if (text.ptr[i] < '0' || text.ptr[i] > '9')
            return false;
        percent = 10 * percent + (text.ptr[i] - '0');
    }
    *share = percent / 100.0;
    return percent > 0;
}

/* `onoff:50%` or `onoff:50%/30m`. */
static bool read_onoff(struct span name, struct sweep_demand *demand)
{
    static const char onoff[] = "onoff:";
    size_t head = sizeof(onoff) - 1;
    if (name.len <= head || memcmp(name.ptr, onoff, head) != 0)
        return false;
    struct span rest = span_of(name.ptr + head, name.len - head);
    const uint8_t *slash = memchr(rest.ptr, '/', rest.len);
    size_t share_len = slash == NULL ? rest.len : (size_t)(slash - rest.ptr);
    demand->burstiness = SWEEP_ONOFF;
    if (!read_share(span_of(rest.ptr, share_len), &demand->on_share))
        return false;
    return slash == NULL || (spec_parse_duration(span_of(slash + 1, rest.len - share_len - 1),
                                                 &demand->cycle_ns) == 0 &&
                             demand->cycle_ns >= 100 && demand->cycle_ns <= STINT_NOW_MAX);
}

int sweep_demand_parse(struct sweep_demand *demand, struct span name, struct stint_error *error)
{
    *demand = (struct sweep_demand){0};
    if (name.len < SWEEP_NAME_MAX)
        memcpy(demand->name, name.ptr, name.len);
    bool is_onoff = name.len < SWEEP_NAME_MAX && read_onoff(name, demand);
    if (span_equals(name, "smooth"))
        demand->burstiness = SWEEP_SMOOTH;
    else if (span_equals(name, "poisson"))
        demand->burstiness = SWEEP_POISSON;
    else if (span_equals(name, "greedy"))
        demand->burstiness = SWEEP_GREEDY;
    else if (!is_onoff)
        return err_set(
            error, STINT_E_SYNTAX,
            "expected smooth, poisson, greedy or onoff:SHARE%%[/CYCLE] with a share from "
            "1%% to 99%%, as in onoff:20%% or onoff:20%%/1h");
    return 0;
}

int sweep_add_demand(struct sweep *sweep, const struct sweep_demand *demand,
                     struct stint_error *error)
{
    if (sweep->n_demands == SWEEP_DEMANDS_MAX)
        return err_set(error, STINT_E_RANGE, "more than %d demands", SWEEP_DEMANDS_MAX);
    for (size_t i = 0; i < sweep->n_demands; i++)
        if (strcmp(sweep->demands[i].name, demand->name) == 0)
            return err_set(error, STINT_E_MISMATCH, "%s is there twice", demand->name);
    sweep->demands[sweep->n_demands++] = *demand;
    return 0;
}

/* ---- Settings ---- */

/* The quota is checked here, and its limit and period are the sweep's. */
static int add(struct sweep *sweep, const struct sweep_setting *setting, struct stint_error *error)
{
    struct sweep_setting copy = *setting;
    int code = stint_quota_check(&copy.quota, error);
    if (code != 0)
        return code;
    if (sweep->n_settings == SWEEP_SETTINGS_MAX)
        return err_set(error, STINT_E_RANGE, "more than %d settings", SWEEP_SETTINGS_MAX);
    size_t n = sweep->n_settings;
    if (n == 0 || (n >= SETTINGS_FIRST && (n & (n - 1)) == 0)) {
        size_t size = n == 0 ? SETTINGS_FIRST : 2 * n;
        struct sweep_setting *more = realloc(sweep->settings, size * sizeof(*more));
        if (more == NULL)
            return err_set(error, STINT_E_SYSTEM, "out of memory for %zu settings", size);
        sweep->settings = more;
    }
    copy.state_at = sweep->states_size;
    sweep->states_size += (stint_state_size(&copy.quota) + 15) / 16 * 2; /* aligned to 16 bytes */
    sweep->settings[sweep->n_settings++] = copy;
    return 0;
}

static struct sweep_setting setting_of(const struct sweep *sweep, enum sweep_group group,
                                       enum stint_algorithm algorithm)
{
    return (struct sweep_setting){.group = group,
                                  .quota = {.limit = sweep->terms.limit,
                                            .period_ns = sweep->terms.period_ns,
                                            .algorithm = (uint8_t)algorithm}};
}

int sweep_init(struct sweep *sweep, const struct sweep_terms *terms, struct stint_error *error)
{
    *sweep = (struct sweep){.terms = *terms};
    if (terms->limit == 0)
        return err_set(error, STINT_E_RANGE, "a limit of 0 leaves nothing to be used");
    struct sweep_setting exact = setting_of(sweep, SWEEP_EXACT, STINT_LOG);
    struct stint_error why;
    int code = add(sweep, &exact, &why);
    return code == 0
               ? 0
               : err_set(error, code, "all is held against an exact count, and %s", why.message);
}

void sweep_deinit(struct sweep *sweep)
{
    free(sweep->settings);
    free(sweep->states);
    free(sweep->weighed);
    free(sweep->shares);
    *sweep = (struct sweep){0};
}

int sweep_add_window(struct sweep *sweep, uint32_t resolution, struct stint_error *error)
{
    struct sweep_setting window = setting_of(sweep, SWEEP_WINDOW, STINT_WINDOW);
    window.quota.resolution = resolution;
    return add(sweep, &window, error);
}

int sweep_add_grid(struct sweep *sweep, struct sweep_slack slack, struct stint_error *error)
{
    struct sweep_setting buckets = setting_of(sweep, SWEEP_GRID, STINT_BUCKETS);
    buckets.quota.time_slack_ns = slack.time_ns;
    buckets.quota.count_slack = slack.count;
    return add(sweep, &buckets, error);
}

int sweep_add_quota(struct sweep *sweep, const struct stint_quota *quota, struct stint_error *error)
{
    if (quota->algorithm == STINT_CONCURRENCY)
        return err_set(error, STINT_E_MISMATCH,
                       "concurrency has no period, and so no share of it that is used");
    return add(sweep, &(struct sweep_setting){.group = SWEEP_ALSO, .quota = *quota}, error);
}

static uint64_t div_up(uint64_t part, uint64_t by)
{
    return (part + by - 1) / by;
}

int sweep_add_splits(struct sweep *sweep, uint32_t buckets, struct stint_error *error)
{
    uint32_t limit = sweep->terms.limit;
    uint64_t period_ns = sweep->terms.period_ns;
    if (buckets < 2 || buckets > limit)
        return err_set(error, STINT_E_RANGE, "a limit of %u can be split over 2 to %u buckets",
                       (unsigned)limit, (unsigned)limit);
    struct sweep_setting split = setting_of(sweep, SWEEP_SPLIT, STINT_BUCKETS);
    split.buckets = buckets;
    for (uint32_t timed = 0; timed <= buckets; timed++) {
        bool alone = timed == buckets; /* form A needs one more than there are slots of time */
        split.timed = alone ? buckets - 1 : timed;
        split.quota.time_slack_ns = timed == 0 ? 0 : div_up(period_ns, split.timed);
        split.quota.count_slack = alone ? 0 : (uint32_t)div_up(limit - timed, buckets - timed);
        int code = add(sweep, &split, error);
        if (code != 0)
            return code;
    }
    return 0;
}
