/* SPDX-License-Identifier: MIT */
/* Chooses what is shown, writes its rows, and lays out the two panels. */
#include "sim/picture/picture.h"

#include "algorithm/algorithm.h"
#include "base/buf.h"
#include "base/ns.h"
#include "base/wide_int.h"

#include <assert.h>
#include <inttypes.h>

#define WIDTH_PX 800
#define HEIGHT_PX 680
#define PERIODS_MAX 12 /* a longer history is shown in part */
#define PERIODS_SHOWN 5
#define ROWS_MAX 600 /* more are not told apart by the eye, and make a picture of megabytes */
#define BINS 350
#define STROKES_MAX 500 /* denials, of each kind */
#define KEY_LETTERS 40
#define SPEC_LETTERS 70
#define SPEC_MAX 256
#define LABEL_MAX 128

struct view {
    const struct history *history;
    uint64_t from_ns, until_ns, zero_ns;
    struct plot_unit unit;
    bool is_part;
    bool has_groups;
    bool holds_long;  /* somewhere less is believed to be free than is */
    bool gives_early; /* somewhere more */
    int64_t least;    /* free units, in this part: below 0 where too much was admitted */
};

/* ---- What is shown --------------------------------------------------------------------------- */

/* The end of the stretch of `length_ns` in which most denials lie; without any, most rows. */
static uint64_t busiest_end_ns(const struct history *history, uint64_t length_ns)
{
    bool of_denials = history->n_denials > 0;
    size_t n = of_denials ? history->n_denials : history->n_rows, first = 0, most = 0;
    uint64_t end_ns = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t at_ns = of_denials ? history->denials[i].at_ns : history->rows[i].at_ns;
        while ((of_denials ? history->denials[first].at_ns : history->rows[first].at_ns) +
                   length_ns <
               at_ns)
            first++;
        if (i - first + 1 > most) {
            most = i - first + 1;
            end_ns = at_ns;
        }
    }
    return end_ns;
}

static void look_at_free(struct view *view)
{
    const struct history_row *last = history_at(view->history, view->until_ns);
    for (const struct history_row *row = history_at(view->history, view->from_ns); row <= last;
         row++) {
        view->holds_long |= (int64_t)row->free_believed < row->free_exactly;
        view->gives_early |= (int64_t)row->free_believed > row->free_exactly;
        if (row->free_exactly < view->least)
            view->least = row->free_exactly;
    }
}

static struct view choose_view(const struct picture *picture)
{
    const struct history *history = picture->history;
    uint64_t period_ns = history->period_ns, first_ns = history->rows[0].at_ns;
    uint64_t last_ns = history->rows[history->n_rows - 1].at_ns;
    struct view view = {
        .history = history,
        .from_ns = picture->from_ns,
        .until_ns = picture->until_ns,
        .zero_ns = picture->zero_ns,
        .has_groups = history->n_groups > 0,
        .least = 0,
    };
    if (view.until_ns == 0) {
        view.from_ns = first_ns;
        /* Half periods: pictures of one trace under several quotas end alike. */
        uint64_t half_ns = period_ns / 2 + 1, n_halves = (last_ns - first_ns) / half_ns + 1;
        view.until_ns = first_ns + n_halves * half_ns;
        /* Whole periods, with one before and one after the busiest of them. */
        if ((last_ns - first_ns) / period_ns >= PERIODS_MAX) {
            uint64_t end_ns = busiest_end_ns(history, (PERIODS_SHOWN - 2) * period_ns);
            view.until_ns = end_ns + period_ns;
            view.from_ns = max_u64(sub_floor(view.until_ns, PERIODS_SHOWN * period_ns), first_ns);
        }
    }
    look_at_free(&view);
    view.is_part = view.from_ns > first_ns || view.until_ns < last_ns;
    view.unit = plot_unit_of(view.until_ns - view.from_ns);
    return view;
}

/* ---- Its data -------------------------------------------------------------------------------- */

static void add_time(struct plot *plot, uint64_t at_ns)
{
    plot_data(plot, "%" PRIu64 ".%09" PRIu64, at_ns / NS_PER_S, at_ns % NS_PER_S);
}

/* Units that are back as the limiter sees it: it holds the rest. */
static int64_t returned_believed(const struct history *history, const struct history_row *row)
{
    return (int64_t)row->used - ((int64_t)history->quota->limit - (int64_t)row->free_believed);
}

static void add_row(struct plot *plot, const struct view *view, uint64_t at_ns,
                    const struct history_row *row)
{
    add_time(plot, at_ns);
    plot_data(plot, " %" PRIu64 " %" PRIu64 " %" PRId64 " %" PRId64 " %" PRIu32 "\n", row->used,
              row->returned, returned_believed(view->history, row), row->free_exactly,
              row->free_believed);
}

