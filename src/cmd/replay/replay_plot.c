/* SPDX-License-Identifier: MIT */
/* `stint replay --plot`: keeps the results of the events, and draws the picture of one key. */
#define _GNU_SOURCE
#include "cmd/lib/cmd.h"
#include "cmd/lib/format.h"
#include "cmd/lib/print.h"
#include "cmd/replay/replay.h"
#include "sim/picture/picture.h"

#include <stdlib.h>

void replay_plot_deinit(struct replay_plot *plot)
{
    free(plot->events);
    *plot = (struct replay_plot){0};
}

/* With --plot-key, only that key. */
static bool is_wanted(const struct replay_run *run, uint32_t key)
{
    const char *wanted = run->options->plot_key;
    return wanted == NULL || span_equals(key_set_name(&run->names, key), wanted);
}

int replay_plot_keep(struct replay_run *run, struct replay_plot_event event,
                     struct stint_error *error)
{
    struct replay_plot *plot = &run->plot;
    if (!is_wanted(run, event.key))
        return 0;
    if (plot->n_events == plot->size) {
        size_t size = plot->size == 0 ? 4096 : plot->size * 2;
        struct replay_plot_event *events = realloc(plot->events, size * sizeof(*events));
        if (events == NULL)
            return err_set(error, STINT_E_SYSTEM, "out of memory for --plot: %zu events so far",
                           plot->n_events);
        plot->events = events;
        plot->size = size;
    }
    plot->events[plot->n_events++] = event;
    return 0;
}

/* The key that was denied most; if none was denied, the one that was allowed most. */
static uint32_t choose_key(const struct replay_run *run)
{
    uint32_t chosen = 0;
    for (uint32_t key = 1; key < run->names.n_keys && key < run->tallies_size; key++) {
        const struct replay_tally *tally = &run->tallies[key], *most = &run->tallies[chosen];
        if (tally->denied > most->denied ||
            (tally->denied == most->denied && tally->allowed > most->allowed))
            chosen = key;
    }
    return chosen;
}

/* The events of one key; NULL if there is no memory for them. */
static struct history_event *events_of(const struct replay_plot *plot, uint32_t key, size_t *n)
{
    struct history_event *events = malloc(plot->n_events * sizeof(*events));
    *n = 0;
    for (size_t i = 0; events != NULL && i < plot->n_events; i++)
        if (plot->events[i].key == key)
            events[(*n)++] = (struct history_event){plot->events[i].now_ns, plot->events[i].cost,
                                                    plot->events[i].granted};
    return events;
}

/* The quota that denied the key most. */
static int make_history(struct history *history, struct stint_quota *quotas, size_t n_quotas,
                        const struct history_event *events, size_t n_events,
                        struct stint_error *error)
{
    int code = history_init(history, &quotas[0], events, n_events, error);
    for (size_t i = 1; code == 0 && i < n_quotas; i++) {
        struct history other;
        code = history_init(&other, &quotas[i], events, n_events, error);
        if (code == 0 &&
            other.n_no_space + other.n_slack > history->n_no_space + history->n_slack) {
            struct history less = *history;
            *history = other;
            other = less;
        }
        history_deinit(&other);
    }
    return code;
}

static int draw_history(const struct replay_run *run, const struct history *history, uint32_t key)
{
    struct formatted date;
    struct picture picture = {.history = history, .key = key_set_name(&run->names, key)};
    /* A trace has a 0 of its own; times of a log count from the key's first event. */
    if (run->options->source.format != REPLAY_TRACE) {
        picture.zero_ns = history->rows[0].at_ns;
        picture.origin = format_date(&date, run->epoch_ns + picture.zero_ns);
    }
    struct plot plot;
    struct stint_error error;
    int result = CMD_BAD_INPUT;
    if (picture_draw(&plot, &picture, &error) != 0)
        print_message("%s", error.message);
    else
        result = gnuplot_draw(&run->options->plot, &plot);
    plot_deinit(&plot);
    return result;
}

int replay_plot_draw(const struct replay_run *run)
{
    const struct replay_options *options = run->options;
    if (run->plot.n_events == 0) {
        if (options->plot_key != NULL)
            print_message("--plot: no event has the key '%s'", options->plot_key);
        else
            print_message("--plot: there are no events to draw");
        return CMD_BAD_INPUT;
    }
    uint32_t key = options->plot_key != NULL ? run->plot.events[0].key : choose_key(run);
    struct stint_quota quotas[STINT_ITEMS_MAX];
    for (size_t i = 0; i < options->n_quotas; i++) {
        quotas[i] = options->quotas[i];
        quotas[i].epoch_ns = stint_epoch_ns(run->table);
    }
    struct stint_error error;
    size_t n_events;
    struct history_event *events = events_of(&run->plot, key, &n_events);
    if (events == NULL) {
        print_message("out of memory for --plot");
        return CMD_BAD_INPUT;
    }
    struct history history;
    int result = CMD_BAD_INPUT;
    if (make_history(&history, quotas, options->n_quotas, events, n_events, &error) != 0)
        print_message("%s", error.message);
    else
        result = draw_history(run, &history, key);
    history_deinit(&history);
    free(events);
    return result;
}
