/* SPDX-License-Identifier: MIT */
/* Reads --store URL, its TLS files and its timeout. */
#define _GNU_SOURCE
#include "cmd/store/store_given.h"

#include "base/ns.h"
#include "cmd/lib/args.h"
#include "cmd/store/store_word.h"

#define TIMEOUT_NS_DEFAULT (2 * NS_PER_S)

enum { OPTION_STORE = 640, OPTION_TIMEOUT, OPTION_CA_FILE, OPTION_CERT_FILE, OPTION_KEY_FILE };

static const struct argp_option options_known[] = {
    {"store", OPTION_STORE, "URL", 0,
     "A shared store, such as redis://127.0.0.1:6379, or @FILE that has it in its first line; see "
     "stint-store(1)",
     1},
    {"store-timeout", OPTION_TIMEOUT, "DURATION", 0,
     "How long connecting, and then each answer, may take (default 2s)", 1},
    {"ca-file", OPTION_CA_FILE, "FILE", 0,
     "CA certificates for the store's certificate (default: those of the system)", 1},
    {"cert-file", OPTION_CERT_FILE, "FILE", 0, "Client certificate for the store (PEM)", 1},
    {"key-file", OPTION_KEY_FILE, "FILE", 0, "The key of --cert-file (PEM)", 1},
    {0},
};

static void take_url(struct store_given *given, struct argp_state *state, const char *text)
{
    struct stint_error error;
    if (given->text != NULL)
        argp_error(state, "expected one --store");
    if (store_word_url(&given->url, text, &error) != 0)
        argp_error(state, "%s", error.message);
    given->text = text;
}

static void check(const struct store_given *given, struct argp_state *state)
{
    const struct upstream_tls_paths *paths = &given->paths;
    bool has_files = paths->ca_file != NULL || paths->cert_file != NULL || paths->key_file != NULL;
    if (given->text == NULL && (has_files || given->timeout_ns != TIMEOUT_NS_DEFAULT))
        argp_error(state, "%s without --store: expected --store URL, too",
                   has_files ? "files of TLS" : "--store-timeout");
    if (has_files && !given->url.is_tls)
        argp_error(state, "--ca-file and --cert-file go with rediss:// and valkeys://");
    if (paths->key_file != NULL && paths->cert_file == NULL)
        argp_error(state, "--key-file goes with --cert-file");
}

static error_t parse_option(int option, char *value, struct argp_state *state)
{
    struct store_given *given = state->input;
    switch (option) {
    case ARGP_KEY_INIT:
        given->timeout_ns = TIMEOUT_NS_DEFAULT;
        return 0;
    case OPTION_STORE:
        take_url(given, state, value);
        return 0;
    case OPTION_TIMEOUT:
        given->timeout_ns = args_duration(state, "--store-timeout", value);
        if (given->timeout_ns == 0)
            argp_error(state, "--store-timeout must be longer than 0s");
        return 0;
    case OPTION_CA_FILE:
        given->paths.ca_file = value;
        return 0;
    case OPTION_CERT_FILE:
        given->paths.cert_file = value;
        return 0;
    case OPTION_KEY_FILE:
        given->paths.key_file = value;
        return 0;
    case ARGP_KEY_END:
        check(given, state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp store_given_argp = {.options = options_known, .parser = parse_option};

int store_given_tls(const struct store_given *given, struct upstream_tls **tls,
                    struct stint_error *error)
{
    *tls = NULL;
    return given->url.is_tls ? upstream_tls_load(tls, &given->paths, error) : 0;
}
