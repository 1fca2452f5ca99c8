/* SPDX-License-Identifier: MIT */
/*
 * Reads buckets and bunches out of a state. For a window, its runs hold when each slot comes back,
 * and the string how many bunches lie in it.
 */
#include "algorithm/groups.h"

#include "algorithm/window.h"

#include <assert.h>
#include <string.h>

/* `runs` are those of the same state at the same time, one for each slot that has stars. */
static size_t window_groups(const struct stint_quota *quota, const struct window *window,
                            const struct held_run *runs, struct held_group *groups)
{
    uint32_t stars = window_stars(quota, window), bars = 0;
    struct window_string_walk walk = window_string_walk(window->string);
    for (uint32_t place = 1; place <= stars; place++) {
        window_string_next(&walk);
        if (place > 1 && walk.bars != bars)
            runs++;
        bars = walk.bars;
        uint32_t size = place == window->place ? window_short(quota) : quota->derived.bunch;
        groups[place - 1] = (struct held_group){
            /* A run's time is the last instant of its slot. */
            .returns_ns = runs->at_ns + 1 + quota->period_ns,
            .units = size - (place == stars ? window->rest : 0),
        };
    }
    /* What the newest bunch has left represents displaced units, which come back first. */
    if (window->displaced > 0)
        groups[0].units += window->rest;
    return stars;
}

size_t groups_of(const struct stint_quota *quota, const void *state, uint64_t now_ns,
                 struct held_group groups[HELD_GROUPS_MAX])
{
    assert(quota->derived.checked && now_ns <= STINT_NOW_MAX);
    struct held_run runs[HELD_RUNS_MAX];
    if (quota->limit == 0)
        return 0;
    if (quota->algorithm == STINT_BUCKETS)
        return buckets_groups(quota, state, now_ns, groups);
    if (quota->algorithm != STINT_WINDOW)
        return 0;
    struct window window;
    if (quota->derived.state_size == 8) {
        uint64_t word;
        memcpy(&word, state, sizeof(word));
        window8_pass(quota, &word, now_ns);
        window8_held(quota, word, now_ns, runs);
        window = window8_unpack(quota, word);
    } else {
        struct word16 words;
        memcpy(&words, state, sizeof(words));
        window16_pass(quota, &words, now_ns);
        window16_held(quota, words, now_ns, runs);
        window = window16_unpack(quota, words);
    }
    return window_groups(quota, &window, runs, groups);
}
