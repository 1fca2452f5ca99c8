/* SPDX-License-Identifier: MIT */
/* The table of settings, whose rows need a field in serve_settings.h; values by their kind. */
#define _GNU_SOURCE
#include "cmd/serve/serve_settings.h"

#include "algorithm/spec.h"
#include "base/buf.h"
#include "base/ns.h"
#include "base/number.h"
#include "cmd/lib/args.h"
#include "cmd/store/store_word.h"
#include "frontend/http/http.h"
#include "frontend/resp/resp_conn.h"
#include "net/listen/endpoint.h"
#include "service/access/access.h"
#include "service/service.h"
#include "service/top_keys.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- The table ------------------------------------------------------------------------------- */

/*
 * Words to choose from. A setting is the number of its word, which is the value of an enum:
 * log_format, log_level, stint_algorithm less STINT_WINDOW, metrics_names less 1, stint_clock,
 * failover_policy, and that of hits in serve_settings.h. Arrays of serve.c and serve_stores.c are
 * in the order of sandboxes, table_policies and store_errors.
 */
static const char *const log_formats[] = {"text", "json", NULL};
static const char *const log_levels[] = {"debug", "info", "warn", "error", NULL};
static const char *const algorithms[] = {"window",       "buckets",         "log", "gcra",
                                         "fixed_window", "sliding_counter", NULL};
static const char *const names_of_metrics[] = {"stint", "envoyproxy", "both", NULL};
static const char *const clocks[] = {"real", "virtual", NULL};
static const char *const failover_policies[] = {"trust", "half", "full", NULL};
static const char *const hits[] = {"take", "charge", "add", NULL};
static const char *const sandboxes[] = {"auto", "on", "off", NULL};
static const char *const table_policies[] = {"evict", "inherit", "deny", "allow", NULL};
static const char *const store_errors[] = {"error", "deny", "allow", "local", NULL};

/* Words of lists. */
static const char *const roles[] = {"ask", "administer", "metrics", NULL};
static const char *const field_styles[] = {"draft-11", "draft-03", "x-ratelimit", "none", NULL};
static const char *const grpc_styles[] = {"off", "draft-11", "draft-03", "x-ratelimit", NULL};

#define GIB (UINT64_C(1) << 30)

/* clang-format off: a table is read by its columns */
#define ROW(kind, field, argument, value, min, max, choices, message)                              \
    {                                                                                              \
#field, SETTING_##kind, offsetof(struct serve_settings, field), argument, value, min, max, \
            choices, message                                                                       \
    }
#define TEXT(field, argument, value, message) ROW(TEXT, field, argument, value, 0, 0, NULL, message)
#define FIELD_NAME(field, message) ROW(FIELD_NAME, field, "NAME", NULL, 0, 0, NULL, message)
#define CHOICE(field, value, choices, message)                                                     \
    ROW(CHOICE, field, "NAME", value, 0, 0, choices, message)
#define LIST(field, argument, value, choices, message)                                             \
    ROW(LIST, field, argument, value, 0, 0, choices, message)
#define ADDRESSES(field, value, message)                                                           \
    ROW(ADDRESSES, field, "ADDRESS:PORT", value, 0, 0, NULL, message)
#define FIELDS(field, message) ROW(FIELDS, field, "NAME=VALUE", NULL, 0, 0, NULL, message)
#define SHARE(field, value, message) ROW(SHARE, field, "SHARE", value, 0, 0, NULL, message)
#define STORES(field, message) ROW(STORES, field, "[NAME=]URL", NULL, 0, 0, NULL, message)
#define TEXT_OF(number) TEXT_OF_ARGUMENT(number)
#define TEXT_OF_ARGUMENT(number) #number
#define NUMBER(field, value, min, max, message)                                                    \
    ROW(NUMBER, field, "N", value, min, max, NULL, message)
#define BYTES(field, value, min, max, message)                                                     \
    ROW(BYTES, field, "BYTES", value, min, max, NULL, message)
#define DURATION(field, value, min, max, message)                                                  \
    ROW(DURATION, field, "TIME", value, min, max, NULL, message)
#define SWITCH(field, value, message) ROW(SWITCH, field, "false", value, 0, 0, NULL, message)
/* clang-format on */

