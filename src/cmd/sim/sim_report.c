/* SPDX-License-Identifier: MIT */
/* JSON of simulated runs. */
#define _GNU_SOURCE
#include "cmd/sim/sim_report.h"

#include "cmd/lib/json_text.h"

#include <math.h>

const char *sim_spec(struct sim_spec *spec, const struct stint_quota *quota)
{
    stint_quota_format(quota, spec->text, sizeof(spec->text));
    return spec->text;
}

json_t *sim_json_head(const struct sim_work *work)
{
    const struct sim_options *options = work->options;
    const struct run_options run = {
        .quotas = options->quotas, .n_quotas = options->n_quotas, .length_ns = options->length_ns};
    return json_pack("{s:s, s:I, s:I, s:I, s:b}", "workload", options->workload_text, "seed",
                     (json_int_t)options->seed, "runs", (json_int_t)options->n_seeds, "length_ns",
                     (json_int_t)run_length_ns(&run), "partial", (int)work->interrupted);
}

json_t *sim_json_quota(const struct sim_runs *runs, size_t quota)
{
    struct sim_spec spec;
    const struct stint_quota *terms = &runs->quotas[quota];
    bool broken = false;
    for (size_t i = 0; i < runs->n_done; i++)
        broken = broken || runs->tallies[i].quotas[quota].bound_broken;
    return json_pack("{s:s, s:I, s:o, s:o, s:b}", "quota", sim_spec(&spec, terms), "limit",
                     (json_int_t)terms->limit, "period_ns", json_text_ns(terms->period_ns),
                     "max_in_any_window", json_text_ns(stint_max_in_any_window(terms)),
                     "bound_broken", (int)broken);
}

static json_t *number_json(enum sim_form form, double value)
{
    if (isnan(value))
        return json_null();
    bool whole = (form == SIM_COUNT || form == SIM_DURATION) && value == floor(value);
    return whole ? json_integer((json_int_t)value) : json_real(value);
}

static json_t *by_seed_json(const struct sim_runs *runs, const struct sim_figure *figure,
                            size_t quota)
{
    json_t *values = json_array();
    for (size_t i = 0; i < runs->n_done; i++)
        json_array_append_new(values,
                              number_json(figure->form, figure->of(&runs->tallies[i], quota)));
    return values;
}

json_t *sim_json_figures(const struct sim_runs *runs, bool of_quota, size_t quota)
{
    json_t *object = json_object();
    for (const struct sim_figure *figure = sim_metrics; figure->name != NULL; figure++) {
        if (figure->of_quota != of_quota)
            continue;
        struct sim_spread spread = sim_spread_of(runs, figure, quota);
        json_object_set_new(object, figure->name,
                            json_pack("{s:o, s:o, s:o, s:o}", "median",
                                      number_json(figure->form, spread.median), "min",
                                      number_json(figure->form, spread.least), "max",
                                      number_json(figure->form, spread.most), "by_seed",
                                      by_seed_json(runs, figure, quota)));
    }
    return object;
}
