/* SPDX-License-Identifier: MIT */
/*
 * The sockets of one worker, each with a struct conn: reads bytes, feeds them, and sends the output
 * of the connection.
 *
 * All streams of a worker read into one buffer and keep none of their own; unsent bytes stay in the
 * connection. A stream whose peer does not read is not read, either. A connection with more work
 * than fits a turn continues in later ones, after the sockets that became ready meanwhile. When the
 * server ends a stream, it still reads and drops bytes, until the peer closes its side or a second
 * has passed: otherwise a reset might reach the peer before the last reply. One thread, that of the
 * loop.
 */
#ifndef STINT_NET_STREAM_H
#define STINT_NET_STREAM_H

#include "frontend/conn.h"
#include "net/listen/connection_limiter.h"
#include "service/metrics/metrics.h"
#include "service/server_clock.h"
#include "service/timer_queue.h"

#include <uv.h>

/* 0: no limit. */
struct stream_limits {
    uint64_t idle_ns;    /* without a request */
    uint64_t request_ns; /* from the first byte of a request to its last, TLS handshake included */
    uint64_t write_ns;   /* for a peer to read all bytes that waited when it began */
};

/*
 * The memory that all connections of a worker hold for their peers. Above `most`, connections that
 * hold much are ended at their next check.
 */
struct stream_memory {
    size_t held, most;
};

struct streams_options {
    uv_loop_t *loop;
    const struct server_clock *clock;
    struct connection_limiter *connection_limiter; /* each stream leaves it at its end */
    struct metrics_worker *metrics;
    enum metrics_frontend frontend;
    struct stream_limits limits;
    struct stream_memory *memory; /* outlives the streams */
    void (*emptied)(void *arg);   /* the last stream has ended */
    void *arg;
};

struct streams;

/* NULL is allowed for all but streams_add(): there are none. */
struct streams *streams_new(const struct streams_options *options); /* NULL: no memory */
/* After streams_end(), once the loop has run. */
void streams_free(struct streams *streams);

/* Adds a connected, non-blocking socket with a connection; takes over all three arguments. */
void streams_add(struct streams *streams, int fd, struct conn *conn, struct connection_slot *slot);
size_t streams_count(const struct streams *streams);

/* For all streams, from their next check on. */
void streams_set_limits(struct streams *streams, const struct stream_limits *limits);

/* The time of decisions was moved: checks the connections that wait for it. */
void streams_clock_moved(struct streams *streams);

/* Each replies to the requests that came, and ends. */
void streams_drain(struct streams *streams);
/* Ends all of them now, and the timer: none may be added afterwards. */
void streams_end(struct streams *streams);

#endif
