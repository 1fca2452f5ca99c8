/* SPDX-License-Identifier: MIT */
/* From envoyproxy/ratelimit's environment to settings; serve_compat_known.c has the variables. */
#define _GNU_SOURCE
#include "cmd/serve/serve_compat.h"

#include "algorithm/spec.h"
#include "base/buf.h"

#include <stdlib.h>
#include <string.h>

#define PLACE_SIZE 512
#define NAMES_SIZE 512 /* of a line of the log; more variables begin another line */
#define LOCAL_HOST "127.0.0.1"
#define NAME "envoyproxy" /* the only one */

struct compat {
    struct settings *settings;
    bool is_open; /* it may listen for other machines: see host_of() */
    struct stint_error *error;
};

/* ---- One setting ----------------------------------------------------------------------------- */

static size_t index_of(const char *setting)
{
    return (size_t)setting_find(span_of_text(setting), '_');
}

/* Keeps a value that is already set. `shown` is the variable, for the error message. */
static int give(struct compat *compat, const char *setting, const char *shown, const char *text)
{
    size_t index = index_of(setting);
    if (compat->settings->origins[index] > SETTING_COMPAT)
        return 0;
    return settings_set(compat->settings, index, SETTING_COMPAT, shown, text, compat->error);
}

static const struct compat_variable *known(const char *name)
{
    size_t i = 0;
    while (strcmp(compat_variables[i].name, name) != 0)
        i++;
    return &compat_variables[i];
}

/* The value as set, or envoyproxy/ratelimit's default; NULL: neither. */
static const char *text_of(const char *name)
{
    const char *text = getenv(name);
    return text != NULL ? text : known(name)->value;
}

/* ---- Values in their formats ----------------------------------------------------------------- */

int compat_switch(const char *name, const char *text, bool *value, struct stint_error *error)
{
    static const char *const words[] = {"false", "true", "False", "True", "FALSE", "TRUE",
                                        "f",     "t",    "F",     "T",    "0",     "1"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcmp(text, words[i]) == 0) {
            *value = i % 2 == 1;
            return 0;
        }
    return err_set(error, STINT_E_SYNTAX, "%s: expected true or false, not '%s'", name, text);
}

static int is_set_to_true(struct compat *compat, const char *name, bool *value)
{
    const char *text = text_of(name);
    *value = false;
    return text == NULL ? 0 : compat_switch(name, text, value, compat->error);
}

static int refuse_true(struct compat *compat, const struct compat_variable *variable,
                       const char *text)
{
    bool value = false;
    int code = compat_switch(variable->name, text, &value, compat->error);
    return code != 0 || !value ? code
                               : err_set(compat->error, STINT_E_MISMATCH, "%s: %s", variable->name,
                                         variable->message);
}

static int give_switch(struct compat *compat, const struct compat_variable *variable,
                       const char *text)
{
    bool value = false;
    int code = compat_switch(variable->name, text, &value, compat->error);
    return code != 0 ? code
                     : give(compat, variable->setting, variable->name, value ? "true" : "false");
}

/* Their levels, from the most verbose; each is mapped to the equivalent level. */
static int give_level(struct compat *compat, const struct compat_variable *variable,
                      const char *text)
{
    static const struct {
        const char *theirs, *ours;
    } levels[] = {{"trace", "debug"},  {"debug", "debug"}, {"info", "info"},   {"warn", "warn"},
                  {"warning", "warn"}, {"error", "error"}, {"fatal", "error"}, {"panic", "error"}};
    for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++)
        if (strcasecmp(text, levels[i].theirs) == 0)
            return give(compat, variable->setting, variable->name, levels[i].ours);
    return err_set(compat->error, STINT_E_SYNTAX,
                   "%s: expected trace, debug, info, warn, error, fatal or panic, not '%s'",
                   variable->name, text);
}

static int give_format(struct compat *compat, const struct compat_variable *variable,
                       const char *text)
{
    bool is_json = strcasecmp(text, "json") == 0;
    if (!is_json && strcasecmp(text, "text") != 0)
        return err_set(compat->error, STINT_E_SYNTAX, "%s: expected text or json, not '%s'",
                       variable->name, text);
    return give(compat, variable->setting, variable->name, is_json ? "json" : "text");
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
    unsigned long port = 0;
    size_t len = strspn(text, "0123456789");
    if (len > 0 && len <= 5 && text[len] == '\0')
        port = strtoul(text, NULL, 10);
    else
        port = 65536;
    return port <= 65535 ? 0
                         : err_set(compat->error, STINT_E_SYNTAX,
                                   "%s: expected a port from 0 to 65535, not '%s'", name, text);
}

