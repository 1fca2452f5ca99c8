/* SPDX-License-Identifier: MIT */
/*
 * One message and its answer, as the functions that answer routes see it, and the frontend of a
 * worker, which keeps their memory. The routes are above, in http.c, and connections above these.
 */
#ifndef STINT_FRONTEND_HTTP_HTTP_EXCHANGE_H
#define STINT_FRONTEND_HTTP_HTTP_EXCHANGE_H

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
#include "service/traces.h"

#include <stdlib.h>

struct http_config {
    struct http_config_options options; /* without 0 for a default */
    struct http_proxies *proxies;
    struct http_parts *parts;
};

#define HTTP_ARENA_SIZE 65536 /* for descriptors */
#define HTTP_TEXT_SIZE 8192   /* of an answer; grows up to HTTP_TEXT_MAX */
#define HTTP_TEXT_MAX (8u << 20)
#define HTTP_PAGE_KEPT (1u << 20) /* a longer page is freed */

struct http_frontend {
    struct http_frontend_options options;
    struct server_clock *clock;
    struct metrics_worker *metrics; /* NULL: not counted */
    struct tracer *tracer;          /* NULL: there are no traces */
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
    bool was_decided; /* the request and the reply of the frontend are those of the message */
};

static inline struct server_state *http_exchange_server(const struct http_exchange *exchange)
{
    return service_server_state(exchange->frontend->options.service);
}

/* ---- Routes ---------------------------------------------------------------------------------- */

enum http_methods {
    ROUTE_GET = 1, /* HEAD, too */
    ROUTE_POST = 2,
    ROUTE_PUT = 4,
    ROUTE_DELETE = 8,
    ROUTE_ANY = 16,
};

#define HTTP_ROLE_NONE 0u         /* needs no token, and accepts any host name */
#define HTTP_ROLE_PAGE (1u << 30) /* needs no token, or checks several roles itself */
#define HTTP_ROLE_AUTH (1u << 31) /* ACCESS_ASK, or a trusted proxy */

struct http_route {
    const char *path;
    uint8_t methods; /* bits of enum http_methods */
    bool is_prefix;  /* includes all paths below it */
    bool wants_json; /* a body must have the type JSON: browsers send a preflight before that */
    unsigned role;
    void (*answer)(struct http_exchange *exchange);
    int verb;
};

/* The routes of one file. */
struct http_routes {
    const struct http_route *routes;
    size_t n;
    /* The methods of a path below a prefix; 0: there is no such path, as the route replies. */
    unsigned (*methods_below)(struct span path);
};

extern const struct http_routes http_verb_routes, http_pool_routes, http_page_routes;

/* docs/openapi.json, built into the program. */
extern const unsigned char http_openapi[];
extern const size_t http_openapi_len;

/*
 * Finds the caller, and checks its role, or without tokens the host that it named; false where the
 * answer is a rejection.
 */
bool http_exchange_admit(struct http_exchange *exchange, unsigned role);

/* ---- Answers --------------------------------------------------------------------------------- */

/* Memory for an answer's text, empty. */
static inline struct http_text http_frontend_text(struct http_frontend *frontend)
{
    return http_text_at(frontend->text, frontend->text_size);
}

/* After an attempt: true where the text did not fit, and another attempt, with more memory, may. */
static inline bool http_frontend_grow(struct http_frontend *frontend, const struct http_text *text)
{
    if (!text->is_full || frontend->text_size >= HTTP_TEXT_MAX)
        return false;
    char *grown = realloc(frontend->text, 2 * frontend->text_size);
    if (grown == NULL)
        return false;
    frontend->text = grown;
    frontend->text_size *= 2;
    return true;
}

/* A problem with this status; `detail` may be NULL. A status for a malformed request is counted. */
void http_exchange_refuse(struct http_exchange *exchange, unsigned status, const char *detail);
/* Memory for the body of a long answer, empty. */
static inline struct page *http_frontend_page(struct http_frontend *frontend)
{
    struct page *page = &frontend->page;
    if (page->size > HTTP_PAGE_KEPT || page->failed)
        page_free(page);
    page->len = 0;
    return page;
}

/* A body in memory of the frontend, or a constant. */
static inline void http_exchange_text(struct http_exchange *exchange, unsigned status,
                                      const char *type, struct span text)
{
    exchange->answer->status = status;
    exchange->answer->body = text;
    http_answer_add(exchange->answer, "Content-Type", type);
}

/* A body that was written to the page. */
static inline void http_exchange_page(struct http_exchange *exchange, const char *type)
{
    struct page *page = &exchange->frontend->page;
    if (page->failed) {
        http_exchange_refuse(exchange, 503, "no memory for so long a page");
        return;
    }
    http_exchange_text(exchange, 200, type, span_of(page->text, page->len));
}

#endif
