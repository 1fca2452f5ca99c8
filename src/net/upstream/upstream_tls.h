/* SPDX-License-Identifier: MIT */
/*
 * What a client shows and believes in TLS: whose signature is enough, and its own certificate. Made
 * whole of files, never changed.
 */
#ifndef STINT_NET_UPSTREAM_UPSTREAM_TLS_H
#define STINT_NET_UPSTREAM_UPSTREAM_TLS_H

#include "base/err.h"

#include <gnutls/gnutls.h>
#include <stdbool.h>

struct upstream_tls_paths {
    const char *ca_file;   /* who may sign the server's certificate. NULL: whom the system trusts */
    const char *cert_file; /* PEM, to show who we are. NULL: none */
    const char *key_file;  /* PEM, of cert_file. NULL: it is in cert_file */
    bool believes_all;     /* any certificate is as good as another; ca_file is not looked at */
};

struct upstream_tls;

/* STINT_E_SYSTEM or STINT_E_SYNTAX, with a message that names the file. */
int upstream_tls_load(struct upstream_tls **tls, const struct upstream_tls_paths *paths,
                      struct stint_error *error);
void upstream_tls_free(struct upstream_tls *tls); /* after its sessions; NULL is fine */

/*
 * A session with the server of that name or address, which its certificate must bear, on a socket
 * that does not block. "": it has none, as on a Unix socket. False: no memory. Strings are
 * borrowed.
 */
bool upstream_tls_begin(struct upstream_tls *tls, const char *host, int fd,
                        gnutls_session_t *session);
/* Why a handshake has failed, of more use than the code alone. */
void upstream_tls_error(gnutls_session_t session, int code, char *text, size_t size);

#endif
