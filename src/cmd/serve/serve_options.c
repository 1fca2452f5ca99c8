/* SPDX-License-Identifier: MIT */
/* Everything is read and checked here, and nothing is applied. */
#define _GNU_SOURCE
#include "cmd/serve/serve_options.h"

#include "algorithm/spec.h"
#include "base/buf.h"
#include "base/ns.h"
#include "cmd/rules/rules_files.h"
#include "cmd/serve/serve_stores.h"
#include "net/dashboard/dashboard.h"
#include "net/file.h"
#include "proto/http_fields.h"
#include "service/metrics/metrics.h"
#include "table/table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

/* ---- From settings to the options of a server ------------------------------------------------ */

#define CONTROL_SUFFIX ".control"

static unsigned styles_of(const struct text_list *names)
{
    unsigned styles = 0;
    for (size_t i = 0; i < names->n_texts; i++)
        styles |= http_style_named(span_of_text(names->texts[i]));
    return styles;
}

int serve_http_config(const struct serve_settings *settings, struct http_config **config,
                      struct stint_error *error)
{
    return http_config_new(
        config,
        &(struct http_config_options){
            .domain = settings->http_domain,
            .descriptors = (const char *const *)settings->http_descriptors.texts,
            .n_descriptors = settings->http_descriptors.n_texts,
            .trusted_proxies = (const char *const *)settings->http_trusted_proxies.texts,
            .n_trusted_proxies = settings->http_trusted_proxies.n_texts,
            .hosts = (const char *const *)settings->http_hosts.texts,
            .n_hosts = settings->http_hosts.n_texts,
            .origin_fields = {settings->http_address_field, settings->http_uri_field,
                              settings->http_method_field},
            .metrics_path = settings->metrics_path,
            .deny_status = (unsigned)settings->http_deny_status,
            .styles = styles_of(&settings->http_fields),
            .dashboard = span_of(dashboard_html, dashboard_html_len),
            .dashboard_policy = (const char *)dashboard_policy,
        },
        error);
}

static unsigned workers(const struct serve_settings *settings)
{
    unsigned processors = uv_available_parallelism();
    if (settings->workers > 0)
        return (unsigned)settings->workers;
    return processors < WORKERS_MAX ? processors : WORKERS_MAX;
}

static int set_addresses(enum port port, const struct text_list *texts, struct serve_owned *owned,
                         struct server_options *options, struct stint_error *error)
{
    if (texts->n_texts > SERVE_ADDRESSES_MAX)
        return err_set(error, STINT_E_RANGE, "more than %d addresses of port %s",
                       SERVE_ADDRESSES_MAX, port_name(port));
    for (size_t i = 0; i < texts->n_texts; i++) {
        int code = endpoint_parse(&owned->endpoints[port][i], texts->texts[i], error);
        if (code != 0)
            return code;
    }
    options->endpoints[port] = owned->endpoints[port];
    options->n_endpoints[port] = texts->n_texts;
    return 0;
}

static int set_tls(const struct serve_settings *settings, struct serve_owned *owned,
                   struct server_options *options, struct stint_error *error)
{
    if ((settings->tls_certificate == NULL) != (settings->tls_key == NULL))
        return err_set(error, STINT_E_MISMATCH,
                       "tls_certificate and tls_key belong together: one alone was given");
    owned->tls = (struct tls_paths){
        .certificate = settings->tls_certificate,
        .key = settings->tls_key,
        .client_ca = settings->tls_client_ca,
        .priorities = settings->tls_priorities,
    };
    options->tls = settings->tls_key != NULL ? &owned->tls : NULL;
    return 0;
}

