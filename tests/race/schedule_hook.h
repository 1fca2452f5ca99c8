/* SPDX-License-Identifier: MIT */
/*
 * Put before every file of src/table when it is compiled for schedules (schedule.h): each access to
 * shared memory first asks the scheduler whose turn it is, and processes, deaths and waits are the
 * scheduler's.
 */
#ifndef STINT_TESTS_RACE_SCHEDULE_HOOK_H
#define STINT_TESTS_RACE_SCHEDULE_HOOK_H

#define _GNU_SOURCE

#include "schedule.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#define __atomic_load_n(at, order) (schedule_access((at), false), __atomic_load_n((at), (order)))
#define __atomic_store_n(at, value, order)                                                         \
    (schedule_access((at), true), __atomic_store_n((at), (value), (order)))
#define __atomic_exchange_n(at, value, order)                                                      \
    (schedule_access((at), true), __atomic_exchange_n((at), (value), (order)))
#define __atomic_compare_exchange_n(at, ...)                                                       \
    (schedule_access((at), true), __atomic_compare_exchange_n((at), __VA_ARGS__))

#include "table/slot/cas16.h"

CAS16_TARGET static inline bool schedule_cas16(struct pair *at, struct pair before,
                                               struct pair after)
{
    schedule_access(at, true);
    if (schedule_loses_swap())
        before = cas16_load(at);
    return cas16(at, before, after);
}

#define cas16(...) schedule_cas16(__VA_ARGS__)

/* No process of a schedule has a start time, and no table a file. */
static inline int schedule_open(const char *path, int flags, ...)
{
    (void)path;
    (void)flags;
    return -1;
}

#define sched_yield() schedule_wait()
#define getpid() schedule_pid()
#define kill(pid, signal) schedule_signal(pid, signal)
#define open(path, ...) schedule_open(path, __VA_ARGS__)

#endif
