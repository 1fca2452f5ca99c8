/* SPDX-License-Identifier: MIT */
/*
 * One thread of the server: a loop, the sockets it accepts from, and the connections it serves.
 * Workers share only the server state, the connection limiter and the log; the server controls a
 * worker with worker_move_to() and worker_set_tls(), from any thread.
 */
#ifndef STINT_NET_WORKER_H
#define STINT_NET_WORKER_H

#include "net/listen/connection_limiter.h"
#include "net/listen/listener.h"
#include "net/stream.h"
#include "net/tls.h"

/* A worker never returns to an earlier stage. */
enum worker_stage {
    WORKER_SERVES,
    WORKER_LINGERS, /* does not accept; serves open connections until they end */
    WORKER_DRAINS,  /* answers the requests that came, then closes */
    WORKER_ENDS,    /* closes */
};

struct worker_options {
    unsigned index;
    const struct server_options *server; /* outlives the worker */
    const struct listeners *listeners;   /* serves its own, and those of all workers */
    struct connection_limiter *connection_limiter;
    struct tls *tls; /* NULL: none. The worker takes a reference */
    int (*reload)(void *arg, uint64_t *number, struct stint_error *error); /* POST /v1/reload */
    bool (*is_ready)(void *arg);
    void (*changed)(void *arg); /* accepts no more, or has ended. From the worker's thread */
    void *arg;
};

struct worker;

/* Starts the thread, which waits for worker_begin(): privileges that the process drops also apply
 * to it. */
int worker_open(struct worker **worker, const struct worker_options *options,
                struct stint_error *error);
/* Lets it serve; also call it before the worker is to end. */
void worker_begin(struct worker *worker);
/* Waits for the thread to end, and frees it; NULL is allowed. */
void worker_close(struct worker *worker);

void worker_move_to(struct worker *worker, enum worker_stage stage);
/* The time of decisions was moved: requests that wait for it are decided again. Any thread. */
void worker_wake(struct worker *worker);
/* For connections from now on. Takes over the reference. */
void worker_set_tls(struct worker *worker, struct tls *tls);
/* For all connections of RESP and gRPC, from now on. Copied. */
void worker_set_stream_limits(struct worker *worker, const struct stream_limits *limits);

/* False: its listening sockets may be closed. */
bool worker_accepts(const struct worker *worker);
bool worker_has_ended(const struct worker *worker);
/* Grows each half second, unless it is stuck. */
uint64_t worker_beats(const struct worker *worker);

#endif
