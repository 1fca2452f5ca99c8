/* SPDX-License-Identifier: MIT */
/* `stint rls`: calls Envoy's rate limit service, one call for each subcommand. */
#define _GNU_SOURCE
#include "base/ns.h"

#include "base/err.h"
#include "base/wide_int.h"
#include "cmd/client/client.h"
#include "cmd/lib/args.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"
#include "health.pb-c.h"
#include "proto/grpc/grpc.h"
#include "proto/grpc/rls.h"
#include "rls.pb-c.h"

#include <ctype.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- Messages -------------------------------------------------------------------------------- */

/* What a client of Envoy's rate limit service sends, and what it reads. */

#define RLS_PATH "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
#define RLS_HEALTH_PATH "/grpc.health.v1.Health/Check"

/* What is asked. */
struct rls_evaluation {
    const char *domain;
    struct descriptor_entry entries[DESCRIPTORS_MAX][ENTRIES_MAX];
    size_t n_entries[DESCRIPTORS_MAX];
    size_t n_descriptors;
    uint32_t hits;
    bool has_hits;  /* then 0 asks without taking */
    bool is_refund; /* hits are given back */
};

/* Requests are packed and responses are read by protobuf-c; what it makes is freed at once. */

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

/* A RateLimitRequest behind its prefix; to be freed. NULL: no memory. */
static uint8_t *rls_message_write(const struct rls_evaluation *evaluation, size_t *len)
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

/* The overall code of a RateLimitResponse (enum rls_code), or STINT_E_SYNTAX. */
static int rls_message_code(struct span message, struct stint_error *error)
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

/*
 * All of it, as proto3 has it in JSON, but with defaults told; NULL with a message. And the same
 * for people, a line for each descriptor of the question.
 */
static json_t *rls_message_json(struct span message, struct stint_error *error)
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

static int rls_message_print(FILE *out, struct span message,
                             const struct rls_evaluation *evaluation, struct stint_error *error)
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

/* A HealthCheckRequest behind its prefix; to be freed. NULL: no memory. */
static uint8_t *rls_health_write(const char *service, size_t *len)
{
    Pb__HealthCheckRequest request = PB__HEALTH_CHECK_REQUEST__INIT;
    request.service = bytes_of(span_of_text(service));
    return pack(&request.base, len);
}

/* A HealthCheckResponse: enum health_status, or STINT_E_SYNTAX. */
static int rls_health_read(struct span message, struct stint_error *error)
{
    Pb__HealthCheckResponse *response =
        pb__health_check_response__unpack(NULL, message.len, message.ptr);
    if (response == NULL)
        return err_set(error, STINT_E_SYNTAX, "the answer is no HealthCheckResponse");
    int status = (int)response->status;
    pb__health_check_response__free_unpacked(response, NULL);
    return status;
}

/* ---- The command line ------------------------------------------------------------------------ */

/* ---- The command line ------------------------------------------------------------------------ */

#define SERVER_DEFAULT "127.0.0.1:8081"

#define RLS_URL_SIZE 512

enum rls_mode { RLS_ASK = 0, RLS_HEALTH };

struct rls_options {
    enum rls_mode mode;
    const char *server; /* HOST:PORT or unix:/PATH, as it was given */
    char url[RLS_URL_SIZE];
    struct client_options client; /* .server is the URL */
    struct rls_evaluation evaluation;
    const char *service; /* of health; "" is the whole server */
    bool json;
};

static const char doc_of_ask[] =
    "Asks Envoy's rate limit service one question, as Envoy does.\v"
    "SERVER is HOST:PORT or unix:/PATH (default " SERVER_DEFAULT ").\n"
    "Exit codes: 0 OK, 3 OVER_LIMIT, 1 no answer could be had, 2 bad usage. See stint-rls(1).";
static const char doc_of_health[] =
    "Asks grpc.health.v1 whether a server serves.\v"
    "SERVER is HOST:PORT or unix:/PATH (default " SERVER_DEFAULT ").\n"
    "Exit codes: 0 it serves, 3 it does not, 1 no answer could be had, 2 bad usage. See "
    "stint-rls(1).";

