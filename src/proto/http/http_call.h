/* SPDX-License-Identifier: MIT */
/*
 * A request out of a body, and the room for all that it points to. One is used over and over; what
 * was read into it stands until it is cleared.
 */
#ifndef STINT_PROTO_HTTP_HTTP_CALL_H
#define STINT_PROTO_HTTP_HTTP_CALL_H

#include "decide/request.h"
#include "proto/grpc/rls_arena.h"
#include "proto/http/http_json.h"
#include "proto/http_text.h"

#define HTTP_ID_MAX 128           /* bytes of request_id */
#define HTTP_WAIT_MAX_MS 86400000 /* of wait_ms: a day */
#define HTTP_LIFETIME_DEFAULT_MS 60000
#define HTTP_LIFETIME_MAX_MS 31536000000 /* of other times: 365 days */

struct http_call {
    struct request request;
    struct http_json json; /* what spans point into, beside the body */
    size_t n_entries;
    struct descriptor descriptors[DESCRIPTORS_MAX];
    struct descriptor_entry entries[DESCRIPTORS_MAX * ENTRIES_MAX];
    struct request_item items[STINT_ITEMS_MAX];
    struct stint_quota overrides[DESCRIPTORS_MAX];
    /* Of POST /json: hitsAddend as the message has it, and what its answer is made of. */
    uint32_t hits_addend;
    struct rls_arena told;
};

/* Zeroed is cleared; deinit gives back what it has grown to. */
void http_call_clear(struct http_call *call);
void http_call_deinit(struct http_call *call);

/*
 * Reads the body of POST /v1/VERB, or of PUT /v1/overrides for REQUEST_SET_QUOTA, into
 * call->request, verb included. STINT_E_SYNTAX with a message that says where what was expected.
 */
int http_call_read(struct http_call *call, int verb, struct span body, struct stint_error *error);

/*
 * Reads a query: "domain=D&KEY=VALUE&…", one descriptor of all that follows the domain, as GET
 * /v1/explain and DELETE /v1/overrides have it. `text` has room for query.len bytes.
 */
int http_call_query(struct http_call *call, int verb, struct span query, uint8_t *text,
                    struct stint_error *error);

/* ---- For readers of other bodies ------------------------------------------------------------- */

/* A place for one more entry of the descriptor, or NULL with a message. */
struct descriptor_entry *http_call_entry(struct http_call *call, struct descriptor *descriptor,
                                         const struct http_place *place, struct stint_error *error);

#endif
