/* SPDX-License-Identifier: MIT */
/*
 * A RateLimitRequest to a request, in one pass and without a copy. Repeated fields are joined as in
 * proto3: the last number or text counts, a message is merged with the one before it, and a list is
 * extended.
 *
 * A reply to a RateLimitResponse: first the values, then the bytes, from the last one to the first.
 */
#include "proto/grpc/rls.h"

#include "base/err.h"
#include "base/limits.h"
#include "base/ns.h"
#include "base/wide_int.h"

#include <assert.h>
#include <jansson.h>
#include <stdlib.h>

struct rls_call *rls_call_new(void)
{
    return calloc(1, sizeof(struct rls_call));
}

void rls_call_free(struct rls_call *call)
{
    if (call == NULL)
        return;
    free(call->packed);
    free(call);
}

static int refuse_message(struct stint_error *error)
{
    return err_set(error, STINT_E_SYNTAX, "expected a RateLimitRequest in protobuf");
}

/* ---- Parts of a descriptor ------------------------------------------------------------------- */

/*
 * A field of 32 bits may come as a number of 64. protobuf would drop the upper bits, and a charge
 * of 2^32 + 1 would become 1.
 */
static int too_many_units(const char *name, struct stint_error *error)
{
    return err_set(error, STINT_E_RANGE,
                   "%s: expected a whole number of 0 to " UNIT_COUNT_MAX_TEXT "; " UNITS_ADVICE,
                   name);
}

/* google.protobuf.UInt32Value and UInt64Value. A wrapper without a value leaves it as it was. */
static int read_wrapper(uint64_t *number, struct span message, struct stint_error *error)
{
    static const struct wire_message wrapper = {1, {[1] = WIRE_VARINT}};
    struct wire_value value;
    int field;
    while ((field = wire_read(&wrapper, &message, &value)) > 0)
        *number = value.varint;
    return field < 0 ? refuse_message(error) : 0;
}

static int read_entry(struct descriptor_entry *entry, struct span message,
                      struct stint_error *error)
{
    enum { KEY = 1, VALUE };
    static const struct wire_message entry_message = {2,
                                                      {[KEY] = WIRE_BYTES, [VALUE] = WIRE_BYTES}};
    struct wire_value value;
    int field;
    *entry = (struct descriptor_entry){span_of("", 0), span_of("", 0)};
    while ((field = wire_read(&entry_message, &message, &value)) > 0)
        *(field == KEY ? &entry->key : &entry->value) = value.bytes;
    return field < 0 ? refuse_message(error) : 0;
}

struct limit_override {
    bool is_told, has_multiplier;
    uint32_t requests_per_unit, unit;
    uint64_t multiplier;
};

static int read_limit(struct limit_override *limit, struct span message, struct stint_error *error)
{
    enum { REQUESTS = 1, UNIT, MULTIPLIER };
    static const struct wire_message limit_message = {
        3, {[REQUESTS] = WIRE_VARINT, [UNIT] = WIRE_VARINT, [MULTIPLIER] = WIRE_BYTES}};
    struct wire_value value;
    int field, code = 0;
    limit->is_told = true;
    while (code == 0 && (field = wire_read(&limit_message, &message, &value)) != 0) {
        if (field == REQUESTS) {
            if (value.varint > UNIT_COUNT_MAX)
                return too_many_units("limit.requests_per_unit", error);
            limit->requests_per_unit = (uint32_t)value.varint;
        } else if (field == UNIT) {
            limit->unit = (uint32_t)min_u64(value.varint, UINT32_MAX);
        } else if (field == MULTIPLIER) {
            limit->has_multiplier = true;
            code = read_wrapper(&limit->multiplier, value.bytes, error);
        } else {
            code = refuse_message(error);
        }
    }
    return code;
}

/* ---- Descriptors ----------------------------------------------------------------------------- */

/* A descriptor being read, and its destination. */
struct reading {
    struct rls_call *call;
    size_t index;
    struct descriptor *descriptor;
    struct descriptor_entry *entries;
    uint64_t hits;
    struct limit_override limit;
    struct stint_error *error;
};

static int add_entry(struct reading *reading, struct span message)
{
    struct descriptor *descriptor = reading->descriptor;
    size_t i = descriptor->n_entries;
    if (i == ENTRIES_MAX)
        return err_set(reading->error, STINT_E_RANGE,
                       "descriptors[%zu].entries: expected at most %d entries", reading->index,
                       ENTRIES_MAX);
    int code = read_entry(&reading->entries[i], message, reading->error);
    if (code == 0 && reading->entries[i].key.len == 0)
        return err_set(reading->error, STINT_E_SYNTAX,
                       "descriptors[%zu].entries[%zu]: expected a key that is not empty",
                       reading->index, i);
    descriptor->n_entries++;
    return code;
}

