/* SPDX-License-Identifier: MIT */
/*
 * envoyproxy/ratelimit's POST /json: the messages of Envoy's rate limit service as proto3 has them
 * in JSON. Names are taken as they are in the .proto file and in lowerCamelCase, and answered in
 * the latter; fields that have their default are left out.
 */
#ifndef STINT_PROTO_HTTP_HTTP_RLS_H
#define STINT_PROTO_HTTP_HTTP_RLS_H

#include "decide/reply.h"
#include "proto/grpc/rls.h"
#include "proto/http/http_call.h"

/* A RateLimitRequest, into a REQUEST_TAKE. */
int http_rls_read(struct http_call *call, struct span body, struct stint_error *error);

/* A RateLimitResponse to the call that was read, with what gRPC is answered beside its statuses. */
void http_rls_write(struct http_text *out, struct http_call *call, const struct rls_form *form,
                    const struct reply *reply);

#endif
