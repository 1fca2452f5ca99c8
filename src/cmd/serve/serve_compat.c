/* SPDX-License-Identifier: MIT */
/* From envoyproxy/ratelimit's environment to settings; the tables have all of its variables. */
#define _GNU_SOURCE
#include "cmd/serve/serve_settings.h"

#include "base/number.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The variables --------------------------------------------------------------------------- */

enum compat_kind {
    COMPAT_TEXT,     /* the setting as it is */
    COMPAT_SWITCH,   /* true or false as Go reads them */
    COMPAT_DURATION, /* a time as Go reads it: 24h, 1h30m */
    COMPAT_LEVEL,    /* of the log */
    COMPAT_FORMAT,   /* of the log */
    COMPAT_RATIO,    /* 0.8, as thousandths */
    COMPAT_JOINED,   /* makes a setting together with others */
    COMPAT_NOT,      /* true is refused, with the row's message */
    COMPAT_REFUSED,  /* ignoring it would silently change what was requested */
};

struct compat_variable {
    const char *name;
    enum compat_kind kind;
    const char *setting; /* the setting that it sets; NULL: none */
    const char *value;   /* their default if it is not set; NULL: that of the setting */
    const char *message; /* why it is refused */
};

/* clang-format off: a table is read by its columns */
#define AS(name, kind, setting, value)                                                             \
    {                                                                                              \
        name, COMPAT_##kind, setting, value, NULL                                                  \
    }
#define NOT(name, why)                                                                             \
    {                                                                                              \
        name, COMPAT_NOT, NULL, NULL, why                                                          \
    }
#define REFUSED(name, why)                                                                         \
    {                                                                                              \
        name, COMPAT_REFUSED, NULL, NULL, why                                                      \
    }
/* clang-format on */

