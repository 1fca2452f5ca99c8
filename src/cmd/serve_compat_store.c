/* SPDX-License-Identifier: MIT */
/* envoyproxy/ratelimit's REDIS_… and MEMCACHE_… as the URL of one store. */
#define _GNU_SOURCE
#include "base/buf.h"
#include "cmd/serve_compat.h"

#include <stdlib.h>
#include <string.h>

#define URL_SIZE 8192

struct redis {
    const char *(*text_of)(const char *name);
    const char *url, *socket_type, *type, *auth;
    bool is_tls, is_unix;
    struct buf out;
    struct stint_error *error;
};

static bool is_set(const char *text)
{
    return text != NULL && text[0] != '\0';
}

/* As Go reads it. */
static int read_switch(const struct redis *redis, const char *name, bool *value)
{
    const char *text = redis->text_of(name);
    *value = false;
    return is_set(text) ? compat_switch(name, text, value, redis->error) : 0;
}

static int refuse(const struct redis *redis, const char *name, const char *sentence)
{
    return err_set(redis->error, STINT_E_MISMATCH, "%s: %s", name, sentence);
}

/* Whatever a URL would take for something else. */
static void add_encoded(struct buf *out, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                        (c >= '0' && c <= '9') || (c != '\0' && strchr("-._~", c) != NULL);
        buf_add(out, is_plain ? "%c" : "%%%02X", c);
    }
}

/* Theirs is a password, or a user and a password with ':' between them. */
static void add_user(struct redis *redis)
{
    const char *auth = redis->auth, *colon = strchr(auth, ':');
    if (colon != NULL)
        add_encoded(&redis->out, auth, (size_t)(colon - auth));
    buf_add(&redis->out, ":");
    const char *password = colon != NULL ? colon + 1 : auth;
    add_encoded(&redis->out, password, strlen(password));
    buf_add(&redis->out, "@");
}

static int add_unix(struct redis *redis)
{
    if (redis->is_tls || strcmp(redis->type, "SINGLE") != 0)
        return refuse(
            redis, "REDIS_SOCKET_TYPE",
            "a Unix socket leads to one server, without TLS: REDIS_TYPE and REDIS_TLS say "
            "otherwise");
    buf_add(&redis->out, is_set(redis->auth) ? "unix://" : "unix:");
    if (is_set(redis->auth))
        add_user(redis);
    for (const char *c = redis->url; *c != '\0'; c++) {
        if (*c == '/')
            buf_add(&redis->out, "/");
        else
            add_encoded(&redis->out, c, 1);
    }
    return 0;
}

/* Theirs has the master's name before the sentinels: mymaster,host:port,… */
static int add_sentinels(struct redis *redis)
{
    const char *comma = strchr(redis->url, ',');
    if (comma == NULL || comma == redis->url)
        return refuse(redis, "REDIS_URL",
                      "expected the master's name before the sentinels: NAME,HOST:PORT,HOST:PORT");
    buf_add(&redis->out, "%s/", comma + 1);
    add_encoded(&redis->out, redis->url, (size_t)(comma - redis->url));
    return 0;
}

static int add_hosts(struct redis *redis)
{
    bool is_sentinel = strcmp(redis->type, "SENTINEL") == 0;
    bool is_cluster = strcmp(redis->type, "CLUSTER") == 0;
    if (!is_sentinel && !is_cluster && strcmp(redis->type, "SINGLE") != 0)
        return refuse(redis, "REDIS_TYPE", "expected SINGLE, CLUSTER or SENTINEL");
    buf_add(&redis->out, "redis%s%s://", redis->is_tls ? "s" : "",
            is_sentinel  ? "-sentinel"
            : is_cluster ? "-cluster"
                         : "");
    if (is_set(redis->auth))
        add_user(redis);
    if (is_sentinel)
        return add_sentinels(redis);
    buf_add(&redis->out, "%s", redis->url);
    return 0;
}

static int check_sentinel_auth(const struct redis *redis)
{
    const char *auth = redis->text_of("REDIS_SENTINEL_AUTH");
    if (!is_set(auth) || (is_set(redis->auth) && strcmp(auth, redis->auth) == 0))
        return 0;
    return refuse(redis, "REDIS_SENTINEL_AUTH",
                  "sentinels and master are asked as one user: it differs from REDIS_AUTH");
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
    code = strcmp(redis->type, "SENTINEL") == 0 ? check_sentinel_auth(redis) : 0;
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
