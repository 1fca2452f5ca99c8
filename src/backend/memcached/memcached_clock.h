/* SPDX-License-Identifier: MIT */
/*
 * How far the nodes' clocks differ, as far as memcached can show. One key has the latest time that
 * any node had at its check; a node that finds a later time than its own is behind by at least so
 * much. Checks repeat at random times, because the result is too small by the age of the value. One
 * thread.
 */
#ifndef STINT_BACKEND_MEMCACHED_MEMCACHED_CLOCK_H
#define STINT_BACKEND_MEMCACHED_MEMCACHED_CLOCK_H

#include "backend/memcached/memcached_backend.h"

struct memcached_clock {
    struct memcached_conn *conn; /* of the server that has the key */
    unsigned server;
    const struct memcached_backend_options *options;
    struct memcached_metrics *metrics;
    struct memcached_key key;
    uint64_t next_ns;     /* the next check */
    uint64_t reported_ns; /* the largest that was reported */
    uint64_t random;
    uint8_t bytes[8]; /* what is written */
    bool is_asking;
};

/* Options and metrics are borrowed; the prefix is escaped. */
void memcached_clock_init(struct memcached_clock *clock,
                          const struct memcached_backend_options *options,
                          struct memcached_metrics *metrics, struct span prefix);
/* The first check is as soon as the connection is ready. */
void memcached_clock_wake(struct memcached_clock *clock, uint64_t now_ns);
uint64_t memcached_clock_deadline(const struct memcached_clock *clock);

#endif