const struct setting settings_known[] = {
    LIST(rules, "PATH", NULL, NULL,
         "File of rules, folder of *.yaml and *.yml files, or control plane: "
         "xds://[NODE@]HOST:PORT, xdss:// for TLS"),
    SWITCH(merge_domains, "false", "Allow one domain in several files of rules"),
    CHOICE(default_algorithm, "window", algorithms, "Algorithm of limits that name none"),
    SWITCH(shadow_mode, "false", "Count what every rule would deny, but deny nothing"),
    SWITCH(quota_mode, "false", "Apply quota mode to every rule"),
    SWITCH(rules_may_fail, "false", "Start without rules if their files cannot be used"),
    SWITCH(rules_may_be_empty, "false", "Accept files of rules that contain no limit"),
    SWITCH(ready_with_rules, "false", "Report ready only while rules are loaded"),
    SWITCH(ready_with_stores, "true", "Report ready only while the default store is available"),

    ADDRESSES(resp, "127.0.0.1:7379", "Addresses for RESP: ADDRESS:PORT, unix:/PATH or off"),
    ADDRESSES(resp_tls, "off", "Addresses for RESP over TLS"),
    ADDRESSES(http, "127.0.0.1:8080", "Addresses for HTTP"),
    ADDRESSES(http_tls, "off", "Addresses for HTTPS"),
    ADDRESSES(grpc, "127.0.0.1:8081", "Addresses for gRPC (Envoy's rate limit service)"),
    ADDRESSES(grpc_tls, "off", "Addresses for gRPC over TLS"),
    NUMBER(workers, "0", 0, WORKERS_MAX, "Worker threads; 0: one for each available processor"),
    SWITCH(insecure, "false", "Serve other machines without tokens"),
    LIST(anonymous, "ROLE", "ask;administer;metrics", roles,
         "Roles of clients where there are no tokens: ask, administer, metrics"),

    TEXT(state, "FILE", NULL,
         "File that keeps all limits over restarts and crashes; without it they are in memory"),
    NUMBER(keys, "1048576", 1, UINT64_C(1) << 36, "Capacity for live keys with states of 8 bytes"),
    NUMBER(keys16, "1048576", 0, UINT64_C(1) << 35,
           "Capacity for live keys with states of 16 bytes"),
    NUMBER(keys_wide, "16384", 0, UINT64_C(1) << 32,
           "Capacity for live keys with wider states: log, concurrency"),
    NUMBER(wide_size, "4096", 0, 65536,
           "Size of the widest state in bytes; stint explain prints the size that a quota needs"),
    CHOICE(table_full, "evict", table_policies,
           "What a full table does under rules and quotas that set no when_full: evict, "
           "inherit, deny or allow"),
    NUMBER(tickets, "65536", 1, UINT32_MAX, "Capacity for open reservations"),
    NUMBER(blocks, "4096", 1, UINT32_MAX, "Capacity for blocked keys"),
    NUMBER(quotas, "0", 0, 32704,
           "Capacity for different quotas, a quarter of it for rules only; 0: one for 16 keys, "
           "at least 1024"),
    NUMBER(pools_max, "16", 1, 65536, "Capacity for pools of keys"),
    NUMBER(overrides, "4096", 1, UINT64_C(1) << 24, "Capacity for keys with a quota of their own"),
    NUMBER(requests, "65536", 0, UINT64_C(1) << 26,
           "Answers kept for retries with the same request id"),
    SWITCH(huge_pages, "false", "Request huge pages"),
    CHOICE(clock, "real", clocks,
           "Clock of decisions: real, or virtual for tests, which clients set"),
    SWITCH(trust_after_crash, "false",
           "Keep states as they are after a power failure; without it they count as full for "
           "one period"),
    DURATION(id_lifetime, "10m", NS_PER_S, NS_PER_DAY,
             "How long the id of a request is remembered"),
    NUMBER(popular_keys, "1024", 0, TOP_KEYS_MAX, "Names of keys kept for stint top; 0: none"),
    DURATION(popular_half_life, "1m", STINT_TOP_HALF_LIFE_MIN_NS, STINT_TOP_HALF_LIFE_MAX_NS,
             "Half-life of the scores of keys in stint top"),

    STORES(store, "URL of a shared store, or @FILE that contains it; NAME= is its name in rules"),
    TEXT(store_prefix, "TEXT", "stint:", "Prefix of the names of all keys in stores"),
    DURATION(store_timeout, "50ms", NS_PER_MS, NS_PER_MIN,
             "Longest time that a request waits for stores"),
    DURATION(store_connect_timeout, "250ms", NS_PER_MS, NS_PER_MIN,
             "Longest time for connecting to a store"),
    TEXT(store_ca_file, "FILE", NULL, "CA certificates for the certificates of stores, PEM"),
    TEXT(store_cert_file, "FILE", NULL, "Client certificate for stores, PEM"),
    TEXT(store_key_file, "FILE", NULL, "Private key of store_cert_file, PEM"),
    CHOICE(store_on_error, "error", store_errors,
           "What quotas without a rule, and rules without on_store_error, do while a store is "
           "unavailable"),
    TEXT(store_counters, "NAME", NULL,
         "Store of counters, or none: the table. Default: the store without a name"),
    NUMBER(store_nodes, "1", 1, 65535,
           "Servers that share the stores; each has 1/N of a limit while a store is unavailable"),
    TEXT(store_node, "NAME", NULL, "Name of this server, one of store_node_names"),
    LIST(store_node_names, "NAME", NULL, NULL,
         "Names of all servers that share the stores, so that 1/N leaves no remainder"),
    NUMBER(deny_cache, "65536", 0, UINT64_C(1) << 24,
           "Denials of a store that each worker caches; 0: none"),
    DURATION(deny_cache_max, "1s", 0, NS_PER_MIN,
             "Longest time that a denial is cached; 0: not at all"),
    CHOICE(after_failover, "trust", failover_policies,
           "Assumed use of keys that look unused after a failover: trust (nothing), half or full"),
    NUMBER(lease_keys, "4096", 1, UINT64_C(1) << 24,
           "Keys for which a worker holds leases at the same time"),

    TEXT(xds_ca_file, "FILE", NULL, "CA certificates for the certificates of control planes, PEM"),
    TEXT(xds_cert_file, "FILE", NULL, "Client certificate for control planes, PEM"),
    TEXT(xds_key_file, "FILE", NULL, "Private key of xds_cert_file, PEM"),
    TEXT(xds_server_name, "NAME", NULL,
         "Name in the certificate of a control plane, if it is not its host name"),
    LIST(xds_metadata, "KEY=VALUE", NULL, NULL, "Metadata of the node, for control planes"),
    LIST(xds_headers, "NAME:VALUE", NULL, NULL, "Header fields for control planes"),
    DURATION(xds_backoff, "10s", NS_PER_MS, NS_PER_HOUR,
             "Longest wait before the first attempt to connect again to a control plane; doubled "
             "after each"),
    DURATION(xds_backoff_max, "1m", NS_PER_MS, NS_PER_HOUR,
             "Longest wait before any attempt to connect to a control plane"),

    TEXT(tokens, "FILE", NULL,
         "File of clients' tokens and roles: NAME ROLE,… sha256:HEX on each line"),
    TEXT(tls_certificate, "FILE", NULL, "Server certificate and its chain, PEM"),
    TEXT(tls_key, "FILE", NULL, "Private key of tls_certificate, PEM"),
    TEXT(tls_client_ca, "FILE", NULL,
         "Require client certificates signed by one of these CA certificates, PEM"),
    TEXT(tls_priorities, "TEXT", NULL, "TLS versions and ciphers, as a GnuTLS priority string"),

    TEXT(http_domain, "NAME", NULL, "Domain of /auth requests whose query names none"),
    LIST(http_descriptors, "PARTS", NULL, NULL,
         "Descriptor of /auth requests: address, path, header:NAME"),
    LIST(http_trusted_proxies, "NETWORK", NULL, NULL,
         "Networks of proxies whose client-address header is trusted, such as 10.0.0.0/8"),
    LIST(http_hosts, "NAME", NULL, NULL,
         "Host names that HTTP accepts without tokens, besides addresses and localhost"),
    FIELD_NAME(http_address_field,
               "Header in which trusted proxies send the address of the client"),
    FIELD_NAME(http_uri_field,
               "Header in which trusted proxies send the URI of the client's request"),
    FIELD_NAME(http_method_field,
               "Header in which trusted proxies send the method of the client's request"),
    LIST(http_fields, "STYLE", "draft-11", field_styles,
         "Styles of the RateLimit fields in HTTP responses"),
    NUMBER(http_deny_status, TEXT_OF(HTTP_DENY_STATUS), HTTP_DENY_STATUS_MIN, HTTP_DENY_STATUS_MAX,
           "Status of denials by /auth if the query sets no deny_status=N"),

    CHOICE(grpc_hits, "take", hits,
           "gRPC and /json: what descriptors' own hits do under rules that set no hits: take, "
           "charge or add"),
    LIST(grpc_fields, "STYLE", "off", grpc_styles,
         "gRPC: styles of the RateLimit fields that Envoy adds to responses"),
    FIELD_NAME(grpc_limit_field, "gRPC: another name for the RateLimit-Limit field of draft-03"),
    FIELD_NAME(grpc_remaining_field,
               "gRPC: another name for the RateLimit-Remaining field of draft-03"),
    FIELD_NAME(grpc_reset_field, "gRPC: another name for the RateLimit-Reset field of draft-03"),
    SWITCH(grpc_metadata, "false", "gRPC: send decisions to Envoy as dynamic metadata"),
    TEXT(grpc_denied_body, "TEXT", NULL,
         "gRPC: body of the response that Envoy sends to denied clients"),

    NUMBER(auth_guesses, "20", 0, 1000000,
           "Wrong secrets per minute from one address before further ones are rejected; 0: no "
           "limit"),
    NUMBER(connections, "10000", 1, 1000000, "Maximum number of connections"),
    NUMBER(connections_per_address, "4096", 0, 1000000,
           "Maximum number of connections from one address; 0: no limit"),
    BYTES(connection_memory, "256MiB", 1 << 20, 64 * GIB,
          "Maximum memory of all connections for unread answers and unfinished requests"),
    DURATION(idle_time, "1h", 0, NS_PER_YEAR,
             "RESP, gRPC: longest time that a connection may be idle; 0: no limit"),
    DURATION(request_time, "10s", 0, NS_PER_DAY,
             "RESP, gRPC: longest time for receiving a request"),
    DURATION(write_time, "30s", 0, NS_PER_DAY,
             "RESP, gRPC: longest time that a client may leave answers unread"),
    BYTES(request_size, "1MiB", 1024, GIB, "RESP: maximum size of a command"),
    BYTES(argument_size, "128KiB", 64, GIB, "RESP: maximum size of an argument"),
    NUMBER(arguments, "4096", 8, RESP_ARGUMENTS_MAX,
           "RESP: maximum number of arguments of a command"),
    BYTES(output_size, "256KiB", 1024, GIB,
          "RESP, HTTP: size of unread answers above which no requests are read"),
    BYTES(http_header_size, "8KiB", 2048, 1 << 20,
          "HTTP: maximum size of a request's line and fields"),
    BYTES(http_body_size, "64KiB", 1024, 64 << 20, "HTTP: maximum size of a request's body"),
    DURATION(http_idle_time, "75s", NS_PER_S, NS_PER_DAY,
             "HTTP: longest time that a connection may be idle"),
    DURATION(http_request_time, "10s", NS_PER_S, NS_PER_DAY,
             "HTTP: longest time for receiving a request"),
    DURATION(http_answer_time, "30s", NS_PER_S, NS_PER_DAY,
             "HTTP: longest time that a client may leave answers unread"),

    BYTES(grpc_message_size, "1MiB", 1024, GIB,
          "gRPC: maximum size of a message, also when inflated"),
    BYTES(grpc_header_size, "16KiB", 1024, 1 << 20, "gRPC: maximum size of the fields of a call"),
    NUMBER(grpc_streams, "1000", 1, 100000,
           "gRPC: maximum number of concurrent calls on a connection"),
    BYTES(grpc_output_size, "256KiB", 1024, GIB,
          "gRPC: size of unread answers above which no requests are read"),
    NUMBER(grpc_idle_frames, "1000", 10, 1000000,
           "gRPC: frames without a request, beyond four per call, that are allowed within ten "
           "seconds"),
    DURATION(grpc_age, "0", 0, NS_PER_YEAR,
             "gRPC: age at which the client is requested to open a new connection; 0: never"),
    DURATION(grpc_age_grace, "0", 0, NS_PER_DAY,
             "gRPC: time for the last calls of such a connection; 0: until they end"),

    DURATION(drain_time, "30s", 0, NS_PER_HOUR,
             "Time for connections to end when the server stops"),
    TEXT(control, "PATH", NULL,
         "Control socket for a takeover; by default FILE.control of --state"),
    SWITCH(replace, "false", "Take over from the process at --control, if one serves there"),
    TEXT(user, "NAME", NULL, "Drop privileges to this user when started as root"),
    CHOICE(sandbox, "auto", sandboxes,
           "Give up access to files and system calls: auto, on (all, or no server), off"),
    SWITCH(core_dumps, "false", "Allow debuggers, and core dumps with keys and passwords"),
    DURATION(watch, "5s", 0, NS_PER_DAY,
             "Interval at which files are checked for changes; 0: never"),
    CHOICE(metrics_names, "stint", names_of_metrics,
           "Names of metrics: stint, envoyproxy (as in its ratelimit) or both"),
    ROW(TEXT, metrics_path, "PATH", NULL, '/', 0, NULL, "Additional path of /metrics"),
    NUMBER(near_limit, "800", 0, 1000,
           "Thousandths of a limit from which on units are near it, in envoyproxy's metrics"),
    TEXT(traces, "URL", NULL,
         "Collector that gets traces by OTLP, such as http://localhost:4318 or "
         "grpc://localhost:4317; off: none"),
    SHARE(traces_ratio, "0.01", "Share of the requests that are traced, from 0 to 1"),
    SWITCH(traces_follow, "true",
           "Trace a request with a valid traceparent if, and only if, its caller is traced"),
    LIST(traces_attributes, "NAME=VALUE", NULL, NULL,
         "Attribute of the server in its traces, such as service.name=NAME"),
    FIELDS(traces_headers, "Header field of requests to the collector, such as Authorization"),
    DURATION(traces_timeout, "10s", NS_PER_MS, NS_PER_MIN,
             "Longest time for connecting to the collector, and for its answer"),
    TEXT(traces_ca_file, "FILE", NULL, "CA certificates for the collector's certificate, PEM"),
    TEXT(traces_cert_file, "FILE", NULL, "Client certificate for the collector, PEM"),
    TEXT(traces_key_file, "FILE", NULL, "Private key of traces_cert_file, PEM"),
    CHOICE(log_format, "text", log_formats, "Format of log lines: text or json"),
    CHOICE(log_level, "info", log_levels,
           "Lowest level that is logged: debug, info, warn or error"),
};
const size_t n_settings_known = sizeof(settings_known) / sizeof(settings_known[0]);