static int take_override(struct reading *reading)
{
    const struct limit_override *limit = &reading->limit;
    struct stint_quota *quota = &reading->call->overrides[reading->index];
    struct stint_error fault;
    uint32_t multiplier =
        limit->has_multiplier ? (uint32_t)min_u64(limit->multiplier, UINT32_MAX) : 1;
    int code = rls_override(quota, limit->requests_per_unit, limit->unit, multiplier, &fault);
    reading->descriptor->override = quota;
    return code == 0 ? 0
                     : err_set(reading->error, code, "descriptors[%zu].limit: %s", reading->index,
                               fault.message);
}

/* Checks that need the whole descriptor. */
static int finish_descriptor(struct reading *reading)
{
    struct descriptor *descriptor = reading->descriptor;
    if (descriptor->n_entries == 0)
        return err_set(reading->error, STINT_E_SYNTAX, "descriptors[%zu]: expected entries",
                       reading->index);
    if (reading->hits > UNIT_COUNT_MAX)
        return err_set(
            reading->error, STINT_E_RANGE,
            "descriptors[%zu].hits_addend: expected a whole number of 0 to " UNIT_COUNT_MAX_TEXT
            "; " UNITS_ADVICE,
            reading->index);
    descriptor->hits = (uint32_t)reading->hits;
    return reading->limit.is_told ? take_override(reading) : 0;
}

static int read_descriptor(struct rls_call *call, size_t index, struct span message,
                           struct stint_error *error)
{
    enum { ENTRIES = 1, LIMIT, HITS, IS_NEGATIVE };
    static const struct wire_message descriptor_message = {4,
                                                           {[ENTRIES] = WIRE_BYTES,
                                                            [LIMIT] = WIRE_BYTES,
                                                            [HITS] = WIRE_BYTES,
                                                            [IS_NEGATIVE] = WIRE_VARINT}};
    struct reading reading = {.call = call,
                              .index = index,
                              .descriptor = &call->descriptors[index],
                              .entries = &call->entries[index * ENTRIES_MAX],
                              .error = error};
    struct wire_value value;
    int field, code = 0;
    *reading.descriptor = (struct descriptor){.entries = reading.entries};
    while (code == 0 && (field = wire_read(&descriptor_message, &message, &value)) != 0) {
        if (field == ENTRIES) {
            code = add_entry(&reading, value.bytes);
        } else if (field == LIMIT) {
            code = read_limit(&reading.limit, value.bytes, error);
        } else if (field == HITS) {
            reading.descriptor->has_hits = true;
            code = read_wrapper(&reading.hits, value.bytes, error);
        } else if (field == IS_NEGATIVE) {
            reading.descriptor->is_refund = value.varint != 0;
        } else {
            code = refuse_message(error);
        }
    }
    return code == 0 ? finish_descriptor(&reading) : code;
}

/* ---- The whole message ----------------------------------------------------------------------- */

int rls_add_descriptor(struct rls_call *call, struct span message, struct stint_error *error)
{
    struct request *request = &call->request;
    if (request->n_descriptors == DESCRIPTORS_MAX)
        return err_set(error, STINT_E_RANGE, "descriptors: expected at most %d descriptors",
                       DESCRIPTORS_MAX);
    return read_descriptor(call, request->n_descriptors++, message, error);
}

int rls_check_whole(const struct rls_call *call, struct stint_error *error)
{
    if (call->request.domain.len == 0)
        return err_set(error, STINT_E_SYNTAX, "expected a domain that is not empty");
    if (call->request.n_descriptors == 0)
        return err_set(error, STINT_E_SYNTAX, "expected descriptors");
    return 0;
}

static int read_fields(struct rls_call *call, struct span message, struct stint_error *error)
{
    enum { DOMAIN = 1, DESCRIPTORS, HITS };
    static const struct wire_message request_message = {
        3, {[DOMAIN] = WIRE_BYTES, [DESCRIPTORS] = WIRE_BYTES, [HITS] = WIRE_VARINT}};
    struct wire_value value;
    int field, code = 0;
    while (code == 0 && (field = wire_read(&request_message, &message, &value)) != 0) {
        if (field == DOMAIN)
            call->request.domain = value.bytes;
        else if (field == HITS && value.varint > UNIT_COUNT_MAX)
            code = too_many_units("hits_addend", error);
        else if (field == HITS)
            call->hits_addend = (uint32_t)value.varint;
        else if (field < 0)
            code = refuse_message(error);
        else
            code = rls_add_descriptor(call, value.bytes, error);
    }
    return code;
}

