/* SPDX-License-Identifier: MIT */
#include "race/scheduled.h"

#include <stdio.h>
#include <stdlib.h>

#define RULE 77

static void refuse(const struct stint_error *error)
{
    fprintf(stderr, "%s\n", error->message);
    exit(1);
}

void scheduled_open(struct scheduled *scheduled, const struct stint_table_options *options,
                    const char *const *specs)
{
    struct stint_error error;
    if (stint_table_open(&scheduled->table, options, &error) != 0)
        refuse(&error);
    scheduled->n_quotas = 0;
    while (scheduled->n_quotas < SCHEDULED_QUOTAS_MAX && specs[scheduled->n_quotas] != NULL) {
        struct stint_quota *quota = &scheduled->quotas[scheduled->n_quotas];
        if (stint_quota_parse(quota, specs[scheduled->n_quotas++], &error) != 0)
            refuse(&error);
        quota->rule = specs[1] != NULL ? RULE : 0;
    }
}

void scheduled_open_process(struct stint_table *handle, struct process_page *page,
                            const struct stint_table *table)
{
    struct stint_error error;
    *handle = *table;
    *page = (struct process_page){.owner = 0};
    handle->process = page;
    if (intern_open(&handle->intern, &table->region, &error) != 0)
        refuse(&error);
}

void scheduled_make_tasks(struct scheduled *scheduled, unsigned n_tasks)
{
    for (unsigned i = 0; i < n_tasks; i++)
        scheduled_open_process(&scheduled->tasks[i].table, &scheduled->tasks[i].page,
                               scheduled->table);
}

void scheduled_close(struct scheduled *scheduled, unsigned n_tasks)
{
    for (unsigned i = 0; i < n_tasks; i++)
        intern_close(&scheduled->tasks[i].table.intern);
    stint_table_close(scheduled->table);
}

static bool takes(struct scheduled *scheduled, uint32_t key, unsigned quota, uint32_t units,
                  uint64_t now_ns)
{
    return stint_take(scheduled->table, &scheduled->quotas[quota], &key, sizeof(key), units, now_ns)
               .outcome == STINT_ALLOW;
}

uint64_t scheduled_drain(struct scheduled *scheduled, uint32_t key, uint64_t now_ns)
{
    uint64_t units = 0;
    for (unsigned i = 0; i < scheduled->n_quotas; i++)
        while (takes(scheduled, key, i, 1, now_ns))
            units++;
    return units;
}

int scheduled_frozen_class(const struct scheduled *scheduled)
{
    for (int class = CLASS_8; class <= CLASS_WIDE; class ++) {
        const struct slots *slots = &scheduled->table->slots[class];
        for (uint64_t slot = 0; slot < slots->sets * WAYS; slot++) {
            uint8_t *set = slots->base + slot / WAYS * slots->set_size;
            struct seen seen = slots_see(slots, set, (unsigned)(slot % WAYS));
            if (slots_is_frozen(seen.pair.first))
                return class;
        }
    }
    return -1;
}

int scheduled_full_quota(struct scheduled *scheduled, uint32_t key, uint32_t units, uint64_t now_ns)
{
    now_ns += 3 * SCHEDULED_HOUR_NS;
    scheduled_drain(scheduled, key, now_ns); /* finds what a killed task had hold of */
    for (unsigned i = 0; i < scheduled->n_quotas; i++) {
        now_ns += 3 * SCHEDULED_HOUR_NS;
        if (!takes(scheduled, key, i, units, now_ns))
            return (int)i;
    }
    return -1;
}
