/* SPDX-License-Identifier: MIT */
/*
 * Rows from above, a bar for each. Bars are rectangles in a picture, and lines of one letter where
 * the terminal has no more.
 */
#include "sim/picture/chart.h"

#include "algorithm/spec.h"
#include "base/buf.h"
#include "base/ns.h"
#include "base/wide_int.h"

#include <assert.h>
#include <inttypes.h>

#define CHARACTER_PX 9 /* of a label, at most */
#define NAME_LETTERS 46
#define NAME_LETTERS_IN_TEXT 28 /* a screen has some 100 columns for all */
#define TEXT_COLUMNS 100
#define TITLE_LETTERS 110
#define COMPARE_LETTERS 22 /* beside a panel: "81.8 % / 1.09 %" */
#define BARS_LETTERS 34    /* "120 of 500, cooling down, back in 3m21s" */
#define PANEL_PX 340
#define PANEL_COLUMNS_MIN 10
#define ROW_PX 44
#define BAR_PX 26
#define TITLE_PX 74 /* above the panels */
#define AXIS_PX 80  /* below them */
#define KEY_ROW_PX 22

/* Names, and then a panel and words for it, once or twice: in pixels, and in columns of letters. */
struct columns {
    uint32_t names_px, panel_px, words_px, all_px;
    uint32_t names, panel, words, all;
};

static struct columns columns_of(const struct span *names, size_t n_names, uint32_t n_panels,
                                 uint32_t words)
{
    uint32_t longest = 4;
    for (size_t i = 0; i < n_names; i++)
        longest = names[i].len > longest ? (uint32_t)min_u64(names[i].len, NAME_LETTERS) : longest;
    struct columns columns = {
        .names_px = longest * CHARACTER_PX + 24,
        .panel_px = PANEL_PX * 2 / n_panels,
        .words_px = words * CHARACTER_PX,
        .names = (longest < NAME_LETTERS_IN_TEXT ? longest : NAME_LETTERS_IN_TEXT) + 3,
        .words = words,
    };
    uint32_t space = (TEXT_COLUMNS - columns.names) / n_panels;
    columns.panel = space > words + PANEL_COLUMNS_MIN ? space - words : PANEL_COLUMNS_MIN;
    columns.all_px = columns.names_px + n_panels * (columns.panel_px + columns.words_px);
    columns.all = columns.names + n_panels * (columns.panel + words);
    return columns;
}

static void set_margins(struct plot *plot, const struct columns *columns, uint32_t panel)
{
    uint32_t from_px = columns->names_px + panel * (columns->panel_px + columns->words_px);
    uint32_t from = columns->names + panel * (columns->panel + columns->words);
    plot_script(plot,
                "set lmargin at screen (is_text ? %.4f : %.4f)\n"
                "set rmargin at screen (is_text ? %.4f : %.4f)\n",
                (double)from / columns->all, (double)from_px / columns->all_px,
                (double)(from + columns->panel) / columns->all,
                (double)(from_px + columns->panel_px) / columns->all_px);
}

static void set_title(struct plot *plot, const char *command, const char *title)
{
    plot_script(plot, "%s ", command);
    plot_quote(plot, span_of_text(title), TITLE_LETTERS);
    plot_script(plot, "\n");
}

static uint32_t below_px(uint32_t key_rows)
{
    return AXIS_PX + KEY_ROW_PX * key_rows;
}

/* What all charts begin with: the look, the place of the legend, and what a bar is. */
static void begin(struct plot *plot, uint32_t key_rows)
{
    plot_script(plot,
                "set border 3 linecolor rgb '" PLOT_INK "'\n"
                "set tics nomirror\n"
                "set key vertical bottom center samplen 2 width 1\n"
                "if (is_text) { set key off }\n"
                "set tmargin at screen (is_text ? 0.86 : %.4f)\n"
                "set bmargin at screen (is_text ? 0.2 : %.4f)\n"
                "bar = is_text ? 'using 2:1 with lines' : 'every ::0::0 using "
                "2:1:3:4:($1-0.32):($1+0.32) with boxxyerror fillstyle solid noborder'\n",
                1 - (double)TITLE_PX / plot->height, (double)below_px(key_rows) / plot->height);
}

/* The legend under a panel. In letters there is no room for it: the label of the axis has it. */
static void place_key(struct plot *plot, const struct columns *columns, uint32_t panel)
{
    uint32_t from_px = columns->names_px + panel * (columns->panel_px + columns->words_px);
    plot_script(plot, "if (!is_text) { set key at screen %.4f, screen %.4f }\n",
                (from_px + columns->panel_px / 2.0) / columns->all_px, 10.0 / plot->height);
}

static void list_names(struct plot *plot, const struct span *names, size_t n_rows, size_t letters)
{
    plot_script(plot, "set ytics scale 0 (");
    for (size_t i = 0; i < n_rows; i++) {
        plot_script(plot, "%s", i == 0 ? "" : ", ");
        plot_quote_tic(plot, names[i], letters);
        plot_script(plot, " %zu", i);
    }
    plot_script(plot, ")\n");
}