static int set_watched(const struct serve_settings *settings, struct serve_owned *owned,
                       struct server_options *options, struct stint_error *error)
{
    const char *const others[] = {settings->config, settings->tokens, settings->tls_certificate,
                                  settings->tls_key, settings->tls_client_ca};
    const struct configured_pools *pools = &settings->pools;
    size_t n_others = sizeof(others) / sizeof(others[0]);
    owned->watched = calloc(settings->rules.n_texts + n_others + pools->n_pools, sizeof(char *));
    if (owned->watched == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for the settings");
    for (size_t i = 0; i < settings->rules.n_texts; i++)
        owned->watched[owned->n_watched++] = settings->rules.texts[i];
    for (size_t i = 0; i < n_others; i++)
        if (others[i] != NULL)
            owned->watched[owned->n_watched++] = others[i];
    for (size_t i = 0; i < pools->n_pools; i++)
        if (pools->pools[i].keys_file != NULL)
            owned->watched[owned->n_watched++] = pools->pools[i].keys_file;
    options->watched = owned->watched;
    options->n_watched = owned->n_watched;
    return 0;
}

/* A server with a state file has a control socket by default, so that it can be replaced. */
static int set_control(const struct serve_settings *settings, struct serve_owned *owned,
                       struct server_options *options, struct stint_error *error)
{
    options->control = settings->control;
    if (settings->control != NULL && strcmp(settings->control, "off") == 0)
        options->control = NULL;
    else if (settings->control == NULL && settings->state != NULL) {
        if (asprintf(&owned->control, "%s" CONTROL_SUFFIX, settings->state) < 0) {
            owned->control = NULL;
            return err_set(error, STINT_E_SYSTEM, "no memory for the settings");
        }
        options->control = owned->control;
    }
    return 0;
}

static void set_grpc(const struct serve_settings *settings, struct server_options *options)
{
    options->grpc_limits = (struct grpc_limits){
        .message_bytes = settings->grpc_message_size,
        .header_bytes = settings->grpc_header_size,
        .streams = settings->grpc_streams,
        .output_bytes = settings->grpc_output_size,
        .idle_frames = settings->grpc_idle_frames,
        .call_ns = settings->request_time > 0 ? settings->request_time : NS_PER_YEAR,
        .age_ns = settings->grpc_age,
        .age_grace_ns = settings->grpc_age_grace,
    };
    options->grpc_form = (struct rls_form){
        .styles = styles_of(&settings->grpc_fields),
        .limit_field = settings->grpc_limit_field,
        .remaining_field = settings->grpc_remaining_field,
        .reset_field = settings->grpc_reset_field,
        .has_metadata = settings->grpc_metadata,
        .denied_body = settings->grpc_denied_body != NULL ? span_of_text(settings->grpc_denied_body)
                                                          : span_of(NULL, 0),
    };
}

static void set_limits(const struct serve_settings *settings, struct server_options *options)
{
    options->connection_limits = (struct connection_limits){
        .connections = settings->connections,
        .per_address = settings->connections_per_address,
    };
    options->stream_limits = (struct stream_limits){
        .idle_ns = settings->idle_time,
        .request_ns = settings->request_time,
        .write_ns = settings->write_time,
    };
    options->resp_limits = (struct resp_limits){
        .request_bytes = settings->request_size,
        .argument_bytes = settings->argument_size,
        .arguments = settings->arguments,
        .output_bytes = settings->output_size,
    };
    options->http_limits = (struct http_limits){
        .header_bytes = settings->http_header_size,
        .body_bytes = settings->http_body_size,
        .output_bytes = settings->output_size,
    };
    options->http_stream_limits = (struct stream_limits){
        .idle_ns = settings->http_idle_time,
        .request_ns = settings->http_request_time,
        .write_ns = settings->http_answer_time,
    };
    options->memory_most = settings->connection_memory;
}

static enum sandbox_mode sandbox_mode(const char *name)
{
    return strcmp(name, "on") == 0    ? SANDBOX_ON
           : strcmp(name, "off") == 0 ? SANDBOX_OFF
                                      : SANDBOX_AUTO;
}

int serve_server_options(const struct serve_settings *settings, struct serve_owned *owned,
                         struct server_options *options, struct stint_error *error)
{
    const struct text_list *texts[PORTS] = {
        [PORT_RESP] = &settings->resp, [PORT_RESP_TLS] = &settings->resp_tls,
        [PORT_HTTP] = &settings->http, [PORT_HTTP_TLS] = &settings->http_tls,
        [PORT_GRPC] = &settings->grpc, [PORT_GRPC_TLS] = &settings->grpc_tls,
    };
    *owned = (struct serve_owned){0};
    int code = 0;
    for (int port = 0; port < PORTS && code == 0; port++)
        code = set_addresses((enum port)port, texts[port], owned, options, error);
    if (code == 0)
        code = set_tls(settings, owned, options, error);
    if (code == 0)
        code = set_watched(settings, owned, options, error);
    if (code == 0)
        code = set_control(settings, owned, options, error);
    set_limits(settings, options);
    set_grpc(settings, options);
    options->workers = workers(settings);
    options->auth_guesses = (unsigned)settings->auth_guesses;
    options->has_tokens = settings->tokens != NULL;
    options->is_insecure = settings->insecure;
    options->replaces = settings->replace;
    options->needs_rules = settings->ready_with_rules;
    options->drain_ns = settings->drain_time;
    options->watch_ns = settings->watch;
    options->sandbox = sandbox_mode(settings->sandbox);
    return code;
}

void serve_owned_deinit(struct serve_owned *owned)
{
    free(owned->control);
    free(owned->watched);
}

/* ---- Rules and tokens ------------------------------------------------------------------------ */

#define TOKENS_FILE_MAX (1u << 20)

static int tell_diagnostics(const struct rules_diagnostics *diagnostics, struct stint_error *error)
{
    const struct rules_fault *first = &diagnostics->diagnostics[0];
    size_t n_others = diagnostics->n_diagnostics + diagnostics->n_more - 1;
    struct buf message = buf_of(error->message, sizeof(error->message));
    error->code = STINT_E_SYNTAX;
    buf_add(&message, "%s:%" PRIu32 ":%" PRIu32 ": %s", first->file, first->line, first->column,
            first->message);
    if (n_others > 0)
        buf_add(&message, " (and %zu more: `stint rules check` prints all)", n_others);
    return error->code;
}

static void tell_warnings(struct log *log, const struct rules_diagnostics *diagnostics)
{
    for (size_t i = 0; i < diagnostics->n_warnings; i++) {
        const struct rules_fault *warning = &diagnostics->warnings[i];
        log_line(log, LOG_RULES_WARNING, LOG_TEXT("file", warning->file),
                 LOG_NUMBER("line", warning->line), LOG_NUMBER("column", warning->column),
                 LOG_TEXT("reason", warning->message));
    }
}

/* Rules without limits are refused, unless that is allowed. */
static int check_empty(const struct serve_settings *settings, const struct rules_files *files,
                       const struct rules *rules, struct log *log, struct stint_error *error)
{
    struct stint_error why;
    int code = rules_files_check((const char *const *)settings->rules.texts,
                                 settings->rules.n_texts, files, rules, &why);
    if (code == 0)
        return 0;
    if (!settings->rules_may_be_empty)
        return err_set(error, code, "%s", why.message);
    log_line(log, LOG_RULES_EMPTY, LOG_TEXT("reason", why.message));
    return 0;
}

static int load_rules(const struct serve_settings *settings, const struct serve_settings *started,
                      struct log *log, struct rules **rules, struct stint_error *error)
{
    const char *nearest;
    struct serve_store_names stores;
    struct rules_load_options options = {
        .merge_domains = settings->merge_domains,
        .default_algorithm =
            (uint8_t)spec_algorithm(span_of_text(settings->default_algorithm), &nearest),
    };
    struct rules_files files;
    struct rules_diagnostics diagnostics = {0};
    int code = serve_store_names(started, &stores, error);
    if (code != 0)
        return code;
    serve_store_rules(started, &stores, &options);
    code = rules_files_read((const char *const *)settings->rules.texts, settings->rules.n_texts,
                            &files, error);
    if (code != 0)
        return code;
    *rules = rules_load(files.files, files.n_files, &options, &diagnostics);
    if (*rules == NULL)
        code = tell_diagnostics(&diagnostics, error);
    else {
        tell_warnings(log, &diagnostics);
        code = check_empty(settings, &files, *rules, log, error);
    }
    rules_diagnostics_free(&diagnostics);
    rules_files_free(&files);
    if (code != 0) {
        rules_unref(*rules);
        *rules = NULL;
    }
    return code;
}

static int load_tokens(const struct serve_settings *settings, struct access **access,
                       struct stint_error *error)
{
    char *text;
    int code = file_text_read(settings->tokens, TOKENS_FILE_MAX, &text, error);
    if (code != 0)
        return code;
    code = access_load(access, settings->tokens, span_of_text(text), error);
    explicit_bzero(text, strlen(text));
    free(text);
    return code;
}

int serve_load_tokens(const struct serve_settings *settings, struct serve_loaded *loaded,
                      struct stint_error *error)
{
    *loaded = (struct serve_loaded){0};
    return settings->tokens != NULL ? load_tokens(settings, &loaded->access, error) : 0;
}

int serve_load(const struct serve_settings *settings, const struct serve_settings *started,
               struct log *log, struct serve_loaded *loaded, struct stint_error *error)
{
    struct rules *rules = NULL;
    int code = 0;
    *loaded = (struct serve_loaded){0};
    if (settings->rules.n_texts == 0 && started->rules.n_texts > 0 && !settings->rules_may_be_empty)
        return err_set(
            error, STINT_E_MISMATCH,
            "rules: the server started with rules, and none are given any more; give some, or "
            "allow that with rules_may_be_empty");
    if (settings->rules.n_texts > 0)
        code = load_rules(settings, started, log, &rules, error);
    if (code == 0)
        code = serve_load_tokens(settings, loaded, error);
    if (code == 0)
        loaded->rules = rules;
    else
        rules_unref(rules);
    return code;
}
