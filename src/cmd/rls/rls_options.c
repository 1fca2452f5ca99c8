/* SPDX-License-Identifier: MIT */
/* The command lines of `stint rls ask`, `load` and `health`. */
#define _GNU_SOURCE
#include "base/ns.h"
#include "cmd/lib/args.h"
#include "cmd/rls/rls.h"

#include <stdlib.h>

#define TIMEOUT_NS_DEFAULT (5 * NS_PER_S)
#define CONNECTIONS_MAX 1000
#define RATE_MAX 10000000
#define SERVER_DEFAULT "127.0.0.1:8081"

enum {
    OPTION_DOMAIN = 256,
    OPTION_DESCRIPTOR,
    OPTION_HITS,
    OPTION_REFUND,
    OPTION_JSON,
    OPTION_SERVICE,
    OPTION_RATE,
    OPTION_DURATION,
    OPTION_CONNECTIONS,
    OPTION_KEYS,
    OPTION_SEED,
    OPTION_TLS,
    OPTION_CA_FILE,
    OPTION_CERT_FILE,
    OPTION_KEY_FILE,
    OPTION_TOKEN_FILE,
    OPTION_TIMEOUT,
    OPTION_INSECURE,
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
#define WHOM                                                                                       \
    {"tls", OPTION_TLS, NULL, 0, "Speak TLS; else HTTP/2 in the clear", 3},                        \
        {"ca-file",                                                                                \
         OPTION_CA_FILE,                                                                           \
         "FILE",                                                                                   \
         0,                                                                                        \
         "Who may sign the server's certificate (default: whom the system trusts)",                \
         3},                                                                                       \
        {"cert-file", OPTION_CERT_FILE, "FILE", 0, "Show this certificate (PEM)", 3},              \
        {"key-file", OPTION_KEY_FILE, "FILE", 0, "The key of --cert-file (PEM)", 3},               \
        {"token-file",                                                                             \
         OPTION_TOKEN_FILE,                                                                        \
         "FILE",                                                                                   \
         0,                                                                                        \
         "Send the first line of FILE as a token (default: STINT_TOKEN_FILE of the environment)",  \
         3},                                                                                       \
        {"timeout",                                                                                \
         OPTION_TIMEOUT,                                                                           \
         "DURATION",                                                                               \
         0,                                                                                        \
         "How long connecting, and then an answer, may take (default 5s)",                         \
         3},                                                                                       \
    {                                                                                              \
        "insecure", OPTION_INSECURE, NULL, 0,                                                      \
            "Send a token unencrypted to other hosts too, and believe any certificate", 3          \
    }

static const struct argp_option options_of_ask[] = {WHAT, JSON, WHOM, {0}};
static const struct argp_option options_of_health[] = {
    {"service", OPTION_SERVICE, "NAME", 0, "Of one service (default: of the whole server)", 1},
    JSON,
    WHOM,
    {0}};
static const struct argp_option options_of_load[] = {
    WHAT,
    {"rate", OPTION_RATE, "N", 0, "Calls a second (default 1,000)", 1},
    {"duration", OPTION_DURATION, "DURATION", 0, "For how long (default 10s)", 1},
    {"connections", OPTION_CONNECTIONS, "N", 0, "That share the calls (default 1)", 1},
    {"keys", OPTION_KEYS, "N", 0,
     "A value's {} becomes a random number below N (default 1,000,000)", 1},
    {"seed", OPTION_SEED, "N", 0, "Of those numbers (default 1)", 1},
    JSON,
    WHOM,
    {0}};

static const char doc_of_ask[] =
    "Asks Envoy's rate limit service one question, as Envoy does.\v"
    "SERVER is HOST:PORT or unix:/PATH (default " SERVER_DEFAULT ").\n"
    "Exit codes: 0 OK, 3 OVER_LIMIT, 1 no answer could be had, 2 bad usage. See stint-rls(1).";
static const char doc_of_load[] =
    "Asks Envoy's rate limit service at a steady rate, whether it keeps up or not, and tells how "
    "long answers took from the instant at which each call was due.\v"
    "SERVER is HOST:PORT or unix:/PATH (default " SERVER_DEFAULT ").\n"
    "Exit codes: 0 all calls were answered, 1 some were not, 2 bad usage. See stint-rls(1).";
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

static void check_together(struct rls_options *options, struct argp_state *state)
{
    const struct rls_evaluation *evaluation = &options->evaluation;
    struct rls_link_options *link = &options->link;
    if (options->mode != RLS_HEALTH &&
        (evaluation->domain == NULL || evaluation->domain[0] == '\0' ||
         evaluation->n_descriptors == 0))
        argp_error(state, "expected --domain DOMAIN and --descriptor K=V[,K=V...]");
    if (!link->is_tls &&
        (link->ca_file != NULL || link->cert_file != NULL || link->key_file != NULL))
        argp_error(state, "certificates are of TLS; expected --tls too");
    if (link->key_file != NULL && link->cert_file == NULL)
        argp_error(state, "--key-file is the key of a certificate; expected --cert-file too");
    if (link->server == NULL)
        link->server = SERVER_DEFAULT;
    link->timeout_ns = options->timeout_ns;
    link->is_secret = options->token_file != NULL;
}

static bool parse_load(struct rls_options *options, int key, char *value, struct argp_state *state)
{
    switch (key) {
    case OPTION_RATE:
        options->rate = args_number(state, "--rate", value, RATE_MAX);
        return true;
    case OPTION_DURATION:
        options->duration_ns = args_duration(state, "--duration", value);
        return true;
    case OPTION_CONNECTIONS:
        options->connections =
            (unsigned)args_number(state, "--connections", value, CONNECTIONS_MAX);
        return true;
    case OPTION_KEYS:
        options->keys = args_number(state, "--keys", value, UINT64_MAX);
        return true;
    case OPTION_SEED:
        options->seed = args_number(state, "--seed", value, UINT64_MAX);
        return true;
    default:
        return false;
    }
}

static bool parse_link(struct rls_options *options, int key, char *value, struct argp_state *state)
{
    struct rls_link_options *link = &options->link;
    switch (key) {
    case OPTION_TLS:
        link->is_tls = true;
        return true;
    case OPTION_CA_FILE:
        link->ca_file = value;
        return true;
    case OPTION_CERT_FILE:
        link->cert_file = value;
        return true;
    case OPTION_KEY_FILE:
        link->key_file = value;
        return true;
    case OPTION_TOKEN_FILE:
        options->token_file = value;
        return true;
    case OPTION_TIMEOUT:
        options->timeout_ns = args_duration(state, "--timeout", value);
        if (options->timeout_ns == 0)
            argp_error(state, "--timeout must be longer than 0s");
        return true;
    case OPTION_INSECURE:
        link->is_insecure = true;
        return true;
    default:
        return false;
    }
}

static error_t parse_option(int key, char *value, struct argp_state *state)
{
    struct rls_options *options = state->input;
    if (parse_load(options, key, value, state) || parse_link(options, key, value, state))
        return 0;
    switch (key) {
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
    case ARGP_KEY_ARG:
        if (options->link.server != NULL)
            argp_error(state, "expected one SERVER, found '%s' too", value);
        options->link.server = value;
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
        [RLS_ASK] = {options_of_ask, parse_option, "[SERVER]", doc_of_ask, NULL, NULL, NULL},
        [RLS_LOAD] = {options_of_load, parse_option, "[SERVER]", doc_of_load, NULL, NULL, NULL},
        [RLS_HEALTH] = {options_of_health, parse_option, "[SERVER]", doc_of_health, NULL, NULL,
                        NULL},
    };
    const char *token_file = getenv("STINT_TOKEN_FILE");
    *options = (struct rls_options){
        .mode = mode,
        .service = "",
        .token_file = token_file != NULL && token_file[0] != '\0' ? token_file : NULL,
        .timeout_ns = TIMEOUT_NS_DEFAULT,
        .rate = 1000,
        .duration_ns = 10 * NS_PER_S,
        .connections = 1,
        .keys = 1000000,
        .seed = 1,
    };
    args_parse(&argps[mode], argc, argv, options);
}
