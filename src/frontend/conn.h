/* SPDX-License-Identifier: MIT */
/*
 * A connection without its socket: bytes in, bytes out, and a time at which it has to be called
 * although no bytes came. The owner of the socket knows only this interface. One thread at a time.
 */
#ifndef STINT_FRONTEND_CONN_H
#define STINT_FRONTEND_CONN_H

#include "base/span.h"

#include <stdbool.h>

struct conn;

struct conn_ops {
    /*
     * Takes all bytes. All replies go to one output, so that a pipeline is answered in one write.
     * While the unsent output exceeds its limit, no request is answered (is_backpressured), and the
     * owner must not read the socket. When its turn is over, the connection stops and has_work.
     */
    void (*feed)(struct conn *conn, struct span bytes, uint64_t now_ns);
    /* The bytes to send; valid until the next call. */
    struct span (*output)(struct conn *conn);
    void (*sent)(struct conn *conn, size_t len, uint64_t now_ns);
    bool (*is_backpressured)(const struct conn *conn);
    /* It has input to process: call wake() in a later turn. NULL: never. */
    bool (*has_work)(const struct conn *conn);
    /* When to call wake() at the latest; STINT_NEVER_NS: no deadline. */
    uint64_t (*deadline)(const struct conn *conn);
    void (*wake)(struct conn *conn, uint64_t now_ns);
    /*
     * The incomplete request has exceeded its time limit: writes the protocol's error for this, and
     * ends. NULL: the protocol has no such error.
     */
    void (*expire)(struct conn *conn, uint64_t now_ns);
    /* It reads no more bytes: close it once the output is sent. */
    bool (*is_over)(const struct conn *conn);
    /* The server ends: answers the requests that came, then ends. */
    void (*drain)(struct conn *conn, uint64_t now_ns);
    /* The peer sends no more bytes: as drain(), but no request is in transit. NULL: drain(). */
    void (*end_input)(struct conn *conn, uint64_t now_ns);
    /* Whether a request is incomplete or waits for its reply; otherwise the connection is idle. */
    bool (*is_busy)(const struct conn *conn);
    /* Bytes of memory held for the peer: input not used, output not sent. */
    size_t (*held)(const struct conn *conn);
    void (*free)(struct conn *conn);
};

/* First member of every kind of connection. */
struct conn {
    const struct conn_ops *ops;
    /*
     * Set by the owner of the socket. Called after a store's reply has changed the connection
     * outside a call: the owner checks its output, deadline and state as after wake(). May be NULL.
     * Never called from within the ops.
     */
    void (*woken)(void *owner, uint64_t now_ns);
    /* Set by the owner, too: whether the turn is over for other connections. NULL: never. */
    bool (*turn_is_over)(void *owner);
    void *owner;
};

/* A limit of what one client may send or leave unread, where 0 is the default. */
static inline size_t conn_limit(size_t limit, size_t otherwise)
{
    return limit > 0 ? limit : otherwise;
}

static inline void conn_end_input(struct conn *conn, uint64_t now_ns)
{
    (conn->ops->end_input != NULL ? conn->ops->end_input : conn->ops->drain)(conn, now_ns);
}

static inline void conn_wake(const struct conn *conn, uint64_t now_ns)
{
    if (conn->woken != NULL)
        conn->woken(conn->owner, now_ns);
}

/* Called between requests: if true, the connection stops there and has_work. */
static inline bool conn_turn_is_over(const struct conn *conn)
{
    return conn->turn_is_over != NULL && conn->turn_is_over(conn->owner);
}

#endif
