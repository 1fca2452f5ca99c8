/* SPDX-License-Identifier: MIT */
/*
 * Two ways: the limit is for files that the kernel writes; a core_pattern that is a program gets a
 * dump regardless of the limit, unless the process is not dumpable. The hard limit is unchanged, so
 * that a successor may have another setting.
 */
#define _GNU_SOURCE
#include "net/process/core_dump.h"

#include "base/err.h"

#include <errno.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

int core_dump_allow(bool is_allowed, struct stint_error *error)
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
