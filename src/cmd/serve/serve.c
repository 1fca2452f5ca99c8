/* SPDX-License-Identifier: MIT */
/* `stint serve`: opens everything that a server needs according to its settings, and runs it. */
#define _GNU_SOURCE
#include "backend/redis/pool_backend.h"
#include "base/buf.h"
#include "cmd/lib/args.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"
#include "cmd/serve/serve_rules.h"
#include "cmd/serve/serve_settings.h"
#include "cmd/serve/serve_stores.h"
#include "cmd/serve/serve_traces.h"
#include "decide/evaluation.h"
#include "net/dashboard/dashboard.h"
#include "net/file.h"
#include "net/process/privileges.h"
#include "net/server.h"
#include "proto/http_fields.h"
#include "service/metrics/metrics.h"
#include "service/pools/pools.h"
#include "table/table.h"

#include <inttypes.h>
#include <limits.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LARGE_MEMORY (128 << 10)

/* ---- From settings to the options of a server ------------------------------------------------ */

#define ADDRESSES_MAX 16 /* of one port */

static unsigned styles_of(const struct text_list *names)
{
    unsigned styles = 0;
    for (size_t i = 0; i < names->n_texts; i++)
        styles |= http_style_named(span_of_text(names->texts[i]));
    return styles;
}

