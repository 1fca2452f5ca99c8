/* SPDX-License-Identifier: MIT */
/* Whether a crash writes a copy of memory, with the keys and passwords in it. */
#ifndef STINT_NET_PROCESS_CORE_DUMP_H
#define STINT_NET_PROCESS_CORE_DUMP_H

#include "stint.h"

#include <stdbool.h>

/*
 * Call after the process has changed its user, which resets the flag. Where dumps are not allowed,
 * no other process of the same user can read the memory either (ptrace, /proc/PID/mem).
 * STINT_E_SYSTEM.
 */
int core_dump_allow(bool is_allowed, struct stint_error *error);

#endif