static void add_descriptor(struct argp_state *state, void *input, char *word)
{
    struct rls_evaluation *evaluation = input;
    struct stint_error error;
    size_t index = evaluation->n_descriptors;
    if (index == DESCRIPTORS_MAX)
        argp_error(state, "more than %d descriptors", DESCRIPTORS_MAX);
    if (descriptor_word_cut(word, evaluation->entries[index], &evaluation->n_entries[index],
                            &error) != 0)
        argp_error(state, "--descriptor: %s", error.message);
    evaluation->n_descriptors++;
}

/* args_number() begins at 1. */
static void read_hits(struct argp_state *state, void *input, char *text)
{
    struct rls_evaluation *evaluation = input;
    evaluation->has_hits = true;
    evaluation->hits =
        strcmp(text, "0") == 0 ? 0 : (uint32_t)args_number(state, "--hits", text, UINT32_MAX);
}

/* SERVER as a URL. unix:/PATH stays as it is; an IPv6 address may come without brackets. */
static void set_url(struct argp_state *state, struct rls_options *options)
{
    const char *server = options->server, *colon = strrchr(server, ':');
    const char *scheme = options->client.is_tls ? "https" : "http";
    options->client.server = options->url;
    if (strncmp(server, "unix:", strlen("unix:")) == 0) {
        options->client.server = server;
        return;
    }
    size_t host_len = colon != NULL ? (size_t)(colon - server) : 0;
    if (host_len == 0 || colon[1] == '\0' || strspn(colon + 1, "0123456789") != strlen(colon + 1) ||
        strpbrk(server, "/@?#\\% ") != NULL ||
        strlen(server) + strlen("https://[]") >= sizeof(options->url))
        argp_error(state, "expected HOST:PORT or unix:/PATH, found '%s'", server);
    if (server[0] != '[' && memchr(server, ':', host_len) != NULL)
        snprintf(options->url, sizeof(options->url), "%s://[%.*s]%s", scheme, (int)host_len, server,
                 colon);
    else
        snprintf(options->url, sizeof(options->url), "%s://%s", scheme, server);
}

#define FOR(mode) (1u << (mode))

static const struct args_option options_known[] = {
    {"domain", "DOMAIN", 1, "Of the server's rules",
     ARGS_TEXT(struct rls_options, evaluation.domain), .verbs = FOR(RLS_ASK)},
    {"descriptor", "K=V[,K=V...]", 1, "What is asked for; several: all of them have to allow",
     ARGS_PART(struct rls_options, evaluation, add_descriptor), .verbs = FOR(RLS_ASK)},
    {"hits", "N", 1, "Units of each descriptor (default 1); 0 only checks",
     ARGS_PART(struct rls_options, evaluation, read_hits), .verbs = FOR(RLS_ASK)},
    {"refund", NULL, 1, "Give the hits back", ARGS_FLAG(struct rls_options, evaluation.is_refund),
     .verbs = FOR(RLS_ASK)},
    {"service", "NAME", 1, "Of one service (default: of the whole server)",
     ARGS_TEXT(struct rls_options, service), .verbs = FOR(RLS_HEALTH)},
    {"json", NULL, 2, "Print one JSON object", ARGS_FLAG(struct rls_options, json)},
    {"tls", NULL, 3, "Speak TLS; else HTTP/2 in the clear",
     ARGS_FLAG(struct rls_options, client.is_tls)},
    {0},
};

static void set_server(struct argp_state *state, void *input, char *word)
{
    struct rls_options *options = input;
    if (options->server != NULL)
        argp_error(state, "expected one SERVER, found '%s' too", word);
    options->server = word;
}

static void check_together(struct argp_state *state, void *input)
{
    struct rls_options *options = input;
    const struct rls_evaluation *evaluation = &options->evaluation;
    const struct client_options *client = &options->client;
    if (options->mode == RLS_ASK && (evaluation->domain == NULL || evaluation->domain[0] == '\0' ||
                                     evaluation->n_descriptors == 0))
        argp_error(state, "expected --domain DOMAIN and --descriptor K=V[,K=V...]");
    if (!client->is_tls && (client->ca_file != NULL || client->cert_file != NULL))
        argp_error(state, "certificates are of TLS; expected --tls too");
    if (options->server == NULL)
        options->server = SERVER_DEFAULT;
    options->client.server_choice = "SERVER";
    set_url(state, options);
}

