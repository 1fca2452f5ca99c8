/* SPDX-License-Identifier: MIT */
/*
 * Answers HTTP requests: finds the caller and the target (proto/http_…), calls the service, the
 * pools and the metrics, and writes the answer. Uses no socket: the caller passes a complete
 * message.
 */
#ifndef STINT_FRONTEND_HTTP_HTTP_H
#define STINT_FRONTEND_HTTP_HTTP_H

#include "frontend/conn.h"
#include "proto/http/http_origin.h"
#include "service/access/access.h"
#include "service/service.h"

/*
 * Settings that all workers share: how /auth makes descriptors of a request, which proxies it
 * trusts, and which fields it answers with. Immutable.
 */
struct http_config;

/* Preprocessor numbers, since the setting's default is text. */
#define HTTP_DENY_STATUS 429
#define HTTP_DENY_STATUS_MIN 400
#define HTTP_DENY_STATUS_MAX 599

/* All borrowed for as long as the config. */
struct http_config_options {
    const char *domain; /* for /auth requests whose query has none. NULL: the query must have one */
    const char *const
        *descriptors;     /* one text each: "address/32/64, path". proto/http/http_parts.h */
    size_t n_descriptors; /* none: [address] */
    const char *const *trusted_proxies; /* "10.0.0.0/8", "::1", "unix": their fields are trusted.
                                         * None: no proxy is */
    size_t n_trusted_proxies;
    /* Host names that are accepted without tokens. proto/http/http_browser.h */
    const char *const *hosts;
    size_t n_hosts;
    struct http_origin_fields origin_fields; /* in which proxies describe their request */
    const char *metrics_path;                /* a second path of /metrics. NULL: none */
    unsigned deny_status;  /* of /auth: HTTP_DENY_STATUS_MIN … _MAX. 0 = HTTP_DENY_STATUS */
    unsigned styles;       /* bits of enum http_style (proto/http_fields.h); 0 = HTTP_STYLE_DRAFT_11
                            */
    struct span dashboard; /* the page at /. Empty: none */
    const char *dashboard_policy; /* its Content-Security-Policy; needed with a page */
};

/* STINT_E_SYNTAX or STINT_E_RANGE with a message that names the text. */
int http_config_new(struct http_config **config, const struct http_config_options *options,
                    struct stint_error *error);
void http_config_free(struct http_config *config); /* NULL is allowed */

/* One worker's. */
struct http_frontend;

/* Limits of what one client may send, and leave unread. 0 is the default. */
struct http_limits {
    size_t header_bytes; /* of a request's line and fields. Default 8 KiB */
    size_t body_bytes;   /* of a request's body. Default 64 KiB */
    size_t output_bytes; /* unread, above which no request is answered. Default 256 KiB */
};

struct rls_form;

struct http_frontend_options {
    struct service *service;
    struct http_limits limits;
    const struct http_config *config; /* outlives the frontend */
    const struct rls_form *rls_form;  /* of /json's answers. NULL: statuses only */
    /* The tokens in force, checked for each request. NULL, or without tokens: no token is
     * needed. */
    struct access_now *access;
    /*
     * POST /v1/reload. *number 0: asks for a reload, and sets its number. STINT_E_BUSY: the reload
     * of that number has not ended, call again soon. NULL: 501
     */
    int (*reload)(void *arg, uint64_t *number, struct stint_error *error);
    bool (*is_ready)(void *arg); /* /readyz. NULL: until drained */
    void *arg;                   /* of both */
};

struct http_frontend *
http_frontend_new(const struct http_frontend_options *options); /* NULL: no memory */
void http_frontend_free(struct http_frontend *frontend);

/*
 * Answers a message at the time of I/O now_ns. asked_ns, a time of decisions
 * (service/server_clock.h), is the time of the first call; later calls with the same asked_ns are
 * for a request that waits. The answer is in memory of the frontend, until its next call. Where
 * answer->again_at_ns or ->look_at_ns is not 0, there is no answer yet: repeat the call at that
 * time. The same where answer->pending is not NULL: repeat the call after the callback of
 * service_on_answers(), with message->pending; or drop the pending request, service_drop().
 */
void http_frontend_ask(struct http_frontend *frontend, const struct http_message *message,
                       uint64_t asked_ns, uint64_t now_ns, struct http_answer *answer);
/* The answer to input that is not a valid message: too large, no length, not supported. */
void http_frontend_refuse(struct http_frontend *frontend, unsigned status, const char *detail,
                          struct http_answer *answer);
/* Sets the Date field: seconds since 1970. Until then there is no such field. */
void http_frontend_set_date(struct http_frontend *frontend, int64_t now_s);
/* From now on /readyz reports that the server is not ready, and each answer ends its connection. */
void http_frontend_drain(struct http_frontend *frontend);

/*
 * A connection: bytes in, bytes out, without a socket. Requests are answered in the order in which
 * they came; one that waits (for a store, or by its own wait) delays those after it. `peer`: the
 * address of the other end as text; empty for a Unix socket. Copied. NULL: no memory. Freed by
 * conn->ops->free(), before its frontend.
 */
struct conn *http_conn_new(struct http_frontend *frontend, struct span peer);

#endif
