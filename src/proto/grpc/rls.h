/* SPDX-License-Identifier: MIT */
/*
 * Envoy's rate limit service, v3, as protobuf: a RateLimitRequest to a request, a reply to a
 * RateLimitResponse. The messages are described in src/proto/grpc/messages/ (field numbers as
 * published).
 */
#ifndef STINT_PROTO_GRPC_RLS_H
#define STINT_PROTO_GRPC_RLS_H

#include "proto/grpc/rls_limit.h"
#include "proto/http_fields.h"

/* A request parsed from a message, and the memory for all that it points to. Reused. */
struct rls_call;

struct rls_call *rls_call_new(void);       /* NULL: no memory */
void rls_call_free(struct rls_call *call); /* NULL is allowed */

/*
 * The request is valid until the next read, and as long as the message, which contains its strings.
 * Unknown fields are skipped. STINT_E_SYNTAX for an invalid message, an empty domain, no
 * descriptors or an unknown unit; STINT_E_RANGE where a limit of requests is exceeded.
 */
int rls_read(struct rls_call *call, struct span message, const struct request **request,
             struct stint_error *error);

/* The format of a response. Borrowed: it outlives its users. */
struct rls_form {
    unsigned styles; /* bits of enum http_style: response_headers_to_add. 0: none */
    /* Replace the names of draft-03: RateLimit-Limit, -Remaining, -Reset. NULL: those names */
    const char *limit_field, *remaining_field, *reset_field;
    bool has_metadata;       /* dynamic_metadata, in the format of envoyproxy/ratelimit */
    struct span denied_body; /* raw_body of a response over limit. Empty: none */
};

/*
 * A RateLimitResponse for a decided reply, in memory of the call until its next write; an empty
 * span with a NULL ptr where there is no memory for it.
 */
struct span rls_write(struct rls_call *call, const struct rls_form *form,
                      const struct request *request, const struct reply *reply);

#endif
