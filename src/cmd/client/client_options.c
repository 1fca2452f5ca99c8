/* SPDX-License-Identifier: MIT */
/* The options of a command line that choose the server and the way to it. */
#define _GNU_SOURCE
#include "cmd/client/client.h"
#include "cmd/lib/args.h"

#include <stdlib.h>

enum {
    OPTION_SERVER = 0x400, /* beyond those of any command */
    OPTION_TOKEN_FILE,
    OPTION_CA_FILE,
    OPTION_CERT_FILE,
    OPTION_KEY_FILE,
    OPTION_TIMEOUT,
    OPTION_INSECURE,
};

static const struct argp_option options_known[] = {
    {"server", OPTION_SERVER, "URL", 0,
     "http://HOST[:PORT], https://HOST[:PORT] or unix:/PATH (default: STINT_URL of the "
     "environment, or " CLIENT_SERVER_DEFAULT ")",
     0},
    {"token-file", OPTION_TOKEN_FILE, "FILE", 0,
     "Send the first line of FILE as a token (default: STINT_TOKEN_FILE of the environment)", 0},
    {"ca-file", OPTION_CA_FILE, "FILE", 0,
     "TLS: certificates that may sign the server's (default: those that the system trusts)", 0},
    {"cert-file", OPTION_CERT_FILE, "FILE", 0, "TLS: show this certificate (PEM)", 0},
    {"key-file", OPTION_KEY_FILE, "FILE", 0, "TLS: the key of --cert-file (PEM)", 0},
    {"timeout", OPTION_TIMEOUT, "DURATION", 0, "How long an answer may take (default 5s)", 0},
    {"insecure", OPTION_INSECURE, NULL, 0,
     "Send a token unencrypted to other hosts too, and believe any certificate", 0},
    {0},
};

static const char *from_environment(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static error_t end(const struct client_options *options, struct argp_state *state)
{
    if (options->key_file != NULL && options->cert_file == NULL)
        argp_error(state, "--key-file is the key of a certificate; expected --cert-file too");
    return 0;
}

static error_t parse_option(int key, char *value, struct argp_state *state)
{
    struct client_options *options = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        options->server = from_environment("STINT_URL");
        options->token_file = from_environment("STINT_TOKEN_FILE");
        return 0;
    case OPTION_SERVER:
        options->server = value;
        return 0;
    case OPTION_TOKEN_FILE:
        options->token_file = value;
        return 0;
    case OPTION_CA_FILE:
        options->ca_file = value;
        return 0;
    case OPTION_CERT_FILE:
        options->cert_file = value;
        return 0;
    case OPTION_KEY_FILE:
        options->key_file = value;
        return 0;
    case OPTION_TIMEOUT:
        options->timeout_ns = args_duration(state, "--timeout", value);
        if (options->timeout_ns == 0)
            argp_error(state, "--timeout must be longer than 0s");
        return 0;
    case OPTION_INSECURE:
        options->insecure = true;
        return 0;
    case ARGP_KEY_END:
        return end(options, state);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp client_argp = {.options = options_known, .parser = parse_option};
static const struct argp argp_without_server = {
    .options = options_known + 1, /* --server is the first */
    .parser = parse_option,
};

const struct argp_child client_children[] = {
    {.argp = &client_argp, .header = "Server:", .group = 8}, {0}};
const struct argp_child client_children_without_server[] = {
    {.argp = &argp_without_server, .header = "Server:", .group = 8}, {0}};
