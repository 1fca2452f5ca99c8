/* SPDX-License-Identifier: MIT */
/* /auth: a proxy asks whether the request it has may pass. Status and fields are all it looks at.
 */
#include "conn/http_door.h"

bool http_auth_is_trusted(const struct http_exchange *exchange)
{
    return http_proxies_trust(exchange->door->options.site->proxies, exchange->message->peer);
}

/* ?domain=NAME, or what is configured. False: neither is there. */
static bool find_domain(struct http_exchange *exchange, struct http_text *arena,
                        struct span *domain)
{
    struct span query = exchange->target.query;
    const char *configured = exchange->door->options.site->domain;
    if (query.len > 0 && query.len < arena->size - arena->len) {
        uint8_t *room = (uint8_t *)arena->text + arena->len;
        if (http_target_find(query, "domain", room, domain)) {
            arena->len += (size_t)(domain->ptr - room) + domain->len;
            return domain->len > 0;
        }
    }
    if (configured == NULL)
        return false;
    *domain = span_of_text(configured);
    return true;
}

/* Fills door->call; false where the answer is a refusal, or there is nothing to ask. */
static bool describe(struct http_exchange *exchange)
{
    struct http_door *door = exchange->door;
    const struct http_site *site = door->options.site;
    struct http_call *call = &door->call;
    struct http_text arena = http_text_at(door->arena, sizeof(door->arena));
    struct http_origin_fields fields = {site->address_field, site->uri_field, site->method_field};
    struct http_parts_room room = {call->descriptors, call->entries, &arena};
    struct http_origin origin;
    struct stint_error error;
    http_call_clear(call);
    if (!find_domain(exchange, &arena, &call->request.domain)) {
        http_exchange_refuse(exchange, 400, "no domain: ask /auth?domain=NAME, or set http.domain");
        return false;
    }
    if (http_origin_find(&origin, site->proxies, &fields, exchange->message, &error) < 0) {
        http_exchange_fault(exchange, &error);
        return false;
    }
    int n = http_parts_describe(site->parts, exchange->message, &origin, &room);
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
    struct http_door *door = exchange->door;
    struct http_answer *answer = exchange->answer;
    const struct request *request = &door->call.request;
    if (!describe(exchange))
        return;
    (void)http_exchange_ask(exchange); /* it has no way to wait */
    if (door->reply.error != REPLY_DECIDED) {
        http_exchange_reply(exchange, HTTP_TYPE_PROBLEM, http_reply_write);
        return;
    }
    if (door->reply.decision.outcome != STINT_ALLOW) {
        http_exchange_reply(exchange, HTTP_TYPE_PROBLEM, http_reply_write);
        answer->status = door->options.site->deny_status;
        return;
    }
    struct http_text out;
    answer->status = 200;
    do {
        out = http_door_text(door);
        answer->n_fields = 0;
        http_fields_write(answer, &out, door->options.site->styles, request, &door->reply);
    } while (http_door_grow(door, &out));
}
