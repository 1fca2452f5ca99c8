/* SPDX-License-Identifier: MIT */
/* What gnuplot is given: text that stays text, and data that lose nothing that can be seen. */
#include "unit/test_quota.h"

#include "base/ns.h"
#include "sim/picture/picture.h"

#include <math.h>

/* ---- Text ------------------------------------------------------------------------------------ */

static void check_quoted(struct span text, size_t columns, const char *expected)
{
    struct plot plot;
    char line[256];
    plot_init(&plot, plot_bars);
    plot_text(&plot, "t", text, columns);
    assert_false(plot.lost);
    snprintf(line, sizeof(line), "t = %s\n", expected);
    assert_string_equal(plot.variables.bytes, line);
    plot_deinit(&plot);
}

/* A key is any bytes of an unauthenticated client: they stay inside their quotes. */
TEST(test_bytes_become_a_string)
{
    check_quoted(span_of_text("worker-7"), 40, "\"worker-7\"");
    check_quoted(span_of_text("it's"), 40, "\"it\\047s\"");
    check_quoted(span_of_text("\";system('x')#"), 40, "\"\\042;system(\\047x\\047)\\043\"");
    check_quoted(span_of_text("`x` @d $d \\n"), 40, "\"\\140x\\140 \\100d \\044d \\134n\"");
    check_quoted(span_of_text("$12a1"), 40, "\"\\044\\061\\062a1\"");
    check_quoted(span_of_text("50%"), 40, "\"50\\045\"");
    check_quoted(span_of("a\nb\0c\x7f", 6), 40, "\"a?b?c?\"");
    check_quoted(span_of_text("Z\xc3\xbcrich \xe2\x82\xac \xf0\x9f\x98\x80"), 40,
                 "\"Z\xc3\xbcrich \xe2\x82\xac \xf0\x9f\x98\x80\"");
    /* Cut short, too long a form, a surrogate, past the last, a control character, a lone byte. */
    check_quoted(span_of("\xe2\x82", 2), 40, "\"\?\?\"");
    check_quoted(span_of_text("\xc0\xa7\xe0\x80\xa7"), 40, "\"\?\?\?\?\?\"");
    check_quoted(span_of_text("\xed\xa0\x80"), 40, "\"\?\?\?\"");
    check_quoted(span_of_text("\xf4\x90\x80\x80"), 40, "\"\?\?\?\?\"");
    check_quoted(span_of_text("\xc2\x9b"), 40, "\"\?\?\"");
    /* Marks that turn the direction of what follows. */
    check_quoted(span_of_text("\xe2\x80\xae"), 40, "\"\?\?\?\"");
    check_quoted(span_of_text("\xff\x80"), 40, "\"\?\?\"");
    check_quoted(span_of("", 0), 40, "\"\"");
}

/* The names of rows are an array, which the program of the drawing reads by number. */
TEST(test_names_are_an_array)
{
    struct plot plot;
    const struct span names[] = {span_of_text("a'b"), span_of_text("c")};
    plot_init(&plot, plot_bars);
    plot_names(&plot, "name", names, 2);
    assert_false(plot.lost);
    assert_string_equal(plot.variables.bytes,
                        "n = 2\narray name[n]\nname[1] = \"a\\047b\"\nname[2] = \"c\"\n");
    plot_deinit(&plot);
}

TEST(test_long_text_is_cut_at_a_character)
{
    check_quoted(span_of_text("abcdef"), 6, "\"abcdef\"");
    check_quoted(span_of_text("abcdefg"), 6, "\"abcde\xe2\x80\xa6\"");
    check_quoted(span_of_text("\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc"), 3,
                 "\"\xc3\xbc\xc3\xbc\xe2\x80\xa6\"");
}

/* ---- The data of a picture ------------------------------------------------------------------- */

struct shown {
    double at_s;
    double value[5]; /* used, returned, returned by belief, free, free by belief */
};

