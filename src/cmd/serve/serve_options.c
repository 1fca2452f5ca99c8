/* SPDX-License-Identifier: MIT */
/* Maps settings to the options of a server's parts. */
#define _GNU_SOURCE
#include "cmd/serve/serve_options.h"

#include "algorithm/spec.h"
#include "base/ns.h"
#include "net/dashboard/dashboard.h"
#include "proto/http_fields.h"
#include "service/metrics/metrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#define CONTROL_SUFFIX ".control"

struct stint_table_options serve_table_options(const struct serve_settings *settings)
{
    bool is_virtual = serve_has_virtual_clock(settings);
    return (struct stint_table_options){
        .path = settings->state,
        .keys = settings->keys,
        .keys16 = settings->keys16,
        .keys_wide = settings->keys_wide,
        .wide_size = (uint32_t)settings->wide_size,
        .tickets = (uint32_t)settings->tickets,
        .blocks = (uint32_t)settings->blocks,
        .quotas = (uint32_t)settings->quotas,
        .pools = (uint32_t)settings->pools_max,
        .overrides = (uint32_t)settings->overrides,
        .requests = (uint32_t)settings->requests,
        .huge_pages = settings->huge_pages,
        .trust_after_crash = settings->trust_after_crash,
        .clock = is_virtual ? STINT_CLOCK_VIRTUAL : STINT_CLOCK_REAL,
        .skew_max_ns = is_virtual ? 1 : 0, /* in virtual time the clocks of all callers agree */
    };
}

bool serve_has_virtual_clock(const struct serve_settings *settings)
{
    return strcmp(settings->clock, "virtual") == 0;
}

int serve_clock_check(const struct serve_settings *settings, struct stint_error *error)
{
    if (!serve_has_virtual_clock(settings) || settings->store.n_texts == 0)
        return 0;
    return err_set(error, STINT_E_MISMATCH,
                   "clock is virtual, and shared stores have clocks of their own: omit --store or "
                   "--clock virtual");
}

uint8_t serve_table_full(const struct serve_settings *settings)
{
    return (uint8_t)spec_when_full(span_of_text(settings->table_full));
}

unsigned serve_metrics_names(const struct serve_settings *settings)
{
    const char *name = settings->metrics_names;
    return strcmp(name, "stint") == 0        ? METRICS_NAMES_STINT
           : strcmp(name, "envoyproxy") == 0 ? METRICS_NAMES_ENVOY
                                             : METRICS_NAMES_STINT | METRICS_NAMES_ENVOY;
}

static unsigned styles_of(const struct text_list *names)
{
    unsigned styles = 0;
    for (size_t i = 0; i < names->n_texts; i++)
        styles |= http_style_named(span_of_text(names->texts[i]));
    return styles;
}

int serve_site(const struct serve_settings *settings, struct http_config **site,
               struct stint_error *error)
{
    return http_config_new(
        site,
        &(struct http_config_options){
            .domain = settings->http_domain,
            .descriptors = (const char *const *)settings->http_descriptors.texts,
            .n_descriptors = settings->http_descriptors.n_texts,
            .trusted_proxies = (const char *const *)settings->http_trusted_proxies.texts,
            .n_trusted_proxies = settings->http_trusted_proxies.n_texts,
            .hosts = (const char *const *)settings->http_hosts.texts,
            .n_hosts = settings->http_hosts.n_texts,
            .address_field = settings->http_address_field,
            .uri_field = settings->http_uri_field,
            .method_field = settings->http_method_field,
            .metrics_path = settings->metrics_path,
            .deny_status = (unsigned)settings->http_deny_status,
            .styles = styles_of(&settings->http_fields),
            .dashboard = span_of(dashboard_html, dashboard_html_len),
            .dashboard_policy = (const char *)dashboard_policy,
        },
        error);
}

unsigned serve_workers(const struct serve_settings *settings)
{
    unsigned processors = uv_available_parallelism();
    if (settings->workers > 0)
        return (unsigned)settings->workers;
    return processors < WORKERS_MAX ? processors : WORKERS_MAX;
}

