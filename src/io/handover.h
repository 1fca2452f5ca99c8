/* SPDX-License-Identifier: MIT */
/*
 * How one process takes the place of another without a connection being refused: over a Unix socket
 * the old one sends copies of its listening sockets, goes on accepting until the new one is ready,
 * and then stops. Whoever waits in a queue of a socket waits for the new one. Should the new one
 * fail before it is ready, nothing has changed. Only a process of the same user, or root's, is
 * listened to.
 */
#ifndef STINT_IO_HANDOVER_H
#define STINT_IO_HANDOVER_H

#include "io/listener.h"
#include "io/log.h"
#include "io/starter.h"

#include <uv.h>

struct handover;

struct handover_options {
    uv_loop_t *loop;
    const char *path; /* of the socket; NULL: nobody can take over */
    const struct listeners *listeners;
    struct starter *starter; /* NULL: nobody starts a successor for us */
    struct log *log;
    void (*handed_over)(void *arg, int successor); /* its pid: it serves now */
    void *arg;
};

struct handover *handover_new(const struct handover_options *options); /* NULL: no memory */
/* Freed by the loop; NULL is fine. */
void handover_close(struct handover *handover);

/*
 * Asks who serves at the path for his sockets, and appends them. 0 also where nobody does. Blocks,
 * for seconds at most.
 */
int handover_take(struct handover *handover, struct listener_given *given, size_t most,
                  size_t *n_given, struct stint_error *error);
/* Tells the predecessor, if there is one, that he may go; then listens for a successor. */
int handover_begin(struct handover *handover, struct stint_error *error);

/* Has a program started that is to take over. */
int handover_start_successor(struct handover *handover, struct stint_error *error);

#endif
