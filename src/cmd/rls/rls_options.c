/* SPDX-License-Identifier: MIT */
/* The command lines of `stint rls ask` and `health`. */
#define _GNU_SOURCE
#include "cmd/lib/args.h"
#include "cmd/rls/rls.h"

#include <stdio.h>

#define SERVER_DEFAULT "127.0.0.1:8081"

enum {
    OPTION_DOMAIN = 256,
    OPTION_DESCRIPTOR,
    OPTION_HITS,
    OPTION_REFUND,
    OPTION_JSON,
    OPTION_SERVICE,
    OPTION_TLS,
};

#define JSON                                                                                       \
    {                                                                                              \
        "json", OPTION_JSON, NULL, 0, "Print one JSON object", 2                                   \
    }
#define WHAT                                                                                       \
    {"domain", OPTION_DOMAIN, "DOMAIN", 0, "Of the server's rules", 1},                            \
        {"descriptor",                                                                             \
         OPTION_DESCRIPTOR,                                                                        \
         "K=V[,K=V...]",                                                                           \
         0,                                                                                        \
         "What is asked for; several: all of them have to allow",                                  \
         1},                                                                                       \
        {"hits", OPTION_HITS, "N", 0, "Units of each descriptor (default 1); 0 only checks", 1},   \
    {                                                                                              \
        "refund", OPTION_REFUND, NULL, 0, "Give the hits back", 1                                  \
    }
#define CONNECTION                                                                                 \
    {                                                                                              \
        "tls", OPTION_TLS, NULL, 0, "Speak TLS; else HTTP/2 in the clear", 3                       \
    }

static const struct argp_option options_of_ask[] = {WHAT, JSON, CONNECTION, {0}};
static const struct argp_option options_of_health[] = {
    {"service", OPTION_SERVICE, "NAME", 0, "Of one service (default: of the whole server)", 1},
    JSON,
    CONNECTION,
    {0}};

static const char doc_of_ask[] =
    "Asks Envoy's rate limit service one question, as Envoy does.\v"
    "SERVER is HOST:PORT or unix:/PATH (default " SERVER_DEFAULT ").\n"
    "Exit codes: 0 OK, 3 OVER_LIMIT, 1 no answer could be had, 2 bad usage. See stint-rls(1).";
static const char doc_of_health[] =
    "Asks grpc.health.v1 whether a server serves.\v"
    "SERVER is HOST:PORT or unix:/PATH (default " SERVER_DEFAULT ").\n"
    "Exit codes: 0 it serves, 3 it does not, 1 no answer could be had, 2 bad usage. See "
    "stint-rls(1).";

static void add_descriptor(struct rls_evaluation *evaluation, struct argp_state *state, char *word)
{
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
static uint32_t hits_of(struct argp_state *state, const char *value)
{
    if (strcmp(value, "0") == 0)
        return 0;
    return (uint32_t)args_number(state, "--hits", value, UINT32_MAX);
}

/* SERVER as a URL. unix:/PATH stays as it is; an IPv6 address may come without brackets. */
static void set_url(struct rls_options *options, struct argp_state *state)
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

static void check_together(struct rls_options *options, struct argp_state *state)
{
    const struct rls_evaluation *evaluation = &options->evaluation;
    const struct client_options *client = &options->client;
    if (options->mode == RLS_ASK && (evaluation->domain == NULL || evaluation->domain[0] == '\0' ||
                                     evaluation->n_descriptors == 0))
        argp_error(state, "expected --domain DOMAIN and --descriptor K=V[,K=V...]");
    if (!client->is_tls && (client->ca_file != NULL || client->cert_file != NULL))
        argp_error(state, "certificates are of TLS; expected --tls too");
    set_url(options, state);
}

static error_t parse_option(int key, char *value, struct argp_state *state)
{
    struct rls_options *options = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &options->client;
        return 0;
    case OPTION_DOMAIN:
        options->evaluation.domain = value;
        return 0;
    case OPTION_DESCRIPTOR:
        add_descriptor(&options->evaluation, state, value);
        return 0;
    case OPTION_HITS:
        options->evaluation.hits = hits_of(state, value);
        options->evaluation.has_hits = true;
        return 0;
    case OPTION_REFUND:
        options->evaluation.is_refund = true;
        return 0;
    case OPTION_SERVICE:
        options->service = value;
        return 0;
    case OPTION_JSON:
        options->json = true;
        return 0;
    case OPTION_TLS:
        options->client.is_tls = true;
        return 0;
    case ARGP_KEY_ARG:
        if (options->server != NULL)
            argp_error(state, "expected one SERVER, found '%s' too", value);
        options->server = value;
        return 0;
    case ARGP_KEY_NO_ARGS:
        options->server = SERVER_DEFAULT;
        return 0;
    case ARGP_KEY_END:
        check_together(options, state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

void rls_options_parse(struct rls_options *options, enum rls_mode mode, int argc, char **argv)
{
    static const struct argp argps[] = {
        [RLS_ASK] = {options_of_ask, parse_option, "[SERVER]", doc_of_ask,
                     client_children_without_server, 0, 0},
        [RLS_HEALTH] = {options_of_health, parse_option, "[SERVER]", doc_of_health,
                        client_children_without_server, 0, 0},
    };
    *options = (struct rls_options){.mode = mode, .service = ""};
    args_parse(&argps[mode], argc, argv, options);
}