static int set_places(enum port port, const struct text_list *texts, struct serve_places *places,
                      struct server_options *options, struct stint_error *error)
{
    if (texts->n_texts > SERVE_PLACES_MAX)
        return err_set(error, STINT_E_RANGE, "more than %d addresses of port %s", SERVE_PLACES_MAX,
                       port_name(port));
    for (size_t i = 0; i < texts->n_texts; i++) {
        int code = endpoint_parse(&places->endpoints[port][i], texts->texts[i], error);
        if (code != 0)
            return code;
    }
    options->endpoints[port] = places->endpoints[port];
    options->n_endpoints[port] = texts->n_texts;
    return 0;
}

static int set_tls(const struct serve_settings *settings, struct serve_places *places,
                   struct server_options *options, struct stint_error *error)
{
    if ((settings->tls_certificate == NULL) != (settings->tls_key == NULL))
        return err_set(error, STINT_E_MISMATCH,
                       "tls_certificate and tls_key belong together: one alone was given");
    places->tls = (struct tls_paths){
        .certificate = settings->tls_certificate,
        .key = settings->tls_key,
        .client_ca = settings->tls_client_ca,
        .priorities = settings->tls_priorities,
    };
    options->tls = settings->tls_key != NULL ? &places->tls : NULL;
    return 0;
}

static int set_watched(const struct serve_settings *settings, struct serve_places *places,
                       struct server_options *options, struct stint_error *error)
{
    const char *const others[] = {settings->config, settings->tokens, settings->tls_certificate,
                                  settings->tls_key, settings->tls_client_ca};
    const struct configured_pools *pools = &settings->pools;
    size_t n_others = sizeof(others) / sizeof(others[0]);
    places->watched = calloc(settings->rules.n_texts + n_others + pools->n_pools, sizeof(char *));
    if (places->watched == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for the settings");
    for (size_t i = 0; i < settings->rules.n_texts; i++)
        places->watched[places->n_watched++] = settings->rules.texts[i];
    for (size_t i = 0; i < n_others; i++)
        if (others[i] != NULL)
            places->watched[places->n_watched++] = others[i];
    for (size_t i = 0; i < pools->n_pools; i++)
        if (pools->pools[i].keys_file != NULL)
            places->watched[places->n_watched++] = pools->pools[i].keys_file;
    options->watched = places->watched;
    options->n_watched = places->n_watched;
    return 0;
}

/* A server with a state file has a control socket by default, so that it can be replaced. */
static int set_control(const struct serve_settings *settings, struct serve_places *places,
                       struct server_options *options, struct stint_error *error)
{
    options->control = settings->control;
    if (settings->control != NULL && strcmp(settings->control, "off") == 0)
        options->control = NULL;
    else if (settings->control == NULL && settings->state != NULL) {
        if (asprintf(&places->control, "%s" CONTROL_SUFFIX, settings->state) < 0) {
            places->control = NULL;
            return err_set(error, STINT_E_SYSTEM, "no memory for the settings");
        }
        options->control = places->control;
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

int serve_server_options(const struct serve_settings *settings, struct serve_places *places,
                         struct server_options *options, struct stint_error *error)
{
    const struct text_list *texts[PORTS] = {
        [PORT_RESP] = &settings->resp, [PORT_RESP_TLS] = &settings->resp_tls,
        [PORT_HTTP] = &settings->http, [PORT_HTTP_TLS] = &settings->http_tls,
        [PORT_GRPC] = &settings->grpc, [PORT_GRPC_TLS] = &settings->grpc_tls,
    };
    *places = (struct serve_places){0};
    int code = 0;
    for (int port = 0; port < PORTS && code == 0; port++)
        code = set_places((enum port)port, texts[port], places, options, error);
    if (code == 0)
        code = set_tls(settings, places, options, error);
    if (code == 0)
        code = set_watched(settings, places, options, error);
    if (code == 0)
        code = set_control(settings, places, options, error);
    set_limits(settings, options);
    set_grpc(settings, options);
    options->workers = serve_workers(settings);
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

void serve_places_deinit(struct serve_places *places)
{
    free(places->control);
    free(places->watched);
}
