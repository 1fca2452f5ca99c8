/* SPDX-License-Identifier: MIT */
/*
 * The curves of `stint plan` as a picture: how many keys each limit touches, and below it how many
 * requests it denies. Each period has a curve; both axes are of powers, as few stand beside many.
 */
#define _GNU_SOURCE
#include "algorithm/spec.h"
#include "base/buf.h"
#include "base/ns.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"
#include "cmd/plan/plan.h"

#include <inttypes.h>

#define WIDTH 1000
#define HEIGHT 760

static const char *const colours[] = {PLOT_USED,    PLOT_BELIEF,   PLOT_TRUTH,
                                      PLOT_COOLING, PLOT_TOO_MUCH, PLOT_WITHHELD};
#define N_COLOURS (sizeof(colours) / sizeof(colours[0]))

/* What is 0 has no place on an axis of powers: it stands at a half, below 1. */
static double raised(uint64_t number)
{
    return number > 0 ? (double)number : 0.5;
}

static void add_curve(struct plot *plot, const struct plan_curve *curve, size_t number)
{
    char name[32];
    snprintf(name, sizeof(name), "curve%zu", number);
    plot_set(plot, name);
    for (size_t i = 0; i < curve->n_points; i++)
        plot_data(plot, "%" PRIu32 " %g %g\n", curve->points[i].quota.limit,
                  raised(curve->points[i].touch.keys), raised(curve->points[i].touch.requests));
}

static void add_lines(struct plot *plot, const struct plan_result *result, unsigned column)
{
    const char *comma = "plot ";
    for (size_t i = 0; i < result->n_curves; i++) {
        const struct plan_curve *curve = &result->curves[i];
        char title[64];
        struct buf buf = buf_of(title, sizeof(title));
        if (curve->n_points == 0)
            continue;
        buf_add(&buf, "%s, per ", stint_algorithm_name((int)curve->algorithm));
        spec_format_duration(&buf, curve->period_ns);
        plot_script(plot,
                    "%s@data index \"curve%zu\" using 1:%u with linespoints pointtype 7 pointsize "
                    "0.6 linewidth 2 linecolor rgb '%s' title ",
                    comma, i, column, colours[i % N_COLOURS]);
        plot_quote(plot, span_of_text(title), 40);
        comma = ", ";
    }
    plot_script(plot, "\n");
}

static void add_panel(struct plot *plot, const struct plan_result *result, unsigned column,
                      const char *label)
{
    plot_script(plot, "set ylabel '%s'\nset ytics ('0' 0.5, 1, 10, 100, 1000, 10000, 1e5, 1e6)\n",
                label);
    add_lines(plot, result, column);
}

static int fill(struct plot *plot, const struct plan_report *report, struct stint_error *error)
{
    plot_init(plot, WIDTH, HEIGHT);
    for (size_t i = 0; i < report->result->n_curves; i++)
        add_curve(plot, &report->result->curves[i], i);
    plot_script(plot, "set title ");
    plot_quote(plot, span_of_text(report->log->name), 80);
    plot_script(plot, "\nset logscale xy\nset yrange [0.4:*]\nset border 3\nset tics nomirror\n"
                      "set grid linecolor rgb '#dddddd'\nset key outside right\n"
                      "set multiplot layout 2,1\n");
    add_panel(plot, report->result, 2, "keys touched");
    plot_script(plot, "unset title\nset xlabel 'limit, units per period'\n");
    add_panel(plot, report->result, 3, "requests denied");
    plot_script(plot, "unset multiplot\n");
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
