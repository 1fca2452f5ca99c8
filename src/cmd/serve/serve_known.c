/* SPDX-License-Identifier: MIT */
/* The table of settings: whoever adds one adds a row here, and a field in serve_settings.h. */
#define _GNU_SOURCE
#include "base/ns.h"
#include "cmd/serve/serve_settings.h"
#include "frontend/resp/resp_conn.h"
#include "service/access/access.h"
#include "service/service.h"
#include "service/top_keys.h"

#include <string.h>

static const char *const log_formats[] = {"text", "json", NULL};
static const char *const log_levels[] = {"debug", "info", "warn", "error", NULL};
static const char *const sandboxes[] = {"auto", "on", "off", NULL};
static const char *const algorithms[] = {"window",       "buckets",         "log", "gcra",
                                         "fixed_window", "sliding_counter", NULL};
static const char *const metrics_names[] = {"stint", "envoyproxy", "both", NULL};
static const char *const field_styles[] = {"draft-11", "draft-03", "x-ratelimit", "none", NULL};
static const char *const grpc_styles[] = {"off", "draft-11", "draft-03", "x-ratelimit", NULL};

static const char *const grpc_hits[] = {"take", "charge", "add", NULL};
static const char *const store_errors[] = {"error", "deny", "allow", "local", NULL};
static const char *const table_policies[] = {"evict", "inherit", "deny", "allow", NULL};
static const char *const clocks[] = {"real", "virtual", NULL};
static const char *const cautions[] = {"trust", "half", "full", NULL};

#define GIB (UINT64_C(1) << 30)

/* clang-format off: a table is read by its columns */
#define TEXT(field, argument, value, message)                                                      \
    {                                                                                              \
#field, SETTING_TEXT, offsetof(struct serve_settings, field), argument, value, 0, 0, NULL, \
            message                                                                                \
    }
#define CHOICE(field, value, choices, message)                                                     \
    {                                                                                              \
#field, SETTING_CHOICE, offsetof(struct serve_settings, field), "NAME", value, 0, 0,       \
            choices, message                                                                       \
    }
#define LIST(field, argument, value, choices, message)                                             \
    {                                                                                              \
#field, SETTING_LIST, offsetof(struct serve_settings, field), argument, value, 0, 0,       \
            choices, message                                                                       \
    }
#define PLACES(field, value, message)                                                              \
    {                                                                                              \
#field, SETTING_PLACES, offsetof(struct serve_settings, field), "ADDRESS:PORT", value, 0,  \
            0, NULL, message                                                                       \
    }
#define STORES(field, message)                                                                     \
    {                                                                                              \
#field, SETTING_STORES, offsetof(struct serve_settings, field), "[NAME=]URL", NULL, 0, 0,  \
            NULL, message                                                                          \
    }
#define NUMBER(field, value, min, max, message)                                                    \
    {                                                                                              \
#field, SETTING_NUMBER, offsetof(struct serve_settings, field), "N", value, min, max,      \
            NULL, message                                                                          \
    }
#define BYTES(field, value, min, max, message)                                                     \
    {                                                                                              \
#field, SETTING_BYTES, offsetof(struct serve_settings, field), "BYTES", value, min, max,   \
            NULL, message                                                                          \
    }
#define DURATION(field, value, min, max, message)                                                  \
    {                                                                                              \
#field, SETTING_DURATION, offsetof(struct serve_settings, field), "TIME", value, min, max, \
            NULL, message                                                                          \
    }
#define SWITCH(field, value, message)                                                              \
    {                                                                                              \
#field, SETTING_SWITCH, offsetof(struct serve_settings, field), NULL, value, 0, 0, NULL,   \
            message                                                                                \
    }
/* clang-format on */