_Static_assert(sizeof(settings_known) / sizeof(settings_known[0]) <= SETTINGS_MAX,
               "settings.origins has no room for all of them");

int setting_find(struct span name)
{
    for (size_t i = 0; i < n_settings_known; i++)
        if (span_equals(name, settings_known[i].name))
            return (int)i;
    return -1;
}

/* ---- One value of each kind ------------------------------------------------------------------ */

static int out_of_range(const struct setting *setting, const char *shown, const char *text,
                        struct stint_error *error)
{
    char least[64], most[64];
    struct buf min = buf_of(least, sizeof(least)), max = buf_of(most, sizeof(most));
    if (setting->kind == SETTING_DURATION) {
        spec_format_duration(&min, setting->min);
        spec_format_duration(&max, setting->max);
    } else {
        buf_add(&min, "%" PRIu64, setting->min);
        buf_add(&max, "%" PRIu64, setting->max);
    }
    return err_set(error, STINT_E_RANGE, "%s: expected %s from %s to %s, not '%s'", shown,
                   setting->kind == SETTING_DURATION ? "a time such as 500ms, 30s or 5m"
                   : setting->kind == SETTING_BYTES  ? "a number of bytes, also as 64KiB or 1MiB,"
                                                     : "a whole number",
                   least, most, text);
}

