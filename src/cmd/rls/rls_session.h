/* SPDX-License-Identifier: MIT */
/*
 * gRPC calls of a client on one connection: HTTP/2 by nghttp2, without a socket. Calls that the
 * server has no stream for yet wait here, in their order. One thread.
 */
#ifndef STINT_CMD_RLS_RLS_SESSION_H
#define STINT_CMD_RLS_RLS_SESSION_H

#include "base/err.h"
#include "base/span.h"

#include <stdbool.h>

#define RLS_ANSWER_MAX (4u << 20) /* bytes of one answer */

/* How a call ended. */
struct rls_answer {
    uint64_t tag;                         /* of rls_session_ask() */
    int http_status;                      /* 0: the call ended without */
    int grpc_status;                      /* -1: there was none */
    char status_message[STINT_ERROR_MAX]; /* grpc-message, or why there is no status */
    struct span message;                  /* of GRPC_OK; valid during the call */
};

struct rls_session_options {
    const char *authority; /* as :authority has it */
    const char *token;     /* NULL: none is shown */
    bool is_tls;
    void (*answered)(void *arg, const struct rls_answer *answer);
    void *arg;
};

struct rls_session;

struct rls_session *
rls_session_new(const struct rls_session_options *options); /* NULL: no memory */
void rls_session_free(
    struct rls_session *session); /* calls under way end unanswered; NULL is fine */

/*
 * The message is copied. timeout_ns is told to the server; 0: none. STINT_E_GONE where the server
 * takes no more calls on this connection.
 */
int rls_session_ask(struct rls_session *session, const char *path, struct span message,
                    uint64_t timeout_ns, uint64_t tag, struct stint_error *error);
size_t rls_session_pending(const struct rls_session *session);

/* STINT_E_SYNTAX for what is not HTTP/2. */
int rls_session_feed(struct rls_session *session, struct span bytes, struct stint_error *error);
/* What is to be sent; valid until the next call. */
struct span rls_session_output(struct rls_session *session);
void rls_session_sent(struct rls_session *session, size_t len);

#endif
