/* SPDX-License-Identifier: MIT */
/*
 * HTTP/1.1 connections: bytes in, bytes out, without a socket. Requests are answered in the order
 * in which they came; one that waits (for a store, or by its own wait) delays those after it.
 */
#ifndef STINT_FRONTEND_HTTP_HTTP_CONN_H
#define STINT_FRONTEND_HTTP_HTTP_CONN_H

#include "frontend/conn.h"
#include "frontend/http/http.h"

/*
 * `peer`: the address of the other end as text; empty for a Unix socket. Copied. NULL: no memory.
 * Freed by conn->ops->free(), before its frontend.
 */
struct conn *http_conn_new(struct http_frontend *frontend, struct span peer);

#endif
