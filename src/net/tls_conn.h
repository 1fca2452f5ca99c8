/* SPDX-License-Identifier: MIT */
/*
 * A connection in TLS: takes and returns records, and feeds their content to another connection.
 * Moves bytes only; the socket's owner uses it like any other connection.
 */
#ifndef STINT_NET_TLS_CONN_H
#define STINT_NET_TLS_CONN_H

#include "frontend/conn.h"
#include "net/log/log.h"
#include "net/tls.h"
#include "service/metrics/metrics.h"

struct tls_conn_options {
    struct tls *tls; /* its reference count is raised */
    struct conn *inner;
    struct log *log;
    struct metrics_worker *metrics;
    enum metrics_frontend frontend;
    const char *protocol;   /* "h2": what a client that offers protocols must offer. NULL: any */
    bool requires_protocol; /* rejects a client that offers none */
};

/* Owns the inner connection, also if it returns NULL: no memory. */
struct conn *tls_conn_new(const struct tls_conn_options *options);

#endif
