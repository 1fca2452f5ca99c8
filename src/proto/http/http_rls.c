/* SPDX-License-Identifier: MIT */
/* RateLimitRequest and RateLimitResponse in proto3's JSON. */
#include "proto/http/http_call.h"

#include "base/limits.h"
#include "base/ns.h"
#include "struct.pb-c.h"

#include <stddef.h>
#include <stdio.h>

/* A descriptor that is being read. */
struct reading {
    struct http_call *call;
    struct descriptor *descriptor;
};

/* Its RateLimitOverride. */
struct limit {
    uint32_t requests_per_unit, unit_multiplier;
    int unit; /* enum rule_unit */
};

/* ---- Reading --------------------------------------------------------------------------------- */

/* proto3's JSON also permits strings as numbers, and null for a default. */
static int read_u32(void *to, const struct http_json_node *value, const struct http_place *place,
                    struct stint_error *error)
{
    uint32_t *number = to;
    int64_t read = 0;
    if (value->kind == HTTP_JSON_NULL)
        return 0;
    if (value->kind != HTTP_JSON_STRING)
        return http_json_u32(value, place, number, error);
    if (!http_json_number(span_of(value->text, value->count), &read) || read < 0)
        return http_json_fault(place, "expected a whole number of 0 to " UNIT_COUNT_MAX_TEXT,
                               error);
    if (read > UNIT_COUNT_MAX)
        return http_json_fault(
            place, "expected a whole number of 0 to " UNIT_COUNT_MAX_TEXT "; " UNITS_ADVICE, error);
    *number = (uint32_t)read;
    return 0;
}

static int read_text(void *text, const struct http_json_node *value, const struct http_place *place,
                     struct stint_error *error)
{
    return value->kind == HTTP_JSON_NULL ? 0 : http_json_text(value, place, text, error);
}

static const struct http_member entry_members[] = {
    {"key", NULL, read_text, offsetof(struct descriptor_entry, key)},
    {"value", NULL, read_text, offsetof(struct descriptor_entry, value)},
};

static int read_entries(void *state, const struct http_json_node *value,
                        const struct http_place *place, struct stint_error *error)
{
    struct reading *reading = state;
    uint32_t seen;
    if (value->kind == HTTP_JSON_NULL)
        return 0;
    int code = http_json_array(value, place, ENTRIES_MAX, "entries", error);
    if (code < 0)
        return code;
    const struct http_json_node *element = http_json_first(value);
    for (size_t i = 0; i < value->count; i++, element = http_json_after(element)) {
        struct http_place inner = {place, NULL, i};
        struct descriptor_entry *entry =
            http_call_entry(reading->call, reading->descriptor, &inner, error);
        if (entry == NULL)
            return STINT_E_SYNTAX;
        code = http_json_members(element, &inner, entry_members, 2, 3, &seen, entry, error);
        if (code == 0 && entry->key.len == 0)
            code = http_json_fault(&inner, "expected a key that is not empty", error);
        if (code < 0)
            return code;
    }
    return 0;
}

/* RateLimitUnit, which has no WEEK, by name or number. */
static int read_unit(void *state, const struct http_json_node *value,
                     const struct http_place *place, struct stint_error *error)
{
    int *read = state;
    if (value->kind == HTTP_JSON_INTEGER && value->integer > RULE_UNIT_NONE &&
        value->integer <= RULE_YEAR) {
        *read = (int)value->integer;
        return 0;
    }
    for (int unit = RULE_SECOND; unit <= RULE_YEAR && value->kind == HTTP_JSON_STRING; unit++) {
        if (span_equals(span_of(value->text, value->count), rls_unit_names[unit])) {
            *read = unit;
            return 0;
        }
    }
    return http_json_fault(place, "expected SECOND, MINUTE, HOUR, DAY, MONTH or YEAR", error);
}

