/* SPDX-License-Identifier: MIT */
/* What a new connection sends before any command: user, password and database. */
#ifndef STINT_BACKEND_WIRE_REDIS_GREETING_H
#define STINT_BACKEND_WIRE_REDIS_GREETING_H

#include "backend/wire/redis_command.h"
#include "backend/wire/redis_conn.h"

struct redis_greeting {
    struct redis_bytes bytes;
    size_t sent;
    unsigned answers_due;
    bool has_greeted; /* the reply to HELLO has come */
};

bool redis_greeting_begin(struct redis_greeting *greeting,
                          const struct redis_conn_options *options);
void redis_greeting_deinit(struct redis_greeting *greeting); /* clears what may be a password */

struct span redis_greeting_output(const struct redis_greeting *greeting);
void redis_greeting_sent(struct redis_greeting *greeting, size_t len);
/* 1: all is answered; 0: not yet; else a code, and why the server refuses the connection. */
int redis_greeting_take(struct redis_greeting *greeting, const struct redis_reply *reply,
                        struct redis_server *server, struct stint_error *error);

#endif