static const struct compat_variable compat_variables[] = {
    AS("HOST", JOINED, "http", "0.0.0.0"),
    AS("PORT", JOINED, "http", "8080"),
    AS("DEBUG_HOST", JOINED, "http", "0.0.0.0"),
    AS("DEBUG_PORT", JOINED, "http", "6070"),
    AS("GRPC_UDS", JOINED, "grpc", NULL),
    AS("GRPC_HOST", JOINED, "grpc", "0.0.0.0"),
    AS("GRPC_PORT", JOINED, "grpc", "8081"),
    AS("GRPC_MAX_CONNECTION_AGE", DURATION, "grpc_age", "24h"),
    AS("GRPC_MAX_CONNECTION_AGE_GRACE", DURATION, "grpc_age_grace", "1h"),
    AS("GRPC_SERVER_USE_TLS", JOINED, "grpc_tls", "false"),
    AS("GRPC_SERVER_TLS_CERT", JOINED, "tls_certificate", NULL),
    AS("GRPC_SERVER_TLS_KEY", JOINED, "tls_key", NULL),
    AS("GRPC_CLIENT_TLS_CACERT", JOINED, "tls_client_ca", NULL),
    REFUSED("GRPC_CLIENT_TLS_SAN",
            "names in client certificates are not checked: give the clients of this server an "
            "authority of their own, GRPC_CLIENT_TLS_CACERT"),
    AS("LOG_LEVEL", LEVEL, "log_level", NULL),
    AS("LOG_FORMAT", FORMAT, "log_format", NULL),
    AS("CONFIG_TYPE", JOINED, NULL, "FILE"),
    AS("CONFIG_GRPC_XDS_SERVER_URL", JOINED, "rules", "localhost:18000"),
    AS("CONFIG_GRPC_XDS_NODE_ID", JOINED, "rules", "default"),
    AS("CONFIG_GRPC_XDS_SERVER_USE_TLS", JOINED, "rules", "false"),
    AS("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", JOINED, "xds_ca_file", NULL),
    AS("CONFIG_GRPC_XDS_SERVER_TLS_SAN", TEXT, "xds_server_name", NULL),
    AS("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", JOINED, "xds_cert_file", NULL),
    AS("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", JOINED, "xds_key_file", NULL),
    AS("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", JOINED, "xds_headers", NULL),
    AS("CONFIG_GRPC_XDS_NODE_METADATA", JOINED, "xds_metadata", NULL),
    AS("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", DURATION, "xds_backoff", NULL),
    AS("XDS_CLIENT_BACKOFF_MAX_INTERVAL", DURATION, "xds_backoff_max", NULL),
    AS("FORCE_START_WITHOUT_INITIAL_CONFIG", SWITCH, "rules_may_fail", NULL),
    AS("USE_PROMETHEUS", JOINED, "http", "false"),
    AS("PROMETHEUS_ADDR", JOINED, "http", ":9090"),
    AS("PROMETHEUS_PATH", TEXT, "metrics_path", NULL),
    AS("RUNTIME_ROOT", JOINED, "rules", "/srv/runtime_data/current"),
    AS("RUNTIME_SUBDIRECTORY", JOINED, "rules", NULL),
    AS("RUNTIME_APPDIRECTORY", JOINED, "rules", "config"),
    AS("NEAR_LIMIT_RATIO", RATIO, "near_limit", NULL),
    AS("CACHE_KEY_PREFIX", TEXT, "store_prefix", NULL),
    AS("BACKEND_TYPE", JOINED, "store", "redis"),
    AS("LIMIT_RESPONSE_HEADERS_ENABLED", JOINED, "grpc_fields", "false"),
    AS("LIMIT_LIMIT_HEADER", TEXT, "grpc_limit_field", NULL),
    AS("LIMIT_REMAINING_HEADER", TEXT, "grpc_remaining_field", NULL),
    AS("LIMIT_RESET_HEADER", TEXT, "grpc_reset_field", NULL),
    AS("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", SWITCH, "ready_with_rules", NULL),
    AS("REDIS_SOCKET_TYPE", JOINED, "store", NULL),
    AS("REDIS_TYPE", JOINED, "store", "SINGLE"),
    AS("REDIS_URL", JOINED, "store", NULL),
    AS("REDIS_AUTH", JOINED, "store", NULL),
    AS("REDIS_TLS", JOINED, "store", "false"),
    AS("REDIS_TLS_CLIENT_CERT", JOINED, "store_cert_file", NULL),
    AS("REDIS_TLS_CLIENT_KEY", JOINED, "store_key_file", NULL),
    AS("REDIS_TLS_CACERT", JOINED, "store_ca_file", NULL),
    NOT("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", "a server's certificate must bear its name"),
    NOT("REDIS_PERSECOND",
        "set store: NAME in rules per second, and --store NAME=URL beside --store URL"),
    AS("REDIS_SENTINEL_AUTH", JOINED, "store", NULL),
    AS("REDIS_TIMEOUT", DURATION, "store_timeout", NULL),
    AS("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", SWITCH, "ready_with_stores", "false"),
    AS("MEMCACHE_HOST_PORT", JOINED, "store", NULL),
    REFUSED("MEMCACHE_SRV", "servers of memcached are named: MEMCACHE_HOST_PORT"),
    AS("MEMCACHE_TLS", JOINED, "store", "false"),
    AS("MEMCACHE_TLS_CLIENT_CERT", JOINED, "store_cert_file", NULL),
    AS("MEMCACHE_TLS_CLIENT_KEY", JOINED, "store_key_file", NULL),
    AS("MEMCACHE_TLS_CACERT", JOINED, "store_ca_file", NULL),
    NOT("MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION", "a server's certificate must bear its name"),
    AS("SHADOW_MODE", SWITCH, "shadow_mode", NULL),
    AS("QUOTA_MODE", SWITCH, "quota_mode", NULL),
    AS("RESPONSE_DYNAMIC_METADATA", SWITCH, "grpc_metadata", NULL),
    AS("MERGE_DOMAIN_CONFIG", SWITCH, "merge_domains", NULL),
    AS("TRACING_ENABLED", JOINED, "traces", "false"),
    AS("TRACING_EXPORTER_PROTOCOL", JOINED, "traces", "http"),
    AS("TRACING_SAMPLING_RATE", JOINED, "traces_ratio", "1"),
    AS("TRACING_SERVICE_NAME", JOINED, "traces_attributes", "RateLimit"),
    AS("TRACING_SERVICE_NAMESPACE", JOINED, "traces_attributes", NULL),
    AS("TRACING_SERVICE_INSTANCE_ID", JOINED, "traces_attributes", NULL),
};
static const size_t n_compat_variables = sizeof(compat_variables) / sizeof(compat_variables[0]);

#define IGNORED_NAMES_SIZE 512

