/* SPDX-License-Identifier: MIT */
/* Chooses what is shown, and writes the rows and variables that plots/history.gp draws. */
#include "sim/picture/picture.h"

#include "algorithm/algorithm.h"
#include "algorithm/spec.h"
#include "base/buf.h"
#include "base/ns.h"
#include "base/wide_int.h"

#include <assert.h>
#include <inttypes.h>

/* ---- Quotas side by side --------------------------------------------------------------------- */

/* Columns for plots/compare.gp and plots/bars.gp. */

#define TITLE_COLUMNS 110
#define NOTE_MAX 96 /* "120 of 500, cooling down, back in 3m21s" */

void chart_compare(struct plot *plot, const char *title, const struct chart_quota *quotas,
                   size_t n_quotas)
{
    struct span names[CHART_QUOTAS_MAX];
    assert(n_quotas > 0 && n_quotas <= CHART_QUOTAS_MAX);
    plot_init(plot, plot_compare);
    plot_set(plot, "admitted denied denied-falsely most limit bound");
    for (size_t i = 0; i < n_quotas; i++) {
        const struct chart_quota *quota = &quotas[i];
        names[i] = span_of_text(quota->name);
        plot_data(plot, "%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
                  quota->admitted, quota->denied, quota->denied_falsely, quota->most, quota->limit,
                  quota->bound);
    }
    plot_text(plot, "title", span_of_text(title), TITLE_COLUMNS);
    plot_names(plot, "name", names, n_quotas);
}

/* "120 of 500, back in 3m20s": in whole seconds, rounded up, where it is some. */
static struct span note_left(const struct chart_bar *bar, char note[NOTE_MAX])
{
    struct buf buf = buf_of(note, NOTE_MAX);
    uint64_t ns = bar->returns_in_ns;
    buf_add(&buf, "%" PRIu64 " of %" PRIu64 "%s%s", bar->left, bar->most,
            bar->cooling_down ? ", cooling down" : "", ns == 0 ? "" : ", back in ");
    if (ns >= 10 * NS_PER_S)
        ns = (ns + NS_PER_S - 1) / NS_PER_S * NS_PER_S;
    if (ns > 0)
        spec_format_duration(&buf, ns);
    return span_of_text(note);
}

void chart_bars(struct plot *plot, const char *title, const struct chart_bar *bars, size_t n_bars)
{
    struct span names[CHART_BARS_MAX], notes[CHART_BARS_MAX];
    char texts[CHART_BARS_MAX][NOTE_MAX];
    assert(n_bars > 0);
    n_bars = n_bars < CHART_BARS_MAX ? n_bars : CHART_BARS_MAX;
    plot_init(plot, plot_bars);
    plot_set(plot, "left most cooling down");
    for (size_t i = 0; i < n_bars; i++) {
        const struct chart_bar *bar = &bars[i];
        names[i] = bar->name;
        notes[i] = note_left(bar, texts[i]);
        plot_data(plot, "%" PRIu64 " %" PRIu64 " %d\n", bar->left, bar->most,
                  (int)bar->cooling_down);
    }
    plot_text(plot, "title", span_of_text(title), TITLE_COLUMNS);
    plot_names(plot, "name", names, n_bars);
    plot_names(plot, "beside", notes, n_bars);
}

/* ---- The picture of a key -------------------------------------------------------------------- */

#define PERIODS_MAX 12 /* a longer history is shown in part */
#define PERIODS_SHOWN 5
#define ROWS_MAX 600 /* more are not told apart by the eye, and make a picture of megabytes */
#define BINS 350
#define STROKES_MAX 500 /* denials, of each kind */
#define KEY_LETTERS 40
#define SPEC_LETTERS 70
#define LABEL_MAX 128

struct view {
    const struct history *history;
    uint64_t from_ns, until_ns, zero_ns;
    bool is_part;
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
        .from_ns = first_ns,
        .zero_ns = picture->zero_ns,
        .least = 0,
    };
    /* Half periods: pictures of one trace under several quotas end alike. */
    uint64_t half_ns = period_ns / 2 + 1, n_halves = (last_ns - first_ns) / half_ns + 1;
    view.until_ns = first_ns + n_halves * half_ns;
    /* Whole periods, with one before and one after the busiest of them. */
    if ((last_ns - first_ns) / period_ns >= PERIODS_MAX) {
        uint64_t end_ns = busiest_end_ns(history, (PERIODS_SHOWN - 2) * period_ns);
        view.until_ns = end_ns + period_ns;
        view.from_ns = max_u64(sub_floor(view.until_ns, PERIODS_SHOWN * period_ns), first_ns);
    }
    look_at_free(&view);
    view.is_part = view.from_ns > first_ns || view.until_ns < last_ns;
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

/* ---- Its variables --------------------------------------------------------------------------- */

static void add_texts(struct plot *plot, const struct picture *picture)
{
    const struct history *history = picture->history;
    char spec[SPEC_SIZE];
    stint_quota_format(history->quota, spec, sizeof(spec));
    plot_text(plot, "spec", span_of_text(spec), SPEC_LETTERS);
    plot_text(plot, "key", picture->key, KEY_LETTERS);
    plot_text(plot, "origin", span_of_text(picture->origin != NULL ? picture->origin : ""),
              LABEL_MAX);
    const char *group = history->quota->algorithm == STINT_BUCKETS ? "bucket" : "bunch";
    plot_text(plot, "group", span_of_text(history->n_groups > 0 ? group : ""), LABEL_MAX);
}

static void add_numbers(struct plot *plot, const struct view *view)
{
    const struct history *history = view->history;
    const struct history_row *first = history_at(history, view->from_ns);
    const struct history_row *last = history_at(history, view->until_ns);
    const struct stint_quota *quota = history->quota;
    int64_t below = view->is_part ? (int64_t)first->returned : 0;
    if (history->n_groups > 0 && returned_believed(history, first) < below)
        below = returned_believed(history, first);
    plot_variables(plot,
                   "units = %" PRIu64 "\nno_room = %" PRIu64 "\nslack = %" PRIu64
                   "\nelsewhere = %" PRIu64 "\nzero_ns = %" PRIu64 "\nfrom_ns = %" PRIu64
                   "\nuntil_ns = %" PRIu64 "\nis_part = %d\nused = %" PRIu64 "\nbelow = %" PRId64
                   "\nmost = %" PRIu64 "\nleast = %" PRId64 "\nholds_long = %d\ngives_early = %d\n",
                   history->used, history->n_no_space, history->n_slack,
                   history->n_denials - history->n_no_space - history->n_slack, view->zero_ns,
                   view->from_ns, view->until_ns, (int)view->is_part, max_u64(last->used, 1), below,
                   max_u64(max_u64(most_units(quota), quota->limit), 1), view->least,
                   (int)view->holds_long, (int)view->gives_early);
}

void picture_draw(struct plot *plot, const struct picture *picture)
{
    assert(picture->history->n_rows > 0);
    struct view view = choose_view(picture);
    plot_init(plot, plot_history);
    add_rows(plot, &view);
    add_groups(plot, &view, true);
    add_groups(plot, &view, false);
    for (int why = HISTORY_NO_SPACE; why <= HISTORY_ELSEWHERE; why++)
        add_denials(plot, &view, (enum history_why)why);
    add_texts(plot, picture);
    add_numbers(plot, &view);
}
