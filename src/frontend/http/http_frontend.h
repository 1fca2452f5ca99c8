/* SPDX-License-Identifier: MIT */
/* What the files of frontend/http/http share: a worker's frontend, and one message on its way
 * through it. */
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
    char *metrics_path; /* "/metrics" by another name, too. NULL: none */
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

#define HTTP_ARENA_SIZE 65536 /* for what descriptors are made of */
#define HTTP_TEXT_SIZE 8192   /* of an answer; grows up to HTTP_TEXT_MAX */
#define HTTP_TEXT_MAX (8u << 20)
#define HTTP_PAGE_KEPT (1u << 20) /* a page that was longer is given back */

struct http_frontend {
    struct http_frontend_options options;
    struct server_clock *clock;
    struct metrics_worker *metrics; /* NULL: nobody counts */
    struct access *access;          /* the set in force when last looked; NULL: none */
    uint64_t access_generation;
    bool is_draining;
    struct http_call call;
    struct reply reply;
    char *text; /* the answer's body and its fields' values */
    size_t text_size;
    struct page page; /* the body of an answer that is long */
    char arena[HTTP_ARENA_SIZE];
    /* Of its connections. */
    struct http_reader_limits reader_limits;
    struct http_request *requests; /* unused ones, kept for the next */
    unsigned n_requests;
    char date[32]; /* "": none */
    /* The host that was last found known, so that the same one is not looked up again. */
    char host[64];
    size_t host_len;
};

/* http_conn.c */
void http_frontend_free_requests(struct http_frontend *frontend);

/* One message. */
struct http_exchange {
    struct http_frontend *frontend;
    const struct http_message *message;
    struct http_target target;
    struct caller caller;
    uint64_t asked_ns, now_ns; /* of decisions */
    uint64_t io_now_ns;
    struct http_answer *answer;
    struct pending *pending; /* of the message, until the service has it. NULL: none */
    int verb;                /* of the route */
};

/*
 * Finds the caller, and whether it has the role, or without tokens whether it has named a host that
 * is known; false where the answer is a refusal.
 */
bool http_exchange_admit(struct http_exchange *exchange, unsigned role);

/* ---- Answers --------------------------------------------------------------------------------- */

/* Room for an answer's text, empty. Grown after each try that was too small. */
struct http_text http_frontend_text(struct http_frontend *frontend);
/* After a try: true where it was too small, and another, with more room, may do. */
bool http_frontend_grow(struct http_frontend *frontend, const struct http_text *text);

/* A problem with this status; `detail` may be NULL. Counted as malformed where it is. */
void http_exchange_refuse(struct http_exchange *exchange, unsigned status, const char *detail);
/* The same for a fault of what was sent: 400. */
void http_exchange_fault(struct http_exchange *exchange, const struct stint_error *error);
/* A body that was written into the frontend's page. */
void http_exchange_page(struct http_exchange *exchange, const char *type);
/* A short body of the program's own. */
void http_exchange_text(struct http_exchange *exchange, unsigned status, const char *type,
                        const char *text);

/* Asks the service for frontend->call. False: not yet, answer->again_at_ns or ->pending is set. */
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
/* Whether /auth is asked by a proxy that is trusted: it needs no token, and may name any host. */
bool http_auth_is_trusted(const struct http_exchange *exchange);
/* Whether /auth is asked for a client whose fields the proxy has passed on. */
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
