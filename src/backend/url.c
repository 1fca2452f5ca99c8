/* SPDX-License-Identifier: MIT */
/* One pass from left to right: scheme, user and password, hosts, and the rest. */
#include "backend/url.h"

#include "base/number.h"
#include "base/span.h"

#include <assert.h>

#define REDIS_PORT 6379
#define SENTINEL_PORT 26379
#define MEMCACHED_PORT 11211

static const struct scheme {
    const char *name;
    enum store_kind kind;
    bool is_tls;
} schemes[] = {
    {"redis", STORE_REDIS, false},
    {"rediss", STORE_REDIS, true},
    {"valkey", STORE_REDIS, false},
    {"valkeys", STORE_REDIS, true},
    {"redis-cluster", STORE_REDIS_CLUSTER, false},
    {"rediss-cluster", STORE_REDIS_CLUSTER, true},
    {"valkey-cluster", STORE_REDIS_CLUSTER, false},
    {"valkeys-cluster", STORE_REDIS_CLUSTER, true},
    {"redis-sentinel", STORE_REDIS_SENTINEL, false},
    {"rediss-sentinel", STORE_REDIS_SENTINEL, true},
    {"valkey-sentinel", STORE_REDIS_SENTINEL, false},
    {"valkeys-sentinel", STORE_REDIS_SENTINEL, true},
    {"memcached", STORE_MEMCACHED, false},
    {"memcacheds", STORE_MEMCACHED, true},
};

/* ---- Words ----------------------------------------------------------------------------------- */

/* The text before the byte; skips both. False: the byte is missing. */
static bool cut(struct span *rest, char at, struct span *before)
{
    const uint8_t *found = rest->len > 0 ? memchr(rest->ptr, at, rest->len) : NULL;
    if (found == NULL)
        return false;
    *before = span_of(rest->ptr, (size_t)(found - rest->ptr));
    *rest = span_of(found + 1, rest->len - before->len - 1);
    return true;
}

/* Resolves %41. The message quotes nothing: the word may be a secret. */
static int decode(struct span word, char *text, size_t size, const char *what,
                  struct stint_error *error)
{
    size_t len = 0;
    for (size_t i = 0; i < word.len; i++) {
        int byte = word.ptr[i];
        if (byte == '%') {
            int high = i + 2 < word.len ? number_hex_digit(word.ptr[i + 1]) : -1;
            int low = i + 2 < word.len ? number_hex_digit(word.ptr[i + 2]) : -1;
            byte = high < 0 || low < 0 ? 0 : high * 16 + low;
            if (byte == 0)
                return err_set(error, STINT_E_SYNTAX,
                               "the store's %s: expected two hexadecimal digits, not 00, after %%",
                               what);
            i += 2;
        }
        if (len + 1 == size)
            return err_set(error, STINT_E_RANGE, "the store's %s: expected at most %zu bytes", what,
                           size - 1);
        text[len++] = (char)byte;
    }
    text[len] = '\0';
    return 0;
}

/* ---- User and password ----------------------------------------------------------------------- */

/*
 * The text up to the last @ before the path goes to the server only. An @ after the first slash
 * means that a password has a slash in it: the apparent host would be a part of the password.
 */
static int parse_user(struct store_url *url, struct span *rest, struct stint_error *error)
{
    size_t end = 0, at = rest->len;
    while (end < rest->len && rest->ptr[end] != '/')
        end++;
    for (size_t i = 0; i < rest->len; i++)
        if (rest->ptr[i] == '@')
            at = i;
    if (at == rest->len)
        return 0;
    if (at > end)
        return err_set(error, STINT_E_SYNTAX,
                       "the store's URL has an @ after a /: expected %%2F for a / in a password, "
                       "and %%40 for an @ in a name");
    struct span word = span_of(rest->ptr, at), user;
    *rest = span_of(rest->ptr + at + 1, rest->len - at - 1);
    if (!cut(&word, ':', &user) || word.len == 0)
        return err_set(error, STINT_E_SYNTAX,
                       "the store's URL names a user: expected user:password@ or :password@");
    int code = decode(user, url->user, sizeof(url->user), "user", error);
    return code != 0 ? code : decode(word, url->password, sizeof(url->password), "password", error);
}

/* ---- Hosts ----------------------------------------------------------------------------------- */

