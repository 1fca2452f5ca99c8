/* SPDX-License-Identifier: MIT */
/*
 * A reply to a RateLimitResponse: first the values, then the bytes, from the last one to the first.
 * Only dynamic_metadata is packed by protobuf-c.
 */
#include "proto/grpc/rls_parts.h"

#include "base/ns.h"
#include "proto/grpc/wire_writer.h"
#include "struct.pb-c.h"

#include <assert.h>
#include <stdlib.h>

#define PACKED_FIRST 4096
#define PACKED_KEPT 65536

/* The parts of a response beside its statuses. */
struct response {
    enum rls_code code;
    size_t n_statuses;
    struct http_answer_field *fields;
    size_t n_fields;
    struct span raw_body;
    const Pb__Struct *metadata; /* NULL: none */
    size_t metadata_len;
};

/* ---- Statuses -------------------------------------------------------------------------------- */

/* … without its limit's name: twelve fields, two of which have 64 bits. */
#define STATUS_MAX (12 * WIRE_HEAD_MAX + 2 * (WIRE_VARINT_MAX - 5))

static void write_limit(struct wire_writer *writer, const struct rls_limit *limit)
{
    enum { REQUESTS = 1, UNIT, NAME, MULTIPLIER };
    if (limit->unit_multiplier != 1) {
        const uint8_t *end = writer->at;
        wire_write_number(writer, 1, limit->unit_multiplier);
        wire_write_head(writer, MULTIPLIER, end);
    }
    wire_write_bytes(writer, NAME, span_of_text(limit->name));
    wire_write_number(writer, UNIT, (uint64_t)limit->unit);
    wire_write_number(writer, REQUESTS, limit->requests_per_unit);
}

/* A google.protobuf.Duration. */
static void write_duration(struct wire_writer *writer, uint64_t ns)
{
    enum { SECONDS = 1, NANOS };
    wire_write_number(writer, NANOS, ns % NS_PER_S);
    wire_write_number(writer, SECONDS, ns / NS_PER_S);
}

static void write_status(struct wire_writer *writer, const struct rls_status *status)
{
    enum { CODE = 1, CURRENT_LIMIT, LIMIT_REMAINING, DURATION_UNTIL_RESET };
    const uint8_t *end = writer->at;
    if (status->has_reset) {
        write_duration(writer, status->reset_after_ns);
        wire_write_head(writer, DURATION_UNTIL_RESET, end);
    }
    wire_write_number(writer, LIMIT_REMAINING, status->remaining);
    if (status->has_limit) {
        end = writer->at;
        write_limit(writer, &status->limit);
        wire_write_head(writer, CURRENT_LIMIT, end);
    }
    wire_write_number(writer, CODE, status->code);
}

/* ---- Header fields --------------------------------------------------------------------------- */

/* The fields of draft-03 may have other names. */
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

/* The answer has a status that rejects, so that Retry-After is among its fields. */
void rls_fields(const struct rls_form *form, const struct request *request,
                const struct reply *reply, struct http_text *text, struct http_answer *answer)
{
    answer->status = rls_overall_code(reply) == RLS_OVER_LIMIT ? 429 : 200;
    answer->n_fields = 0;
    http_fields_write(answer, text, form->styles, request, reply);
    assert(!text->is_full);
    for (size_t i = 0; i < answer->n_fields; i++)
        answer->fields[i].name = name_of(form, answer->fields[i].name);
}

static void write_field(struct wire_writer *writer, const struct http_answer_field *field)
{
    enum { KEY = 1, VALUE };
    wire_write_bytes(writer, VALUE, span_of_text(field->value));
    wire_write_bytes(writer, KEY, span_of_text(field->name));
}

/* ---- The whole message ----------------------------------------------------------------------- */

/* An upper bound of a response's size in bytes. */
static size_t most_of(const struct rls_call *call, const struct response *response)
{
    size_t size = 3 * WIRE_HEAD_MAX + response->raw_body.len + response->metadata_len;
    for (size_t i = 0; i < response->n_statuses; i++) {
        const struct rls_status *status = &call->statuses[i];
        size += STATUS_MAX + (status->has_limit ? strlen(status->limit.name) : 0);
    }
    for (size_t i = 0; i < response->n_fields; i++)
        size += 3 * WIRE_HEAD_MAX + strlen(response->fields[i].name) +
                strlen(response->fields[i].value);
    return size;
}

bool rls_make_space(struct rls_call *call, size_t len)
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

static void write_response(struct wire_writer *writer, const struct rls_call *call,
                           const struct response *response)
{
    enum { OVERALL_CODE = 1, STATUSES, HEADERS_TO_ADD, RAW_BODY = 5, DYNAMIC_METADATA };
    const uint8_t *end = writer->at;
    if (response->metadata != NULL) {
        writer->at -= response->metadata_len;
        pb__struct__pack(response->metadata, writer->at);
        wire_write_head(writer, DYNAMIC_METADATA, end);
    }
    wire_write_bytes(writer, RAW_BODY, response->raw_body);
    for (size_t i = response->n_fields; i-- > 0;) {
        end = writer->at;
        write_field(writer, &response->fields[i]);
        wire_write_head(writer, HEADERS_TO_ADD, end);
    }
    for (size_t i = response->n_statuses; i-- > 0;) {
        end = writer->at;
        write_status(writer, &call->statuses[i]);
        wire_write_head(writer, STATUSES, end);
    }
    wire_write_number(writer, OVERALL_CODE, response->code);
}

struct span rls_write(struct rls_call *call, const struct rls_form *form,
                      const struct request *request, const struct reply *reply)
{
    struct response response = {.code = rls_overall_code(reply), .n_statuses = reply->n_statuses};
    for (size_t i = 0; i < reply->n_statuses; i++)
        call->statuses[i] = rls_status_of(&reply->statuses[i]);
    struct http_answer answer; /* large: only the used fields are written */
    if (form->styles != 0) {
        struct http_text text = http_text_at(call->headers, sizeof(call->headers));
        rls_fields(form, request, reply, &text, &answer);
        response.fields = answer.fields;
        response.n_fields = answer.n_fields;
    }
    if (response.code == RLS_OVER_LIMIT)
        response.raw_body = form->denied_body;
    if (form->has_metadata) {
        response.metadata = rls_metadata(&call->told, call->hits_addend, request, reply);
        if (response.metadata == NULL)
            return (struct span){NULL, 0};
        response.metadata_len = pb__struct__get_packed_size(response.metadata);
    }
    if (!rls_make_space(call, most_of(call, &response)))
        return (struct span){NULL, 0};
    uint8_t *end = call->packed + call->packed_size;
    struct wire_writer writer = {end};
    write_response(&writer, call, &response);
    assert(writer.at >= call->packed);
    return span_of(writer.at, (size_t)(end - writer.at));
}
