/* SPDX-License-Identifier: MIT */
/*
 * The header fields that report a caller's quotas: values as bytes, for any sender.
 *
 * draft-ietf-httpapi-ratelimit-headers-11 has structured fields, one item for each quota of the
 * request; the older forms have only numbers, those of the binding quota. Quotas that are not
 * enforced (shadow_mode, replaced) are not written.
 */
#ifndef STINT_PROTO_HTTP_FIELDS_H
#define STINT_PROTO_HTTP_FIELDS_H

#include "decide/reply.h"
#include "decide/request.h"
#include "proto/http/http_message.h"
#include "proto/http_text.h"

enum http_style {
    HTTP_STYLE_DRAFT_11 = 1, /* RateLimit-Policy: "name";q=100;w=60, RateLimit: "name";r=50;t=30 */
    HTTP_STYLE_DRAFT_03 = 2, /* RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset */
    HTTP_STYLE_X_RATELIMIT = 4, /* X-RateLimit-Limit, … */
    HTTP_STYLE_NONE = 8,
};
#define HTTP_STYLE_DEFAULT HTTP_STYLE_DRAFT_11
#define HTTP_STYLES_ALL 15

/* "draft-11", "draft-03", "x-ratelimit", "none", or 0 for another name. */
unsigned http_style_named(struct span name);

#define HTTP_FIELDS_INTEGER_MAX UINT64_C(999999999999999) /* of structured fields: 15 digits */
#define HTTP_FIELDS_NAME_MAX 100  /* bytes of a policy's name; the rest is left out */
#define HTTP_FIELDS_LIST_MAX 1024 /* bytes of a list; items that do not fit are left out */

/* Whole seconds, rounded up, at least 1: Retry-After. */
uint64_t http_fields_retry_s(uint64_t wait_ns);

/*
 * The time until `remaining` of this status next grows: for requests with wants_growth. False where
 * nothing is used, or where it never grows.
 */
bool http_fields_grows_after(const struct target *status, uint64_t *after_ns);

/*
 * Adds the fields of a decided reply to the answer, with their values in `text`: those of the
 * styles, and Retry-After where the answer's status, already set, denies a request that may be
 * allowed later. The request gives names to quotas without a rule; `t` of draft-11 needs
 * wants_growth.
 */
void http_fields_write(struct http_answer *answer, struct http_text *text, unsigned styles,
                       const struct request *request, const struct reply *reply);

/* The name of a status: its rule's name or path, or the SPEC of the request. */
struct span http_fields_policy(const struct request *request, const struct reply *reply,
                               size_t index);
/* Whether a status belongs to an enforced quota, and so is written. */
bool http_fields_is_written(const struct target *status);

/* name and value must outlive the answer. At most HTTP_ANSWER_FIELDS_MAX; more are dropped. */
void http_answer_add(struct http_answer *answer, const char *name, const char *value);

#endif
