/* SPDX-License-Identifier: MIT */
/*
 * Sends the spans of a server to a collector: OTLP over HTTP or gRPC. Takes them from the
 * rings of the workers, one request at a time, in a loop that serves no connections. A request that
 * fails is repeated after a pause, for a minute; meanwhile the rings fill up, and drop spans.
 */
#ifndef STINT_NET_UPSTREAM_TRACE_EXPORTER_H
#define STINT_NET_UPSTREAM_TRACE_EXPORTER_H

#include "net/log/log.h"
#include "net/upstream/collector_conn.h"
#include "net/upstream/upstream.h"
#include "proto/otlp/otlp.h"
#include "service/traces.h"

/* Borrowed until the exporter is closed. */
struct trace_collector {
    struct collector_url url;   /* over HTTP with a path */
    struct upstream_tls *tls;   /* where url.is_tls */
    const char *const *headers; /* NAME:VALUE, n_headers of them, NAME in lower case */
    size_t n_headers;
    const struct otlp_resource_attribute *attributes;
    size_t n_attributes;
    uint64_t timeout_ns; /* of connecting, and of each answer */
};

struct trace_exporter_options {
    struct uv_loop_s *loop;
    const struct trace_collector *collector;
    struct traces *traces;
    struct metrics *metrics;
    struct log *log;
};

struct trace_exporter;

/* Connects in the first turn of the loop. NULL: no memory. Before any worker runs. */
struct trace_exporter *trace_exporter_new(const struct trace_exporter_options *options);

/*
 * After the last span: sends what waits. `done` is called once, from within or later, at the latest
 * after TRACE_DRAIN_NS; at once where the collector is unavailable.
 */
#define TRACE_DRAIN_NS (2 * NS_PER_S)
void trace_exporter_drain(struct trace_exporter *exporter, void (*done)(void *arg), void *arg);
/* Spans that wait are lost, and counted. Frees it in the loop's next turns. NULL is allowed. */
void trace_exporter_close(struct trace_exporter *exporter);

#endif
