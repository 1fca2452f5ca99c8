/* SPDX-License-Identifier: MIT */
/* envoyproxy/ratelimit's REDIS_… and MEMCACHE_… as the URL of one store. */
#define _GNU_SOURCE
#include "base/buf.h"
#include "base/span.h"
#include "cmd/serve/serve_compat.h"

#include <stdlib.h>
#include <string.h>

#define URL_SIZE 8192

struct redis {
    const char *(*text_of)(const char *name);
    const char *url, *socket_type, *type, *auth;
    struct span userinfo, path; /* of the URLs in REDIS_URL: before '@', after '/'. NULL: none */
    bool is_tls, is_unix;
    struct buf out;
    struct stint_error *error;
};

static bool is_set(const char *text)
{
    return text != NULL && text[0] != '\0';
}

/* As Go parses it. */
static int read_switch(const struct redis *redis, const char *name, bool *value)
{
    const char *text = redis->text_of(name);
    *value = false;
    return is_set(text) ? compat_switch(name, text, value, redis->error) : 0;
}

static int refuse(const struct redis *redis, const char *name, const char *message)
{
    return err_set(redis->error, STINT_E_MISMATCH, "%s: %s", name, message);
}

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
            redis, "REDIS_SOCKET_TYPE",
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

/* ---- Hosts, each perhaps as a URL -------------------------------------------------------------
 */

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
                     redis, "REDIS_URL",
                     "all servers have the same user and database: expected the same in each URL");
}

