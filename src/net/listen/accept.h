/* SPDX-License-Identifier: MIT */
/*
 * Accepts the connections of one listening socket in a worker's loop, through the connection
 * limiter. Without a free descriptor accepting pauses; clients wait in the queue. One thread.
 */
#ifndef STINT_NET_LISTEN_ACCEPT_H
#define STINT_NET_LISTEN_ACCEPT_H

#include "net/listen/connection_limiter.h"
#include "net/listen/listener.h"
#include "net/log/log.h"
#include "service/metrics/metrics.h"

#include <uv.h>

struct acceptor;

/* The protocol of a port, with or without TLS. */
enum metrics_frontend port_frontend(enum port port);

struct acceptor_options {
    uv_loop_t *loop;
    const struct listener *listener;
    struct connection_limiter *connection_limiter;
    struct metrics_worker *metrics;
    struct log *log;
    /* Takes over the descriptor, which does not block, and the limiter's slot. */
    void (*accepted)(void *arg, enum port port, int fd, const struct sockaddr *peer,
                     struct connection_slot *slot);
    void *arg;
};

/* NULL: no memory, or the loop cannot poll the socket. */
struct acceptor *acceptor_new(const struct acceptor_options *options);
/* Accepts the connections that are in the queue now, without waiting for more. */
void acceptor_empty_queue(struct acceptor *acceptor);
/* Leaves the socket open; freed by the loop. NULL is allowed. */
void acceptor_close(struct acceptor *acceptor);

#endif
