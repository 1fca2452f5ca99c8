/* SPDX-License-Identifier: MIT */
/* What the reports of `stint sim run` and `stint sim compare` are made of. */
#ifndef STINT_CMD_SIM_SIM_REPORT_H
#define STINT_CMD_SIM_SIM_REPORT_H

#include "cmd/sim/sim_options.h"

#include <jansson.h>

struct sim_spec {
    char text[256];
};
const char *sim_spec(struct sim_spec *spec, const struct stint_quota *quota);

/* {"workload", "seed", "runs", "length_ns", "partial"} */
json_t *sim_json_head(const struct sim_work *work);
/* {"quota", "limit", "period_ns", "max_in_any_window", "bound_broken"} */
json_t *sim_json_quota(const struct sim_runs *runs, size_t quota);
/* Each figure as {"median", "min", "max", "by_seed"}, null where it is not known. */
json_t *sim_json_figures(const struct sim_runs *runs, bool of_quota, size_t quota);

/* Draws the key that was denied most, under the first quota, of the first seed; an enum cmd_exit.
 */
int sim_plot_run(const struct sim_work *work, const struct sim_runs *runs);
/* Draws what the first seed made of each of n quotas. */
int sim_plot_compare(const struct sim_work *work, const struct sim_runs *runs, size_t n_runs);

#endif
