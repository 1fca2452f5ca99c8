/* SPDX-License-Identifier: MIT */
/* Decisions and problems as JSON, and answers as bytes. */
#include "proto/http/http_reply.h"

#include "algorithm/spec.h"
#include "base/number.h"
#include "proto/http_fields.h"
#include "proto/ticket_text.h"

#include <assert.h>
#include <string.h>

#define SPEC_TEXT_SIZE 256

static const struct {
    unsigned status;
    const char *name;
} status_names[] = {
    {200, "OK"},
    {204, "No Content"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {410, "Gone"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {417, "Expectation Failed"},
    {421, "Misdirected Request"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {503, "Service Unavailable"},
    {505, "HTTP Version Not Supported"},
    {507, "Insufficient Storage"},
};

/* The phrase of RFC 9110 and its extensions. */
static const char *status_name(unsigned status)
{
    for (size_t i = 0; i < sizeof(status_names) / sizeof(status_names[0]); i++)
        if (status_names[i].status == status)
            return status_names[i].name;
    return "Error";
}

/* A peek that would be denied is reported as such, but the peek itself succeeds. */
static bool only_looks(int verb)
{
    return verb == REQUEST_PEEK || verb == REQUEST_EXPLAIN;
}

unsigned http_reply_status(const struct request *request, const struct reply *reply)
{
    static const uint16_t statuses[] = {
        [REPLY_BAD_REQUEST] = 400, [REPLY_FORBIDDEN] = 403, [REPLY_GONE] = 410,
        [REPLY_CONFLICT] = 409,    [REPLY_FULL] = 507,      [REPLY_UNAVAILABLE] = 503,
    };
    assert(reply->error <= REPLY_UNAVAILABLE);
    if (reply->error != REPLY_DECIDED)
        return statuses[reply->error];
    return reply->decision.outcome == STINT_ALLOW || only_looks(request->verb) ? 200 : 429;
}

void http_problem_write(struct http_text *out, unsigned status, const char *detail)
{
    http_text_add(out, "{\"type\":\"about:blank\",\"title\":\"");
    http_text_add_text(out, status_name(status));
    http_text_add(out, "\",\"status\":");
    http_text_u64(out, status);
    if (detail != NULL) {
        http_text_member_json(out, "detail", span_of_text(detail));
    }
    http_text_add(out, "}");
}

/* An unlimited quota has no limit to report. */
static void write_units(struct http_text *out, const char *name, uint32_t units, bool unlimited)
{
    http_text_add_text(out, name);
    if (unlimited)
        http_text_add(out, "null");
    else
        http_text_u64(out, units);
}

static void write_metrics(struct http_text *out, const struct stint_decision *decision,
                          bool unlimited)
{
    static const char *const outcomes[] = {
        [STINT_ALLOW] = "\"outcome\":\"allow\"",
        [STINT_DENY] = "\"outcome\":\"deny\"",
        [STINT_NEVER] = "\"outcome\":\"never\"",
    };
    http_text_add_text(out, outcomes[decision->outcome]);
    http_text_member_u64(out, "granted", decision->granted);
    write_units(out, ",\"limit\":", decision->limit, unlimited);
    write_units(out, ",\"remaining\":", decision->remaining, unlimited);
    http_text_member_ms(out, "retry_after_ms", decision->retry_after_ns);
    http_text_member_ms(out, "reset_after_ms", decision->reset_after_ns);
}

static void write_flag(struct http_text *out, const char *name, bool is_set)
{
    if (!is_set)
        return;
    http_text_add(out, ",\"");
    http_text_add_text(out, name);
    http_text_add(out, "\":true");
}

/* The members of EXPLAIN about the rule. */
static void write_rule(struct http_text *out, const struct rule *rule)
{
    http_text_member_json(out, "name", span_of_text(rule->name));
    http_text_member_json(out, "domain", span_of_text(rule->domain));
    http_text_member_json(out, "file", span_of_text(rule->file));
    http_text_member_u64(out, "line", rule->line);
    write_flag(out, "shadow_mode", rule->shadow_mode);
    write_flag(out, "quota_mode", rule->quota_mode);
}

static void write_quota(struct http_text *out, const struct target *status)
{
    const struct stint_quota *quota = reply_quota(status);
    char spec[SPEC_TEXT_SIZE];
    http_text_member(out, "quota");
    if (quota == NULL) {
        http_text_add(out, "null");
        return;
    }
    stint_quota_format(quota, spec, sizeof(spec));
    http_text_json(out, span_of_text(spec));
    http_text_member(out, "is_strict");
    http_text_add_text(out, stint_is_strict(quota) ? "true" : "false");
    http_text_member_u64(out, "max_in_any_window", stint_max_in_any_window(quota));
    if (status->when_full == STINT_FULL_DEFAULT)
        return;
    http_text_member_json(out, "when_full", span_of_text(spec_when_full_name(status->when_full)));
    write_flag(out, "plus_forgotten", status->when_full == STINT_FULL_EVICT);
}

static void write_explanation(struct http_text *out, const struct target *status)
{
    write_quota(out, status);
    if (status->rule != NULL)
        write_rule(out, status->rule);
    write_flag(out, "over", status->over);
    write_flag(out, "banned", status->banned);
    write_flag(out, "replaced", status->is_replaced);
    if (status->rule == NULL || !status->rule->has_shadow)
        return;
    http_text_member(out, "shadow_over");
    http_text_add_text(out, status->shadow_over ? "true" : "false");
    http_text_member_ms(out, "shadow_retry_after_ms",
                        status->shadow_over ? status->shadow_retry_after_ns : 0);
}

/* Why no rule applies: a name may be mistyped. */
static void write_unmatched(struct http_text *out, bool is_domain_unknown)
{
    http_text_add(out, ",\"unmatched\":\"");
    http_text_add_text(out, is_domain_unknown ? "domain" : "descriptor");
    http_text_add(out, "\"");
}

static void write_status(struct http_text *out, const struct request *request,
                         const struct reply *reply, const struct target *status)
{
    http_text_add(out, "{");
    write_metrics(out, &status->decision, reply_quota(status) == NULL);
    if (request->n_descriptors > 0) {
        http_text_member(out, "rule");
        if (status->rule != NULL)
            http_text_json(out, span_of_text(status->rule->path));
        else
            http_text_add(out, "null");
        if (status->is_unmatched)
            write_unmatched(out, reply->is_domain_unknown);
    }
    if (request->verb == REQUEST_EXPLAIN)
        write_explanation(out, status);
    http_text_add(out, "}");
}

/* The decision itself describes a single item. */
static void write_statuses(struct http_text *out, const struct request *request,
                           const struct reply *reply)
{
    if (reply->n_statuses == 0 ||
        (reply->n_statuses == 1 && request->n_items == 1 && request->verb != REQUEST_EXPLAIN))
        return;
    http_text_add(out, ",\"statuses\":[");
    for (size_t i = 0; i < reply->n_statuses; i++) {
        if (i > 0)
            http_text_add(out, ",");
        write_status(out, request, reply, &reply->statuses[i]);
    }
    http_text_add(out, "]");
}

static void write_ticket(struct http_text *out, const struct reply *reply)
{
    char space[TICKET_TEXT_LEN];
    http_text_add(out, ",\"ticket\":\"");
    http_text_span(out, ticket_text_of(reply, space));
    http_text_add(out, "\"");
}

static void write_decision(struct http_text *out, const struct request *request,
                           const struct reply *reply)
{
    const struct stint_decision *decision = &reply->decision;
    size_t binding = decision->binding;
    bool unlimited = binding < reply->n_statuses && reply_quota(&reply->statuses[binding]) == NULL;
    write_metrics(out, decision, unlimited);
    http_text_member_u64(out, "binding", binding);
    http_text_add(out, ",\"at\":\"");
    http_text_u64(out, reply->at_ns);
    http_text_add(out, "\"");
    if (request->verb == REQUEST_BOOK && decision->outcome == STINT_ALLOW) {
        http_text_member_ms(out, "starts_after_ms", decision->retry_after_ns);
    }
    if (reply->has_ticket)
        write_ticket(out, reply);
    write_flag(out, "replayed", reply->replayed);
    write_statuses(out, request, reply);
}

/* The names of the quotas that denied. */
static void write_violated(struct http_text *out, const struct request *request,
                           const struct reply *reply)
{
    size_t n = 0;
    for (size_t i = 0; i < reply->n_statuses; i++) {
        const struct target *status = &reply->statuses[i];
        if (status->decision.outcome == STINT_ALLOW || !http_fields_is_written(status))
            continue;
        if (n++ > 0)
            http_text_add(out, ",");
        http_text_json(out, http_fields_policy(request, reply, i));
    }
    http_text_add(out, "]");
}

void http_denial_begin(struct http_text *out, const char *detail)
{
    http_text_add(out,
                  "{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\""
                  ",\"title\":\"Quota exceeded\",\"status\":429");
    http_text_member_json(out, "detail", span_of_text(detail));
    http_text_add(out, ",\"violated-policies\":[");
}

static void write_denial(struct http_text *out, const struct request *request,
                         const struct reply *reply)
{
    http_denial_begin(out, reply->decision.outcome == STINT_NEVER
                               ? "The cost is larger than the quota ever allows."
                               : "The units are not free now; retry after retry_after_ms.");
    write_violated(out, request, reply);
    http_text_add(out, ",");
    write_decision(out, request, reply);
    http_text_add(out, "}");
}

bool http_reply_decides(int verb)
{
    return !request_verbs[verb].is_administrative && verb != REQUEST_RENEW &&
           verb != REQUEST_COUNT && verb != REQUEST_COUNT_RESET;
}

void http_reply_write(struct http_text *out, const struct request *request,
                      const struct reply *reply)
{
    if (reply->error != REPLY_DECIDED) {
        http_problem_write(out, http_reply_status(request, reply), reply->message);
    } else if (request->verb == REQUEST_COUNT) {
        http_text_add(out, "{\"count\":");
        http_text_u64(out, reply->counter.count);
        http_text_member_ms(out, "expires_after_ms", reply->counter.expires_after_ns);
        http_text_add(out, "}");
    } else if (!http_reply_decides(request->verb)) {
        http_text_add(out, "{\"ok\":true}");
    } else if (http_reply_status(request, reply) == 429) {
        write_denial(out, request, reply);
    } else {
        http_text_add(out, "{");
        write_decision(out, request, reply);
        http_text_add(out, "}");
    }
}

/* ---- Bytes ----------------------------------------------------------------------------------- */

/* The size of a head is computed before it is written: one reservation, and no checks after it. */
struct field_len {
    size_t name, value;
};

static uint8_t *put(uint8_t *at, const char *text, size_t len)
{
    memcpy(at, text, len);
    return at + len;
}

#define put_literal(at, literal) put(at, "" literal, sizeof(literal) - 1)

static uint8_t *put_text(uint8_t *at, const char *text)
{
    return put(at, text, strlen(text));
}

static uint8_t *put_field(uint8_t *at, const struct http_answer_field *field,
                          const struct field_len *len)
{
    at = put(at, field->name, len->name);
    at = put_literal(at, ": ");
    at = put(at, field->value, len->value);
    return put_literal(at, "\r\n");
}

/* An upper bound of the head's size. Measures the fields. */
static size_t head_size(const struct http_answer *answer, const struct http_framing *framing,
                        struct field_len lens[HTTP_ANSWER_FIELDS_MAX])
{
    size_t size = 256; /* status line, Date, Content-Length, Connection */
    for (size_t i = 0; i < answer->n_fields; i++) {
        const struct http_answer_field *field = &answer->fields[i];
        lens[i] = (struct field_len){strlen(field->name), strlen(field->value)};
        size += lens[i].name + lens[i].value + 4;
    }
    return size + (framing->date != NULL ? strlen(framing->date) : 0);
}

bool http_writer_answer(struct byte_queue *out, const struct http_answer *answer,
                        const struct http_framing *framing)
{
    assert(answer->status >= 200 && answer->status <= 599);
    struct field_len lens[HTTP_ANSWER_FIELDS_MAX];
    size_t size = head_size(answer, framing, lens);
    size_t body_len = framing->is_head ? 0 : answer->body.len;
    uint8_t *start = byte_queue_reserve(out, size + body_len), *at = start;
    if (start == NULL)
        return false;
    at = put_literal(at, "HTTP/1.1 ");
    at = resp_number_write(at, answer->status);
    at = put_literal(at, " ");
    at = put_text(at, status_name(answer->status));
    at = put_literal(at, "\r\n");
    if (framing->date != NULL) {
        at = put_literal(at, "Date: ");
        at = put_text(at, framing->date);
        at = put_literal(at, "\r\n");
    }
    for (size_t i = 0; i < answer->n_fields; i++)
        at = put_field(at, &answer->fields[i], &lens[i]);
    if (answer->status != 204) {
        at = put_literal(at, "Content-Length: ");
        at = resp_number_write(at, answer->body.len);
        at = put_literal(at, "\r\n");
    }
    if (framing->ends_connection)
        at = put_literal(at, "Connection: close\r\n");
    else if (framing->names_keep_alive)
        at = put_literal(at, "Connection: keep-alive\r\n");
    at = put_literal(at, "\r\n");
    assert((size_t)(at - start) <= size);
    if (body_len > 0)
        at = put(at, (const char *)answer->body.ptr, body_len);
    out->end += (size_t)(at - start);
    return true;
}

bool http_writer_continue(struct byte_queue *out)
{
    return byte_queue_append(out, span_of_text("HTTP/1.1 100 Continue\r\n\r\n"));
}
