/* SPDX-License-Identifier: MIT */
/* `stint serve`: gathers the settings, opens everything that a server needs, and runs it. */
#define _GNU_SOURCE
#include "algorithm/spec.h"
#include "backend/redis/pool_backend.h"
#include "base/buf.h"
#include "cmd/lib/args.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"
#include "cmd/serve/serve_options.h"
#include "cmd/serve/serve_settings.h"
#include "cmd/serve/serve_stores.h"
#include "cmd/store/store_word.h"
#include "decide/evaluation_local.h"
#include "net/process/privileges.h"
#include "service/metrics/metrics.h"
#include "table/table.h"

#include <inttypes.h>
#include <limits.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OPTION_TEXT_SIZE 256
#define LARGE_MEMORY (128 << 10)

static const char doc[] =
    "Runs a rate limit server for RESP, HTTP and gRPC.\vEach option is also a variable, "
    "STINT_TLS_KEY for --tls-key, and a line of the file that --config names, tls_key. "
    "Options override variables, and variables override the file. Options that may be "
    "given several times are lists: in a variable with ; between the elements.\n"
    "SIGHUP reads settings, rules, tokens and certificates again, SIGTERM lets "
    "connections finish, SIGUSR2 starts a successor that takes over.";

/* A list of options made of the table of settings; owns their names and descriptions. */
struct option_list {
    struct args_option options[SETTINGS_MAX + 4];
    char names[SETTINGS_MAX][40];
    char messages[SETTINGS_MAX][OPTION_TEXT_SIZE];
};

/* The options of the command line, before weaker origins are read. */
struct command_line {
    const char *config, *compat; /* NULL: not given */
    bool prints_config;
    struct given {
        size_t index;
        const char *text;
        char *own; /* a copy of the text, if the word itself is overwritten */
    } * given;     /* at most one for each word */
    size_t n_given;
};

static void add_given(struct command_line *line, size_t index, const char *text)
{
    line->given[line->n_given++] = (struct given){.index = index, .text = text};
}

/* The command line of a process is public, so it must not contain a password. */
static void add_store(struct command_line *line, size_t index, char *text)
{
    char *own = strdup(text);
    if (own == NULL) {
        print_message("no memory for the command line");
        exit(CMD_BAD_INPUT);
    }
    store_word_hide(text);
    add_given(line, index, own);
    line->given[line->n_given - 1].own = own;
}

static void read_setting(struct argp_state *state, void *input, char *value)
{
    struct command_line *line = input;
    size_t index = (size_t)setting_find(span_of_text(args_current(state)->name), '-');
    if (settings_known[index].kind == SETTING_STORES)
        add_store(line, index, value);
    else
        add_given(line, index, value != NULL ? value : "true");
}

/* --rules PATH PATH... */
static void add_rules(struct argp_state *state, void *line, char *path)
{
    (void)state;
    add_given(line, (size_t)setting_find(span_of_text("rules"), '_'), path);
}

static void fill_option(struct option_list *list, size_t i)
{
    const struct setting *setting = &settings_known[i];
    memcpy(list->names[i], setting->name, strlen(setting->name) + 1);
    for (char *c = list->names[i]; *c != '\0'; c++)
        if (*c == '_')
            *c = '-';
    struct buf message = buf_of(list->messages[i], OPTION_TEXT_SIZE);
    buf_add(&message, "%s", setting->message);
    if (setting->value != NULL && setting->kind != SETTING_SWITCH)
        buf_add(&message, " (default %s)", setting->value);
    list->options[i] = (struct args_option){
        .name = list->names[i],
        .argument = setting->kind == SETTING_SWITCH ? "false" : setting->argument,
        .help = list->messages[i],
        .value = {ARGS_KIND_OWN, .read = read_setting, .words = setting->choices},
        .is_optional = setting->kind == SETTING_SWITCH,
    };
}

