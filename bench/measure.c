/* SPDX-License-Identifier: MIT */
/* Options, turns, medians, and a row as text and as JSON. */
#include "measure.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TURNS_DEFAULT 9
#define TURNS_QUICK 3

static uint64_t read_clock(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

uint64_t measure_wall_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

uint64_t measure_thread_ns(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

/* ---- Options --------------------------------------------------------------------------------- */

static const char usage[] =
    "usage: %s [--quick] [--turns N] [--json FILE] [--keys N[k|M]] [--algorithm NAME]\n"
    "       [--spread uniform|zipf|batch] [--only baseline|subject] [--small-pages]\n"
    "\n"
    "  --quick        a fraction of the work: does everything run\n"
    "  --turns        turns of subject and baseline (default 9)\n"
    "  --json         append one line per row to FILE\n"
    "  --keys         tables of this many keys only\n"
    "  --algorithm    gcra, window8 or window16 only\n"
    "  --spread       tables: this row only\n"
    "  --only         one of the two, for a profiler\n"
    "  --small-pages  no huge pages, neither for the table nor for the baseline's memory\n";

static uint64_t read_count(const char *text, const char *program)
{
    char *end;
    uint64_t n = strtoull(text, &end, 10);
    uint64_t unit = *end == 'k' ? 1000 : *end == 'M' ? 1000000 : 1;
    end += unit > 1;
    if (n == 0 || n > 1000000000 || *end != '\0') {
        fprintf(stderr, "%s: %s is not a count\n", program, text);
        exit(2);
    }
    return n * unit;
}

static enum side read_side(const char *text, const char *program)
{
    if (strcmp(text, "baseline") == 0)
        return SIDE_BASELINE;
    if (strcmp(text, "subject") == 0)
        return SIDE_SUBJECT;
    fprintf(stderr, "%s: --only is baseline or subject, not %s\n", program, text);
    exit(2);
}

static FILE *open_json(const char *path, const char *program)
{
    FILE *file = fopen(path, "a");
    if (file == NULL) {
        fprintf(stderr, "%s: cannot write %s\n", program, path);
        exit(2);
    }
    return file;
}

struct bench_options bench_options(int argc, char **argv)
{
    static const struct option names[] = {
        {"quick", no_argument, NULL, 'q'},
        {"turns", required_argument, NULL, 't'},
        {"json", required_argument, NULL, 'j'},
        {"keys", required_argument, NULL, 'k'},
        {"algorithm", required_argument, NULL, 'a'},
        {"spread", required_argument, NULL, 's'},
        {"only", required_argument, NULL, 'o'},
        {"small-pages", no_argument, NULL, 'p'},
        {NULL, 0, NULL, 0},
    };
    struct bench_options options = {.side = SIDE_BOTH};
    int c;
    while ((c = getopt_long(argc, argv, "", names, NULL)) != -1) {
        switch (c) {
        case 'q':
            options.quick = true;
            break;
        case 't':
            options.turns = (unsigned)read_count(optarg, argv[0]);
            break;
        case 'j':
            options.json = open_json(optarg, argv[0]);
            break;
        case 'k':
            options.keys = read_count(optarg, argv[0]);
            break;
        case 'a':
            options.algorithm = optarg;
            break;
        case 's':
            options.spread = optarg;
            break;
        case 'o':
            options.side = read_side(optarg, argv[0]);
            break;
        case 'p':
            options.small_pages = true;
            break;
        default:
            fprintf(stderr, usage, argv[0]);
            exit(2);
        }
    }
    if (options.turns == 0)
        options.turns = options.quick ? TURNS_QUICK : TURNS_DEFAULT;
    if (options.turns > TURNS_MAX)
        options.turns = TURNS_MAX;
    return options;
}

bool bench_wants(const char *option, const char *name)
{
    return option == NULL || strcmp(option, name) == 0;
}

/* ---- Medians --------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The value below which `share` of them lie, between neighbours where it falls between. */
static double quantile(const double *values, unsigned n, double share)
{
    double sorted[TURNS_MAX];
    memcpy(sorted, values, n * sizeof(*values));
    qsort(sorted, n, sizeof(*sorted), by_value);
    double at = share * (n - 1);
    unsigned below = (unsigned)at;
    unsigned above = below + 1 < n ? below + 1 : below;
    return sorted[below] + (sorted[above] - sorted[below]) * (at - below);
}

static double median_of(const double *values, unsigned n)
{
    return quantile(values, n, 0.5);
}

/* ---- Rows ------------------------------------------------------------------------------------ */

void row_add(struct row *row, double baseline, double value)
{
    unsigned turn = row->n_turns++;
    row->baselines[turn] = baseline;
    row->values[turn] = value;
    row->ratios[turn] = row->speed_up ? baseline / value : value / baseline;
}

static bool is_met(const struct row *row)
{
    double figure = median_of(row->baseline != NULL ? row->ratios : row->values, row->n_turns);
    return row->goal == GOAL_AT_LEAST ? figure >= row->reach : figure <= row->reach;
}

static void print_values(FILE *file, const char *name, const double *values, unsigned n)
{
    fprintf(file, ", \"%s\": [", name);
    for (unsigned i = 0; i < n; i++)
        fprintf(file, "%s%.4g", i > 0 ? ", " : "", values[i]);
    fputc(']', file);
}

/* Names and notes are ours, and hold nothing that JSON would want escaped. */
static void write_json(FILE *file, const struct row *row)
{
    unsigned n = row->n_turns;
    fprintf(file, "{\"what\": \"%s\", \"unit\": \"%s\", \"value\": %.4g", row->what, row->unit,
            median_of(row->values, n));
    if (row->baseline != NULL)
        fprintf(file,
                ", \"baseline\": \"%s\", \"baseline_value\": %.4g, \"ratio\": %.4g, "
                "\"ratio_q1\": %.4g, \"ratio_q3\": %.4g",
                row->baseline, median_of(row->baselines, n), median_of(row->ratios, n),
                quantile(row->ratios, n, 0.25), quantile(row->ratios, n, 0.75));
    if (row->goal != GOAL_NONE)
        fprintf(file, ", \"reach\": \"%s %g\", \"met\": %s",
                row->goal == GOAL_AT_LEAST ? ">=" : "<=", row->reach,
                is_met(row) ? "true" : "false");
    if (row->note != NULL)
        fprintf(file, ", \"note\": \"%s\"", row->note);
    print_values(file, "values", row->values, n);
    if (row->baseline != NULL)
        print_values(file, "baseline_values", row->baselines, n);
    fprintf(file, "}\n");
    fflush(file);
}

static void print_text(const struct row *row)
{
    unsigned n = row->n_turns;
    printf("%-44s %8.4g %-4s", row->what, median_of(row->values, n), row->unit);
    if (row->baseline != NULL)
        printf("%s %.4g, ratio %.2f (%.2f to %.2f)", row->baseline, median_of(row->baselines, n),
               median_of(row->ratios, n), quantile(row->ratios, n, 0.25),
               quantile(row->ratios, n, 0.75));
    if (row->goal != GOAL_NONE)
        printf("; to reach %s %g: %s", row->goal == GOAL_AT_LEAST ? ">=" : "<=", row->reach,
               is_met(row) ? "met" : "MISSED");
    if (row->note != NULL)
        printf(" [%s]", row->note);
    printf("\n");
    fflush(stdout);
}

void row_report(const struct bench_options *options, struct row *row)
{
    if (options->quick)
        row->goal = GOAL_NONE;
    print_text(row);
    if (options->json != NULL)
        write_json(options->json, row);
}

/* ---- Turns ----------------------------------------------------------------------------------- */

static double time_turn(void (*run)(void *arg, unsigned turn), const struct duel *duel,
                        unsigned turn)
{
    uint64_t start = measure_thread_ns();
    run(duel->arg, turn);
    return (double)(measure_thread_ns() - start) / (double)duel->ops;
}

void duel_run(const struct bench_options *options, const struct duel *duel, struct row *row)
{
    *row = (struct row){
        .what = duel->what,
        .baseline = duel->baseline_name,
        .unit = "ns",
        .speed_up = duel->speed_up,
        .goal = options->side == SIDE_BOTH ? duel->goal : GOAL_NONE,
        .reach = duel->reach,
    };
    for (unsigned turn = 0; turn <= options->turns; turn++) {
        double baseline = 1, value = 1;
        /* Not the same keys, which the second would find in the cache; and each is first in turn.
         */
        if (turn % 2 == 0 && options->side != SIDE_SUBJECT)
            baseline = time_turn(duel->baseline, duel, 2 * turn);
        if (options->side != SIDE_BASELINE)
            value = time_turn(duel->subject, duel, 2 * turn + 1);
        if (turn % 2 == 1 && options->side != SIDE_SUBJECT)
            baseline = time_turn(duel->baseline, duel, 2 * turn);
        if (turn > 0)
            row_add(row, baseline, value);
    }
}
