/* SPDX-License-Identifier: MIT */
/*
 * Replies in HTTP: a status, and JSON. A decision that allows is 200; one that denies is 429, with
 * a problem (RFC 9457) as the body that also has the members of the decision.
 */
#ifndef STINT_PROTO_HTTP_HTTP_REPLY_H
#define STINT_PROTO_HTTP_HTTP_REPLY_H

#include "decide/reply.h"
#include "decide/request.h"
#include "proto/http_text.h"

#define HTTP_TYPE_JSON "application/json"
#define HTTP_TYPE_PROBLEM "application/problem+json"

/* 200, 429, or the error's status. Peek and explain are 200 also where nothing is left. */
unsigned http_reply_status(const struct request *request, const struct reply *reply);

/* Whether a verb's answer is a decision; administrators' verbs and renew only succeed or fail. */
bool http_reply_decides(int verb);

/* The body: a decision, a problem, or for verbs that decide nothing {"ok":true}. */
void http_reply_write(struct http_text *out, const struct request *request,
                      const struct reply *reply);

/* "Too Many Requests": the phrase of RFC 9110 and its extensions; "Error" for an unknown status. */
const char *http_status_name(unsigned status);

/* {"type":"about:blank","title":"Not Found","status":404,"detail":…}; detail may be NULL. */
void http_problem_write(struct http_text *out, unsigned status, const char *detail);

#endif
