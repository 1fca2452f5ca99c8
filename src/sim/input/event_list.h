/* SPDX-License-Identifier: MIT */
/* Events kept in memory to be sorted by time: 24 bytes each. */
#ifndef STINT_SIM_INPUT_EVENT_LIST_H
#define STINT_SIM_INPUT_EVENT_LIST_H

#include "base/err.h"

/* An event whose key is a number of a key_set. */
struct event_entry {
    uint64_t at_ns; /* as in the input */
    uint32_t key, cost;
    uint8_t decimals;
};

struct event_list {
    struct event_entry *entries;
    size_t n_entries, size;
};

void event_list_deinit(struct event_list *list);
int event_list_add(struct event_list *list, struct event_entry entry, struct stint_error *error);

/* By time; events of one time stay in the order of the input. */
int event_list_sort(struct event_list *list, struct stint_error *error);

#endif
