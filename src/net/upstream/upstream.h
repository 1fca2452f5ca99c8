/* SPDX-License-Identifier: MIT */
/*
 * The socket of a connection to a store or a control plane, in a libuv loop: opens it when the
 * connection needs one, with or without TLS, moves bytes, and calls the connection at its
 * deadlines. All requests of one turn of the loop are sent in one write. The thread of the loop.
 */
#ifndef STINT_NET_UPSTREAM_UPSTREAM_H
#define STINT_NET_UPSTREAM_UPSTREAM_H

#include "backend/url.h"
#include "backend/wire/backend_link.h"
#include "base/err.h"

#include <stdbool.h>

/* ---- TLS ------------------------------------------------------------------------------------- */

/*
 * TLS settings of a client: its trusted authorities, and its own certificate. Made from files,
 * immutable.
 */

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

/* ---- The socket ------------------------------------------------------------------------------ */

struct upstream;

struct upstream_options {
    struct uv_loop_s *loop;
    struct store_host host;   /* an empty name: the Unix socket */
    const char *path;         /* of it; borrowed */
    struct upstream_tls *tls; /* NULL: none. Borrowed */
    /* In place of `tls`: files that are read anew for each socket. Borrowed */
    const struct upstream_tls_paths *tls_paths;
    const char *tls_name; /* of the server, in its certificate. NULL: that of the host */
    const char *protocol; /* of TLS (ALPN). NULL: none */
    bool is_watched;      /* the kernel looks for the peer on a silent socket */
    struct link *link;    /* the upstream takes it over */
    /* The clock of the link. NULL: uv_hrtime() */
    uint64_t (*now)(void *arg);
    void *now_arg;
    /* It is ready now, or a socket failed or could not be opened. May be NULL */
    void (*changed)(void *arg, uint64_t now_ns);
    void *arg;
};

/* NULL: no memory; the caller still owns the link. */
struct upstream *upstream_new(const struct upstream_options *options);
/* Ends pending requests, and frees the link. Memory is freed in the loop's next turn. Not from
 * within an answer. NULL is allowed. */
void upstream_close(struct upstream *upstream);

/* The link has output: it is sent before the loop waits. Also allowed from within an answer. */
void upstream_asked(struct upstream *upstream);
/* How often a socket failed or could not be opened. */
unsigned upstream_losses(const struct upstream *upstream);

#endif
