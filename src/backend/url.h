/* SPDX-License-Identifier: MIT */
/*
 * The address of a shared store, as users write it. Schemes: redis, valkey (one server),
 * redis-cluster, valkey-cluster, redis-sentinel, valkey-sentinel; with a second s after the first
 * word (rediss, valkeys-cluster) in TLS; unix:/path; memcached, memcacheds.
 *
 *     redis://[[user]:password@]host[:port][,host[:port]...][/database]
 *     redis-sentinel://[[user]:password@]host[:port][,...]/master[/database]
 *     unix:[//[[user]:password@]]/path
 *     memcached://[user:password@]host[:port][,host[:port]...]
 *
 * A password goes only to the server: no error message quotes it.
 */
#ifndef STINT_BACKEND_URL_H
#define STINT_BACKEND_URL_H

#include "base/buf.h"
#include "base/err.h"
#include "base/span.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define STORE_HOSTS_MAX 16
#define STORE_HOST_SIZE 256
#define STORE_WORD_SIZE 256 /* of a user, a password, a master's name; zero included */
#define STORE_PATH_SIZE 108 /* of a Unix socket: the system's limit */
#define STORE_DATABASE_MAX 65535
#define STORE_URL_TEXT_SIZE (STORE_HOSTS_MAX * (STORE_HOST_SIZE + 8) + 3 * STORE_WORD_SIZE + 64)

enum store_kind { STORE_REDIS, STORE_REDIS_CLUSTER, STORE_REDIS_SENTINEL, STORE_MEMCACHED };

struct store_host {
    char name[STORE_HOST_SIZE]; /* a name, or an address without brackets */
    uint16_t port;
};

static inline bool store_host_is_same(const struct store_host *a, const struct store_host *b)
{
    return a->port == b->port && strcmp(a->name, b->name) == 0;
}

/* A name from a server. False: it is none, or too long. */
bool store_host_set(struct store_host *host, struct span name, uint16_t port);

/* HOST, HOST:PORT or [IPv6]:PORT, as users write it. False: it is none of them. */
bool store_host_parse(struct store_host *host, struct span word, uint16_t default_port);

/* Adds HOST:PORT or [IPv6]:PORT. */
void store_host_add(struct buf *buf, const struct store_host *host);

struct store_url {
    enum store_kind kind;
    char scheme[24];
    bool is_tls;
    char user[STORE_WORD_SIZE]; /* "": the default user */
    char password[STORE_WORD_SIZE];
    struct store_host hosts[STORE_HOSTS_MAX];
    unsigned n_hosts;           /* 0: a Unix socket */
    char path[STORE_PATH_SIZE]; /* of it, else "" */
    char master[STORE_WORD_SIZE];
    unsigned database;
};

/* STINT_E_SYNTAX or STINT_E_RANGE, with a message that names what was expected. */
int store_url_parse(struct store_url *url, const char *text, struct stint_error *error);

/* The URL for display: with *** for the password. Returns `text`. */
const char *store_url_text(const struct store_url *url, char text[STORE_URL_TEXT_SIZE]);

#endif