static void parse_options(struct rls_options *options, enum rls_mode mode, int argc, char **argv)
{
    const struct args_command command = {
        .set = {options_known, .word = set_server, .end = check_together},
        .children = {CLIENT_CHILD(client_set_without_server, offsetof(struct rls_options, client))},
        .arguments = "[SERVER]",
        .doc = mode == RLS_ASK ? doc_of_ask : doc_of_health,
        .verb = FOR(mode),
    };
    *options = (struct rls_options){.mode = mode, .service = ""};
    args_parse(&command, argc, argv, options);
}

/* ---- One unary call of gRPC: a POST over HTTP/2, whose status is in the trailers ------------- */

#define TIMEOUT_MS_MAX 99999999 /* eight digits: more than a day */

/* ---- What comes back ---- */

/* What a call ended with. */
struct rls_answer {
    int grpc_status;              /* -1: there was none */
    char reason[STINT_ERROR_MAX]; /* grpc-message, or what was wrong with the answer; may be "" */
    struct span message;          /* of GRPC_OK */
    struct client *client;        /* holds the message */
};

/* %XX is one byte, as it was meant. */
static void read_reason(char reason[STINT_ERROR_MAX], struct span value)
{
    size_t n = 0;
    for (size_t i = 0; i < value.len && n + 1 < STINT_ERROR_MAX; n++) {
        unsigned byte = value.ptr[i++];
        if (byte == '%' && value.len - i >= 2 && isxdigit(value.ptr[i]) != 0 &&
            isxdigit(value.ptr[i + 1]) != 0) {
            const char digits[] = {(char)value.ptr[i], (char)value.ptr[i + 1], '\0'};
            byte = (unsigned)strtoul(digits, NULL, 16);
            i += 2;
        }
        reason[n] = (char)byte;
    }
    reason[n] = '\0';
}

static int read_status(struct span value)
{
    int status = 0;
    for (size_t i = 0; i < value.len; i++) {
        if (value.ptr[i] < '0' || value.ptr[i] > '9' || i == 3)
            return -1;
        status = status * 10 + (value.ptr[i] - '0');
    }
    return value.len > 0 ? status : -1;
}

static bool is_refused(const struct rls_answer *answer)
{
    return answer->grpc_status > GRPC_OK;
}

/*
 * A head that refuses the call is the whole answer, even where the request is not yet sent. OK is
 * for trailers to say: an answer may be cut short before them.
 */
static bool on_field(void *arg, struct span name, struct span value)
{
    struct rls_answer *answer = arg;
    if (span_equals(name, "grpc-status"))
        answer->grpc_status = read_status(value);
    else if (span_equals(name, "grpc-message"))
        read_reason(answer->reason, value);
    else if (name.len == 0 && !is_refused(answer))
        answer->grpc_status = -1;
    return name.len > 0 || !is_refused(answer);
}

/* The one message of an answer; what is none is an error of the server's. */
static void read_message(struct rls_answer *answer, struct span body)
{
    struct grpc_frame frame = {.is_compressed = false};
    struct stint_error error;
    int len = grpc_frame_read(body, CLIENT_ANSWER_MAX, &frame, &error);
    if (len > 0 && (size_t)len == body.len && !frame.is_compressed) {
        answer->message = frame.message;
        return;
    }
    answer->grpc_status = GRPC_INTERNAL;
    snprintf(answer->reason, sizeof(answer->reason),
             "the answer is not one message that was not compressed");
}

/* ---- A call ---- */

/* Compressed answers are not asked for. */
static int open_client(const struct rls_options *options, struct rls_answer *answer,
                       struct stint_error *error)
{
    char timeout[sizeof("grpc-timeout: m") + 8];
    const char *const fields[] = {"Content-Type: application/grpc", "TE: trailers", timeout,
                                  "Accept:", NULL};
    struct client_options with = options->client;
    uint64_t timeout_ns = with.timeout_ns > 0 ? with.timeout_ns : CLIENT_TIMEOUT_NS_DEFAULT;
    uint64_t timeout_ms = timeout_ns / NS_PER_MS + (timeout_ns % NS_PER_MS != 0);
    snprintf(timeout, sizeof(timeout), "grpc-timeout: %um",
             (unsigned)min_u64(timeout_ms, TIMEOUT_MS_MAX));
    with.is_http2 = true;
    with.fields = fields;
    with.on_field = on_field;
    with.on_field_arg = answer;
    return client_open(&answer->client, &with, error);
}

