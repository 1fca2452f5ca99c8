/* SPDX-License-Identifier: MIT */
/*
 * Steps from one time at which something changes to the next: an event, the exact return of an
 * earlier one, or a change of the limiter's own count, whose time its retry_after gives.
 */
#include "sim/judge/history.h"

#include "algorithm/algorithm.h"
#include "base/wide_int.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define BELIEFS_MAX 20000 /* changes that are followed one by one */
#define GRAINS 5000       /* if there are more: time steps */

struct walk {
    struct history *history;
    const struct history_event *events;
    size_t n_events, next; /* event */
    size_t back;           /* the oldest event whose units are not back */
    void *state;
    uint64_t now_ns, grain_ns;
    uint64_t used, returned;
    struct held_group groups[HELD_GROUPS_MAX];
};

static int no_memory(struct stint_error *error)
{
    return err_set(error, STINT_E_SYSTEM, "out of memory for the history of a key");
}

/* The items with capacity for one more of `item` bytes; NULL if there is no memory: they stay. */
static void *grow(void *items, size_t *size, size_t n, size_t item)
{
    if (n < *size)
        return items;
    size_t larger = *size == 0 ? 256 : *size * 2;
    void *moved = realloc(items, larger * item);
    if (moved != NULL)
        *size = larger;
    return moved;
}

bool history_events_add(struct history_events *list, struct history_event event)
{
    void *events = grow(list->events, &list->size, list->n_events, sizeof(event));
    if (events == NULL)
        return false;
    list->events = events;
    list->events[list->n_events++] = event;
    return true;
}

static struct stint_decision ask(const struct walk *walk, uint32_t cost, enum stint_verb verb)
{
    struct stint_ask ask = {.now_ns = walk->now_ns, .cost = cost, .verb = (uint8_t)verb};
    return stint_state_ask(walk->history->quota, walk->state, &ask);
}

static int64_t free_exactly(const struct walk *walk)
{
    return (int64_t)walk->history->quota->limit - (int64_t)(walk->used - walk->returned);
}

static bool add_row(const struct walk *walk)
{
    struct history *history = walk->history;
    void *rows = grow(history->rows, &history->rows_size, history->n_rows, sizeof(*history->rows));
    if (rows == NULL)
        return false;
    history->rows = rows;
    history->rows[history->n_rows++] = (struct history_row){
        .at_ns = walk->now_ns,
        .used = walk->used,
        .returned = walk->returned,
        .free_exactly = free_exactly(walk),
        .free_believed = ask(walk, 0, STINT_PEEK).remaining,
    };
    return true;
}

/* ---- Events ---------------------------------------------------------------------------------- */

/*
 * Groups return in order and only the newest takes units, so the ones that lived before the event
 * are the last ones of the history, and what follows them is new.
 */
static bool follow_groups(struct walk *walk, size_t n_before)
{
    struct history *history = walk->history;
    size_t n_now = algorithm_groups(history->quota, walk->state, walk->now_ns, walk->groups);
    size_t oldest = history->n_groups - n_before;
    for (size_t i = 0; i < n_now; i++) {
        if (i >= n_before) {
            void *groups = grow(history->groups, &history->groups_size, history->n_groups,
                                sizeof(*history->groups));
            if (groups == NULL)
                return false;
            history->groups = groups;
            const struct history_group *last = history->groups + history->n_groups - 1;
            history->groups[history->n_groups] = (struct history_group){
                .first_ns = walk->now_ns,
                .below = history->n_groups > 0 ? last->below + last->units : 0,
            };
            history->n_groups++;
        }
        struct history_group *group = &history->groups[oldest + i];
        if (group->units == walk->groups[i].units)
            continue;
        group->units = walk->groups[i].units;
        group->returns_ns = walk->groups[i].returns_ns;
        group->last_ns = walk->now_ns;
    }
    return true;
}

static bool add_denial(struct walk *walk, const struct history_event *event)
{
    struct history *history = walk->history;
    /* A quota that counts refusals receives them. */
    enum stint_verb verb = history->quota->count_denied ? STINT_TAKE : STINT_PEEK;
    bool refused = ask(walk, event->cost, verb).outcome != STINT_ALLOW;
    enum history_why why = !refused                                     ? HISTORY_ELSEWHERE
                           : free_exactly(walk) >= (int64_t)event->cost ? HISTORY_SLACK
                                                                        : HISTORY_NO_SPACE;
    void *denials = grow(history->denials, &history->denials_size, history->n_denials,
                         sizeof(*history->denials));
    if (denials == NULL)
        return false;
    history->denials = denials;
    history->denials[history->n_denials++] = (struct history_denial){walk->now_ns, (uint8_t)why};
    history->n_slack += why == HISTORY_SLACK;
    history->n_no_space += why == HISTORY_NO_SPACE;
    return true;
}

