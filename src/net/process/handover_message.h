/* SPDX-License-Identifier: MIT */
/* The messages of a handover: records of one size, some with a descriptor. */
#ifndef STINT_NET_PROCESS_HANDOVER_MESSAGE_H
#define STINT_NET_PROCESS_HANDOVER_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MESSAGE_TAKE "take/2"     /* successor: requests the sockets; with its state file */
#define MESSAGE_SOCKET "socket"   /* for each: its port's name, and a descriptor */
#define MESSAGE_CONTROL "control" /* the socket at which successors connect */
#define MESSAGE_ALL "all"         /* no more descriptors follow */
#define MESSAGE_SERVING "serving" /* successor: answers requests now */
#define MESSAGE_LEAVES "leaves"   /* reply to it, with the sender's pid */
#define MESSAGE_REFUSED "refused" /* instead of any reply, with one of the reasons below */
#define MESSAGE_PATIENCE_MS 5000

#define REFUSED_USER "user"       /* the successor runs as another user */
#define REFUSED_VERSION "version" /* unknown verb */
#define REFUSED_STATE "state"     /* the two keep limits in different files */
#define REFUSED_BUSY "busy"       /* too many processes at once */
#define REFUSED_LATE "late"       /* the successor did not serve in time */
#define REFUSED_TAKEN "taken"     /* another process has taken over */

/* Identifies a state file, also after it was renamed. All zero: limits are in memory. */
struct message_state {
    uint64_t device, inode;
};

struct message {
    char verb[16];
    union {
        char word[16]; /* the name of a port, or a reason */
        struct message_state state;
        uint64_t pid;
    };
};

/* A record with a word; NULL: none. */
struct message message_of(const char *verb, const char *word);
bool message_is(const struct message *message, const char *verb);
bool message_has_word(const struct message *message, const char *word);

/* Sets a timeout of MESSAGE_PATIENCE_MS for calls at a socket. */
void message_prepare(int socket_fd);
/* fd of -1: none. False with errno; EAGAIN: not now, where the socket does not block. */
bool message_send(int socket_fd, const struct message *message, int fd);
/* Waits for a whole record. False: the peer is gone, or too slow. */
bool message_receive(int socket_fd, struct message *message, int *fd);

enum message_progress { MESSAGE_PARTIAL, MESSAGE_WHOLE, MESSAGE_END };
/* Reads the available bytes of a record, of which *len were read before. Descriptors are
 * dropped. */
enum message_progress message_read(int socket_fd, struct message *message, size_t *len);

#endif
