/* SPDX-License-Identifier: MIT */
/* Shared by the files of frontend/http: a worker's frontend, and the exchange of one message and
 * its answer. */
#ifndef STINT_FRONTEND_HTTP_HTTP_FRONTEND_H
#define STINT_FRONTEND_HTTP_HTTP_FRONTEND_H

#include "frontend/http/http.h"
#include "proto/http/http_browser.h"
#include "proto/http/http_call.h"
#include "proto/http/http_parts.h"
#include "proto/http/http_reader.h"
#include "proto/http/http_reply.h"
#include "proto/http/http_target.h"
#include "proto/http_fields.h"
#include "proto/page.h"
#include "service/metrics/metrics.h"
#include "service/server_clock.h"

struct http_config {
    char *domain;       /* NULL: none */
    char *metrics_path; /* a second path of /metrics. NULL: none */
    char *address_field, *uri_field, *method_field;
    struct http_proxies *proxies;
    struct http_hosts *hosts;
    struct http_parts *parts;
    unsigned deny_status, styles;
    struct span dashboard;
    const char *dashboard_policy;
};

#define HTTP_DENY_STATUS_MIN 400
#define HTTP_DENY_STATUS_MAX 599

#define HTTP_ARENA_SIZE 65536 /* for descriptors */
#define HTTP_TEXT_SIZE 8192   /* of an answer; grows up to HTTP_TEXT_MAX */
#define HTTP_TEXT_MAX (8u << 20)
#define HTTP_PAGE_KEPT (1u << 20) /* a longer page is freed */

struct http_frontend {
    struct http_frontend_options options;
    struct server_clock *clock;
    struct metrics_worker *metrics; /* NULL: not counted */
    struct access *access;          /* the set in force at the last check; NULL: none */
    uint64_t access_generation;
    bool is_draining;
    struct http_call call;
    struct reply reply;
    char *text; /* the answer's body and its fields' values */
    size_t text_size;
    struct page page; /* the body of a long answer */
    char arena[HTTP_ARENA_SIZE];
    /* Shared by its connections. */
    struct http_reader_limits reader_limits;
    struct http_request *requests; /* unused ones, for reuse */
    unsigned n_requests;
    char date[32]; /* "": none */
    /* The last accepted host, so that it is not looked up again. */
    char host[64];
    size_t host_len;
};

/* http_conn.c */
void http_frontend_free_requests(struct http_frontend *frontend);

/* One message and its answer. */
struct http_exchange {
    struct http_frontend *frontend;
    const struct http_message *message;
    struct http_target target;
    struct caller caller;
    uint64_t asked_ns, now_ns; /* of decisions */
    uint64_t io_now_ns;
    struct http_answer *answer;
    struct pending *pending; /* of the message, until the service takes it. NULL: none */
    int verb;                /* of the route */
};

/*
 * Finds the caller, and checks its role, or without tokens the host that it named; false where the
 * answer is a rejection.
 */
bool http_exchange_admit(struct http_exchange *exchange, unsigned role);

/* ---- Answers --------------------------------------------------------------------------------- */

/* Memory for an answer's text, empty. Grown after each attempt that did not fit. */
struct http_text http_frontend_text(struct http_frontend *frontend);
/* After an attempt: true where the text did not fit, and another attempt, with more memory, may. */
bool http_frontend_grow(struct http_frontend *frontend, const struct http_text *text);

/* A problem with this status; `detail` may be NULL. A status for a malformed request is counted. */
void http_exchange_refuse(struct http_exchange *exchange, unsigned status, const char *detail);
/* The same for an error in the request: 400. */
void http_exchange_fault(struct http_exchange *exchange, const struct stint_error *error);
/* A body that was written to the frontend's page. */
void http_exchange_page(struct http_exchange *exchange, const char *type);
/* A short, constant body. */
void http_exchange_text(struct http_exchange *exchange, unsigned status, const char *type,
                        const char *text);

/* Calls the service. False: no reply yet, answer->again_at_ns or ->pending is set. */
bool http_exchange_ask(struct http_exchange *exchange);
/* Answers with the decision in frontend->reply; `write` writes the body. */
void http_exchange_reply(struct http_exchange *exchange, const char *type,
                         void (*write)(struct http_text *out, struct http_frontend *frontend));
/* The body of /v1. */
void http_write_reply(struct http_text *out, struct http_frontend *frontend);

/* ---- Routes, each in the file of its kind ---------------------------------------------------- */

void http_verb(struct http_exchange *exchange);          /* POST /v1/VERB, PUT /v1/overrides */
void http_verb_by_query(struct http_exchange *exchange); /* GET /v1/explain, DELETE … */
void http_rls(struct http_exchange *exchange);           /* POST /json */
void http_auth(struct http_exchange *exchange);          /* /auth */
/* Whether a trusted proxy calls /auth: it needs no token, and may name any host. */
bool http_auth_is_trusted(const struct http_exchange *exchange);
/* Whether the proxy that calls /auth has passed on fields of its client. */
bool http_auth_is_forwarded(const struct http_exchange *exchange);

void http_pool_verb(struct http_exchange *exchange); /* POST /v1/pools/NAME/VERB */
/* The method of a path below "/v1/pools/"; NULL: there is no such path. */
const char *http_pool_method(struct span path);
void http_pool_list(struct http_exchange *exchange); /* GET /v1/pools */

void http_clock(struct http_exchange *exchange);      /* GET /v1/clock */
void http_clock_move(struct http_exchange *exchange); /* POST /v1/clock */

void http_page_health(struct http_exchange *exchange);
void http_page_ready(struct http_exchange *exchange);
void http_page_healthcheck(struct http_exchange *exchange);
void http_page_metrics(struct http_exchange *exchange);
void http_page_stats(struct http_exchange *exchange);
void http_page_envoy_stats(struct http_exchange *exchange);
void http_page_top(struct http_exchange *exchange);
void http_page_rules(struct http_exchange *exchange);
void http_page_reload(struct http_exchange *exchange);
void http_page_dashboard(struct http_exchange *exchange);
void http_page_openapi(struct http_exchange *exchange);

#endif
