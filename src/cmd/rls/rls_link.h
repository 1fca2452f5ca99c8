/* SPDX-License-Identifier: MIT */
/*
 * A connection to a gRPC server: a socket that does not block, in TLS or not. One thread.
 */
#ifndef STINT_CMD_RLS_RLS_LINK_H
#define STINT_CMD_RLS_RLS_LINK_H

#include "base/err.h"
#include "base/span.h"

#include <stdbool.h>

/* Strings are borrowed until the link is closed. */
struct rls_link_options {
    const char *server;    /* HOST:PORT or unix:/PATH */
    bool is_tls;           /* else h2c */
    const char *ca_file;   /* who may sign the server's certificate. NULL: the system's list */
    const char *cert_file; /* PEM, to show who we are. NULL: no certificate */
    const char *key_file;  /* PEM, of cert_file. NULL: it is in cert_file */
    bool is_secret;        /* a token is sent: not unencrypted to other hosts */
    bool is_insecure;      /* do so all the same, and believe any certificate */
    uint64_t timeout_ns;   /* of connecting and the handshake, together */
};

struct rls_link;

/*
 * Looks the name up, connects, shakes hands and agrees on HTTP/2. STINT_E_SYNTAX for a server that
 * cannot be meant, STINT_E_MISMATCH where a token would go unencrypted, else STINT_E_SYSTEM.
 */
int rls_link_open(struct rls_link **link, const struct rls_link_options *options,
                  struct stint_error *error);
void rls_link_close(struct rls_link *link); /* NULL is fine */

int rls_link_fd(const struct rls_link *link);

/*
 * Bytes read or written, 0 where there is nothing to be had or no room now, STINT_E_SYSTEM where it
 * broke, STINT_E_GONE where the other side has closed it.
 */
int rls_link_read(struct rls_link *link, void *bytes, size_t size, struct stint_error *error);
int rls_link_write(struct rls_link *link, struct span bytes, struct stint_error *error);
/* Bytes are here already that no poll() will tell of. */
bool rls_link_has_bytes(const struct rls_link *link);

#endif
