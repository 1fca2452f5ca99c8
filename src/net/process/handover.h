/* SPDX-License-Identifier: MIT */
/*
 * How one process takes the place of another without a connection being refused: over a Unix socket
 * the old process sends copies of its listening sockets, the new one serves beside it and says so,
 * and only then does the old one stop to accept. A new process that ends before it has said so
 * changes nothing. Each side trusts processes of its own user, and root's; both must keep their
 * limits in the same file.
 */
#ifndef STINT_NET_PROCESS_HANDOVER_H
#define STINT_NET_PROCESS_HANDOVER_H

#include "net/listen/listener.h"
#include "net/log/log.h"
#include "net/process/respawn_helper.h"

#include <uv.h>

struct handover;

struct handover_options {
    uv_loop_t *loop;
    const char *path; /* of the control socket; NULL: the process cannot be replaced */
    const struct listeners *listeners;
    int state_fd; /* of the file that keeps the limits; -1: they are in memory */
    struct respawn_helper *respawn_helper; /* NULL: no successor can be started */
    struct log *log;
    void (*handed_over)(void *arg, int successor); /* its pid: it serves now */
    void *arg;
};

struct handover *handover_new(const struct handover_options *options); /* NULL: no memory */
/* Freed by the loop; NULL is fine. */
void handover_close(struct handover *handover);

/*
 * Asks the process that serves at the path for its sockets, and appends them. 0 also where there is
 * none. Blocks, for seconds at most.
 */
int handover_take(struct handover *handover, struct listener_given *given, size_t most,
                  size_t *n_given, struct stint_error *error);
/* Has the control socket, bound where it was not taken over. Whatever can fail comes before commit.
 */
int handover_prepare(struct handover *handover, struct stint_error *error);
/*
 * To be called once this process serves: the predecessor, if there is one, stops to accept, and
 * successors are listened to. Fails only where the predecessor goes on serving.
 */
int handover_commit(struct handover *handover, struct stint_error *error);

/* Whether a successor has the sockets, and may live on when this process ends. */
bool handover_is_under_way(const struct handover *handover);

/* Has a program started that is to take over. */
int handover_start_successor(struct handover *handover, struct stint_error *error);

#endif