int rls_read(struct rls_call *call, struct span message, const struct request **request,
             struct stint_error *error)
{
    call->request = (struct request){
        .verb = REQUEST_TAKE,
        .has_envoy_hits = true,
        .wants_growth = true,
        .descriptors = call->descriptors,
    };
    call->hits_addend = 0;
    *request = &call->request;
    int code = read_fields(call, message, error);
    if (code == 0)
        code = rls_check_whole(call, error);
    if (code < 0)
        return code;
    call->request.cost = call->hits_addend == 0 ? 1 : call->hits_addend;
    return 0;
}

#define PACKED_FIRST 4096
#define PACKED_KEPT 65536

/* The parts of a response beside its statuses. */
struct response {
    enum rls_code code;
    const struct http_answer_field *fields;
    size_t n_fields;
    struct span raw_body;
    const json_t *metadata; /* NULL: none */
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

static void write_status(struct wire_writer *writer, const struct target *reply_status)
{
    enum { CODE = 1, CURRENT_LIMIT, LIMIT_REMAINING, DURATION_UNTIL_RESET };
    const struct rls_status written = rls_status_of(reply_status), *status = &written;
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
static size_t most_of(const struct reply *reply, const struct response *response)
{
    size_t size = 3 * WIRE_HEAD_MAX + response->raw_body.len;
    if (response->metadata != NULL)
        size += rls_struct_max(response->metadata);
    for (size_t i = 0; i < reply->n_statuses; i++) {
        const struct rule *rule = reply->statuses[i].rule;
        size += STATUS_MAX + (rule != NULL ? strlen(rule->name) : 0);
    }
    for (size_t i = 0; i < response->n_fields; i++)
        size += 3 * WIRE_HEAD_MAX + strlen(response->fields[i].name) +
                strlen(response->fields[i].value);
    return size;
}

struct wire_writer rls_begin_response(struct rls_call *call, size_t len)
{
    bool is_large = call->packed_size > PACKED_KEPT;
    if (call->packed == NULL || len > call->packed_size || is_large) {
        free(call->packed);
        call->packed_size = len > PACKED_FIRST ? len : PACKED_FIRST;
        call->packed = malloc(call->packed_size);
    }
    if (call->packed == NULL) {
        call->packed_size = 0;
        return (struct wire_writer){NULL};
    }
    return (struct wire_writer){call->packed + call->packed_size};
}

struct span rls_end_response(const struct rls_call *call, const struct wire_writer *writer)
{
    if (writer->at == NULL)
        return (struct span){NULL, 0};
    assert(writer->at >= call->packed);
    return span_of(writer->at, (size_t)(call->packed + call->packed_size - writer->at));
}

static void write_response(struct wire_writer *writer, const struct reply *reply,
                           const struct response *response)
{
    enum { OVERALL_CODE = 1, STATUSES, HEADERS_TO_ADD, RAW_BODY = 5, DYNAMIC_METADATA };
    const uint8_t *end = writer->at;
    if (response->metadata != NULL) {
        rls_struct_write(writer, response->metadata);
        wire_write_head(writer, DYNAMIC_METADATA, end);
    }
    wire_write_bytes(writer, RAW_BODY, response->raw_body);
    for (size_t i = response->n_fields; i-- > 0;) {
        end = writer->at;
        write_field(writer, &response->fields[i]);
        wire_write_head(writer, HEADERS_TO_ADD, end);
    }
    for (size_t i = reply->n_statuses; i-- > 0;) {
        end = writer->at;
        write_status(writer, &reply->statuses[i]);
        wire_write_head(writer, STATUSES, end);
    }
    wire_write_number(writer, OVERALL_CODE, response->code);
}

struct span rls_write(struct rls_call *call, const struct rls_form *form,
                      const struct request *request, const struct reply *reply)
{
    struct response response = {.code = rls_overall_code(reply)};
    json_t *metadata = NULL;
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
        response.metadata = metadata = rls_metadata(call->hits_addend, request, reply);
        if (metadata == NULL)
            return (struct span){NULL, 0};
    }
    struct wire_writer writer = rls_begin_response(call, most_of(reply, &response));
    if (writer.at != NULL)
        write_response(&writer, reply, &response);
    json_decref(metadata);
    return rls_end_response(call, &writer);
}
