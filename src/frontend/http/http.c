/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE /* gmtime_r */
/* The frontend: finds the route of a message, checks its sender's rights, and calls the handler. */
#include "frontend/http/http.h"

#include "frontend/http/http_frontend.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <time.h>

#define HEADER_BYTES_DEFAULT ((size_t)8 << 10)
#define BODY_BYTES_DEFAULT ((size_t)64 << 10)
#define OUTPUT_BYTES_DEFAULT ((size_t)256 << 10)

enum method { GET = 1, POST = 2, PUT = 4, DELETE = 8, ANY = 16 };

#define ROLE_NONE 0u         /* needs no token, and accepts any host name */
#define ROLE_PAGE (1u << 30) /* needs no token, or checks several roles itself */
#define ROLE_AUTH (1u << 31) /* ACCESS_ASK, or a trusted proxy */
#define HOST_SHOWN_MAX 100   /* bytes of a host in the message of the rejection */

struct route {
    const char *path;
    uint8_t methods; /* bits of enum method; GET is HEAD too */
    bool is_prefix;  /* includes all paths below it */
    bool wants_json; /* a body must have the type JSON: browsers send a preflight before that */
    unsigned role;
    void (*answer)(struct http_exchange *exchange);
    int verb;
};

/* The most frequent routes come first. */
static const struct route routes[] = {
    {"/auth", ANY, false, false, ROLE_AUTH, http_auth, REQUEST_TAKE},
    {"/v1/take", POST, false, true, ACCESS_ASK, http_verb, REQUEST_TAKE},
    {"/json", POST, false, false, ACCESS_ASK, http_rls, REQUEST_TAKE},
    {"/v1/peek", POST, false, true, ACCESS_ASK, http_verb, REQUEST_PEEK},
    {"/v1/take_upto", POST, false, true, ACCESS_ASK, http_verb, REQUEST_TAKE_UPTO},
    {"/v1/reserve", POST, false, true, ACCESS_ASK, http_verb, REQUEST_RESERVE},
    {"/v1/settle", POST, false, true, ACCESS_ASK, http_verb, REQUEST_SETTLE},
    {"/v1/cancel", POST, false, true, ACCESS_ASK, http_verb, REQUEST_CANCEL},
    {"/v1/renew", POST, false, true, ACCESS_ASK, http_verb, REQUEST_RENEW},
    {"/v1/refund", POST, false, true, ACCESS_ASK, http_verb, REQUEST_REFUND},
    {"/v1/charge", POST, false, true, ACCESS_ASK, http_verb, REQUEST_CHARGE},
    {"/v1/book", POST, false, true, ACCESS_ASK, http_verb, REQUEST_BOOK},
    {"/v1/block", POST, false, true, ACCESS_ADMINISTER, http_verb, REQUEST_BLOCK},
    {"/v1/reset", POST, false, true, ACCESS_ADMINISTER, http_verb, REQUEST_RESET},
    {"/v1/explain", POST, false, true, ACCESS_ASK, http_verb, REQUEST_EXPLAIN},
    {"/v1/explain", GET, false, false, ACCESS_ASK, http_verb_by_query, REQUEST_EXPLAIN},
    {"/v1/overrides", PUT, false, true, ACCESS_ADMINISTER, http_verb, REQUEST_SET_QUOTA},
    {"/v1/overrides", DELETE, false, false, ACCESS_ADMINISTER, http_verb_by_query,
     REQUEST_SET_QUOTA},
    {"/v1/pools", GET, false, false, ACCESS_ASK, http_pool_list, 0},
    {"/v1/pools/", GET | POST, true, true, ROLE_PAGE, http_pool_verb, 0},
    {"/v1/clock", GET, false, false, ACCESS_ASK, http_clock, 0},
    {"/v1/clock", POST, false, true, ACCESS_ADMINISTER, http_clock_move, 0},
    {"/v1/top", GET, false, false, ACCESS_METRICS, http_page_top, 0},
    {"/v1/stats", GET, false, false, ACCESS_METRICS, http_page_stats, 0},
    {"/v1/reload", POST, false, true, ACCESS_ADMINISTER, http_page_reload, 0},
    {"/metrics", GET, false, false, ACCESS_METRICS, http_page_metrics, 0},
    {"/healthz", GET, false, false, ROLE_NONE, http_page_health, 0},
    {"/readyz", GET, false, false, ROLE_NONE, http_page_ready, 0},
    {"/healthcheck", GET, false, false, ROLE_NONE, http_page_healthcheck, 0},
    {"/stats", GET, false, false, ACCESS_METRICS, http_page_envoy_stats, 0},
    {"/rlconfig", GET, false, false, ACCESS_METRICS, http_page_rules, 0},
    {"/openapi.json", GET, false, false, ROLE_PAGE, http_page_openapi, 0},
    {"/", GET, false, false, ROLE_PAGE, http_page_dashboard, 0},
};
#define N_ROUTES (sizeof(routes) / sizeof(routes[0]))