const struct setting settings_known[] = {
    LIST(rules, "PATH", NULL, NULL, "Rules: a file, or a folder of *.yaml and *.yml"),
    SWITCH(merge_domains, "false", "Let a domain be spread over several files of rules"),
    CHOICE(default_algorithm, "window", algorithms, "The algorithm of limits that name none"),
    SWITCH(shadow_mode, "false", "Count what every rule would deny, and deny nothing"),
    SWITCH(quota_mode, "false", "Take every rule for one in quota mode"),
    SWITCH(rules_may_fail, "false", "Begin without rules where their files cannot be used"),
    SWITCH(rules_may_be_empty, "false", "Serve without limits where the files of rules have none"),
    SWITCH(ready_with_rules, "false", "Be ready only while there are rules"),

    PLACES(resp, "127.0.0.1:7379", "Where RESP is spoken; ADDRESS:PORT, unix:/PATH or off"),
    PLACES(resp_tls, "off", "Where RESP is spoken in TLS"),
    PLACES(http, "127.0.0.1:8080", "Where HTTP is spoken"),
    PLACES(http_tls, "off", "Where HTTPS is spoken"),
    PLACES(grpc, "127.0.0.1:8081", "Where gRPC is spoken: Envoy's rate limit service"),
    PLACES(grpc_tls, "off", "Where gRPC is spoken in TLS"),
    NUMBER(workers, "0", 0, WORKERS_MAX,
           "Threads that serve; 0: as many as there are processors to use"),
    SWITCH(insecure, "false", "Let anybody ask and administer who reaches a port"),

    TEXT(state, "FILE", NULL, "Keeps all limits over restarts and crashes; without it in memory"),
    NUMBER(keys, "1048576", 1, UINT64_C(1) << 36, "Live keys with states of 8 bytes"),
    NUMBER(keys16, "1048576", 0, UINT64_C(1) << 35, "Live keys with states of 16 bytes"),
    NUMBER(keys_wide, "16384", 0, UINT64_C(1) << 32,
           "Live keys with wider states: log, concurrency"),
    NUMBER(wide_size, "4096", 0, 65536, "Bytes of the widest state; stint explain tells a quota's"),
    CHOICE(table_full, "evict", table_policies,
           "What a full table does under rules and quotas that set no when_full: evict, inherit, "
           "deny or allow"),
    NUMBER(tickets, "65536", 1, UINT32_MAX, "Open reservations"),
    NUMBER(blocks, "4096", 1, UINT32_MAX, "Blocked keys"),
    NUMBER(
        quotas, "0", 0, 32704,
        "Different quotas, a quarter of them for rules alone; 0: one for 16 keys, at least 1024"),
    NUMBER(pools_max, "16", 1, 65536, "Pools of keys that the table has room for"),
    NUMBER(overrides, "4096", 1, UINT64_C(1) << 24, "Keys with a quota of their own"),
    NUMBER(requests, "65536", 0, UINT64_C(1) << 26, "Answers kept for retries with the same id"),
    SWITCH(huge_pages, "false", "Ask for huge pages"),
    CHOICE(clock, "real", clocks,
           "What decisions go by: real, or virtual, which callers move to test with it"),
    SWITCH(trust_after_crash, "false", "After a power cut keep states as they are, not full"),
    DURATION(id_lifetime, "10m", NS_PER_S, NS_PER_DAY, "How long the id of a request is known"),
    NUMBER(popular_keys, "1024", 0, TOP_KEYS_MAX, "Names of keys kept for stint top; 0: none"),
    DURATION(popular_half_life, "1m", STINT_TOP_HALF_LIFE_MIN_NS, STINT_TOP_HALF_LIFE_MAX_NS,
             "How long until what a key asked counts half in stint top"),

    STORES(store, "Shared stores: a URL, or @FILE that has it; NAME= for rules that name it"),
    TEXT(store_prefix, "TEXT", "stint:", "What the names of all keys in stores begin with"),
    DURATION(store_timeout, "50ms", NS_PER_MS, NS_PER_MIN,
             "How long a request waits for stores at most"),
    DURATION(store_connect_timeout, "250ms", NS_PER_MS, NS_PER_MIN,
             "How long connecting to a store may take"),
    TEXT(store_ca_file, "FILE", NULL, "Who may sign certificates of stores, PEM"),
    TEXT(store_cert_file, "FILE", NULL, "The certificate that stores are shown, PEM"),
    TEXT(store_key_file, "FILE", NULL, "Its key, PEM"),
    CHOICE(store_on_error, "error", store_errors,
           "What quotas without a rule, and rules that do not say, do while a store is away"),
    NUMBER(store_nodes, "1", 1, 65535,
           "Servers that share the stores: each has 1/N while one is away"),
    TEXT(store_node, "NAME", NULL, "Which of store_node_names this server is"),
    LIST(store_node_names, "NAME", NULL, NULL,
         "The names of all of them: then nothing is left over"),
    NUMBER(deny_cache, "65536", 0, UINT64_C(1) << 24,
           "Denials that each worker remembers of a store; 0: none"),
    DURATION(deny_cache_max, "1s", 0, NS_PER_MIN, "How long it does at most; 0: not at all"),
    CHOICE(after_failover, "trust", cautions,
           "What keys that look unused have used after a failover: trust (nothing), half or full"),
    NUMBER(lease_keys, "4096", 1, UINT64_C(1) << 24, "Keys of which a worker holds leases at once"),

    TEXT(tokens, "FILE", NULL, "Who may ask for what: NAME ROLE,… sha256:HEX on each line"),
    TEXT(tls_certificate, "FILE", NULL, "The certificate and its chain, PEM"),
    TEXT(tls_key, "FILE", NULL, "Its key, PEM"),
    TEXT(tls_client_ca, "FILE", NULL, "Demand client certificates that one of these has signed"),
    TEXT(tls_priorities, "TEXT", NULL, "Versions and ciphers as GnuTLS writes them"),

    TEXT(http_domain, "NAME", NULL, "The domain that /auth asks where its query names none"),
    LIST(http_descriptors, "PARTS", NULL, NULL,
         "A descriptor of /auth: address, path, header:NAME"),
    LIST(http_trusted_proxies, "NETWORK", NULL, NULL,
         "Whose word on addresses is taken: 10.0.0.0/8"),
    LIST(http_hosts, "NAME", NULL, NULL,
         "Host names that HTTP answers at without tokens, beside addresses and localhost"),
    TEXT(http_address_field, "NAME", NULL, "The field in which they tell whom they speak for"),
    TEXT(http_uri_field, "NAME", NULL, "The field in which they tell what was asked"),
    TEXT(http_method_field, "NAME", NULL, "The field in which they tell how"),
    LIST(http_fields, "STYLE", "draft-11", field_styles, "Which RateLimit fields answers have"),
    NUMBER(http_deny_status, "429", 400, 599,
           "What /auth denies with where it does not say ?deny_status=N"),

    CHOICE(grpc_hits, "take", grpc_hits,
           "gRPC and /json: what descriptors' own hits do under rules that set no hits: take, "
           "charge or add"),
    LIST(grpc_fields, "STYLE", "off", grpc_styles,
         "gRPC: which RateLimit fields Envoy is to add to responses"),
    TEXT(grpc_limit_field, "NAME", NULL, "gRPC: draft-03's RateLimit-Limit by another name"),
    TEXT(grpc_remaining_field, "NAME", NULL, "gRPC: the same of RateLimit-Remaining"),
    TEXT(grpc_reset_field, "NAME", NULL, "gRPC: the same of RateLimit-Reset"),
    SWITCH(grpc_metadata, "false", "gRPC: tell Envoy of the decision as dynamic metadata"),
    TEXT(grpc_denied_body, "TEXT", NULL, "gRPC: the body of what Envoy answers who is denied"),

    NUMBER(auth_guesses, "20", 0, 1000000,
           "Wrong secrets a minute from one address, beyond which none is looked at; 0: no limit"),
    NUMBER(connections, "10000", 1, 1000000, "Connections at most, in all"),
    NUMBER(connections_per_address, "4096", 0, 1000000,
           "Connections at most of one address; 0: no limit"),
    BYTES(connection_memory, "256MiB", 1 << 20, 64 * GIB,
          "Memory that all connections may hold for unread answers and unfinished requests"),
    DURATION(idle_time, "1h", 0, NS_PER_YEAR,
             "RESP, gRPC: how long a connection may be idle; 0: for ever"),
    DURATION(request_time, "10s", 0, NS_PER_DAY, "RESP, gRPC: how long a request may take to come"),
    DURATION(write_time, "30s", 0, NS_PER_DAY,
             "RESP, gRPC: how long a client may leave answers unread"),
    BYTES(request_size, "1MiB", 1024, GIB, "RESP: bytes of one command"),
    BYTES(argument_size, "128KiB", 64, GIB, "RESP: bytes of one argument"),
    NUMBER(arguments, "4096", 8, RESP_ARGUMENTS_MAX, "RESP: arguments of one command"),
    BYTES(output_size, "256KiB", 1024, GIB,
          "RESP, HTTP: unread answers above which nothing is read"),
    BYTES(http_header_size, "8KiB", 2048, 1 << 20, "HTTP: bytes of a request's line and fields"),
    BYTES(http_body_size, "64KiB", 1024, 64 << 20, "HTTP: bytes of a request's body"),
    DURATION(http_idle_time, "75s", NS_PER_S, NS_PER_DAY,
             "HTTP: how long a connection may be idle"),
    DURATION(http_request_time, "10s", NS_PER_S, NS_PER_DAY, "HTTP: how long a request may take"),
    DURATION(http_answer_time, "30s", NS_PER_S, NS_PER_DAY, "HTTP: how long reading it may take"),

    BYTES(grpc_message_size, "1MiB", 1024, GIB, "gRPC: bytes of one message, also when inflated"),
    BYTES(grpc_header_size, "16KiB", 1024, 1 << 20, "gRPC: bytes of the fields of one call"),
    NUMBER(grpc_streams, "1000", 1, 100000, "gRPC: calls at once on one connection"),
    BYTES(grpc_output_size, "256KiB", 1024, GIB,
          "gRPC: unread answers above which nothing is read"),
    NUMBER(grpc_idle_frames, "1000", 10, 1000000,
           "gRPC: frames that ask for nothing, beyond four a call, within ten seconds"),
    DURATION(grpc_age, "0", 0, NS_PER_YEAR,
             "gRPC: after which a connection is asked to be made anew; 0: never"),
    DURATION(grpc_age_grace, "0", 0, NS_PER_DAY,
             "gRPC: how long its calls have then; 0: until they end"),

    DURATION(drain_time, "30s", 0, NS_PER_HOUR, "How long connections have to end at the end"),
    TEXT(control, "PATH", NULL, "Where a successor takes over; by default FILE.control of --state"),
    SWITCH(replace, "false", "Take over from the process at --control, if one serves there"),
    TEXT(user, "NAME", NULL, "Whom root becomes before it opens files"),
    CHOICE(sandbox, "auto", sandboxes,
           "Files and system calls given up: auto, on (all, or no server), off"),
    SWITCH(core_dumps, "false",
           "Let a crash leave a core dump, with keys and passwords, and debuggers attach"),
    DURATION(watch, "5s", 0, NS_PER_DAY, "How often files are looked at for changes; 0: never"),
    CHOICE(metrics_names, "stint", metrics_names,
           "Names of figures: stint, envoyproxy (as its ratelimit has them) or both"),
    TEXT(metrics_path, "PATH", NULL, "Where /metrics is found, too"),
    NUMBER(near_limit, "800", 0, 1000,
           "Thousandths of a limit from which on units are near it, in envoyproxy's figures"),
    CHOICE(log_format, "text", log_formats, "Lines of the log: text or json"),
    CHOICE(log_level, "info", log_levels, "The least that is logged: debug, info, warn or error"),
};
/* Those that a reload puts in force, or that say what it reads. */
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

bool setting_is_live(size_t index)
{
    for (size_t i = 0; i < sizeof(live) / sizeof(live[0]); i++)
        if (strcmp(settings_known[index].name, live[i]) == 0)
            return true;
    return false;
}

const size_t n_settings_known = sizeof(settings_known) / sizeof(settings_known[0]);

_Static_assert(sizeof(settings_known) / sizeof(settings_known[0]) <= SETTINGS_MAX,
               "settings.origins has no room for all of them");