/* The rows of the first set. */
static struct shown *read_rows(const struct plot *plot, size_t *n_rows)
{
    const char *line = strchr(plot->data.bytes, '\n') + 1;
    struct shown *rows = NULL;
    *n_rows = 0;
    for (; *line != '\n'; line = strchr(line, '\n') + 1) {
        rows = realloc(rows, (*n_rows + 1) * sizeof(*rows));
        assert_non_null(rows);
        struct shown *row = &rows[(*n_rows)++];
        assert_int_equal(sscanf(line, "%lf %lf %lf %lf %lf %lf", &row->at_s, &row->value[0],
                                &row->value[1], &row->value[2], &row->value[3], &row->value[4]),
                         6);
    }
    return rows;
}

static struct history steady_history(const struct stint_quota *quota, uint64_t n_events)
{
    struct history_event *events = calloc(n_events, sizeof(*events));
    struct stint_cell16 cell[600] = {{{0, 0}}};
    struct history history;
    assert_non_null(events);
    assert_true(stint_state_size(quota) <= sizeof(cell));
    for (uint64_t i = 0; i < n_events; i++) {
        struct stint_ask ask = {.now_ns = i * NS_PER_S, .cost = (uint32_t)(1 + i % 3)};
        events[i] = (struct history_event){ask.now_ns, ask.cost,
                                           stint_state_ask(quota, cell, &ask).granted, 0};
    }
    assert_int_equal(history_init(&history, quota, events, n_events, NULL), 0);
    free(events);
    return history;
}

/* Each row of the history is a step: what held, and what holds from then on. */
TEST(test_rows_are_steps)
{
    struct stint_quota quota = quota_of("buckets 60/1m count_slack=10");
    struct history history = steady_history(&quota, 100);
    struct picture picture = {.history = &history, .key = span_of_text("k")};
    struct plot plot;
    size_t n_rows;
    picture_draw(&plot, &picture);
    assert_false(plot.lost);
    struct shown *rows = read_rows(&plot, &n_rows);
    assert_int_equal(history.rows[0].at_ns, history.rows[1].at_ns); /* before and after */
    assert_int_equal(n_rows, 2 * (history.n_rows - 1));
    for (size_t i = 0; i < n_rows; i++) {
        const struct history_row *row = &history.rows[1 + i / 2];
        assert_true(i == 0 || rows[i].at_s >= rows[i - 1].at_s);
        if (i % 2 == 0)
            assert_true(fabs(rows[i].at_s - (double)row->at_ns / 1e9) < 1e-9);
        assert_int_equal((int64_t)rows[i].value[0], row->used);
        assert_int_equal((int64_t)rows[i].value[1], row->returned);
        assert_int_equal((int64_t)rows[i].value[3], row->free_exactly);
        assert_int_equal((int64_t)rows[i].value[4], row->free_believed);
        /* The limiter holds what it does not believe to be free. */
        assert_int_equal((int64_t)rows[i].value[2], row->used + row->free_believed - 60);
    }
    free(rows);
    plot_deinit(&plot);
    history_deinit(&history);
}

/* Of a long history, what is drawn keeps its order, its ends, and every extreme. */
TEST(test_thinned_rows_keep_the_extremes)
{
    struct stint_quota quota = quota_of("window 900/1h");
    struct history history = steady_history(&quota, 20000);
    struct picture picture = {.history = &history};
    struct plot plot;
    size_t n_rows;
    picture_draw(&plot, &picture);
    assert_false(plot.lost);
    struct shown *rows = read_rows(&plot, &n_rows);
    assert_true(history.n_rows > 10000 && n_rows < 6000);
    int64_t least = 900, most = 0;
    for (size_t i = 0; i < history.n_rows; i++) {
        least = history.rows[i].free_exactly < least ? history.rows[i].free_exactly : least;
        most = history.rows[i].free_believed > most ? history.rows[i].free_believed : most;
    }
    double least_drawn = 900, most_drawn = 0;
    for (size_t i = 0; i < n_rows; i++) {
        assert_true(i == 0 || rows[i].at_s >= rows[i - 1].at_s);
        assert_true(i == 0 || rows[i].value[0] >= rows[i - 1].value[0]);
        least_drawn = rows[i].value[3] < least_drawn ? rows[i].value[3] : least_drawn;
        most_drawn = rows[i].value[4] > most_drawn ? rows[i].value[4] : most_drawn;
        const struct history_row *row = history_at(&history, (uint64_t)(rows[i].at_s * 1e9 + 0.5));
        assert_true(rows[i].value[0] <= (double)row->used);
    }
    assert_int_equal((int64_t)least_drawn, least);
    assert_int_equal((int64_t)most_drawn, most);
    assert_int_equal((uint64_t)rows[n_rows - 1].value[0], history.used);
    free(rows);
    plot_deinit(&plot);
    history_deinit(&history);
}

