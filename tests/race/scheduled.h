/* SPDX-License-Identifier: MIT */
/* One small table, the tasks of a schedule on it, each as a process of its own, and what must hold
 * of the table once they have ended. */
#ifndef STINT_TESTS_RACE_SCHEDULED_H
#define STINT_TESTS_RACE_SCHEDULED_H

#include "race/schedule.h"
#include "table/table.h"

#include <stdbool.h>
#include <stdint.h>

#define SCHEDULED_QUOTAS_MAX 3
#define SCHEDULED_HOUR_NS (UINT64_C(3600) * NS_PER_S)

struct scheduled {
    struct stint_table *table;
    struct stint_quota quotas[SCHEDULED_QUOTAS_MAX]; /* several: of one rule */
    unsigned n_quotas;
    struct scheduled_task {
        struct stint_table table;
        struct process_page page;
    } tasks[SCHEDULE_TASKS_MAX];
};

/* Specs end with NULL, or after SCHEDULED_QUOTAS_MAX. Ends the program if the table refuses. */
void scheduled_open(struct scheduled *scheduled, const struct stint_table_options *options,
                    const char *const *specs);
/* The handle of another process on a table, with a page of its own. */
void scheduled_open_process(struct stint_table *handle, struct process_page *page,
                            const struct stint_table *table);
/* Copies the handle on the table, as it is by now, for that many tasks. */
void scheduled_make_tasks(struct scheduled *scheduled, unsigned n_tasks);
void scheduled_close(struct scheduled *scheduled, unsigned n_tasks);

/* One unit after the other, until each quota has nothing more to give: how many there were. */
uint64_t scheduled_drain(struct scheduled *scheduled, uint32_t key, uint64_t now_ns);

/* The class in which a slot is frozen; -1: none. No task that goes on leaves one. */
int scheduled_frozen_class(const struct scheduled *scheduled);

/*
 * The quota under which a key is full hours after all its units are over; -1: none. What a task
 * that was killed had hold of may be full for one period after it is found.
 */
int scheduled_full_quota(struct scheduled *scheduled, uint32_t key, uint32_t units,
                         uint64_t now_ns);

#endif