bool store_host_set(struct store_host *host, struct span name, uint16_t port)
{
    if (name.len == 0 || name.len >= sizeof(host->name) || memchr(name.ptr, '\0', name.len) != NULL)
        return false;
    memcpy(host->name, name.ptr, name.len);
    host->name[name.len] = '\0';
    host->port = port;
    return true;
}

static uint16_t default_port(enum store_kind kind)
{
    return kind == STORE_MEMCACHED        ? MEMCACHED_PORT
           : kind == STORE_REDIS_SENTINEL ? SENTINEL_PORT
                                          : REDIS_PORT;
}

static bool is_host_byte(uint8_t byte, bool is_bracketed)
{
    bool is_letter = (byte | 0x20) >= 'a' && (byte | 0x20) <= 'z';
    return is_letter || (byte >= '0' && byte <= '9') || byte == '.' || byte == '-' || byte == '_' ||
           (is_bracketed && (byte == ':' || byte == '%'));
}

static int bad_host(struct span word, struct stint_error *error)
{
    return err_set(error, STINT_E_SYNTAX,
                   "'%.*s' is not a host of a store: expected HOST, HOST:PORT or [IPv6]:PORT",
                   (int)(word.len < 300 ? word.len : 300), (const char *)word.ptr);
}

bool store_host_parse(struct store_host *host, struct span word, uint16_t default_port)
{
    struct span name = word, port = word;
    uint64_t number = default_port;
    bool is_bracketed = word.len > 0 && word.ptr[0] == '[', has_port;
    if (is_bracketed) {
        port = span_of(word.ptr + 1, word.len - 1);
        if (!cut(&port, ']', &name) || (port.len > 0 && port.ptr[0] != ':'))
            return false;
        has_port = port.len > 0;
        if (has_port)
            port = span_of(port.ptr + 1, port.len - 1);
    } else
        has_port = cut(&port, ':', &name);
    if (has_port && (!resp_number_read(port, UINT16_MAX, &number) || number == 0))
        return false;
    for (size_t i = 0; i < name.len; i++)
        if (!is_host_byte(name.ptr[i], is_bracketed))
            return false;
    return store_host_set(host, name, (uint16_t)number);
}

void store_host_add(struct buf *buf, const struct store_host *host)
{
    buf_add(buf, strchr(host->name, ':') != NULL ? "[%s]:%u" : "%s:%u", host->name,
            (unsigned)host->port);
}

static int parse_host(struct store_url *url, struct span word, struct stint_error *error)
{
    if (url->n_hosts == STORE_HOSTS_MAX)
        return err_set(error, STINT_E_RANGE, "a store's URL names at most %d hosts",
                       STORE_HOSTS_MAX);
    if (!store_host_parse(&url->hosts[url->n_hosts], word, default_port(url->kind)))
        return bad_host(word, error);
    url->n_hosts++;
    return 0;
}

static int parse_hosts(struct store_url *url, struct span words, struct stint_error *error)
{
    struct span word;
    int code = 0;
    while (code == 0 && cut(&words, ',', &word))
        code = parse_host(url, word, error);
    return code != 0 ? code : parse_host(url, words, error);
}

/* ---- After the hosts ------------------------------------------------------------------------- */

static int parse_database(struct store_url *url, struct span word, struct stint_error *error)
{
    uint64_t number;
    if (word.len == 0)
        return 0;
    if (!resp_number_read(word, STORE_DATABASE_MAX, &number))
        return err_set(
            error, STINT_E_SYNTAX, "'/%.*s' is not a database: expected a number from 0 to %d",
            (int)(word.len < 300 ? word.len : 300), (const char *)word.ptr, STORE_DATABASE_MAX);
    if (number != 0 && (url->kind == STORE_REDIS_CLUSTER || url->kind == STORE_MEMCACHED))
        return err_set(error, STINT_E_SYNTAX, "%s:// has no databases: expected nothing after /",
                       url->scheme);
    url->database = (unsigned)number;
    return 0;
}