/* HOST:PORT, or redis://[USER:PASSWORD@]HOST:PORT[/DATABASE]; rediss:// is with TLS. */
static int read_host(struct redis *redis, struct span *host)
{
    static const char *const schemes[] = {"redis://", "rediss://"};
    size_t scheme = 0;
    while (scheme < 2 && (host->len < strlen(schemes[scheme]) ||
                          memcmp(host->ptr, schemes[scheme], strlen(schemes[scheme])) != 0))
        scheme++;
    if (scheme == 2)
        return 0;
    struct span userinfo = {NULL, 0}, path = {NULL, 0};
    size_t skipped = strlen(schemes[scheme]);
    redis->is_tls |= scheme == 1;
    *host = span_of(host->ptr + skipped, host->len - skipped);
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

/* The hosts of a list, without the other parts of their URLs. To be freed; NULL with an error. */
static char *read_hosts(struct redis *redis, const char *list)
{
    char *text = malloc(URL_SIZE);
    if (text == NULL) {
        err_set(redis->error, STINT_E_SYSTEM, "no memory for the settings");
        return NULL;
    }
    struct buf hosts = buf_of(text, URL_SIZE);
    int code = 0;
    bool is_one = strcasecmp(redis->type, "SINGLE") == 0;
    for (const char *at = list, *end; code == 0 && at != NULL; at = end) {
        const char *comma = is_one ? NULL : strchr(at, ',');
        struct span host = span_of(at, comma != NULL ? (size_t)(comma - at) : strlen(at));
        end = comma != NULL ? comma + 1 : NULL;
        code = read_host(redis, &host);
        buf_add(&hosts, "%.*s%s", (int)host.len, (const char *)host.ptr, end != NULL ? "," : "");
    }
    if (code == 0 && hosts.len >= URL_SIZE)
        code =
            err_set(redis->error, STINT_E_RANGE, "REDIS_URL: expected at most %d bytes", URL_SIZE);
    if (code == 0)
        return text;
    free(text);
    return NULL;
}

/* The original has the master's name before the sentinels: mymaster,host:port,… */
static int skip_master(const struct redis *redis, bool is_sentinel, const char **hosts)
{
    const char *comma = strchr(redis->url, ',');
    *hosts = redis->url;
    if (!is_sentinel)
        return 0;
    if (comma == NULL || comma == redis->url)
        return refuse(redis, "REDIS_URL",
                      "expected the master's name before the sentinels: NAME,HOST:PORT,HOST:PORT");
    *hosts = comma + 1;
    return 0;
}

static int add_hosts(struct redis *redis)
{
    bool is_sentinel = strcasecmp(redis->type, "SENTINEL") == 0;
    bool is_cluster = strcasecmp(redis->type, "CLUSTER") == 0;
    const char *list;
    if (!is_sentinel && !is_cluster && strcasecmp(redis->type, "SINGLE") != 0)
        return refuse(redis, "REDIS_TYPE", "expected SINGLE, CLUSTER or SENTINEL");
    int code = skip_master(redis, is_sentinel, &list);
    char *hosts = code == 0 ? read_hosts(redis, list) : NULL;
    if (hosts == NULL)
        return redis->error->code;
    buf_add(&redis->out, "redis%s%s://", redis->is_tls ? "s" : "",
            is_sentinel  ? "-sentinel"
            : is_cluster ? "-cluster"
                         : "");
    add_user(redis);
    buf_add(&redis->out, "%s", hosts);
    free(hosts);
    if (is_sentinel) {
        buf_add(&redis->out, "/");
        add_encoded(&redis->out, redis->url, strcspn(redis->url, ","));
    }
    if (redis->path.ptr != NULL)
        buf_add(&redis->out, "/%.*s", (int)redis->path.len, (const char *)redis->path.ptr);
    return 0;
}

static int check_sentinel_auth(const struct redis *redis)
{
    const char *auth = redis->text_of("REDIS_SENTINEL_AUTH");
    if (!is_set(auth) || (is_set(redis->auth) && strcmp(auth, redis->auth) == 0))
        return 0;
    return refuse(redis, "REDIS_SENTINEL_AUTH",
                  "sentinels and master have the same user: it differs from REDIS_AUTH");
}

static int add_redis(struct redis *redis)
{
    redis->socket_type = redis->text_of("REDIS_SOCKET_TYPE");
    redis->type = redis->text_of("REDIS_TYPE");
    redis->auth = redis->text_of("REDIS_AUTH");
    int code = read_switch(redis, "REDIS_TLS", &redis->is_tls);
    if (code != 0)
        return code;
    redis->is_unix =
        is_set(redis->socket_type) ? strcmp(redis->socket_type, "unix") == 0 : redis->url[0] == '/';
    if (is_set(redis->socket_type) && strcmp(redis->socket_type, "tls") == 0)
        redis->is_tls = true;
    else if (is_set(redis->socket_type) && !redis->is_unix &&
             strcmp(redis->socket_type, "tcp") != 0)
        return refuse(redis, "REDIS_SOCKET_TYPE", "expected unix, tcp or tls");
    code = strcasecmp(redis->type, "SENTINEL") == 0 ? check_sentinel_auth(redis) : 0;
    if (code != 0)
        return code;
    return redis->is_unix ? add_unix(redis) : add_hosts(redis);
}

static int add_memcached(struct redis *redis)
{
    const char *hosts = redis->text_of("MEMCACHE_HOST_PORT");
    int code = read_switch(redis, "MEMCACHE_TLS", &redis->is_tls);
    if (code == 0 && is_set(hosts))
        buf_add(&redis->out, "memcached%s://%s", redis->is_tls ? "s" : "", hosts);
    return code;
}

static int add_store(struct redis *redis, const char **shown)
{
    const char *backend = redis->text_of("BACKEND_TYPE");
    *shown = "MEMCACHE_HOST_PORT";
    if (is_set(backend) && strcmp(backend, "memcache") == 0)
        return add_memcached(redis);
    *shown = "REDIS_URL";
    if (is_set(backend) && strcmp(backend, "redis") != 0)
        return refuse(redis, "BACKEND_TYPE", "expected redis or memcache");
    redis->url = redis->text_of("REDIS_URL");
    return is_set(redis->url) ? add_redis(redis) : 0;
}

char *compat_store(const char *(*text_of)(const char *name), const char **shown,
                   struct stint_error *error)
{
    char *text = calloc(1, URL_SIZE);
    struct redis redis = {.text_of = text_of, .error = error};
    if (text == NULL) {
        err_set(error, STINT_E_SYSTEM, "no memory for the settings");
        return NULL;
    }
    redis.out = buf_of(text, URL_SIZE);
    int code = add_store(&redis, shown);
    if (code == 0 && redis.out.len >= URL_SIZE)
        code = err_set(error, STINT_E_RANGE, "%s: expected at most %d bytes", *shown, URL_SIZE);
    if (code == 0)
        return text;
    explicit_bzero(text, URL_SIZE);
    free(text);
    return NULL;
}
