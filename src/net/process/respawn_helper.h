/* SPDX-License-Identifier: MIT */
/*
 * A small process beside the server that starts its successor on request. It is made before the
 * server drops its privileges, so that only the helper can start a program, and it only ever starts
 * this one. It ends with the server.
 */
#ifndef STINT_NET_PROCESS_RESPAWN_HELPER_H
#define STINT_NET_PROCESS_RESPAWN_HELPER_H

#include "base/err.h"

#include <stdbool.h>

struct respawn_helper;

/*
 * Call while there is one thread, and before any descriptor is opened that must be closed when the
 * server is killed. argv[0] is the path of the program's file.
 */
int respawn_helper_new(struct respawn_helper **respawn_helper, char *const *argv,
                       struct stint_error *error);
/* Waits for its end; its children continue. NULL is allowed. */
void respawn_helper_free(struct respawn_helper *respawn_helper);

/* Requests a start; false if the helper has ended. */
bool respawn_helper_ask(struct respawn_helper *respawn_helper);
/* Readable when a child has ended, or the helper itself. */
int respawn_helper_fd(const struct respawn_helper *respawn_helper);
/* Which of them has ended: false for the helper. */
bool respawn_helper_read(struct respawn_helper *respawn_helper);

#endif
