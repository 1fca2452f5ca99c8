/* SPDX-License-Identifier: MIT */
/* Requests are packed anew for each key; responses are read by protobuf-c, and freed at once. */
#define _GNU_SOURCE
#include "cmd/rls/rls_message.h"

#include "base/ns.h"
#include "cmd/lib/format.h"
#include "cmd/lib/json_text.h"
#include "cmd/lib/print.h"
#include "health.pb-c.h"
#include "proto/grpc/rls_limit.h"
#include "rls.pb-c.h"

#include <inttypes.h>
#include <stdlib.h>

#define KEY_DIGITS 20

/* ---- Requests -------------------------------------------------------------------------------- */

/* Structs of one request, which point at each other; values with a mark are made in `texts`. */
struct rls_writer {
    const struct rls_evaluation *evaluation;
    Pb__RateLimitRequest request;
    Pb__RateLimitDescriptor descriptors[DESCRIPTORS_MAX], *descriptor_list[DESCRIPTORS_MAX];
    Pb__RateLimitDescriptor__Entry entries[DESCRIPTORS_MAX][ENTRIES_MAX];
    Pb__RateLimitDescriptor__Entry *entry_list[DESCRIPTORS_MAX][ENTRIES_MAX];
    Pb__UInt64Value hits;
    char *texts;
    uint8_t *packed;
};

static ProtobufCBinaryData bytes_of(struct span span)
{
    return (ProtobufCBinaryData){.len = span.len, .data = (uint8_t *)(uintptr_t)span.ptr};
}

static struct span text_of(ProtobufCBinaryData bytes)
{
    return span_of(bytes.data, bytes.len);
}

static const uint8_t *mark_in(struct span value)
{
    return memmem(value.ptr, value.len, RLS_KEY_MARK, strlen(RLS_KEY_MARK));
}

/* Writes at *text what a value is for one key, and moves it on. */
static struct span with_key(char **text, struct span value, uint64_t key)
{
    const uint8_t *mark = mark_in(value);
    if (mark == NULL)
        return value;
    size_t before = (size_t)(mark - value.ptr);
    const char *after = (const char *)mark + strlen(RLS_KEY_MARK);
    char *begin = *text;
    *text += sprintf(*text, "%.*s%" PRIu64 "%.*s", (int)before, (const char *)value.ptr, key,
                     (int)(value.len - before - strlen(RLS_KEY_MARK)), after);
    return span_of(begin, (size_t)(*text - begin));
}

static void put_key(struct rls_writer *writer, uint64_t key)
{
    const struct rls_evaluation *evaluation = writer->evaluation;
    char *text = writer->texts;
    for (size_t i = 0; i < evaluation->n_descriptors; i++)
        for (size_t j = 0; j < evaluation->n_entries[i]; j++)
            writer->entries[i][j].value =
                bytes_of(with_key(&text, evaluation->entries[i][j].value, key));
}

static void link_parts(struct rls_writer *writer)
{
    const struct rls_evaluation *evaluation = writer->evaluation;
    pb__rate_limit_request__init(&writer->request);
    pb__uint64_value__init(&writer->hits);
    writer->hits.value = evaluation->hits;
    for (size_t i = 0; i < evaluation->n_descriptors; i++) {
        Pb__RateLimitDescriptor *descriptor = &writer->descriptors[i];
        pb__rate_limit_descriptor__init(descriptor);
        for (size_t j = 0; j < evaluation->n_entries[i]; j++) {
            pb__rate_limit_descriptor__entry__init(&writer->entries[i][j]);
            writer->entries[i][j].key = bytes_of(evaluation->entries[i][j].key);
            writer->entry_list[i][j] = &writer->entries[i][j];
        }
        descriptor->n_entries = evaluation->n_entries[i];
        descriptor->entries = writer->entry_list[i];
        descriptor->is_negative_hits = evaluation->is_refund;
        /* The request's own hits cannot be 0: there, unset is 1. */
        descriptor->hits_addend = evaluation->has_hits ? &writer->hits : NULL;
        writer->descriptor_list[i] = descriptor;
    }
    writer->request.domain = bytes_of(span_of_text(evaluation->domain));
    writer->request.n_descriptors = evaluation->n_descriptors;
    writer->request.descriptors = writer->descriptor_list;
}

struct rls_writer *rls_writer_new(const struct rls_evaluation *evaluation)
{
    struct rls_writer *writer = calloc(1, sizeof(*writer));
    size_t texts_size = 1;
    if (writer == NULL)
        return NULL;
    writer->evaluation = evaluation;
    for (size_t i = 0; i < evaluation->n_descriptors; i++)
        for (size_t j = 0; j < evaluation->n_entries[i]; j++)
            texts_size += evaluation->entries[i][j].value.len + KEY_DIGITS + 1;
    writer->texts = malloc(texts_size);
    link_parts(writer);
    if (writer->texts != NULL) {
        put_key(writer, UINT64_MAX); /* no other message is longer */
        writer->packed = malloc(pb__rate_limit_request__get_packed_size(&writer->request) + 1);
    }
    if (writer->packed != NULL)
        return writer;
    rls_writer_free(writer);
    return NULL;
}

void rls_writer_free(struct rls_writer *writer)
{
    if (writer == NULL)
        return;
    free(writer->texts);
    free(writer->packed);
    free(writer);
}

struct span rls_writer_write(struct rls_writer *writer, uint64_t key)
{
    put_key(writer, key);
    return span_of(writer->packed, pb__rate_limit_request__pack(&writer->request, writer->packed));
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
        json_t *told = json_pack("{s:o, s:I, s:s}", "name", json_text_key(text_of(limit->name)),
                                 "requestsPerUnit", (json_int_t)limit->requests_per_unit, "unit",
                                 unit_name(limit));
        if (multiplier_of(limit) != 1)
            json_object_set_new(told, "unitMultiplier", json_integer(multiplier_of(limit)));
        json_object_set_new(object, "currentLimit", told);
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

size_t rls_health_write(uint8_t bytes[RLS_HEALTH_SIZE], const char *service)
{
    Pb__HealthCheckRequest request = PB__HEALTH_CHECK_REQUEST__INIT;
    request.service = bytes_of(span_of_text(service));
    if (request.service.len > 255)
        return 0;
    return pb__health_check_request__pack(&request, bytes);
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
