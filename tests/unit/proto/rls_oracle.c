/* SPDX-License-Identifier: MIT */
/* Requests and responses by protobuf-c. */
#include "unit/proto/rls_oracle.h"

#include "base/ns.h"
#include "health.pb-c.h"
#include "reservation.pb-c.h"
#include "rls.pb-c.h"

#include <stdlib.h>

static bool is_same(struct span a, ProtobufCBinaryData b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.data, a.len) == 0);
}

/* ---- What is not compared -------------------------------------------------------------------- */

/* A message of no fields, to which all fields are unknown: as they are on the wire. */
typedef Pb__HealthListRequest Fields;

static Fields *fields_of(struct span message)
{
    return pb__health_list_request__unpack(NULL, message.len, message.ptr);
}

static struct span bytes_of(const ProtobufCMessageUnknownField *field)
{
    size_t prefix = 0;
    while (field->data[prefix] > 127)
        prefix++;
    return span_of(field->data + prefix + 1, field->len - prefix - 1);
}

static bool is_message(const ProtobufCMessageUnknownField *field, uint32_t number)
{
    return field->tag == number && field->wire_type == PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED;
}

static bool comes_twice(const Fields *fields, uint32_t number)
{
    size_t n = 0;
    for (unsigned i = 0; i < fields->base.n_unknown_fields; i++)
        n += is_message(&fields->base.unknown_fields[i], number);
    return n > 1;
}

/* Whether any field of the message with that number `is_odd`, or any at all has the number 0. */
static bool any(struct span message, uint32_t number, bool (*is_odd)(struct span message))
{
    bool found = false;
    Fields *fields = fields_of(message);
    for (unsigned i = 0; fields != NULL && i < fields->base.n_unknown_fields; i++) {
        const ProtobufCMessageUnknownField *field = &fields->base.unknown_fields[i];
        found = found || field->tag == 0 || (is_message(field, number) && is_odd(bytes_of(field)));
    }
    pb__health_list_request__free_unpacked(fields, NULL);
    return found;
}

static bool never(struct span message)
{
    (void)message;
    return false;
}

/* Whether a field of 32 bits comes as a number of more: protobuf-c lets its upper bits go. */
static bool is_wide(struct span message, uint32_t number)
{
    bool found = false;
    Fields *fields = fields_of(message);
    for (unsigned i = 0; fields != NULL && i < fields->base.n_unknown_fields; i++) {
        const ProtobufCMessageUnknownField *field = &fields->base.unknown_fields[i];
        uint64_t sum = 0;
        if (field->tag != number || field->wire_type != PROTOBUF_C_WIRE_TYPE_VARINT)
            continue;
        for (size_t at = 0; at < field->len && at < 10; at++)
            sum |= (uint64_t)(field->data[at] & 127) << (7 * at);
        found = found || sum > UINT32_MAX;
    }
    pb__health_list_request__free_unpacked(fields, NULL);
    return found;
}

static bool is_odd_leaf(struct span message)
{
    return any(message, 1, never) || is_wide(message, 1);
}

/* Of 64 bits. */
static bool is_odd_hits(struct span message)
{
    return any(message, 1, never);
}

static bool is_odd_limit(struct span message)
{
    enum { REQUESTS = 1, UNIT, MULTIPLIER };
    Fields *fields = fields_of(message);
    bool is_odd = fields != NULL && comes_twice(fields, MULTIPLIER);
    pb__health_list_request__free_unpacked(fields, NULL);
    return is_odd || is_wide(message, REQUESTS) || is_wide(message, UNIT) ||
           any(message, MULTIPLIER, is_odd_leaf);
}

static bool is_odd_descriptor(struct span message)
{
    enum { ENTRIES = 1, LIMIT, HITS, IS_NEGATIVE, VARINT_MAX = 10 };
    Fields *fields = fields_of(message);
    bool is_odd = fields != NULL && (comes_twice(fields, LIMIT) || comes_twice(fields, HITS));
    for (unsigned i = 0; fields != NULL && i < fields->base.n_unknown_fields; i++) {
        const ProtobufCMessageUnknownField *field = &fields->base.unknown_fields[i];
        bool is_plain = field->wire_type == PROTOBUF_C_WIRE_TYPE_VARINT && field->len < VARINT_MAX;
        is_odd = is_odd || (field->tag == IS_NEGATIVE && !is_plain);
    }
    pb__health_list_request__free_unpacked(fields, NULL);
    return is_odd || any(message, ENTRIES, is_odd_leaf) || any(message, LIMIT, is_odd_limit) ||
           any(message, HITS, is_odd_hits);
}

