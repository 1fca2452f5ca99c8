/* SPDX-License-Identifier: MIT */
/*
 * How many connections there may be, in all and of one address. One gate for all workers; asked
 * once when a connection comes and once when it goes, under a lock. Any thread.
 */
#ifndef STINT_NET_LISTEN_GATE_H
#define STINT_NET_LISTEN_GATE_H

#include "base/err.h"

#include <sys/socket.h>

struct gate_limits {
    size_t connections; /* at least 1 */
    size_t per_address; /* of an IPv4 address or an IPv6 /64; 0: no limit. Unix sockets have none */
};

enum gate_answer { GATE_OPEN, GATE_FULL, GATE_ADDRESS_FULL };

struct gate;
struct gate_seat; /* what one connection takes up */

struct gate *gate_new(const struct gate_limits *limits); /* NULL: no memory */
void gate_free(struct gate *gate);                       /* after all have left; NULL is fine */

/* Who is in stays in, also where there may be fewer now. */
void gate_set_limits(struct gate *gate, const struct gate_limits *limits);

/* On GATE_OPEN *seat is to be given to gate_leave(), once. */
enum gate_answer gate_enter(struct gate *gate, const struct sockaddr *peer,
                            struct gate_seat **seat);
void gate_leave(struct gate *gate, struct gate_seat *seat);

size_t gate_connections(struct gate *gate);

#endif
