/* SPDX-License-Identifier: MIT */
/*
 * Envoy's rate limit service, v3, as protobuf: a RateLimitRequest into a request, a reply into a
 * RateLimitResponse. The messages are described in src/proto/grpc/messages/ (field numbers as
 * published).
 */
#ifndef STINT_PROTO_GRPC_RLS_H
#define STINT_PROTO_GRPC_RLS_H

#include "proto/grpc/rls_limit.h"
#include "proto/http_fields.h"

/* A request out of a message, and the room for all that it points to. Used over and over. */
struct rls_call;

struct rls_call *rls_call_new(void);       /* NULL: no memory */
void rls_call_free(struct rls_call *call); /* NULL is fine */

/*
 * The request stands until the next read, and as long as the message does, which its strings are
 * in. Unknown fields are skipped. STINT_E_SYNTAX for what is no such message, an empty domain, no
 * descriptors or a unit that is none; STINT_E_RANGE for more of something than a request may have.
 */
int rls_read(struct rls_call *call, struct span message, const struct request **request,
             struct stint_error *error);

/* How a response is made. Copied nowhere: it outlives whoever uses it. */
struct rls_form {
    unsigned styles; /* bits of enum http_style: response_headers_to_add. 0: none */
    /* In place of the names of draft-03: RateLimit-Limit, -Remaining, -Reset. NULL: those */
    const char *limit_field, *remaining_field, *reset_field;
    bool has_metadata;       /* dynamic_metadata, in the shape that envoyproxy/ratelimit has it */
    struct span denied_body; /* raw_body of a response over limit. Empty: none */
};

/*
 * A RateLimitResponse to a decided reply, in memory of the call's until its next write; an empty
 * span with a NULL ptr where there is no memory for it.
 */
struct span rls_write(struct rls_call *call, const struct rls_form *form,
                      const struct request *request, const struct reply *reply);

#endif
