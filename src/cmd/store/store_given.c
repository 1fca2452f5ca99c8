/* SPDX-License-Identifier: MIT */
/* Reads --store URL, its TLS files and its timeout. */
#define _GNU_SOURCE
#include "cmd/store/store_given.h"

#include "base/ns.h"
#include "cmd/lib/args.h"
#include "cmd/store/store_word.h"

#define TIMEOUT_NS_DEFAULT (2 * NS_PER_S)

static void take_url(struct argp_state *state, void *input, char *text)
{
    struct store_given *given = input;
    struct stint_error error;
    if (given->text != NULL)
        argp_error(state, "expected one --store");
    if (store_word_url(&given->url, text, &error) != 0)
        argp_error(state, "%s", error.message);
    given->text = text;
}

static void check(struct argp_state *state, void *input)
{
    const struct store_given *given = input;
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

static void begin(void *given)
{
    ((struct store_given *)given)->timeout_ns = TIMEOUT_NS_DEFAULT;
}

static const struct args_option options_known[] = {
    {"store", "URL", 1,
     "A shared store, such as redis://127.0.0.1:6379, or @FILE that has it in its first line; see "
     "stint-store(1)",
     ARGS_OWN(take_url)},
    {"store-timeout", "DURATION", 1,
     "How long connecting, and then each answer, may take (default 2s)",
     ARGS_TIMEOUT(struct store_given, timeout_ns)},
    {"ca-file", "FILE", 1,
     "CA certificates for the store's certificate (default: those of the system)",
     ARGS_TEXT(struct store_given, paths.ca_file)},
    {"cert-file", "FILE", 1, "Client certificate for the store (PEM)",
     ARGS_TEXT(struct store_given, paths.cert_file)},
    {"key-file", "FILE", 1, "The key of --cert-file (PEM)",
     ARGS_TEXT(struct store_given, paths.key_file)},
    {0},
};

const struct args_set store_given_set = {options_known, .begin = begin, .end = check};

int store_given_tls(const struct store_given *given, struct upstream_tls **tls,
                    struct stint_error *error)
{
    *tls = NULL;
    return given->url.is_tls ? upstream_tls_load(tls, &given->paths, error) : 0;
}