/* Names at the axis of rows, the first above. */
static void name_rows(struct plot *plot, const struct span *names, size_t n_rows)
{
    plot_script(plot, "set yrange [%zu.5:-0.5]\nif (is_text) {\n", n_rows - 1);
    list_names(plot, names, n_rows, NAME_LETTERS_IN_TEXT);
    plot_script(plot, "} else {\n");
    list_names(plot, names, n_rows, NAME_LETTERS);
    plot_script(plot, "}\n");
}

/* A bar is a rectangle, and in letters a line between two points: one block of data says both. */
static void add_bar(struct plot *plot, size_t row, double from, double to)
{
    if (to > from)
        plot_data(plot, "%zu %.9g %.9g %.9g\n%zu %.9g %.9g %.9g\n\n", row, from, from, to, row, to,
                  from, to);
}

/* A set without rows would be an error to gnuplot: a bar that nobody sees stands for it. */
static void add_no_bar(struct plot *plot)
{
    plot_data(plot, "-9 0 0 0\n-9 0 0 0\n\n");
}

static void draw_bars(struct plot *plot, const char *set, unsigned letter, const char *colour,
                      const char *title)
{
    plot_script(plot, "@data index \"%s\" @bar linetype %u linecolor rgb '%s' title '%s'", set,
                letter, colour, title);
}

/* ---- Quotas side by side --------------------------------------------------------------------- */