/* ---- Text of answers ------------------------------------------------------------------------- */

struct http_text http_frontend_text(struct http_frontend *frontend)
{
    return http_text_at(frontend->text, frontend->text_size);
}

bool http_frontend_grow(struct http_frontend *frontend, const struct http_text *text)
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

void http_exchange_text(struct http_exchange *exchange, unsigned status, const char *type,
                        const char *text)
{
    struct http_answer *answer = exchange->answer;
    answer->status = status;
    answer->body = span_of_text(text);
    http_answer_add(answer, "Content-Type", type);
}

static void write_problem(struct http_frontend *frontend, unsigned status, const char *detail,
                          struct http_answer *answer)
{
    struct http_text out;
    do {
        out = http_frontend_text(frontend);
        http_problem_write(&out, status, detail);
    } while (http_frontend_grow(frontend, &out));
    answer->status = status;
    answer->body = span_of(out.text, out.len);
    http_answer_add(answer, "Content-Type", HTTP_TYPE_PROBLEM);
}

static void count_malformed(struct http_frontend *frontend, unsigned status)
{
    if (frontend->metrics != NULL && status >= 400 && status < 500)
        metrics_malformed(frontend->metrics, METRICS_HTTP);
}

void http_exchange_refuse(struct http_exchange *exchange, unsigned status, const char *detail)
{
    count_malformed(exchange->frontend, status);
    write_problem(exchange->frontend, status, detail, exchange->answer);
}

void http_exchange_fault(struct http_exchange *exchange, const struct stint_error *error)
{
    http_exchange_refuse(exchange, 400, error->message);
}

void http_exchange_page(struct http_exchange *exchange, const char *type)
{
    struct page *page = &exchange->frontend->page;
    if (page->failed) {
        http_exchange_refuse(exchange, 503, "no memory for so long a page");
        return;
    }
    exchange->answer->status = 200;
    exchange->answer->body = span_of(page->text, page->len);
    http_answer_add(exchange->answer, "Content-Type", type);
}

/* ---- The caller ------------------------------------------------------------------------------ */

static void renew_access(struct http_frontend *frontend)
{
    struct access_now *now = frontend->options.access;
    if (now == NULL || access_now_generation(now) == frontend->access_generation)
        return;
    /* Read first: if the set changes in between, the next request checks again. */
    frontend->access_generation = access_now_generation(now);
    access_unref(frontend->access);
    frontend->access = access_now_get(now);
}

/* The text after "Bearer ", in any case; NULL ptr: none. */
static struct span bearer_secret(const struct http_message *message)
{
    static const char scheme[] = "bearer ";
    struct span field = message->field(message->field_arg, "Authorization", 0);
    size_t n = sizeof(scheme) - 1;
    if (field.len <= n)
        return (struct span){0};
    for (size_t i = 0; i < n; i++)
        if ((field.ptr[i] | 0x20) != scheme[i])
            return (struct span){0};
    while (n < field.len && field.ptr[n] == ' ')
        n++;
    return span_of(field.ptr + n, field.len - n);
}