static const struct http_member limit_members[] = {
    {"requestsPerUnit", "requests_per_unit", read_u32, offsetof(struct limit, requests_per_unit)},
    {"unit", NULL, read_unit, offsetof(struct limit, unit)},
    {"unitMultiplier", "unit_multiplier", read_u32, offsetof(struct limit, unit_multiplier)},
};

static int read_limit(void *state, const struct http_json_node *value,
                      const struct http_place *place, struct stint_error *error)
{
    struct reading *reading = state;
    struct http_call *call = reading->call;
    struct stint_quota *quota = &call->overrides[reading->descriptor - call->descriptors];
    struct stint_error fault;
    uint32_t seen;
    if (value->kind == HTTP_JSON_NULL)
        return 0;
    struct limit limit = {.unit_multiplier = 1, .unit = RULE_UNIT_NONE};
    int code = http_json_members(value, place, limit_members, 3, 7, &seen, &limit, error);
    if (code < 0)
        return code;
    if (rls_override(quota, limit.requests_per_unit, limit.unit, limit.unit_multiplier, &fault) < 0)
        return http_json_fault(place, fault.message, error);
    reading->descriptor->override = quota;
    return 0;
}

/* google.protobuf.UInt64Value: optional, and 0 checks without taking. */
static int read_descriptor_hits(void *state, const struct http_json_node *value,
                                const struct http_place *place, struct stint_error *error)
{
    struct reading *reading = state;
    reading->descriptor->has_hits = value->kind != HTTP_JSON_NULL;
    return read_u32(&reading->descriptor->hits, value, place, error);
}

static int read_is_negative(void *state, const struct http_json_node *value,
                            const struct http_place *place, struct stint_error *error)
{
    struct reading *reading = state;
    if (value->kind == HTTP_JSON_NULL)
        return 0;
    return http_json_bool(value, place, &reading->descriptor->is_refund, error);
}

static const struct http_member descriptor_members[] = {
    {"entries", NULL, read_entries, 0},
    {"limit", NULL, read_limit, 0},
    {"hitsAddend", "hits_addend", read_descriptor_hits, 0},
    {"isNegativeHits", "is_negative_hits", read_is_negative, 0},
};

static int read_descriptors(void *state, const struct http_json_node *value,
                            const struct http_place *place, struct stint_error *error)
{
    struct http_call *call = state;
    uint32_t seen;
    int code = http_json_array(value, place, DESCRIPTORS_MAX, "descriptors", error);
    if (code < 0)
        return code;
    const struct http_json_node *element = http_json_first(value);
    for (size_t i = 0; i < value->count; i++, element = http_json_after(element)) {
        struct http_place inner = {place, NULL, i};
        struct reading reading = {call, &call->descriptors[i]};
        *reading.descriptor = (struct descriptor){0};
        code =
            http_json_members(element, &inner, descriptor_members, 4, 15, &seen, &reading, error);
        if (code == 0 && reading.descriptor->n_entries == 0)
            code = http_json_fault(&inner, "expected entries", error);
        if (code < 0)
            return code;
    }
    call->request.descriptors = call->descriptors;
    call->request.n_descriptors = value->count;
    return 0;
}

/* Of the request: absent and 0 mean 1. */
static int read_hits(void *state, const struct http_json_node *value,
                     const struct http_place *place, struct stint_error *error)
{
    struct http_call *call = state;
    uint32_t hits = 0;
    int code = read_u32(&hits, value, place, error);
    call->hits_addend = hits;
    call->request.cost = hits == 0 ? 1 : hits;
    return code;
}

static const struct http_member request_members[] = {
    {"domain", NULL, read_text, offsetof(struct http_call, request.domain)},
    {"descriptors", NULL, read_descriptors, 0},
    {"hitsAddend", "hits_addend", read_hits, 0},
};

