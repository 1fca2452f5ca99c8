/* SPDX-License-Identifier: MIT */
/* envoyproxy/ratelimit's variables: all of its settings.go, in its order. */
#include "cmd/serve/serve_compat.h"

#define CONNECTIONS                                                                                \
    "a worker has one connection to a server, and sends all waiting requests at once"
#define CONNECTING "a store that is unavailable at the start is connected to once it is available"
#define PER_SECOND "it goes with REDIS_PERSECOND, which is refused"
#define PULLED "metrics are read at /metrics and /stats, and never sent"
#define FILES "rules come from files"
#define TRACES "no traces are sent"

/* clang-format off: a table is read by its columns */
#define AS(name, kind, setting, value)                                                             \
    {                                                                                              \
        name, COMPAT_##kind, setting, value, ""                                                    \
    }
#define NOTED(name, kind, setting, value, message)                                                 \
    {                                                                                              \
        name, COMPAT_##kind, setting, value, message                                               \
    }
#define IGNORED(name, why)                                                                         \
    {                                                                                              \
        name, COMPAT_IGNORED, NULL, NULL, why                                                      \
    }
#define REFUSED(name, why)                                                                         \
    {                                                                                              \
        name, COMPAT_REFUSED, NULL, NULL, why                                                      \
    }

