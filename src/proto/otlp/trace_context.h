/* SPDX-License-Identifier: MIT */
/*
 * W3C trace context: the caller's span, from the fields traceparent and tracestate of a request.
 * Both are untrusted: what is invalid counts as absent.
 */
#ifndef STINT_PROTO_OTLP_TRACE_CONTEXT_H
#define STINT_PROTO_OTLP_TRACE_CONTEXT_H

#include "base/span.h"

#include <stdbool.h>

#define TRACE_ID_LEN 16
#define TRACE_SPAN_ID_LEN 8
#define TRACE_STATE_MAX 512 /* bytes of all tracestate fields together */

enum trace_flags { TRACE_FLAG_SAMPLED = 1, TRACE_FLAG_RANDOM = 2 }; /* bits; the others are 0 */

struct trace_context {
    uint8_t trace_id[TRACE_ID_LEN];
    uint8_t span_id[TRACE_SPAN_ID_LEN]; /* of the caller's span */
    uint8_t flags;
    bool is_valid;         /* the one traceparent is valid */
    bool has_parent;       /* a traceparent came */
    bool is_state_refused; /* a tracestate was invalid, or they are too long */
    uint16_t state_len;
    char state[TRACE_STATE_MAX];
};

/* Zero it, then add each field once, in the order of those with one name. */
void trace_context_parent(struct trace_context *context, struct span value);
void trace_context_state(struct trace_context *context, struct span value);

/* Of a valid context; empty where there is none, or where it was refused. */
static inline struct span trace_context_state_of(const struct trace_context *context)
{
    bool has_state = context->is_valid && !context->is_state_refused;
    return span_of(context->state, has_state ? context->state_len : 0);
}

#endif
