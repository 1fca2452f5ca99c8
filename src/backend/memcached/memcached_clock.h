/* SPDX-License-Identifier: MIT */
/*
 * How far the clocks of nodes are apart, as far as can be known through memcached. There is one key
 * with the latest time that any of them had when it looked; whoever finds a later one than his own
 * is behind by so much at least. It is looked at again and again, at random, because what is found
 * is too small by the age of what was written. One thread.
 */
#ifndef STINT_BACKEND_MEMCACHED_MEMCACHED_CLOCK_H
#define STINT_BACKEND_MEMCACHED_MEMCACHED_CLOCK_H

#include "backend/memcached/memcached_backend.h"

struct memcached_clock {
    struct memcached_conn *conn; /* of the server that has the key */
    unsigned server;
    struct memcached_io *io;
    struct memcached_metrics *metrics;
    struct memcached_key key;
    uint64_t beat_ns, skew_max_ns;
    uint64_t next_ns; /* the next look */
    uint64_t told_ns; /* the largest that was told */
    uint64_t random;
    uint8_t bytes[8]; /* what is written */
    bool is_asking;
};

/* Looks for the first time as soon as the connection is ready. */
void memcached_clock_wake(struct memcached_clock *clock, uint64_t now_ns);
uint64_t memcached_clock_deadline(const struct memcached_clock *clock);

#endif