/* ---- Requests -------------------------------------------------------------------------------- */

/* False for one that is to be refused. */
static bool quota_of(const Pb__RateLimitDescriptor *from, struct stint_quota *quota)
{
    const Pb__RateLimitDescriptor__RateLimitOverride *limit = from->limit;
    struct stint_error error;
    uint32_t multiplier = limit->unit_multiplier != NULL ? limit->unit_multiplier->value : 1;
    return rls_override(quota, limit->requests_per_unit, limit->unit, multiplier, &error) == 0;
}

static bool is_taken(const Pb__RateLimitDescriptor *from)
{
    struct stint_quota quota;
    if (from->n_entries == 0 || from->n_entries > ENTRIES_MAX)
        return false;
    for (size_t i = 0; i < from->n_entries; i++)
        if (from->entries[i]->key.len == 0)
            return false;
    if (from->hits_addend != NULL && from->hits_addend->value > UINT32_MAX)
        return false;
    return from->limit == NULL || quota_of(from, &quota);
}

static bool is_request(const Pb__RateLimitRequest *from)
{
    if (from == NULL || from->domain.len == 0)
        return false;
    if (from->n_descriptors == 0 || from->n_descriptors > DESCRIPTORS_MAX)
        return false;
    for (size_t i = 0; i < from->n_descriptors; i++)
        if (!is_taken(from->descriptors[i]))
            return false;
    return true;
}

static const char *compare_descriptor(const struct descriptor *descriptor,
                                      const Pb__RateLimitDescriptor *from)
{
    struct stint_quota quota;
    if (descriptor->n_entries != from->n_entries)
        return "the number of entries is another";
    for (size_t i = 0; i < from->n_entries; i++) {
        if (!is_same(descriptor->entries[i].key, from->entries[i]->key))
            return "a key is another";
        if (!is_same(descriptor->entries[i].value, from->entries[i]->value))
            return "a value is another";
    }
    if (descriptor->is_refund != (from->is_negative_hits != 0))
        return "is_negative_hits is otherwise";
    if (descriptor->has_hits != (from->hits_addend != NULL))
        return "a hits_addend is there, or it is not";
    if (descriptor->hits != (from->hits_addend != NULL ? from->hits_addend->value : 0))
        return "a hits_addend is another";
    if ((descriptor->override != NULL) != (from->limit != NULL))
        return "a limit is there, or it is not";
    if (from->limit != NULL && quota_of(from, &quota) &&
        (descriptor->override->limit != quota.limit ||
         descriptor->override->period_ns != quota.period_ns))
        return "a limit is another";
    return NULL;
}

static const char *compare(const struct request *request, const Pb__RateLimitRequest *from)
{
    const char *what = NULL;
    if (!is_same(request->domain, from->domain))
        return "the domain is another";
    if (request->cost != (from->hits_addend == 0 ? 1 : from->hits_addend))
        return "the hits_addend is another";
    if (request->n_descriptors != from->n_descriptors)
        return "the number of descriptors is another";
    for (size_t i = 0; i < from->n_descriptors && what == NULL; i++)
        what = compare_descriptor(&request->descriptors[i], from->descriptors[i]);
    return what;
}

const char *rls_oracle_read(struct span message, int code, const struct request *request)
{
    const char *what = NULL;
    if (any(message, 2, is_odd_descriptor))
        return NULL;
    if (is_wide(message, 3))
        return code != 0 ? NULL : "hits_addend is cut to 32 bits";
    Pb__RateLimitRequest *from = pb__rate_limit_request__unpack(NULL, message.len, message.ptr);
    if (is_request(from) != (code == 0))
        what = code == 0 ? "it is to be refused" : "it is a request";
    else if (code == 0)
        what = compare(request, from);
    pb__rate_limit_request__free_unpacked(from, NULL);
    return what;
}

