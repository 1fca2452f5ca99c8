/* SPDX-License-Identifier: MIT */
/* A request of a trace or a log, which the line parsers fill; its key; and a list of requests. */
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

/* ---- A trace: `TIME KEY [COST]`, with `#` comments ---- */

/* Returns an enum event_line, or a negative code for a line that is malformed. */
int trace_parse(struct event *event, struct span line, struct stint_error *error);

/* Reads a cost: digits, 0 … 2^32-1. */
int trace_parse_cost(uint32_t *cost, struct span text, struct stint_error *error);

/*
 * ---- A key made of several parts, `a+b` ----
 *
 * Parts hold any bytes, so a plus or a backslash inside a part is written with a backslash before
 * it: two different lists of parts never make the same key. A single part is left as it is.
 */

#define JOINED_KEY_PARTS_MAX 8

struct joined_key {
    size_t len;
    uint8_t bytes[STINT_KEY_MAX];
};

/* *key borrows the parts' own memory or that of `joined`. */
int joined_key_make(struct joined_key *joined, struct span *key, const struct span *parts,
                    size_t n_parts, struct stint_error *error);

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
