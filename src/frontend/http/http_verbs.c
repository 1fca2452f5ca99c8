/* SPDX-License-Identifier: MIT */
/* Decisions: the verbs of /v1, envoyproxy's /json, and /auth. */
#include "frontend/http/http_exchange.h"

#include "base/number.h"
#include "base/wide_int.h"
#include "proto/http/http_call.h"

/* Calls the service. False: no reply yet, answer->again_at_ns or ->pending is set. */
static bool ask(struct http_exchange *exchange)
{
    struct http_frontend *frontend = exchange->frontend;
    const struct http_message *message = exchange->message;
    struct request *request = &frontend->call.request;
    request->wants_growth |=
        (frontend->options.config->options.styles & HTTP_STYLE_DRAFT_11) != 0 &&
        http_reply_decides(request->verb);
    request->pending = exchange->pending;
    exchange->pending = NULL;
    request->retry_until_ns = request->wait_ns == 0 || message->is_urgent
                                  ? 0
                                  : add_sat(exchange->asked_ns, request->wait_ns);
    service_ask(frontend->options.service, request, &exchange->caller, exchange->now_ns,
                &frontend->reply);
    if (frontend->reply.error == REPLY_WAITS) {
        exchange->answer->pending = frontend->reply.pending;
        return false;
    }
    exchange->was_decided = true;
    exchange->answer->again_at_ns = message->is_urgent ? 0 : frontend->reply.again_at_ns;
    return exchange->answer->again_at_ns == 0;
}

/* The body of /v1. */
static void write_reply(struct http_text *out, struct http_frontend *frontend)
{
    http_reply_write(out, &frontend->call.request, &frontend->reply);
}