static bool refuse_sender(struct http_exchange *exchange, unsigned status, const char *challenge,
                          const char *detail)
{
    http_answer_add(exchange->answer, "WWW-Authenticate", challenge);
    http_exchange_refuse(exchange, status, detail);
    return false;
}

/*
 * Whether a trusted proxy calls /auth, which may pass on the Host of its client. In a DNS rebinding
 * attack, Host has this server's port, which sites of a proxy do not have: that is rejected.
 */
static bool is_proxy_s_host(const struct http_exchange *exchange, unsigned role, struct span host)
{
    return role == ROLE_AUTH && memchr(host.ptr, ':', host.len) == NULL &&
           http_auth_is_trusted(exchange);
}

/* Most requests name the same host as the one before. */
static bool is_known_host(struct http_frontend *frontend, struct span host)
{
    if (host.len == frontend->host_len && memcmp(host.ptr, frontend->host, host.len) == 0)
        return true;
    if (!http_hosts_have(frontend->options.site->hosts, host))
        return false;
    if (host.len <= sizeof(frontend->host)) {
        memcpy(frontend->host, host.ptr, host.len);
        frontend->host_len = host.len;
    }
    return true;
}

/*
 * A server without tokens trusts all clients that reach its port, and a page could become one by
 * DNS rebinding. Browsers do not reach Unix sockets.
 */
static bool admit_host(struct http_exchange *exchange, unsigned role)
{
    static const char reason[] =
        "without tokens this server answers at IP addresses, localhost and the names in http_hosts,"
        " and not at \"%.*s\": add the name with --http-hosts NAME%s";
    const struct http_message *message = exchange->message;
    struct span host = http_browser_host(message);
    char detail[sizeof(reason) + HOST_SHOWN_MAX + 128];
    if (message->peer.len == 0 || host.len == 0 || is_known_host(exchange->frontend, host) ||
        is_proxy_s_host(exchange, role, host))
        return true;
    snprintf(detail, sizeof(detail), reason,
             host.len < HOST_SHOWN_MAX ? (int)host.len : HOST_SHOWN_MAX, (const char *)host.ptr,
             role == ROLE_AUTH ? ", or the proxy with --http-trusted-proxies ADDRESS" : "");
    http_exchange_refuse(exchange, 421, detail);
    return false;
}

bool http_exchange_admit(struct http_exchange *exchange, unsigned role)
{
    struct http_frontend *frontend = exchange->frontend;
    renew_access(frontend);
    exchange->caller = (struct caller){.name = "", .roles = ACCESS_ALL, .frontend = METRICS_HTTP};
    if (frontend->access == NULL)
        return admit_host(exchange, role);
    if (role == ROLE_PAGE)
        return true;
    if (role == ROLE_AUTH && http_auth_is_trusted(exchange)) {
        exchange->caller.roles = ACCESS_ASK;
        return true;
    }
    exchange->caller.roles = 0;
    struct span secret = bearer_secret(exchange->message);
    if (secret.ptr == NULL)
        return refuse_sender(exchange, 401, "Bearer realm=\"stint\"",
                             "a token is required: Authorization: Bearer SECRET");
    const struct access_login login = {
        .secret = secret,
        .peer = exchange->message->peer,
        .frontend = METRICS_HTTP,
        .metrics = frontend->metrics,
        .now_ns = exchange->io_now_ns,
    };
    bool is_slowed;
    const struct access_token *token =
        access_login(frontend->options.access, frontend->access, &login, &is_slowed);
    if (token == NULL)
        return refuse_sender(exchange, 401, "Bearer realm=\"stint\", error=\"invalid_token\"",
                             is_slowed
                                 ? "too many wrong secrets came from this address: wait a minute"
                                 : "no such token");
    exchange->caller.name = token->name;
    exchange->caller.roles = token->roles;
    unsigned wanted = role == ROLE_AUTH ? (unsigned)ACCESS_ASK : role;
    if ((token->roles & wanted) == wanted)
        return true;
    return refuse_sender(exchange, 403, "Bearer realm=\"stint\", error=\"insufficient_scope\"",
                         "the token's roles do not allow this");
}

/* ---- Routes ---------------------------------------------------------------------------------- */

