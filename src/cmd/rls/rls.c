/* SPDX-License-Identifier: MIT */
/* `stint rls`: calls Envoy's rate limit service, one call for each subcommand. */
#define _GNU_SOURCE
#include "proto/grpc/rls.h"
#include "base/ns.h"
#include "base/number.h"
#include "base/wide_int.h"
#include "cmd/client/client.h"
#include "cmd/lib/args.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"
#include "health.pb-c.h"
#include "proto/grpc/grpc.h"
#include "rls.pb-c.h"

#include <ctype.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- The command line ------------------------------------------------------------------------ */

#define SERVER_DEFAULT "127.0.0.1:8081"

#define RLS_URL_SIZE 512

enum rls_mode { RLS_ASK = 0, RLS_HEALTH };

/* A request, whose structs point at each other. */
struct rls_request {
    Pb__RateLimitRequest request;
    Pb__RateLimitDescriptor descriptors[DESCRIPTORS_MAX], *descriptor_list[DESCRIPTORS_MAX];
    Pb__RateLimitDescriptor__Entry entries[DESCRIPTORS_MAX][ENTRIES_MAX];
    Pb__RateLimitDescriptor__Entry *entry_list[DESCRIPTORS_MAX][ENTRIES_MAX];
    Pb__UInt64Value hits;
};