static bool read_unit(const char *at, uint64_t *number)
{
    static const struct {
        const char *name;
        unsigned shift;
    } units[] = {{"", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}};
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
        if (strcmp(at, units[i].name) == 0)
            return !__builtin_mul_overflow(*number, UINT64_C(1) << units[i].shift, number);
    return false;
}

static int set_number(const struct setting *setting, uint64_t *number, const char *shown,
                      const char *text, struct stint_error *error)
{
    size_t n_digits = strspn(text, "0123456789");
    bool is_read = true;
    if (setting->kind != SETTING_DURATION)
        is_read = resp_number_read(span_of(text, n_digits), UINT64_MAX, number) &&
                  (setting->kind == SETTING_BYTES ? read_unit(text + n_digits, number)
                                                  : text[n_digits] == '\0');
    else if (strcmp(text, "0") == 0)
        *number = 0;
    else
        is_read = spec_parse_duration(span_of_text(text), number) == 0;
    if (!is_read || *number < setting->min || *number > setting->max)
        return out_of_range(setting, shown, text, error);
    return 0;
}

int setting_switch(bool *value, const char *shown, const char *text, struct stint_error *error)
{
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcasecmp(text, words[i]) == 0) {
            *value = i % 2 == 1;
            return 0;
        }
    return err_set(error, STINT_E_SYNTAX, "%s: expected true or false, not '%s'", shown, text);
}

