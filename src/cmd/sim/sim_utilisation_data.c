/* SPDX-License-Identifier: MIT */
/* What `stint sim utilisation` found, for programs: CSV and JSON with every figure. */
#define _GNU_SOURCE
#include "cmd/lib/json_text.h"
#include "cmd/sim/sim_utilisation.h"

#include <inttypes.h>

/* By enum sweep_group. */
static const char *const groups[] = {"exact", "window", "split", "grid", "also"};

/* ---- CSV ---- */

/* A field that does not apply is empty. */
static void put_number(FILE *out, bool applies, uint64_t number)
{
    if (applies)
        fprintf(out, "%" PRIu64, number);
    putc(',', out);
}

static void put_spread(FILE *out, struct sweep_spread spread)
{
    fprintf(out, ",%.6f,%.6f,%.6f", spread.low, spread.median, spread.high);
}

static void put_line(const struct sweep *sweep, FILE *out, size_t setting, size_t demand)
{
    char spec[512];
    const struct sweep_setting *at = &sweep->settings[setting];
    const struct stint_quota *quota = &at->quota;
    bool split = at->group == SWEEP_SPLIT, buckets = quota->algorithm == STINT_BUCKETS;
    stint_quota_format(quota, spec, sizeof(spec)); /* has no comma and no quote */
    fprintf(out, "%s,%s,%s,", sweep->demands[demand].name, groups[at->group], spec);
    put_number(out, split, at->buckets);
    put_number(out, split, at->timed);
    put_number(out, quota->time_slack_ns > 0, quota->time_slack_ns);
    put_number(out, quota->count_slack > 0, quota->count_slack);
    put_number(out, quota->algorithm == STINT_WINDOW, quota->resolution);
    put_number(out, true, stint_state_size(quota));
    put_number(out, buckets, quota->derived.max_buckets);
    put_number(out, buckets, at->most_alive);
    fprintf(out, "%u", (unsigned)sweep_seeds_done(sweep, demand));
    put_spread(out, sweep_spread(sweep, setting, demand, sweep_share));
    put_spread(out, sweep_spread(sweep, setting, demand, sweep_of_exact));
    putc('\n', out);
}

void utilisation_print_csv(const struct sweep *sweep, FILE *out)
{
    fputs("burstiness,group,spec,buckets,timed_buckets,time_slack_ns,count_slack,resolution,"
          "state_bytes,max_buckets,most_alive,seeds,share_low,share_median,share_high,"
          "of_exact_low,of_exact_median,of_exact_high\n",
          out);
    for (size_t d = 0; d < sweep->n_demands; d++)
        for (size_t i = 0; i < sweep->n_settings; i++)
            put_line(sweep, out, i, d);
}

/* ---- JSON ---- */

static json_t *count_or_null(bool applies, uint64_t count)
{
    return applies ? json_text_ns(count) : json_null();
}

static json_t *spread_json(struct sweep_spread spread)
{
    return json_pack("{s:f, s:f, s:f}", "low", spread.low, "median", spread.median, "high",
                     spread.high);
}

static json_t *results_json(const struct sweep *sweep, size_t setting)
{
    json_t *results = json_object();
    for (size_t d = 0; d < sweep->n_demands; d++)
        json_object_set_new(
            results, sweep->demands[d].name,
            json_pack("{s:o, s:o}", "share",
                      spread_json(sweep_spread(sweep, setting, d, sweep_share)), "of_exact",
                      spread_json(sweep_spread(sweep, setting, d, sweep_of_exact))));
    return results;
}

static json_t *setting_json(const struct sweep *sweep, size_t setting)
{
    char spec[512];
    const struct sweep_setting *at = &sweep->settings[setting];
    const struct stint_quota *quota = &at->quota;
    bool split = at->group == SWEEP_SPLIT, buckets = quota->algorithm == STINT_BUCKETS;
    stint_quota_format(quota, spec, sizeof(spec));
    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:o, s:o}", "spec", spec,
                     "group", groups[at->group], "buckets", count_or_null(split, at->buckets),
                     "timed_buckets", count_or_null(split, at->timed), "time_slack_ns",
                     count_or_null(quota->time_slack_ns > 0, quota->time_slack_ns), "count_slack",
                     count_or_null(quota->count_slack > 0, quota->count_slack), "resolution",
                     count_or_null(quota->algorithm == STINT_WINDOW, quota->resolution),
                     "state_bytes", (json_int_t)stint_state_size(quota), "max_buckets",
                     count_or_null(buckets, quota->derived.max_buckets), "most_alive",
                     count_or_null(buckets, at->most_alive), "results",
                     results_json(sweep, setting));
}

static json_t *best_json(const struct sweep *sweep, uint32_t buckets, size_t demand)
{
    char spec[512];
    struct utilisation_ties ties;
    size_t best = sweep_best_split(sweep, buckets, demand);
    if (best == 0)
        return NULL;
    const struct sweep_setting *at = &sweep->settings[best];
    stint_quota_format(&at->quota, spec, sizeof(spec));
    return json_pack("{s:I, s:s, s:s, s:I, s:s}", "buckets", (json_int_t)buckets, "burstiness",
                     sweep->demands[demand].name, "spec", spec, "timed_buckets",
                     (json_int_t)at->timed, "as_good",
                     utilisation_ties(&ties, sweep, best, demand));
}

static json_t *all_best_json(const struct utilisation_options *options, const struct sweep *sweep)
{
    json_t *all = json_array();
    for (size_t b = 0; b < options->n_buckets; b++)
        for (size_t d = 0; d < sweep->n_demands; d++) {
            json_t *best = best_json(sweep, options->buckets[b], d);
            if (best != NULL)
                json_array_append_new(all, best);
        }
    return all;
}

int utilisation_print_json(const struct utilisation_options *options, const struct sweep *sweep)
{
    const struct sweep_terms *terms = &sweep->terms;
    json_t *names = json_array(), *settings = json_array();
    for (size_t d = 0; d < sweep->n_demands; d++)
        json_array_append_new(names, json_string(sweep->demands[d].name));
    for (size_t i = 0; i < sweep->n_settings; i++)
        json_array_append_new(settings, setting_json(sweep, i));
    return json_text_print(
        json_pack("{s:I, s:o, s:f, s:I, s:I, s:I, s:I, s:I, s:b, s:o, s:o, s:o}", "limit",
                  (json_int_t)terms->limit, "period_ns", json_text_ns(terms->period_ns), "demand",
                  terms->demand, "periods", (json_int_t)terms->periods, "seed",
                  (json_int_t)terms->seed, "seeds", (json_int_t)terms->seeds, "rounds_done",
                  (json_int_t)sweep->rounds, "decisions", (json_int_t)sweep->asked, "partial",
                  (int)(sweep->rounds < sweep_rounds(sweep)), "burstiness", names, "settings",
                  settings, "best_splits", all_best_json(options, sweep)),
        true);
}
