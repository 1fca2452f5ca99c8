/* SPDX-License-Identifier: MIT */
/*
 * A connection in TLS, as its socket sees it: takes and gives records, and feeds another connection
 * with what is in them. Moves bytes only; whoever owns the socket treats it as any other.
 */
#ifndef STINT_NET_TLS_CONN_H
#define STINT_NET_TLS_CONN_H

#include "frontend/conn.h"
#include "net/log/log.h"
#include "net/tls.h"
#include "service/metrics/metrics.h"

struct tls_conn_options {
    struct tls *tls; /* a reference is taken */
    struct conn *inner;
    struct log *log;
    struct metrics_worker *metrics;
    enum metrics_frontend frontend;
    const char *protocol;   /* "h2": what a client that offers protocols must offer. NULL: any */
    bool requires_protocol; /* refuses a client that offers none */
};

/* Owns the inner connection, also where it returns NULL: no memory. */
struct conn *tls_conn_new(const struct tls_conn_options *options);

#endif
