/* SPDX-License-Identifier: MIT */
/*
 * Replies in HTTP: a status, JSON, and the bytes of both. A decision that allows is 200; one that
 * denies is 429, with a problem (RFC 9457) as the body that also has the members of the decision.
 */
#ifndef STINT_PROTO_HTTP_HTTP_REPLY_H
#define STINT_PROTO_HTTP_HTTP_REPLY_H

#include "base/byte_queue.h"
#include "decide/reply.h"
#include "decide/request.h"
#include "proto/http/http_message.h"
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

/* {"type":"about:blank","title":"Not Found","status":404,"detail":…}; detail may be NULL. */
void http_problem_write(struct http_text *out, unsigned status, const char *detail);

/* {"type":"…#quota-exceeded","title":…,"status":429,"detail":…,"violated-policies":[ */
void http_denial_begin(struct http_text *out, const char *detail);

/* ---- Bytes of HTTP/1.1 ----------------------------------------------------------------------- */

/* The parameters of an answer beside itself. */
struct http_framing {
    const char *date;      /* in the format of RFC 9110. NULL: none is sent */
    bool is_head;          /* the request was HEAD: no body follows */
    bool ends_connection;  /* Connection: close */
    bool names_keep_alive; /* an HTTP/1.0 client requested it */
};

/* False: no memory, and nothing was written. */
bool http_writer_answer(struct byte_queue *out, const struct http_answer *answer,
                        const struct http_framing *framing);
bool http_writer_continue(struct byte_queue *out); /* 100 Continue */

#endif
