/* SPDX-License-Identifier: MIT */
/* The verbs of /v1, envoyproxy's /json, and the call and reply of a decision. */
#include "frontend/http/http_frontend.h"

#include "proto/http/http_rls.h"

#include <stdio.h>

bool http_exchange_ask(struct http_exchange *exchange)
{
    struct http_frontend *frontend = exchange->frontend;
    const struct http_message *message = exchange->message;
    struct request *request = &frontend->call.request;
    request->wants_growth |= (frontend->options.site->styles & HTTP_STYLE_DRAFT_11) != 0 &&
                             http_reply_decides(request->verb);
    request->pending = exchange->pending;
    exchange->pending = NULL;
    service_ask(frontend->options.service, request, &exchange->caller, exchange->now_ns,
                &frontend->reply);
    if (frontend->reply.error == REPLY_WAITS) {
        exchange->answer->pending = frontend->reply.pending;
        return false;
    }
    if (request->wait_ns == 0 || message->is_urgent)
        return true;
    exchange->answer->again_at_ns =
        service_retry_at(request, &frontend->reply, exchange->asked_ns, exchange->now_ns);
    return exchange->answer->again_at_ns == 0;
}

void http_write_reply(struct http_text *out, struct http_frontend *frontend)
{
    http_reply_write(out, &frontend->call.request, &frontend->reply);
}

void http_exchange_reply(struct http_exchange *exchange, const char *type,
                         void (*write)(struct http_text *out, struct http_frontend *frontend))
{
    struct http_frontend *frontend = exchange->frontend;
    struct http_answer *answer = exchange->answer;
    const struct request *request = &frontend->call.request;
    struct http_text out;
    answer->status = http_reply_status(request, &frontend->reply);
    size_t n_fields = answer->n_fields;
    bool has_metrics = frontend->reply.error == REPLY_DECIDED && http_reply_decides(request->verb);
    do {
        out = http_frontend_text(frontend);
        answer->n_fields = n_fields;
        http_answer_add(answer, "Content-Type", type);
        if (has_metrics)
            http_fields_write(answer, &out, frontend->options.site->styles, request,
                              &frontend->reply);
        size_t start = out.len;
        write(&out, frontend);
        answer->body = span_of(out.text + start, out.len - start);
    } while (http_frontend_grow(frontend, &out));
    if (out.is_full) {
        answer->n_fields = n_fields;
        http_exchange_refuse(exchange, 500, "the answer is too long");
    }
}

static void reply_json(struct http_exchange *exchange)
{
    const struct http_frontend *frontend = exchange->frontend;
    unsigned status = http_reply_status(&frontend->call.request, &frontend->reply);
    http_exchange_reply(exchange, status == 200 ? HTTP_TYPE_JSON : HTTP_TYPE_PROBLEM,
                        http_write_reply);
}

void http_verb(struct http_exchange *exchange)
{
    struct stint_error error;
    struct http_call *call = &exchange->frontend->call;
    if (http_call_read(call, exchange->verb, exchange->message->body, &error) < 0)
        http_exchange_fault(exchange, &error);
    else if (http_exchange_ask(exchange))
        reply_json(exchange);
}

void http_verb_by_query(struct http_exchange *exchange)
{
    struct stint_error error;
    struct http_frontend *frontend = exchange->frontend;
    struct span query = exchange->target.query;
    if (query.len > sizeof(frontend->arena)) {
        http_exchange_refuse(exchange, 414, NULL);
        return;
    }
    if (http_call_query(&frontend->call, exchange->verb, query, (uint8_t *)frontend->arena,
                        &error) < 0)
        http_exchange_fault(exchange, &error);
    else if (http_exchange_ask(exchange))
        reply_json(exchange);
}

static void write_rls(struct http_text *out, struct http_frontend *frontend)
{
    static const struct rls_form plain;
    const struct rls_form *form = frontend->options.rls_form;
    http_rls_write(out, &frontend->call, form != NULL ? form : &plain, &frontend->reply);
}

void http_rls(struct http_exchange *exchange)
{
    struct stint_error error;
    struct http_frontend *frontend = exchange->frontend;
    if (http_rls_read(&frontend->call, exchange->message->body, &error) < 0) {
        http_exchange_fault(exchange, &error);
        return;
    }
    if (!http_exchange_ask(exchange))
        return;
    if (frontend->reply.error != REPLY_DECIDED)
        reply_json(exchange);
    else
        http_exchange_reply(exchange, HTTP_TYPE_JSON, write_rls);
}