enum { FIRST, LAST, POOREST, RICHEST, BELIEVED_POOREST, BELIEVED_RICHEST, N_KEPT };

/* Of rows too close to be told apart, [first, end), those at the ends and the extremes are enough.
 */
static void choose_rows(const struct history_row *rows, size_t first, size_t end,
                        size_t kept[N_KEPT])
{
    for (size_t i = 0; i < N_KEPT; i++)
        kept[i] = first;
    kept[LAST] = end - 1;
    for (size_t i = first; i < end; i++) {
        const struct history_row *row = &rows[i];
        if (row->free_exactly < rows[kept[POOREST]].free_exactly)
            kept[POOREST] = i;
        if (row->free_exactly > rows[kept[RICHEST]].free_exactly)
            kept[RICHEST] = i;
        if (row->free_believed < rows[kept[BELIEVED_POOREST]].free_believed)
            kept[BELIEVED_POOREST] = i;
        if (row->free_believed > rows[kept[BELIEVED_RICHEST]].free_believed)
            kept[BELIEVED_RICHEST] = i;
    }
}

static bool is_among(const size_t kept[N_KEPT], size_t i)
{
    for (size_t n = 0; n < N_KEPT; n++)
        if (kept[n] == i)
            return true;
    return false;
}

/* Rows as steps: what held is repeated at the instant at which it ends. */
static void add_rows(struct plot *plot, const struct view *view)
{
    const struct history *history = view->history;
    const struct history_row *held = history_at(history, view->from_ns);
    size_t i = (size_t)(held - history->rows), end;
    size_t last = (size_t)(history_at(history, view->until_ns) - history->rows);
    uint64_t bin_ns = last - i < ROWS_MAX ? 0 : (view->until_ns - view->from_ns) / BINS;
    plot_set(plot, "time used returned returned-believed free free-believed");
    add_row(plot, view, view->from_ns, held);
    for (i++; i <= last; i = end) {
        for (end = i + 1;
             end <= last && history->rows[end].at_ns < history->rows[i].at_ns + bin_ns;)
            end++;
        size_t kept[N_KEPT];
        choose_rows(history->rows, i, end, kept);
        for (size_t at = i; at < end; at++)
            if (is_among(kept, at)) {
                add_row(plot, view, history->rows[at].at_ns, held);
                held = &history->rows[at];
                add_row(plot, view, held->at_ns, held);
            }
    }
    add_row(plot, view, view->until_ns, held);
}

/* Rectangles; of one that is in sight for a part, the part. A use alone has no width: it is none.
 */
static void add_groups(struct plot *plot, const struct view *view, bool open)
{
    plot_set(plot, open ? "open" : "cooling");
    for (size_t i = 0; i < view->history->n_groups; i++) {
        const struct history_group *group = &view->history->groups[i];
        uint64_t from_ns = max_u64(open ? group->first_ns : group->last_ns, view->from_ns);
        uint64_t to_ns = min_u64(open ? group->last_ns : group->returns_ns, view->until_ns);
        if (from_ns >= to_ns)
            continue;
        add_time(plot, from_ns);
        plot_data(plot, " ");
        add_time(plot, to_ns);
        plot_data(plot, " %" PRIu64 " %" PRIu64 "\n", group->below, group->below + group->units);
    }
    plot_data(plot, "-9 -9 0 0\n"); /* out of sight: a set without rows would be an error */
}

static void add_denials(struct plot *plot, const struct view *view, enum history_why why)
{
    static const char *const sets[] = {"denied", "denied falsely", "denied elsewhere"};
    uint64_t bin_ns = (view->until_ns - view->from_ns) / STROKES_MAX, next_ns = 0;
    plot_set(plot, sets[why]);
    plot_data(plot, "-9\n");
    for (size_t i = 0; i < view->history->n_denials; i++) {
        const struct history_denial *denial = &view->history->denials[i];
        if (denial->why != why || denial->at_ns < view->from_ns || denial->at_ns > view->until_ns ||
            denial->at_ns < next_ns)
            continue;
        next_ns = denial->at_ns + bin_ns;
        add_time(plot, denial->at_ns);
        plot_data(plot, "\n");
    }
}

/* ---- The script ------------------------------------------------------------------------------ */

