/* SPDX-License-Identifier: MIT */
/* A reply into a RateLimitResponse: message structs that stand ready, packed into one buffer. */
#include "proto/rls_parts.h"

#include "base/ns.h"
#include "rls.pb-c.h"

#include <assert.h>
#include <stdlib.h>

#define PACKED_FIRST 4096
#define PACKED_KEPT 65536

/* All that a response of one descriptor is made of. */
struct status_messages {
    Pb__RateLimitResponse__DescriptorStatus status;
    Pb__RateLimitResponse__RateLimit limit;
    Pb__UInt32Value multiplier;
    Pb__Duration reset;
};

struct rls_messages {
    Pb__RateLimitResponse response;
    Pb__RateLimitResponse__DescriptorStatus *statuses[DESCRIPTORS_MAX];
    struct status_messages parts[DESCRIPTORS_MAX];
    Pb__HeaderValue *fields[HTTP_ANSWER_FIELDS_MAX];
    Pb__HeaderValue field[HTTP_ANSWER_FIELDS_MAX];
};

struct rls_messages *rls_messages_new(void)
{
    struct rls_messages *messages = malloc(sizeof(*messages));
    if (messages == NULL)
        return NULL;
    for (size_t i = 0; i < DESCRIPTORS_MAX; i++) {
        struct status_messages *parts = &messages->parts[i];
        pb__rate_limit_response__descriptor_status__init(&parts->status);
        pb__rate_limit_response__rate_limit__init(&parts->limit);
        pb__uint32_value__init(&parts->multiplier);
        pb__duration__init(&parts->reset);
        messages->statuses[i] = &parts->status;
    }
    for (size_t i = 0; i < HTTP_ANSWER_FIELDS_MAX; i++) {
        pb__header_value__init(&messages->field[i]);
        messages->fields[i] = &messages->field[i];
    }
    return messages;
}

/* ---- Statuses -------------------------------------------------------------------------------- */

static void fill_status(struct status_messages *parts, const struct rls_status *told)
{
    parts->status.code = (Pb__RateLimitResponse__Code)told->code;
    parts->status.limit_remaining = told->remaining;
    parts->status.current_limit = told->has_limit ? &parts->limit : NULL;
    parts->status.duration_until_reset = told->has_reset ? &parts->reset : NULL;
    if (told->has_limit) {
        const struct rls_limit *limit = &told->limit;
        parts->limit.requests_per_unit = limit->requests_per_unit;
        parts->limit.unit = (Pb__RateLimitResponse__RateLimit__Unit)limit->unit;
        parts->limit.name = rls_bytes(span_of_text(limit->name));
        parts->multiplier.value = limit->unit_multiplier;
        parts->limit.unit_multiplier = limit->unit_multiplier == 1 ? NULL : &parts->multiplier;
    }
    if (told->has_reset) {
        parts->reset.seconds = (int64_t)(told->reset_after_ns / NS_PER_S);
        parts->reset.nanos = (int32_t)(told->reset_after_ns % NS_PER_S);
    }
}

/* ---- Header fields --------------------------------------------------------------------------- */

/* Those of draft-03 may have other names. */
static const char *name_of(const struct rls_form *form, const char *name)
{
    const struct {
        const char *name, *other;
    } others[] = {
        {"RateLimit-Limit", form->limit_field},
        {"RateLimit-Remaining", form->remaining_field},
        {"RateLimit-Reset", form->reset_field},
    };
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (others[i].other != NULL && strcmp(name, others[i].name) == 0)
            return others[i].other;
    return name;
}

/* As many as there are; the answer is one that refuses, so that Retry-After is among them. */
static size_t fill_fields(struct rls_call *call, const struct rls_form *form,
                          const struct request *request, const struct reply *reply)
{
    struct http_answer answer = {.status = rls_overall_code(reply) == RLS_OVER_LIMIT ? 429 : 200};
    struct http_text text = http_text_at(call->headers, sizeof(call->headers));
    http_fields_write(&answer, &text, form->styles, request, reply);
    assert(!text.is_full);
    for (size_t i = 0; i < answer.n_fields; i++) {
        Pb__HeaderValue *field = &call->messages->field[i];
        field->key = rls_bytes(span_of_text(name_of(form, answer.fields[i].name)));
        field->value = rls_bytes(span_of_text(answer.fields[i].value));
    }
    return answer.n_fields;
}

/* ---- The whole ------------------------------------------------------------------------------- */

#define FIELD_MAX 6 /* bytes of a tag and a length, or of a tag and 32 bits */
/* … of a status without its limit's name: twelve fields, two of which have 64 bits. */
#define STATUS_MAX (12 * FIELD_MAX + 2 * 5)

/*
 * Bytes that a response has at most. protobuf-c would tell them exactly, by going through all of it
 * once more, which is a sixth of what a response costs.
 */
static size_t most_of(const Pb__RateLimitResponse *response)
{
    size_t size = 3 * FIELD_MAX + response->raw_body.len;
    for (size_t i = 0; i < response->n_statuses; i++) {
        const Pb__RateLimitResponse__DescriptorStatus *status = response->statuses[i];
        size += STATUS_MAX + (status->current_limit != NULL ? status->current_limit->name.len : 0);
    }
    for (size_t i = 0; i < response->n_response_headers_to_add; i++) {
        const Pb__HeaderValue *field = response->response_headers_to_add[i];
        size += 3 * FIELD_MAX + field->key.len + field->value.len;
    }
    if (response->dynamic_metadata != NULL)
        size += pb__struct__get_packed_size(response->dynamic_metadata);
    return size;
}

static bool make_room(struct rls_call *call, size_t len)
{
    bool is_large = call->packed_size > PACKED_KEPT;
    if (call->packed != NULL && len <= call->packed_size && !is_large)
        return true;
    free(call->packed);
    call->packed_size = len > PACKED_FIRST ? len : PACKED_FIRST;
    call->packed = malloc(call->packed_size);
    if (call->packed == NULL)
        call->packed_size = 0;
    return call->packed != NULL;
}

struct span rls_write(struct rls_call *call, const struct rls_form *form,
                      const struct request *request, const struct reply *reply)
{
    struct rls_messages *messages = call->messages;
    Pb__RateLimitResponse *response = &messages->response;
    pb__rate_limit_response__init(response);
    response->overall_code = (Pb__RateLimitResponse__Code)rls_overall_code(reply);
    response->n_statuses = reply->n_statuses;
    response->statuses = messages->statuses;
    for (size_t i = 0; i < reply->n_statuses; i++) {
        const struct rls_status told = rls_status_of(&reply->statuses[i]);
        fill_status(&messages->parts[i], &told);
    }
    if (form->styles != 0) {
        response->n_response_headers_to_add = fill_fields(call, form, request, reply);
        response->response_headers_to_add = messages->fields;
    }
    if (response->overall_code == PB__RATE_LIMIT_RESPONSE__CODE__OVER_LIMIT)
        response->raw_body = rls_bytes(form->denied_body);
    if (form->has_metadata) {
        response->dynamic_metadata = rls_metadata(call, request, reply);
        if (response->dynamic_metadata == NULL)
            return (struct span){NULL, 0};
    }
    size_t most = most_of(response);
    if (!make_room(call, most))
        return (struct span){NULL, 0};
    size_t len = pb__rate_limit_response__pack(response, call->packed);
    assert(len <= most);
    (void)most;
    return span_of(call->packed, len);
}
