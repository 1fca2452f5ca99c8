/* SPDX-License-Identifier: MIT */
/*
 * Every setting of `stint serve`: one table has its name, kind, default, range and description. The
 * options, the environment's names, the keys of the config file, --help, --print-config and the
 * check of docs/serving.md are made of it.
 *
 * "tls_key" in a file is --tls-key on the command line and STINT_TLS_KEY in the environment. A
 * value from a stronger origin replaces a weaker one, lists as a whole.
 */
#ifndef STINT_CMD_SERVE_SERVE_SETTINGS_H
#define STINT_CMD_SERVE_SERVE_SETTINGS_H

#include "base/buf.h"
#include "base/span.h"
#include "net/log/log.h"
#include "rules/yaml/yaml_value.h"

struct pools; /* service/pools.h */

/* ---- The section `pools` of a config file ---------------------------------------------------- */

/* It contains names only, never the secret of a key. */

struct configured_quotas {
    struct span *specs;
    size_t n_specs;
};

struct configured_key {
    struct source_position position;
    struct span name;
    struct configured_quotas quotas; /* none: those of its pool */
    uint32_t weight;
};

struct configured_pool {
    struct source_position position;
    struct span name;
    struct span store;               /* its name; empty: the table */
    uint8_t order;                   /* enum stint_pool_order */
    struct configured_quotas quotas; /* of keys that have none of their own */
    struct configured_key *keys;
    size_t n_keys;
    const char *keys_file; /* more keys, a NAME on each line; NULL: none */
};

/* All zero is none. Everything points into the arena of the section. */
struct configured_pools {
    const char *path; /* of the config file, for diagnostics */
    struct configured_pool *pools;
    size_t n_pools;
};

/* ---- Values ---------------------------------------------------------------------------------- */

struct text_list {
    const char **texts; /* ends with NULL */
    size_t n_texts;
};

struct serve_settings {
    struct text_list rules, resp, resp_tls, http, http_tls, grpc, grpc_tls, http_descriptors,
        http_trusted_proxies, http_hosts, http_fields, grpc_fields, store, store_node_names,
        anonymous, xds_metadata, xds_headers, traces_attributes, traces_headers;
    const char *state, *control, *tokens, *tls_certificate, *tls_key, *tls_client_ca,
        *tls_priorities, *http_domain, *http_address_field, *http_uri_field, *http_method_field,
        *grpc_limit_field, *grpc_remaining_field, *grpc_reset_field, *grpc_denied_body,
        *metrics_path, *user, *store_prefix, *store_ca_file, *store_cert_file, *store_key_file,
        *store_node, *store_counters, *xds_ca_file, *xds_cert_file, *xds_key_file, *xds_server_name,
        *traces, *traces_ca_file, *traces_cert_file, *traces_key_file;
    /* The number of the word that was chosen: most are values of an enum. */
    unsigned default_algorithm, metrics_names, log_format, log_level, sandbox, store_on_error,
        after_failover, table_full, grpc_hits, clock;
    uint64_t workers, keys, keys16, keys_wide, wide_size, tickets, blocks, quotas, pools_max,
        overrides, requests, popular_keys, auth_guesses, connections, connections_per_address,
        request_size, argument_size, arguments, output_size, connection_memory, http_header_size,
        http_body_size, http_deny_status, grpc_message_size, grpc_header_size, grpc_streams,
        grpc_output_size, grpc_idle_frames, near_limit, store_nodes, deny_cache, lease_keys,
        traces_ratio; /* billionths */
    uint64_t id_lifetime, popular_half_life, idle_time, request_time, write_time, http_idle_time,
        http_request_time, http_answer_time, grpc_age, grpc_age_grace, drain_time, watch,
        store_timeout, store_connect_timeout, deny_cache_max, xds_backoff, xds_backoff_max,
        traces_timeout; /* ns */
    bool merge_domains, shadow_mode, huge_pages, trust_after_crash, insecure, replace,
        grpc_metadata, quota_mode, rules_may_fail, rules_may_be_empty, ready_with_rules,
        ready_with_stores, core_dumps, traces_follow;
    bool is_compat, is_compat_local; /* --compat is set; and restricts addresses */
    struct configured_pools pools;   /* only the config file has them */
    const char *config;              /* the path of that file, borrowed. NULL: none */
};

enum { GRPC_HITS_TAKE, GRPC_HITS_CHARGE, GRPC_HITS_ADD };

#define SETTING_SHARE_ALL UINT64_C(1000000000)

enum setting_kind {
    SETTING_TEXT,
    SETTING_FIELD_NAME, /* of HTTP */
    SETTING_CHOICE,
    SETTING_LIST,
    SETTING_ADDRESSES, /* a list of endpoints: net/listen/endpoint.h */
    SETTING_FIELDS,    /* a list of NAME=VALUE, whose values are not shown */
    SETTING_STORES,    /* a list of cmd/store/store_word.h, whose passwords are not shown */
    SETTING_NUMBER,
    SETTING_BYTES, /* a number, or one with KiB, MiB or GiB */
    SETTING_DURATION,
    SETTING_SHARE, /* from 0 to 1, in billionths */
    SETTING_SWITCH,
};

