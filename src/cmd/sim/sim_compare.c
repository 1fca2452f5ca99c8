/* SPDX-License-Identifier: MIT */
/* `stint sim compare`: the same workload under several quotas, each on its own. */
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
#include <string.h>

/* The columns of the table; JSON and CSV have all metrics. */
static const struct column {
    const char *figure, *title;
} columns[] = {
    {"most_admitted", "most in a window"},
    {"share_allowed", "allowed"},
    {"utilisation", "utilisation"},
    {"share_false", "denied falsely"},
    {"false_longest", "row of these"},
    {"unjustified_denials", "unjustified"},
    {"bytes_per_key", "bytes"},
    {"fairness_keys", "fairness"},
    {"ns_per_decision", "ns"},
};
#define N_COLUMNS (sizeof(columns) / sizeof(*columns))
#define CELL_MAX 96

/* "0.912", or "0.912 (0.900-0.920)" where the seeds differ. */
static void write_cell(char *cell, const struct sim_runs *runs, const struct sim_figure *figure)
{
    struct sim_spread spread = sim_spread_of(runs, figure, 0);
    struct sim_number median, least, most;
    sim_number(&median, figure->form, spread.median);
    sim_number(&least, figure->form, spread.least);
    sim_number(&most, figure->form, spread.most);
    int len = snprintf(cell, CELL_MAX, "%.40s", median.text);
    if (strcmp(least.text, most.text) != 0)
        len +=
            snprintf(cell + len, CELL_MAX - (size_t)len, " (%.20s-%.20s)", least.text, most.text);
    if (strcmp(figure->name, "most_admitted") == 0)
        snprintf(cell + len, CELL_MAX - (size_t)len, " of %" PRIu64,
                 stint_max_in_any_window(runs->quotas));
}

static void print_table(const struct sim_work *work, const struct sim_runs *runs, size_t n_runs)
{
    struct formatted decisions;
    struct sim_spec spec;
    char cell[CELL_MAX];
    size_t widths[N_COLUMNS], name_width = strlen("quota");
    const struct tally *first = runs[0].tallies;
    printf("%s: %s decisions of the first, %" PRIu64 " seed%s from %" PRIu64 "%s\n\n",
           work->options->workload_text,
           format_count(&decisions, runs[0].n_done > 0 ? first->decisions : 0),
           work->options->n_seeds, work->options->n_seeds == 1 ? "" : "s", work->options->seed,
           work->interrupted ? "; interrupted, so that the last is partial" : "");
    for (size_t i = 0; i < n_runs; i++) {
        size_t len = strlen(sim_spec(&spec, runs[i].quotas));
        name_width = len > name_width ? len : name_width;
    }
    for (size_t c = 0; c < N_COLUMNS; c++) {
        widths[c] = strlen(columns[c].title);
        for (size_t i = 0; i < n_runs; i++) {
            write_cell(cell, &runs[i], sim_figure_named(columns[c].figure));
            widths[c] = strlen(cell) > widths[c] ? strlen(cell) : widths[c];
        }
    }
    printf("%-*s", (int)name_width, "quota");
    for (size_t c = 0; c < N_COLUMNS; c++)
        printf("  %*s", (int)widths[c], columns[c].title);
    putchar('\n');
    for (size_t i = 0; i < n_runs; i++) {
        printf("%-*s", (int)name_width, sim_spec(&spec, runs[i].quotas));
        for (size_t c = 0; c < N_COLUMNS; c++) {
            write_cell(cell, &runs[i], sim_figure_named(columns[c].figure));
            printf("  %*s", (int)widths[c], cell);
        }
        putchar('\n');
    }
}

static void print_csv_number(double value)
{
    if (isnan(value))
        putchar(',');
    else
        printf(",%.10g", value);
}

