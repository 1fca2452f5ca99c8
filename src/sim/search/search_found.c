/* SPDX-License-Identifier: MIT */
/*
 * Every shorter sequence is played and checked, against the algorithm and the exact count. A
 * request whose grant was left out gives nothing back.
 */
#include "sim/search/search_found.h"

#include "base/wide_int.h"

#include <stdlib.h>
#include <string.h>

/* Shortening ends once so many bytes were played: sequences may be long, and states wide. */
#define TIDIED_BYTES_MAX (UINT64_C(1) << 28)

void search_found_deinit(struct search_found *found)
{
    free(found->asks);
    free(found->spare);
    memset(found, 0, sizeof(*found));
}

static int grow(struct search_ask **asks, size_t *asks_size, size_t n_asks,
                struct stint_error *error)
{
    if (n_asks <= *asks_size)
        return 0;
    struct search_ask *more = realloc(*asks, n_asks * sizeof(*more));
    if (more == NULL)
        return err_set(error, STINT_E_SYSTEM, "out of memory for %zu requests", n_asks);
    *asks = more;
    *asks_size = n_asks;
    return 0;
}

int search_found_take(struct search_found *found, const struct search_play *play,
                      struct stint_error *error)
{
    int code = grow(&found->asks, &found->asks_size, play->n_asks, error);
    if (code != 0)
        return code;
    if (play->n_asks > 0)
        memcpy(found->asks, play->asks, play->n_asks * sizeof(*play->asks));
    found->n_asks = play->n_asks;
    found->units = play->units;
    found->at_ns = play->at_ns;
    return 0;
}

/* Takes the first requests of `spare`, if their score is as good. */
static int adopt(struct search_found *found, struct search_play *play, size_t n_asks, bool *adopted,
                 struct stint_error *error)
{
    *adopted = false;
    found->tidied_bytes += n_asks * (64 + play->subject->state_size);
    int code = search_play_asks(play, found->spare, n_asks, error);
    if (code != 0 || play->units < found->units)
        return code;
    *adopted = true;
    return search_found_take(found, play, error);
}

static bool has_time(const struct search_found *found)
{
    return found->tidied_bytes < TIDIED_BYTES_MAX;
}

/* A clock that goes back for no gain stands still instead. */
static int straighten(struct search_found *found, struct search_play *play,
                      struct stint_error *error)
{
    uint64_t latest_ns = 0;
    bool adopted;
    for (size_t i = 0; i < found->n_asks; i++) {
        found->spare[i] = found->asks[i];
        latest_ns = found->spare[i].now_ns = max_u64(latest_ns, found->asks[i].now_ns);
    }
    return adopt(found, play, found->n_asks, &adopted, error);
}

/* Requests before the window, refused requests, and those after it may all be useless. */
static int leave_window(struct search_found *found, struct search_play *play,
                        struct stint_error *error)
{
    size_t n_spare = 0;
    bool adopted;
    for (size_t i = 0; i < found->n_asks; i++) {
        const struct search_ask *ask = &found->asks[i];
        if (ask->granted && ask->now_ns <= found->at_ns &&
            found->at_ns - ask->now_ns < play->subject->period_ns)
            found->spare[n_spare++] = *ask;
    }
    return adopt(found, play, n_spare, &adopted, error);
}

/* Copies all but the requests from `at` on; returns how many that are. */
static size_t copy_without(struct search_found *found, size_t at, size_t n_asks)
{
    size_t behind = found->n_asks - at - n_asks;
    memcpy(found->spare, found->asks, at * sizeof(*found->asks));
    memcpy(found->spare + at, found->asks + at + n_asks, behind * sizeof(*found->asks));
    return at + behind;
}

/* Leaves out runs of requests, from halves down to single ones. */
static int leave_out(struct search_found *found, struct search_play *play,
                     struct stint_error *error)
{
    int code = 0;
    for (size_t run = (found->n_asks + 1) / 2; run > 0; run = run == 1 ? 0 : (run + 1) / 2)
        for (size_t at = 0; at < found->n_asks && code == 0 && has_time(found);) {
            size_t left_out = (size_t)min_u64(run, found->n_asks - at);
            bool adopted;
            code = adopt(found, play, copy_without(found, at, left_out), &adopted, error);
            at += adopted ? 0 : left_out;
        }
    return code;
}

