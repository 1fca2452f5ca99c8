/* SPDX-License-Identifier: MIT */
/*
 * The counter of the processor that time is computed from (ticks.h); COUNTER_EXISTS is 0 where
 * there is none, and the kernel's clock is read each time.
 *
 * The counter is read without a fence. The processor may then read it some tens of instructions
 * early or late, as it may any load, and rdtscp or a fence before it would cost as much as the
 * whole take. In one thread counts are in order. A thread that reads the time after another thread
 * has passed it a time may get one that is less than a microsecond earlier: callers in other
 * processes may be as late as `skew_max`.
 */
#ifndef STINT_TABLE_COUNTER_H
#define STINT_TABLE_COUNTER_H

#include "table/region/system.h"

#include <stdbool.h>
#include <stdint.h>

#if SYSTEM_IS_LINUX && defined(__x86_64__)
#define COUNTER_EXISTS 1

#include <cpuid.h>
#include <sys/prctl.h>

static inline uint64_t counter_read(void)
{
    uint32_t low, high;
    /* "memory": the sequence of a line is read before and after it. */
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high) : : "memory");
    return (uint64_t)high << 32 | low;
}

/* Whether the processor says that it counts at one rate, always, and the process may read it. */
static inline bool counter_is_steady(void)
{
    unsigned eax, ebx, ecx, edx;
    int mode;
    return __get_cpuid(0x80000007, &eax, &ebx, &ecx, &edx) != 0 && (edx & 1U << 8) != 0 &&
           prctl(PR_GET_TSC, &mode) == 0 && mode == PR_TSC_ENABLE;
}

#else
#define COUNTER_EXISTS 0

static inline uint64_t counter_read(void)
{
    return 0;
}

static inline bool counter_is_steady(void)
{
    return false;
}

#endif

#endif
