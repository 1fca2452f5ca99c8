/* SPDX-License-Identifier: MIT */
/*
 * One thread of the server: a loop, the sockets it accepts from, and the connections it serves.
 * Workers share only the server state, the connection limiter and the log; the server controls a
 * worker with worker_move_to() and worker_set_tls(), from any thread.
 */
#ifndef STINT_NET_WORKER_H
#define STINT_NET_WORKER_H

#include "frontend/grpc/grpc_conn.h"
#include "frontend/http/http.h"
#include "frontend/resp/resp_conn.h"
#include "net/listen/connection_limiter.h"
#include "net/listen/listener.h"
#include "net/log/log.h"
#include "net/stream.h"
#include "net/tls.h"
#include "net/upstream/backends.h"
#include "service/access/access.h"

/* A worker never returns to an earlier stage. */
enum worker_stage {
    WORKER_SERVES,
    WORKER_LINGERS, /* does not accept; serves open connections until they end */
    WORKER_DRAINS,  /* answers the requests that came, then closes */
    WORKER_ENDS,    /* closes */
};

struct worker_options {
    unsigned index;
    struct server_state *server_state;
    struct access_now *access;
    const struct http_config *http_config;
    const struct listeners *listeners; /* serves its own, and those of all workers */
    struct connection_limiter *connection_limiter;
    struct log *log;
    struct tls *tls; /* NULL: none. The worker takes a reference */
    struct resp_limits resp_limits;
    struct http_limits http_limits;
    struct stream_limits stream_limits; /* of RESP and gRPC */
    struct stream_limits http_stream_limits;
    size_t memory_most; /* held by connections for their peers; 0: no limit */
    struct grpc_limits grpc_limits;
    struct rls_form grpc_form;
    const struct store_config *store_configs; /* n_store_configs of them; outlive the worker */
    size_t n_store_configs;
    struct evaluation_stores evaluation_stores; /* except the stores themselves, which it opens */
    int (*reload)(void *arg, unsigned worker, struct stint_error *error); /* POST /v1/reload */
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
void worker_clock_moved(struct worker *worker);
/* For connections from now on. Takes over the reference. */
void worker_set_tls(struct worker *worker, struct tls *tls);
/* For all connections of RESP, from now on. Copied. */
void worker_set_stream_limits(struct worker *worker, const struct stream_limits *limits);

/* False: its listening sockets may be closed. */
bool worker_accepts(const struct worker *worker);
bool worker_has_ended(const struct worker *worker);
/* When it last ran its loop: at most half a second ago, unless it is stuck. */
uint64_t worker_beat_ns(const struct worker *worker);

#endif
