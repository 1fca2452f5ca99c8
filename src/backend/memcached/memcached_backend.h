/* SPDX-License-Identifier: MIT */
/*
 * A store over memcached: each state, with the tickets that are open there, is one value that is
 * read, decided on by core, and written back if no other node wrote meanwhile. Knows no socket:
 * `struct memcached_io` has them, and the clocks.
 *
 * memcached runs nothing and tells no time, so decisions are made by the nodes' clocks: at most N
 * in any window that is shorter than the period by their skew. What it forgets, by a restart or
 * because its memory is full, is free again. docs/decisions/0040.
 */
#ifndef STINT_BACKEND_MEMCACHED_MEMCACHED_BACKEND_H
#define STINT_BACKEND_MEMCACHED_MEMCACHED_BACKEND_H

#include "backend/memcached/memcached_key.h"
#include "backend/wire/memcached_conn.h"

#include <stdatomic.h>

#define MEMCACHED_PREFIX_DEFAULT "stint:"

struct memcached_io;

struct memcached_io_ops {
    uint64_t (*now)(struct memcached_io *io);  /* the clock of asks */
    uint64_t (*wall)(struct memcached_io *io); /* since 1970: what quotas go by */
    memcached_digest *digest;                  /* told the io; for names that are too long */
    /* A connection was asked something: to be sent, with all else of this turn. */
    void (*asked)(struct memcached_io *io, unsigned server);
    /* memcached_backend_deadline() is earlier than it was. */
    void (*hurry)(struct memcached_io *io);
    /* A clock was found that is so far ahead of ours, and more than the limit. */
    void (*skewed)(struct memcached_io *io, uint64_t skew_ns);
    /* So many states were damaged, and replaced by used-up ones; told at each doubling. */
    void (*damaged)(struct memcached_io *io, uint64_t states);
    /* The store ends: frees the connections, which answers what waits in them, and itself. */
    void (*close)(struct memcached_io *io);
};

/* First member of whoever has the sockets. */
struct memcached_io {
    const struct memcached_io_ops *ops;
};

/* Zero is the default, but for the first three. */
struct memcached_backend_options {
    const struct store_url *url; /* borrowed: its hosts are the servers */
    struct memcached_io *io;
    struct memcached_conn *const *conns; /* one for each host of the URL, or for its socket */
    const char *prefix;                  /* of all keys; copied. NULL: the default */
    size_t asks_max;                     /* that wait at once. Default 4,096 */
    uint64_t skew_max_ns;                /* of clocks, before it is told. Default 100 ms */
    uint64_t beat_ns;                    /* between two looks at other clocks. Default 1 s */
    uint64_t seed;                       /* of waits for turns: another one in each store */
};

/* Written by the store's thread, read by any. */
struct memcached_metrics {
    _Atomic uint64_t asks;
    _Atomic uint64_t conflicts; /* another was faster, and it was read again */
    _Atomic uint64_t busy;      /* asks that others were faster than until their time was over */
    _Atomic uint64_t damaged;   /* states that were no states, and were replaced by used-up ones */
    _Atomic uint64_t lost;      /* writes of which it is not known whether they were done */
    _Atomic uint64_t kept;      /* units of refused lists that could not be given back */
    _Atomic uint64_t restarts;  /* servers that have begun anew, and with them all their states */
    _Atomic uint64_t skew_ns;   /* the most by which another node's clock was found ahead */
    /* Tickets that had ended, closed by an ask for something else; of keep none are counted. */
    _Atomic uint64_t expired_floor, expired_release, expiry_kept_units;
    _Atomic uint64_t tickets_dropped; /* closed as estimated: a key had too many */
};

/* NULL: no memory, or a prefix that is too long; io and conns are the caller's still. */
struct backend *memcached_backend_new(const struct memcached_backend_options *options);

const struct memcached_metrics *memcached_backend_metrics(const struct backend *store);
/* Why a server was away the last time that one was; "" if none was. */
const char *memcached_backend_fault(const struct backend *store);
/* When to call wake() at the latest. */
uint64_t memcached_backend_deadline(const struct backend *store);
void memcached_backend_wake(struct backend *store, uint64_t now_ns);
/* A connection is ready now, or was lost. */
void memcached_backend_changed(struct backend *store, uint64_t now_ns);

#endif
