/* SPDX-License-Identifier: MIT */
/* When the log is to say that a full table evicts live states: at once, then once a minute at most. */
#ifndef STINT_IO_EVICTION_REPORT_H
#define STINT_IO_EVICTION_REPORT_H

#include "store/table.h"

struct eviction_report {
    uint64_t evictions, units; /* that were reported; at first those that a file remembers */
    uint64_t next_ns;          /* no line before this time */
};

/* What has come since the last line. */
struct evictions {
    uint64_t evictions, units;
};

void eviction_report_init(struct eviction_report *report, const struct stint_table *table);

/* Whether a line is due, and what it says. */
bool eviction_report_due(struct eviction_report *report, const struct stint_table *table,
                         uint64_t now_ns, struct evictions *since);

#endif