/* "0.05" as billionths. */
static int set_share(uint64_t *share, const char *shown, const char *text,
                     struct stint_error *error)
{
    char *end;
    double number = strtod(text, &end);
    if (end == text || *end != '\0' || !(number >= 0 && number <= 1))
        return err_set(error, STINT_E_RANGE,
                       "%s: expected a share from 0 to 1, such as 0.05, not "
                       "'%s'",
                       shown, text);
    *share = (uint64_t)(number * (double)SETTING_SHARE_ALL + 0.5);
    return 0;
}

/* The number of the text among the choices; else -1 with an error. */
static int find_choice(const struct setting *setting, const char *shown, const char *text,
                       struct stint_error *error)
{
    struct args_hint hint;
    for (int i = 0; setting->choices[i] != NULL; i++)
        if (strcmp(setting->choices[i], text) == 0)
            return i;
    err_set(error, STINT_E_SYNTAX, "%s cannot be '%s'; %s", shown, text,
            args_hint(&hint, "", text, setting->choices));
    return -1;
}

static int no_memory(struct stint_error *error)
{
    return err_set(error, STINT_E_SYSTEM, "no memory for the settings");
}

static int set_text(struct settings *settings, const char **value, const char *text,
                    struct stint_error *error)
{
    *value = arena_text(&settings->arena, span_of_text(text));
    return *value != NULL ? 0 : no_memory(error);
}

