/* SPDX-License-Identifier: MIT */
/* Logs that a full table evicts: at once, then at most once a minute. */
#ifndef STINT_NET_LOG_EVICTION_REPORT_H
#define STINT_NET_LOG_EVICTION_REPORT_H

#include "net/log/log.h"

struct eviction_report {
    uint64_t evictions, units; /* those reported; at first those stored in a state file */
    uint64_t next_ns;          /* no line before this time */
};

void eviction_report_init(struct eviction_report *report, const struct stint_table *table);

/* Call periodically: writes a line if there were evictions and a line is due. */
void eviction_report(struct eviction_report *report, const struct stint_table *table,
                     uint64_t now_ns, struct log *log);

#endif
