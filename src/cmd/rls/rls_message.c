/* SPDX-License-Identifier: MIT */
/* Requests are packed and responses are read by protobuf-c; what it makes is freed at once. */
#define _GNU_SOURCE
#include "cmd/rls/rls_message.h"

#include "base/ns.h"
#include "cmd/lib/print.h"
#include "health.pb-c.h"
#include "proto/grpc/grpc.h"
#include "proto/grpc/rls_limit.h"
#include "rls.pb-c.h"

#include <inttypes.h>
#include <stdlib.h>

/* ---- Requests -------------------------------------------------------------------------------- */

/* Structs of one request, which point at each other. */
struct rls_request {
    Pb__RateLimitRequest request;
    Pb__RateLimitDescriptor descriptors[DESCRIPTORS_MAX], *descriptor_list[DESCRIPTORS_MAX];
    Pb__RateLimitDescriptor__Entry entries[DESCRIPTORS_MAX][ENTRIES_MAX];
    Pb__RateLimitDescriptor__Entry *entry_list[DESCRIPTORS_MAX][ENTRIES_MAX];
    Pb__UInt64Value hits;
};

static ProtobufCBinaryData bytes_of(struct span span)
{
    return (ProtobufCBinaryData){.len = span.len, .data = (uint8_t *)(uintptr_t)span.ptr};
}

static struct span text_of(ProtobufCBinaryData bytes)
{
    return span_of(bytes.data, bytes.len);
}

static uint8_t *pack(const ProtobufCMessage *message, size_t *len)
{
    size_t message_len = protobuf_c_message_get_packed_size(message);
    uint8_t *bytes = malloc(GRPC_PREFIX + message_len);
    if (bytes == NULL)
        return NULL;
    grpc_frame_write(bytes, false, message_len);
    *len = GRPC_PREFIX + protobuf_c_message_pack(message, bytes + GRPC_PREFIX);
    return bytes;
}

static void fill_entries(struct rls_request *request, const struct rls_evaluation *evaluation,
                         size_t i)
{
    for (size_t j = 0; j < evaluation->n_entries[i]; j++) {
        Pb__RateLimitDescriptor__Entry *entry = &request->entries[i][j];
        pb__rate_limit_descriptor__entry__init(entry);
        entry->key = bytes_of(evaluation->entries[i][j].key);
        entry->value = bytes_of(evaluation->entries[i][j].value);
        request->entry_list[i][j] = entry;
    }
}

static void fill(struct rls_request *request, const struct rls_evaluation *evaluation)
{
    pb__rate_limit_request__init(&request->request);
    pb__uint64_value__init(&request->hits);
    request->hits.value = evaluation->hits;
    for (size_t i = 0; i < evaluation->n_descriptors; i++) {
        Pb__RateLimitDescriptor *descriptor = &request->descriptors[i];
        pb__rate_limit_descriptor__init(descriptor);
        fill_entries(request, evaluation, i);
        descriptor->n_entries = evaluation->n_entries[i];
        descriptor->entries = request->entry_list[i];
        descriptor->is_negative_hits = evaluation->is_refund;
        /* The request's own hits cannot be 0: there, unset is 1. */
        descriptor->hits_addend = evaluation->has_hits ? &request->hits : NULL;
        request->descriptor_list[i] = descriptor;
    }
    request->request.domain = bytes_of(span_of_text(evaluation->domain));
    request->request.n_descriptors = evaluation->n_descriptors;
    request->request.descriptors = request->descriptor_list;
}

uint8_t *rls_message_write(const struct rls_evaluation *evaluation, size_t *len)
{
    struct rls_request *request = calloc(1, sizeof(*request)); /* too large for a stack */
    if (request == NULL)
        return NULL;
    fill(request, evaluation);
    uint8_t *bytes = pack(&request->request.base, len);
    free(request);
    return bytes;
}

/* ---- Responses ------------------------------------------------------------------------------- */

static Pb__RateLimitResponse *unpack(struct span message, struct stint_error *error)
{
    Pb__RateLimitResponse *response =
        pb__rate_limit_response__unpack(NULL, message.len, message.ptr);
    if (response == NULL)
        err_set(error, STINT_E_SYNTAX, "the answer is no RateLimitResponse");
    return response;
}

int rls_message_code(struct span message, struct stint_error *error)
{
    Pb__RateLimitResponse *response = unpack(message, error);
    if (response == NULL)
        return STINT_E_SYNTAX;
    int code = (int)response->overall_code;
    pb__rate_limit_response__free_unpacked(response, NULL);
    return code;
}

static const char *unit_name(const Pb__RateLimitResponse__RateLimit *limit)
{
    return (unsigned)limit->unit <= RULE_WEEK ? rls_unit_names[limit->unit] : "UNKNOWN";
}

static uint32_t multiplier_of(const Pb__RateLimitResponse__RateLimit *limit)
{
    return limit->unit_multiplier != NULL ? limit->unit_multiplier->value : 1;
}

/* "12.345s", as proto3's JSON has a Duration. */
static json_t *duration_json(const Pb__Duration *duration)
{
    char text[48];
    snprintf(text, sizeof(text), "%" PRId64 ".%09ds", duration->seconds, (int)duration->nanos);
    return json_string(text);
}