static unsigned method_bit(struct span method)
{
    if (span_equals(method, "GET") || span_equals(method, "HEAD"))
        return GET;
    if (span_equals(method, "POST"))
        return POST;
    if (span_equals(method, "PUT"))
        return PUT;
    return span_equals(method, "DELETE") ? DELETE : 0;
}

static bool route_has(const struct route *route, struct span path)
{
    size_t len = strlen(route->path);
    if (path.len != len && (!route->is_prefix || path.len < len))
        return false;
    return memcmp(path.ptr, route->path, len) == 0;
}

/* Below a prefix each path has its own handler; for an unknown path, it replies that. */
static unsigned methods_of(const struct route *route, struct span path, unsigned asked)
{
    if (!route->is_prefix)
        return route->methods;
    const char *method = http_pool_method(path);
    return method != NULL ? method_bit(span_of_text(method)) : route->methods & asked;
}

/* The route, or NULL; *methods gets all methods of the path. */
static const struct route *find_route(struct span path, unsigned method, unsigned *methods)
{
    *methods = 0;
    for (size_t i = 0; i < N_ROUTES; i++) {
        if (!route_has(&routes[i], path))
            continue;
        unsigned these = methods_of(&routes[i], path, method);
        *methods |= these;
        if (these & (method | ANY))
            return &routes[i];
    }
    return NULL;
}

static const char *allow_text(unsigned methods)
{
    static const char *const texts[16] = {
        [GET] = "GET, HEAD, OPTIONS",
        [POST] = "POST, OPTIONS",
        [GET | POST] = "GET, HEAD, POST, OPTIONS",
        [PUT | DELETE] = "PUT, DELETE, OPTIONS",
    };
    const char *text = methods & ANY ? "GET, HEAD, POST, PUT, DELETE, OPTIONS" : texts[methods];
    assert(text != NULL);
    return text;
}

static bool says_json(const struct http_message *message)
{
    static const char json[] = "application/json";
    struct span type = message->field(message->field_arg, "Content-Type", 0);
    size_t n = sizeof(json) - 1;
    return type.len >= n && (type.len == n || type.ptr[n] == ';' || type.ptr[n] == ' ') &&
           strncasecmp((const char *)type.ptr, json, n) == 0;
}

/*
 * Whether a page of another origin has sent a request that can change something: all but GET, and
 * /auth, which takes units with any method. A proxy that calls /auth may pass on the fields of its
 * client's browser, and adds fields that no page can send.
 */
static bool refuse_page(struct http_exchange *exchange, const struct route *route, unsigned method)
{
    bool is_auth = route->role == ROLE_AUTH;
    if ((method == GET && !is_auth) || !http_browser_is_foreign(exchange->message) ||
        (is_auth && http_auth_is_forwarded(exchange)))
        return false;
    http_exchange_refuse(exchange, 403,
                         is_auth ? "Origin or Sec-Fetch-Site names a web page of another origin: a "
                                   "proxy that passes on its client's fields has to add "
                                   "X-Forwarded-For"
                                 : "Origin or Sec-Fetch-Site names a web page of another origin: "
                                   "only pages of this host and port may send this");
    return true;
}

static void refuse_path(struct http_exchange *exchange, unsigned methods)
{
    if (span_equals(exchange->message->target, "*") &&
        span_equals(exchange->message->method, "OPTIONS"))
        methods = ANY; /* "OPTIONS *" is about the whole server */
    if (methods == 0) {
        http_exchange_refuse(exchange, 404, "no such path; /openapi.json lists all paths");
        return;
    }
    http_answer_add(exchange->answer, "Allow", allow_text(methods));
    if (span_equals(exchange->message->method, "OPTIONS"))
        exchange->answer->status = 204;
    else
        http_exchange_refuse(exchange, 405, "the path has other methods");
}