static int new_http_config(const struct serve_settings *settings, struct http_config **config,
                           struct stint_error *error)
{
    return http_config_new(
        config,
        &(struct http_config_options){
            .domain = settings->http_domain,
            .descriptors = settings->http_descriptors.texts,
            .n_descriptors = settings->http_descriptors.n_texts,
            .trusted_proxies = settings->http_trusted_proxies.texts,
            .n_trusted_proxies = settings->http_trusted_proxies.n_texts,
            .hosts = settings->http_hosts.texts,
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

static int no_memory(struct stint_error *error)
{
    return err_set(error, STINT_E_SYSTEM, "no memory for the settings");
}

static int set_addresses(struct settings *settings, enum port port, const struct text_list *texts,
                         struct server_options *options, struct stint_error *error)
{
    if (texts->n_texts > ADDRESSES_MAX)
        return err_set(error, STINT_E_RANGE, "more than %d addresses of port %s", ADDRESSES_MAX,
                       port_name(port));
    struct endpoint *endpoints =
        arena_take(&settings->arena, (texts->n_texts + 1) * sizeof(*endpoints));
    int code = endpoints == NULL ? no_memory(error) : 0;
    for (size_t i = 0; i < texts->n_texts && code == 0; i++)
        code = endpoint_parse(&endpoints[i], texts->texts[i], error);
    options->endpoints[port] = endpoints;
    options->n_endpoints[port] = texts->n_texts;
    return code;
}

static int set_tls(struct settings *settings, struct server_options *options,
                   struct stint_error *error)
{
    const struct serve_settings *values = &settings->values;
    if ((values->tls_certificate == NULL) != (values->tls_key == NULL))
        return err_set(error, STINT_E_MISMATCH,
                       "tls_certificate and tls_key belong together: one alone was given");
    options->tls = NULL;
    if (values->tls_key == NULL)
        return 0;
    struct tls_paths *tls = arena_take(&settings->arena, sizeof(*tls));
    if (tls == NULL)
        return no_memory(error);
    *tls = (struct tls_paths){
        .certificate = values->tls_certificate,
        .key = values->tls_key,
        .client_ca = values->tls_client_ca,
        .priorities = values->tls_priorities,
    };
    options->tls = tls;
    return 0;
}

static int set_watched(struct settings *settings, struct server_options *options,
                       struct stint_error *error)
{
    const struct serve_settings *values = &settings->values;
    const char *const others[] = {
        values->config,        values->tokens,      values->tls_certificate, values->tls_key,
        values->tls_client_ca, values->xds_ca_file, values->xds_cert_file,   values->xds_key_file};
    size_t n_others = sizeof(others) / sizeof(others[0]), n_pools = values->pools.n_pools, n = 0;
    const char **watched = arena_take(
        &settings->arena, (values->rules.n_texts + n_others + n_pools) * sizeof(*watched));
    if (watched == NULL)
        return no_memory(error);
    for (size_t i = 0; i < values->rules.n_texts; i++)
        if (!xds_url_is(values->rules.texts[i]))
            watched[n++] = values->rules.texts[i];
    for (size_t i = 0; i < n_others; i++)
        if (others[i] != NULL)
            watched[n++] = others[i];
    for (size_t i = 0; i < n_pools; i++)
        if (values->pools.pools[i].keys_file != NULL)
            watched[n++] = values->pools.pools[i].keys_file;
    options->watched = watched;
    options->n_watched = n;
    return 0;
}

/* A server with a state file has a control socket by default, so that it can be replaced. */
static int set_control(struct settings *settings, struct server_options *options,
                       struct stint_error *error)
{
    static const char suffix[] = ".control";
    const char *state = settings->values.state, *control = settings->values.control;
    if (control != NULL || state == NULL) {
        options->control = control != NULL && strcmp(control, "off") == 0 ? NULL : control;
        return 0;
    }
    size_t size = strlen(state) + sizeof(suffix);
    char *path = arena_take(&settings->arena, size);
    if (path == NULL)
        return no_memory(error);
    snprintf(path, size, "%s%s", state, suffix);
    options->control = path;
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

/* All options of the server that follow from settings alone; they point into the settings. */
static int set_options(struct settings *settings, struct server_options *options,
                       struct stint_error *error)
{
    static const enum sandbox_mode sandboxes[] = {SANDBOX_AUTO, SANDBOX_ON, SANDBOX_OFF};
    const struct serve_settings *values = &settings->values;
    const struct text_list *texts[PORTS] = {
        [PORT_RESP] = &values->resp, [PORT_RESP_TLS] = &values->resp_tls,
        [PORT_HTTP] = &values->http, [PORT_HTTP_TLS] = &values->http_tls,
        [PORT_GRPC] = &values->grpc, [PORT_GRPC_TLS] = &values->grpc_tls,
    };
    int code = 0;
    for (int port = 0; port < PORTS && code == 0; port++)
        code = set_addresses(settings, (enum port)port, texts[port], options, error);
    if (code == 0)
        code = set_tls(settings, options, error);
    if (code == 0)
        code = set_watched(settings, options, error);
    if (code == 0)
        code = set_control(settings, options, error);
    set_limits(values, options);
    set_grpc(values, options);
    options->workers = workers(values);
    options->auth_guesses = (unsigned)values->auth_guesses;
    options->has_tokens = values->tokens != NULL;
    options->is_insecure = values->insecure;
    options->replaces = values->replace;
    options->needs_rules = values->ready_with_rules;
    options->drain_ns = values->drain_time;
    options->watch_ns = values->watch;
    options->sandbox = sandboxes[values->sandbox];
    return code;
}

/* ---- Rules and tokens ------------------------------------------------------------------------ */

#define TOKENS_FILE_MAX (1u << 20)

/* Rules and tokens. */
struct loaded {
    struct loaded_rules rules;
    struct access *access; /* with a reference; NULL if no file is given */
};

static int load_tokens(const struct serve_settings *settings, struct loaded *loaded,
                       struct stint_error *error)
{
    char *text;
    if (settings->tokens == NULL)
        return 0;
    int code = file_text_read(settings->tokens, TOKENS_FILE_MAX, &text, error);
    if (code != 0)
        return code;
    code = access_load(&loaded->access, settings->tokens, span_of_text(text), error);
    explicit_bzero(text, strlen(text));
    free(text);
    return code;
}

/* As serve_rules_load(). Rules may name the stores that the server was `started` with. */
static int load(const struct serve_settings *settings, const struct serve_settings *started,
                struct serve_rules *rules, struct loaded *loaded, struct stint_error *error)
{
    *loaded = (struct loaded){.access = NULL};
    if (settings->rules.n_texts == 0 && started->rules.n_texts > 0 && !settings->rules_may_be_empty)
        return err_set(
            error, STINT_E_MISMATCH,
            "rules: the server started with rules, and none are given any more; give some, or "
            "allow that with rules_may_be_empty");
    int code = serve_rules_load(rules, settings, &loaded->rules, error);
    if (code == 0)
        code = load_tokens(settings, loaded, error);
    if (code != 0)
        loaded_rules_free(&loaded->rules);
    return code;
}

/* ---- Parts of a server ----------------------------------------------------------------------- */

static struct stint_table_options table_options(const struct serve_settings *settings)
{
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
        .clock = (uint8_t)settings->clock,
        /* In virtual time the clocks of all callers agree. */
        .skew_max_ns = settings->clock == STINT_CLOCK_VIRTUAL ? 1 : 0,
    };
}

/* STINT_E_MISMATCH if such a clock is combined with shared stores. */
static int check_clock(const struct serve_settings *settings, struct stint_error *error)
{
    if (settings->clock != STINT_CLOCK_VIRTUAL || settings->store.n_texts == 0)
        return 0;
    return err_set(error, STINT_E_MISMATCH,
                   "clock is virtual, and shared stores have clocks of their own: omit --store or "
                   "--clock virtual");
}

/* The when_full of quotas that set none: enum stint_when_full. */
static uint8_t table_full(const struct serve_settings *settings)
{
    static const uint8_t policies[] = {STINT_FULL_EVICT, STINT_FULL_INHERIT, STINT_FULL_DENY,
                                       STINT_FULL_ALLOW};
    return policies[settings->table_full];
}

struct server_parts {
    const struct serve_settings *settings;
    const struct settings_line *line;
    struct server_options options; /* those that follow from the settings, then the others */
    struct log *log;
    struct stint_table *table;
    struct access_now *access;
    struct server_state *server_state;
    struct http_config *http_config;
    struct serve_stores *stores;
    struct serve_rules *rules;
    struct serve_traces *traces; /* NULL: none */
};

/*
 * Checked before a worker connects: what a kind of store supports does not depend on a connection.
 * Decisions by the fallback need capacity in the table.
 */
static int store_takes(void *arg, size_t store, const struct rule *rule,
                       const struct stint_quota *quota, struct stint_error *error)
{
    const struct server_parts *parts = arg;
    const struct serve_stores *stores = parts->stores;
    int code = stores_accept(&stores->configs[store - 1], rule, quota, error);
    return code != 0 || quota != &rule->quota
               ? code
               : evaluation_local_accepts(parts->table, &stores->evaluation, rule, error);
}

/* Ready needs a store if quotas of requests fail without it; rules have an on_store_error. */
static int add_stores(struct server_parts *parts, struct stint_error *error)
{
    const struct serve_stores *stores = parts->stores;
    for (size_t i = 0; i < stores->names.n_names; i++) {
        bool is_needed = parts->settings->ready_with_stores && stores->evaluation.items == i + 1 &&
                         stores->evaluation.items_on_error == RULE_STORE_ERROR_ERROR;
        if (!metrics_add_store(server_state_metrics(parts->server_state), stores->names.names[i],
                               is_needed))
            return err_set(error, STINT_E_SYSTEM, "no memory for the metrics of stores");
    }
    return 0;
}

static int new_pool_list(void *arg, size_t store, const struct backend_pool_definition *given,
                         struct backend_pool_list **list, struct stint_error *error)
{
    const struct serve_stores *stores = arg;
    return stores_pool_list(&stores->configs[store], given, list, error);
}

static void set_stores_of_pools(const struct server_parts *parts)
{
    pools_set_stores(server_state_pools(parts->server_state),
                     &(struct pools_stores){.names = parts->stores->names.names,
                                            .n_names = parts->stores->names.n_names,
                                            .list_new = new_pool_list,
                                            .list_free = pool_backend_free,
                                            .arg = parts->stores});
}

static int open_server_state(struct server_parts *parts, struct rules *rules,
                             struct stint_error *error)
{
    const struct serve_settings *settings = parts->settings;
    return server_state_open(&parts->server_state,
                             &(struct server_state_options){
                                 .table = parts->table,
                                 .rules = rules,
                                 .workers = parts->options.workers,
                                 .id_lifetime_ns = settings->id_lifetime,
                                 .top_keys_max = settings->popular_keys,
                                 .top_keys_half_life_ns = settings->popular_half_life,
                                 .without_top_keys = settings->popular_keys == 0,
                                 .shadow_mode = settings->shadow_mode,
                                 .quota_mode = settings->quota_mode,
                                 .charges_hits = settings->grpc_hits != GRPC_HITS_TAKE,
                                 .checks_debt = settings->grpc_hits == GRPC_HITS_ADD,
                                 .metrics_names = settings->metrics_names + 1,
                                 .has_virtual_clock = settings->clock == STINT_CLOCK_VIRTUAL,
                                 .near_thousandths = (unsigned)settings->near_limit,
                                 .traces = parts->traces != NULL ? &parts->traces->options : NULL,
                                 .store_accepts = store_takes,
                                 .store_arg = parts,
                             },
                             error);
}

static void log_state(const struct server_parts *parts)
{
    struct stint_table_info info;
    if (parts->settings->state == NULL)
        return;
    stint_table_info(parts->table, stint_now(parts->table), &info);
    log_line(parts->log, LOG_STATE_OPENED, LOG_TEXT("file", parts->settings->state),
             LOG_TEXT("found", info.restored ? "yes" : "no"),
             LOG_NUMBER("keys", info.live[0] + info.live[1] + info.live[2]),
             LOG_NUMBER("damaged", info.states_damaged));
    if (info.filled)
        log_line(parts->log, LOG_STATE_FILLED, LOG_TEXT("file", parts->settings->state));
}

static int load_first(const struct server_parts *parts, struct loaded *loaded,
                      struct stint_error *error)
{
    int code = load(parts->settings, parts->settings, parts->rules, loaded, error);
    if (code == 0 || !parts->settings->rules_may_fail)
        return code;
    struct stint_error why = *error;
    code = load_tokens(parts->settings, loaded, error);
    if (code == 0)
        log_line(parts->log, LOG_RULES_LACK, LOG_TEXT("reason", why.message));
    return code;
}

/* Without rules, as their files cannot be used, nothing of them is in force. */
static void use_first(const struct server_parts *parts, struct loaded_rules *loaded)
{
    size_t n;
    const struct control_plane_config *planes = serve_rules_control_planes(parts->rules, &n);
    for (size_t i = 0; i < n; i++)
        metrics_add_control_plane(server_state_metrics(parts->server_state), planes[i].url.text);
    if (loaded->rules != NULL)
        serve_rules_use(parts->rules, loaded);
}

static int open_table(struct server_parts *parts, struct stint_error *error)
{
    const struct stint_table_options options = table_options(parts->settings);
    struct stint_error why;
    int code = stint_table_open(&parts->table, &options, &why);
    if (code == STINT_E_MISMATCH && options.path != NULL)
        return err_set(error, code, "%s; %s, or name another file with --state", why.message,
                       options.clock == STINT_CLOCK_VIRTUAL ? "leave --clock virtual out"
                                                            : "say --clock virtual");
    return code == 0 ? 0 : err_set(error, code, "%s", why.message);
}

/* Each word of the setting is the name of a role. */
static unsigned anonymous_roles(const struct text_list *words)
{
    unsigned roles = 0;
    for (size_t i = 0; i < words->n_texts; i++)
        roles |= access_roles_parse(span_of_text(words->texts[i]));
    return roles;
}

/* Rules come first: an error in them is reported before a state file is created. */
static int open_parts(struct server_parts *parts, struct stint_error *error)
{
    const struct serve_settings *settings = parts->settings;
    struct loaded loaded;
    int code = serve_rules_open(&parts->rules, settings, parts->log, error);
    if (code == 0)
        code = load_first(parts, &loaded, error);
    if (code != 0)
        return code;
    parts->access = access_now_new(loaded.access);
    code = parts->access == NULL ? err_set(error, STINT_E_SYSTEM, "no memory for the tokens")
                                 : new_http_config(settings, &parts->http_config, error);
    if (code == 0)
        access_now_set_anonymous(parts->access, anonymous_roles(&settings->anonymous));
    if (code == 0)
        code = open_table(parts, error);
    if (code == 0) {
        table_set_when_full(parts->table, table_full(settings));
        table_reserve_quotas(parts->table);
    }
    if (code == 0)
        code = open_server_state(parts, loaded.rules.rules, error);
    if (code == 0)
        code = add_stores(parts, error);
    if (code == 0)
        use_first(parts, &loaded.rules);
    if (code == 0)
        set_stores_of_pools(parts);
    uint64_t now_ns = code == 0 ? stint_now(parts->table) : 0;
    if (code == 0)
        code = configured_pools_define(&settings->pools, server_state_pools(parts->server_state),
                                       &now_ns, error);
    loaded_rules_free(&loaded.rules);
    if (code == 0) {
        log_state(parts);
        if (settings->clock == STINT_CLOCK_VIRTUAL)
            log_line(parts->log, LOG_CLOCK_VIRTUAL, LOG_NUMBER("now_ns", now_ns));
    }
    return code;
}

static void close_parts(struct server_parts *parts)
{
    server_state_close(parts->server_state);
    http_config_free(parts->http_config);
    access_now_free(parts->access);
    stint_table_close(parts->table);
    serve_stores_close(parts->stores);
    serve_rules_close(parts->rules);
    serve_traces_close(parts->traces);
}

/*
 * The command line again, with the name of the running file: it may be a newer version by now. A
 * copy, as argp reorders the words, and passwords are removed from them. NULL: there is no memory.
 */
static char **successor_argv(struct arena *arena, int argc, char **argv)
{
    char path[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", path, sizeof(path));
    char **all = arena_take(arena, ((size_t)argc + 3) * sizeof(*all));
    if (len <= 0 || all == NULL)
        return NULL;
    all[0] = arena_text(arena, span_of(path, (size_t)len));
    all[1] = arena_text(arena, span_of_text("serve"));
    all[2] = arena_text(arena, span_of_text("--replace")); /* no word may be behind a "--" */
    for (int i = 1; i < argc; i++)
        all[i + 2] = arena_text(arena, span_of_text(argv[i]));
    for (int i = 0; i < argc + 2; i++)
        if (all[i] == NULL)
            return NULL;
    return all;
}

/* First, before any file is open: the respawn helper, and the user to run as. */
static int begin_process(const struct serve_settings *settings, struct server_options *options,
                         char *const *successor, struct stint_error *error)
{
    int code = 0;
    if (options->control != NULL && successor != NULL)
        code = respawn_helper_new(&options->respawn_helper, successor, error);
    if (code == 0 && settings->user != NULL)
        code = user_become(settings->user, error);
    return code == 0 ? rlimits_core_dumps(settings->core_dumps, error) : code;
}

/* ---- Reloading ------------------------------------------------------------------------------- */

/*
 * Settings, rules, tokens and pools are read again while the server serves, and are all applied or
 * none is. Changes that need a restart are named in the log, and have no effect.
 */

/* The results of one reload. */
struct reading {
    struct settings settings;
    struct loaded loaded;
};

struct reload {
    const struct server_parts *parts; /* of the server's start */
    struct reading *next;             /* read, not applied */
    struct reading *in_force;         /* the server points into it. NULL: its first settings */
    struct reading *before; /* until the next load the server may point into this one, too */
};

static void reading_free(struct reading *reading)
{
    if (reading == NULL)
        return;
    loaded_rules_free(&reading->loaded.rules);
    access_unref(reading->loaded.access);
    arena_free(&reading->settings.arena);
    free(reading);
}

/* ---- Reading and applying -------------------------------------------------------------------- */

static int read_again(const struct reload *reload, struct reading *reading,
                      struct server_options *next, struct buf *held, struct stint_error *error)
{
    const struct server_parts *parts = reload->parts;
    struct serve_settings *values = &reading->settings.values;
    struct pools *pools = server_state_pools(parts->server_state);
    if (settings_gather(&reading->settings, parts->line, error) != 0)
        return error->code;
    settings_hold(values, parts->settings, held);
    if (configured_pools_lack(&values->pools, pools))
        buf_add(held, "%spools", held->len > 0 ? ", " : "");
    if (!serve_rules_are_same(parts->rules, values))
        buf_add(held, "%srules (control planes)", held->len > 0 ? ", " : "");
    int code = set_options(&reading->settings, next, error);
    if (code == 0)
        code = configured_pools_define(&values->pools, pools, NULL, error);
    return code != 0 ? code : load(values, parts->settings, parts->rules, &reading->loaded, error);
}

/* server_options.load and .use: `arg` is a struct reload. */
static int read_all(void *arg, struct server_options *next, struct stint_error *error)
{
    struct reload *reload = arg;
    char names[512];
    struct buf held = buf_of(names, sizeof(names));
    reading_free(reload->before);
    reading_free(reload->next); /* certificates were refused after the reload had been read */
    reload->before = NULL;
    struct reading *reading = reload->next = calloc(1, sizeof(*reading));
    int code = reading == NULL ? no_memory(error) : read_again(reload, reading, next, &held, error);
    if (code != 0) {
        reading_free(reading);
        reload->next = NULL;
    } else if (held.len > 0) {
        log_line(reload->parts->log, LOG_NEEDS_RESTART, LOG_TEXT("settings", names));
    }
    return code;
}

/* If the table refuses rules, or has no capacity for a pool, the old rules are restored. */
static int use_rules_and_pools(const struct reload *reload, struct stint_error *error)
{
    struct server_state *server_state = reload->parts->server_state;
    const struct configured_pools *pools = &reload->next->settings.values.pools;
    struct rules *rules = reload->next->loaded.rules.rules, *old = server_state_rules(server_state);
    struct stint_error ignored;
    int code =
        rules != NULL || old != NULL ? server_state_set_rules(server_state, rules, error) : 0;
    if (code == 0) {
        uint64_t now_ns = stint_now(reload->parts->table);
        code = configured_pools_define(pools, server_state_pools(server_state), &now_ns, error);
        if (code != 0 && (rules != NULL || old != NULL))
            server_state_set_rules(server_state, old, &ignored);
    }
    rules_unref(old);
    return code;
}

static int use_all(void *arg, struct stint_error *error)
{
    struct reload *reload = arg;
    const struct server_parts *parts = reload->parts;
    const struct serve_settings *settings = &reload->next->settings.values;
    int code = use_rules_and_pools(reload, error);
    if (code != 0)
        return code;
    serve_rules_use(parts->rules, &reload->next->loaded.rules);
    if (reload->next->loaded.access != NULL)
        access_now_set(parts->access, reload->next->loaded.access);
    reload->next->loaded.access = NULL;
    log_set(parts->log, (enum log_format)settings->log_format, (enum log_level)settings->log_level);
    table_set_when_full(parts->table, table_full(settings));
    reload->before = reload->in_force;
    reload->in_force = reload->next;
    reload->next = NULL;
    return 0;
}

/* server_options.offer: `arg` is a struct reload. */
static int use_offer(void *arg, size_t control_plane, struct span response,
                     struct stint_error *error)
{
    const struct server_parts *parts = ((const struct reload *)arg)->parts;
    return serve_rules_offer(parts->rules, parts->server_state, control_plane, response, error);
}

/* ---- Running --------------------------------------------------------------------------------- */

static int serve_on(const struct server_parts *parts, struct stint_error *error)
{
    struct server_options options = parts->options;
    struct reload reload = {.parts = parts};
    options.server_state = parts->server_state;
    options.access = parts->access;
    options.http_config = parts->http_config;
    options.store_configs = parts->stores->configs;
    options.n_store_configs = parts->stores->names.n_names;
    options.evaluation_stores = parts->stores->evaluation;
    options.collector = parts->traces != NULL ? &parts->traces->collector : NULL;
    options.load = read_all;
    options.use = use_all;
    options.offer = use_offer;
    options.control_planes = serve_rules_control_planes(parts->rules, &options.n_control_planes);
    options.arg = &reload;
    int code = server_run(&options, error);
    reading_free(reload.next);
    reading_free(reload.in_force);
    reading_free(reload.before);
    return code;
}

static int run(struct settings *settings, struct server_parts *parts, char **successor,
               struct stint_error *error)
{
    const struct serve_settings *values = &settings->values;
    parts->options.log = parts->log;
    int code = set_options(settings, &parts->options, error);
    if (code == 0)
        code = check_clock(values, error);
    if (code == 0)
        code = begin_process(values, &parts->options, successor, error);
    if (code == 0)
        code = serve_stores_open(&parts->stores, values, error);
    if (code == 0)
        code = serve_traces_open(&parts->traces, settings, error);
    if (code == 0)
        code = open_parts(parts, error);
    if (code == 0)
        code = serve_on(parts, error);
    close_parts(parts);
    respawn_helper_free(parts->options.respawn_helper);
    return code;
}

/* Reports a failure itself. */
static int serve(struct settings *settings, const struct settings_line *line, char **successor,
                 struct stint_error *error)
{
    const struct serve_settings *values = &settings->values;
    struct server_parts parts = {.settings = values, .line = line};
#ifdef M_MMAP_THRESHOLD
    /*
     * Large blocks, such as those of rules, are returned to the system when they are freed. By
     * default glibc would keep them from the first reload on, since it raises its threshold with
     * each free.
     */
    mallopt(M_MMAP_THRESHOLD, LARGE_MEMORY);
#endif
    parts.log = log_new(STDERR_FILENO, (enum log_format)values->log_format,
                        (enum log_level)values->log_level);
    if (parts.log == NULL)
        return print_failure("no memory for the log");
    if (values->is_compat)
        compat_tell(values, parts.log);
    int code = run(settings, &parts, successor, error);
    if (code != 0 && values->log_format == LOG_FORMAT_JSON) /* then every line is JSON */
        log_line(parts.log, LOG_FAILED, LOG_TEXT("reason", error->message));
    log_free(parts.log);
    if (code != 0 && values->log_format != LOG_FORMAT_JSON)
        print_message("%s", error->message);
    return code;
}

/* Sockets of systemd, and those of a predecessor, need no address. */
static int check_listens(const struct serve_settings *settings, struct stint_error *error)
{
    if (settings_listen(settings) || settings->replace || getenv("LISTEN_FDS") != NULL)
        return CMD_DONE;
    err_set(error, STINT_E_MISMATCH,
            "resp, http, grpc, resp_tls, http_tls and grpc_tls are all off: expected an address "
            "for one of them, such as --http 127.0.0.1:8080");
    return CMD_BAD_USAGE;
}

int serve_main(int argc, char **argv)
{
    struct settings_line line = {.given = calloc((size_t)argc + 1, sizeof(*line.given))};
    struct settings settings;
    struct stint_error error;
    if (line.given == NULL)
        return print_failure("no memory for the command line");
    char **successor = successor_argv(&line.arena, argc, argv);
    settings_read_line(&line, argc, argv);
    int exit_code = settings_gather(&settings, &line, &error);
    if (exit_code == CMD_DONE && !line.prints_config)
        exit_code = check_listens(&settings.values, &error);
    if (exit_code == CMD_DONE && line.prints_config)
        settings_print(&settings.values);
    else if (exit_code == CMD_DONE && serve(&settings, &line, successor, &error) != 0)
        exit_code = CMD_BAD_INPUT;
    else if (exit_code != CMD_DONE)
        print_message("%s", error.message);
    arena_free(&settings.arena);
    arena_free(&line.arena);
    free(line.given);
    return exit_code;
}