/* The settings, and the options that are none. */
static void fill_options(struct option_list *list)
{
    static const struct args_option others[] = {
        {"config", "FILE", 0, "Read settings from a YAML file",
         ARGS_TEXT(struct command_line, config)},
        {"print-config", NULL, 0, "Print all settings, and exit",
         ARGS_FLAG(struct command_line, prints_config)},
        {"compat", "NAME", 0, "envoyproxy: read its environment, too",
         ARGS_TEXT(struct command_line, compat)},
        {0},
    };
    for (size_t i = 0; i < n_settings_known; i++)
        fill_option(list, i);
    memcpy(&list->options[n_settings_known], others, sizeof(others));
}

/* From weak to strong. Returns an enum cmd_exit. */
static int gather(struct settings *settings, const void *arg, struct stint_error *error)
{
    const struct command_line *line = arg;
    if (settings_init(settings, error) != 0)
        return CMD_BAD_INPUT;
    settings->values.config = line->config;
    if (line->config != NULL && settings_read_file(settings, line->config, error) != 0)
        return CMD_BAD_INPUT;
    if (settings_read_environment(settings, error) != 0)
        return CMD_BAD_USAGE;
    for (size_t i = 0; i < line->n_given; i++) {
        char shown[48] = "--";
        const struct given *given = &line->given[i];
        struct buf buf = buf_of(shown, sizeof(shown));
        buf_add(&buf, "--%s", settings_known[given->index].name);
        for (char *c = shown; *c != '\0'; c++)
            *c = *c == '_' ? '-' : *c;
        if (settings_set(settings, given->index, SETTING_OPTION, shown, given->text, error) != 0)
            return CMD_BAD_USAGE;
    }
    /* Last, although weakest: the addresses that it listens at depend on the other settings. */
    if (line->compat != NULL && compat_apply(settings, line->compat, error) != 0)
        return CMD_BAD_USAGE;
    return CMD_DONE;
}

/* ---- Parts of a server ----------------------------------------------------------------------- */

/* Whether decisions use a clock that clients set. */
static bool has_virtual_clock(const struct serve_settings *settings)
{
    return strcmp(settings->clock, "virtual") == 0;
}

