/* SPDX-License-Identifier: MIT */
/* Resource limits of the process: core dumps and open files. */
#ifndef STINT_NET_PROCESS_RLIMITS_H
#define STINT_NET_PROCESS_RLIMITS_H

#include "stint.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * Whether a crash writes a copy of memory, with the keys and passwords in it. Call after the
 * process has changed its user, which resets the flag. Where dumps are not allowed, no other
 * process of the same user can read the memory either (ptrace, /proc/PID/mem). STINT_E_SYSTEM.
 */
int rlimits_core_dumps(bool is_allowed, struct stint_error *error);

/*
 * Raises the limit of open files as far as the system allows. Returns how many connections are
 * possible: a server needs some descriptors beside theirs, and some for each worker.
 */
uint64_t rlimits_connections(unsigned workers);

#endif