static void print_csv(const struct sim_runs *runs, size_t n_runs)
{
    struct sim_spec spec;
    fputs("quota,limit,period_ns,max_in_any_window,runs", stdout);
    for (const struct sim_figure *figure = sim_metrics; figure->name != NULL; figure++)
        printf(",%s,%s_min,%s_max", figure->name, figure->name, figure->name);
    putchar('\n');
    for (size_t i = 0; i < n_runs; i++) {
        const struct stint_quota *quota = runs[i].quotas;
        printf("\"%s\",%" PRIu32 ",%" PRIu64 ",%" PRIu64 ",%zu", sim_spec(&spec, quota),
               quota->limit, quota->period_ns, stint_max_in_any_window(quota), runs[i].n_done);
        for (const struct sim_figure *figure = sim_metrics; figure->name != NULL; figure++) {
            struct sim_spread spread = sim_spread_of(&runs[i], figure, 0);
            print_csv_number(spread.median);
            print_csv_number(spread.least);
            print_csv_number(spread.most);
        }
        putchar('\n');
    }
}

static int print_json(const struct sim_work *work, const struct sim_runs *runs, size_t n_runs)
{
    json_t *object = sim_json_head(work);
    json_t *quotas = json_array();
    for (size_t i = 0; i < n_runs; i++) {
        json_t *quota = sim_json_quota(&runs[i], 0);
        json_object_update_new(quota, sim_json_figures(&runs[i], true, 0));
        json_object_update_new(quota, sim_json_figures(&runs[i], false, 0));
        json_array_append_new(quotas, quota);
    }
    json_object_set_new(object, "quotas", quotas);
    return json_text_print(object, true);
}

static int report(const struct sim_work *work, const struct sim_runs *runs, size_t n_runs)
{
    int result = CMD_DONE, warned = CMD_DONE;
    if (work->options->csv)
        print_csv(runs, n_runs);
    else if (!work->options->json)
        print_table(work, runs, n_runs);
    else if (print_json(work, runs, n_runs) != 0)
        result = CMD_BAD_INPUT;
    for (size_t i = 0; i < n_runs; i++)
        if (sim_work_warn(work, &runs[i]) != CMD_DONE)
            warned = CMD_BAD_INPUT;
    if (work->options->gnuplot.format != GNUPLOT_NONE && runs[0].n_done > 0) {
        int drawn = sim_plot_compare(work, runs, n_runs);
        result = drawn != CMD_DONE ? drawn : result;
    }
    return warned != CMD_DONE ? warned : result;
}

static int compare(struct sim_options *options, struct sim_runs *runs)
{
    struct stint_error error;
    struct sim_log log;
    struct sim_work work = {.options = options, .log = &log};
    int result = CMD_BAD_INPUT;
    size_t n_runs = 0;
    int code = sim_log_read(&log, options, &error);
    /* All receive the same requests, for the same time. */
    const struct run_options all = {
        .quotas = options->quotas, .n_quotas = options->n_quotas, .length_ns = options->length_ns};
    options->length_ns = run_length_ns(&all);
    progress_begin(&work.progress, 0);
    work.progress.what = "decisions";
    while (code == 0 && n_runs < options->n_quotas && !work.interrupted) {
        runs[n_runs] = (struct sim_runs){
            .quotas = &options->quotas[n_runs], .workload_quota = options->quotas, .n_quotas = 1};
        code = sim_work_do(&work, &runs[n_runs++], &error);
    }
    progress_end(&work.progress);
    if (code == 0)
        result = report(&work, runs, n_runs);
    else
        print_message("%s", error.message);
    for (size_t i = 0; i < n_runs; i++)
        sim_runs_free(&runs[i]);
    sim_log_free(&log);
    return result;
}

int sim_compare_main(int argc, char **argv)
{
    struct sim_options *options = calloc(1, sizeof(*options));
    struct sim_runs *runs = calloc(STINT_ITEMS_MAX, sizeof(*runs));
    int result = CMD_BAD_INPUT;
    if (options != NULL && runs != NULL) {
        sim_options_parse(options, SIM_COMPARE, argc, argv);
        interrupt_catch();
        result = compare(options, runs);
    } else {
        print_message("out of memory");
    }
    free(runs);
    free(options);
    return result;
}
