/* SPDX-License-Identifier: MIT */
/* The command lines of `stint rls ask` and `health`. */
#define _GNU_SOURCE
#include "cmd/lib/args.h"
#include "cmd/rls/rls.h"

#include <stdio.h>

#define SERVER_DEFAULT "127.0.0.1:8081"

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
    set_url(state, options);
}

void rls_options_parse(struct rls_options *options, enum rls_mode mode, int argc, char **argv)
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
