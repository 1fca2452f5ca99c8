/* SPDX-License-Identifier: MIT */
/*
 * The socket of a connection to a store, in a libuv loop: opens it when the connection needs one,
 * with or without TLS, moves bytes, and calls the connection at its deadlines. All requests of one
 * turn of the loop are sent in one write. The thread of the loop.
 */
#ifndef STINT_NET_UPSTREAM_UPSTREAM_H
#define STINT_NET_UPSTREAM_UPSTREAM_H

#include "backend/url.h"
#include "backend/wire/backend_link.h"
#include "net/upstream/upstream_tls.h"

#include <uv.h>

struct upstream;

struct upstream_options {
    uv_loop_t *loop;
    struct store_host host;   /* an empty name: the Unix socket */
    const char *path;         /* of it; borrowed */
    struct upstream_tls *tls; /* NULL: none. Borrowed */
    struct link *link;        /* the upstream takes it over */
    /* The clock of the link. NULL: uv_hrtime() */
    uint64_t (*now)(void *arg);
    /* It is ready now, or a socket failed or could not be opened. May be NULL */
    void (*changed)(void *arg);
    void *arg;
};

/* NULL: no memory; the caller still owns the link. */
struct upstream *upstream_new(const struct upstream_options *options);
/* Ends pending requests, and frees the link. Memory is freed in the loop's next turn. Not from
 * within an answer. NULL is allowed. */
void upstream_close(struct upstream *upstream);

/* The link has output: it is sent before the loop waits. Also allowed from within an answer. */
void upstream_asked(struct upstream *upstream);
/* How often a socket failed or could not be opened. */
unsigned upstream_losses(const struct upstream *upstream);

#endif
