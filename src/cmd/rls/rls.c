/* SPDX-License-Identifier: MIT */
/* `stint rls`: calls Envoy's rate limit service, one call for each subcommand. */
#define _GNU_SOURCE
#include "base/ns.h"
#include "base/wide_int.h"
#include "cmd/client/client.h"
#include "cmd/lib/args.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"
#include "cmd/rls/rls_message.h"
#include "proto/grpc/grpc.h"
#include "proto/grpc/health.h"
#include "proto/grpc/rls_limit.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

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
