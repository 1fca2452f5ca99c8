/* SPDX-License-Identifier: MIT */
/* A connection for one command after the other: a loop runs until the reply has arrived. */
#ifndef STINT_CMD_STORE_STORE_SESSION_H
#define STINT_CMD_STORE_STORE_SESSION_H

#include "backend/url.h"
#include "backend/wire/redis_conn.h"
#include "net/upstream/upstream_tls.h"

struct store_session;

struct store_session_options {
    const struct store_url *url;   /* user, database and Unix socket */
    const struct store_host *host; /* one of the URL's, or another; NULL: the Unix socket */
    unsigned database;
    struct upstream_tls *tls; /* NULL: none. Borrowed */
    uint64_t timeout_ns;      /* of connecting, and of each answer */
};

/* STINT_E_GONE with a message that gives the reason why there is no connection. */
int store_session_open(struct store_session **session, const struct store_session_options *options,
                       struct stint_error *error);
void store_session_close(struct store_session *session); /* NULL is fine */
const struct redis_server *store_session_server(const struct store_session *session);

/* Words end with NULL. `read` gets the reply, or the server's error. STINT_E_GONE: none. */
int store_session_ask(struct store_session *session, const char *const *words,
                      void (*read)(void *arg, const struct redis_reply *reply), void *arg,
                      struct stint_error *error);
/* The duration of the last reply. */
uint64_t store_session_took_ns(const struct store_session *session);

#endif