const struct compat_variable compat_variables[] = {
    AS("HOST", JOINED, "http", "0.0.0.0"),
    AS("PORT", JOINED, "http", "8080"),
    AS("DEBUG_HOST", JOINED, "http", "0.0.0.0"),
    NOTED("DEBUG_PORT", JOINED, "http", "6070",
          "has all paths that PORT has, and /debug/pprof not"),
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
    NOTED("LOG_LEVEL", LEVEL, "log_level", NULL,
          "trace is debug, fatal and panic are error; info if it is not set"),
    AS("LOG_FORMAT", FORMAT, "log_format", NULL),

    NOTED("CONFIG_TYPE", JOINED, NULL, "FILE", "FILE alone: GRPC_XDS_SOTW is refused"),
    AS("FORCE_START_WITHOUT_INITIAL_CONFIG", SWITCH, "rules_may_fail", NULL),
    IGNORED("CONFIG_GRPC_XDS_NODE_ID", FILES),
    IGNORED("CONFIG_GRPC_XDS_NODE_METADATA", FILES),
    IGNORED("CONFIG_GRPC_XDS_SERVER_URL", FILES),
    IGNORED("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", FILES),
    IGNORED("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", FILES),
    IGNORED("CONFIG_GRPC_XDS_SERVER_USE_TLS", FILES),
    IGNORED("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", FILES),
    IGNORED("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", FILES),
    IGNORED("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", FILES),
    IGNORED("CONFIG_GRPC_XDS_SERVER_TLS_SAN", FILES),
    IGNORED("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", FILES),
    IGNORED("XDS_CLIENT_BACKOFF_MAX_INTERVAL", FILES),
    IGNORED("XDS_CLIENT_BACKOFF_RANDOM_FACTOR", FILES),
    IGNORED("XDS_CLIENT_BACKOFF_JITTER", FILES),
    IGNORED("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", FILES),

    IGNORED("USE_DOG_STATSD", PULLED),
    IGNORED("USE_DOG_STATSD_MOGRIFIERS", PULLED),
    IGNORED("USE_STATSD", PULLED),
    IGNORED("STATSD_HOST", PULLED),
    IGNORED("STATSD_PORT", PULLED),
    IGNORED("EXTRA_TAGS", "labels of a whole server are added by the collector of its metrics"),
    IGNORED("STATS_FLUSH_INTERVAL", PULLED),
    IGNORED("DISABLE_STATS", "counting costs a few nanoseconds, and nothing is sent"),
    NOTED("USE_PROMETHEUS", JOINED, "http", "false", "adds PROMETHEUS_ADDR to the addresses"),
    NOTED("PROMETHEUS_ADDR", JOINED, "http", ":9090",
          "with USE_PROMETHEUS; has all paths that PORT has"),
    NOTED("PROMETHEUS_PATH", TEXT, "metrics_path", NULL, "with /metrics beside it"),
    IGNORED("PROMETHEUS_MAPPER_YAML", "the names follow its default mapping"),
    IGNORED("PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS",
            "durations are in stint_decision_duration_seconds"),

    AS("RUNTIME_ROOT", JOINED, "rules", "/srv/runtime_data/current"),
    AS("RUNTIME_SUBDIRECTORY", JOINED, "rules", NULL),
    NOTED("RUNTIME_APPDIRECTORY", JOINED, "rules", "config",
          "its files *.yaml and *.yml, and not those of folders in it"),
    IGNORED("RUNTIME_IGNOREDOTFILES", "files with a dot in front are never read"),
    IGNORED("RUNTIME_WATCH_ROOT", "both are detected: another target of a symlink, another file"),

    IGNORED("EXPIRATION_JITTER_MAX_SECONDS",
            "a key of a store expires when it has no effect any more"),
    IGNORED("LOCAL_CACHE_SIZE_IN_BYTES", "the cache of denials is set by number: --deny-cache"),
    AS("NEAR_LIMIT_RATIO", RATIO, "near_limit", NULL),
    AS("CACHE_KEY_PREFIX", TEXT, "store_prefix", NULL),
    NOTED("BACKEND_TYPE", JOINED, "store", "redis", "redis or memcache"),
    IGNORED("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "a denied request is never charged"),

    AS("LIMIT_RESPONSE_HEADERS_ENABLED", JOINED, "grpc_fields", "false"),
    AS("LIMIT_LIMIT_HEADER", TEXT, "grpc_limit_field", NULL),
    AS("LIMIT_REMAINING_HEADER", TEXT, "grpc_remaining_field", NULL),
    AS("LIMIT_RESET_HEADER", TEXT, "grpc_reset_field", NULL),
    AS("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", SWITCH, "ready_with_rules", NULL),

    NOTED("REDIS_SOCKET_TYPE", JOINED, "store", NULL, "unix, tcp or tls; else as the URL looks"),
    NOTED("REDIS_TYPE", JOINED, "store", "SINGLE", "SINGLE, CLUSTER or SENTINEL"),
    NOTED("REDIS_URL", JOINED, "store", NULL, "without it limits are in the server's own table"),
    IGNORED("REDIS_POOL_SIZE", CONNECTIONS),
    NOTED("REDIS_AUTH", JOINED, "store", NULL, "a password, or user:password"),
    AS("REDIS_TLS", JOINED, "store", "false"),
    NOTED("REDIS_TLS_CLIENT_CERT", JOINED, "store_cert_file", NULL, "with REDIS_TLS"),
    NOTED("REDIS_TLS_CLIENT_KEY", JOINED, "store_key_file", NULL, "with REDIS_TLS"),
    NOTED("REDIS_TLS_CACERT", JOINED, "store_ca_file", NULL, "with REDIS_TLS"),
    NOTED("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", NOT, NULL, NULL,
          "a server's certificate must bear its name"),
    IGNORED("REDIS_PIPELINE_WINDOW", CONNECTIONS),
    IGNORED("REDIS_PIPELINE_LIMIT", CONNECTIONS),
    IGNORED("REDIS_CLUSTER_PIPELINE_PARALLELISM", CONNECTIONS),
    NOTED("REDIS_PERSECOND", NOT, NULL, NULL,
          "set store: NAME in rules per second, and --store NAME=URL beside --store URL"),
    IGNORED("REDIS_PERSECOND_SOCKET_TYPE", PER_SECOND),
    IGNORED("REDIS_PERSECOND_TYPE", PER_SECOND),
    IGNORED("REDIS_PERSECOND_URL", PER_SECOND),
    IGNORED("REDIS_PERSECOND_POOL_SIZE", PER_SECOND),
    IGNORED("REDIS_PERSECOND_AUTH", PER_SECOND),
    IGNORED("REDIS_PERSECOND_TLS", PER_SECOND),
    NOTED("REDIS_SENTINEL_AUTH", JOINED, "store", NULL,
          "as REDIS_AUTH; another one is refused: sentinels and master have the same user"),
    IGNORED("REDIS_PERSECOND_SENTINEL_AUTH", PER_SECOND),
    IGNORED("REDIS_PERSECOND_PIPELINE_WINDOW", PER_SECOND),
    IGNORED("REDIS_PERSECOND_PIPELINE_LIMIT", PER_SECOND),
    IGNORED("REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM", PER_SECOND),
    IGNORED("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", "/readyz includes stores in any case"),
    NOTED("REDIS_TIMEOUT", DURATION, "store_timeout", NULL, "50ms if it is not set"),
    IGNORED("REDIS_PERSECOND_TIMEOUT", PER_SECOND),
    IGNORED("REDIS_POOL_ON_EMPTY_BEHAVIOR", CONNECTIONS),
    IGNORED("REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR", PER_SECOND),
    IGNORED("REDIS_STARTUP_INITIAL_INTERVAL", CONNECTING),
    IGNORED("REDIS_STARTUP_MAX_INTERVAL", CONNECTING),
    IGNORED("REDIS_STARTUP_MAX_ELAPSED_TIME", CONNECTING),
    NOTED("MEMCACHE_HOST_PORT", JOINED, "store", NULL, "with BACKEND_TYPE=memcache"),
    IGNORED("MEMCACHE_MAX_IDLE_CONNS", CONNECTIONS),
    REFUSED("MEMCACHE_SRV", "servers of memcached are named: MEMCACHE_HOST_PORT"),
    IGNORED("MEMCACHE_SRV_REFRESH", "it goes with MEMCACHE_SRV, which is refused"),
    NOTED("MEMCACHE_TLS", JOINED, "store", "false", "with BACKEND_TYPE=memcache"),
    NOTED("MEMCACHE_TLS_CLIENT_CERT", JOINED, "store_cert_file", NULL, "with MEMCACHE_TLS"),
    NOTED("MEMCACHE_TLS_CLIENT_KEY", JOINED, "store_key_file", NULL, "with MEMCACHE_TLS"),
    NOTED("MEMCACHE_TLS_CACERT", JOINED, "store_ca_file", NULL, "with MEMCACHE_TLS"),
    NOTED("MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION", NOT, NULL, NULL,
          "a server's certificate must bear its name"),

    AS("SHADOW_MODE", SWITCH, "shadow_mode", NULL),
    AS("QUOTA_MODE", SWITCH, "quota_mode", NULL),
    AS("RESPONSE_DYNAMIC_METADATA", SWITCH, "grpc_metadata", NULL),
    AS("MERGE_DOMAIN_CONFIG", SWITCH, "merge_domains", NULL),

    IGNORED("TRACING_ENABLED", TRACES),
    IGNORED("TRACING_SERVICE_NAME", TRACES),
    IGNORED("TRACING_SERVICE_NAMESPACE", TRACES),
    IGNORED("TRACING_SERVICE_INSTANCE_ID", TRACES),
    IGNORED("TRACING_EXPORTER_PROTOCOL", TRACES),
    IGNORED("TRACING_SAMPLING_RATE", TRACES),
};
/* clang-format on */
const size_t n_compat_variables = sizeof(compat_variables) / sizeof(compat_variables[0]);
