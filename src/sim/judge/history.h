/* SPDX-License-Identifier: MIT */
/*
 * The history of one key under a quota: how many units were used, how many had come back exactly
 * one period after their use, and how many the limiter counts as free. The latter is computed by
 * the engine's own algorithm on a state of this module; the count of units is made apart from it.
 *
 * Memory: 40 bytes for each time of a change, at most some three for each event.
 */
#ifndef STINT_SIM_JUDGE_HISTORY_H
#define STINT_SIM_JUDGE_HISTORY_H

#include "base/err.h"

/* One request of the key. Times never go back. */
struct history_event {
    uint64_t at_ns;
    uint32_t cost, granted;
    uint32_t key; /* for lists of several keys */
};

struct history_events {
    struct history_event *events;
    size_t n_events, size;
};

/* False: no memory. The list is zero at first, and its events are to be freed. */
bool history_events_add(struct history_events *list, struct history_event event);

/* The numbers from at_ns on, until the next row. */
struct history_row {
    uint64_t at_ns;
    uint64_t used, returned; /* units since the start */
    int64_t free_exactly;    /* limit - used + returned; below 0 where too much was admitted */
    uint32_t free_believed;  /* what one caller could take, according to the limiter */
};

/* A bucket, or a bunch of window: the units numbered from `below` on, in the order of use. */
struct history_group {
    uint64_t first_ns, last_ns; /* use */
    uint64_t returns_ns;
    uint64_t below, units;
};

enum history_why {
    HISTORY_NO_SPACE = 0, /* the exact count had no free units either */
    HISTORY_SLACK,        /* the exact count had free units */
    HISTORY_ELSEWHERE,    /* this quota would have granted it; another of the list did not */
};

struct history_denial {
    uint64_t at_ns;
    uint8_t why; /* enum history_why */
};

struct history {
    const struct stint_quota *quota;
    uint64_t period_ns; /* after which a unit is back; the lease of concurrency */
    struct history_row *rows;
    struct history_group *groups;
    struct history_denial *denials;
    size_t n_rows, n_groups, n_denials;
    size_t rows_size, groups_size, denials_size;
    uint64_t used;       /* units, of all events */
    uint64_t n_slack;    /* denials of HISTORY_SLACK */
    uint64_t n_no_space; /* denials of HISTORY_NO_SPACE */
};

/*
 * Starts with an unused state at the first event's time and continues until all units are back. The
 * quota is borrowed. Denied events are evaluated again, to find out whether this quota denied them.
 * 0 or a negative code; in both cases the history is to be freed.
 */
int history_init(struct history *history, const struct stint_quota *quota,
                 const struct history_event *events, size_t n_events, struct stint_error *error);
void history_deinit(struct history *history);

/* The row that holds at a time; the first one before all. */
const struct history_row *history_at(const struct history *history, uint64_t at_ns);

#endif
