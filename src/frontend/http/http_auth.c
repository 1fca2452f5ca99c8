/* SPDX-License-Identifier: MIT */
/* /auth: a proxy checks whether its request may pass. It uses only the status and the fields. */
#include "frontend/http/http_frontend.h"

bool http_auth_is_trusted(const struct http_exchange *exchange)
{
    return http_proxies_trust(exchange->frontend->options.site->proxies, exchange->message->peer);
}

static struct http_origin_fields origin_fields(const struct http_config *site)
{
    return (struct http_origin_fields){site->address_field, site->uri_field, site->method_field};
}

bool http_auth_is_forwarded(const struct http_exchange *exchange)
{
    struct http_origin_fields fields = origin_fields(exchange->frontend->options.site);
    return http_browser_is_forwarded(exchange->message, &fields);
}

/* ?deny_status=N, or the configured one; 0: an invalid status. */
static unsigned find_deny_status(const struct http_exchange *exchange, uint8_t *space)
{
    struct span text;
    unsigned status = 0;
    if (!http_target_find(exchange->target.query, "deny_status", space, &text))
        return exchange->frontend->options.site->deny_status;
    if (text.len != 3)
        return 0;
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] < '0' || text.ptr[i] > '9')
            return 0;
        status = status * 10 + (text.ptr[i] - (unsigned)'0');
    }
    return status >= HTTP_DENY_STATUS_MIN && status <= HTTP_DENY_STATUS_MAX ? status : 0;
}

/* ?domain=NAME, or the configured one. False: there is none. */
static bool find_domain(const struct http_exchange *exchange, struct http_text *arena,
                        struct span *domain)
{
    const char *configured = exchange->frontend->options.site->domain;
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
        http_exchange_refuse(exchange, 400, "no domain: use /auth?domain=NAME, or set http.domain");
    else
        return true;
    return false;
}

/* Fills frontend->call; false where the answer is complete: a rejection, or no descriptors. */
static bool describe(struct http_exchange *exchange, unsigned *deny_status)
{
    struct http_frontend *frontend = exchange->frontend;
    const struct http_config *site = frontend->options.site;
    struct http_call *call = &frontend->call;
    struct http_text arena = http_text_at(frontend->arena, sizeof(frontend->arena));
    struct http_origin_fields fields = origin_fields(site);
    struct http_parts_space space = {call->descriptors, call->entries, &arena};
    struct http_origin origin;
    struct stint_error error;
    http_call_clear(call);
    if (!read_query(exchange, &arena, deny_status))
        return false;
    if (http_origin_find(&origin, site->proxies, &fields, exchange->message, &error) < 0) {
        http_exchange_fault(exchange, &error);
        return false;
    }
    int n = http_parts_describe(site->parts, exchange->message, &origin, &space);
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

void http_auth(struct http_exchange *exchange)
{
    struct http_frontend *frontend = exchange->frontend;
    struct http_answer *answer = exchange->answer;
    const struct request *request = &frontend->call.request;
    unsigned deny_status;
    if (!describe(exchange, &deny_status))
        return;
    if (!http_exchange_ask(exchange))
        return;
    if (frontend->reply.error != REPLY_DECIDED) {
        http_exchange_reply(exchange, HTTP_TYPE_PROBLEM, http_write_reply);
        return;
    }
    if (frontend->reply.decision.outcome != STINT_ALLOW) {
        http_exchange_reply(exchange, HTTP_TYPE_PROBLEM, http_write_reply);
        answer->status = deny_status;
        return;
    }
    struct http_text out;
    answer->status = 200;
    do {
        out = http_frontend_text(frontend);
        answer->n_fields = 0;
        http_fields_write(answer, &out, frontend->options.site->styles, request, &frontend->reply);
    } while (http_frontend_grow(frontend, &out));
}
