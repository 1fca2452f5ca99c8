/* SPDX-License-Identifier: MIT */
/*
 * A request parsed from a body, and the memory for all that it points to. Reused; the request is
 * valid until the call is cleared.
 */
#ifndef STINT_PROTO_HTTP_HTTP_CALL_H
#define STINT_PROTO_HTTP_HTTP_CALL_H

#include "decide/reply.h"
#include "decide/request.h"
#include "proto/grpc/rls.h"
#include "proto/http/http_json.h"
#include "proto/http_text.h"

#define HTTP_ID_MAX 128 /* bytes of request_id */
#define HTTP_ID_EXPECTED "expected 1 to 128 bytes"
#define HTTP_WAIT_MAX_MS 86400000 /* of wait_ms: a day */
#define HTTP_LIFETIME_DEFAULT_MS 60000
#define HTTP_LIFETIME_MAX_MS 31536000000 /* of other times: 365 days */
#define HTTP_EXPIRY_MAX_MS (STINT_COUNT_EXPIRY_MAX_NS / 1000000)

struct http_call {
    struct request request;
    struct http_json json; /* spans point into it, or into the body */
    size_t n_entries;
    struct descriptor descriptors[DESCRIPTORS_MAX];
    struct descriptor_entry entries[DESCRIPTORS_MAX * ENTRIES_MAX];
    struct request_item items[STINT_ITEMS_MAX];
    struct stint_quota overrides[DESCRIPTORS_MAX];
    uint32_t hits_addend; /* of POST /json, as in the message */
};

/* Zeroed is cleared; deinit frees the memory. */
void http_call_clear(struct http_call *call);
void http_call_deinit(struct http_call *call);

/*
 * Reads the body of POST /v1/VERB, or of PUT /v1/overrides for REQUEST_SET_QUOTA, into
 * call->request, including the verb. STINT_E_SYNTAX with the position and what was expected there.
 */
int http_call_read(struct http_call *call, int verb, struct span body, struct stint_error *error);

/*
 * Reads the query of GET /v1/explain and DELETE /v1/overrides: "domain=D&KEY=VALUE&…", one
 * descriptor of all parameters after the domain. `text` has space for query.len bytes.
 */
int http_call_query(struct http_call *call, int verb, struct span query, uint8_t *text,
                    struct stint_error *error);

/* ---- POST /json ------------------------------------------------------------------------------ */

/*
 * envoyproxy/ratelimit's POST /json: the messages of Envoy's rate limit service in proto3's JSON.
 * Names are accepted as in the .proto file and in lowerCamelCase, and written in the latter; fields
 * with their default value are left out.
 */

/* A RateLimitRequest, into a REQUEST_TAKE. */
int http_rls_read(struct http_call *call, struct span body, struct stint_error *error);

/* A RateLimitResponse to the last call, with the same parts as in gRPC beside its statuses. */
void http_rls_write(struct http_text *out, struct http_call *call, const struct rls_form *form,
                    const struct reply *reply);

#endif
