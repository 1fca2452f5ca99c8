/* SPDX-License-Identifier: MIT */
/* The keys with most requests and denials: exact, as a replay counts every key anyway. */
#define _GNU_SOURCE
#include "cmd/lib/format.h"
#include "cmd/lib/json_text.h"
#include "cmd/lib/print.h"
#include "cmd/replay/replay.h"

#include <stdio.h>

#define DENIED_MOST_DEFAULT 10

struct most {
    uint32_t keys[REPLAY_POPULAR_MAX]; /* most first; of equal ones the first */
    size_t n_keys;
};

static uint64_t denied_of(const struct replay_tally *tally)
{
    return tally->denied;
}

static uint64_t asked_of(const struct replay_tally *tally)
{
    return tally->allowed + tally->denied;
}

/* Up to `max` keys with the most units of `units_of`, above 0. */
static void find_most(struct most *most, const struct replay_run *run, size_t max,
                      uint64_t (*units_of)(const struct replay_tally *))
{
    most->n_keys = 0;
    for (uint32_t key = 0; key < run->names.n_keys && key < run->tallies_size; key++) {
        uint64_t units = units_of(&run->tallies[key]);
        size_t at = most->n_keys;
        while (at > 0 && units > units_of(&run->tallies[most->keys[at - 1]]))
            at--;
        if (units == 0 || at == max)
            continue;
        most->n_keys += most->n_keys < max;
        for (size_t i = most->n_keys - 1; i > at; i--)
            most->keys[i] = most->keys[i - 1];
        most->keys[at] = key;
    }
}

static size_t denied_max(const struct replay_run *run)
{
    return run->options->top_keys > 0 ? run->options->top_keys : DENIED_MOST_DEFAULT;
}

/* ---- Text ---- */

static void print_list(const struct replay_run *run, const struct most *most,
                       uint64_t (*units_of)(const struct replay_tally *),
                       uint64_t (*beside_of)(const struct replay_tally *))
{
    for (size_t i = 0; i < most->n_keys; i++) {
        const struct replay_tally *tally = &run->tallies[most->keys[i]];
        struct formatted units, beside;
        printf("  %20s %14s   ", format_count(&units, units_of(tally)),
               format_count(&beside, beside_of(tally)));
        print_escaped(stdout, key_set_name(&run->names, most->keys[i]));
        putchar('\n');
    }
}

static uint64_t allowed_of(const struct replay_tally *tally)
{
    return tally->allowed;
}

void replay_print_most(const struct replay_run *run)
{
    struct most most;
    find_most(&most, run, run->options->top_keys, asked_of);
    if (most.n_keys > 0)
        printf("\nkeys asked most  %21s %14s\n", "asked", "denied");
    print_list(run, &most, asked_of, denied_of);
    find_most(&most, run, denied_max(run), denied_of);
    if (most.n_keys > 0)
        printf("\nkeys denied most %21s %14s\n", "denied", "allowed");
    print_list(run, &most, denied_of, allowed_of);
}

/* ---- JSON ---- */

static json_t *list_json(const struct replay_run *run, const struct most *most)
{
    json_t *list = json_array();
    for (size_t i = 0; i < most->n_keys; i++) {
        const struct replay_tally *tally = &run->tallies[most->keys[i]];
        json_array_append_new(list,
                              json_pack("{s:o, s:I, s:I}", "key",
                                        json_text_key(key_set_name(&run->names, most->keys[i])),
                                        "denied_units", (json_int_t)tally->denied, "allowed_units",
                                        (json_int_t)tally->allowed));
    }
    return list;
}

json_t *replay_denied_most_json(const struct replay_run *run)
{
    struct most most;
    find_most(&most, run, denied_max(run), denied_of);
    return list_json(run, &most);
}

json_t *replay_asked_most_json(const struct replay_run *run)
{
    struct most most;
    find_most(&most, run, run->options->top_keys, asked_of);
    return list_json(run, &most);
}
