/* SPDX-License-Identifier: MIT */
/* Shared by the files of rls.h only. */
#ifndef STINT_PROTO_GRPC_RLS_PARTS_H
#define STINT_PROTO_GRPC_RLS_PARTS_H

#include "proto/grpc/rls.h"
#include "proto/grpc/rls_arena.h"

#include <protobuf-c/protobuf-c.h>

#define RLS_HEADERS_SIZE 4096 /* bytes of values in response_headers_to_add */

struct rls_call {
    struct request request;
    uint32_t hits_addend; /* as in the message; 0: not given */
    struct rls_arena told;
    uint8_t *packed;
    size_t packed_size;
    struct rls_status statuses[DESCRIPTORS_MAX]; /* of the response */
    char headers[RLS_HEADERS_SIZE];
    struct stint_quota overrides[DESCRIPTORS_MAX];
    struct descriptor descriptors[DESCRIPTORS_MAX];
    struct descriptor_entry entries[DESCRIPTORS_MAX * ENTRIES_MAX];
};

/* protobuf-c's bytes are not const, though packing only reads them. */
static inline ProtobufCBinaryData rls_bytes(struct span span)
{
    return (ProtobufCBinaryData){.len = span.len, .data = (uint8_t *)(uintptr_t)span.ptr};
}

/* Reads one more RateLimitDescriptor of the request. */
int rls_add_descriptor(struct rls_call *call, struct span message, struct stint_error *error);
/* Checks that a request has a domain and descriptors. */
int rls_check_whole(const struct rls_call *call, struct stint_error *error);

/* Memory for a response of so many bytes in call->packed; false: no memory. */
bool rls_make_space(struct rls_call *call, size_t len);

struct Pb__Struct;

/*
 * dynamic_metadata: domain, descriptors, hitsAddend, and the metadata of the rules whose
 * descriptors are within their limits, in memory of the arena. NULL: no memory. hits_addend is as
 * in the message; 0: not given.
 */
struct Pb__Struct *rls_metadata(struct rls_arena *arena, uint32_t hits_addend,
                                const struct request *request, const struct reply *reply);

/* response_headers_to_add, as the fields of `answer`; their values are in `text`. */
void rls_fields(const struct rls_form *form, const struct request *request,
                const struct reply *reply, struct http_text *text, struct http_answer *answer);

#endif
