/* SPDX-License-Identifier: MIT */
/* From texts to stores: names, URLs out of files, certificates, and the servers that share them. */
#define _GNU_SOURCE
#include "cmd/serve/serve_stores.h"

#include "cmd/store/store_word.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(STORE_NAME_SIZE > STORE_WORD_NAME_MAX, "a name fits");

/* ---- Names ----------------------------------------------------------------------------------- */

static int add_name(struct serve_store_names *names, struct span name, struct stint_error *error)
{
    for (size_t i = 0; i < names->n_names; i++)
        if (span_equals(name, names->names[i]))
            return err_set(error, STINT_E_MISMATCH, "store: there are two that are called %s%s",
                           names->names[i],
                           span_equals(name, RULES_STORE_DEFAULT)
                               ? ", as a store without a name is: expected NAME=URL for the others"
                               : "");
    char *text = names->texts[names->n_names];
    memcpy(text, name.ptr, name.len);
    text[name.len] = '\0';
    names->names[names->n_names++] = text;
    if (span_equals(name, RULES_STORE_DEFAULT))
        names->default_store = names->n_names;
    return 0;
}

static int read_names(const struct serve_settings *settings, struct serve_store_names *names,
                      struct stint_error *error)
{
    int code = 0;
    *names = (struct serve_store_names){.n_names = 0};
    if (settings->store.n_texts > STORES_MAX)
        return err_set(error, STINT_E_RANGE, "store: expected at most %d stores, found %zu",
                       STORES_MAX, settings->store.n_texts);
    for (size_t i = 0; i < settings->store.n_texts && code == 0; i++) {
        struct store_word word;
        code = store_word_read(&word, settings->store.texts[i], error);
        if (code == 0)
            code = add_name(names, word.name, error);
    }
    return code;
}

static uint8_t on_error(const struct serve_settings *settings)
{
    static const uint8_t choices[] = {RULE_STORE_ERROR_ERROR, RULE_STORE_ERROR_DENY,
                                      RULE_STORE_ERROR_ALLOW, RULE_STORE_ERROR_LOCAL};
    return choices[settings->store_on_error];
}

/*
 * `error` is for requests without a rule; a rule denies. With --compat envoyproxy rules return an
 * error, too: Envoy's failure_mode_deny decides then.
 */
int serve_store_rules(const struct serve_settings *settings, struct serve_store_names *names,
                      struct rules_load_options *options, struct stint_error *error)
{
    uint8_t choice = on_error(settings);
    bool denies = choice == RULE_STORE_ERROR_ERROR && !settings->is_compat;
    int code = read_names(settings, names, error);
    options->stores = names->names;
    options->n_stores = names->n_names;
    options->default_store = names->default_store;
    options->default_on_error = denies ? RULE_STORE_ERROR_DENY : choice;
    return code;
}

/* ---- URLs ------------------------------------------------------------------------------------ */

static int read_url(struct serve_stores *stores, size_t i, const char *text,
                    struct stint_error *error)
{
    struct stint_error why;
    struct store_word word;
    struct store_url *url = &stores->configs[i].url;
    int code = store_word_read(&word, text, &why);
    if (code == 0)
        code = word.is_file ? store_word_file(url, word.text, &why)
                            : store_url_parse(url, word.text, &why);
    return code == 0 ? 0
                     : err_set(error, code, "store %s: %s", stores->names.names[i], why.message);
}

static bool any_tls(const struct serve_stores *stores)
{
    for (size_t i = 0; i < stores->names.n_names; i++)
        if (stores->configs[i].url.is_tls)
            return true;
    return false;
}

static int load_tls(struct serve_stores *stores, const struct serve_settings *settings,
                    struct stint_error *error)
{
    const struct upstream_tls_paths paths = {
        .ca_file = settings->store_ca_file,
        .cert_file = settings->store_cert_file,
        .key_file = settings->store_key_file,
    };
    if (paths.key_file != NULL && paths.cert_file == NULL)
        return err_set(error, STINT_E_MISMATCH, "store_key_file goes with store_cert_file");
    if (any_tls(stores))
        return upstream_tls_load(&stores->tls, &paths, error);
    return paths.ca_file == NULL && paths.cert_file == NULL
               ? 0
               : err_set(error, STINT_E_MISMATCH,
                         "store_ca_file and store_cert_file are for stores in TLS, and none is: "
                         "expected rediss:// or valkeys://");
}

