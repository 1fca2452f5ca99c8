/* SPDX-License-Identifier: MIT */
/*
 * gRPC connections: HTTP/2 by nghttp2, without a socket; each stream one call. Envoy's rate limit
 * service, health and reflection, as docs/grpc.md describes them.
 *
 * A frontend is what all connections of one worker share: the service that is asked, the limits,
 * room for messages, and streams that are used over and over. A frontend and its connections belong
 * to the thread of its service.
 */
#ifndef STINT_FRONTEND_GRPC_GRPC_CONN_H
#define STINT_FRONTEND_GRPC_GRPC_CONN_H

#include "frontend/conn.h"
#include "proto/grpc/rls.h"
#include "service/access/access.h"
#include "service/service.h"

/* What one client may send, and leave unread. 0 is the default. */
struct grpc_limits {
    size_t message_bytes; /* of one message, also when inflated. Default 1 MiB */
    size_t header_bytes;  /* of the fields of one call. Default 16 KiB */
    size_t streams;       /* at once on one connection. Default 1,000 */
    size_t output_bytes;  /* unsent, above which nothing is read. Default 256 KiB */
    /*
     * Frames that cost the sender little and the server something (PING, SETTINGS, RST_STREAM,
     * PRIORITY, empty DATA, CONTINUATION), beyond four for each call that was answered: so many
     * at once, filled again within ten seconds. Whoever sends more is sent away with
     * ENHANCE_YOUR_CALM. Default 1,000.
     */
    size_t idle_frames;
    /* A connection of that age is asked to be made anew (GOAWAY), and closed when its calls are
     * done. Spread by a tenth either way. Default 0: never */
    uint64_t age_ns;
    uint64_t age_grace_ns; /* how long its calls have then. Default 0: no end */
    /*
     * From a call's first frame to the last of its answer, unless it may be asked or answered more
     * than once. A connection sees to it itself: its socket does not know calls. Default 30 s
     */
    uint64_t call_ns;
};

struct grpc_frontend;

struct grpc_frontend_options {
    struct service *service;
    struct access_now *access;        /* NULL, or without tokens: nobody is asked who he is */
    const struct grpc_limits *limits; /* may be NULL */
    const struct rls_form *form;      /* of responses; NULL: no header fields, no metadata */
    bool (*is_ready)(void *arg);      /* health. NULL: until drained */
    void *arg;
};

struct grpc_frontend *
grpc_frontend_new(const struct grpc_frontend_options *options); /* NULL: no memory */
void grpc_frontend_free(struct grpc_frontend *frontend); /* after its connections; NULL is fine */
/* From now on health says NOT_SERVING. */
void grpc_frontend_drain(struct grpc_frontend *frontend);

/*
 * `peer`: the address of the other end as text; empty for a Unix socket. Copied. NULL: no memory.
 * Goes with conn->ops->free(). To drain it is to say so twice, a round trip apart
 * (GOAWAY), so that no call is lost that is on its way; a second drain() does not wait for that.
 */
struct conn *grpc_conn_new(struct grpc_frontend *frontend, struct span peer, uint64_t now_ns);

#endif
