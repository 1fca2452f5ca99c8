/* SPDX-License-Identifier: MIT */
/* `stint store check`: the command line, and the choice of the server of a URL. */
#define _GNU_SOURCE
#include "base/ns.h"
#include "cmd/lib/args.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"
#include "cmd/store/store_memcached.h"
#include "cmd/store/store_word.h"

#include <stdio.h>
#include <stdlib.h>

#define SAMPLES_DEFAULT 100
#define TIMEOUT_NS_DEFAULT (2 * NS_PER_S)

struct check {
    const char *text; /* the URL */
    struct store_url url;
    struct upstream_tls_paths paths;
    struct upstream_tls *tls;
    unsigned samples;
    uint64_t timeout_ns;
    bool is_json;
};

static const struct args_option options_known[] = {
    {"samples", "N", 1, "Number of round trips to measure (default 100)",
     ARGS_NUMBER(struct check, samples, STORE_SAMPLES_MAX)},
    {"timeout", "DURATION", 1, "How long connecting, and then each answer, may take (default 2s)",
     ARGS_TIMEOUT(struct check, timeout_ns)},
    {"json", NULL, 2, "Print one JSON object", ARGS_FLAG(struct check, is_json)},
    {"ca-file", "FILE", 3,
     "CA certificates for the server's certificate (default: those of the system)",
     ARGS_TEXT(struct check, paths.ca_file)},
    {"cert-file", "FILE", 3, "Client certificate (PEM)", ARGS_TEXT(struct check, paths.cert_file)},
    {"key-file", "FILE", 3, "The key of --cert-file (PEM)",
     ARGS_TEXT(struct check, paths.key_file)},
    {0},
};

static void set_url(struct argp_state *state, void *input, char *word)
{
    struct check *check = input;
    if (check->text != NULL)
        argp_error(state, "expected one URL, and found another word");
    check->text = word;
}

static void check_usage(struct argp_state *state, void *input)
{
    struct check *check = input;
    struct stint_error error;
    if (check->text == NULL)
        check->text = getenv("STINT_STORE");
    if (check->text == NULL)
        argp_error(state, "expected the URL of a store, such as redis://127.0.0.1:6379");
    if (store_word_url(&check->url, check->text, &error) != 0)
        argp_error(state, "%s", error.message);
    const struct upstream_tls_paths *paths = &check->paths;
    if (!check->url.is_tls && (paths->ca_file != NULL || paths->cert_file != NULL))
        argp_error(state,
                   "--ca-file and --cert-file go with rediss://, valkeys:// and memcacheds://");
    if (paths->key_file != NULL && paths->cert_file == NULL)
        argp_error(state, "--key-file goes with --cert-file");
}

static struct store_session_options options_of(const struct check *check)
{
    return (struct store_session_options){
        .url = &check->url,
        .database = check->url.database,
        .tls = check->tls,
        .timeout_ns = check->timeout_ns,
    };
}

/* Connects to the first of the URL's servers that answers; an error is that of the last one. */
static int open_any(const struct check *check, struct store_session **session,
                    struct store_findings *findings, struct stint_error *error)
{
    struct store_session_options options = options_of(check);
    int code = STINT_E_GONE;
    if (check->url.kind == STORE_REDIS_SENTINEL)
        options.database = 0;
    if (check->url.n_hosts == 0) {
        snprintf(findings->address, sizeof(findings->address), "%s", check->url.path);
        return store_session_open(session, &options, error);
    }
    for (unsigned i = 0; i < check->url.n_hosts && code != 0; i++) {
        options.host = &check->url.hosts[i];
        store_address(options.host, findings->address, sizeof(findings->address));
        code = store_session_open(session, &options, error);
    }
    return code;
}

/* From a sentinel to the master that it watches. */
static int go_to_master(const struct check *check, struct store_session **session,
                        struct store_findings *findings, struct stint_error *error)
{
    struct store_host master;
    struct store_session_options options = options_of(check);
    options.host = &master;
    if (strcmp(store_session_server(*session)->mode, "sentinel") != 0)
        return err_set(error, STINT_E_MISMATCH, "%s is no sentinel: expected %s://",
                       findings->address, check->url.is_tls ? "rediss" : "redis");
    int code = store_find_master(*session, check->url.master, &master, findings, error);
    if (code != 0)
        return code;
    store_session_close(*session);
    *session = NULL;
    store_address(&master, findings->address, sizeof(findings->address));
    return store_session_open(session, &options, error);
}

static int look(const struct check *check, struct store_session **session,
                struct store_findings *findings, struct stint_error *error)
{
    const struct store_session_options options = options_of(check);
    int code = open_any(check, session, findings, error);
    if (code == 0 && check->url.kind == STORE_REDIS_SENTINEL)
        code = go_to_master(check, session, findings, error);
    if (code == 0)
        code = store_look(*session, &check->url, check->samples, findings, error);
    if (code == 0 && strcmp(findings->mode, "cluster") == 0)
        code = store_look_around(*session, &options, findings, error);
    return code;
}

static int told(int code, bool is_fit)
{
    return code != 0 ? CMD_BAD_INPUT : is_fit ? CMD_DONE : CMD_DENIED;
}

static int check_redis(const struct check *check, struct stint_error *error)
{
    static struct store_findings findings;
    struct store_session *session = NULL;
    int code = look(check, &session, &findings, error);
    store_session_close(session);
    if (code != 0) {
        print_message("%s", error->message);
        return CMD_BAD_INPUT;
    }
    return told(store_report(&check->url, &findings, check->is_json), store_is_fit(&findings));
}

static int check_memcached(const struct check *check, struct stint_error *error)
{
    static struct memcached_findings findings[STORE_HOSTS_MAX];
    const struct memcached_check asked = {
        .url = &check->url,
        .tls = check->tls,
        .timeout_ns = check->timeout_ns,
        .samples = check->samples,
    };
    if (store_memcached_look(&asked, findings, error) != 0) {
        print_message("%s", error->message);
        return CMD_BAD_INPUT;
    }
    return told(store_memcached_report(&check->url, findings, check->is_json),
                store_memcached_is_fit(findings, check->url.n_hosts));
}

static int run(struct check *check, struct stint_error *error)
{
    if (check->url.is_tls && upstream_tls_load(&check->tls, &check->paths, error) != 0) {
        print_message("%s", error->message);
        return CMD_BAD_INPUT;
    }
    int code = check->url.kind == STORE_MEMCACHED ? check_memcached(check, error)
                                                  : check_redis(check, error);
    upstream_tls_free(check->tls);
    return code;
}

int store_check_main(int argc, char **argv)
{
    static const struct args_command command = {
        .set = {options_known, .word = set_url, .end = check_usage},
        .arguments = "[URL]",
        .doc = "Checks whether a Redis, Valkey or memcached can be the store of several servers, "
               "and its speed.\vURL is redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE] or "
               "valkey://, rediss:// with TLS, unix:/PATH, memcached://HOST[:PORT][,HOST...] "
               "(default: STINT_STORE of the environment, where other users of the machine do not "
               "see its password), or @FILE that has it in its first line.\n"
               "Exit codes: 0 fit, 3 not fit, 1 no answer, 2 bad usage. See stint-store(1)."};
    struct check check = {.samples = SAMPLES_DEFAULT, .timeout_ns = TIMEOUT_NS_DEFAULT};
    struct stint_error error;
    args_parse(&command, argc, argv, &check);
    return run(&check, &error);
}