/* A long history is shown where it was denied most, and says that this is a part. */
TEST(test_the_busiest_part)
{
    struct stint_quota quota = quota_of("log 10/1m");
    static struct history_event events[200];
    for (uint64_t i = 0; i < 200; i++)
        events[i] = (struct history_event){i * NS_PER_MIN, 1, 1, 0};
    for (uint64_t i = 0; i < 20; i++) { /* 20 at once in the middle */
        events[100 + i].at_ns = 100 * NS_PER_MIN;
        events[100 + i].granted = i < 10;
    }
    struct history history;
    struct plot plot;
    size_t n_rows;
    assert_int_equal(history_init(&history, &quota, events, 200, NULL), 0);
    struct picture picture = {.history = &history};
    picture_draw(&plot, &picture);
    assert_false(plot.lost);
    assert_non_null(strstr(plot.variables.bytes, "\nis_part = 1\n"));
    struct shown *rows = read_rows(&plot, &n_rows);
    assert_true(rows[0].at_s < 100 * 60 && rows[0].at_s > 94 * 60);
    assert_true(rows[n_rows - 1].at_s > 100 * 60 && rows[n_rows - 1].at_s < 106 * 60);
    free(rows);
    plot_deinit(&plot);
    history_deinit(&history);
}

/* ---- Charts ---------------------------------------------------------------------------------- */

/* A row of columns for each quota; plots/compare.gp makes shares of them. */
TEST(test_quotas_side_by_side)
{
    static const struct chart_quota quotas[] = {
        {"log 100/1m", 900, 100, 0, 100, 100, 100},
        {"fixed_window 100/1m", 950, 50, 20, 150, 100, 200},
    };
    struct plot plot;
    chart_compare(&plot, "two", quotas, 2);
    assert_false(plot.lost);
    assert_string_equal(plot.data.bytes, "# admitted denied denied-falsely most limit bound\n"
                                         "900 100 0 100 100 100\n950 50 20 150 100 200\n");
    assert_non_null(strstr(plot.variables.bytes, "name[2] = \"fixed_window 100/1m\"\n"));
    plot_deinit(&plot);
}

/* Waits are stated in whole seconds, never too short, and a cooling down key is marked. */
TEST(test_bars)
{
    const struct chart_bar bars[] = {
        {span_of_text("a"), 1, 4, 90 * NS_PER_S + 1, false},
        {span_of_text("b"), 4, 4, 0, false},
        {span_of_text("c"), 2, 4, 0, true},
    };
    struct plot plot;
    chart_bars(&plot, "keys", bars, 3);
    assert_false(plot.lost);
    assert_string_equal(plot.data.bytes, "# left most cooling down\n1 4 0\n4 4 0\n2 4 1\n");
    assert_non_null(strstr(plot.variables.bytes, "beside[1] = \"1 of 4, back in 1m31s\"\n"));
    assert_non_null(strstr(plot.variables.bytes, "beside[2] = \"4 of 4\"\n"));
    assert_non_null(strstr(plot.variables.bytes, "beside[3] = \"2 of 4, cooling down\"\n"));
    plot_deinit(&plot);
}
