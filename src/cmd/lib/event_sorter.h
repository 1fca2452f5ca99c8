/* SPDX-License-Identifier: MIT */
/*
 * Puts events into the order of time, in bounded memory: 48 bytes for each of the first `held_max`.
 * More than these are sorted in parts, in a temporary file of 24 bytes for each event.
 */
#ifndef STINT_CMD_LIB_EVENT_SORTER_H
#define STINT_CMD_LIB_EVENT_SORTER_H

#include "sim/input/event.h"

#define EVENT_SORTER_HELD_MAX (UINT64_C(1) << 22) /* 96 MiB, and as much while they are sorted */

struct event_run;

struct event_sorter {
    size_t held_max;
    struct event_list held;
    size_t held_at; /* the next of them, if there is no file */
    int fd;         /* of the file; -1: none */
    uint64_t n_written;
    struct event_run *runs; /* the parts: by the time of their next event, then by number */
    size_t n_runs, at;      /* runs before `at` have ended */
    bool begun;
};

void event_sorter_init(struct event_sorter *sorter, size_t held_max);
void event_sorter_deinit(struct event_sorter *sorter);
int event_sorter_add(struct event_sorter *sorter, struct event_entry entry,
                     struct stint_error *error);
/*
 * 1 and the next event, 0 after the last, or a negative code. Events of one time come in the order
 * in which they were added; none is added after the first call.
 */
int event_sorter_next(struct event_sorter *sorter, struct event_entry *entry,
                      struct stint_error *error);

#endif
