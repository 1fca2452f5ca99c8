/* SPDX-License-Identifier: MIT */
/*
 * The HTTP of one worker: one daemon without TLS, one with it, and, after certificates were
 * renewed, those that still serve who came with older ones. The thread of the loop.
 */
#ifndef STINT_IO_WEB_H
#define STINT_IO_WEB_H

#include "io/gate.h"
#include "io/http.h"
#include "io/tls.h"

struct web_options {
    uv_loop_t *loop;
    struct http_door_options door;
    struct http_limits limits;
    bool has_plain;
    struct tls *tls; /* NULL: no port with TLS. A reference is taken */
    struct gate *gate;
    void (*emptied)(void *arg); /* a connection has ended, maybe the last */
    void *arg;
};

struct web;

/* Where it fails, *web is still to be ended and freed, unless it is NULL. */
int web_open(struct web **web, const struct web_options *options, struct stint_error *error);
/* Owns the descriptor and the seat. */
void web_adopt(struct web *web, bool is_tls, int fd, const struct sockaddr *peer,
               socklen_t peer_len, struct gate_seat *seat);
/* Where the new certificates cannot be used the old ones stay. */
int web_renew(struct web *web, struct tls *tls, struct stint_error *error);
/* Frees what older certificates are no longer needed for; now and then. */
void web_sweep(struct web *web);
size_t web_connections(const struct web *web);
void web_linger(struct web *web); /* each connection ends with its next answer */
void web_drain(struct web *web);
/* Ends all connections; what is left is freed by the loop, but not `web`. */
void web_end(struct web *web);
void web_free(struct web *web); /* when the loop has run; NULL is fine */

#endif
