/* SPDX-License-Identifier: MIT */
/*
 * A connection to a collector of traces: one request at a time over HTTP/1.1 or gRPC, and its
 * answer. Bytes in and bytes out: net/upstream/upstream.h has the socket. What a collector can send
 * is bounded.
 */
#ifndef STINT_NET_UPSTREAM_COLLECTOR_CONN_H
#define STINT_NET_UPSTREAM_COLLECTOR_CONN_H

#include "backend/url.h"
#include "backend/wire/backend_link.h"

#define COLLECTOR_ANSWER_MAX 65536 /* bytes of an answer, its head included */
#define COLLECTOR_BODY_MAX 4096    /* of its body; over HTTP the rest is skipped */
#define COLLECTOR_PATH_SIZE 256
#define COLLECTOR_REASON_SIZE 256
#define COLLECTOR_HTTP_PORT 4318
#define COLLECTOR_GRPC_PORT 4317

/* ---- URLs ------------------------------------------------------------------------------------ */

/* http://HOST[:PORT][/PATH] or grpc://HOST[:PORT], or https and grpcs. */
struct collector_url {
    struct store_host host;
    char authority[STORE_HOST_SIZE + 16]; /* as the Host field has it */
    char path[COLLECTOR_PATH_SIZE];       /* of HTTP; "" where the URL has none */
    bool is_tls, is_grpc;
};

/* STINT_E_SYNTAX or STINT_E_RANGE; no message quotes the URL, which may hold a secret. */
int collector_url_parse(struct collector_url *url, const char *text, struct stint_error *error);

/* ---- The connection -------------------------------------------------------------------------- */

enum collector_verdict {
    COLLECTOR_ACCEPTS,
    COLLECTOR_MAY_LATER, /* it is worth a repetition */
    COLLECTOR_REFUSES,
};

struct collector_answer {
    enum collector_verdict verdict;
    uint64_t retry_ns;                  /* after what time to repeat; 0: it did not say */
    struct span body;                   /* at most COLLECTOR_BODY_MAX bytes of it */
    char reason[COLLECTOR_REASON_SIZE]; /* why it does not accept; "" where it does */
};

/* `answer` is NULL but for DONE, and valid during the call. It may post the next request. */
typedef void collector_answered(void *arg, enum link_outcome outcome,
                                const struct collector_answer *answer, uint64_t now_ns);

struct collector_conn_options {
    const struct collector_url *url; /* over HTTP with a path */
    const char *const *headers;      /* NAME:VALUE, n_headers of them, NAME in lower case */
    size_t n_headers;
    size_t body_max;          /* of a request */
    struct link_options link; /* but for bounds of commands and bytes */
    collector_answered *answered;
    void *arg;
};

struct collector_conn {
    struct link *link; /* for the owner of the socket; link_free() frees all */
    bool (*post)(struct link *link, struct span body, uint64_t now_ns);
};

/* Strings are borrowed. False: no memory. */
bool collector_conn_open(struct collector_conn *conn, const struct collector_conn_options *options);

/* False: it is not ready, or the answer to the request before is missing. The body is copied. */
static inline bool collector_conn_post(struct collector_conn *conn, struct span body,
                                       uint64_t now_ns)
{
    return conn->post(conn->link, body, now_ns);
}

/* Whether a request that HTTP answers with this status is worth a repetition. */
static inline bool collector_status_may_pass(unsigned status)
{
    return status == 429 || status == 502 || status == 503 || status == 504;
}

/* ---- Its two kinds --------------------------------------------------------------------------- */

/* collector_http.c and collector_grpc.c. NULL: no memory. */
struct link *collector_http_new(const struct collector_conn_options *options);
bool collector_http_post(struct link *link, struct span body, uint64_t now_ns);
struct link *collector_grpc_new(const struct collector_conn_options *options);
bool collector_grpc_post(struct link *link, struct span body, uint64_t now_ns);

#endif