static int parse_tail(struct store_url *url, struct span tail, struct stint_error *error)
{
    if (url->kind != STORE_REDIS_SENTINEL)
        return parse_database(url, tail, error);
    struct span master = tail, database = span_of(NULL, 0);
    if (cut(&tail, '/', &master))
        database = tail;
    if (master.len == 0)
        return err_set(error, STINT_E_SYNTAX,
                       "%s:// needs the name of the master: expected /MASTER-NAME after the hosts",
                       url->scheme);
    int code = decode(master, url->master, sizeof(url->master), "master", error);
    return code != 0 ? code : parse_database(url, database, error);
}

static int parse_unix(struct store_url *url, struct span rest, struct stint_error *error)
{
    int code = 0;
    url->kind = STORE_REDIS;
    memcpy(url->scheme, "unix", 5);
    if (rest.len >= 2 && memcmp(rest.ptr, "//", 2) == 0) {
        rest = span_of(rest.ptr + 2, rest.len - 2);
        code = parse_user(url, &rest, error);
    }
    if (code != 0)
        return code;
    if (rest.len < 2 || rest.ptr[0] != '/')
        return err_set(error, STINT_E_SYNTAX,
                       "expected unix:/PATH, or unix://user:password@/PATH, with a path that "
                       "begins with /");
    return decode(rest, url->path, sizeof(url->path), "path", error);
}

static int unknown(struct stint_error *error)
{
    return err_set(error, STINT_E_SYNTAX,
                   "a store's URL begins with redis://, valkey://, rediss:// (TLS), "
                   "redis-cluster://, redis-sentinel://, memcached:// or unix:/");
}

int store_url_parse(struct store_url *url, const char *text, struct stint_error *error)
{
    struct span rest = span_of_text(text), word;
    const struct scheme *scheme = NULL;
    *url = (struct store_url){.n_hosts = 0};
    for (size_t i = 0; i < rest.len; i++)
        if (rest.ptr[i] <= ' ' || rest.ptr[i] == 0x7f || rest.ptr[i] == '?' || rest.ptr[i] == '#')
            return err_set(error, STINT_E_SYNTAX,
                           "a store's URL has no spaces, no ? and no #: expected them as %%20, "
                           "%%3F and %%23");
    if (!cut(&rest, ':', &word))
        return unknown(error);
    if (span_equals(word, "unix"))
        return parse_unix(url, rest, error);
    for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++)
        if (span_equals(word, schemes[i].name))
            scheme = &schemes[i];
    if (scheme == NULL || rest.len < 2 || memcmp(rest.ptr, "//", 2) != 0)
        return unknown(error);
    assert(word.len < sizeof(url->scheme));
    memcpy(url->scheme, word.ptr, word.len);
    url->kind = scheme->kind;
    url->is_tls = scheme->is_tls;
    rest = span_of(rest.ptr + 2, rest.len - 2);
    int code = parse_user(url, &rest, error);
    if (code == 0 && url->kind == STORE_MEMCACHED && url->password[0] != '\0' &&
        url->user[0] == '\0')
        return err_set(error, STINT_E_SYNTAX,
                       "memcached has no default user: expected memcached://user:password@host");
    struct span tail = span_of(NULL, 0);
    if (code == 0 && cut(&rest, '/', &word)) {
        tail = rest;
        rest = word;
    }
    if (code == 0)
        code = parse_hosts(url, rest, error);
    return code != 0 ? code : parse_tail(url, tail, error);
}

/* ---- As text --------------------------------------------------------------------------------- */

const char *store_url_text(const struct store_url *url, char text[STORE_URL_TEXT_SIZE])
{
    struct buf buf = buf_of(text, STORE_URL_TEXT_SIZE);
    bool is_socket = url->n_hosts == 0, has_password = url->password[0] != '\0';
    buf_add(&buf, "%s:%s", url->scheme, !is_socket || has_password ? "//" : "");
    if (has_password)
        buf_add(&buf, "%s:***@", url->user);
    for (unsigned i = 0; i < url->n_hosts; i++) {
        const struct store_host *host = &url->hosts[i];
        bool is_v6 = strchr(host->name, ':') != NULL;
        buf_add(&buf, "%s%s%s%s:%u", i > 0 ? "," : "", is_v6 ? "[" : "", host->name,
                is_v6 ? "]" : "", (unsigned)host->port);
    }
    buf_add(&buf, "%s", url->path);
    if (url->master[0] != '\0')
        buf_add(&buf, "/%s", url->master);
    if (url->database != 0)
        buf_add(&buf, "/%u", url->database);
    return text;
}
