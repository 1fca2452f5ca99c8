/* SPDX-License-Identifier: MIT */
/*
 * The heat map of `stint sim utilisation`. Of one number of buckets it shows every split, of
 * several those in tenths; of a grid every place; else the resolutions of window. Rows are
 * burstinesses.
 */
#define _GNU_SOURCE
#include "cmd/sim/sim_utilisation.h"

#include "algorithm/spec.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/format.h"
#include "cmd/lib/print.h"
#include "sim/picture/chart.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define COLUMNS_MAX 32
#define ROWS_MAX 96
#define SPLITS_DRAWN 24 /* columns for one number of buckets */

struct sheet {
    const struct utilisation_options *options;
    const struct sweep *sweep;
    size_t n_x, n_y;
    struct utilisation_name x_texts[COLUMNS_MAX], y_texts[ROWS_MAX];
    const char *x_names[COLUMNS_MAX], *y_names[ROWS_MAX];
    double values[COLUMNS_MAX * ROWS_MAX];
};

static void set_cell(struct sheet *sheet, size_t x, size_t y, size_t setting, size_t demand)
{
    sheet->values[y * sheet->n_x + x] =
        setting >= sheet->sweep->n_settings
            ? NAN
            : 100 * utilisation_spread(sheet->sweep, sheet->options->of, setting, demand).median;
}

static size_t first_of(const struct sweep *sweep, enum sweep_group group, uint32_t buckets)
{
    size_t at = 0;
    while (at < sweep->n_settings &&
           !(sweep->settings[at].group == group && sweep->settings[at].buckets == buckets))
        at++;
    return at;
}

static void name(struct utilisation_name *name, const char *format, ...) ERR_PRINTF(2, 3);

static void name(struct utilisation_name *name, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(name->text, sizeof(name->text), format, args);
    va_end(args);
}

/* The first demand is the uppermost row. */
static size_t row_of(const struct sheet *sheet, size_t from_above)
{
    return sheet->n_y - 1 - from_above;
}

/* ---- What is drawn ---- */

static void splits_of_one(struct sheet *sheet)
{
    uint32_t buckets = sheet->options->buckets[0];
    size_t first = first_of(sheet->sweep, SWEEP_SPLIT, buckets);
    sheet->n_x = buckets + 1;
    sheet->n_y = sheet->sweep->n_demands;
    for (size_t a = 0; a <= buckets; a++) {
        name(&sheet->x_texts[a], "%zu", a);
        for (size_t d = 0; d < sheet->sweep->n_demands; d++)
            set_cell(sheet, a, row_of(sheet, d), first + a, d);
    }
    name(&sheet->x_texts[0], "0: B");
    name(&sheet->x_texts[buckets], "A");
    for (size_t d = 0; d < sheet->sweep->n_demands; d++)
        name(&sheet->y_texts[row_of(sheet, d)], "%s", sheet->sweep->demands[d].name);
}

static void splits_in_tenths(struct sheet *sheet)
{
    const struct utilisation_options *options = sheet->options;
    sheet->n_x = 11;
    sheet->n_y = sheet->sweep->n_demands * options->n_buckets;
    for (size_t x = 0; x <= 10; x++)
        name(&sheet->x_texts[x], "%zu", 10 * x);
    name(&sheet->x_texts[0], "0: B");
    name(&sheet->x_texts[10], "all: A");
    for (size_t d = 0; d < sheet->sweep->n_demands; d++)
        for (size_t b = 0; b < options->n_buckets; b++) {
            uint32_t buckets = options->buckets[b];
            size_t y = row_of(sheet, d * options->n_buckets + b);
            size_t first = first_of(sheet->sweep, SWEEP_SPLIT, buckets);
            name(&sheet->y_texts[y], "%s, %u", sheet->sweep->demands[d].name, (unsigned)buckets);
            for (size_t x = 0; x <= 10; x++)
                set_cell(sheet, x, y, first + (buckets * x + 5) / 10, d);
        }
}

static size_t place_in_grid(const struct sweep *sweep, struct sweep_slack slack)
{
    size_t at = 0;
    while (at < sweep->n_settings && !(sweep->settings[at].group == SWEEP_GRID &&
                                       sweep->settings[at].quota.time_slack_ns == slack.time_ns &&
                                       sweep->settings[at].quota.count_slack == slack.count))
        at++;
    return at;
}

static void grid(struct sheet *sheet)
{
    const struct utilisation_options *options = sheet->options;
    sheet->n_x = options->n_time_slacks;
    sheet->n_y = options->n_count_slacks * sheet->sweep->n_demands;
    for (size_t x = 0; x < sheet->n_x; x++) {
        struct buf buf = buf_of(sheet->x_texts[x].text, sizeof(sheet->x_texts[x].text));
        if (options->time_slacks_ns[x] > 0)
            spec_format_duration(&buf, options->time_slacks_ns[x]);
        else
            buf_add(&buf, "none");
    }
    for (size_t i = 0; i < sheet->n_y; i++) {
        size_t y = row_of(sheet, i), demand = i / options->n_count_slacks;
        uint32_t count = options->count_slacks[i % options->n_count_slacks];
        const char *demand_name = sheet->sweep->demands[demand].name;
        if (count > 0)
            name(&sheet->y_texts[y], "%s, %u", demand_name, (unsigned)count);
        else
            name(&sheet->y_texts[y], "%s, none", demand_name);
        for (size_t x = 0; x < sheet->n_x; x++) {
            struct sweep_slack slack = {options->time_slacks_ns[x], count};
            set_cell(sheet, x, y, place_in_grid(sheet->sweep, slack), demand);
        }
    }
}

