/* SPDX-License-Identifier: MIT */
/*
 * A small process beside the server that starts its successor when it is asked to. It is made
 * before the server gives up its rights, so that it alone keeps the right to start a program, and
 * only ever starts this one. It ends with the server.
 */
#ifndef STINT_NET_PROCESS_RESPAWN_HELPER_H
#define STINT_NET_PROCESS_RESPAWN_HELPER_H

#include "base/err.h"

#include <stdbool.h>

struct respawn_helper;

/*
 * To be called while there is one thread, and before anything is opened that must not stay open
 * when the server is killed. argv[0] is the program's file, by its path.
 */
int respawn_helper_new(struct respawn_helper **respawn_helper, char *const *argv,
                       struct stint_error *error);
/* Waits for its end; what it has started goes on. NULL is fine. */
void respawn_helper_free(struct respawn_helper *respawn_helper);

/* Asks for a start; false if the process is gone. */
bool respawn_helper_ask(struct respawn_helper *respawn_helper);
/* Readable when what was started has ended, or the process itself. */
int respawn_helper_fd(const struct respawn_helper *respawn_helper);
/* What it was: false for the process itself. */
bool respawn_helper_read(struct respawn_helper *respawn_helper);

#endif
