/* SPDX-License-Identifier: MIT */
/* What a new connection sends before any command: the password, and queries about the server. */
#ifndef STINT_BACKEND_WIRE_MEMCACHED_GREETING_H
#define STINT_BACKEND_WIRE_MEMCACHED_GREETING_H

#include "backend/wire/memcached_command.h"

/* Distinguishes the server from an earlier one at the same address. */
struct memcached_server {
    char version[32];
    uint64_t pid, uptime_s; /* 0: not reported */
};

struct memcached_greeting {
    struct redis_bytes bytes;
    size_t sent;
    bool is_let_in; /* the server has accepted the password, or wants none */
    struct memcached_server server;
};

/* NULL or "" as password: none. False: no memory. */
bool memcached_greeting_begin(struct memcached_greeting *greeting, const char *user,
                              const char *password);
void memcached_greeting_deinit(struct memcached_greeting *greeting); /* zeroes the password */

struct span memcached_greeting_output(const struct memcached_greeting *greeting);
void memcached_greeting_sent(struct memcached_greeting *greeting, size_t len);
/* 1: all is answered; 0: not yet; else a code, and why the server is not usable. */
int memcached_greeting_take(struct memcached_greeting *greeting,
                            const struct memcached_reply *reply, struct stint_error *error);

#endif
