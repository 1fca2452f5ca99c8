/* SPDX-License-Identifier: MIT */
/*
 * The sockets of one worker, each joined with a struct conn: reads what came, feeds it, and sends
 * what the connection answers.
 *
 * All streams of a worker read into one buffer and keep none of their own; what cannot be sent
 * stays where the connection holds it. A stream whose peer does not read is not read from either.
 * One thread, that of the loop.
 */
#ifndef STINT_IO_STREAM_H
#define STINT_IO_STREAM_H

#include "conn/conn.h"
#include "conn/metrics.h"
#include "io/due.h"
#include "io/gate.h"

#include <uv.h>

/* 0: no limit. */
struct stream_limits {
    uint64_t idle_ns;    /* without a request */
    uint64_t request_ns; /* from the first byte of a request to its last, TLS handshake included */
    uint64_t write_ns;   /* in which a peer must read what waited for it at its beginning */
};

struct streams_options {
    uv_loop_t *loop;
    const struct stint_table *table; /* whose time it is */
    struct gate *gate;               /* left when a stream ends */
    struct metrics_worker *metrics;
    enum metrics_door door;
    struct stream_limits limits;
    /*
     * Whoever may be sending when the server ends a connection (gRPC) is read on, in vain, until he
     * closes his side: else he would meet a reset socket before what he was told last.
     */
    bool says_farewell;
    void (*emptied)(void *arg); /* the last stream has ended */
    void *arg;
};

struct streams;

struct streams *streams_new(const struct streams_options *options); /* NULL: no memory */
/* After streams_end(), when the loop has run; NULL is fine. */
void streams_free(struct streams *streams);

/* Joins a connected socket, which does not block, with a connection; owns all three from here on.
 */
void streams_add(struct streams *streams, int fd, struct conn *conn, struct gate_seat *seat);
size_t streams_count(const struct streams *streams);

/* For all of them, when each is looked at next. */
void streams_set_limits(struct streams *streams, const struct stream_limits *limits);

/* Each answers what it was asked, and ends. */
void streams_drain(struct streams *streams);
/* Ends all of them now, and the timer: no more may be added. */
void streams_end(struct streams *streams);

#endif
