/* SPDX-License-Identifier: MIT */
/*
 * Spans as the OpenTelemetry protocol has them: opentelemetry.proto.trace.v1 in protobuf. A span is
 * written by itself; a request to a collector is a head and any number of such spans.
 */
#ifndef STINT_PROTO_OTLP_OTLP_H
#define STINT_PROTO_OTLP_OTLP_H

#include "base/err.h"
#include "proto/otlp/trace_context.h"

#define OTLP_TEXT_MAX 128      /* bytes of a name or a text; the rest is cut off */
#define OTLP_ATTRIBUTES_MAX 12 /* of a span */
#define OTLP_RESOURCE_ATTRIBUTES_MAX 64
#define OTLP_RESOURCE_TEXT_MAX 1024 /* bytes of a name or a value, of a resource */

/* A text, or a number where text.ptr is NULL. Bytes that are no UTF-8 are replaced. */
struct otlp_attribute {
    const char *name; /* ASCII, a constant */
    struct span text;
    int64_t number;
};

enum otlp_kind { OTLP_SERVER = 2, OTLP_CLIENT = 3 };

struct otlp_span {
    const uint8_t *trace_id, *id; /* TRACE_ID_LEN and TRACE_SPAN_ID_LEN bytes */
    const uint8_t *parent_id;     /* NULL: it is the first of its trace */
    bool is_parent_remote;        /* the parent is a span of the caller's */
    uint8_t flags;                /* bits of enum trace_flags */
    struct span state;            /* the caller's tracestate */
    struct span name;
    enum otlp_kind kind;
    uint64_t begin_ns, end_ns; /* since 1970 */
    const struct otlp_attribute *attributes;
    size_t n_attributes;
    const char *error; /* what failed; NULL: nothing */
};

/* Each text needs three bytes for one that is no UTF-8. */
#define OTLP_SPAN_SIZE                                                                             \
    (256 + TRACE_STATE_MAX + (2 + OTLP_ATTRIBUTES_MAX) * (3 * OTLP_TEXT_MAX + 64))

/* The span as a field of a request; it ends where `space` ends. */
struct span otlp_span_write(uint8_t space[OTLP_SPAN_SIZE], const struct otlp_span *span);

/* ---- Requests -------------------------------------------------------------------------------- */

#define OTLP_RESOURCE_SIZE (OTLP_RESOURCE_ATTRIBUTES_MAX * (2 * OTLP_RESOURCE_TEXT_MAX + 32) + 16)

struct otlp_resource_attribute {
    struct span name, value; /* UTF-8, at most OTLP_RESOURCE_TEXT_MAX bytes each */
};

/* What all requests of a server have in common; it ends where `space` ends. */
struct span otlp_resource_write(uint8_t space[OTLP_RESOURCE_SIZE],
                                const struct otlp_resource_attribute *attributes, size_t n);

#define OTLP_HEAD_MAX 96 /* bytes of a head beside the resource */

/*
 * The head of a request, right before `spans`: there must be space for the resource and
 * OTLP_HEAD_MAX bytes. The result is the whole request.
 */
struct span otlp_request_write(struct span resource, const char *version, struct span spans);

/* What a collector has refused of a request that it has accepted. STINT_E_SYNTAX: malformed. */
struct otlp_response {
    uint64_t refused; /* spans */
    struct span message;
};
int otlp_response_read(struct otlp_response *response, struct span bytes,
                       struct stint_error *error);

#endif