/* A name that a client or a proxy can send, and that adds no second field to a response. */
static int check_field_name(const char *shown, const char *text, struct stint_error *error)
{
    static const char bytes[] = "!#$%&'*+-.^_`|~0123456789"
                                "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    if (text[0] != '\0' && text[strspn(text, bytes)] == '\0')
        return 0;
    return err_set(error, STINT_E_SYNTAX,
                   "%s: expected the name of a header field, such as X-RateLimit-Limit, found '%s'",
                   shown, text);
}

static int list_add(struct settings *settings, struct text_list *list, const char *text,
                    struct stint_error *error)
{
    size_t n = list->n_texts;
    if ((n & (n - 1)) == 0) { /* it is full: twice the space, and one for NULL */
        const char **texts = arena_take(&settings->arena, (2 * n + 2) * sizeof(*texts));
        if (texts == NULL)
            return no_memory(error);
        if (n > 0)
            memcpy(texts, list->texts, n * sizeof(*texts));
        list->texts = texts;
    }
    list->n_texts++;
    return set_text(settings, &list->texts[n], text, error);
}

static int check_element(const struct setting *setting, const char *shown, const char *text,
                         struct stint_error *error)
{
    struct endpoint endpoint;
    struct store_word word;
    struct stint_error why;
    if (setting->kind == SETTING_LIST || setting->kind == SETTING_FIELDS)
        return setting->choices != NULL && find_choice(setting, shown, text, error) < 0
                   ? STINT_E_SYNTAX
                   : 0;
    int code = setting->kind == SETTING_ADDRESSES ? endpoint_parse(&endpoint, text, &why)
                                                  : store_word_read(&word, text, &why);
    return code == 0 ? 0 : err_set(error, code, "%s: %s", shown, why.message);
}

static int set_value(struct settings *settings, const struct setting *setting, const char *shown,
                     const char *text, struct stint_error *error)
{
    void *value = (char *)&settings->values + setting->at;
    int code;
    switch (setting->kind) {
    case SETTING_FIELD_NAME:
        code = check_field_name(shown, text, error);
        return code != 0 ? code : set_text(settings, value, text, error);
    case SETTING_TEXT:
        if (text[0] == '\0')
            return err_set(error, STINT_E_SYNTAX, "%s: expected a %s, found nothing", shown,
                           setting->argument);
        if (setting->min != 0 && (uint8_t)text[0] != setting->min)
            return err_set(error, STINT_E_SYNTAX,
                           "%s: expected a %s that begins with %c, found '%s'", shown,
                           setting->argument, (int)setting->min, text);
        return set_text(settings, value, text, error);
    case SETTING_CHOICE:
        code = find_choice(setting, shown, text, error);
        if (code < 0)
            return STINT_E_SYNTAX;
        *(unsigned *)value = (unsigned)code;
        return 0;
    case SETTING_LIST:
    case SETTING_ADDRESSES:
    case SETTING_FIELDS:
    case SETTING_STORES:
        code = check_element(setting, shown, text, error);
        return code != 0 ? code : list_add(settings, value, text, error);
    case SETTING_SHARE:
        return set_share(value, shown, text, error);
    case SETTING_SWITCH:
        return setting_switch(value, shown, text, error);
    default:
        return set_number(setting, value, shown, text, error);
    }
}

