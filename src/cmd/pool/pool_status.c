/* SPDX-License-Identifier: MIT */
/* `stint pool status`: the state of each key, by name only: a table, JSON or a picture. */
#define _GNU_SOURCE
#include "base/ns.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/format.h"
#include "cmd/lib/json_text.h"
#include "cmd/lib/print.h"
#include "cmd/pool/pool.h"
#include "sim/picture/chart.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define NAME_COLUMNS_MAX 40

const char *const pool_standing_names[] = {
    [STINT_POOL_FREE] = "free",       [STINT_POOL_USED_UP] = "used up",
    [STINT_POOL_COOLING] = "cooling", [STINT_POOL_BACKING_OFF] = "backing off",
    [STINT_POOL_IS_OUT] = "out",
};

struct view {
    const struct pool_keys *names;
    struct stint_pool_status *keys;
    size_t n_keys, n_free;
};

/* A callback of stint_pool_each(), which has the order of the keys and borrowed names. */
static bool collect(const struct stint_pool_status *status, void *arg)
{
    struct view *view = arg;
    view->keys[view->n_keys] = *status;
    view->keys[view->n_keys].name = view->names->keys[view->n_keys].name;
    view->n_keys++;
    view->n_free += status->standing == STINT_POOL_FREE;
    return true;
}

static void print_text(const struct view *view)
{
    size_t columns = 4;
    for (size_t i = 0; i < view->n_keys; i++) {
        size_t len = strlen(view->keys[i].name);
        columns = len > columns ? len : columns;
    }
    columns = columns < NAME_COLUMNS_MAX ? columns : NAME_COLUMNS_MAX;
    printf("%-*s  standing     remaining of limit   returns in\n", (int)columns, "key");
    for (size_t i = 0; i < view->n_keys; i++) {
        const struct stint_pool_status *key = &view->keys[i];
        struct formatted formatted;
        /* A cooldown ends some us late: the printed time is not rounded up to one more second. */
        uint64_t returns_ns = key->returns_after_ns;
        if (returns_ns != STINT_NEVER_NS)
            returns_ns -= returns_ns % NS_PER_MS;
        printf("%-*s  %-11s  %9" PRIu32 " of %-8" PRIu32 "  %s\n", (int)columns, key->name,
               pool_standing_names[key->standing], key->decision.remaining, key->decision.limit,
               key->returns_after_ns == 0 ? "-" : format_seconds_up(&formatted, returns_ns));
    }
    printf("%zu of %zu free\n", view->n_free, view->n_keys);
}

static json_t *key_json(const struct stint_pool_status *key)
{
    return json_pack(
        "{s:o, s:s, s:I, s:I, s:I, s:I, s:o, s:o}", "key", json_text_key(span_of_text(key->name)),
        "standing", pool_standing_names[key->standing], "weight", (json_int_t)key->weight,
        "failures", (json_int_t)key->failures, "limit", (json_int_t)key->decision.limit,
        "remaining", (json_int_t)key->decision.remaining, "returns_after_ns",
        json_text_ns(key->returns_after_ns), "reset_after_ns",
        json_text_ns(key->decision.reset_after_ns));
}

static int print_json(const struct pool_session *session, const struct view *view)
{
    json_t *keys = json_array();
    for (size_t i = 0; i < view->n_keys; i++)
        json_array_append_new(keys, key_json(&view->keys[i]));
    return json_text_print(json_pack("{s:o, s:o, s:I, s:o}", "pool",
                                     json_text_key(span_of_text(session->options->pool)), "now_ns",
                                     json_text_ns(pool_session_now(session)), "free",
                                     (json_int_t)view->n_free, "keys", keys),
                           true);
}

/* Keys that are out never return by themselves: no time is shown, the bar shows it. */
static int draw(const struct pool_session *session, const struct view *view)
{
    struct chart_bar *bars = calloc(view->n_keys, sizeof(*bars));
    struct stint_error error;
    struct plot plot;
    char title[STINT_POOL_NAME_MAX + 64];
    if (bars == NULL) {
        print_message("out of memory");
        return CMD_BAD_INPUT;
    }
    for (size_t i = 0; i < view->n_keys; i++) {
        const struct stint_pool_status *key = &view->keys[i];
        bars[i] = (struct chart_bar){
            .name = span_of_text(key->name),
            .left = key->decision.remaining,
            .most = key->decision.limit,
            .returns_in_ns = key->returns_after_ns == STINT_NEVER_NS ? 0 : key->returns_after_ns,
            .cooling_down = key->standing >= STINT_POOL_COOLING};
    }
    snprintf(title, sizeof(title), "Pool %s: what each key has left", session->options->pool);
    int result = CMD_BAD_INPUT;
    if (chart_bars(&plot, title, bars, view->n_keys, &error) == 0)
        result = gnuplot_draw(&session->options->plot, &plot);
    else
        print_message("%s", error.message);
    plot_deinit(&plot);
    free(bars);
    return result;
}

static int show(const struct pool_session *session, const struct view *view)
{
    bool draws = session->options->plot.format != GNUPLOT_NONE;
    bool on_screen = session->options->plot.format == GNUPLOT_TERMINAL;
    int result = CMD_DONE;
    if (session->options->json)
        result = print_json(session, view) == 0 ? CMD_DONE : CMD_BAD_INPUT;
    else if (!on_screen)
        print_text(view);
    return draws && result == CMD_DONE ? draw(session, view) : result;
}

int pool_status(struct pool_session *session)
{
    struct view view = {.names = &session->keys,
                        .keys = calloc(session->keys.n_keys, sizeof(*view.keys))};
    if (view.keys == NULL) {
        print_message("out of memory");
        return CMD_BAD_INPUT;
    }
    stint_pool_each(session->pool, pool_session_now(session), collect, &view);
    int result = show(session, &view);
    free(view.keys);
    return result;
}