enum setting_origin {
    SETTING_DEFAULT,
    SETTING_COMPAT, /* --compat, serve_compat.c */
    SETTING_FILE,
    SETTING_ENVIRONMENT,
    SETTING_OPTION,
};

struct setting {
    const char *name; /* as the file has it */
    enum setting_kind kind;
    size_t at;            /* of its value in struct serve_settings */
    const char *argument; /* in --help */
    const char *value; /* the default as text; NULL: none. Of a list: elements with ';' between */
    uint64_t min, max; /* of numbers, bytes and durations; min of a text: its first byte, or 0 */
    const char *const *choices;
    const char *message; /* its description, for --help */
};

extern const struct setting settings_known[];
extern const size_t n_settings_known;
#define SETTINGS_MAX 128

/* A list of texts, of whatever kind. */
static inline bool setting_is_list(const struct setting *setting)
{
    return setting->kind >= SETTING_LIST && setting->kind <= SETTING_STORES;
}

/* The index of the setting of that name; -1 for none. */
int setting_find(struct span name);
/* true, false, yes, no and the like; STINT_E_SYNTAX for another text. */
int setting_switch(bool *value, const char *shown, const char *text, struct stint_error *error);

/* The gathered settings; arena_free() frees all of them. */
struct settings {
    struct serve_settings values;
    enum setting_origin origins[SETTINGS_MAX];
    struct arena arena; /* of all texts, and of the pools */
};

/*
 * Sets a setting, or adds an element to a list; call it for weak origins first. STINT_E_SYNTAX or
 * STINT_E_RANGE with a message that begins with `shown`, the name as the user wrote it. A text of
 * NULL is no value: the list is empty, the file not given.
 */
int settings_set(struct settings *settings, size_t index, enum setting_origin origin,
                 const char *shown, const char *text, struct stint_error *error);

/*
 * Adds the names of settings that differ from those of the server's start, and cannot change before
 * a restart. Tokens and TLS stay given, or not given, as at the start, which outlives the settings.
 */
void settings_hold(struct serve_settings *settings, const struct serve_settings *started,
                   struct buf *held);

/* Whether one address is set that is not off. */
bool settings_listen(const struct serve_settings *settings);

/* ---- Where they come from: serve_config.c ---------------------------------------------------- */

/* The options of the command line, before weaker origins are read. */
struct settings_line {
    const char *config, *compat; /* NULL: not given */
    bool prints_config;
    struct settings_given {
        size_t index;
        const char *text;
    } * given; /* space for one for each word */
    size_t n_given;
    struct arena arena; /* of the words that are not those of the command line themselves */
};

/* Overwrites passwords in the words. Exits if the command line is wrong. */
void settings_read_line(struct settings_line *line, int argc, char **argv);

/* The defaults alone. */
int settings_init(struct settings *settings, struct stint_error *error);

/*
 * Defaults, the config file, the STINT_… variables of the environment (others are ignored), and the
 * command line. Returns an enum cmd_exit; the message of an error in a file begins
 * FILE:LINE:COLUMN.
 */
int settings_gather(struct settings *settings, const struct settings_line *line,
                    struct stint_error *error);

/* Prints a config file that gives the same settings. */
void settings_print(const struct serve_settings *settings);

/*
 * Reads the files of keys and creates the pools; now_ns of NULL: only checks them. The first error
 * is returned with its position in the config file: STINT_E_SYNTAX, or as pools_define().
 */
int configured_pools_define(const struct configured_pools *configured, struct pools *pools,
                            const uint64_t *now_ns, struct stint_error *error);

/* Whether the table has a pool that is not configured: such a pool stays until a restart. */
bool configured_pools_lack(const struct configured_pools *configured, const struct pools *pools);

/* ---- The environment of envoyproxy/ratelimit ------------------------------------------------- */

/*
 * `stint serve --compat envoyproxy`: the environment of envoyproxy/ratelimit as settings.
 *
 * Each of its variables is a row of one table, with its meaning here, or the reason why it has
 * none; docs/migrate-from-envoyproxy-ratelimit.md has the same rows. --config, STINT_… variables
 * and options override all of them.
 */

/*
 * Sets each setting that has no value yet, after all others were read; `name` is that of the other
 * program, "envoyproxy". STINT_E_SYNTAX with a message that begins with the variable's name.
 */
int compat_apply(struct settings *settings, const char *name, struct stint_error *error);

/* Logs which variables are set and ignored, and why; and where the server does not listen. */
void compat_tell(const struct serve_settings *settings, struct log *log);

#endif
