/* SPDX-License-Identifier: MIT */
/* The only place that reads a clock, and the name of the boot that the clock counts from. */
#ifndef STINT_TABLE_CLOCK_H
#define STINT_TABLE_CLOCK_H

#include <stdint.h>

/* CLOCK_BOOTTIME: counts suspend, never steps, begins at the boot. */
uint64_t clock_boot_ns(void);

/* CLOCK_REALTIME, since 1970. Beyond EPOCH_MAX_NS it is that: a clock may show any year. */
int64_t clock_wall_ns(void);

/* A number that differs from boot to boot; 0 where the system does not tell. */
uint64_t clock_boot_id(void);

/*
 * A number of the time namespace whose CLOCK_BOOTTIME this process reads; 0 where the system does
 * not tell: a kernel without time namespaces has one for all.
 */
uint64_t clock_space_id(void);

#endif