/* Answers with the decision in frontend->reply; `write` writes the body. */
static void reply(struct http_exchange *exchange, const char *type,
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
            http_fields_write(answer, &out, frontend->options.config->options.styles, request,
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
    reply(exchange, status == 200 ? HTTP_TYPE_JSON : HTTP_TYPE_PROBLEM, write_reply);
}

static void answer_verb(struct http_exchange *exchange)
{
    struct stint_error error;
    struct http_call *call = &exchange->frontend->call;
    if (http_call_read(call, exchange->verb, exchange->message->body, &error) < 0)
        http_exchange_refuse(exchange, 400, error.message);
    else if (ask(exchange))
        reply_json(exchange);
}

static void answer_query(struct http_exchange *exchange)
{
    struct stint_error error;
    struct http_frontend *frontend = exchange->frontend;
    struct span query = exchange->target.query;
    uint8_t *space = (uint8_t *)frontend->arena;
    if (query.len > sizeof(frontend->arena))
        http_exchange_refuse(exchange, 414, NULL);
    else if (http_call_query(&frontend->call, exchange->verb, query, space, &error) < 0)
        http_exchange_refuse(exchange, 400, error.message);
    else if (ask(exchange))
        reply_json(exchange);
}

static void write_rls(struct http_text *out, struct http_frontend *frontend)
{
    static const struct rls_form plain;
    const struct rls_form *form = frontend->options.rls_form;
    http_rls_write(out, &frontend->call, form != NULL ? form : &plain, &frontend->reply);
}

static void answer_rls(struct http_exchange *exchange)
{
    struct stint_error error;
    struct http_frontend *frontend = exchange->frontend;
    if (http_rls_read(&frontend->call, exchange->message->body, &error) < 0) {
        http_exchange_refuse(exchange, 400, error.message);
        return;
    }
    if (!ask(exchange))
        return;
    if (frontend->reply.error != REPLY_DECIDED)
        reply_json(exchange);
    else
        reply(exchange, HTTP_TYPE_JSON, write_rls);
}

/* ---- /auth ----------------------------------------------------------------------------------- */

/* A proxy checks whether its request may pass. It uses only the status and the fields. */

/* ?deny_status=N, or the configured one; 0: an invalid status. */
static unsigned find_deny_status(const struct http_exchange *exchange, uint8_t *space)
{
    struct span text;
    uint64_t status;
    if (!http_target_find(exchange->target.query, "deny_status", space, &text))
        return exchange->frontend->options.config->options.deny_status;
    return text.len == 3 && resp_number_read(text, HTTP_DENY_STATUS_MAX, &status) &&
                   status >= HTTP_DENY_STATUS_MIN
               ? (unsigned)status
               : 0;
}

/* ?domain=NAME, or the configured one. False: there is none. */
static bool find_domain(const struct http_exchange *exchange, struct http_text *arena,
                        struct span *domain)
{
    const char *configured = exchange->frontend->options.config->options.domain;
    uint8_t *space = (uint8_t *)arena->text + arena->len;
    if (http_target_find(exchange->target.query, "domain", space, domain)) {
        arena->len += (size_t)(domain->ptr - space) + domain->len;
        return domain->len > 0;
    }
    if (configured == NULL)
        return false;
    *domain = span_of_text(configured);
    return true;
}

/* Reads ?domain=NAME&deny_status=N; false where the answer is a rejection. */
static bool read_query(struct http_exchange *exchange, struct http_text *arena,
                       unsigned *deny_status)
{
    if (exchange->target.query.len >= arena->size - arena->len) {
        http_exchange_refuse(exchange, 414, "the query is too long");
        return false;
    }
    *deny_status = find_deny_status(exchange, (uint8_t *)arena->text + arena->len);
    if (*deny_status == 0)
        http_exchange_refuse(exchange, 400, "deny_status: expected 400 to 599");
    else if (!find_domain(exchange, arena, &exchange->frontend->call.request.domain))
        http_exchange_refuse(exchange, 400, "no domain: use /auth?domain=NAME, or set http_domain");
    else
        return true;
    return false;
}

/* Fills frontend->call; false where the answer is complete: a rejection, or no descriptors. */
static bool describe(struct http_exchange *exchange, unsigned *deny_status)
{
    struct http_frontend *frontend = exchange->frontend;
    const struct http_config *config = frontend->options.config;
    struct http_call *call = &frontend->call;
    struct http_text arena = http_text_at(frontend->arena, sizeof(frontend->arena));
    struct http_parts_space space = {call->descriptors, call->entries, &arena};
    struct http_origin origin;
    struct stint_error error;
    http_call_clear(call);
    if (!read_query(exchange, &arena, deny_status))
        return false;
    if (http_origin_find(&origin, config->proxies, &config->options.origin_fields,
                         exchange->message, &error) < 0) {
        http_exchange_refuse(exchange, 400, error.message);
        return false;
    }
    int n = http_parts_describe(config->parts, exchange->message, &origin, &space);
    if (n < 0) {
        http_exchange_refuse(exchange, 431, "too long to make descriptors of");
        return false;
    }
    call->request.verb = REQUEST_TAKE;
    call->request.descriptors = call->descriptors;
    call->request.n_descriptors = (size_t)n;
    if (n == 0)
        exchange->answer->status = 200; /* all descriptors were left out: nothing limits it */
    return n > 0;
}

static void answer_auth(struct http_exchange *exchange)
{
    struct http_frontend *frontend = exchange->frontend;
    struct http_answer *answer = exchange->answer;
    const struct request *request = &frontend->call.request;
    unsigned deny_status;
    if (!describe(exchange, &deny_status) || !ask(exchange))
        return;
    bool is_decided = frontend->reply.error == REPLY_DECIDED;
    if (!is_decided || frontend->reply.decision.outcome != STINT_ALLOW) {
        reply(exchange, HTTP_TYPE_PROBLEM, write_reply);
        if (is_decided)
            answer->status = deny_status;
        return;
    }
    struct http_text out;
    answer->status = 200;
    do {
        out = http_frontend_text(frontend);
        answer->n_fields = 0;
        http_fields_write(answer, &out, frontend->options.config->options.styles, request,
                          &frontend->reply);
    } while (http_frontend_grow(frontend, &out));
}

/* ---- Routes ---------------------------------------------------------------------------------- */

/* The most frequent routes come first. */
static const struct http_route routes[] = {
    {"/auth", ROUTE_ANY, false, false, HTTP_ROLE_AUTH, answer_auth, REQUEST_TAKE},
    {"/v1/take", ROUTE_POST, false, true, ACCESS_ASK, answer_verb, REQUEST_TAKE},
    {"/json", ROUTE_POST, false, false, ACCESS_ASK, answer_rls, REQUEST_TAKE},
    {"/v1/peek", ROUTE_POST, false, true, ACCESS_ASK, answer_verb, REQUEST_PEEK},
    {"/v1/take_upto", ROUTE_POST, false, true, ACCESS_ASK, answer_verb, REQUEST_TAKE_UPTO},
    {"/v1/reserve", ROUTE_POST, false, true, ACCESS_ASK, answer_verb, REQUEST_RESERVE},
    {"/v1/settle", ROUTE_POST, false, true, ACCESS_ASK, answer_verb, REQUEST_SETTLE},
    {"/v1/cancel", ROUTE_POST, false, true, ACCESS_ASK, answer_verb, REQUEST_CANCEL},
    {"/v1/renew", ROUTE_POST, false, true, ACCESS_ASK, answer_verb, REQUEST_RENEW},
    {"/v1/refund", ROUTE_POST, false, true, ACCESS_ASK, answer_verb, REQUEST_REFUND},
    {"/v1/charge", ROUTE_POST, false, true, ACCESS_ASK, answer_verb, REQUEST_CHARGE},
    {"/v1/book", ROUTE_POST, false, true, ACCESS_ASK, answer_verb, REQUEST_BOOK},
    {"/v1/block", ROUTE_POST, false, true, ACCESS_ADMINISTER, answer_verb, REQUEST_BLOCK},
    {"/v1/reset", ROUTE_POST, false, true, ACCESS_ADMINISTER, answer_verb, REQUEST_RESET},
    {"/v1/count", ROUTE_POST, false, true, ACCESS_ASK, answer_verb, REQUEST_COUNT},
    {"/v1/count_reset", ROUTE_POST, false, true, ACCESS_ASK, answer_verb, REQUEST_COUNT_RESET},
    {"/v1/explain", ROUTE_POST, false, true, ACCESS_ASK, answer_verb, REQUEST_EXPLAIN},
    {"/v1/explain", ROUTE_GET, false, false, ACCESS_ASK, answer_query, REQUEST_EXPLAIN},
    {"/v1/overrides", ROUTE_PUT, false, true, ACCESS_ADMINISTER, answer_verb, REQUEST_SET_QUOTA},
    {"/v1/overrides", ROUTE_DELETE, false, false, ACCESS_ADMINISTER, answer_query,
     REQUEST_SET_QUOTA},
};

const struct http_routes http_verb_routes = {routes, sizeof(routes) / sizeof(routes[0]), NULL};
