/* SPDX-License-Identifier: MIT */
/*
 * The socket of a connection to a store, in a libuv loop: opens it when the connection wants one,
 * in TLS or not, moves bytes, and calls the connection when its time has come. What is asked in one
 * turn of the loop leaves in one write. The thread of the loop.
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
    struct store_host host;   /* a name of "": the Unix socket */
    const char *path;         /* of it; borrowed */
    struct upstream_tls *tls; /* NULL: none. Borrowed */
    struct link *link;        /* belongs to the upstream from then on */
    /* The clock by which the link is told the time. NULL: uv_hrtime() */
    uint64_t (*now)(void *arg);
    /* It is ready now, or a socket was lost or not to be had. May be NULL */
    void (*changed)(void *arg);
    void *arg;
};

/* NULL: no memory; the link is the caller's still. */
struct upstream *upstream_new(const struct upstream_options *options);
/* Answers what waits, and frees the link. Memory goes with the loop's next turn. Not from within
 * an answer. NULL is fine. */
void upstream_close(struct upstream *upstream);

/* The link was asked something: it leaves before the loop waits. Fine from within an answer. */
void upstream_asked(struct upstream *upstream);
/* How often a socket was lost or not to be had. */
unsigned upstream_losses(const struct upstream *upstream);

#endif
