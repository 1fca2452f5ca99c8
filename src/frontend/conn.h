/* SPDX-License-Identifier: MIT */
/*
 * A connection as its socket sees it: bytes go in, bytes come out, and there is an instant at which
 * it wants to be called though nothing came. Whoever owns the socket knows no more than this, and a
 * connection knows no socket. One thread at a time.
 */
#ifndef STINT_FRONTEND_CONN_H
#define STINT_FRONTEND_CONN_H

#include "base/span.h"

#include <stdbool.h>

struct conn;

struct conn_ops {
    /*
     * Takes all bytes. The answers to them stand in one output, so that a pipeline is answered in
     * one write. While more than its limit waits to be sent it answers nothing (is_backpressured),
     * and the socket is not to be read. It also stops when its turn is over, and then has_work.
     */
    void (*feed)(struct conn *conn, struct span bytes, uint64_t now_ns);
    /* What is to be sent; valid until the next call. */
    struct span (*output)(struct conn *conn);
    void (*sent)(struct conn *conn, size_t len, uint64_t now_ns);
    bool (*is_backpressured)(const struct conn *conn);
    /* Input is left that it can go on with: to be woken in a later turn. NULL: never. */
    bool (*has_work)(const struct conn *conn);
    /* When to call wake() at the latest; STINT_NEVER_NS: nothing is waited for. */
    uint64_t (*deadline)(const struct conn *conn);
    void (*wake)(struct conn *conn, uint64_t now_ns);
    /*
     * The request that is half read took longer than it may: writes what the protocol has for this,
     * and is over. NULL: it has nothing.
     */
    void (*expire)(struct conn *conn, uint64_t now_ns);
    /* No more bytes are wanted: to be closed once the output is sent. */
    bool (*is_over)(const struct conn *conn);
    /* The server ends: answer what was asked, then be over. */
    void (*drain)(struct conn *conn, uint64_t now_ns);
    /* Whether a request is half read or waits for its answer; else it is idle. */
    bool (*is_busy)(const struct conn *conn);
    /* Bytes of memory that the peer makes it hold: input not used, output not read. */
    size_t (*held)(const struct conn *conn);
    void (*free)(struct conn *conn);
};

/* First member of every kind of connection. */
struct conn {
    const struct conn_ops *ops;
    /*
     * Set by whoever owns the socket: called where the connection has moved on by itself, because a
     * store has answered, and wants its output, deadline and state looked at as after wake(). NULL:
     * nobody has to know. Never called from within the ops.
     */
    void (*woken)(void *owner, uint64_t now_ns);
    /* Set likewise: whether other connections are to be looked at first. NULL: never. */
    bool (*turn_is_over)(void *owner);
    void *owner;
};

static inline void conn_wake(const struct conn *conn, uint64_t now_ns)
{
    if (conn->woken != NULL)
        conn->woken(conn->owner, now_ns);
}

/* Asked between requests: a connection stops there, and says that it has_work. */
static inline bool conn_turn_is_over(const struct conn *conn)
{
    return conn->turn_is_over != NULL && conn->turn_is_over(conn->owner);
}

#endif