/* Names with a blank between them, and why the variables are ignored. */
static const struct {
    const char *names, *why;
} compat_ignored[] = {
    {"CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL XDS_CLIENT_BACKOFF_RANDOM_FACTOR "
     "XDS_CLIENT_BACKOFF_JITTER",
     "waits for a control plane are doubled, and drawn at random"},
    {"XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "a message of a control plane may have 16 MiB"},
    {"USE_DOG_STATSD USE_DOG_STATSD_MOGRIFIERS USE_STATSD STATSD_HOST STATSD_PORT "
     "STATS_FLUSH_INTERVAL",
     "metrics are read at /metrics and /stats, and never sent"},
    {"EXTRA_TAGS", "labels of a whole server are added by the collector of its metrics"},
    {"DISABLE_STATS", "counting costs a few nanoseconds, and nothing is sent"},
    {"PROMETHEUS_MAPPER_YAML", "the names follow its default mapping"},
    {"PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS",
     "durations are in stint_decision_duration_seconds"},
    {"RUNTIME_IGNOREDOTFILES", "files with a dot in front are never read"},
    {"RUNTIME_WATCH_ROOT", "both are detected: another target of a symlink, another file"},
    {"EXPIRATION_JITTER_MAX_SECONDS", "a key of a store expires when it has no effect any more"},
    {"LOCAL_CACHE_SIZE_IN_BYTES", "the cache of denials is set by number: --deny-cache"},
    {"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "a denied request is never charged"},
    {"REDIS_POOL_SIZE REDIS_PIPELINE_WINDOW REDIS_PIPELINE_LIMIT "
     "REDIS_CLUSTER_PIPELINE_PARALLELISM REDIS_POOL_ON_EMPTY_BEHAVIOR "
     "MEMCACHE_MAX_IDLE_CONNS",
     "a worker has one connection to a server, and sends all waiting requests at once"},
    {"REDIS_PERSECOND_SOCKET_TYPE REDIS_PERSECOND_TYPE REDIS_PERSECOND_URL "
     "REDIS_PERSECOND_POOL_SIZE REDIS_PERSECOND_AUTH REDIS_PERSECOND_TLS "
     "REDIS_PERSECOND_SENTINEL_AUTH REDIS_PERSECOND_PIPELINE_WINDOW "
     "REDIS_PERSECOND_PIPELINE_LIMIT REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM "
     "REDIS_PERSECOND_TIMEOUT REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR",
     "it goes with REDIS_PERSECOND, which is refused"},
    {"REDIS_STARTUP_INITIAL_INTERVAL REDIS_STARTUP_MAX_INTERVAL "
     "REDIS_STARTUP_MAX_ELAPSED_TIME",
     "a store that is unavailable at the start is connected to once it is available"},
    {"MEMCACHE_SRV_REFRESH", "it goes with MEMCACHE_SRV, which is refused"},
    {"GRPC_SERVER_TLS_CA_CERT", "Envoy Gateway sets it; its limiter does not read it either"},
};

static const struct compat_variable *known(const char *name)
{
    size_t i = 0;
    while (i < n_compat_variables && strcmp(compat_variables[i].name, name) != 0)
        i++;
    assert(i < n_compat_variables);
    return &compat_variables[i];
}

/* The value as set, or envoyproxy/ratelimit's default; NULL: neither. */
static const char *text_of(const char *name)
{
    const char *text = getenv(name);
    return text != NULL ? text : known(name)->value;
}

/* true or false as Go reads them. STINT_E_SYNTAX with the variable's name. */
static int read_switch(const char *name, bool *value, struct stint_error *error)
{
    static const char *const words[] = {"false", "true", "False", "True", "FALSE", "TRUE",
                                        "f",     "t",    "F",     "T",    "0",     "1"};
    const char *text = text_of(name);
    *value = false;
    for (size_t i = 0; text != NULL && i < sizeof(words) / sizeof(words[0]); i++)
        if (strcmp(text, words[i]) == 0) {
            *value = i % 2 == 1;
            return 0;
        }
    return text == NULL
               ? 0
               : err_set(error, STINT_E_SYNTAX, "%s: expected true or false, not '%s'", name, text);
}

static bool is_set(const char *text)
{
    return text != NULL && text[0] != '\0';
}

static int refuse(struct stint_error *error, const char *name, const char *message)
{
    return err_set(error, STINT_E_MISMATCH, "%s: %s", name, message);
}

/* ---- The store of REDIS_… or MEMCACHE_… ------------------------------------------------------ */

#define URL_SIZE 8192

struct redis {
    const char *url, *socket_type, *type, *auth;
    struct span userinfo, path; /* of the URLs in REDIS_URL: before '@', after '/'. NULL: none */
    bool is_tls;
    struct buf out;
    struct stint_error *error;
};

/* Everything that has a meaning in a URL. */
static void add_encoded(struct buf *out, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                        (c >= '0' && c <= '9') || (c != '\0' && strchr("-._~", c) != NULL);
        buf_add(out, is_plain ? "%c" : "%%%02X", c);
    }
}

/*
 * REDIS_AUTH is a password, or a user and a password with ':' between them. It overrides the
 * password of REDIS_URL, where the text is already encoded; a user there is combined with a
 * password here.
 */
static void add_user(struct redis *redis)
{
    const char *auth = redis->auth, *colon = is_set(auth) ? strchr(auth, ':') : NULL;
    struct span own = redis->userinfo;
    if (!is_set(auth)) {
        if (own.ptr != NULL)
            buf_add(&redis->out, "%.*s@", (int)own.len, (const char *)own.ptr);
        return;
    }
    if (colon != NULL)
        add_encoded(&redis->out, auth, (size_t)(colon - auth));
    else if (own.ptr != NULL)
        buf_add(&redis->out, "%.*s", (int)strcspn((const char *)own.ptr, ":@"),
                (const char *)own.ptr);
    buf_add(&redis->out, ":");
    const char *password = colon != NULL ? colon + 1 : auth;
    add_encoded(&redis->out, password, strlen(password));
    buf_add(&redis->out, "@");
}

static int add_unix(struct redis *redis)
{
    if (redis->is_tls || strcasecmp(redis->type, "SINGLE") != 0)
        return refuse(
            redis->error, "REDIS_SOCKET_TYPE",
            "a Unix socket leads to one server, without TLS: REDIS_TYPE and REDIS_TLS say "
            "otherwise");
    buf_add(&redis->out, is_set(redis->auth) ? "unix://" : "unix:");
    add_user(redis);
    for (const char *c = redis->url; *c != '\0'; c++) {
        if (*c == '/')
            buf_add(&redis->out, "/");
        else
            add_encoded(&redis->out, c, 1);
    }
    return 0;
}

/* All URLs of the list belong to one store, so they must not contradict each other. */
static int agree(const struct redis *redis, struct span *said, struct span own)
{
    if (own.ptr == NULL)
        return 0;
    if (said->ptr == NULL)
        *said = own;
    return said->len == own.len && memcmp(said->ptr, own.ptr, own.len) == 0
               ? 0
               : refuse(
                     redis->error, "REDIS_URL",
                     "all servers have the same user and database: expected the same in each URL");
}

/* HOST:PORT, or redis://[USER:PASSWORD@]HOST:PORT[/DATABASE]; rediss:// is with TLS. */
static int read_host(struct redis *redis, struct span *host)
{
    const char *text = (const char *)host->ptr;
    size_t scheme = strncmp(text, "redis://", 8) == 0    ? 8
                    : strncmp(text, "rediss://", 9) == 0 ? 9
                                                         : 0;
    struct span userinfo = {NULL, 0}, path = {NULL, 0};
    if (scheme == 0)
        return 0;
    redis->is_tls |= scheme == 9;
    *host = span_of(host->ptr + scheme, host->len - scheme);
    const uint8_t *at = memrchr(host->ptr, '@', host->len);
    if (at != NULL) {
        userinfo = span_of(host->ptr, (size_t)(at - host->ptr));
        *host = span_of(at + 1, host->len - userinfo.len - 1);
    }
    const uint8_t *slash = memchr(host->ptr, '/', host->len);
    if (slash != NULL) {
        path = span_of(slash + 1, (size_t)(host->ptr + host->len - slash - 1));
        host->len -= path.len + 1;
    }
    int code = agree(redis, &redis->userinfo, userinfo);
    return code != 0 || path.len == 0 ? code : agree(redis, &redis->path, path);
}

/* Reads the hosts of a list, and then writes them, without the other parts of their URLs. */
static int each_host(struct redis *redis, const char *list, bool writes)
{
    bool is_one = strcasecmp(redis->type, "SINGLE") == 0;
    int code = 0;
    for (const char *at = list, *end; code == 0 && at != NULL; at = end) {
        const char *comma = is_one ? NULL : strchr(at, ',');
        struct span host = span_of(at, comma != NULL ? (size_t)(comma - at) : strlen(at));
        end = comma != NULL ? comma + 1 : NULL;
        code = read_host(redis, &host);
        if (writes)
            buf_add(&redis->out, "%.*s%s", (int)host.len, (const char *)host.ptr,
                    end != NULL ? "," : "");
    }
    return code;
}

static int add_hosts(struct redis *redis)
{
    bool is_sentinel = strcasecmp(redis->type, "SENTINEL") == 0;
    bool is_cluster = strcasecmp(redis->type, "CLUSTER") == 0;
    const char *list = redis->url, *comma = strchr(redis->url, ',');
    if (!is_sentinel && !is_cluster && strcasecmp(redis->type, "SINGLE") != 0)
        return refuse(redis->error, "REDIS_TYPE", "expected SINGLE, CLUSTER or SENTINEL");
    if (is_sentinel && (comma == NULL || comma == redis->url))
        return refuse(redis->error, "REDIS_URL",
                      "expected the master's name before the sentinels: NAME,HOST:PORT,HOST:PORT");
    if (is_sentinel) /* the original has the master's name before them: mymaster,host:port,… */
        list = comma + 1;
    int code = each_host(redis, list, false);
    if (code != 0)
        return code;
    buf_add(&redis->out, "redis%s%s://", redis->is_tls ? "s" : "",
            is_sentinel  ? "-sentinel"
            : is_cluster ? "-cluster"
                         : "");
    add_user(redis);
    (void)each_host(redis, list, true);
    if (is_sentinel) {
        buf_add(&redis->out, "/");
        add_encoded(&redis->out, redis->url, (size_t)(comma - redis->url));
    }
    if (redis->path.ptr != NULL)
        buf_add(&redis->out, "/%.*s", (int)redis->path.len, (const char *)redis->path.ptr);
    return 0;
}

static int add_redis(struct redis *redis)
{
    const char *sentinel_auth = text_of("REDIS_SENTINEL_AUTH");
    redis->socket_type = text_of("REDIS_SOCKET_TYPE");
    redis->type = text_of("REDIS_TYPE");
    redis->auth = text_of("REDIS_AUTH");
    int code = read_switch("REDIS_TLS", &redis->is_tls, redis->error);
    if (code != 0)
        return code;
    bool is_unix =
        is_set(redis->socket_type) ? strcmp(redis->socket_type, "unix") == 0 : redis->url[0] == '/';
    if (is_set(redis->socket_type) && strcmp(redis->socket_type, "tls") == 0)
        redis->is_tls = true;
    else if (is_set(redis->socket_type) && !is_unix && strcmp(redis->socket_type, "tcp") != 0)
        return refuse(redis->error, "REDIS_SOCKET_TYPE", "expected unix, tcp or tls");
    if (strcasecmp(redis->type, "SENTINEL") == 0 && is_set(sentinel_auth) &&
        (!is_set(redis->auth) || strcmp(sentinel_auth, redis->auth) != 0))
        return refuse(redis->error, "REDIS_SENTINEL_AUTH",
                      "sentinels and master have the same user: it differs from REDIS_AUTH");
    return is_unix ? add_unix(redis) : add_hosts(redis);
}

/* *shown is the variable to name in an error message. */
static int add_store(struct redis *redis, const char **shown)
{
    const char *backend = text_of("BACKEND_TYPE"), *hosts = text_of("MEMCACHE_HOST_PORT");
    *shown = "REDIS_URL";
    redis->url = text_of("REDIS_URL");
    if (!is_set(backend) || strcmp(backend, "redis") == 0)
        return is_set(redis->url) ? add_redis(redis) : 0;
    if (strcmp(backend, "memcache") != 0)
        return refuse(redis->error, "BACKEND_TYPE", "expected redis or memcache");
    *shown = "MEMCACHE_HOST_PORT";
    /* With a table of its own each replica would allow the whole limit. */
    if (!is_set(hosts))
        return refuse(redis->error, "BACKEND_TYPE", "memcache needs MEMCACHE_HOST_PORT");
    int code = read_switch("MEMCACHE_TLS", &redis->is_tls, redis->error);
    if (code == 0)
        buf_add(&redis->out, "memcached%s://%s", redis->is_tls ? "s" : "", hosts);
    return code;
}

/* ---- The settings ---------------------------------------------------------------------------- */

#define ADDRESS_SIZE 512
#define LIST_PART_SIZE 4352 /* a name, and the longest value of a header field */
#define LOCAL_HOST "127.0.0.1"
#define NAME "envoyproxy" /* the only one */

struct compat {
    struct settings *settings;
    bool is_open; /* it may listen for other machines: see host_of() */
    struct stint_error *error;
};

/* ---- One setting ----------------------------------------------------------------------------- */

/* Keeps a value that is already set. `shown` is the variable, for the error message. */
static int give(struct compat *compat, const char *setting, const char *shown, const char *text)
{
    size_t index = (size_t)setting_find(span_of_text(setting));
    if (compat->settings->origins[index] > SETTING_COMPAT)
        return 0;
    return settings_set(compat->settings, index, SETTING_COMPAT, shown, text, compat->error);
}

/* ---- Values in their formats ----------------------------------------------------------------- */

static int give_switch(struct compat *compat, const struct compat_variable *variable)
{
    bool value;
    int code = read_switch(variable->name, &value, compat->error);
    return code != 0 ? code
                     : give(compat, variable->setting, variable->name, value ? "true" : "false");
}

static int refuse_true(struct compat *compat, const struct compat_variable *variable)
{
    bool value;
    int code = read_switch(variable->name, &value, compat->error);
    return code != 0 || !value ? code : refuse(compat->error, variable->name, variable->message);
}

/* A word in any case of letters, and what is the equivalent here. */
struct word {
    const char *theirs, *ours;
};

static int give_word(struct compat *compat, const struct compat_variable *variable,
                     const char *text, const struct word *words, const char *expected)
{
    for (; words->theirs != NULL; words++)
        if (strcasecmp(text, words->theirs) == 0)
            return give(compat, variable->setting, variable->name, words->ours);
    return err_set(compat->error, STINT_E_SYNTAX, "%s: expected %s, not '%s'", variable->name,
                   expected, text);
}

/* 0.8 as 800, rounded to thousandths. */
static int give_ratio(struct compat *compat, const struct compat_variable *variable,
                      const char *text)
{
    char *end, thousandths[16];
    double ratio = strtod(text, &end);
    struct buf buf = buf_of(thousandths, sizeof(thousandths));
    if (end == text || *end != '\0' || !(ratio >= 0 && ratio <= 1))
        return err_set(compat->error, STINT_E_SYNTAX,
                       "%s: expected a share from 0 to 1, such as 0.8, not '%s'", variable->name,
                       text);
    buf_add(&buf, "%u", (unsigned)(ratio * 1000 + 0.5));
    return give(compat, variable->setting, variable->name, thousandths);
}

/* ---- Addresses ------------------------------------------------------------------------------- */

/*
 * The original listens for all machines by default. This server does so only with insecure or with
 * tokens; else for this machine only. A host that is given is used, or refused by the server with
 * the reason.
 */
static const char *host_of(const struct compat *compat, const char *name)
{
    const char *text = getenv(name);
    if (text != NULL || compat->is_open)
        return text_of(name);
    compat->settings->values.is_compat_local = true;
    return LOCAL_HOST;
}

static int check_port(struct compat *compat, const char *name, const char *text)
{
    uint64_t port;
    return resp_number_read(span_of_text(text), 65535, &port)
               ? 0
               : err_set(compat->error, STINT_E_SYNTAX,
                         "%s: expected a port from 0 to 65535, not '%s'", name, text);
}

static int address_of(struct compat *compat, const char *host_name, const char *port_name,
                      char address[ADDRESS_SIZE])
{
    const char *host = host_of(compat, host_name), *port = text_of(port_name);
    bool is_bare_ipv6 = strchr(host, ':') != NULL && host[0] != '[';
    struct buf buf = buf_of(address, ADDRESS_SIZE);
    buf_add(&buf, is_bare_ipv6 ? "[%s]:%s" : "%s:%s", host, port);
    return check_port(compat, port_name, port);
}

static int give_http(struct compat *compat)
{
    char served[ADDRESS_SIZE] = "", debug[ADDRESS_SIZE] = "", metrics[ADDRESS_SIZE];
    bool has_prometheus = false;
    const char *prometheus = text_of("PROMETHEUS_ADDR");
    struct buf buf = buf_of(metrics, sizeof(metrics));
    buf_add(&buf, "%s%s", !compat->is_open && prometheus[0] == ':' ? LOCAL_HOST : "", prometheus);
    int code = address_of(compat, "HOST", "PORT", served);
    if (code == 0)
        code = address_of(compat, "DEBUG_HOST", "DEBUG_PORT", debug);
    if (code == 0)
        code = read_switch("USE_PROMETHEUS", &has_prometheus, compat->error);
    if (code == 0)
        code = give(compat, "http", "HOST", served);
    if (code == 0 && strcmp(debug, served) != 0)
        code = give(compat, "http", "DEBUG_HOST", debug);
    if (code == 0 && has_prometheus && strcmp(metrics, served) != 0 && strcmp(metrics, debug) != 0)
        code = give(compat, "http", "PROMETHEUS_ADDR", metrics);
    return code;
}

static int give_files(struct compat *compat, const char *const names[3])
{
    int code = 0;
    for (size_t i = 0; i < 3 && code == 0; i++) {
        const char *path = text_of(names[i]);
        if (is_set(path))
            code = give(compat, known(names[i])->setting, names[i], path);
    }
    return code;
}

static int give_grpc(struct compat *compat)
{
    static const char *const files[] = {"GRPC_SERVER_TLS_CERT", "GRPC_SERVER_TLS_KEY",
                                        "GRPC_CLIENT_TLS_CACERT"};
    char address[ADDRESS_SIZE];
    bool has_tls;
    const char *path = text_of("GRPC_UDS");
    bool is_local = is_set(path);
    struct buf buf = buf_of(address, sizeof(address));
    int code = read_switch("GRPC_SERVER_USE_TLS", &has_tls, compat->error);
    if (code == 0 && is_local)
        buf_add(&buf, "unix:%s", path);
    else if (code == 0)
        code = address_of(compat, "GRPC_HOST", "GRPC_PORT", address);
    const char *shown = is_local ? "GRPC_UDS" : "GRPC_HOST";
    if (code == 0)
        code = give(compat, "grpc", shown, has_tls ? "off" : address);
    if (code == 0 && has_tls)
        code = give(compat, "grpc_tls", shown, address);
    return code == 0 && has_tls ? give_files(compat, files) : code;
}

/* ---- Settings from several variables --------------------------------------------------------- */

/* A password in the value is in no message: store_word.h. */
static int give_store(struct compat *compat)
{
    static const char *const redis_files[] = {"REDIS_TLS_CACERT", "REDIS_TLS_CLIENT_CERT",
                                              "REDIS_TLS_CLIENT_KEY"};
    static const char *const memcache_files[] = {"MEMCACHE_TLS_CACERT", "MEMCACHE_TLS_CLIENT_CERT",
                                                 "MEMCACHE_TLS_CLIENT_KEY"};
    char text[URL_SIZE] = "";
    const char *shown;
    struct redis redis = {.out = buf_of(text, sizeof(text)), .error = compat->error};
    int code = add_store(&redis, &shown);
    if (code == 0 && redis.out.len >= URL_SIZE)
        code =
            err_set(compat->error, STINT_E_RANGE, "%s: expected at most %d bytes", shown, URL_SIZE);
    if (code == 0 && redis.out.len > 0)
        code = give(compat, "store", shown, text);
    explicit_bzero(text, sizeof(text));
    return code == 0 && redis.out.len > 0 && redis.is_tls
               ? give_files(compat, shown[0] == 'M' ? memcache_files : redis_files)
               : code;
}

/* Each part of a list, such as NAME:VALUE,NAME:VALUE, whose names become lower case. */
static int give_parts(struct compat *compat, const char *name, char after_name)
{
    const char *list = text_of(name);
    int code = 0;
    while (is_set(list) && code == 0) {
        char part[LIST_PART_SIZE];
        size_t len = strcspn(list, ",");
        if (len >= sizeof(part))
            return err_set(compat->error, STINT_E_RANGE, "%s: expected parts of at most %zu bytes",
                           name, sizeof(part) - 1);
        memcpy(part, list, len);
        part[len] = '\0';
        for (char *c = part; after_name == ':' && *c != '\0' && *c != after_name; c++)
            *c = (char)tolower((unsigned char)*c);
        if (len > 0)
            code = give(compat, known(name)->setting, name, part);
        list += len + (list[len] == ',');
    }
    return code;
}

/*
 * Rules of a control plane. Theirs does not serve before the first ones, unless it is forced to;
 * this server does, and reports that it is not ready.
 */
static int give_control_plane(struct compat *compat)
{
    static const char *const files[] = {"CONFIG_GRPC_XDS_SERVER_TLS_CACERT",
                                        "CONFIG_GRPC_XDS_CLIENT_TLS_CERT",
                                        "CONFIG_GRPC_XDS_CLIENT_TLS_KEY"};
    const char *shown = "CONFIG_GRPC_XDS_SERVER_URL";
    char url[ADDRESS_SIZE];
    bool has_tls, is_forced;
    struct buf buf = buf_of(url, sizeof(url));
    int code = read_switch("CONFIG_GRPC_XDS_SERVER_USE_TLS", &has_tls, compat->error);
    if (code == 0)
        code = read_switch("FORCE_START_WITHOUT_INITIAL_CONFIG", &is_forced, compat->error);
    if (code != 0)
        return code;
    buf_add(&buf, "%s://%s@%s", has_tls ? "xdss" : "xds", text_of("CONFIG_GRPC_XDS_NODE_ID"),
            text_of(shown));
    if (buf.len >= sizeof(url))
        return err_set(compat->error, STINT_E_RANGE, "%s: a URL of %zu bytes", shown, buf.len);
    code = give(compat, "rules", shown, url);
    if (code == 0 && has_tls)
        code = give_files(compat, files);
    if (code == 0 && !is_forced)
        code = give(compat, "ready_with_rules", "FORCE_START_WITHOUT_INITIAL_CONFIG", "true");
    if (code == 0)
        code = give_parts(compat, "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", ':');
    return code == 0 ? give_parts(compat, "CONFIG_GRPC_XDS_NODE_METADATA", '=') : code;
}

static int give_files_of_rules(struct compat *compat)
{
    static const char *const parts[] = {"RUNTIME_ROOT", "RUNTIME_SUBDIRECTORY",
                                        "RUNTIME_APPDIRECTORY"};
    char path[4096];
    struct buf buf = buf_of(path, sizeof(path));
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        const char *part = text_of(parts[i]);
        if (is_set(part))
            buf_add(&buf, "%s%s", i > 0 ? "/" : "", part);
    }
    if (buf.len >= sizeof(path))
        return err_set(compat->error, STINT_E_RANGE, "RUNTIME_ROOT: a path of %zu bytes", buf.len);
    return give(compat, "rules", parts[0], path);
}

