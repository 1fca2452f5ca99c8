/* SPDX-License-Identifier: MIT */
/*
 * The sockets of one worker, each joined with a struct conn: reads what came, feeds it, and sends
 * what the connection answers.
 *
 * All streams of a worker read into one buffer and keep none of their own; what cannot be sent
 * stays where the connection holds it. A stream whose peer does not read is not read from either.
 * A connection with more work than fits a turn goes on in later ones, after the sockets that became
 * ready meanwhile. A stream that the server ends is read on, and what comes is dropped, until the
 * peer closes its side or a second has passed: else the peer might meet a reset socket before the
 * last answer. One thread, that of the loop.
 */
#ifndef STINT_NET_STREAM_H
#define STINT_NET_STREAM_H

#include "frontend/conn.h"
#include "net/listen/connection_limiter.h"
#include "net/timer_queue.h"
#include "service/metrics/metrics.h"
#include "service/server_clock.h"

#include <uv.h>

/* 0: no limit. */
struct stream_limits {
    uint64_t idle_ns;    /* without a request */
    uint64_t request_ns; /* from the first byte of a request to its last, TLS handshake included */
    uint64_t write_ns;   /* in which a peer must read what waited for it at its beginning */
};

/*
 * What all connections of a worker hold for their peers, of all its sets of streams. Above `most`
 * the connection that holds much when it is looked at is ended.
 */
struct stream_memory {
    size_t held, most;
};

struct streams_options {
    uv_loop_t *loop;
    const struct server_clock *clock;
    struct connection_limiter *connection_limiter; /* left when a stream ends */
    struct metrics_worker *metrics;
    enum metrics_frontend frontend;
    struct stream_limits limits;
    struct stream_memory *memory; /* outlives the streams */
    void (*emptied)(void *arg);   /* the last stream has ended */
    void *arg;
};

struct streams;

/* NULL is fine for all but streams_add(): there are none. */
struct streams *streams_new(const struct streams_options *options); /* NULL: no memory */
/* After streams_end(), when the loop has run. */
void streams_free(struct streams *streams);

/* Joins a connected socket, which does not block, with a connection; owns all three from here on.
 */
void streams_add(struct streams *streams, int fd, struct conn *conn, struct connection_slot *slot);
size_t streams_count(const struct streams *streams);

/* For all of them, when each is looked at next. */
void streams_set_limits(struct streams *streams, const struct stream_limits *limits);

/* The time of decisions has moved on: what waited for it is looked at. */
void streams_clock_moved(struct streams *streams);

/* Each answers what it was asked, and ends. */
void streams_drain(struct streams *streams);
/* Ends all of them now, and the timer: no more may be added. */
void streams_end(struct streams *streams);

#endif