int settings_set(struct settings *settings, size_t index, enum setting_origin origin,
                 const char *shown, const char *text, struct stint_error *error)
{
    const struct setting *setting = &settings_known[index];
    void *value = (char *)&settings->values + setting->at;
    if (settings->origins[index] != origin && setting_is_list(setting))
        *(struct text_list *)value = (struct text_list){0};
    else if (text == NULL && (setting->kind == SETTING_TEXT || setting->kind == SETTING_FIELD_NAME))
        *(const char **)value = NULL;
    settings->origins[index] = origin;
    return text == NULL ? 0 : set_value(settings, setting, shown, text, error);
}

bool settings_listen(const struct serve_settings *settings)
{
    for (size_t i = 0; i < n_settings_known; i++) {
        const void *value = (const char *)settings + settings_known[i].at;
        const struct text_list *texts = value;
        if (settings_known[i].kind != SETTING_ADDRESSES)
            continue;
        for (size_t at = 0; at < texts->n_texts; at++)
            if (strcmp(texts->texts[at], "off") != 0)
                return true;
    }
    return false;
}

/* ---- Settings that cannot change ------------------------------------------------------------- */

static bool is_same_text(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static bool is_same(const struct setting *setting, const struct serve_settings *a,
                    const struct serve_settings *b)
{
    const void *at_a = (const char *)a + setting->at, *at_b = (const char *)b + setting->at;
    const struct text_list *list_a = at_a, *list_b = at_b;
    switch (setting->kind) {
    case SETTING_TEXT:
    case SETTING_FIELD_NAME:
        return is_same_text(*(const char *const *)at_a, *(const char *const *)at_b);
    case SETTING_LIST:
    case SETTING_ADDRESSES:
    case SETTING_FIELDS:
    case SETTING_STORES:
        for (size_t i = 0; i < list_a->n_texts && i < list_b->n_texts; i++)
            if (strcmp(list_a->texts[i], list_b->texts[i]) != 0)
                return false;
        return list_a->n_texts == list_b->n_texts;
    case SETTING_CHOICE:
        return *(const unsigned *)at_a == *(const unsigned *)at_b;
    case SETTING_SWITCH:
        return *(const bool *)at_a == *(const bool *)at_b;
    default:
        return *(const uint64_t *)at_a == *(const uint64_t *)at_b;
    }
}

/* Whether a reload applies the setting, or it says what a reload reads. */
static bool is_live(const char *name)
{
    static const char *const live[] = {"rules",
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
                                       "rules_may_be_empty"};
    for (size_t i = 0; i < sizeof(live) / sizeof(live[0]); i++)
        if (strcmp(name, live[i]) == 0)
            return true;
    return false;
}

static void hold(struct buf *held, const char *name)
{
    buf_add(held, "%s%s", held->len > 0 ? ", " : "", name);
}

/*
 * Whether there are tokens, and TLS, decides which ports may be open: their files may change, but
 * they can neither be added nor removed.
 */
static void hold_presence(struct buf *held, const char *name, const char **value,
                          const char *started)
{
    if ((*value == NULL) == (started == NULL))
        return;
    hold(held, name);
    *value = started;
}

void settings_hold(struct serve_settings *settings, const struct serve_settings *started,
                   struct buf *held)
{
    for (size_t i = 0; i < n_settings_known; i++)
        if (!is_live(settings_known[i].name) && !is_same(&settings_known[i], settings, started))
            hold(held, settings_known[i].name);
    hold_presence(held, "tokens", &settings->tokens, started->tokens);
    hold_presence(held, "tls_certificate", &settings->tls_certificate, started->tls_certificate);
    hold_presence(held, "tls_key", &settings->tls_key, started->tls_key);
}
