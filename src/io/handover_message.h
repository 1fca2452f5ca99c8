/* SPDX-License-Identifier: MIT */
/* What two processes tell each other at a handover: records of one size, some with a socket. */
#ifndef STINT_IO_HANDOVER_MESSAGE_H
#define STINT_IO_HANDOVER_MESSAGE_H

#include <stdbool.h>

#define MESSAGE_TAKE "take/1"   /* the successor begins */
#define MESSAGE_SOCKET "socket" /* for each: its port's name, and a descriptor */
#define MESSAGE_ALL "all"
#define MESSAGE_READY "ready" /* the successor serves */
#define MESSAGE_LEAVES "leaves"
#define MESSAGE_PATIENCE_MS 5000

struct message {
    char verb[16];
    char port[16];
};

/* Both block, for MESSAGE_PATIENCE_MS at most. fd of -1: none. False: the other side is gone. */
bool message_send(int socket_fd, const char *verb, const char *port, int fd);
bool message_receive(int socket_fd, struct message *message, int *fd);
bool message_is(const struct message *message, const char *verb);
/* Makes a socket that does not block one that waits that long. */
void message_prepare(int socket_fd);

#endif
