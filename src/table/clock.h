/* SPDX-License-Identifier: MIT */
/* The only code that reads a clock, and the identity of the boot that the clock counts from. */
#ifndef STINT_TABLE_CLOCK_H
#define STINT_TABLE_CLOCK_H

#include <stdint.h>

/* CLOCK_BOOTTIME: counts suspend, never steps, begins at the boot. */
uint64_t clock_boot_ns(void);

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
