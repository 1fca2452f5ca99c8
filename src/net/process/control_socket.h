/* SPDX-License-Identifier: MIT */
/*
 * The Unix socket through which a successor finds a server. A successor that connects to the socket
 * of another user would give that user all clients, and a server that answers another user would
 * give away its sockets: each side trusts only processes of its own user, and root's.
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

/* The peer's identity; false for a user who is not trusted. */
bool control_peer(int fd, struct control_peer *peer);

/*
 * Checks that users other than this one and root cannot put a socket at the path: 0, or
 * STINT_E_MISMATCH with the folder and the reason.
 */
int control_check_folder(const char *path, struct stint_error *error);

/* The descriptor of a new listening socket, or a negative code. */
int control_bind(const char *path, struct stint_error *error);

/* Connects to the running server. *fd is -1 if there is none: 0. Otherwise a code. */
int control_connect(const char *path, int *fd, struct stint_error *error);

#endif
