/* SPDX-License-Identifier: MIT */
/* /v1/clock: the time of decisions, which a POST moves under a virtual clock. */
#include "frontend/http/http_frontend.h"

#include "algorithm/spec.h"

enum { SET = 1 << 0, ADVANCE = 1 << 1 };

struct clock_body {
    uint64_t set_ns, advance_ns;
};

static int read_set(void *state, const struct http_json_node *value, const struct http_place *place,
                    struct stint_error *error)
{
    struct clock_body *body = state;
    if (http_json_stamp(value, place, STINT_NOW_MAX, &body->set_ns, error) == 0)
        return 0;
    return http_json_fault(place,
                           "expected nanoseconds up to 576460752303423487 as a string of digits, "
                           "\"600000000000\"",
                           error);
}

static int read_advance(void *state, const struct http_json_node *value,
                        const struct http_place *place, struct stint_error *error)
{
    struct clock_body *body = state;
    struct span text = {0};
    int code = http_json_text(value, place, &text, error);
    if (code == 0 && spec_parse_duration(text, &body->advance_ns) != 0)
        return http_json_fault(place, "expected a time like \"10m\" or \"1h30m\"", error);
    return code;
}

/* In the order of the bits. */
static const struct http_member clock_members[] = {
    {"set", NULL, read_set},
    {"advance", NULL, read_advance},
};

static int read_body(struct http_exchange *exchange, struct clock_body *body, uint32_t *seen,
                     struct stint_error *error)
{
    struct http_json *json = &exchange->frontend->call.json;
    int code = http_json_parse(json, exchange->message->body, error);
    if (code == 0)
        code = http_json_members(&json->nodes[0], NULL, clock_members,
                                 sizeof(clock_members) / sizeof(clock_members[0]), SET | ADVANCE,
                                 seen, body, error);
    if (code == 0 && *seen != SET && *seen != ADVANCE)
        return err_set(error, STINT_E_SYNTAX,
                       "expected either \"set\", a time in ns, or \"advance\", like \"10m\"");
    return code;
}

static void answer_now(struct http_exchange *exchange)
{
    const struct server_clock *clock = exchange->frontend->clock;
    struct http_text out = http_frontend_text(exchange->frontend);
    http_text_add(&out, "{\"clock\":\"");
    http_text_add_text(&out, clock->is_virtual ? "virtual" : "real");
    http_text_add(&out, "\",\"now\":\"");
    http_text_u64(&out, server_clock_now(clock, exchange->io_now_ns));
    http_text_add(&out, "\"}");
    exchange->answer->status = 200;
    exchange->answer->body = span_of(out.text, out.len);
    http_answer_add(exchange->answer, "Content-Type", HTTP_TYPE_JSON);
}

void http_clock(struct http_exchange *exchange)
{
    answer_now(exchange);
}

void http_clock_move(struct http_exchange *exchange)
{
    struct server_clock *clock = exchange->frontend->clock;
    struct clock_body body = {0};
    struct stint_error error;
    uint32_t seen = 0;
    if (read_body(exchange, &body, &seen, &error) != 0) {
        http_exchange_fault(exchange, &error);
        return;
    }
    int code = seen == SET ? server_clock_set(clock, body.set_ns, &error)
                           : server_clock_advance(clock, body.advance_ns, &error);
    if (code != 0)
        http_exchange_refuse(exchange, code == STINT_E_MISMATCH ? 409 : 400, error.message);
    else
        answer_now(exchange);
}
