/* SPDX-License-Identifier: MIT */
/*
 * Where a server listens, in its text form: "127.0.0.1:7379", "[::1]:7379", ":7379" (every address,
 * IPv6 and IPv4), "unix:/run/stint/resp.sock,mode=0660", "off". Host names are not accepted: the
 * addresses must not depend on a name service.
 */
#ifndef STINT_NET_LISTEN_ENDPOINT_H
#define STINT_NET_LISTEN_ENDPOINT_H

#include "base/err.h"

#include <sys/socket.h>
#include <sys/un.h>

#define ENDPOINT_TEXT_SIZE (sizeof(((struct sockaddr_un *)0)->sun_path) + 32)
#define ENDPOINT_MODE_DEFAULT 0660

struct endpoint {
    struct sockaddr_storage address;
    socklen_t address_len; /* 0: off */
    unsigned mode;         /* of a Unix socket: who may connect */
};

/* STINT_E_SYNTAX or STINT_E_RANGE, with a message that quotes the text. */
int endpoint_parse(struct endpoint *endpoint, const char *text, struct stint_error *error);

/* In the form that endpoint_parse() reads, without the mode; returns `text`. */
const char *endpoint_text(const struct sockaddr *address, char text[ENDPOINT_TEXT_SIZE]);

bool endpoint_is_off(const struct endpoint *endpoint);
/* Whether only this machine can connect to it: Unix sockets, 127.0.0.0/8, ::1. */
bool endpoint_is_local(const struct sockaddr *address);

/*
 * One listening socket: bound, with its queue, not blocking, closed on exec. `setting` chooses the
 * address, for messages: "http" of --http. The descriptor, or STINT_E_BUSY where the address is in
 * use, STINT_E_SYSTEM. A Unix socket without a listener is replaced; a path that is not a socket is
 * left unchanged: STINT_E_MISMATCH.
 */
int bind_socket(const struct endpoint *endpoint, const char *setting, struct stint_error *error);

/* A further one at an address where a socket of this server is bound (SO_REUSEPORT). */
int bind_socket_beside(const struct endpoint *endpoint, const char *setting,
                       struct stint_error *error);
bool bind_socket_is_shareable(int fd);

#endif
