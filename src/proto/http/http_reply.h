/* SPDX-License-Identifier: MIT */
/*
 * Replies as HTTP has them: a status, and JSON. A decision that allows is 200; one that denies is
 * 429, its body a problem (RFC 9457) that has the members of the decision, too.
 */
#ifndef STINT_PROTO_HTTP_HTTP_REPLY_H
#define STINT_PROTO_HTTP_HTTP_REPLY_H

#include "decide/reply.h"
#include "decide/request.h"
#include "proto/http_text.h"

#define HTTP_TYPE_JSON "application/json"
#define HTTP_TYPE_PROBLEM "application/problem+json"

/* 200, 429, or that of the error. Peek and explain are 200 also where they say that all is used. */
unsigned http_reply_status(const struct request *request, const struct reply *reply);

/* Whether a verb's answer is a decision: those of administrators and renew are done, or not. */
bool http_reply_decides(int verb);

/* The body: a decision, a problem, or for verbs that decide nothing {"ok":true}. */
void http_reply_write(struct http_text *out, const struct request *request,
                      const struct reply *reply);

/* "Too Many Requests": what RFC 9110 and its kin call a status; "Error" for one unknown here. */
const char *http_status_name(unsigned status);

/* {"type":"about:blank","title":"Not Found","status":404,"detail":…}; detail may be NULL. */
void http_problem_write(struct http_text *out, unsigned status, const char *detail);

#endif