static double percent(uint64_t part, uint64_t whole)
{
    return whole == 0 ? 0 : 100.0 * (double)part / (double)whole;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static void compare_data(struct plot *plot, const struct chart_quota *quotas, size_t n_quotas)
{
    plot_set(plot, "admitted");
    add_no_bar(plot);
    for (size_t i = 0; i < n_quotas; i++)
        add_bar(plot, i, 0, (double)quotas[i].admitted);
    plot_set(plot, "denied");
    add_no_bar(plot);
    for (size_t i = 0; i < n_quotas; i++)
        add_bar(plot, i, (double)quotas[i].admitted,
                (double)(quotas[i].admitted + quotas[i].denied - quotas[i].denied_falsely));
    plot_set(plot, "denied falsely");
    add_no_bar(plot);
    for (size_t i = 0; i < n_quotas; i++)
        add_bar(plot, i, (double)(quotas[i].admitted + quotas[i].denied - quotas[i].denied_falsely),
                (double)(quotas[i].admitted + quotas[i].denied));
    plot_set(plot, "within");
    add_no_bar(plot);
    for (size_t i = 0; i < n_quotas; i++)
        add_bar(plot, i, 0, percent(min_u64(quotas[i].most, quotas[i].limit), quotas[i].limit));
    plot_set(plot, "beyond");
    add_no_bar(plot);
    for (size_t i = 0; i < n_quotas; i++)
        add_bar(plot, i, 100, percent(quotas[i].most, quotas[i].limit));
    plot_set(plot, "bound");
    for (size_t i = 0; i < n_quotas; i++)
        plot_data(plot, "%zu %.9g\n", i, percent(quotas[i].bound, quotas[i].limit));
}

static void compare_units(struct plot *plot, const struct chart_quota *quotas, size_t n_quotas)
{
    uint64_t units = 1;
    for (size_t i = 0; i < n_quotas; i++) {
        uint64_t all = quotas[i].admitted + quotas[i].denied;
        units = all > units ? all : units;
        plot_script(
            plot,
            "set label %zu '%.1f %% / %.2f %%' at graph 1, first %zu offset character 1.5, 0\n",
            i + 1, percent(quotas[i].admitted, all), percent(quotas[i].denied_falsely, all), i);
    }
    plot_script(plot,
                "set label %zu 'admitted / falsely denied' at graph 1, graph 1 offset character "
                "1.5, 0.9\nset xrange [0:%" PRIu64 "]\nset xtics 0, %.9g\n"
                "set format x (is_text ? '%%.0s%%c' : '%%.0f')\n"
                "set xlabel (is_text ? 'units: * admitted, # no room, $ falsely denied' : "
                "'units asked for')\nplot ",
                n_quotas + 1, units, plot_step_of(2 * (double)units));
    draw_bars(plot, "admitted", 1, PLOT_USED, "admitted");
    plot_script(plot, ", ");
    draw_bars(plot, "denied", 2, PLOT_REFUSED, "denied: no room");
    plot_script(plot, ", ");
    draw_bars(plot, "denied falsely", 3, PLOT_WITHHELD, "denied though there was room");
}

static void compare_most(struct plot *plot, const struct chart_quota *quotas, size_t n_quotas)
{
    double highest = 110;
    for (size_t i = 0; i < n_quotas; i++) {
        const struct chart_quota *quota = &quotas[i];
        highest = larger(highest, 1.08 * percent(quota->bound, quota->limit));
        highest = larger(highest, 1.08 * percent(quota->most, quota->limit));
        plot_script(plot,
                    "set label %zu '%" PRIu64 " of %" PRIu64
                    "' at graph 1, first %zu offset character 1.5, 0\n",
                    i + 1, quota->most, quota->limit, i);
    }
    plot_script(plot,
                "set label %zu 'most of limit' at graph 1, graph 1 offset character 1.5, 0.9\n"
                "set xrange [0:%.9g]\nset xtics autofreq\nset format x '%%g'\nset xlabel (is_text "
                "? '%% of limit, O bound' : 'most in any "
                "window, %% of the limit')\nset arrow from 100, graph 0 to 100, graph 1 nohead "
                "linecolor rgb '" PLOT_INK "' linewidth 1.5\nplot ",
                n_quotas + 1, highest);
    draw_bars(plot, "within", 1, PLOT_USED, "within the limit");
    plot_script(plot, ", ");
    draw_bars(plot, "beyond", 4, PLOT_TOO_MUCH, "beyond it");
    plot_script(plot, ", @data index \"bound\" using 2:1 with points pointtype (is_text ? 15 : 13) "
                      "pointsize 1 linecolor rgb '" PLOT_BELIEF "' title 'bound'\n");
}

int chart_compare(struct plot *plot, const char *title, const struct chart_quota *quotas,
                  size_t n_quotas, struct stint_error *error)
{
    struct span names[CHART_QUOTAS_MAX] = {0};
    assert(n_quotas > 0 && n_quotas <= CHART_QUOTAS_MAX);
    for (size_t i = 0; i < n_quotas; i++)
        names[i] = span_of_text(quotas[i].name);
    struct columns columns = columns_of(names, n_quotas, 2, COMPARE_LETTERS);
    plot_init(plot, columns.all_px, TITLE_PX + below_px(3) + ROW_PX * (uint32_t)n_quotas);
    compare_data(plot, quotas, n_quotas);
    begin(plot, 3);
    set_title(plot, "set multiplot title", title);
    name_rows(plot, names, n_quotas);
    place_key(plot, &columns, 0);
    set_margins(plot, &columns, 0);
    compare_units(plot, quotas, n_quotas);
    plot_script(plot, "\nunset ytics\nunset label\n");
    place_key(plot, &columns, 1);
    set_margins(plot, &columns, 1);
    compare_most(plot, quotas, n_quotas);
    plot_script(plot, "unset multiplot\n");
    return plot_check(plot, error);
}

/* ---- Keys and what is left of them ----------------------------------------------------------- */

static void bars_data(struct plot *plot, const struct chart_bar *bars, size_t n_bars)
{
    plot_set(plot, "left");
    add_no_bar(plot);
    for (size_t i = 0; i < n_bars; i++)
        if (!bars[i].cooling_down)
            add_bar(plot, i, 0, percent(bars[i].left, bars[i].most));
    plot_set(plot, "cooling down");
    add_no_bar(plot);
    for (size_t i = 0; i < n_bars; i++)
        if (bars[i].cooling_down)
            add_bar(plot, i, 0, percent(bars[i].left, bars[i].most));
}

/* "120 of 500, back in 3m20s": in whole seconds, rounded up, where it is some. */
static void draw_left(struct plot *plot, const struct chart_bar *bar, size_t i)
{
    char text[64];
    struct buf wait = buf_of(text, sizeof(text));
    uint64_t ns = bar->returns_in_ns;
    spec_format_duration(&wait,
                         ns < 10 * NS_PER_S ? ns : (ns + NS_PER_S - 1) / NS_PER_S * NS_PER_S);
    plot_script(plot,
                "set label %zu '%" PRIu64 " of %" PRIu64
                "%s%s%s' at graph 1, first %zu offset character 1.5, 0\n",
                i + 1, bar->left, bar->most, bar->cooling_down ? ", cooling down" : "",
                ns == 0 ? "" : ", back in ", ns == 0 ? "" : text, i);
}

int chart_bars(struct plot *plot, const char *title, const struct chart_bar *bars, size_t n_bars,
               struct stint_error *error)
{
    struct span names[CHART_BARS_MAX] = {0};
    assert(n_bars > 0);
    n_bars = n_bars < CHART_BARS_MAX ? n_bars : CHART_BARS_MAX;
    for (size_t i = 0; i < n_bars; i++)
        names[i] = bars[i].name;
    struct columns columns = columns_of(names, n_bars, 1, BARS_LETTERS);
    plot_init(plot, columns.all_px, TITLE_PX + below_px(2) + BAR_PX * (uint32_t)n_bars);
    bars_data(plot, bars, n_bars);
    begin(plot, 2);
    set_title(plot, "set title", title);
    name_rows(plot, names, n_bars);
    for (size_t i = 0; i < n_bars; i++)
        draw_left(plot, &bars[i], i);
    place_key(plot, &columns, 0);
    set_margins(plot, &columns, 0);
    plot_script(plot,
                "set xrange [0:100]\nset xlabel (is_text ? '%% left; # cooling down' : 'left, %% "
                "of what may be used')\nplot ");
    draw_bars(plot, "left", 1, PLOT_USED, "left");
    plot_script(plot, ", ");
    draw_bars(plot, "cooling down", 2, PLOT_REFUSED, "left, but cooling down");
    plot_script(plot, "\n");
    return plot_check(plot, error);
}
