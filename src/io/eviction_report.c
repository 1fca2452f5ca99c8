/* SPDX-License-Identifier: MIT */
#include "io/eviction_report.h"

#include "base/ns.h"

static struct evictions count(const struct stint_table *table)
{
    const struct region_counters *counters = table_counters(table);
    /* relaxed: the one may be a few evictions ahead of the other; the next line has them. */
    return (struct evictions){__atomic_load_n(&counters->evictions_evict, __ATOMIC_RELAXED),
                              __atomic_load_n(&counters->forgotten_units, __ATOMIC_RELAXED)};
}

void eviction_report_init(struct eviction_report *report, const struct stint_table *table)
{
    struct evictions so_far = count(table);
    *report = (struct eviction_report){.evictions = so_far.evictions, .units = so_far.units};
}

bool eviction_report_due(struct eviction_report *report, const struct stint_table *table,
                         uint64_t now_ns, struct evictions *since)
{
    struct evictions so_far = count(table);
    if (now_ns < report->next_ns || so_far.evictions == report->evictions)
        return false;
    *since = (struct evictions){so_far.evictions - report->evictions, so_far.units - report->units};
    *report = (struct eviction_report){so_far.evictions, so_far.units, now_ns + NS_PER_MIN};
    return true;
}
