/* SPDX-License-Identifier: MIT */
/*
 * A backend over memcached: each state, with the open tickets of its key, is one value. It is read,
 * decided on by the limiter, and written back if no other node wrote meanwhile. It has no sockets:
 * `struct memcached_io` has them, and the clocks.
 *
 * memcached runs no scripts and returns no time, so the nodes' clocks decide: at most N in any
 * window that is shorter than the period by their skew. What it loses, by a restart or because its
 * memory is full, counts as unused. docs/decisions/0040.
 */
#ifndef STINT_BACKEND_MEMCACHED_MEMCACHED_BACKEND_H
#define STINT_BACKEND_MEMCACHED_MEMCACHED_BACKEND_H

#include "backend/store_key.h"
#include "backend/wire/memcached_conn.h"

#include <stdatomic.h>

#define MEMCACHED_PREFIX_DEFAULT "stint:"

struct memcached_io;

struct memcached_io_ops {
    uint64_t (*now)(struct memcached_io *io);  /* the clock of requests */
    uint64_t (*wall)(struct memcached_io *io); /* since 1970: the time of quotas */
    memcached_digest *digest;                  /* passed to the io; for names that are too long */
    /* A connection has commands to send, together with all others of this turn. */
    void (*asked)(struct memcached_io *io, unsigned server);
    /* memcached_backend_deadline() is earlier than it was. */
    void (*hurry)(struct memcached_io *io);
    /* A clock was found that is fast by so much, which is more than the limit. */
    void (*skewed)(struct memcached_io *io, uint64_t skew_ns);
    /* So many states were damaged, and replaced by used-up ones; called at each doubling. */
    void (*damaged)(struct memcached_io *io, uint64_t states);
    /* The store ends: frees the connections, which answers what waits in them, and itself. */
    void (*close)(struct memcached_io *io);
};

/* First member of the owner of the sockets. */
struct memcached_io {
    const struct memcached_io_ops *ops;
};

/* Zero is the default, but for the first three. */
struct memcached_backend_options {
    const struct store_url *url; /* borrowed: its hosts are the servers */
    struct memcached_io *io;
    struct memcached_conn *const *conns; /* one for each host of the URL, or for its socket */
    const char *prefix;                  /* of all keys; copied. NULL: the default */
    size_t asks_max;                     /* requests that wait at once. Default 4,096 */
    uint64_t skew_max_ns;                /* of clocks, before it is reported. Default 100 ms */
    uint64_t beat_ns;                    /* between two checks of other clocks. Default 1 s */
    uint64_t seed;                       /* of waits for turns: different in each store */
};

/* Written by the store's thread, read by any. */
struct memcached_metrics {
    _Atomic uint64_t asks;
    _Atomic uint64_t conflicts; /* another server was faster, and the state was read again */
    _Atomic uint64_t busy;      /* requests that lost every race until their deadline */
    _Atomic uint64_t damaged;   /* invalid states, replaced by used-up ones */
    _Atomic uint64_t lost;      /* writes with an unknown result */
    _Atomic uint64_t kept;      /* units of refused lists that could not be given back */
    _Atomic uint64_t restarts;  /* servers that restarted, which lost all their states */
    _Atomic uint64_t skew_ns;   /* the most that another node's clock was found fast */
    /* Ended tickets that another request closed; with keep, none are counted. */
    _Atomic uint64_t expired_floor, expired_release, expiry_kept_units;
    _Atomic uint64_t tickets_dropped; /* closed as estimated: a key had too many */
};

/* NULL: no memory, or a prefix that is too long; io and conns are the caller's still. */
struct backend *memcached_backend_new(const struct memcached_backend_options *options);

const struct memcached_metrics *memcached_backend_metrics(const struct backend *store);
/* Why a server was unavailable the last time; "" if none was. */
const char *memcached_backend_fault(const struct backend *store);
/* When to call wake() at the latest. */
uint64_t memcached_backend_deadline(const struct backend *store);
void memcached_backend_wake(struct backend *store, uint64_t now_ns);
/* A connection is ready now, or was lost. */
void memcached_backend_changed(struct backend *store, uint64_t now_ns);

#endif
