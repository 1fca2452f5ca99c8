/* SPDX-License-Identifier: MIT */
/*
 * gRPC connections: HTTP/2 by nghttp2, without a socket; each stream one call. Envoy's rate limit
 * service, health and reflection, as docs/grpc.md describes them.
 *
 * All connections of one worker share a frontend: the service, the limits, memory for messages, and
 * a list of streams for reuse. A frontend and its connections belong to the thread of its service.
 */
#ifndef STINT_FRONTEND_GRPC_GRPC_CONN_H
#define STINT_FRONTEND_GRPC_GRPC_CONN_H

#include "frontend/conn.h"
#include "proto/grpc/rls.h"
#include "service/access/access.h"
#include "service/service.h"

/* Limits of what one client may send, and leave unread. 0 is the default. */
struct grpc_limits {
    size_t message_bytes; /* of one message, also when inflated. Default 1 MiB */
    size_t header_bytes;  /* of the fields of one call. Default 16 KiB */
    size_t streams;       /* at once on one connection. Default 1,000 */
    size_t output_bytes;  /* unsent, above which no input is read. Default 256 KiB */
    /*
     * Frames that cost the sender little and the server something (PING, SETTINGS, RST_STREAM,
     * PRIORITY, empty DATA, CONTINUATION), beyond four for each answered call: so many at once,
     * refilled within ten seconds. For a peer that sends more, the connection ends with
     * ENHANCE_YOUR_CALM. Default 1,000.
     */
    size_t idle_frames;
    /* Age at which a connection gets GOAWAY; it is closed when its calls are done. Varies by a
     * tenth either way. Default 0: never */
    uint64_t age_ns;
    uint64_t age_grace_ns; /* time limit of its calls after that. Default 0: none */
    /*
     * From a call's first frame to the last of its response, except for methods with several
     * messages. The connection enforces it: the socket's owner does not know calls. Default 30 s
     */
    uint64_t call_ns;
};

struct grpc_frontend;

struct grpc_frontend_options {
    struct service *service;
    struct access_now *access;        /* NULL, or without tokens: no token is needed */
    const struct grpc_limits *limits; /* may be NULL */
    const struct rls_form *form;      /* of responses; NULL: no header fields, no metadata */
    bool (*is_ready)(void *arg);      /* health. NULL: until drained */
    void *arg;
};

struct grpc_frontend *
grpc_frontend_new(const struct grpc_frontend_options *options); /* NULL: no memory */
void grpc_frontend_free(struct grpc_frontend *frontend);        /* after its connections; may be
                                                                 * NULL */
/* limits.call_ns, for open calls as well: from the next check of their connections on. */
void grpc_frontend_set_call_time(struct grpc_frontend *frontend, uint64_t call_ns);
/* From now on health reports NOT_SERVING. */
void grpc_frontend_drain(struct grpc_frontend *frontend);

/*
 * `peer`: the address of the other end as text; empty for a Unix socket. Copied. NULL: no memory.
 * Freed by conn->ops->free(). A drain sends GOAWAY twice, a round trip apart, so that no call in
 * transit is lost; a second drain() does not wait for that.
 */
struct conn *grpc_conn_new(struct grpc_frontend *frontend, struct span peer, uint64_t now_ns);

#endif