static int place_of(struct compat *compat, const char *host_name, const char *port_name,
                    char place[PLACE_SIZE])
{
    const char *host = host_of(compat, host_name), *port = text_of(port_name);
    bool is_bare_ipv6 = strchr(host, ':') != NULL && host[0] != '[';
    struct buf buf = buf_of(place, PLACE_SIZE);
    buf_add(&buf, is_bare_ipv6 ? "[%s]:%s" : "%s:%s", host, port);
    return check_port(compat, port_name, port);
}

static int give_http(struct compat *compat)
{
    char served[PLACE_SIZE] = "", debug[PLACE_SIZE] = "", metrics[PLACE_SIZE];
    bool has_prometheus = false;
    const char *prometheus = text_of("PROMETHEUS_ADDR");
    struct buf buf = buf_of(metrics, sizeof(metrics));
    buf_add(&buf, "%s%s", !compat->is_open && prometheus[0] == ':' ? LOCAL_HOST : "", prometheus);
    int code = place_of(compat, "HOST", "PORT", served);
    if (code == 0)
        code = place_of(compat, "DEBUG_HOST", "DEBUG_PORT", debug);
    if (code == 0)
        code = is_set_to_true(compat, "USE_PROMETHEUS", &has_prometheus);
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
        if (path != NULL && path[0] != '\0')
            code = give(compat, known(names[i])->setting, names[i], path);
    }
    return code;
}

static int give_certificates(struct compat *compat)
{
    static const char *const names[] = {"GRPC_SERVER_TLS_CERT", "GRPC_SERVER_TLS_KEY",
                                        "GRPC_CLIENT_TLS_CACERT"};
    return give_files(compat, names);
}

static int give_grpc(struct compat *compat)
{
    char place[PLACE_SIZE];
    bool has_tls;
    const char *path = text_of("GRPC_UDS");
    bool is_local = path != NULL && path[0] != '\0';
    struct buf buf = buf_of(place, sizeof(place));
    int code = is_set_to_true(compat, "GRPC_SERVER_USE_TLS", &has_tls);
    if (code == 0 && is_local)
        buf_add(&buf, "unix:%s", path);
    else if (code == 0)
        code = place_of(compat, "GRPC_HOST", "GRPC_PORT", place);
    const char *shown = is_local ? "GRPC_UDS" : "GRPC_HOST";
    if (code == 0)
        code = give(compat, "grpc", shown, has_tls ? "off" : place);
    if (code == 0 && has_tls)
        code = give(compat, "grpc_tls", shown, place);
    return code == 0 && has_tls ? give_certificates(compat) : code;
}

/* ---- Settings from several variables --------------------------------------------------------- */

/* A password in the value is in no message: store_word.h. */
static int give_store(struct compat *compat)
{
    static const char *const redis[] = {"REDIS_TLS_CACERT", "REDIS_TLS_CLIENT_CERT",
                                        "REDIS_TLS_CLIENT_KEY"};
    static const char *const memcache[] = {"MEMCACHE_TLS_CACERT", "MEMCACHE_TLS_CLIENT_CERT",
                                           "MEMCACHE_TLS_CLIENT_KEY"};
    const char *shown;
    char *text = compat_store(text_of, &shown, compat->error);
    if (text == NULL)
        return compat->error->code;
    bool is_memcache = strncmp(text, "memcached", strlen("memcached")) == 0;
    bool is_tls = strncmp(text, "rediss", 6) == 0 || strncmp(text, "memcacheds", 10) == 0;
    int code = text[0] != '\0' ? give(compat, "store", shown, text) : 0;
    explicit_bzero(text, strlen(text));
    free(text);
    return code == 0 && is_tls ? give_files(compat, is_memcache ? memcache : redis) : code;
}

static int give_rules(struct compat *compat)
{
    static const char *const parts[] = {"RUNTIME_ROOT", "RUNTIME_SUBDIRECTORY",
                                        "RUNTIME_APPDIRECTORY"};
    char path[4096];
    struct buf buf = buf_of(path, sizeof(path));
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        const char *part = text_of(parts[i]);
        if (part != NULL && part[0] != '\0')
            buf_add(&buf, "%s%s", i > 0 ? "/" : "", part);
    }
    if (buf.len >= sizeof(path))
        return err_set(compat->error, STINT_E_RANGE, "RUNTIME_ROOT: a path of %zu bytes", buf.len);
    return give(compat, "rules", parts[0], path);
}

