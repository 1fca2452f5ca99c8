/* SPDX-License-Identifier: MIT */
/* All maximums. Those that callers see are in stint.h. */
#ifndef STINT_BASE_LIMITS_H
#define STINT_BASE_LIMITS_H

#include "base/ns.h"

/* The largest limit, burst or cost, in units (docs/decisions/0056). */
#define UNIT_COUNT_MAX UINT32_MAX
#define UNIT_COUNT_MAX_TEXT "4294967295"
/* Follows that number in error messages. */
#define UNITS_ADVICE "count in larger units, such as thousands"

#define PERIOD_MIN_NS NS_PER_US
#define PERIOD_MAX_NS (10 * NS_PER_YEAR)
#define TABLE_LIFE_NS (8 * NS_PER_YEAR) /* times of a quota must not overflow within it */
#define SLOT_LIFE_NS (20 * NS_PER_YEAR) /* slot numbers pass less than half their range in it */
#define EPOCH_MAX_NS (INT64_C(1) << 62) /* 146 years either side: now and a year can be added */
#define TABLE_QUOTAS_MAX 32704          /* different ones in a table; ids above: table/intern.h */
#define BOOK_WAIT_MAX_NS NS_PER_YEAR    /* longest wait of a booking in a table */
#define WINDOW16_SLOTS_MAX 24           /* resolution of window in 16 bytes */
#define WINDOW_SLOTS_MAX 112            /* in 32 bytes */
#define BUCKETS_STATE_MAX 4096          /* bytes */
#define LOG_STATE_MAX 65536             /* bytes */
#define HOLDERS_STATE_MAX 65536         /* bytes of a concurrency state */
#define WIDE_STATE_MAX 65536            /* bytes: the largest of the three */
#define NARROW_STATE_MAX 16             /* bytes: larger states are in wide slots */
/*
 * Bytes of a wide slot: enough for any buckets, and a log of 509. Memory that no wide state has
 * touched stays with the kernel, but in a file it is allocated.
 */
#define WIDE_SIZE_DEFAULT 4096

#endif
