/* SPDX-License-Identifier: MIT */
/*
 * envoyproxy/ratelimit's POST /json: the messages of Envoy's rate limit service in proto3's JSON.
 * Names are accepted as in the .proto file and in lowerCamelCase, and written in the latter; fields
 * with their default value are left out.
 */
#ifndef STINT_PROTO_HTTP_HTTP_RLS_H
#define STINT_PROTO_HTTP_HTTP_RLS_H

#include "decide/reply.h"
#include "proto/grpc/rls.h"
#include "proto/http/http_call.h"

/* A RateLimitRequest, into a REQUEST_TAKE. */
int http_rls_read(struct http_call *call, struct span body, struct stint_error *error);

/* A RateLimitResponse to the last call, with the same parts as in gRPC beside its statuses. */
void http_rls_write(struct http_text *out, struct http_call *call, const struct rls_form *form,
                    const struct reply *reply);

#endif