int http_rls_read(struct http_call *call, struct span body, struct stint_error *error)
{
    uint32_t seen;
    http_call_clear(call);
    call->hits_addend = 0;
    call->request.verb = REQUEST_TAKE;
    call->request.has_envoy_hits = true;
    call->request.wants_growth = true; /* durationUntilReset */
    int code = http_json_parse(&call->json, body, error);
    if (code < 0)
        return code;
    code = http_json_members(call->json.nodes, NULL, request_members, 3, 7, &seen, call, error);
    if (code == 0 && call->request.domain.len == 0)
        return err_set(error, STINT_E_SYNTAX, "expected a domain that is not empty");
    if (code == 0 && call->request.n_descriptors == 0)
        return err_set(error, STINT_E_SYNTAX, "expected descriptors");
    return code;
}

/* ---- Writing --------------------------------------------------------------------------------- */

/* proto3 leaves out values that are 0 or empty. */
static void write_current_limit(struct http_text *out, const struct rls_limit *limit)
{
    const char *before = "";
    http_text_add(out, ",\"currentLimit\":{");
    if (limit->requests_per_unit > 0) {
        http_text_add(out, "\"requestsPerUnit\":");
        http_text_u64(out, limit->requests_per_unit);
        before = ",";
    }
    if (limit->unit != RULE_UNIT_NONE) {
        http_text_add_text(out, before);
        http_text_add(out, "\"unit\":\"");
        http_text_add_text(out, rls_unit_names[limit->unit]);
        http_text_add(out, "\"");
        before = ",";
    }
    if (limit->name[0] != '\0') {
        http_text_add_text(out, before);
        http_text_add(out, "\"name\":");
        http_text_json(out, span_of_text(limit->name));
        before = ",";
    }
    if (limit->unit_multiplier != 1) {
        http_text_add_text(out, before);
        http_text_add(out, "\"unitMultiplier\":");
        http_text_u64(out, limit->unit_multiplier);
    }
    http_text_add(out, "}");
}

/* A google.protobuf.Duration: 0, 3, 6 or 9 decimals, as few as are exact. */
static void write_duration(struct http_text *out, uint64_t ns)
{
    char decimals[10] = ".";
    size_t len = ns % NS_PER_S == 0 ? 0 : ns % NS_PER_MS == 0 ? 4 : ns % NS_PER_US == 0 ? 7 : 10;
    uint64_t rest = ns % NS_PER_S;
    for (size_t i = 9; i > 0; i--, rest /= 10)
        decimals[i] = (char)('0' + rest % 10);
    http_text_add(out, ",\"durationUntilReset\":\"");
    http_text_u64(out, ns / NS_PER_S);
    http_text_bytes(out, decimals, len);
    http_text_add(out, "s\"");
}

static void write_status(struct http_text *out, const struct reply_status *status)
{
    const struct rls_status written = rls_status_of(status);
    http_text_add(out, "{\"code\":\"");
    http_text_add_text(out, rls_code_name(written.code));
    http_text_add(out, "\"");
    if (written.has_limit)
        write_current_limit(out, &written.limit);
    if (written.remaining > 0) {
        http_text_member_u64(out, "limitRemaining", written.remaining);
    }
    if (written.has_reset)
        write_duration(out, written.reset_after_ns);
    http_text_add(out, "}");
}

/* ---- Header fields, body and metadata -------------------------------------------------------- */

static void write_fields(struct http_text *out, const struct rls_form *form,
                         const struct request *request, const struct reply *reply)
{
    char values[RLS_HEADERS_SIZE];
    struct http_text text = http_text_at(values, sizeof(values));
    struct http_answer answer; /* large: only the used fields are written */
    rls_fields(form, request, reply, &text, &answer);
    for (size_t i = 0; i < answer.n_fields; i++) {
        http_text_add_text(out, i == 0 ? ",\"responseHeadersToAdd\":[" : ",");
        http_text_add(out, "{\"key\":");
        http_text_json(out, span_of_text(answer.fields[i].name));
        http_text_member_json(out, "value", span_of_text(answer.fields[i].value));
        http_text_add(out, "}");
    }
    if (answer.n_fields > 0)
        http_text_add(out, "]");
}