static void add_titles(struct plot *plot, const struct picture *picture, const struct view *view)
{
    const struct history *history = view->history;
    uint64_t denied = history->n_no_space + history->n_slack;
    char spec[SPEC_MAX];
    stint_quota_format(history->quota, spec, sizeof(spec));
    plot_script(plot, "set label 1 ");
    plot_quote(plot, span_of_text(spec), SPEC_LETTERS);
    plot_script(plot,
                " at screen 0.5, screen (is_text ? 0.98 : 0.967) center font ',17'\n"
                "set label 2 '%" PRIu64 " units used by key '.",
                history->used);
    plot_quote(plot, picture->key, KEY_LETTERS);
    plot_script(plot, ".'; %" PRIu64 " request%s denied", denied, denied == 1 ? "" : "s");
    if (history->n_slack > 0)
        plot_script(plot, ", %" PRIu64 " though there was room", history->n_slack);
    plot_script(plot, "' at screen 0.5, screen (is_text ? 0.94 : 0.929) center\n");
}

static double axis_time(const struct view *view, uint64_t at_ns)
{
    return ((double)at_ns - (double)view->zero_ns) / (double)view->unit.ns;
}

static void add_frame(struct plot *plot, const struct view *view)
{
    plot_script(plot,
                "unit = %.9g\nzero = %.9f\n"
                "set border 3 linecolor rgb '" PLOT_INK "'\n"
                "set tics nomirror\n"
                "set grid back linetype 1 linecolor rgb '#e4e4e4' linewidth 0.5\n"
                "if (is_text) { unset grid }\n"
                "set lmargin at screen (is_text ? 0.12 : 0.115)\n"
                "set rmargin at screen 0.975\n"
                "set xrange [%.9f:%.9f]\n"
                "set key horizontal Left reverse center top samplen 2 width 1\n"
                "if (is_text) { set key off }\n"
                "rows = 'index 0 using (($1-zero)/unit)'\n"
                "box = 'using (($1-zero)/unit):3:(($1-zero)/unit):(($2-zero)/unit):3:4 notitle "
                "with boxxyerror "
                "linewidth 0.6 '\n"
                "filled = box.'fillstyle solid noborder fillcolor rgb'\n"
                "framed = box.'linecolor rgb \"#5f8fb2\" fillstyle empty border'\n"
                "open = 'index \"open\"'; cooling = 'index \"cooling\"'\n"
                "shade = 'notitle with filledcurves fillstyle solid noborder fillcolor rgb'\n"
                "above = 'notitle with filledcurves above fillstyle solid noborder fillcolor rgb'\n"
                "below = 'notitle with filledcurves below fillstyle solid noborder fillcolor rgb'\n"
                "line = 'notitle with lines linewidth 2 linecolor rgb'\n"
                "broad = 'notitle with lines linewidth 3.5 linecolor rgb'\n"
                "thin = 'notitle with lines linewidth 1.5 linecolor rgb'\n"
                "key_line = 'keyentry with lines linewidth 2 linecolor rgb'\n"
                "key_area = 'keyentry with boxes fillstyle solid noborder fillcolor rgb'\n"
                "set multiplot\n",
                (double)view->unit.ns / 1e9, (double)view->zero_ns / 1e9,
                axis_time(view, view->from_ns), axis_time(view, view->until_ns));
}

/* The first panel. In letters, what the lines are is written into it: a legend takes too much. */
static void add_upper(struct plot *plot, const struct view *view)
{
    const struct history *history = view->history;
    const struct history_row *first = history_at(history, view->from_ns);
    const struct history_row *last = history_at(history, view->until_ns);
    double used = (double)max_u64(last->used, 1);
    int64_t below = view->is_part ? (int64_t)first->returned : 0;
    if (view->has_groups && returned_believed(history, first) < below)
        below = returned_believed(history, first);
    plot_script(plot,
                "set tmargin at screen (is_text ? 0.82 : 0.825)\n"
                "set bmargin at screen (is_text ? 0.54 : 0.48)\n"
                "if (!is_text) { set key at screen 0.54, screen 0.905 }\n"
                "set format x ''\n"
                "if (!is_text) { set ylabel 'units, in the order of use' }\n"
                "set yrange [%" PRId64 ":%.9g]\n"
                "if (is_text) {\nset title 'units: * used, # returned'\n"
                "plot @data @rows:2 with lines linetype 1, @data @rows:3 with lines linetype 2\n"
                "} else {\n"
                "plot @key_line '" PLOT_USED "' title 'used', @key_line '" PLOT_TRUTH
                "' title 'returned'",
                below, used + 0.04 * (used > (double)below ? used - (double)below : 25));
    if (view->has_groups) {
        const char *name = history->quota->algorithm == STINT_BUCKETS ? "bucket" : "bunch";
        plot_script(plot,
                    ", @key_area '" PLOT_OPEN "' title '%s in use', @key_area '" PLOT_COOLING
                    "' title '%s cooling', @key_area '" PLOT_WITHHELD "' title 'held too long', "
                    "@data @cooling @filled '" PLOT_COOLING "', @data @open @filled '" PLOT_OPEN
                    "', @data @rows:3:4 @shade '" PLOT_WITHHELD
                    "', @data @cooling @framed, @data @open @framed",
                    name, name);
    } else {
        plot_script(plot, ", @key_area '" PLOT_COOLING "' title 'not back yet', "
                          "@data @rows:3:2 @shade '" PLOT_COOLING "'");
    }
    plot_script(plot, ", @data @rows:3 @line '" PLOT_TRUTH "', @data @rows:2 @line '" PLOT_USED
                      "'\n}\nunset label\n");
}

