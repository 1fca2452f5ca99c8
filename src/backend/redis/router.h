/* SPDX-License-Identifier: MIT */
/*
 * One logical store of Redis or Valkey, on however many servers: finds out who is master of what
 * (a single server, sentinels, a cluster), keeps one connection to each, and brings every command
 * to the right one. Sans I/O: sockets are opened and closed through a `struct dialer`, and there is
 * an instant at which it wants to be called.
 *
 * A command that was certainly not done (a redirect, a server that loads, a replica, a connection
 * that never took it) is sent again until its deadline. One that may have been done is not, unless
 * its asker says that doing it twice is the same as once. One thread.
 */
#ifndef STINT_BACKEND_REDIS_ROUTER_H
#define STINT_BACKEND_REDIS_ROUTER_H

#include "backend/url.h"
#include "backend/wire/redis_conn.h"

#include <stdatomic.h>

struct router;

/* ---- What the router needs ------------------------------------------------------------------- */

struct dialer;

/* One connection; the dialer moves its bytes. */
struct dialled {
    struct redis_conn *conn;
    void *io; /* the dialer's */
};

struct dialer_ops {
    uint64_t (*now)(struct dialer *dialer);
    /*
     * Begins to connect: `host` NULL is the Unix socket at `path`. `arg` is told of changes with
     * router_changed(). False: no memory. Strings are borrowed until it is closed.
     */
    bool (*open)(struct dialer *dialer, const struct store_host *host, const char *path,
                 const struct redis_conn_options *options, void *arg, struct dialled *dialled);
    /* Answers what waits there. Never called from within an answer. */
    void (*close)(struct dialer *dialer, struct dialled *dialled);
    /* It was asked something: to be sent, with all else of this turn, before the loop waits. */
    void (*asked)(struct dialer *dialer, struct dialled *dialled);
    /* router_deadline() is earlier than it was. */
    void (*hurry)(struct dialer *dialer);
    /* The router ends, and has closed all: frees itself. */
    void (*free)(struct dialer *dialer);
};

/* First member of whoever opens connections. */
struct dialer {
    const struct dialer_ops *ops;
};

/* For the dialer: a connection is ready now, or was lost, or could not be had. */
void router_changed(void *arg, uint64_t now_ns);

/* ---- Life ------------------------------------------------------------------------------------ */

/* Zero is the default, but for the first two. */
struct router_options {
    const struct store_url *url; /* borrowed */
    struct dialer *dialer;       /* freed with the router */
    uint64_t reply_ns;           /* of one command. Default 50 ms */
    uint64_t connect_ns;         /* Default 250 ms */
    uint64_t backoff_max_ns;     /* between two attempts to connect. Default 500 ms */
    uint64_t refresh_ns;         /* a look at the topology where nothing is wrong. Default 10 s */
    uint64_t hurry_ns;           /* between two looks where something is. Default 100 ms */
    size_t asks_max;             /* that wait at once. Default 4,096 */
    size_t bytes_max;            /* of them. Default 4 MiB */
    uint64_t seed;               /* of the jitter */
};

/* NULL: no memory; the dialer is the caller's still. */
struct router *router_new(const struct router_options *options);
/*
 * Answers what waits with ROUTER_FAILED or ROUTER_LOST. Not from within an answer. NULL is fine.
 */
void router_free(struct router *router);

/* When to call wake() at the latest. */
uint64_t router_deadline(const struct router *router);
void router_wake(struct router *router, uint64_t now_ns);

/* ---- Asking ---------------------------------------------------------------------------------- */

enum router_outcome {
    ROUTER_DONE,    /* the reply is what was asked for */
    ROUTER_REFUSED, /* the reply is an error; nothing was done */
    ROUTER_FAILED,  /* no answer in time; nothing was done */
    ROUTER_LATE,    /* no answer in time; it may have been done */
    ROUTER_LOST,    /* the connection ended before the answer; it may have been done */
};

/* `reply` is NULL but for DONE and REFUSED, and valid during the call. May ask. */
typedef void router_answered(void *arg, enum router_outcome outcome,
                             const struct redis_reply *reply, uint64_t now_ns);

struct router_command {
    unsigned slot; /* of its keys: cluster_slot_of() */
    const struct span *words;
    size_t n_words;
    struct span script; /* as in struct redis_command */
    uint64_t deadline_ns;
    bool is_repeatable; /* done twice is as good as once */
    router_answered *answered;
    void *arg;
};

struct router_ask;

/* NULL: too much waits already; `answered` is not called. Never answers from within. */
struct router_ask *router_ask(struct router *router, const struct router_command *command,
                              uint64_t now_ns);
/* Nobody wants the answer any more. It may be done all the same. */
void router_forget(struct router *router, struct router_ask *ask);
/*
 * Whom keys of a slot are asked of: a bit for each server of a cluster, as far as 64 bits go, or
 * bit 0, where nobody is known or there is one. A server keeps its bit as long as it is connected.
 */
uint64_t router_server_bit(struct router *router, unsigned slot, uint64_t now_ns);
/* No ask waits longer from now on. */
void router_end_by(struct router *router, uint64_t deadline_ns);

/* ---- How things are -------------------------------------------------------------------------- */

/* Since when no server could be asked; 0: one can. */
uint64_t router_unavailable_since(const struct router *router);
/* Why the last connection was lost or not to be had; "" if none was. */
const char *router_error(const struct router *router);
/* Whether the keys of one command must have one slot. */
bool router_has_slots(const struct router *router);

/* Written by the router's thread, read by any. */
struct router_metrics {
    _Atomic uint64_t redirects, retries;
    /*
     * A master that is another one, or that has begun anew: writes may have been lost. Counted
     * before it is asked anything.
     */
    _Atomic uint64_t failovers;
};
const struct router_metrics *router_metrics(const struct router *router);

#endif