static struct stint_table_options table_options(const struct serve_settings *settings)
{
    bool is_virtual = has_virtual_clock(settings);
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

/* STINT_E_MISMATCH if such a clock is combined with shared stores. */
static int check_clock(const struct serve_settings *settings, struct stint_error *error)
{
    if (!has_virtual_clock(settings) || settings->store.n_texts == 0)
        return 0;
    return err_set(error, STINT_E_MISMATCH,
                   "clock is virtual, and shared stores have clocks of their own: omit --store or "
                   "--clock virtual");
}

/* Bits of enum metrics_names. */
static unsigned metrics_names(const struct serve_settings *settings)
{
    const char *name = settings->metrics_names;
    return strcmp(name, "stint") == 0        ? METRICS_NAMES_STINT
           : strcmp(name, "envoyproxy") == 0 ? METRICS_NAMES_ENVOY
                                             : METRICS_NAMES_STINT | METRICS_NAMES_ENVOY;
}

/* The when_full of quotas that set none: enum stint_when_full. */
static uint8_t table_full(const struct serve_settings *settings)
{
    return (uint8_t)spec_when_full(span_of_text(settings->table_full));
}

static enum log_level log_level(const struct serve_settings *settings)
{
    const char *name = settings->log_level;
    return strcmp(name, "debug") == 0  ? LOG_LEVEL_DEBUG
           : strcmp(name, "info") == 0 ? LOG_LEVEL_INFO
           : strcmp(name, "warn") == 0 ? LOG_LEVEL_WARN
                                       : LOG_LEVEL_ERROR;
}

static enum log_format log_format(const struct serve_settings *settings)
{
    return strcmp(settings->log_format, "json") == 0 ? LOG_FORMAT_JSON : LOG_FORMAT_TEXT;
}

struct server_parts {
    const struct serve_settings *settings;
    const struct command_line *line;
    struct server_options options; /* those that follow from the settings, then the others */
    struct log *log;
    struct stint_table *table;
    struct access_now *access;
    struct server_state *server_state;
    struct http_config *http_config;
    struct serve_stores *stores;
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
        bool is_needed = stores->evaluation.items == i + 1 &&
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
                                 .charges_hits = strcmp(settings->grpc_hits, "take") != 0,
                                 .checks_debt = strcmp(settings->grpc_hits, "add") == 0,
                                 .metrics_names = metrics_names(settings),
                                 .has_virtual_clock = has_virtual_clock(settings),
                                 .near_thousandths = (unsigned)settings->near_limit,
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

static void log_clock(const struct server_parts *parts)
{
    if (has_virtual_clock(parts->settings))
        log_line(parts->log, LOG_CLOCK_VIRTUAL, LOG_NUMBER("now_ns", stint_now(parts->table)));
}

static int load(const struct server_parts *parts, struct serve_loaded *loaded,
                struct stint_error *error)
{
    int code = serve_load(parts->settings, parts->settings, parts->log, loaded, error);
    if (code == 0 || !parts->settings->rules_may_fail)
        return code;
    struct stint_error why = *error;
    code = serve_load_tokens(parts->settings, loaded, error);
    if (code == 0)
        log_line(parts->log, LOG_RULES_LACK, LOG_TEXT("reason", why.message));
    return code;
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

/* Rules come first: an error in them is reported before a state file is created. */
static int open_parts(struct server_parts *parts, struct stint_error *error)
{
    const struct serve_settings *settings = parts->settings;
    struct serve_loaded loaded;
    int code = load(parts, &loaded, error);
    if (code != 0)
        return code;
    parts->access = access_now_new(loaded.access);
    code = parts->access == NULL ? err_set(error, STINT_E_SYSTEM, "no memory for the tokens")
                                 : serve_http_config(settings, &parts->http_config, error);
    if (code == 0)
        code = open_table(parts, error);
    if (code == 0) {
        table_set_when_full(parts->table, table_full(settings));
        table_reserve_quotas(parts->table);
    }
    if (code == 0)
        code = open_server_state(parts, loaded.rules, error);
    if (code == 0)
        code = add_stores(parts, error);
    if (code == 0)
        set_stores_of_pools(parts);
    if (code == 0)
        code = configured_pools_define(&settings->pools, server_state_pools(parts->server_state),
                                       stint_now(parts->table), error);
    rules_unref(loaded.rules);
    if (code == 0) {
        log_state(parts);
        log_clock(parts);
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
}

/* The command line again, with the name of the running file: it may be a newer version by now. */
static char **successor_argv(int argc, char **argv)
{
    static char path[PATH_MAX];
    static char command[] = "serve", replace[] = "--replace";
    ssize_t len = readlink("/proc/self/exe", path, sizeof(path) - 1);
    char **all = calloc((size_t)argc + 3, sizeof(char *));
    if (len <= 0 || all == NULL) {
        free(all);
        return NULL;
    }
    path[len] = '\0';
    all[0] = path;
    all[1] = command;
    for (int i = 1; i < argc; i++)
        all[i + 1] = argv[i];
    all[argc + 1] = replace;
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
    struct serve_owned owned;
    struct serve_loaded loaded;
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
    rules_unref(reading->loaded.rules);
    access_unref(reading->loaded.access);
    serve_owned_deinit(&reading->owned);
    settings_deinit(&reading->settings);
    free(reading);
}

/* ---- Settings that cannot change ------------------------------------------------------------- */

/* Settings that a reload applies, or that say what it reads. */
static const char *const live[] = {
    "rules",
    "merge_domains",
    "default_algorithm",
    "tokens",
    "tls_certificate",
    "tls_key",
    "tls_client_ca",
    "tls_priorities",
    "connections",
    "connections_per_address",
    "idle_time",
    "request_time",
    "write_time",
    "drain_time",
    "watch",
    "log_format",
    "log_level",
    "table_full",
    "rules_may_be_empty",
};

static bool is_live(size_t index)
{
    for (size_t i = 0; i < sizeof(live) / sizeof(live[0]); i++)
        if (strcmp(settings_known[index].name, live[i]) == 0)
            return true;
    return false;
}

struct held {
    char names[512];
    struct buf buf;
};

static void hold(struct held *held, const char *name)
{
    buf_add(&held->buf, "%s%s", held->buf.len > 0 ? ", " : "", name);
}

/*
 * Whether there are tokens, and TLS, decides which ports may be open: their files may change, but
 * they can neither be added nor removed.
 */
static int hold_presence(struct held *held, const char *name, char **value, const char *started,
                         struct stint_error *error)
{
    if ((*value == NULL) == (started == NULL))
        return 0;
    hold(held, name);
    return settings_put_text(value, started, error);
}

static int hold_what_stays(const struct reload *reload, struct serve_settings *settings,
                           struct held *held, struct stint_error *error)
{
    const struct serve_settings *started = reload->parts->settings;
    held->buf = buf_of(held->names, sizeof(held->names));
    for (size_t i = 0; i < n_settings_known; i++)
        if (!is_live(i) && !setting_is_same(i, settings, started))
            hold(held, settings_known[i].name);
    int code = hold_presence(held, "tokens", &settings->tokens, started->tokens, error);
    if (code == 0)
        code = hold_presence(held, "tls_certificate", &settings->tls_certificate,
                             started->tls_certificate, error);
    if (code == 0)
        code = hold_presence(held, "tls_key", &settings->tls_key, started->tls_key, error);
    if (configured_pools_lack(&settings->pools, server_state_pools(reload->parts->server_state)))
        hold(held, "pools");
    return code;
}

static void tell_held(const struct reload *reload, const struct held *held)
{
    if (held->buf.len > 0)
        log_line(reload->parts->log, LOG_NEEDS_RESTART, LOG_TEXT("settings", held->names));
}

/* ---- Reading and applying -------------------------------------------------------------------- */

static int read_again(const struct reload *reload, struct reading *reading,
                      struct server_options *next, struct held *held, struct stint_error *error)
{
    const struct server_parts *parts = reload->parts;
    struct serve_settings *settings = &reading->settings.values;
    if (gather(&reading->settings, parts->line, error) != 0)
        return error->code;
    int code = hold_what_stays(reload, settings, held, error);
    if (code == 0)
        code = serve_server_options(settings, &reading->owned, next, error);
    if (code == 0)
        code = configured_pools_check(&settings->pools, server_state_pools(parts->server_state),
                                      error);
    if (code == 0)
        code = serve_load(settings, parts->settings, parts->log, &reading->loaded, error);
    return code;
}

/* server_options.load and .use: `arg` is a struct reload. */
static int read_all(void *arg, struct server_options *next, struct stint_error *error)
{
    struct reload *reload = arg;
    struct held held;
    reading_free(reload->before);
    reading_free(reload->next); /* certificates were refused after the reload had been read */
    reload->before = reload->next = NULL;
    struct reading *reading = calloc(1, sizeof(*reading));
    if (reading == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for the settings");
    int code = read_again(reload, reading, next, &held, error);
    if (code != 0) {
        reading_free(reading);
        return code;
    }
    tell_held(reload, &held);
    reload->next = reading;
    return 0;
}

/* If the table refuses rules, or has no capacity for a pool, the old rules are restored. */
static int use_rules_and_pools(const struct reload *reload, struct stint_error *error)
{
    struct server_state *server_state = reload->parts->server_state;
    const struct configured_pools *pools = &reload->next->settings.values.pools;
    struct rules *rules = reload->next->loaded.rules, *old = server_state_rules(server_state);
    struct stint_error ignored;
    int code =
        rules != NULL || old != NULL ? server_state_set_rules(server_state, rules, error) : 0;
    if (code == 0) {
        code = configured_pools_define(pools, server_state_pools(server_state),
                                       stint_now(reload->parts->table), error);
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
    if (reload->next->loaded.access != NULL)
        access_now_set(parts->access, reload->next->loaded.access);
    reload->next->loaded.access = NULL;
    log_set(parts->log, log_format(settings), log_level(settings));
    table_set_when_full(parts->table, table_full(settings));
    reload->before = reload->in_force;
    reload->in_force = reload->next;
    reload->next = NULL;
    return 0;
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
    options.load = read_all;
    options.use = use_all;
    options.arg = &reload;
    int code = server_run(&options, error);
    reading_free(reload.next);
    reading_free(reload.in_force);
    reading_free(reload.before);
    return code;
}

static int run(const struct serve_settings *settings, struct server_parts *parts, char **successor,
               struct stint_error *error)
{
    struct serve_owned owned;
    parts->options.log = parts->log;
    int code = serve_server_options(settings, &owned, &parts->options, error);
    if (code == 0)
        code = check_clock(settings, error);
    if (code == 0)
        code = begin_process(settings, &parts->options, successor, error);
    if (code == 0)
        code = serve_stores_open(&parts->stores, settings, error);
    if (code == 0)
        code = open_parts(parts, error);
    if (code == 0)
        code = serve_on(parts, error);
    close_parts(parts);
    serve_owned_deinit(&owned);
    respawn_helper_free(parts->options.respawn_helper);
    return code;
}

/*
 * Large blocks, such as those of rules, are returned to the system when they are freed. By default
 * glibc would keep them from the first reload on, since it raises its threshold with each free.
 */
static void return_large_memory(void)
{
#ifdef M_MMAP_THRESHOLD
    mallopt(M_MMAP_THRESHOLD, LARGE_MEMORY);
#endif
}

static int serve(const struct serve_settings *settings, const struct command_line *line, int argc,
                 char **argv)
{
    struct stint_error error;
    struct server_parts parts = {.settings = settings, .line = line};
    return_large_memory();
    parts.log = log_new(STDERR_FILENO, log_format(settings), log_level(settings));
    char **successor = successor_argv(argc, argv);
    if (parts.log != NULL && settings->is_compat)
        compat_tell(settings, parts.log);
    int code = parts.log == NULL ? err_set(&error, STINT_E_SYSTEM, "no memory for the log")
                                 : run(settings, &parts, successor, &error);
    if (code != 0)
        print_message("%s", error.message);
    free(successor);
    log_free(parts.log);
    return code == 0 ? CMD_DONE : CMD_BAD_INPUT;
}

static int gather_and_serve(const struct command_line *line, int argc, char **argv)
{
    struct settings settings;
    struct stint_error error;
    int exit_code = gather(&settings, line, &error);
    if (exit_code != CMD_DONE)
        print_message("%s", error.message);
    else if (line->prints_config)
        settings_print(&settings, stdout);
    else
        exit_code = serve(&settings.values, line, argc, argv);
    settings_deinit(&settings);
    return exit_code;
}

static void free_words(char **words, int n_words)
{
    for (int i = 0; words != NULL && i < n_words; i++)
        free(words[i]);
    free(words);
}

/* For a successor: argp reorders the words, and passwords are removed from them. */
static char **copy_words(int n_words, char **words)
{
    char **copies = calloc((size_t)n_words + 1, sizeof(char *));
    for (int i = 0; copies != NULL && i < n_words; i++) {
        copies[i] = strdup(words[i]);
        if (copies[i] == NULL) {
            free_words(copies, i);
            return NULL;
        }
    }
    return copies;
}

static void free_line(struct command_line *line)
{
    for (size_t i = 0; i < line->n_given; i++)
        free(line->given[i].own);
    free(line->given);
}

int serve_main(int argc, char **argv)
{
    static struct option_list list;
    struct command_line line = {.given = calloc((size_t)argc + 1, sizeof(struct given))};
    char **words = copy_words(argc, argv);
    if (line.given == NULL || words == NULL) {
        print_message("no memory for the command line");
        free(line.given);
        free_words(words, argc);
        return CMD_BAD_INPUT;
    }
    fill_options(&list);
    const struct args_command command = {
        .set = {list.options, .word = add_rules}, .arguments = "", .doc = doc};
    args_parse(&command, argc, argv, &line);
    int exit_code = gather_and_serve(&line, argc, words);
    free_line(&line);
    free_words(words, argc);
    return exit_code;
}
