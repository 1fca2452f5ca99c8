/* SPDX-License-Identifier: MIT */
/*
 * The user of the server. A process of root changes its user before it opens a file, so that files
 * readable at the start can be read again later. Until its sockets are bound it keeps the one
 * capability that ports below 1024 need.
 */
#ifndef STINT_NET_PROCESS_USER_H
#define STINT_NET_PROCESS_USER_H

#include "base/err.h"

/*
 * For a process with one thread. 0 also if it runs as that user already; STINT_E_MISMATCH for a
 * user that is unknown, is root, or that a process not of root cannot change to.
 */
int user_become(const char *name, struct stint_error *error);
/* Drops all capabilities, and checks that. Root keeps its own. */
int user_settle(struct stint_error *error);

#endif
