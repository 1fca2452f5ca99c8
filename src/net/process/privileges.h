/* SPDX-License-Identifier: MIT */
/*
 * What the process may do in the system: its user and capabilities, core dumps, open files. A
 * process of root changes its user before it opens a file, so that files readable at the start can
 * be read again later. Until its sockets are bound it keeps the one capability that ports below
 * 1024 need.
 */
#ifndef STINT_NET_PROCESS_PRIVILEGES_H
#define STINT_NET_PROCESS_PRIVILEGES_H

#include "base/err.h"
#include "stint.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * For a process with one thread. 0 also if it runs as that user already; STINT_E_MISMATCH for a
 * user that is unknown, is root, or that a process not of root cannot change to.
 */
int user_become(const char *name, struct stint_error *error);
/* Drops all capabilities, and checks that. Root keeps its own. */
int user_settle(struct stint_error *error);

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
