/* SPDX-License-Identifier: MIT */
/* The curves of `stint plan` as a picture, for plots/plan.gp: a set of rows for each period. */
#define _GNU_SOURCE
#include "algorithm/spec.h"
#include "base/buf.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"
#include "cmd/plan/plan.h"

#include <inttypes.h>

#define CURVES_MAX (PLAN_PERIODS_MAX * PLAN_ALGORITHMS_MAX)
#define TITLE_COLUMNS 80
#define NAME_MAX_LEN 64

/* "window, per 1m" */
static struct span name_curve(const struct plan_curve *curve, char name[NAME_MAX_LEN])
{
    struct buf buf = buf_of(name, NAME_MAX_LEN);
    buf_add(&buf, "%s, per ", stint_algorithm_name((int)curve->algorithm));
    spec_format_duration(&buf, curve->period_ns);
    return span_of_text(name);
}

static void add_curve(struct plot *plot, const struct plan_curve *curve)
{
    plot_set(plot, "limit keys requests");
    for (size_t i = 0; i < curve->n_points; i++) {
        const struct plan_proposal *point = &curve->points[i];
        plot_data(plot, "%" PRIu32 " %" PRIu64 " %" PRIu64 "\n", point->quota.limit,
                  point->touch.keys, point->touch.requests);
    }
}

static int fill(struct plot *plot, const struct plan_report *report, struct stint_error *error)
{
    char texts[CURVES_MAX][NAME_MAX_LEN];
    struct span names[CURVES_MAX];
    size_t n = 0;
    plot_init(plot, plot_plan);
    for (size_t i = 0; i < report->result->n_curves; i++) {
        const struct plan_curve *curve = &report->result->curves[i];
        if (curve->n_points == 0)
            continue;
        names[n] = name_curve(curve, texts[n]);
        n++;
        add_curve(plot, curve);
    }
    plot_text(plot, "title", span_of_text(report->log->name), TITLE_COLUMNS);
    plot_names(plot, "name", names, n);
    return plot_check(plot, error);
}

int plan_draw(const struct plan_report *report)
{
    struct plot plot;
    struct stint_error error;
    int result = CMD_BAD_INPUT;
    size_t n_points = 0;
    for (size_t i = 0; i < report->result->n_curves; i++)
        n_points += report->result->curves[i].n_points;
    if (n_points == 0) {
        print_message("there is nothing to draw: no limit was found");
        return result;
    }
    if (fill(&plot, report, &error) == 0)
        result = gnuplot_draw(&report->options->plot, &plot);
    else
        print_message("%s", error.message);
    plot_deinit(&plot);
    return result;
}