static int give_fields(struct compat *compat)
{
    bool has_fields;
    int code = read_switch("LIMIT_RESPONSE_HEADERS_ENABLED", &has_fields, compat->error);
    return code != 0 || !has_fields
               ? code
               : give(compat, "grpc_fields", "LIMIT_RESPONSE_HEADERS_ENABLED", "draft-03");
}

static int give_rules(struct compat *compat)
{
    const char *type = text_of("CONFIG_TYPE");
    if (strcmp(type, "GRPC_XDS_SOTW") == 0)
        return give_control_plane(compat);
    return strcmp(type, "FILE") == 0
               ? give_files_of_rules(compat)
               : err_set(compat->error, STINT_E_SYNTAX,
                         "CONFIG_TYPE: expected FILE or GRPC_XDS_SOTW, not '%s'", type);
}

/* The collector is that of OTEL_EXPORTER_OTLP_ENDPOINT, which is read later. */
static int give_traces(struct compat *compat)
{
    static const struct {
        const char *variable, *attribute;
    } attributes[] = {{"TRACING_SERVICE_NAME", "service.name"},
                      {"TRACING_SERVICE_NAMESPACE", "service.namespace"},
                      {"TRACING_SERVICE_INSTANCE_ID", "service.instance.id"}};
    const char *protocol = text_of("TRACING_EXPORTER_PROTOCOL");
    bool is_grpc = strcmp(protocol, "grpc") == 0, are_on;
    int code = read_switch("TRACING_ENABLED", &are_on, compat->error);
    if (code != 0 || !are_on)
        return code != 0 ? code : give(compat, "traces", "TRACING_ENABLED", "off");
    if (is_set(protocol) && !is_grpc && strcmp(protocol, "http") != 0)
        return refuse(compat->error, "TRACING_EXPORTER_PROTOCOL", "expected http or grpc");
    code = give(compat, "traces", "TRACING_ENABLED",
                is_grpc ? "grpc://localhost:4317" : "http://localhost:4318");
    if (code == 0)
        code =
            give(compat, "traces_ratio", "TRACING_SAMPLING_RATE", text_of("TRACING_SAMPLING_RATE"));
    for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]) && code == 0; i++) {
        char pair[ADDRESS_SIZE];
        const char *value = text_of(attributes[i].variable);
        struct buf buf = buf_of(pair, sizeof(pair));
        buf_add(&buf, "%s=%s", attributes[i].attribute, is_set(value) ? value : "");
        if (is_set(value))
            code = give(compat, "traces_attributes", attributes[i].variable, pair);
    }
    return code;
}

