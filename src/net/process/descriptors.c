/* SPDX-License-Identifier: MIT */
/* A server needs some descriptors beside those of its connections, and some for each worker. */
#define _GNU_SOURCE
#include "net/process/descriptors.h"

#include <sys/resource.h>

#define SPARE 64 /* for files, loops and sockets that are no connections */
#define SPARE_OF_A_WORKER 16

uint64_t descriptors_for_connections(unsigned workers)
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
