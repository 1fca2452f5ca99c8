/* SPDX-License-Identifier: MIT */
/* Pictures of simulated runs: of one key through time, and of quotas side by side. */
#define _GNU_SOURCE
#include "cmd/lib/cmd.h"
#include "cmd/lib/format.h"
#include "cmd/lib/print.h"
#include "cmd/sim/sim_report.h"
#include "sim/picture/chart.h"
#include "sim/picture/picture.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Draws what could be filled, and frees it; an enum cmd_exit. */
static int draw(const struct sim_work *work, struct plot *plot, int code,
                const struct stint_error *error)
{
    int result = CMD_BAD_INPUT;
    if (code == 0)
        result = gnuplot_draw(&work->options->gnuplot, plot);
    else
        print_message("%s", error->message);
    plot_deinit(plot);
    return result;
}

/* ---- One key through time ---- */

struct watch {
    uint64_t key;
    struct history_event *events;
    size_t n_events, size;
    bool lost;
};

static void keep_event(void *arg, const struct sim_event *event,
                       const struct stint_decision *decision)
{
    struct watch *watch = arg;
    if (event->key != watch->key || watch->lost)
        return;
    if (watch->n_events == watch->size) {
        size_t size = watch->size == 0 ? 1024 : watch->size * 2;
        struct history_event *events = realloc(watch->events, size * sizeof(*events));
        watch->lost = events == NULL;
        if (events == NULL)
            return;
        watch->events = events;
        watch->size = size;
    }
    watch->events[watch->n_events++] = (struct history_event){
        .at_ns = event->at_ns,
        .cost = event->cost,
        .granted = decision->outcome == STINT_ALLOW ? event->cost : 0,
    };
}

static int draw_history(const struct sim_work *work, const struct watch *watch,
                        const struct stint_quota *quota)
{
    struct history history;
    struct plot plot = {0};
    struct stint_error error;
    struct formatted date;
    char number[64];
    uint64_t epoch_ns = work->log->epoch_ns;
    struct picture picture = {.history = &history};
    int len = snprintf(number, sizeof(number), "%" PRIu64 " of seed %" PRIu64, watch->key,
                       work->options->seed);
    picture.key = span_of(number, (size_t)len);
    if (work->log->names.n_keys > 0)
        picture.key = key_set_name(&work->log->names, (uint32_t)watch->key);
    picture.origin = epoch_ns > 0 ? format_date(&date, epoch_ns) : NULL;
    int code = history_init(&history, quota, watch->events, watch->n_events, &error);
    if (code == 0)
        code = picture_draw(&plot, &picture, &error);
    int result = draw(work, &plot, code, &error);
    history_deinit(&history);
    return result;
}

/* The first run once more: the same seed does the same, and now the key is known. */
int sim_plot_run(const struct sim_work *work, const struct sim_runs *runs)
{
    const struct sim_options *options = work->options;
    struct watch watch = {.key = runs->tallies[0].denied_most_key};
    struct stint_error error;
    struct tally tally;
    int result = CMD_BAD_INPUT;
    if (options->workload.spec.kind == WORKLOAD_CLOCK_STEPS) {
        print_message(
            "--plot shows time from left to right, and clock_steps has none that goes one way");
        return CMD_BAD_INPUT;
    }
    struct run_options run = sim_work_options(work, runs, 0);
    run.decisions_max = runs->tallies[0].decisions;
    run.without_oracle = true;
    run.goes_on = NULL;
    run.sees = keep_event;
    run.arg = &watch;
    if (run_simulate(&run, &tally, &error) != 0)
        print_message("%s", error.message);
    else if (watch.lost)
        print_message("out of memory for the events of the picture");
    else if (watch.n_events == 0)
        print_message("there is nothing to draw: there were no requests");
    else
        result = draw_history(work, &watch, runs->quotas);
    free(watch.events);
    return result;
}

/* ---- Quotas side by side ---- */

int sim_plot_compare(const struct sim_work *work, const struct sim_runs *runs, size_t n_runs)
{
    struct chart_quota quotas[CHART_QUOTAS_MAX];
    struct sim_spec specs[CHART_QUOTAS_MAX];
    struct plot plot;
    struct stint_error error;
    char title[256];
    size_t n = 0;
    for (; n < n_runs && n < CHART_QUOTAS_MAX && runs[n].n_done > 0; n++) {
        const struct tally *tally = runs[n].tallies;
        quotas[n] = (struct chart_quota){
            .name = sim_spec(&specs[n], runs[n].quotas),
            .admitted = tally->units_allowed,
            .denied = tally->units_asked - tally->units_allowed,
            .denied_falsely = tally->false_units,
            .most = tally->quotas[0].most,
            .limit = runs[n].quotas[0].limit,
            .bound = tally->quotas[0].bound,
        };
    }
    snprintf(title, sizeof(title), "%s, seed %llu", work->options->workload_text,
             (unsigned long long)work->options->seed);
    int code = chart_compare(&plot, title, quotas, n, &error);
    return draw(work, &plot, code, &error);
}