/*
 * RESP, which the original does not have, is off; metrics have the names that its users' dashboards
 * need; an empty folder is no error, as it may be filled later; and hits are added as they come.
 */
static int give_own(struct compat *compat)
{
    static const char *const own[][2] = {{"resp", "off"},
                                         {"rules_may_be_empty", "true"},
                                         {"grpc_hits", "charge"},
                                         {"metrics_names", "both"}};
    int code = 0;
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]) && code == 0; i++)
        code = give(compat, own[i][0], "--compat", own[i][1]);
    return code;
}

/* ---- All of them ----------------------------------------------------------------------------- */

static int apply_one(struct compat *compat, const struct compat_variable *variable)
{
    static const struct word levels[] = {
        {"trace", "debug"}, {"debug", "debug"},  {"info", "info"},
        {"warn", "warn"},   {"warning", "warn"}, {"error", "error"},
        {"fatal", "error"}, {"panic", "error"},  {NULL, NULL}};
    static const struct word formats[] = {{"text", "text"}, {"json", "json"}, {NULL, NULL}};
    const char *text = text_of(variable->name);
    if (text == NULL)
        return 0;
    switch (variable->kind) {
    case COMPAT_TEXT:
        return is_set(text) ? give(compat, variable->setting, variable->name, text) : 0;
    case COMPAT_DURATION:
        return give(compat, variable->setting, variable->name, text);
    case COMPAT_SWITCH:
        return give_switch(compat, variable);
    case COMPAT_NOT:
        return refuse_true(compat, variable);
    case COMPAT_LEVEL:
        return give_word(compat, variable, text, levels,
                         "trace, debug, info, warn, error, fatal or panic");
    case COMPAT_FORMAT:
        return give_word(compat, variable, text, formats, "text or json");
    case COMPAT_RATIO:
        return give_ratio(compat, variable, text);
    case COMPAT_REFUSED:
        return is_set(text) ? refuse(compat->error, variable->name, variable->message) : 0;
    default:
        return 0;
    }
}