/* ---- Kuadrant's ------------------------------------------------------------------------------ */

/* Field by field, of two messages that both begin with a domain and descriptors. */
static const char *compare_target(const struct request *request, ProtobufCBinaryData domain,
                                  Pb__RateLimitDescriptor *const *descriptors, size_t n)
{
    if (!is_same(request->domain, domain))
        return "the domain is another";
    if (request->n_descriptors != n)
        return "the number of descriptors is another";
    for (size_t i = 0; i < n; i++) {
        const struct descriptor *descriptor = &request->descriptors[i];
        Pb__RateLimitDescriptor plain = *descriptors[i]; /* hits of its own have no say */
        plain.hits_addend = NULL;
        plain.is_negative_hits = 0;
        const char *what = compare_descriptor(descriptor, &plain);
        if (what != NULL)
            return what;
    }
    return NULL;
}

static bool is_target(ProtobufCBinaryData domain, Pb__RateLimitDescriptor **descriptors, size_t n)
{
    const Pb__RateLimitRequest whole = {
        .domain = domain, .n_descriptors = n, .descriptors = descriptors};
    return is_request(&whole);
}

static bool is_ttl(const Pb__Duration *ttl)
{
    if (ttl == NULL)
        return true;
    return ttl->seconds >= 0 && ttl->nanos >= 0 && ttl->nanos < (int32_t)NS_PER_S &&
           (ttl->seconds < KUADRANT_TTL_MAX_S ||
            (ttl->seconds == KUADRANT_TTL_MAX_S && ttl->nanos == 0));
}

static uint64_t ttl_of(const Pb__Duration *ttl)
{
    uint64_t ns = ttl == NULL ? 0 : (uint64_t)ttl->seconds * NS_PER_S + (uint64_t)ttl->nanos;
    return ns == 0 ? KUADRANT_TTL_DEFAULT_S * NS_PER_S : ns;
}

static bool is_odd_reserve(struct span message)
{
    enum { DESCRIPTORS = 2, TTL = 4 };
    Fields *fields = fields_of(message);
    bool is_odd = fields != NULL && comes_twice(fields, TTL);
    pb__health_list_request__free_unpacked(fields, NULL);
    return is_odd || any(message, DESCRIPTORS, is_odd_descriptor) || any(message, TTL, is_odd_leaf);
}

static bool is_reserve(const Pb__ReserveRequest *from)
{
    return from != NULL && is_target(from->domain, from->descriptors, from->n_descriptors) &&
           from->amount <= UINT32_MAX && is_ttl(from->ttl);
}

static const char *compare_reserve(const struct request *request, const Pb__ReserveRequest *from)
{
    bool holds = from->amount > 0;
    if (request->verb != (holds ? REQUEST_RESERVE : REQUEST_PEEK))
        return "the verb is another";
    if (request->cost != (holds ? from->amount : 1))
        return "the amount is another";
    if (holds && request->lifetime_ns != ttl_of(from->ttl))
        return "the ttl is another";
    return compare_target(request, from->domain, from->descriptors, from->n_descriptors);
}

const char *rls_oracle_reserve(struct span message, int code, const struct request *request)
{
    const char *what = NULL;
    if (is_odd_reserve(message))
        return NULL;
    Pb__ReserveRequest *from = pb__reserve_request__unpack(NULL, message.len, message.ptr);
    if (is_reserve(from) != (code == 0))
        what = code == 0 ? "it is to be refused" : "it is a request";
    else if (code == 0)
        what = compare_reserve(request, from);
    pb__reserve_request__free_unpacked(from, NULL);
    return what;
}

static const char *compare_commit(const struct request *request, const Pb__CommitRequest *from)
{
    if (request->cost != from->actual_amount)
        return "the actual_amount is another";
    if (from->reservation_id.len > 0)
        return request->verb == REQUEST_SETTLE && request->n_descriptors == 0
                   ? NULL
                   : "it is to settle a ticket";
    if (request->verb != REQUEST_CHARGE)
        return "the verb is another";
    return compare_target(request, from->domain, from->descriptors, from->n_descriptors);
}