static json_t *status_json(const Pb__RateLimitResponse__DescriptorStatus *status)
{
    json_t *object = json_pack("{s:s, s:I}", "code", rls_code_name((enum rls_code)status->code),
                               "limitRemaining", (json_int_t)status->limit_remaining);
    const Pb__RateLimitResponse__RateLimit *limit = status->current_limit;
    if (limit != NULL) {
        json_t *current = json_pack("{s:o, s:I, s:s}", "name", json_text_key(text_of(limit->name)),
                                    "requestsPerUnit", (json_int_t)limit->requests_per_unit, "unit",
                                    unit_name(limit));
        if (multiplier_of(limit) != 1)
            json_object_set_new(current, "unitMultiplier", json_integer(multiplier_of(limit)));
        json_object_set_new(object, "currentLimit", current);
    }
    if (status->duration_until_reset != NULL)
        json_object_set_new(object, "durationUntilReset",
                            duration_json(status->duration_until_reset));
    return object;
}

static json_t *headers_json(const Pb__RateLimitResponse *response)
{
    json_t *headers = json_array();
    for (size_t i = 0; i < response->n_response_headers_to_add; i++) {
        const Pb__HeaderValue *header = response->response_headers_to_add[i];
        json_array_append_new(headers,
                              json_pack("{s:o, s:o}", "key", json_text_key(text_of(header->key)),
                                        "value", json_text_key(text_of(header->value))));
    }
    return headers;
}

json_t *rls_message_json(struct span message, struct stint_error *error)
{
    Pb__RateLimitResponse *response = unpack(message, error);
    if (response == NULL)
        return NULL;
    json_t *statuses = json_array();
    for (size_t i = 0; i < response->n_statuses; i++)
        json_array_append_new(statuses, status_json(response->statuses[i]));
    json_t *object =
        json_pack("{s:s, s:o}", "overallCode", rls_code_name((enum rls_code)response->overall_code),
                  "statuses", statuses);
    if (response->n_response_headers_to_add > 0)
        json_object_set_new(object, "responseHeadersToAdd", headers_json(response));
    pb__rate_limit_response__free_unpacked(response, NULL);
    if (object == NULL)
        err_set(error, STINT_E_SYSTEM, "out of memory");
    return object;
}

/* ---- For people ------------------------------------------------------------------------------ */

static void print_limit(FILE *out, const Pb__RateLimitResponse__DescriptorStatus *status)
{
    const Pb__RateLimitResponse__RateLimit *limit = status->current_limit;
    struct formatted formatted;
    if (limit == NULL) {
        fputs(status->limit_remaining == RLS_UNLIMITED
                  ? "unlimited"
                  : "no limit: no rule of the domain matches, or the domain has no rules",
              out);
        return;
    }
    fprintf(out, "%s left of %s per ", format_count(&formatted, status->limit_remaining),
            format_count(&(struct formatted){0}, limit->requests_per_unit));
    if (multiplier_of(limit) != 1)
        fprintf(out, "%" PRIu32 " ", multiplier_of(limit));
    fputs(unit_name(limit), out);
    if (limit->name.len > 0) {
        fputs(", ", out);
        print_escaped(out, text_of(limit->name));
    }
    const Pb__Duration *reset = status->duration_until_reset;
    if (reset != NULL && reset->seconds >= 0)
        fprintf(out, ", more in %s",
                format_duration(&formatted, (uint64_t)reset->seconds * NS_PER_S +
                                                (uint64_t)(reset->nanos > 0 ? reset->nanos : 0)));
}

static void print_descriptor(FILE *out, const struct rls_evaluation *evaluation, size_t index)
{
    if (index >= evaluation->n_descriptors)
        return;
    for (size_t i = 0; i < evaluation->n_entries[index]; i++) {
        fputs(i > 0 ? "," : "", out);
        print_escaped(out, evaluation->entries[index][i].key);
        fputc('=', out);
        print_escaped(out, evaluation->entries[index][i].value);
    }
    fputs(": ", out);
}

int rls_message_print(FILE *out, struct span message, const struct rls_evaluation *evaluation,
                      struct stint_error *error)
{
    Pb__RateLimitResponse *response = unpack(message, error);
    if (response == NULL)
        return STINT_E_SYNTAX;
    fprintf(out, "%s\n", rls_code_name((enum rls_code)response->overall_code));
    for (size_t i = 0; i < response->n_statuses; i++) {
        const Pb__RateLimitResponse__DescriptorStatus *status = response->statuses[i];
        fputs("  ", out);
        print_descriptor(out, evaluation, i);
        fprintf(out, "%s, ", rls_code_name((enum rls_code)status->code));
        print_limit(out, status);
        fputc('\n', out);
    }
    for (size_t i = 0; i < response->n_response_headers_to_add; i++) {
        fputs("  ", out);
        print_escaped(out, text_of(response->response_headers_to_add[i]->key));
        fputs(": ", out);
        print_escaped(out, text_of(response->response_headers_to_add[i]->value));
        fputc('\n', out);
    }
    pb__rate_limit_response__free_unpacked(response, NULL);
    return 0;
}

/* ---- Health ---------------------------------------------------------------------------------- */

uint8_t *rls_health_write(const char *service, size_t *len)
{
    Pb__HealthCheckRequest request = PB__HEALTH_CHECK_REQUEST__INIT;
    request.service = bytes_of(span_of_text(service));
    return pack(&request.base, len);
}

int rls_health_read(struct span message, struct stint_error *error)
{
    Pb__HealthCheckResponse *response =
        pb__health_check_response__unpack(NULL, message.len, message.ptr);
    if (response == NULL)
        return err_set(error, STINT_E_SYNTAX, "the answer is no HealthCheckResponse");
    int status = (int)response->status;
    pb__health_check_response__free_unpacked(response, NULL);
    return status;
}
