/* SPDX-License-Identifier: MIT */
/*
 * The socket of a connection to a store, in a libuv loop: opens it when the connection wants one,
 * in TLS or not, moves bytes, and calls the connection when its time has come. What is asked in one
 * turn of the loop leaves in one write. The thread of the loop.
 */
#ifndef STINT_IO_UPSTREAM_H
#define STINT_IO_UPSTREAM_H

#include "io/upstream_tls.h"
#include "remote/redis_conn.h"
#include "remote/url.h"

#include <uv.h>

struct upstream;

struct upstream_options {
    uv_loop_t *loop;
    struct store_host host;   /* a name of "": the Unix socket */
    const char *path;         /* of it; borrowed */
    struct upstream_tls *tls; /* NULL: none. Borrowed */
    struct redis_conn_options conn;
    /* It is ready now, or a socket was lost or not to be had. May be NULL */
    void (*changed)(void *arg);
    void *arg;
};

struct upstream *upstream_new(const struct upstream_options *options); /* NULL: no memory */
/* Answers what waits; freed by the loop. Not from within an answer. NULL is fine. */
void upstream_close(struct upstream *upstream);

/* As redis_conn_ask(). */
bool upstream_ask(struct upstream *upstream, const struct redis_command *command);
const struct redis_conn *upstream_conn(const struct upstream *upstream);
/* How often a socket was lost or not to be had. */
unsigned upstream_losses(const struct upstream *upstream);

#endif