static void write_base64(struct http_text *out, struct span bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < bytes.len; i += 3) {
        size_t n = bytes.len - i < 3 ? bytes.len - i : 3;
        uint32_t word = (uint32_t)bytes.ptr[i] << 16;
        word |= n > 1 ? (uint32_t)bytes.ptr[i + 1] << 8 : 0;
        word |= n > 2 ? bytes.ptr[i + 2] : 0;
        char four[] = {digits[word >> 18], digits[word >> 12 & 63],
                       n > 1 ? digits[word >> 6 & 63] : '=', n > 2 ? digits[word & 63] : '='};
        http_text_bytes(out, four, sizeof(four));
    }
}

static void write_struct(struct http_text *out, const Pb__Struct *object);

static void write_double(struct http_text *out, double number)
{
    char text[32];
    int len = snprintf(text, sizeof(text), "%.17g", number);
    http_text_bytes(out, text, (size_t)len);
}

/* The largest depth in the rules' files. */
static void write_value(struct http_text *out, const Pb__Value *value)
{
    switch (value->kind_case) {
    case PB__VALUE__KIND_STRUCT_VALUE:
        write_struct(out, value->struct_value);
        break;
    case PB__VALUE__KIND_LIST_VALUE:
        http_text_add(out, "[");
        for (size_t i = 0; i < value->list_value->n_values; i++) {
            http_text_add_text(out, i == 0 ? "" : ",");
            write_value(out, value->list_value->values[i]);
        }
        http_text_add(out, "]");
        break;
    case PB__VALUE__KIND_STRING_VALUE:
        http_text_json(out, span_of(value->string_value.data, value->string_value.len));
        break;
    case PB__VALUE__KIND_NUMBER_VALUE:
        write_double(out, value->number_value);
        break;
    case PB__VALUE__KIND_BOOL_VALUE:
        http_text_add_text(out, value->bool_value ? "true" : "false");
        break;
    default:
        http_text_add(out, "null");
    }
}

static void write_struct(struct http_text *out, const Pb__Struct *object)
{
    http_text_add(out, "{");
    for (size_t i = 0; i < object->n_fields; i++) {
        const Pb__Struct__FieldsEntry *field = object->fields[i];
        http_text_add_text(out, i == 0 ? "" : ",");
        http_text_json(out, span_of(field->key.data, field->key.len));
        http_text_add(out, ":");
        write_value(out, field->value);
    }
    http_text_add(out, "}");
}

static void write_metadata(struct http_text *out, struct http_call *call, const struct reply *reply)
{
    const Pb__Struct *metadata =
        rls_metadata(&call->metadata, call->hits_addend, &call->request, reply);
    http_text_member(out, "dynamicMetadata");
    if (metadata != NULL)
        write_struct(out, metadata);
    else
        out->is_full = true; /* no memory: the answer fails */
}

void http_rls_write(struct http_text *out, struct http_call *call, const struct rls_form *form,
                    const struct reply *reply)
{
    enum rls_code code = rls_overall_code(reply);
    http_text_add(out, "{\"overallCode\":\"");
    http_text_add_text(out, rls_code_name(code));
    http_text_add(out, "\",\"statuses\":[");
    for (size_t i = 0; i < reply->n_statuses; i++) {
        if (i > 0)
            http_text_add(out, ",");
        write_status(out, &reply->statuses[i]);
    }
    http_text_add(out, "]");
    if (form->styles != 0)
        write_fields(out, form, &call->request, reply);
    if (code == RLS_OVER_LIMIT && form->denied_body.len > 0) {
        http_text_add(out, ",\"rawBody\":\"");
        write_base64(out, form->denied_body);
        http_text_add(out, "\"");
    }
    if (form->has_metadata)
        write_metadata(out, call, reply);
    http_text_add(out, "}");
}
