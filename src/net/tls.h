/* SPDX-License-Identifier: MIT */
/*
 * TLS settings of a server: its certificates and key, the authorities for client certificates, and
 * the versions. Made from files' contents, immutable; the last tls_unref() frees it. Any thread.
 */
#ifndef STINT_NET_TLS_H
#define STINT_NET_TLS_H

#include "base/err.h"
#include "frontend/conn.h"
#include "net/log/log.h"
#include "service/metrics/metrics.h"

#include <gnutls/gnutls.h>
#include <stdbool.h>

#define TLS_PRIORITIES_DEFAULT "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:%SERVER_PRECEDENCE"

struct tls_paths {
    const char *certificate, *key;
    const char *client_ca;  /* NULL: no client certificate is requested */
    const char *priorities; /* NULL: TLS_PRIORITIES_DEFAULT */
};

struct tls;

/* STINT_E_SYSTEM or STINT_E_SYNTAX, with a message that names the file. */
int tls_load(struct tls **tls, const struct tls_paths *paths, struct stint_error *error);
struct tls *tls_ref(struct tls *tls); /* NULL is allowed */
void tls_unref(struct tls *tls);      /* NULL is allowed */

/*
 * A connection in TLS: takes and returns records, and feeds their content to another connection.
 * Moves bytes only; the socket's owner uses it like any other connection.
 */

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
