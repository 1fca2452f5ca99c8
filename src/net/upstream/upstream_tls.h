/* SPDX-License-Identifier: MIT */
/*
 * TLS settings of a client: its trusted authorities, and its own certificate. Made from files,
 * immutable.
 */
#ifndef STINT_NET_UPSTREAM_UPSTREAM_TLS_H
#define STINT_NET_UPSTREAM_UPSTREAM_TLS_H

#include "base/err.h"

#include <gnutls/gnutls.h>
#include <stdbool.h>

struct upstream_tls_paths {
    const char *ca_file;   /* authorities for the server's certificate. NULL: the system's */
    const char *cert_file; /* PEM, the client certificate. NULL: none */
    const char *key_file;  /* PEM, of cert_file. NULL: it is in cert_file */
    bool believes_all;     /* accepts any certificate; ca_file is not used */
};

struct upstream_tls;

/* STINT_E_SYSTEM or STINT_E_SYNTAX, with a message that names the file. */
int upstream_tls_load(struct upstream_tls **tls, const struct upstream_tls_paths *paths,
                      struct stint_error *error);
void upstream_tls_free(struct upstream_tls *tls); /* after its sessions; NULL is allowed */

/*
 * A session with the server of that name or address, which must be in its certificate, on a
 * non-blocking socket. "": the server has no name, as on a Unix socket. False: no memory.
 * Strings are borrowed.
 */
bool upstream_tls_begin(struct upstream_tls *tls, const char *host, int fd,
                        gnutls_session_t *session);
/* The reason why a handshake failed, more exact than the code. */
void upstream_tls_error(gnutls_session_t session, int code, char *text, size_t size);

#endif
