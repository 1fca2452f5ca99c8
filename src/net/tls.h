/* SPDX-License-Identifier: MIT */
/*
 * What a server shows and asks for in TLS: its certificates and key, whose clients it believes, and
 * which versions it speaks. Made whole of files' texts, never changed; the last tls_unref() frees
 * it. Any thread.
 */
#ifndef STINT_NET_TLS_H
#define STINT_NET_TLS_H

#include "base/err.h"

#include <gnutls/gnutls.h>
#include <stdbool.h>

#define TLS_PRIORITIES_DEFAULT "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:%SERVER_PRECEDENCE"

/* Files; the texts in them are kept as long as the object. */
struct tls_paths {
    const char *certificate, *key;
    const char *client_ca;  /* NULL: no client certificate is asked for */
    const char *priorities; /* NULL: TLS_PRIORITIES_DEFAULT */
};

struct tls;

/* STINT_E_SYSTEM or STINT_E_SYNTAX, with a message that names the file. */
int tls_load(struct tls **tls, const struct tls_paths *paths, struct stint_error *error);
struct tls *tls_ref(struct tls *tls); /* NULL is fine */
void tls_unref(struct tls *tls);      /* NULL is fine */

/*
 * For one connection; false: no memory. `protocol` ("h2") is what a client that offers protocols
 * (ALPN) must have among them. NULL: none is chosen.
 */
bool tls_begin(struct tls *tls, const char *protocol, gnutls_session_t *session);

#endif
