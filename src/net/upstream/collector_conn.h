/* SPDX-License-Identifier: MIT */
/*
 * A connection to a collector of traces: one POST at a time over HTTP/1.1, and its answer. Bytes in
 * and bytes out: net/upstream/upstream.h has the socket. What a collector can send is bounded.
 */
#ifndef STINT_NET_UPSTREAM_COLLECTOR_CONN_H
#define STINT_NET_UPSTREAM_COLLECTOR_CONN_H

#include "backend/url.h"
#include "backend/wire/backend_link.h"

#define COLLECTOR_ANSWER_MAX 65536 /* bytes of an answer, its head included */
#define COLLECTOR_BODY_MAX 4096    /* of its body; the rest is skipped */
#define COLLECTOR_PATH_SIZE 256
#define COLLECTOR_PORT 4318

/* ---- URLs ------------------------------------------------------------------------------------ */

/* http://HOST[:PORT][/PATH], or https. */
struct collector_url {
    struct store_host host;
    char authority[STORE_HOST_SIZE + 16]; /* as the Host field has it */
    char path[COLLECTOR_PATH_SIZE];       /* "" where the URL has none */
    bool is_tls;
};

/* STINT_E_SYNTAX or STINT_E_RANGE; no message quotes the URL, which may hold a secret. */
int collector_url_parse(struct collector_url *url, const char *text, struct stint_error *error);

/* ---- The connection -------------------------------------------------------------------------- */

struct collector_answer {
    unsigned status;
    uint64_t retry_after_s; /* 0: it did not say */
    struct span body;       /* at most COLLECTOR_BODY_MAX bytes of it */
};

/* `answer` is NULL but for DONE, and valid during the call. It may post the next request. */
typedef void collector_answered(void *arg, enum link_outcome outcome,
                                const struct collector_answer *answer, uint64_t now_ns);

struct collector_conn;

struct collector_conn_options {
    const char *head; /* the request's line and fields, up to the value of Content-Length. Copied */
    size_t body_max;
    struct link_options link; /* but for bounds of commands and bytes */
    collector_answered *answered;
    void *arg;
};

struct collector_conn *collector_conn_new(const struct collector_conn_options *options);
/* For the owner of the socket: the first member. Freed by link_free(). */
static inline struct link *collector_conn_link(struct collector_conn *conn)
{
    return (struct link *)conn;
}

/* False: it is not ready, or the answer to the request before is missing. The body is copied. */
bool collector_conn_post(struct collector_conn *conn, struct span body, uint64_t now_ns);

#endif