static void configure(struct serve_stores *stores, const struct serve_settings *settings)
{
    for (size_t i = 0; i < stores->names.n_names; i++) {
        struct store_config *config = &stores->configs[i];
        config->tls = config->url.is_tls ? stores->tls : NULL;
        config->name = stores->names.names[i];
        config->prefix = settings->store_prefix;
        config->reply_ns = settings->store_timeout;
        config->connect_ns = settings->store_connect_timeout;
        config->lease_keys = settings->lease_keys;
        config->denials = settings->deny_cache_max > 0 ? settings->deny_cache : 0;
        config->deny_cache_max_ns = settings->deny_cache_max;
        config->failover_policy = (enum failover_policy)settings->after_failover;
    }
}

/* ---- Sharing servers ------------------------------------------------------------------------- */

static bool has(const struct text_list *names, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(names->texts[i], name) == 0)
            return true;
    return false;
}

static int check_nodes(const struct serve_settings *settings, struct stint_error *error)
{
    const struct text_list *names = &settings->store_node_names;
    const char *own = settings->store_node;
    for (size_t i = 0; i < names->n_texts; i++)
        if (has(names, i, names->texts[i]))
            return err_set(error, STINT_E_MISMATCH, "store_node_names: %s is there twice",
                           names->texts[i]);
    if (names->n_texts > 0 && settings->store_nodes > 1 && names->n_texts != settings->store_nodes)
        return err_set(error, STINT_E_MISMATCH, "store_nodes is %u, and store_node_names has %zu",
                       (unsigned)settings->store_nodes, names->n_texts);
    if ((own == NULL) != (names->n_texts == 0) || (own != NULL && !has(names, names->n_texts, own)))
        return err_set(error, STINT_E_MISMATCH,
                       "store_node is to be one of store_node_names, and these are not");
    return 0;
}

static int name_nodes(struct serve_stores *stores, const struct serve_settings *settings,
                      struct stint_error *error)
{
    const struct text_list *names = &settings->store_node_names;
    struct evaluation_stores *evaluation = &stores->evaluation;
    int code = check_nodes(settings, error);
    if (code != 0)
        return code;
    evaluation->nodes = (unsigned)settings->store_nodes;
    if (names->n_texts > 0) {
        evaluation->nodes = (unsigned)names->n_texts;
        evaluation->node = settings->store_node;
        evaluation->node_names = names->texts;
    }
    evaluation->n_stores = stores->names.n_names;
    evaluation->labels = stores->names.names;
    for (size_t i = 0; i < stores->names.n_names; i++)
        stores->systems[i] = stores->configs[i].url.kind == STORE_MEMCACHED ? "memcached" : "redis";
    evaluation->systems = stores->systems;
    evaluation->items = evaluation->throttle = stores->names.default_store;
    evaluation->timeout_ns = settings->store_timeout;
    evaluation->items_on_error = on_error(settings);
    return 0;
}

/* Counters have no rules that could name a store. */
static int choose_counters(struct serve_stores *stores, const struct serve_settings *settings,
                           struct stint_error *error)
{
    const struct serve_store_names *names = &stores->names;
    const char *chosen = settings->store_counters;
    stores->evaluation.counters = chosen == NULL ? names->default_store : 0;
    if (chosen == NULL || strcmp(chosen, "none") == 0)
        return 0;
    for (size_t i = 0; i < names->n_names; i++)
        if (strcmp(names->names[i], chosen) == 0)
            stores->evaluation.counters = i + 1;
    return stores->evaluation.counters > 0
               ? 0
               : err_set(error, STINT_E_MISMATCH,
                         "store_counters: there is no store %s: expected the name of one of the "
                         "stores, or none for the table",
                         chosen);
}

/* ---- All of it ------------------------------------------------------------------------------- */

static int open_all(struct serve_stores *stores, const struct serve_settings *settings,
                    struct stint_error *error)
{
    int code = read_names(settings, &stores->names, error);
    for (size_t i = 0; i < stores->names.n_names && code == 0; i++)
        code = read_url(stores, i, settings->store.texts[i], error);
    if (code == 0)
        code = load_tls(stores, settings, error);
    if (code == 0)
        code = name_nodes(stores, settings, error);
    if (code == 0)
        code = choose_counters(stores, settings, error);
    configure(stores, settings);
    return code;
}

int serve_stores_open(struct serve_stores **stores, const struct serve_settings *settings,
                      struct stint_error *error)
{
    *stores = calloc(1, sizeof(**stores));
    if (*stores == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for the settings");
    int code = open_all(*stores, settings, error);
    if (code != 0) {
        serve_stores_close(*stores);
        *stores = NULL;
    }
    return code;
}

void serve_stores_close(struct serve_stores *stores)
{
    if (stores == NULL)
        return;
    upstream_tls_free(stores->tls);
    explicit_bzero(stores->configs, sizeof(stores->configs));
    free(stores);
}