int compat_apply(struct settings *settings, const char *name, struct stint_error *error)
{
    static int (*const joined[])(struct compat * compat) = {
        give_rules, give_http, give_grpc, give_store, give_fields, give_traces, give_own};
    struct serve_settings *values = &settings->values;
    struct compat compat = {
        .settings = settings,
        .is_open = values->insecure || values->tokens != NULL,
        .error = error,
    };
    int code = 0;
    if (strcmp(name, NAME) != 0)
        return err_set(error, STINT_E_SYNTAX, "--compat: expected " NAME ", not '%s'", name);
    values->is_compat = true;
    for (size_t i = 0; i < n_compat_variables && code == 0; i++)
        code = apply_one(&compat, &compat_variables[i]);
    for (size_t i = 0; i < sizeof(joined) / sizeof(joined[0]) && code == 0; i++)
        code = joined[i](&compat);
    return code;
}

/* ---- Log lines ------------------------------------------------------------------------------- */

void compat_tell(const struct serve_settings *settings, struct log *log)
{
    for (size_t i = 0; i < sizeof(compat_ignored) / sizeof(compat_ignored[0]); i++) {
        char all[IGNORED_NAMES_SIZE], names[IGNORED_NAMES_SIZE] = "", *rest = all;
        struct buf buf = buf_of(names, sizeof(names));
        assert(strlen(compat_ignored[i].names) < sizeof(all));
        snprintf(all, sizeof(all), "%s", compat_ignored[i].names);
        for (const char *name; (name = strsep(&rest, " ")) != NULL;)
            if (getenv(name) != NULL)
                buf_add(&buf, "%s%s", buf.len > 0 ? " " : "", name);
        if (buf.len > 0)
            log_line(log, LOG_COMPAT_IGNORED, LOG_TEXT("variables", names),
                     LOG_TEXT("reason", compat_ignored[i].why));
    }
    if (settings->is_compat_local)
        log_line(log, LOG_COMPAT_LOCAL, LOG_TEXT("address", LOCAL_HOST));
}
