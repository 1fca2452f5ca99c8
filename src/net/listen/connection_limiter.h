/* SPDX-License-Identifier: MIT */
/*
 * Limits the number of connections, in all and of one address. All workers share one limiter; it is
 * called when a connection opens and when it closes, under a lock. Any thread.
 */
#ifndef STINT_NET_LISTEN_CONNECTION_LIMITER_H
#define STINT_NET_LISTEN_CONNECTION_LIMITER_H

#include "base/err.h"

#include <sys/socket.h>

struct connection_limits {
    size_t connections; /* at least 1 */
    size_t per_address; /* of an IPv4 address or an IPv6 /64; 0: no limit. Unix sockets have none */
};

enum connection_limiter_answer {
    CONNECTION_ADMITTED,
    CONNECTION_LIMIT_TOTAL,
    CONNECTION_LIMIT_ADDRESS
};

struct connection_limiter;
struct connection_slot; /* the slot of an address */

struct connection_limiter *
connection_limiter_new(const struct connection_limits *limits); /* NULL: no memory */
void connection_limiter_free(
    struct connection_limiter *limiter); /* after all have left; NULL is allowed */

/* Open connections stay open, also if the new limits are lower. */
void connection_limiter_set_limits(struct connection_limiter *limiter,
                                   const struct connection_limits *limits);

/* On CONNECTION_ADMITTED pass *slot to connection_limiter_leave(), once. */
enum connection_limiter_answer connection_limiter_enter(struct connection_limiter *limiter,
                                                        const struct sockaddr *peer,
                                                        struct connection_slot **slot);
void connection_limiter_leave(struct connection_limiter *limiter, struct connection_slot *slot);

size_t connection_limiter_connections(struct connection_limiter *limiter);

#endif