static void resolutions(struct sheet *sheet)
{
    const struct sweep *sweep = sheet->sweep;
    size_t first = first_of(sweep, SWEEP_WINDOW, 0), end = first;
    while (end < sweep->n_settings && sweep->settings[end].group == SWEEP_WINDOW)
        end++;
    sheet->n_x = end - first;
    sheet->n_y = sweep->n_demands;
    for (size_t d = 0; d < sweep->n_demands; d++) {
        name(&sheet->y_texts[row_of(sheet, d)], "%s", sweep->demands[d].name);
        for (size_t x = 0; x < sheet->n_x; x++) {
            name(&sheet->x_texts[x], "%u", (unsigned)sweep->settings[first + x].quota.resolution);
            set_cell(sheet, x, row_of(sheet, d), first + x, d);
        }
    }
}

/* ---- The picture ---- */

static bool fits(const struct utilisation_options *options, const struct sweep *sweep)
{
    size_t columns = options->n_buckets > 0       ? 11
                     : options->n_time_slacks > 0 ? options->n_time_slacks
                                                  : options->n_resolutions;
    size_t rows = options->n_buckets > 1                                  ? options->n_buckets
                  : options->n_time_slacks > 0 && options->n_buckets == 0 ? options->n_count_slacks
                                                                          : 1;
    if (columns >= 1 && columns <= COLUMNS_MAX && rows * sweep->n_demands <= ROWS_MAX)
        return true;
    print_message("--plot draws %d columns and %d rows at most; ask for fewer values", COLUMNS_MAX,
                  ROWS_MAX);
    return false;
}

static const char *fill(struct sheet *sheet, struct chart_matrix *matrix)
{
    const struct utilisation_options *options = sheet->options;
    bool several = options->n_buckets > 1;
    matrix->y_label =
        several || (options->n_buckets == 0 && options->n_time_slacks > 0) ? "" : "burstiness";
    if (options->n_buckets == 1 && options->buckets[0] < SPLITS_DRAWN) {
        matrix->x_label = "buckets that are there for time, W/O";
        splits_of_one(sheet);
        return "buckets, split between time and count";
    }
    if (options->n_buckets > 0) {
        matrix->x_label = "share of the buckets that is there for time, W/O, in %";
        matrix->y_label = "burstiness, buckets";
        splits_in_tenths(sheet);
        return "buckets, split between time and count";
    }
    if (options->n_time_slacks > 0) {
        matrix->x_label = "time_slack";
        matrix->y_label = "burstiness, count_slack";
        grid(sheet);
        return "buckets, by slack";
    }
    matrix->x_label = "resolution of window";
    resolutions(sheet);
    return "window, by resolution";
}

static int draw(struct sheet *sheet)
{
    const struct sweep_terms *terms = &sheet->sweep->terms;
    bool exact = sheet->options->of == UTILISATION_OF_EXACT;
    struct chart_matrix matrix = {.x_names = sheet->x_names,
                                  .y_names = sheet->y_names,
                                  .values = sheet->values,
                                  .decimals = 1};
    const char *what = fill(sheet, &matrix);
    for (size_t x = 0; x < sheet->n_x; x++)
        sheet->x_names[x] = sheet->x_texts[x].text;
    for (size_t y = 0; y < sheet->n_y; y++)
        sheet->y_names[y] = sheet->y_texts[y].text;
    struct formatted limit, period;
    char title[200], number[16] = "";
    if (sheet->options->n_buckets == 1)
        snprintf(number, sizeof(number), "%u ", (unsigned)sheet->options->buckets[0]);
    snprintf(title, sizeof(title), "%s%s: %s in %s, asked for %.10g times that", number, what,
             format_count(&limit, terms->limit), format_duration(&period, terms->period_ns),
             terms->demand);
    matrix.title = title;
    matrix.value_label = exact ? "% of what an exact count admits" : "% of the limit";
    matrix.n_x = sheet->n_x;
    matrix.n_y = sheet->n_y;
    struct plot plot;
    struct stint_error error;
    int result = CMD_BAD_INPUT;
    if (chart_heat(&plot, &matrix, &error) == 0)
        result = gnuplot_draw(&sheet->options->gnuplot, &plot);
    else
        print_message("%s", error.message);
    plot_deinit(&plot);
    return result;
}

int utilisation_draw(const struct utilisation_options *options, const struct sweep *sweep)
{
    if (!fits(options, sweep))
        return CMD_BAD_INPUT;
    struct sheet *sheet = calloc(1, sizeof(*sheet));
    if (sheet == NULL) {
        print_message("out of memory for the picture");
        return CMD_BAD_INPUT;
    }
    sheet->options = options;
    sheet->sweep = sweep;
    int result = draw(sheet);
    free(sheet);
    return result;
}
