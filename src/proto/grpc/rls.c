/* SPDX-License-Identifier: MIT */
/*
 * A RateLimitRequest to a request, in one pass and without a copy. Repeated fields are joined as in
 * proto3: the last number or text counts, a message is merged with the one before it, and a list is
 * extended.
 *
 * A reply to a RateLimitResponse: first the values, then the bytes, from the last one to the first.
 *
 * dynamic_metadata, in the format of envoyproxy/ratelimit, is JSON: the request, and the metadata
 * of the rules. /json sends it as it is, gRPC as a google.protobuf.Struct.
 */
#include "proto/grpc/rls.h"

#include "base/err.h"
#include "base/limits.h"
#include "base/ns.h"
#include "base/utf8.h"
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
int rls_read_units(uint32_t *units, const char *name, uint64_t number, struct stint_error *error)
{
    if (number > UNIT_COUNT_MAX)
        return err_set(error, STINT_E_RANGE,
                       "%s: expected a whole number of 0 to " UNIT_COUNT_MAX_TEXT " (" UNITS_ADVICE
                       "), not %llu",
                       name, (unsigned long long)number);
    *units = (uint32_t)number;
    return 0;
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
        *(field == KEY ? &entry->key : &entry->value) = span_copy(&value.bytes);
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
            code = rls_read_units(&limit->requests_per_unit, "limit.requests_per_unit",
                                  value.varint, error);
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
    uint64_t multiplier = limit->has_multiplier ? limit->multiplier : 1;
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
    struct stint_error fault;
    int code = rls_read_units(&descriptor->hits, "hits_addend", reading->hits, &fault);
    if (code != 0)
        return err_set(reading->error, code, "descriptors[%zu].%s", reading->index, fault.message);
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
        else if (field == HITS)
            code = rls_read_units(&call->hits_addend, "hits_addend", value.varint, error);
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

/* ---- Limits ---------------------------------------------------------------------------------- */

const char *const rls_unit_names[RULE_WEEK + 1] = {
    [RULE_UNIT_NONE] = "UNKNOWN", [RULE_SECOND] = "SECOND", [RULE_MINUTE] = "MINUTE",
    [RULE_HOUR] = "HOUR",         [RULE_DAY] = "DAY",       [RULE_MONTH] = "MONTH",
    [RULE_YEAR] = "YEAR",         [RULE_WEEK] = "WEEK",
};

static void tell_period(struct rls_limit *limit, uint64_t period_ns)
{
    static const int longest_first[] = {RULE_YEAR, RULE_MONTH,  RULE_WEEK,  RULE_DAY,
                                        RULE_HOUR, RULE_MINUTE, RULE_SECOND};
    for (size_t i = 0; i < sizeof(longest_first) / sizeof(longest_first[0]); i++) {
        uint64_t length_ns = rule_unit_ns(longest_first[i]);
        if (period_ns == 0 || period_ns % length_ns != 0 || period_ns / length_ns > UINT32_MAX)
            continue;
        limit->unit = longest_first[i];
        limit->unit_multiplier = (uint32_t)(period_ns / length_ns);
        return;
    }
}

static struct rls_limit limit_of(const struct stint_quota *quota)
{
    /* Calendar windows have a name, but no fixed length. */
    static const uint8_t units[] = {
        [STINT_ALIGN_DAY] = RULE_DAY,
        [STINT_ALIGN_WEEK] = RULE_WEEK,
        [STINT_ALIGN_MONTH] = RULE_MONTH,
        [STINT_ALIGN_YEAR] = RULE_YEAR,
    };
    assert(quota->align <= STINT_ALIGN_YEAR);
    struct rls_limit limit = {
        .requests_per_unit = quota->limit,
        .unit_multiplier = 1,
        .unit = units[quota->align],
        .name = "",
    };
    if (limit.unit == RULE_UNIT_NONE && quota->algorithm != STINT_CONCURRENCY)
        tell_period(&limit, quota->period_ns);
    return limit;
}

/* A rule's limit is that of its text; an override's limit is that of its quota. */
static void set_limit(struct rls_limit *limit, const struct target *status)
{
    const struct rule *rule = status->rule;
    if (rule != NULL && status->quota == &rule->quota && rule->unit != RULE_UNIT_NONE)
        *limit = (struct rls_limit){rule->requests_per_unit, 1, rule->unit, ""};
    else
        *limit = limit_of(status->quota);
    if (rule != NULL && !status->is_override)
        limit->name = rule->name;
}

int rls_override(struct stint_quota *quota, uint32_t requests_per_unit, int64_t unit,
                 uint64_t unit_multiplier, struct stint_error *error)
{
    if (unit <= RULE_UNIT_NONE || unit > RULE_YEAR)
        return err_set(error, STINT_E_SYNTAX,
                       "expected a unit: SECOND, MINUTE, HOUR, DAY, MONTH or YEAR");
    uint64_t length_ns = rule_unit_ns((int)unit), most = PERIOD_MAX_NS / length_ns;
    if (unit_multiplier == 0 || unit_multiplier > most)
        return err_set(
            error, STINT_E_RANGE, "expected a unit_multiplier of 1 to %llu for %s, not %llu",
            (unsigned long long)most, rls_unit_names[unit], (unsigned long long)unit_multiplier);
    *quota =
        (struct stint_quota){.limit = requests_per_unit, .period_ns = unit_multiplier * length_ns};
    return stint_quota_check(quota, error);
}

const char *rls_code_name(enum rls_code code)
{
    return code == RLS_CODE_OK ? "OK" : code == RLS_OVER_LIMIT ? "OVER_LIMIT" : "UNKNOWN";
}

static bool is_over_limit(const struct target *status)
{
    return status->decision.outcome != STINT_ALLOW || (status->is_all_shadow && status->over);
}

void rls_status_of(const struct target *status, struct rls_status *written)
{
    *written = (struct rls_status){.code = is_over_limit(status) ? RLS_OVER_LIMIT : RLS_CODE_OK};
    if (reply_quota(status) != NULL) {
        written->has_limit = true;
        set_limit(&written->limit, status);
        written->remaining = status->decision.remaining;
        written->has_reset = status->decision.outcome != STINT_NEVER &&
                             http_fields_grows_after(status, &written->reset_after_ns);
    } else if (status->rule != NULL && status->rule->unlimited) {
        written->remaining = RLS_UNLIMITED;
    }
}

enum rls_code rls_overall_code(const struct reply *reply)
{
    return reply->decision.outcome == STINT_ALLOW ? RLS_CODE_OK : RLS_OVER_LIMIT;
}

/* ---- Metadata of the rules ------------------------------------------------------------------- */

/* Of the rules that allow; objects are merged, and else the first rule counts. NULL: no memory. */
static json_t *metadata_of_rules(const struct reply *reply)
{
    json_t *all = json_object();
    for (size_t i = reply->n_statuses; i-- > 0 && all != NULL;) {
        const struct target *status = &reply->statuses[i];
        if (is_over_limit(status) || status->is_override || reply_quota(status) == NULL ||
            status->rule == NULL || status->rule->metadata.len == 0)
            continue;
        struct span text = status->rule->metadata;
        json_t *more = json_loadb((const char *)text.ptr, text.len, JSON_ALLOW_NUL, NULL);
        if (json_object_update_recursive(all, more) != 0) {
            json_decref(all);
            all = NULL;
        }
        json_decref(more);
    }
    return all;
}

/* ---- The request ----------------------------------------------------------------------------- */

/* protobuf's strings are UTF-8, and the client's text may not be: invalid bytes become U+FFFD. */
static char *add_text(char *at, struct span text)
{
    static const char replacement[] = UTF8_REPLACEMENT;
    while (text.len > 0) {
        size_t len = utf8_length(text.ptr, text.len);
        size_t added = len > 0 ? len : sizeof(replacement) - 1;
        memcpy(at, len > 0 ? (const char *)text.ptr : replacement, added);
        at += added;
        text = span_after(text, len > 0 ? len : 1);
    }
    return at;
}

/* Three texts, joined. NULL: no memory. */
static json_t *text_value(struct span first, const char *between, struct span last)
{
    size_t size = (first.len + strlen(between) + last.len) * (sizeof(UTF8_REPLACEMENT) - 1) + 1;
    char *text = malloc(size);
    if (text == NULL)
        return NULL;
    const char *end = add_text(add_text(add_text(text, first), span_of_text(between)), last);
    json_t *value = json_stringn_nocheck(text, (size_t)(end - text));
    free(text);
    return value;
}

/* In protobuf's text format. */
static json_t *limit_value(const struct stint_quota *quota)
{
    struct rls_limit limit = limit_of(quota);
    const char *unit = rls_unit_names[limit.unit];
    return limit.unit_multiplier == 1
               ? json_sprintf("requests_per_unit:%u unit:%s", limit.requests_per_unit, unit)
               : json_sprintf("requests_per_unit:%u unit:%s unit_multiplier:{value:%u}",
                              limit.requests_per_unit, unit, limit.unit_multiplier);
}

/* The object, or NULL where one of its members could not be made. */
static json_t *unless(int failed, json_t *object)
{
    if (failed == 0)
        return object;
    json_decref(object);
    return NULL;
}

/* Jansson's functions fail where they are given NULL. */
static json_t *descriptor_value(const struct descriptor *descriptor)
{
    json_t *object = json_object(), *entries = json_array();
    int failed = 0;
    for (size_t i = 0; i < descriptor->n_entries; i++)
        failed |= json_array_append_new(
            entries, text_value(descriptor->entries[i].key, "=", descriptor->entries[i].value));
    failed |= json_object_set_new(object, "entries", entries);
    if (descriptor->override != NULL)
        failed |= json_object_set_new(object, "limit", limit_value(descriptor->override));
    if (descriptor->has_hits)
        failed |= json_object_set_new(object, "hitsAddend", json_integer(descriptor->hits));
    return unless(failed, object);
}

json_t *rls_metadata(uint32_t hits_addend, const struct request *request, const struct reply *reply)
{
    json_t *object = json_object(), *descriptors = json_array(), *rules = metadata_of_rules(reply);
    int failed = rules == NULL;
    for (size_t i = 0; i < request->n_descriptors; i++)
        failed |= json_array_append_new(descriptors, descriptor_value(&request->descriptors[i]));
    failed |=
        json_object_set_new(object, "domain", text_value(request->domain, "", span_of("", 0)));
    failed |= json_object_set_new(object, "descriptors", descriptors);
    if (hits_addend != 0)
        failed |= json_object_set_new(object, "hitsAddend", json_integer(hits_addend));
    if (json_object_size(rules) > 0)
        failed |= json_object_set(object, "metadata", rules);
    json_decref(rules);
    return unless(failed, object);
}

/* ---- As a google.protobuf.Struct ------------------------------------------------------------- */

/*
 * No value needs more than eight times its JSON: two characters are a list in a list, with two
 * heads, or a number in a list and its comma, with two heads of two bytes and eight bytes.
 */
static size_t struct_max(const json_t *object)
{
    return 8 * json_dumpb(object, NULL, 0, JSON_COMPACT);
}

static void write_struct(struct wire_writer *writer, const json_t *object);

/* The largest depth in the rules' files. */
static void write_value(struct wire_writer *writer, const json_t *value)
{
    enum { NO_VALUE = 1, NUMBER, STRING, BOOL, STRUCT, LIST, ELEMENT = 1 };
    const uint8_t *end = writer->at;
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        write_struct(writer, value);
        wire_write_head(writer, STRUCT, end);
        break;
    case JSON_ARRAY:
        for (size_t i = json_array_size(value); i-- > 0;) {
            const uint8_t *element_end = writer->at;
            write_value(writer, json_array_get(value, i));
            wire_write_head(writer, ELEMENT, element_end);
        }
        wire_write_head(writer, LIST, end);
        break;
    case JSON_STRING:
        wire_write_raw(writer, span_of(json_string_value(value), json_string_length(value)));
        wire_write_head(writer, STRING, end);
        break;
    case JSON_INTEGER:
    case JSON_REAL:
        wire_write_double(writer, NUMBER, json_number_value(value));
        break;
    default:
        wire_write_raw(writer, span_of(json_is_true(value) ? "\1" : "", 1));
        wire_write_tag(writer, json_is_boolean(value) ? BOOL : NO_VALUE, WIRE_VARINT);
    }
}

static void write_struct(struct wire_writer *writer, const json_t *object)
{
    enum { KEY = 1, VALUE, FIELDS = 1 };
    for (void *at = json_object_iter((json_t *)(uintptr_t)object); at != NULL;
         at = json_object_iter_next((json_t *)(uintptr_t)object, at)) {
        const uint8_t *end = writer->at;
        write_value(writer, json_object_iter_value(at));
        wire_write_head(writer, VALUE, end);
        wire_write_bytes(writer, KEY,
                         span_of(json_object_iter_key(at), json_object_iter_key_len(at)));
        wire_write_head(writer, FIELDS, end);
    }
}

/* ---- Responses ------------------------------------------------------------------------------- */

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
    struct rls_status written;
    const struct rls_status *status = &written;
    rls_status_of(reply_status, &written);
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
        size += struct_max(response->metadata);
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
        write_struct(writer, response->metadata);
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