/* A reservation_id is of our own making: whether it is right is not protobuf-c's to say. */
const char *rls_oracle_commit(struct span message, int code, const struct request *request)
{
    const char *what = NULL;
    if (any(message, 2, is_odd_descriptor))
        return NULL;
    Pb__CommitRequest *from = pb__commit_request__unpack(NULL, message.len, message.ptr);
    bool has_id = from != NULL && from->reservation_id.len > 0;
    bool is_one = from != NULL && from->actual_amount <= UINT32_MAX &&
                  (has_id || is_target(from->domain, from->descriptors, from->n_descriptors));
    if (code == 0 && !is_one)
        what = "it is to be refused";
    else if (code != 0 && is_one && !has_id)
        what = "it is a request";
    else if (code == 0)
        what = compare_commit(request, from);
    pb__commit_request__free_unpacked(from, NULL);
    return what;
}

/* ---- Responses ------------------------------------------------------------------------------- */

static const char *compare_limit(const struct rls_limit *limit,
                                 const Pb__RateLimitResponse__RateLimit *from)
{
    uint32_t multiplier = from->unit_multiplier != NULL ? from->unit_multiplier->value : 1;
    if (from->requests_per_unit != limit->requests_per_unit || (int)from->unit != limit->unit ||
        multiplier != limit->unit_multiplier)
        return "a current_limit is another";
    return is_same(span_of_text(limit->name), from->name) ? NULL : "a limit's name is another";
}

static const char *compare_status(const struct rls_status *status,
                                  const Pb__RateLimitResponse__DescriptorStatus *from)
{
    const Pb__Duration *reset = from->duration_until_reset;
    if ((int)from->code != (int)status->code || from->limit_remaining != status->remaining)
        return "a code or limit_remaining is another";
    if (status->has_limit != (from->current_limit != NULL))
        return "a current_limit is there, or it is not";
    if (status->has_reset != (reset != NULL))
        return "a duration_until_reset is there, or it is not";
    if (reset != NULL && ((uint64_t)reset->seconds != status->reset_after_ns / NS_PER_S ||
                          (uint64_t)reset->nanos != status->reset_after_ns % NS_PER_S))
        return "a duration_until_reset is another";
    return status->has_limit ? compare_limit(&status->limit, from->current_limit) : NULL;
}

static const char *compare_response(const Pb__RateLimitResponse *from, const struct rls_form *form,
                                    const struct reply *reply)
{
    const char *what = NULL;
    bool is_over = rls_overall_code(reply) == RLS_OVER_LIMIT;
    if (from == NULL)
        return "it is no RateLimitResponse";
    if ((int)from->overall_code != (int)rls_overall_code(reply))
        return "the overall_code is another";
    if (from->n_statuses != reply->n_statuses)
        return "the number of statuses is another";
    for (size_t i = 0; i < reply->n_statuses && what == NULL; i++) {
        struct rls_status status;
        rls_status_of(&reply->statuses[i], &status);
        what = compare_status(&status, from->statuses[i]);
    }
    if (!is_same(is_over ? form->denied_body : span_of("", 0), from->raw_body))
        return "the raw_body is another";
    if (form->has_metadata != (from->dynamic_metadata != NULL))
        return "dynamic_metadata is there, or it is not";
    return what;
}

const char *rls_oracle_written(struct span response, const struct rls_form *form,
                               const struct reply *reply)
{
    Pb__RateLimitResponse *from = pb__rate_limit_response__unpack(NULL, response.len, response.ptr);
    const char *what = compare_response(from, form, reply);
    if (what == NULL) {
        size_t len = pb__rate_limit_response__get_packed_size(from);
        uint8_t *packed = malloc(len + 1);
        if (packed == NULL || pb__rate_limit_response__pack(from, packed) != response.len ||
            memcmp(packed, response.ptr, response.len) != 0)
            what = "protobuf-c writes other bytes";
        free(packed);
    }
    pb__rate_limit_response__free_unpacked(from, NULL);
    return what;
}
