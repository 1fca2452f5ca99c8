/* SPDX-License-Identifier: MIT */
/* `stint sim run`: one list of quotas, one workload, all metrics. */
#define _GNU_SOURCE
#include "cmd/lib/cmd.h"
#include "cmd/lib/format.h"
#include "cmd/lib/interrupt.h"
#include "cmd/lib/json_text.h"
#include "cmd/lib/print.h"
#include "cmd/sim/sim_report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void print_heading(const struct sim_work *work, const struct sim_runs *runs)
{
    const struct sim_options *options = work->options;
    struct formatted length;
    const struct run_options run = {
        .quotas = runs->quotas, .n_quotas = runs->n_quotas, .length_ns = options->length_ns};
    printf("%s: %zu run%s of %s", options->workload_text, runs->n_done,
           runs->n_done == 1 ? "" : "s", format_duration(&length, run_length_ns(&run)));
    if (options->n_seeds > 1)
        printf(", seeds %" PRIu64 " to %" PRIu64, options->seed, options->seed + runs->n_done - 1);
    if (runs->tallies[0].decisions_full)
        printf(", each ended after %s decisions",
               format_count(&length, runs->tallies[0].decisions));
    puts(work->interrupted ? "; interrupted, so the last one is partial\n" : "\n");
    printf("%-30s %14s %14s %14s\n", "", "median", "least", "most");
}

static void print_figure(const struct sim_runs *runs, const struct sim_figure *figure, size_t quota)
{
    struct sim_spread spread = sim_spread_of(runs, figure, quota);
    struct sim_number median, least, most;
    if (isnan(spread.median) || (figure->is_rare && spread.most == 0))
        return;
    printf("  %-28s %14s", figure->label, sim_number(&median, figure->form, spread.median));
    if (spread.least < spread.most)
        printf(" %14s %14s", sim_number(&least, figure->form, spread.least),
               sim_number(&most, figure->form, spread.most));
    putchar('\n');
}

static void print_quota(const struct sim_runs *runs, size_t quota)
{
    struct sim_spec spec;
    const struct stint_quota *terms = &runs->quotas[quota];
    struct formatted limit, bound;
    printf("\n%s: limit %s, at most %s in any window\n", sim_spec(&spec, terms),
           format_count(&limit, terms->limit),
           format_count(&bound, stint_max_in_any_window(terms)));
    for (const struct sim_figure *figure = sim_metrics; figure->name != NULL; figure++)
        if (figure->of_quota)
            print_figure(runs, figure, quota);
}

static void print_text(const struct sim_work *work, const struct sim_runs *runs)
{
    print_heading(work, runs);
    for (const struct sim_figure *figure = sim_metrics; figure->name != NULL; figure++)
        if (!figure->of_quota)
            print_figure(runs, figure, 0);
    for (size_t quota = 0; quota < runs->n_quotas; quota++)
        print_quota(runs, quota);
}

static int print_json(const struct sim_work *work, const struct sim_runs *runs)
{
    json_t *object = sim_json_head(work);
    json_t *quotas = json_array();
    json_object_update_new(object, sim_json_figures(runs, false, 0));
    for (size_t i = 0; i < runs->n_quotas; i++) {
        json_t *quota = sim_json_quota(runs, i);
        json_object_update_new(quota, sim_json_figures(runs, true, i));
        json_array_append_new(quotas, quota);
    }
    json_object_set_new(object, "quotas", quotas);
    return json_text_print(object, true);
}

static int report(const struct sim_work *work, const struct sim_runs *runs)
{
    int result = CMD_DONE;
    if (!work->options->json)
        print_text(work, runs);
    else if (print_json(work, runs) != 0)
        result = CMD_BAD_INPUT;
    int warned = sim_work_warn(work, runs);
    if (work->options->gnuplot.format != GNUPLOT_NONE && runs->n_done > 0) {
        int drawn = sim_plot_run(work, runs);
        result = drawn != CMD_DONE ? drawn : result;
    }
    return warned != CMD_DONE ? warned : result;
}

static int run(struct sim_options *options)
{
    struct stint_error error;
    struct sim_log log;
    struct sim_work work = {.options = options, .log = &log};
    struct sim_runs runs = {.quotas = options->quotas,
                            .workload_quota = options->quotas,
                            .n_quotas = options->n_quotas};
    int result = CMD_BAD_INPUT;
    int code = sim_log_read(&log, options, &error);
    if (code == 0) {
        progress_begin(&work.progress, 0);
        work.progress.what = "decisions";
        code = sim_work_do(&work, &runs, &error);
        progress_end(&work.progress);
    }
    if (code == 0)
        result = report(&work, &runs);
    else
        print_message("%s", error.message);
    sim_runs_free(&runs);
    sim_log_free(&log);
    return result;
}

int sim_run_main(int argc, char **argv)
{
    struct sim_options *options = calloc(1, sizeof(*options));
    if (options == NULL) {
        print_message("out of memory");
        return CMD_BAD_INPUT;
    }
    sim_options_parse(options, SIM_RUN, argc, argv);
    interrupt_catch();
    int result = run(options);
    free(options);
    return result;
}