static bool add_event(struct walk *walk, const struct history_event *event)
{
    if (event->granted == 0)
        return event->cost == 0 || add_denial(walk, event);
    size_t n_before =
        algorithm_groups(walk->history->quota, walk->state, walk->now_ns, walk->groups);
    /* A table without a slot for the key may have granted what its algorithm would not. */
    if (ask(walk, event->granted, STINT_TAKE).outcome != STINT_ALLOW)
        ask(walk, event->granted, STINT_CHARGE);
    walk->used += event->granted;
    return follow_groups(walk, n_before);
}

/* ---- Time ------------------------------------------------------------------------------------ */

/* When the limiter's free units next increase without requests; STINT_NEVER_NS for never. */
static uint64_t belief_changes_ns(const struct walk *walk)
{
    uint32_t remaining = walk->history->rows[walk->history->n_rows - 1].free_believed;
    if (remaining >= most_units(walk->history->quota))
        return STINT_NEVER_NS;
    uint64_t wait_ns = ask(walk, remaining + 1, STINT_PEEK).retry_after_ns;
    if (wait_ns > STINT_NOW_MAX - walk->now_ns)
        return STINT_NEVER_NS;
    return walk->now_ns + max_u64(wait_ns, walk->grain_ns);
}

static uint64_t exact_return_ns(const struct walk *walk)
{
    return walk->back == walk->next ? STINT_NEVER_NS
                                    : walk->events[walk->back].at_ns + walk->history->period_ns;
}

/* None of them can come back. */
static void pass_denied(struct walk *walk)
{
    while (walk->back < walk->next && walk->events[walk->back].granted == 0)
        walk->back++;
}

/* False if there is no memory. */
static bool step(struct walk *walk)
{
    for (; exact_return_ns(walk) <= walk->now_ns; pass_denied(walk))
        walk->returned += walk->events[walk->back++].granted;
    for (; walk->next < walk->n_events && walk->events[walk->next].at_ns <= walk->now_ns;
         walk->next++)
        if (!add_event(walk, &walk->events[walk->next]))
            return false;
    pass_denied(walk);
    return add_row(walk);
}

static bool walk_all(struct walk *walk)
{
    walk->now_ns = walk->events[0].at_ns;
    if (!add_row(walk) || !step(walk))
        return false;
    for (;;) {
        uint64_t next_ns = belief_changes_ns(walk);
        next_ns = min_u64(next_ns, exact_return_ns(walk));
        if (walk->next < walk->n_events)
            next_ns = min_u64(next_ns, walk->events[walk->next].at_ns);
        if (next_ns > STINT_NOW_MAX)
            return true;
        assert(next_ns > walk->now_ns);
        walk->now_ns = next_ns;
        if (!step(walk))
            return false;
    }
}

/* The limit of changes that are followed one by one: each gives back at least one unit. */
static uint64_t grain_of(const struct walk *walk)
{
    uint64_t units = 0;
    for (size_t i = 0; i < walk->n_events; i++)
        units += walk->events[i].granted;
    uint64_t length_ns = walk->events[walk->n_events - 1].at_ns - walk->events[0].at_ns;
    return units <= BELIEFS_MAX ? 0 : (length_ns + walk->history->period_ns) / GRAINS;
}

int history_init(struct history *history, const struct stint_quota *quota,
                 const struct history_event *events, size_t n_events, struct stint_error *error)
{
    *history = (struct history){.quota = quota, .period_ns = quota->period_ns};
    if (n_events == 0)
        return 0;
    struct walk *walk = calloc(1, sizeof(*walk));
    void *state = aligned_alloc(16, (stint_state_size(quota) + 15) / 16 * 16);
    bool done = walk != NULL && state != NULL;
    if (done) {
        *walk = (struct walk){
            .history = history, .events = events, .n_events = n_events, .state = state};
        walk->grain_ns = grain_of(walk);
        stint_state_init(quota, state, events[0].at_ns);
        done = walk_all(walk);
        history->used = walk->used;
    }
    free(state);
    free(walk);
    return done ? 0 : no_memory(error);
}

void history_deinit(struct history *history)
{
    free(history->rows);
    free(history->groups);
    free(history->denials);
    *history = (struct history){0};
}

const struct history_row *history_at(const struct history *history, uint64_t at_ns)
{
    assert(history->n_rows > 0);
    size_t low = 0, high = history->n_rows; /* rows[low] holds, rows[high] is later */
    while (high - low > 1) {
        size_t mid = low + (high - low) / 2;
        if (history->rows[mid].at_ns <= at_ns)
            low = mid;
        else
            high = mid;
    }
    return &history->rows[low];
}
