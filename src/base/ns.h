/* SPDX-License-Identifier: MIT */
/* Units of time, in nanoseconds. Time itself is a plain uint64_t whose name ends in _ns. */
#ifndef STINT_BASE_NS_H
#define STINT_BASE_NS_H

#include <stdint.h>

#define NS_PER_US UINT64_C(1000)
#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S UINT64_C(1000000000)
#define NS_PER_MIN (60 * NS_PER_S)
#define NS_PER_HOUR (60 * NS_PER_MIN)
#define NS_PER_DAY (24 * NS_PER_HOUR)
#define NS_PER_WEEK (7 * NS_PER_DAY)
#define NS_PER_YEAR (365 * NS_PER_DAY)

/* In whole units, such as NS_PER_S; rounded up. */
static inline uint64_t ns_units_up(uint64_t ns, uint64_t unit_ns)
{
    return ns / unit_ns + (ns % unit_ns != 0);
}

/* What holds between machines allows for this: no clock is slower than at this part of another. */
#define CLOCK_RATES_PERCENT 99

/* So long on a clock that at least this time passes on another one, if the first one is fast. */
static inline uint64_t ns_on_fast_clock(uint64_t ns)
{
    uint64_t more = ns * (100 - CLOCK_RATES_PERCENT);
    return ns + more / CLOCK_RATES_PERCENT + (more % CLOCK_RATES_PERCENT > 0);
}

#endif
