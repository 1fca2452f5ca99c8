/* SPDX-License-Identifier: MIT */
/* The only code that reads a clock, and the identity of the boot that the clock counts from. */
#ifndef STINT_TABLE_CLOCK_H
#define STINT_TABLE_CLOCK_H

#include "table/counter.h"
#include "table/ticks.h"

/* Of all threads, and of all tables: the kernel has one such clock. */
extern struct ticks clock_ticks;
/* Reads CLOCK_BOOTTIME, and makes a line of the counter known where one can be relied on. */
uint64_t clock_boot_read(void);

/* The same from the line that is known; false if there is none for now. */
static inline bool clock_boot_quick(uint64_t *now_ns)
{
    uint64_t sequence;
    return ticks_has_line(&clock_ticks, &sequence) &&
           ticks_at(&clock_ticks, sequence, counter_read(), now_ns);
}

/*
 * CLOCK_BOOTTIME: counts suspend, never steps, begins at the boot. Where the processor's counter
 * can be relied on, it is computed from that, as ticks.h describes.
 */
static inline uint64_t clock_boot_ns(void)
{
    uint64_t now_ns;
    return clock_boot_quick(&now_ns) ? now_ns : clock_boot_read();
}

/* CLOCK_REALTIME, since 1970. Clamped to EPOCH_MAX_NS: a clock may show any year. */
int64_t clock_wall_ns(void);

/* A number that differs from boot to boot; 0 where the system has none. */
uint64_t clock_boot_id(void);

/*
 * A number of the time namespace whose CLOCK_BOOTTIME this process reads; 0 where the system has
 * none: a kernel without time namespaces has one time for all.
 */
uint64_t clock_space_id(void);

#endif
