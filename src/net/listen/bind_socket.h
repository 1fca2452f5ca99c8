/* SPDX-License-Identifier: MIT */
/* One listening socket: bound, with its queue, not blocking, closed on exec. */
#ifndef STINT_NET_LISTEN_BIND_SOCKET_H
#define STINT_NET_LISTEN_BIND_SOCKET_H

#include "net/listen/endpoint.h"

/* `setting` chooses the address, for messages: "http" of --http.
 *
 * The descriptor, or STINT_E_BUSY where the address is in use, STINT_E_SYSTEM. A Unix socket
 * without a listener is replaced; a path that is not a socket is left unchanged.
 */
int bind_socket(const struct endpoint *endpoint, const char *setting, struct stint_error *error);

/* A further one at an address where a socket of this server is bound (SO_REUSEPORT). */
int bind_socket_beside(const struct endpoint *endpoint, const char *setting,
                       struct stint_error *error);
bool bind_socket_is_shareable(int fd);

#endif