struct rls_options {
    enum rls_mode mode;
    const char *server; /* HOST:PORT or unix:/PATH, as it was given */
    char url[RLS_URL_SIZE];
    struct client_options client; /* .server is the URL */
    struct rls_request ask;
    const char *domain, *service; /* service: of health; "" is the whole server */
    bool has_hits;                /* then 0 asks without taking */
    bool is_refund;               /* hits are given back */
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

static ProtobufCBinaryData bytes_of(struct span span)
{
    return (ProtobufCBinaryData){.len = span.len, .data = (uint8_t *)(uintptr_t)span.ptr};
}

static struct span text_of(ProtobufCBinaryData bytes)
{
    return span_of(bytes.data, bytes.len);
}

static void add_descriptor(struct argp_state *state, void *input, char *word)
{
    struct rls_request *ask = input;
    struct descriptor_entry entries[ENTRIES_MAX];
    struct stint_error error;
    size_t i = ask->request.n_descriptors, n_entries = 0;
    if (i == DESCRIPTORS_MAX)
        argp_error(state, "more than %d descriptors", DESCRIPTORS_MAX);
    if (descriptor_word_cut(word, entries, &n_entries, &error) != 0)
        argp_error(state, "--descriptor: %s", error.message);
    pb__rate_limit_descriptor__init(&ask->descriptors[i]);
    for (size_t j = 0; j < n_entries; j++) {
        Pb__RateLimitDescriptor__Entry *entry = ask->entry_list[i][j] = &ask->entries[i][j];
        pb__rate_limit_descriptor__entry__init(entry);
        entry->key = bytes_of(entries[j].key);
        entry->value = bytes_of(entries[j].value);
    }
    ask->descriptors[i].n_entries = n_entries;
    ask->descriptors[i].entries = ask->entry_list[i];
    ask->descriptor_list[i] = &ask->descriptors[i];
    ask->request.n_descriptors++;
}

static void read_hits(struct argp_state *state, void *input, char *text)
{
    struct rls_options *options = input;
    options->has_hits = true;
    options->ask.hits.value = args_number(state, "--hits", text, 0, UINT32_MAX);
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
    {"domain", "DOMAIN", 1, "Of the server's rules", ARGS_TEXT(struct rls_options, domain),
     .verbs = FOR(RLS_ASK)},
    {"descriptor", "K=V[,K=V...]", 1, "What is asked for; several: all of them have to allow",
     ARGS_PART(struct rls_options, ask, add_descriptor), .verbs = FOR(RLS_ASK)},
    {"hits", "N", 1, "Units of each descriptor (default 1); 0 only checks", ARGS_OWN(read_hits),
     .verbs = FOR(RLS_ASK)},
    {"refund", NULL, 1, "Give the hits back", ARGS_FLAG(struct rls_options, is_refund),
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
    const struct client_options *client = &options->client;
    if (options->mode == RLS_ASK && (options->domain == NULL || options->domain[0] == '\0' ||
                                     options->ask.request.n_descriptors == 0))
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
    pb__rate_limit_request__init(&options->ask.request);
    pb__uint64_value__init(&options->ask.hits);
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
    uint64_t status;
    if (span_equals(name, "grpc-status"))
        answer->grpc_status = resp_number_read(value, 999, &status) ? (int)status : -1;
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
 * host, else as client_ask(). The answer's client is to be closed in any case.
 */
static int call(const struct rls_options *options, const char *path, struct span request,
                struct rls_answer *answer, struct stint_error *error)
{
    struct client_answer received;
    *answer = (struct rls_answer){.grpc_status = -1};
    int code = open_client(options, answer, error);
    if (code == 0)
        code = client_ask(answer->client, path, &request, 0, &received, error);
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

/* ---- What is asked --------------------------------------------------------------------------- */

/* A message behind its prefix; to be freed. NULL: no memory. */
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

static uint8_t *pack_ask(struct rls_options *options, size_t *len)
{
    Pb__RateLimitRequest *request = &options->ask.request;
    request->domain = bytes_of(span_of_text(options->domain));
    request->descriptors = options->ask.descriptor_list;
    for (size_t i = 0; i < request->n_descriptors; i++) {
        request->descriptors[i]->is_negative_hits = options->is_refund;
        /* The request's own hits cannot be 0: there, unset is 1. */
        request->descriptors[i]->hits_addend = options->has_hits ? &options->ask.hits : NULL;
    }
    return pack(&request->base, len);
}

static uint8_t *pack_health(struct rls_options *options, size_t *len)
{
    Pb__HealthCheckRequest request = PB__HEALTH_CHECK_REQUEST__INIT;
    request.service = bytes_of(span_of_text(options->service));
    return pack(&request.base, len);
}

/* ---- What is answered ------------------------------------------------------------------------ */

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

/* All of it, as proto3 has it in JSON, but with defaults told. */
static json_t *response_json(const Pb__RateLimitResponse *response)
{
    json_t *statuses = json_array();
    for (size_t i = 0; i < response->n_statuses; i++)
        json_array_append_new(statuses, status_json(response->statuses[i]));
    return json_pack("{s:s, s:o, s:o*}", "overallCode",
                     rls_code_name((enum rls_code)response->overall_code), "statuses", statuses,
                     "responseHeadersToAdd",
                     response->n_response_headers_to_add > 0 ? headers_json(response) : NULL);
}

static void print_limit(const Pb__RateLimitResponse__DescriptorStatus *status)
{
    const Pb__RateLimitResponse__RateLimit *limit = status->current_limit;
    struct formatted formatted;
    if (limit == NULL) {
        fputs(status->limit_remaining == RLS_UNLIMITED
                  ? "unlimited"
                  : "no limit: no rule of the domain matches, or the domain has no rules",
              stdout);
        return;
    }
    printf("%s left of %s per ", format_count(&formatted, status->limit_remaining),
           format_count(&(struct formatted){0}, limit->requests_per_unit));
    if (multiplier_of(limit) != 1)
        printf("%" PRIu32 " ", multiplier_of(limit));
    fputs(unit_name(limit), stdout);
    if (limit->name.len > 0) {
        fputs(", ", stdout);
        print_escaped(stdout, text_of(limit->name));
    }
    const Pb__Duration *reset = status->duration_until_reset;
    if (reset != NULL && reset->seconds >= 0)
        printf(", more in %s",
               format_duration(&formatted, (uint64_t)reset->seconds * NS_PER_S +
                                               (uint64_t)(reset->nanos > 0 ? reset->nanos : 0)));
}

/* A line for each descriptor of the question. */
static void print_response(const Pb__RateLimitResponse *response,
                           const Pb__RateLimitRequest *request)
{
    printf("%s\n", rls_code_name((enum rls_code)response->overall_code));
    for (size_t i = 0; i < response->n_statuses; i++) {
        const Pb__RateLimitResponse__DescriptorStatus *status = response->statuses[i];
        const Pb__RateLimitDescriptor *asked =
            i < request->n_descriptors ? request->descriptors[i] : NULL;
        fputs("  ", stdout);
        for (size_t j = 0; asked != NULL && j < asked->n_entries; j++) {
            fputs(j > 0 ? "," : "", stdout);
            print_escaped(stdout, text_of(asked->entries[j]->key));
            fputc('=', stdout);
            print_escaped(stdout, text_of(asked->entries[j]->value));
        }
        printf("%s%s, ", asked != NULL ? ": " : "", rls_code_name((enum rls_code)status->code));
        print_limit(status);
        fputc('\n', stdout);
    }
    for (size_t i = 0; i < response->n_response_headers_to_add; i++) {
        fputs("  ", stdout);
        print_escaped(stdout, text_of(response->response_headers_to_add[i]->key));
        fputs(": ", stdout);
        print_escaped(stdout, text_of(response->response_headers_to_add[i]->value));
        fputc('\n', stdout);
    }
}

static int tell_limits(const struct rls_options *options, struct span message)
{
    Pb__RateLimitResponse *response =
        pb__rate_limit_response__unpack(NULL, message.len, message.ptr);
    if (response == NULL)
        return print_failure("%s: the answer is no RateLimitResponse", options->server);
    if (options->json)
        (void)json_text_print(response_json(response), false);
    else
        print_response(response, &options->ask.request);
    int code = (int)response->overall_code;
    pb__rate_limit_response__free_unpacked(response, NULL);
    return code < 0 ? CMD_BAD_INPUT : code == RLS_CODE_OK ? CMD_DONE : CMD_DENIED;
}

static int tell_health(const struct rls_options *options, struct span message)
{
    static const char *const names[] = {"UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"};
    Pb__HealthCheckResponse *response =
        pb__health_check_response__unpack(NULL, message.len, message.ptr);
    if (response == NULL)
        return print_failure("%s: the answer is no HealthCheckResponse", options->server);
    int status = (int)response->status;
    pb__health_check_response__free_unpacked(response, NULL);
    if (status < 0 || status > HEALTH_SERVICE_UNKNOWN)
        return print_failure("%s: no such status", options->server);
    if (options->json)
        (void)json_text_print(json_pack("{s:s}", "status", names[status]), false);
    else
        puts(names[status]);
    return status == HEALTH_SERVING ? CMD_DONE : CMD_DENIED;
}

/* ---- The commands ---------------------------------------------------------------------------- */

/* By enum rls_mode. */
static const struct {
    const char *path;
    uint8_t *(*pack)(struct rls_options *options, size_t *len);
    int (*tell)(const struct rls_options *options, struct span message);
} methods[] = {
    {"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", pack_ask, tell_limits},
    {"/grpc.health.v1.Health/Check", pack_health, tell_health},
};

static int tell(const struct rls_options *options, const struct rls_answer *answer)
{
    if (answer->grpc_status == GRPC_OK)
        return methods[options->mode].tell(options, answer->message);
    const char *name = grpc_status_name(answer->grpc_status);
    return print_failure("%s: %s%s%s", options->server, name, name[0] != '\0' ? ": " : "",
                         answer->reason);
}

/* The mode is the last word of argv[0]. */
static int run(int argc, char **argv)
{
    enum rls_mode mode = (enum rls_mode)cmd_index(rls_commands, argv[0]);
    static struct rls_options options; /* too large for a stack */
    struct rls_answer answer;
    struct stint_error error;
    size_t len = 0;
    parse_options(&options, mode, argc, argv);
    uint8_t *request = methods[mode].pack(&options, &len);
    if (request == NULL)
        return print_failure("out of memory");
    int code = call(&options, methods[mode].path, span_of(request, len), &answer, &error);
    int exit_code = code == 0 ? tell(&options, &answer) : print_failure("%s", error.message);
    client_close(answer.client);
    free(request);
    return code == STINT_E_SYNTAX ? CMD_BAD_USAGE : exit_code;
}

/* In the order of enum rls_mode. */
const struct cmd rls_commands[] = {
    {"ask", "one question, as Envoy asks it", .run = run},
    {"health", "whether a server serves", .run = run},
    {.name = NULL},
};