/*
 * One call of `path`; `request` is a message behind its prefix. Below 0 if no answer came:
 * STINT_E_SYNTAX for an invalid server, STINT_E_MISMATCH if a token would go unencrypted to another
 * host, else as client_post(). Release the answer in any case.
 */
static int rls_client_call(const struct rls_options *options, const char *path, struct span request,
                           struct rls_answer *answer, struct stint_error *error)
{
    struct client_answer received;
    *answer = (struct rls_answer){.grpc_status = -1};
    int code = open_client(options, answer, error);
    if (code == 0)
        code = client_post(answer->client, path, request, 0, &received, error);
    if (code == STINT_E_MISMATCH)
        return err_set(error, code,
                       "%s is another host: the token would go there unencrypted; expected --tls, "
                       "or --insecure",
                       options->server);
    if (is_refused(answer))
        return 0;
    if (code != 0)
        return code;
    if (answer->grpc_status == GRPC_OK)
        read_message(answer, received.body);
    else
        snprintf(answer->reason, sizeof(answer->reason), "HTTP status %d, and none of gRPC",
                 received.status);
    return 0;
}

static void rls_client_release(struct rls_answer *answer)
{
    client_close(answer->client);
    answer->client = NULL;
}

/* ---- The commands ---------------------------------------------------------------------------- */

static int tell_limits(const struct rls_options *options, struct span message)
{
    struct stint_error error;
    int code = rls_message_code(message, &error);
    if (code < 0) {
        print_message("%s: %s", options->server, error.message);
        return CMD_BAD_INPUT;
    }
    if (options->json)
        (void)json_text_print(rls_message_json(message, &error), false);
    else
        (void)rls_message_print(stdout, message, &options->evaluation, &error);
    return code == RLS_CODE_OK ? CMD_DONE : CMD_DENIED;
}

static int tell_health(const struct rls_options *options, struct span message)
{
    static const char *const names[] = {"UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"};
    struct stint_error error;
    int status = rls_health_read(message, &error);
    if (status < 0 || status > HEALTH_SERVICE_UNKNOWN) {
        print_message("%s: %s", options->server, status < 0 ? error.message : "no such status");
        return CMD_BAD_INPUT;
    }
    if (options->json)
        (void)json_text_print(json_pack("{s:s}", "status", names[status]), false);
    else
        puts(names[status]);
    return status == HEALTH_SERVING ? CMD_DONE : CMD_DENIED;
}

static int tell(const struct rls_options *options, const struct rls_answer *answer)
{
    if (answer->grpc_status == GRPC_OK)
        return options->mode == RLS_ASK ? tell_limits(options, answer->message)
                                        : tell_health(options, answer->message);
    const char *name = grpc_status_name(answer->grpc_status);
    print_message("%s: %s%s%s", options->server, name, name[0] != '\0' ? ": " : "", answer->reason);
    return CMD_BAD_INPUT;
}

static int call(enum rls_mode mode, int argc, char **argv)
{
    struct rls_options options;
    struct rls_answer answer;
    struct stint_error error;
    size_t len = 0;
    parse_options(&options, mode, argc, argv);
    uint8_t *request = mode == RLS_ASK ? rls_message_write(&options.evaluation, &len)
                                       : rls_health_write(options.service, &len);
    if (request == NULL) {
        print_message("out of memory");
        return CMD_BAD_INPUT;
    }
    int code = rls_client_call(&options, mode == RLS_ASK ? RLS_PATH : RLS_HEALTH_PATH,
                               span_of(request, len), &answer, &error);
    if (code != 0)
        print_message("%s", error.message);
    int exit_code = code == 0                ? tell(&options, &answer)
                    : code == STINT_E_SYNTAX ? CMD_BAD_USAGE
                                             : CMD_BAD_INPUT;
    rls_client_release(&answer);
    free(request);
    return exit_code;
}

static int rls_ask_main(int argc, char **argv)
{
    return call(RLS_ASK, argc, argv);
}

static int rls_health_main(int argc, char **argv)
{
    return call(RLS_HEALTH, argc, argv);
}

const struct cmd rls_commands[] = {
    {"ask", "one question, as Envoy asks it", .run = rls_ask_main},
    {"health", "whether a server serves", .run = rls_health_main},
    {.name = NULL},
};