/* More than any cost for two that cannot be joined: each return belongs to its own grant. */
static uint64_t joint_cost(const struct search_found *found, size_t at)
{
    const struct search_ask *ask = &found->asks[at];
    bool joins = ask->verb == ask[1].verb &&
                 (ask->verb == SEARCH_VERB_TAKE || ask->verb == SEARCH_VERB_CHARGE);
    return joins ? (uint64_t)ask->cost + ask[1].cost : UINT64_MAX;
}

/* Copies with one request in place of every two that can be joined; returns how many there are. */
static size_t copy_joined(struct search_found *found, uint32_t cost_max)
{
    size_t n_spare = 0;
    for (size_t i = 0; i < found->n_asks; i++, n_spare++) {
        found->spare[n_spare] = found->asks[i];
        if (i + 1 == found->n_asks || joint_cost(found, i) > cost_max)
            continue;
        found->spare[n_spare].cost = (uint32_t)joint_cost(found, i);
        found->spare[n_spare].now_ns = found->asks[++i].now_ns;
    }
    return n_spare;
}

/* Joins neighbours into one request at the time of the later: all of them, then one by one. */
static int join(struct search_found *found, struct search_play *play, struct stint_error *error)
{
    uint32_t cost_max = play->subject->cost_max;
    bool adopted = true;
    int code = 0;
    for (size_t before = SIZE_MAX; adopted && found->n_asks < before && code == 0;) {
        before = found->n_asks;
        code = adopt(found, play, copy_joined(found, cost_max), &adopted, error);
    }
    for (size_t at = 0; at + 1 < found->n_asks && code == 0 && has_time(found); at += !adopted) {
        adopted = false;
        if (joint_cost(found, at) > cost_max)
            continue;
        uint32_t cost = (uint32_t)joint_cost(found, at);
        size_t n_asks = copy_without(found, at, 1);
        found->spare[at].cost = cost;
        code = adopt(found, play, n_asks, &adopted, error);
    }
    return code;
}

/* Replaces a charge by a take if the score stays as good, so that charges left are needed. */
static int ask_first(struct search_found *found, struct search_play *play,
                     struct stint_error *error)
{
    int code = 0;
    for (size_t at = 0; at < found->n_asks && code == 0 && has_time(found); at++) {
        bool adopted;
        if (found->asks[at].verb != SEARCH_VERB_CHARGE)
            continue;
        memcpy(found->spare, found->asks, found->n_asks * sizeof(*found->asks));
        found->spare[at].verb = SEARCH_VERB_TAKE;
        code = adopt(found, play, found->n_asks, &adopted, error);
    }
    return code;
}

/* Removes idle time at the start, in whole periods, which keep the meaning of other times. */
static int begin_early(struct search_found *found, struct search_play *play,
                       struct stint_error *error)
{
    uint64_t period_ns = play->subject->period_ns, first_ns = UINT64_MAX;
    bool adopted = false;
    int code = 0;
    for (size_t i = 0; i < found->n_asks; i++)
        first_ns = min_u64(first_ns, found->asks[i].now_ns);
    for (uint64_t n = 0; n <= 2 && first_ns / period_ns > n && !adopted && code == 0; n++) {
        uint64_t earlier_ns = (first_ns / period_ns - n) * period_ns;
        for (size_t i = 0; i < found->n_asks; i++) {
            found->spare[i] = found->asks[i];
            found->spare[i].now_ns -= earlier_ns;
        }
        code = adopt(found, play, found->n_asks, &adopted, error);
    }
    return code;
}

int search_found_tidy(struct search_found *found, struct search_play *play,
                      struct stint_error *error)
{
    if (found->n_asks == 0)
        return 0;
    found->tidied_bytes = 0;
    int code = grow(&found->spare, &found->spare_size, found->n_asks, error);
    if (code == 0)
        code = straighten(found, play, error);
    if (code == 0)
        code = leave_window(found, play, error);
    if (code == 0)
        code = join(found, play, error);
    if (code == 0)
        code = leave_out(found, play, error);
    if (code == 0)
        code = ask_first(found, play, error);
    if (code == 0)
        code = join(found, play, error);
    return code != 0 ? code : begin_early(found, play, error);
}
