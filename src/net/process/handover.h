/* SPDX-License-Identifier: MIT */
/*
 * Replaces one process by another without refusing a connection: over a Unix socket the old process
 * sends copies of its listening sockets, the new one begins to serve and reports it, and only then
 * does the old one stop accepting. A new process that ends before that changes nothing. Each side
 * trusts processes of its own user, and root's; both must keep their limits in the same file.
 */
#ifndef STINT_NET_PROCESS_HANDOVER_H
#define STINT_NET_PROCESS_HANDOVER_H

#include "base/err.h"
#include "net/listen/listener.h"
#include "net/log/log.h"

#include <stdbool.h>
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
/* Freed by the loop; NULL is allowed. */
void handover_close(struct handover *handover);

/*
 * Requests the sockets of the process that serves at the path, and appends them. 0 also if there is
 * none. Blocks, for seconds at most.
 */
int handover_take(struct handover *handover, struct listener_given *given, size_t most,
                  size_t *n_given, struct stint_error *error);
/* Sets up the control socket, bound if it was not taken over. All steps that can fail come before
 * commit. */
int handover_prepare(struct handover *handover, struct stint_error *error);
/*
 * Call once this process serves: the predecessor, if there is one, stops accepting, and successors
 * can connect. Fails only if the predecessor continues to serve.
 */
int handover_commit(struct handover *handover, struct stint_error *error);

/* Whether a successor gets or has the sockets, and may continue when this process ends. */
bool handover_is_under_way(const struct handover *handover);

/* Starts a program that is to take over. */
int handover_start_successor(struct handover *handover, struct stint_error *error);

/* ---- The respawn helper ---------------------------------------------------------------------- */

/*
 * A small process beside the server that starts its successor on request. It is made before the
 * server drops its privileges, so that only the helper can start a program, and it only ever starts
 * this one. It ends with the server.
 */

struct respawn_helper;

/*
 * Call while there is one thread, and before any descriptor is opened that must be closed when the
 * server is killed. argv[0] is the path of the program's file.
 */
int respawn_helper_new(struct respawn_helper **respawn_helper, char *const *argv,
                       struct stint_error *error);
/* Waits for its end; its children continue. NULL is allowed. */
void respawn_helper_free(struct respawn_helper *respawn_helper);

#endif