/* Below zero there is room for strokes, one for each denial; the kinds of them lie in rows. */
static void add_strokes(struct plot *plot, const struct view *view, double height)
{
    static const struct {
        const char *set, *title, *colour;
        enum history_why why;
    } kinds[] = {
        {"denied", "denied: no room", PLOT_REFUSED, HISTORY_NO_SPACE},
        {"denied falsely", "denied though there was room", PLOT_BELIEF, HISTORY_SLACK},
        {"denied elsewhere", "denied by another quota", PLOT_COOLING, HISTORY_ELSEWHERE},
    };
    double at = (double)view->least;
    for (size_t i = 0; i < 3; i++) {
        bool any = false;
        for (size_t n = 0; n < view->history->n_denials && !any; n++)
            any = view->history->denials[n].why == kinds[i].why;
        if (!any)
            continue;
        at -= height;
        plot_script(
            plot,
            ", @key_area '%s' title '%s', @data index '%s' using (($1-zero)/unit):(%.9g):(0):"
            "(%.9g) notitle with vectors nohead linewidth 1.6 linecolor rgb '%s'",
            kinds[i].colour, kinds[i].title, kinds[i].set, at, 0.7 * height, kinds[i].colour);
    }
}

static void add_lower(struct plot *plot, const struct picture *picture, const struct view *view)
{
    const struct stint_quota *quota = view->history->quota;
    double most = (double)max_u64(max_u64(most_units(quota), quota->limit), 1);
    double range = most - (double)view->least, step = plot_step_of(range), tic = 0;
    while (tic - step >= (double)view->least)
        tic -= step;
    plot_script(plot,
                "set tmargin at screen (is_text ? 0.44 : 0.345)\n"
                "set bmargin at screen (is_text ? 0.14 : 0.1)\n"
                "if (!is_text) { set key at screen 0.54, screen 0.455 }\n"
                "set format x '%%g'\nif (!is_text) { set ylabel 'units free' }\n"
                "set ytics %.9g, %.9g\nset yrange [%.9g:%.9g]\nset xlabel ",
                tic, step, (double)view->least - 0.3 * range, most + 0.06 * range);
    char text[LABEL_MAX];
    struct buf label = buf_of(text, sizeof(text));
    buf_add(&label, "time%s%s, %s%s", picture->origin != NULL ? " since " : "",
            picture->origin != NULL ? picture->origin : "", view->unit.name,
            view->is_part ? " (the busiest part)" : "");
    plot_quote(plot, span_of_text(text), LABEL_MAX);
    plot_script(plot,
                "\nif (is_text) {\n"
                "set title 'units free: %% as the limiter believes, $ exactly'\n"
                "plot @data @rows:5 with lines linetype 3, @data @rows:6 with lines "
                "linetype 4\n} else {\n"
                "plot @key_line '" PLOT_TRUTH "' title 'free exactly', @key_line '" PLOT_BELIEF
                "' title 'free, as the limiter believes'");
    if (view->holds_long)
        plot_script(plot, ", @key_area '" PLOT_WITHHELD "' title 'held too long', "
                          "@data @rows:5:6 @above '" PLOT_WITHHELD "'");
    if (view->gives_early)
        plot_script(plot, ", @key_area '" PLOT_TOO_MUCH "' title 'given too early', "
                          "@data @rows:5:6 @below '" PLOT_TOO_MUCH "'");
    plot_script(plot,
                ", @data @rows:5 @broad '" PLOT_TRUTH "', @data @rows:6 @thin '" PLOT_BELIEF "'");
    add_strokes(plot, view, 0.12 * range);
    plot_script(plot, "\n}\nunset multiplot\n");
}

int picture_draw(struct plot *plot, const struct picture *picture, struct stint_error *error)
{
    assert(picture->history->n_rows > 0);
    struct view view = choose_view(picture);
    plot_init(plot, WIDTH_PX, HEIGHT_PX);
    add_rows(plot, &view);
    add_groups(plot, &view, true);
    add_groups(plot, &view, false);
    for (int why = HISTORY_NO_SPACE; why <= HISTORY_ELSEWHERE; why++)
        add_denials(plot, &view, (enum history_why)why);
    add_frame(plot, &view);
    add_titles(plot, picture, &view);
    add_upper(plot, &view);
    add_lower(plot, picture, &view);
    return plot_check(plot, error);
}
