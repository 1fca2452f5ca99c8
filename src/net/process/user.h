/* SPDX-License-Identifier: MIT */
/*
 * Whom the server runs as. Root becomes somebody else before a file is opened, so that what can be
 * read at the beginning can be read again later; until its sockets are bound it keeps the one right
 * that ports below 1024 need.
 */
#ifndef STINT_NET_PROCESS_USER_H
#define STINT_NET_PROCESS_USER_H

#include "base/err.h"

/*
 * For a process with one thread. 0 also where it is that user already; STINT_E_MISMATCH for one
 * that is not known, is root, or whom a process that is not root's cannot become.
 */
int user_become(const char *name, struct stint_error *error);
/* Gives up every right beyond a user's, and looks whether they are gone. Root keeps its own. */
int user_settle(struct stint_error *error);

#endif
