/* SPDX-License-Identifier: MIT */
/*
 * Spans of requests: which are sampled, what they contain, and where they wait to be sent. A
 * service has a tracer, which its worker alone uses; without traces it is NULL, and costs a
 * comparison. An ended span is written in the protocol's form into the ring of its worker, from
 * which another thread takes it. A full ring drops spans, and no worker ever waits.
 *
 * A span has the names of domains and rules, and never the value of a descriptor's entry or a key.
 */
#ifndef STINT_SERVICE_TRACES_H
#define STINT_SERVICE_TRACES_H

#include "base/err.h"
#include "decide/reply.h"
#include "proto/otlp/trace_context.h"
#include "service/metrics/metrics.h"

struct server_clock;
struct traces; /* of a server */
struct tracer; /* of a worker */

/* ---- For the server -------------------------------------------------------------------------- */

#define TRACES_RATIO_ALL UINT64_C(1000000000) /* a ratio is in billionths */
#define TRACES_RING_SIZE ((size_t)512 << 10)  /* bytes of spans that wait, of one worker */

struct traces_options {
    uint64_t ratio;      /* of requests without a caller's decision; up to TRACES_RATIO_ALL */
    bool follows_caller; /* requests with a valid traceparent are sampled as that says */
    size_t ring_size;    /* a power of two; 0: TRACES_RING_SIZE */
};

/* NULL: no memory. */
struct traces *traces_new(const struct traces_options *options, unsigned workers,
                          const struct server_clock *clock, struct metrics *metrics);
void traces_free(struct traces *traces); /* after all services; NULL is allowed */
/* Set before any worker runs: called by a worker when half of its ring is used. */
void traces_on_half_full(struct traces *traces, void (*half_full)(void *arg), void *arg);
/* NULL where `traces` is. */
struct tracer *traces_tracer(struct traces *traces, unsigned worker);

/*
 * For the one thread that sends spans: moves all waiting spans of a worker, which are fields of a
 * request (proto/otlp/otlp.h), to `out`, which has space for the size of a ring; returns their
 * bytes, and adds their number to *n.
 */
size_t traces_take(struct traces *traces, unsigned worker, uint8_t *out, uint64_t *n);
unsigned traces_workers(const struct traces *traces);
size_t traces_ring_size(const struct traces *traces);
/* Spans that wait, of all workers: whether there are any. */
bool traces_wait(const struct traces *traces);

/* ---- For frontends: the span of a request ---------------------------------------------------- */

struct trace_span;

/* Constants, which the span keeps. */
struct trace_operation {
    enum metrics_frontend frontend;
    const char *method; /* HTTP: of the request. Others: NULL */
    const char *name;   /* HTTP: the route. gRPC: the path. RESP: the command */
};

/* An HTTP method as a constant: one of those that routes have, or _OTHER. */
const char *trace_http_method(struct span method);

/* When it began, by I/O time. NULL: it is not sampled. The context may be NULL. */
struct trace_span *tracer_begin(struct tracer *tracer, const struct trace_operation *operation,
                                const struct trace_context *context, uint64_t begin_ns);

/* How a request ended. */
struct trace_end {
    int status;      /* of HTTP or gRPC */
    bool has_failed; /* because of the server */
    const char *error;
    const struct request *request; /* as the service got it. NULL: it did not */
    const struct reply *reply;
};

/* Each frees the span; NULL is allowed. */
void trace_end(struct trace_span *span, const struct trace_end *end);
void trace_abandon(struct trace_span *span); /* no client gets the reply */
void trace_forget(struct trace_span *span);  /* it is decided again later, under another span */

/* ---- For services: the request to a store, below the span of its request --------------------- */

struct trace_store_request {
    const char *store;  /* its name */
    const char *system; /* redis or memcached. NULL: unknown */
    uint8_t verb;       /* enum request_verb */
    uint64_t begin_ns, end_ns;
    const struct backend_answer *answer;
};
void trace_store(const struct trace_span *parent, const struct trace_store_request *asked);

#endif
