/* SPDX-License-Identifier: MIT */
/*
 * The Unix socket at which a server is found by its successor. A successor that connects to the
 * socket of another user would give that user all clients, and a server that answers another user
 * would give away its sockets: each side trusts processes of its own user, and root's.
 */
#ifndef STINT_NET_PROCESS_CONTROL_SOCKET_H
#define STINT_NET_PROCESS_CONTROL_SOCKET_H

#include "base/err.h"

#include <stdbool.h>
#include <sys/types.h>

struct control_peer {
    pid_t pid;
    uid_t uid;
};

/* Who is at the other end; false for a user who is not trusted. */
bool control_peer(int fd, struct control_peer *peer);

/*
 * Whether users other than this one and root can put a socket of theirs at the path: 0, or
 * STINT_E_MISMATCH with the folder and what is wrong with it.
 */
int control_check_folder(const char *path, struct stint_error *error);

/* The descriptor of a new socket that listens there, or a negative code. */
int control_bind(const char *path, struct stint_error *error);

/* Connects to the process that serves. *fd is -1 where there is none: 0. Else a code. */
int control_connect(const char *path, int *fd, struct stint_error *error);

#endif
