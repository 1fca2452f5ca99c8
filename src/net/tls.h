/* SPDX-License-Identifier: MIT */
/*
 * TLS settings of a server: its certificates and key, the authorities for client certificates, and
 * the versions. Made from files' contents, immutable; the last tls_unref() frees it. Any thread.
 */
#ifndef STINT_NET_TLS_H
#define STINT_NET_TLS_H

#include "base/err.h"

#include <gnutls/gnutls.h>
#include <stdbool.h>

#define TLS_PRIORITIES_DEFAULT "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:%SERVER_PRECEDENCE"

/* Paths; the contents are kept as long as the object. */
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
 * For one connection; false: no memory. A client that offers protocols (ALPN) must offer `protocol`
 * ("h2"). NULL: none is selected.
 */
bool tls_begin(struct tls *tls, const char *protocol, gnutls_session_t *session);

#endif
