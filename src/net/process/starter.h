/* SPDX-License-Identifier: MIT */
/*
 * A small process beside the server that starts its successor when it is asked to. It is made
 * before the server gives up its rights, so that it alone keeps the right to start a program, and
 * only ever starts this one. It ends with the server.
 */
#ifndef STINT_NET_PROCESS_STARTER_H
#define STINT_NET_PROCESS_STARTER_H

#include "base/err.h"

#include <stdbool.h>

struct starter;

/*
 * To be called while there is one thread, and before anything is opened that must not stay open
 * when the server is killed. argv[0] is the program's file, by its path.
 */
int starter_new(struct starter **starter, char *const *argv, struct stint_error *error);
/* Waits for its end; what it has started goes on. NULL is fine. */
void starter_free(struct starter *starter);

/* Asks for a start; false if the process is gone. */
bool starter_ask(struct starter *starter);
/* Readable when what was started has ended, or the process itself. */
int starter_fd(const struct starter *starter);
/* What it was: false for the process itself. */
bool starter_read(struct starter *starter);

#endif