static void answer_message(struct http_exchange *exchange)
{
    const struct http_message *message = exchange->message;
    unsigned methods;
    exchange->target = http_target_of(message->target);
    const char *metrics_path = exchange->frontend->options.site->metrics_path;
    if (metrics_path != NULL && span_equals(exchange->target.path, metrics_path))
        exchange->target.path = span_of_text("/metrics");
    unsigned method = method_bit(message->method);
    const struct route *route = find_route(exchange->target.path, method, &methods);
    if (route == NULL) {
        refuse_path(exchange, methods);
        return;
    }
    if (refuse_page(exchange, route, method))
        return;
    if (route->role != ROLE_NONE && !http_exchange_admit(exchange, route->role))
        return;
    if (route->wants_json && message->body.len > 0 && !says_json(message)) {
        http_exchange_refuse(exchange, 415, "expected a body with Content-Type: application/json");
        return;
    }
    exchange->verb = route->verb;
    route->answer(exchange);
}

void http_frontend_ask(struct http_frontend *frontend, const struct http_message *message,
                       uint64_t asked_ns, uint64_t now_ns, struct http_answer *answer)
{
    struct http_exchange exchange = {
        .frontend = frontend,
        .message = message,
        .asked_ns = asked_ns,
        .now_ns = server_clock_now(frontend->clock, now_ns),
        .io_now_ns = now_ns,
        .answer = answer,
        .pending = message->pending,
    };
    answer->status = 0;
    answer->ends_connection = frontend->is_draining;
    answer->body = (struct span){0};
    answer->n_fields = 0;
    answer->again_at_ns = answer->look_at_ns = 0;
    answer->pending = NULL;
    answer_message(&exchange);
    /* Not used by this call, since tokens or routes have changed. */
    service_drop(frontend->options.service, exchange.pending);
}

void http_frontend_refuse(struct http_frontend *frontend, unsigned status, const char *detail,
                          struct http_answer *answer)
{
    *answer = (struct http_answer){.ends_connection = true};
    count_malformed(frontend, status);
    write_problem(frontend, status, detail, answer);
}

void http_frontend_set_date(struct http_frontend *frontend, int64_t now_s)
{
    struct tm now;
    time_t time_s = (time_t)now_s;
    if (gmtime_r(&time_s, &now) == NULL ||
        strftime(frontend->date, sizeof(frontend->date), "%a, %d %b %Y %H:%M:%S GMT", &now) == 0)
        frontend->date[0] = '\0';
}

void http_frontend_drain(struct http_frontend *frontend)
{
    frontend->is_draining = true;
}

static void set_limits(struct http_frontend *frontend)
{
    struct http_limits *limits = &frontend->options.limits;
    if (limits->header_bytes == 0)
        limits->header_bytes = HEADER_BYTES_DEFAULT;
    if (limits->body_bytes == 0)
        limits->body_bytes = BODY_BYTES_DEFAULT;
    if (limits->output_bytes == 0)
        limits->output_bytes = OUTPUT_BYTES_DEFAULT;
    frontend->reader_limits = (struct http_reader_limits){limits->header_bytes, limits->body_bytes};
}

struct http_frontend *http_frontend_new(const struct http_frontend_options *options)
{
    struct http_frontend *frontend = calloc(1, sizeof(*frontend));
    if (frontend == NULL)
        return NULL;
    frontend->options = *options;
    frontend->clock = server_state_clock(service_server_state(options->service));
    set_limits(frontend);
    frontend->text_size = HTTP_TEXT_SIZE;
    frontend->text = malloc(frontend->text_size);
    if (frontend->text == NULL) {
        free(frontend);
        return NULL;
    }
    if (options->access != NULL) {
        frontend->access_generation = access_now_generation(options->access);
        frontend->access = access_now_get(options->access);
    }
    struct metrics *metrics = server_state_metrics(service_server_state(options->service));
    if (metrics != NULL)
        frontend->metrics = metrics_worker(metrics, service_worker(options->service));
    return frontend;
}

void http_frontend_free(struct http_frontend *frontend)
{
    if (frontend == NULL)
        return;
    http_call_deinit(&frontend->call);
    access_unref(frontend->access);
    page_free(&frontend->page);
    http_frontend_free_requests(frontend);
    free(frontend->text);
    free(frontend);
}
