/* SPDX-License-Identifier: MIT */
#include "net/log/report.h"

#include "base/ns.h"
#include "service/service.h"
#include "service/unmatched.h"
#include "table/table.h"

#define AND_OTHERS "others are only counted in the metrics until a reload"

void eviction_report_init(struct eviction_report *report, const struct stint_table *table)
{
    const struct region_counters *counters = table_counters(table);
    /* relaxed: one may include more evictions than the other; the next line has them. */
    report->evictions = __atomic_load_n(&counters->evictions_evict, __ATOMIC_RELAXED);
    report->units = __atomic_load_n(&counters->forgotten_units, __ATOMIC_RELAXED);
    report->next_ns = 0;
}

void eviction_report(struct eviction_report *report, const struct stint_table *table,
                     uint64_t now_ns, struct log *log)
{
    struct eviction_report so_far;
    eviction_report_init(&so_far, table);
    if (now_ns < report->next_ns || so_far.evictions == report->evictions)
        return;
    log_line(log, LOG_TABLE_FULL, LOG_NUMBER("evictions", so_far.evictions - report->evictions),
             LOG_NUMBER("units", so_far.units - report->units));
    *report = so_far;
    report->next_ns = now_ns + NS_PER_MIN;
}

void unmatched_report(struct server_state *server_state, struct log *log)
{
    struct unmatched_name name;
    while (unmatched_next(server_state_unmatched(server_state),
                          server_state_generation(server_state), &name)) {
        bool is_domain = name.kind == UNMATCHED_DOMAIN;
        struct log_field fields[3];
        size_t n = 0;
        fields[n++] = LOG_TEXT("domain", name.domain);
        if (!is_domain)
            fields[n++] = LOG_TEXT("keys", name.keys);
        if (name.is_last)
            fields[n++] = LOG_TEXT("note", AND_OTHERS);
        log_write(log, is_domain ? LOG_DOMAIN_UNKNOWN : LOG_UNMATCHED, fields, n);
    }
}
