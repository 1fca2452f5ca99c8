/* SPDX-License-Identifier: MIT */
/*
 * The sockets of one Redis backend, in a libuv loop: opens connections for its router on request,
 * and sets the timer that wakes it. The thread of the loop.
 */
#ifndef STINT_NET_UPSTREAM_REDIS_LINKS_H
#define STINT_NET_UPSTREAM_REDIS_LINKS_H

#include "backend/redis/router.h"
#include "net/upstream/upstream.h"

#include <uv.h>

struct backend_links_options {
    uv_loop_t *loop;
    struct upstream_tls *tls;   /* NULL: none. Borrowed */
    uint64_t (*now)(void *arg); /* NULL: uv_hrtime() */
    void *now_arg;
};

/*
 * NULL: no memory. Pass it to router_new(), which takes it over; before that, or without it, its
 * operation `free` ends it. Handles are freed in the next turn of the loop.
 */
struct dialer *backend_links_new(const struct backend_links_options *options);
/* Sets the router to wake: before the loop runs. */
void backend_links_wake(struct dialer *dialer, struct router *router);

#endif
