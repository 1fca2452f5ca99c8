/* SPDX-License-Identifier: MIT */
/* A store asked one command after the other, each waited for: a loop that runs until the answer. */
#ifndef STINT_CMD_STORE_STORE_SESSION_H
#define STINT_CMD_STORE_STORE_SESSION_H

#include "backend/url.h"
#include "backend/wire/redis_conn.h"
#include "net/upstream/upstream_tls.h"

struct store_session;

struct store_session_options {
    const struct store_url *url;   /* who we are, which database, which Unix socket */
    const struct store_host *host; /* one of the URL's, or another; NULL: the Unix socket */
    unsigned database;
    struct upstream_tls *tls; /* NULL: none. Borrowed */
    uint64_t timeout_ns;      /* of connecting, and of each answer */
};

/* STINT_E_GONE with a message that says why there is no connection. */
int store_session_open(struct store_session **session, const struct store_session_options *options,
                       struct stint_error *error);
void store_session_close(struct store_session *session); /* NULL is fine */
const struct redis_server *store_session_server(const struct store_session *session);

/* Words end with NULL. `read` gets the reply, an error of the server too. STINT_E_GONE: none came.
 */
int store_session_ask(struct store_session *session, const char *const *words,
                      void (*read)(void *arg, const struct redis_reply *reply), void *arg,
                      struct stint_error *error);
/* How long the last answer took. */
uint64_t store_session_took_ns(const struct store_session *session);

#endif