static int give_fields(struct compat *compat)
{
    bool has_fields;
    int code = is_set_to_true(compat, "LIMIT_RESPONSE_HEADERS_ENABLED", &has_fields);
    return code != 0 || !has_fields
               ? code
               : give(compat, "grpc_fields", "LIMIT_RESPONSE_HEADERS_ENABLED", "draft-03");
}

static int check_source(struct compat *compat)
{
    const char *type = text_of("CONFIG_TYPE");
    if (strcmp(type, "FILE") == 0)
        return 0;
    return err_set(compat->error, STINT_E_SYNTAX,
                   "CONFIG_TYPE: rules come from files, so expected FILE, not '%s'", type);
}

static int give_joined(struct compat *compat)
{
    int code = check_source(compat);
    if (code == 0)
        code = give_http(compat);
    if (code == 0)
        code = give_grpc(compat);
    if (code == 0)
        code = give_rules(compat);
    if (code == 0)
        code = give_store(compat);
    return code != 0 ? code : give_fields(compat);
}

/*
 * RESP, which the original does not have, is off; metrics have the names that its users' dashboards
 * need; an empty folder is no error, as it may be filled later; and hits are added as they come.
 */
static int give_own(struct compat *compat)
{
    int code = give(compat, "resp", "--compat", "off");
    if (code == 0)
        code = give(compat, "rules_may_be_empty", "--compat", "true");
    if (code == 0)
        code = give(compat, "grpc_hits", "--compat", "charge");
    return code != 0 ? code : give(compat, "metrics_names", "--compat", "both");
}

/* ---- All of them ----------------------------------------------------------------------------- */

static int apply_one(struct compat *compat, const struct compat_variable *variable)
{
    const char *text = text_of(variable->name);
    if (text == NULL)
        return 0;
    switch (variable->kind) {
    case COMPAT_TEXT:
        return text[0] == '\0' ? 0 : give(compat, variable->setting, variable->name, text);
    case COMPAT_DURATION:
        return give(compat, variable->setting, variable->name, text);
    case COMPAT_SWITCH:
        return give_switch(compat, variable, text);
    case COMPAT_NOT:
        return refuse_true(compat, variable, text);
    case COMPAT_LEVEL:
        return give_level(compat, variable, text);
    case COMPAT_FORMAT:
        return give_format(compat, variable, text);
    case COMPAT_RATIO:
        return give_ratio(compat, variable, text);
    case COMPAT_REFUSED:
        return text[0] == '\0' ? 0
                               : err_set(compat->error, STINT_E_MISMATCH, "%s: %s", variable->name,
                                         variable->message);
    default:
        return 0;
    }
}

int compat_apply(struct settings *settings, const char *name, struct stint_error *error)
{
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
    if (code == 0)
        code = give_joined(&compat);
    return code != 0 ? code : give_own(&compat);
}

/* ---- Log lines ------------------------------------------------------------------------------- */

static bool is_ignored(const struct compat_variable *variable)
{
    return variable->kind == COMPAT_IGNORED && getenv(variable->name) != NULL;
}

/* Whether an earlier variable has the same reason: then that one's line lists this one. */
static bool is_told_already(const struct compat_variable *variable)
{
    for (const struct compat_variable *other = compat_variables; other < variable; other++)
        if (is_ignored(other) && strcmp(other->message, variable->message) == 0)
            return true;
    return false;
}

static void tell_ignored(const struct compat_variable *first, struct log *log)
{
    char names[NAMES_SIZE] = "";
    struct buf buf = buf_of(names, sizeof(names));
    for (const struct compat_variable *variable = first;
         variable < compat_variables + n_compat_variables; variable++) {
        if (!is_ignored(variable) || strcmp(variable->message, first->message) != 0)
            continue;
        if (buf.len + strlen(variable->name) + 2 > sizeof(names)) {
            log_line(log, LOG_COMPAT_IGNORED, LOG_TEXT("variables", names),
                     LOG_TEXT("reason", first->message));
            buf = buf_of(names, sizeof(names));
        }
        buf_add(&buf, "%s%s", buf.len > 0 ? " " : "", variable->name);
    }
    log_line(log, LOG_COMPAT_IGNORED, LOG_TEXT("variables", names),
             LOG_TEXT("reason", first->message));
}

void compat_tell(const struct serve_settings *settings, struct log *log)
{
    for (const struct compat_variable *variable = compat_variables;
         variable < compat_variables + n_compat_variables; variable++)
        if (is_ignored(variable) && !is_told_already(variable))
            tell_ignored(variable, log);
    if (settings->is_compat_local)
        log_line(log, LOG_COMPAT_LOCAL, LOG_TEXT("address", LOCAL_HOST));
}
