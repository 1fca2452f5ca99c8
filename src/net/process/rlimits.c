/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "net/process/rlimits.h"

#include "base/err.h"

#include <errno.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#define SPARE 64 /* for files, loops and sockets that are no connections */
#define SPARE_OF_A_WORKER 16

/*
 * Two ways: the limit is for files that the kernel writes; a core_pattern that is a program gets a
 * dump regardless of the limit, unless the process is not dumpable. The hard limit is unchanged, so
 * that a successor may have another setting.
 */
int rlimits_core_dumps(bool is_allowed, struct stint_error *error)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_CORE, &limit) != 0)
        return err_set(error, STINT_E_SYSTEM, "cannot read the limit of core dumps: %s",
                       strerror(errno));
    limit.rlim_cur = is_allowed ? limit.rlim_max : 0;
    if (setrlimit(RLIMIT_CORE, &limit) != 0 || prctl(PR_SET_DUMPABLE, is_allowed, 0, 0, 0) != 0)
        return err_set(error, STINT_E_SYSTEM, "cannot %s core dumps: %s",
                       is_allowed ? "allow" : "forbid", strerror(errno));
    return 0;
}

uint64_t rlimits_connections(unsigned workers)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return UINT64_MAX;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur == RLIM_INFINITY)
        return UINT64_MAX;
    uint64_t spare = SPARE + SPARE_OF_A_WORKER * (uint64_t)workers;
    return limit.rlim_cur > spare ? limit.rlim_cur - spare : 1;
}
