/* SPDX-License-Identifier: MIT */
/* A request of a trace or a log, which the line parsers fill; and a list of requests. */
#ifndef STINT_SIM_INPUT_EVENT_H
#define STINT_SIM_INPUT_EVENT_H

#include "base/err.h"
#include "base/span.h"

/* The result of a parser; a negative enum stint_code says that the line is malformed. */
enum event_line {
    EVENT_NONE = 0, /* blank, or a comment */
    EVENT_FOUND = 1,
};

struct event {
    uint64_t at_ns;  /* since 0 in a trace, since 1970 in a log */
    struct span key; /* borrowed from the line or the parser, until the next line is parsed */
    uint32_t cost;
    uint8_t decimals; /* of the seconds, as the input writes them */
};

/* ---- Events kept in memory to be sorted by time: 24 bytes each ---- */

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
