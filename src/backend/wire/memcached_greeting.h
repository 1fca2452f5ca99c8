/* SPDX-License-Identifier: MIT */
/* What is said on a new connection before any command: the password, and who the server is. */
#ifndef STINT_BACKEND_WIRE_MEMCACHED_GREETING_H
#define STINT_BACKEND_WIRE_MEMCACHED_GREETING_H

#include "backend/wire/memcached_command.h"

/* What tells a server from the one that was there before. */
struct memcached_server {
    char version[32];
    uint64_t pid, uptime_s; /* 0: it does not tell */
};

struct memcached_greeting {
    struct redis_bytes bytes;
    size_t sent;
    bool is_let_in; /* the server has taken the password, or wants none */
    struct memcached_server server;
};

/* NULL or "" as password: none. False: no memory. */
bool memcached_greeting_begin(struct memcached_greeting *greeting, const char *user,
                              const char *password);
void memcached_greeting_deinit(struct memcached_greeting *greeting); /* zeroes the password */

struct span memcached_greeting_output(const struct memcached_greeting *greeting);
void memcached_greeting_sent(struct memcached_greeting *greeting, size_t len);
/* 1: all is answered; 0: not yet; else a code, and why there is nobody to talk to. */
int memcached_greeting_take(struct memcached_greeting *greeting,
                            const struct memcached_reply *reply, struct stint_error *error);

#endif
