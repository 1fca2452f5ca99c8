/* SPDX-License-Identifier: MIT */
/*
 * RESP connections, as docs/protocol.md describes them: commands in, replies out, in their order.
 *
 * All connections of one worker share a frontend: the service, the limits, and memory for the
 * command being read. So an idle connection holds a few hundred bytes and no buffer. A frontend and
 * its connections belong to the thread of its service.
 */
#ifndef STINT_FRONTEND_RESP_RESP_CONN_H
#define STINT_FRONTEND_RESP_RESP_CONN_H

#include "frontend/conn.h"
#include "service/access/access.h"
#include "service/service.h"

#define RESP_ARGUMENTS_MAX 4096 /* the largest value of `arguments` */

/* Limits of what one client may send, and leave unread. 0 is the default. */
struct resp_limits {
    size_t request_bytes;  /* of one command with all its arguments. Default 1 MiB */
    size_t argument_bytes; /* of one argument. Default 128 KiB: a key may have 64 KiB */
    size_t arguments;      /* of one command, its name included. Default RESP_ARGUMENTS_MAX */
    size_t output_bytes;   /* unsent replies above which no command is read. Default 256 KiB */
};

struct resp_frontend;

/*
 * access: the tokens in force, checked at each feed, so that a reload also applies to open
 * connections; NULL, or without tokens: no token is needed. limits may be NULL. NULL: no memory.
 */
struct resp_frontend *resp_frontend_new(struct service *service, struct access_now *access,
                                        const struct resp_limits *limits);
void resp_frontend_free(struct resp_frontend *frontend); /* after its connections; may be NULL */

/*
 * `peer`: the address of the other end as text; empty for a Unix socket. Copied. NULL: no memory.
 * Freed by conn->ops->free().
 */
struct conn *resp_conn_new(struct resp_frontend *frontend, struct span peer);

#endif
