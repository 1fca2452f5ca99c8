/* SPDX-License-Identifier: MIT */
/* The options of a command line that choose the server and the way to it. */
#define _GNU_SOURCE
#include "cmd/client/client.h"
#include "cmd/lib/args.h"

#include <stdlib.h>

static const char *from_environment(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static const struct args_option options_known[] = {
    {"server", "URL", 0,
     "http://HOST[:PORT], https://HOST[:PORT] or unix:/PATH (default: STINT_URL of the "
     "environment, or " CLIENT_SERVER_DEFAULT ")",
     ARGS_TEXT(struct client_options, server)},
    {"token-file", "FILE", 0,
     "Send the first line of FILE as a token (default: STINT_TOKEN_FILE of the environment)",
     ARGS_TEXT(struct client_options, token_file)},
    {"ca-file", "FILE", 0,
     "TLS: certificates that may sign the server's (default: those that the system trusts)",
     ARGS_TEXT(struct client_options, ca_file)},
    {"cert-file", "FILE", 0, "TLS: show this certificate (PEM)",
     ARGS_TEXT(struct client_options, cert_file)},
    {"key-file", "FILE", 0, "TLS: the key of --cert-file (PEM)",
     ARGS_TEXT(struct client_options, key_file)},
    {"timeout", "DURATION", 0, "How long an answer may take (default 5s)",
     ARGS_TIMEOUT(struct client_options, timeout_ns)},
    {"insecure", NULL, 0,
     "Send a token unencrypted to other hosts too, and believe any certificate",
     ARGS_FLAG(struct client_options, insecure)},
    {0},
};

static void begin(void *input)
{
    struct client_options *options = input;
    options->server = from_environment("STINT_URL");
    options->token_file = from_environment("STINT_TOKEN_FILE");
}

static void check(struct argp_state *state, void *input)
{
    const struct client_options *options = input;
    if (options->key_file != NULL && options->cert_file == NULL)
        argp_error(state, "--key-file is the key of a certificate; expected --cert-file too");
}

const struct args_set client_set = {options_known, .begin = begin, .end = check};
const struct args_set client_set_without_server = {options_known + 1, .begin = begin,
                                                   .end = check}; /* --server is the first */
