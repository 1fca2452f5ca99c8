/* SPDX-License-Identifier: MIT */
/*
 * One logical store of Redis or Valkey, on however many servers: finds the masters (a single
 * server, sentinels, a cluster), keeps one connection to each, and routes every command to the
 * right one. Sans I/O: a `struct dialer` opens and closes sockets, and the router reports the time
 * at which it wants to be called.
 *
 * A command that was certainly not done (a redirect, a server that loads, a replica, a connection
 * that never took it) is sent again until its deadline. One that may have been done is not, unless
 * its caller marks it as safe to repeat. One thread.
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
     * Begins to connect: `host` NULL is the Unix socket at `path`. Changes go to router_changed()
     * with `arg`. False: no memory. Strings are borrowed until it is closed.
     */
    bool (*open)(struct dialer *dialer, const struct store_host *host, const char *path,
                 const struct redis_conn_options *options, void *arg, struct dialled *dialled);
    /* Answers what waits there. Never called from within an answer. */
    void (*close)(struct dialer *dialer, struct dialled *dialled);
    /* It has commands to send, together with all others of this turn, before the loop waits. */
    void (*asked)(struct dialer *dialer, struct dialled *dialled);
    /* router_deadline() is earlier than it was. */
    void (*hurry)(struct dialer *dialer);
    /* The router ends, and has closed all: frees itself. */
    void (*free)(struct dialer *dialer);
};

/* First member of the owner of the sockets. */
struct dialer {
    const struct dialer_ops *ops;
};

/* For the dialer: a connection is ready, or was lost, or could not be opened. */
void router_changed(void *arg, uint64_t now_ns);

/* ---- Start and end --------------------------------------------------------------------------- */

/* Zero is the default, but for the first two. */
struct router_options {
    const struct store_url *url; /* borrowed */
    struct dialer *dialer;       /* freed with the router */
    uint64_t reply_ns;   /* of one command. Default LINK_REPLY_NS; a server sets store_timeout */
    uint64_t connect_ns; /* Default LINK_CONNECT_NS */
    uint64_t backoff_max_ns; /* between two attempts to connect. Default 500 ms */
    uint64_t refresh_ns;     /* check of the topology without problems. Default 10 s */
    uint64_t hurry_ns;       /* between two checks with problems. Default 100 ms */
    size_t asks_max;         /* commands that wait at once. Default 4,096 */
    size_t bytes_max;        /* of them. Default 4 MiB */
    uint64_t seed;           /* of the jitter */
};

/* NULL: no memory; the dialer is the caller's still. */
struct router *router_new(const struct router_options *options);
/*
 * Answers what waits with LINK_UNSENT or LINK_LOST. Not from within an answer. NULL is fine.
 */
void router_free(struct router *router);

/* When to call wake() at the latest. */
uint64_t router_deadline(const struct router *router);
void router_wake(struct router *router, uint64_t now_ns);

/* ---- Commands -------------------------------------------------------------------------------- */

struct router_command {
    unsigned slot; /* of its keys: cluster_slot_of() */
    const struct span *words;
    size_t n_words;
    struct span script; /* as in struct redis_command */
    uint64_t deadline_ns;
    bool is_repeatable;       /* doing it twice is harmless */
    redis_answered *answered; /* UNSENT: no server has done it in time */
    void *arg;
};

struct router_ask;

/* NULL: too many commands wait already; `answered` is not called. Never answers from within. */
struct router_ask *router_ask(struct router *router, const struct router_command *command,
                              uint64_t now_ns);
/* The answer is no longer wanted. The command may still be done. */
void router_forget(struct router_ask *ask);
/*
 * Where commands for keys of a slot go: a bit for each server of a cluster, as far as 64 bits go,
 * or bit 0 if there is one server or none is known. A server keeps its bit while it is connected.
 */
uint64_t router_server_bit(struct router *router, unsigned slot, uint64_t now_ns);
/* No command waits longer from now on. */
void router_end_by(struct router *router, uint64_t deadline_ns);

/* ---- State ----------------------------------------------------------------------------------- */

/* Since when no server is available; 0: one is. */
uint64_t router_unavailable_since(const struct router *router);
/* Why the last connection was lost or not opened; "" if none was. */
const char *router_error(const struct router *router);
/* Whether the keys of one command must have one slot. */
bool router_has_slots(const struct router *router);

/* Written by the router's thread, read by any. */
struct router_metrics {
    _Atomic uint64_t redirects, retries;
    /*
     * A different master, or one that restarted: writes may have been lost. Counted before any
     * command goes to it.
     */
    _Atomic uint64_t failovers;
};
const struct router_metrics *router_metrics(const struct router *router);

#endif
