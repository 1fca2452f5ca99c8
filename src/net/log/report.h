/* SPDX-License-Identifier: MIT */
/* What a server logs periodically: evictions of a full table, and names that no rule limits. */
#ifndef STINT_NET_LOG_REPORT_H
#define STINT_NET_LOG_REPORT_H

#include "net/log/log.h"

struct server_state;

struct eviction_report {
    uint64_t evictions, units; /* those reported; at first those stored in a state file */
    uint64_t next_ns;          /* no line before this time */
};

void eviction_report_init(struct eviction_report *report, const struct stint_table *table);

/* Writes a line if there were evictions: at once, then at most once a minute. */
void eviction_report(struct eviction_report *report, const struct stint_table *table,
                     uint64_t now_ns, struct log *log);

/* Writes which domains and keys of requests no rule limits: each once. */
void unmatched_report(struct server_state *server_state, struct log *log);

#endif
