/* SPDX-License-Identifier: MIT */
/* The sockets of one shared store, in a libuv loop. The thread of the loop. */
#ifndef STINT_NET_UPSTREAM_LINKS_H
#define STINT_NET_UPSTREAM_LINKS_H

#include "backend/memcached/memcached_backend.h"
#include "backend/redis/router.h"
#include "net/upstream/upstream.h"

#include <uv.h>

/* ---- memcached ------------------------------------------------------------------------------- */

/*
 * A memcached backend with its sockets: one connection to each server of its URL,
 * and the timer that wakes it.
 */

/* Zero is the default, except for the first two. */
struct memcached_links_options {
    uv_loop_t *loop;
    const struct store_url *url; /* borrowed until the backend is freed */
    struct upstream_tls *tls;    /* NULL: none. Borrowed as well */
    const char *prefix;          /* of its keys; copied. NULL: MEMCACHED_PREFIX_DEFAULT */
    uint64_t reply_ns;           /* of one command. Default 50 ms */
    uint64_t connect_ns;         /* Default 250 ms */
    size_t asks_max;             /* pending at once. Default 4,096 */
    uint64_t seed;               /* of the jitter in backing off and in waiting */
    uint64_t skew_max_ns;        /* of clocks, before it is reported. Default 100 ms */
    uint64_t (*now)(void *arg);  /* the clock of store requests. NULL: uv_hrtime() */
    uint64_t (*wall)(void *arg); /* since 1970. NULL: the system's */
    void *now_arg;               /* of both */
    /* The clock of another node is so far ahead of ours. NULL: not reported. */
    void (*skewed)(void *arg, uint64_t skew_ns);
    /* So many states were damaged. NULL: not reported. */
    void (*damaged)(void *arg, uint64_t states);
    void *arg; /* of both */
};

/*
 * NULL: no memory, or a prefix that is too long. Connects in the first turn of the loop. Freed by
 * its operations; handles are freed in the next turns.
 */
struct backend *memcached_links_new(const struct memcached_links_options *options);

/* The hash that shortens names; `arg` is not used. */
void memcached_links_digest(void *arg, struct span bytes, uint8_t out[MEMCACHED_DIGEST_LEN]);

/* ---- Redis ----------------------------------------------------------------------------------- */

/*
 * The sockets of one Redis backend, in a libuv loop: opens connections for its router on request,
 * and sets the timer that wakes it. The thread of the loop.
 */

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
