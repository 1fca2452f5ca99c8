/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE /* gmtime_r */
/* The frontend and its settings: finds the route of a message, checks its sender's rights, and
 * calls the route's function. */
#include "frontend/http/http.h"

#include "base/err.h"
#include "frontend/http/http_exchange.h"

#include <assert.h>
#include <stdlib.h>
#include <strings.h>
#include <time.h>

#define HEADER_BYTES_DEFAULT ((size_t)8 << 10)
#define BODY_BYTES_DEFAULT ((size_t)64 << 10)
#define OUTPUT_BYTES_DEFAULT ((size_t)256 << 10)

/* ---- Settings -------------------------------------------------------------------------------- */

static int check_status(const struct http_config_options *options, struct stint_error *error)
{
    unsigned status = options->deny_status;
    if (status != 0 && (status < HTTP_DENY_STATUS_MIN || status > HTTP_DENY_STATUS_MAX))
        return err_set(error, STINT_E_RANGE, "deny_status %u: expected %d to %d", status,
                       HTTP_DENY_STATUS_MIN, HTTP_DENY_STATUS_MAX);
    if ((options->styles & ~(unsigned)HTTP_STYLES_ALL) != 0)
        return err_set(error, STINT_E_RANGE, "no such style of header fields: %u", options->styles);
    return 0;
}

static int fill(struct http_config *config, const struct http_config_options *options,
                struct stint_error *error)
{
    static const char *const by_address[] = {"address"};
    bool has_lists = options->n_descriptors > 0;
    config->options = *options;
    if (options->deny_status == 0)
        config->options.deny_status = 429;
    if (options->styles == 0)
        config->options.styles = HTTP_STYLE_DEFAULT;
    int code = check_status(options, error);
    if (code == 0)
        code = http_proxies_new(&config->proxies, options->trusted_proxies,
                                options->n_trusted_proxies, error);
    if (code == 0)
        code = http_hosts_check(options->hosts, options->n_hosts, error);
    if (code == 0)
        code = http_parts_new(&config->parts, has_lists ? options->descriptors : by_address,
                              has_lists ? options->n_descriptors : 1, error);
    return code;
}

int http_config_new(struct http_config **config, const struct http_config_options *options,
                    struct stint_error *error)
{
    struct http_config *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return err_set(error, STINT_E_SYSTEM, "out of memory");
    int code = fill(made, options, error);
    if (code < 0) {
        http_config_free(made);
        return code;
    }
    *config = made;
    return 0;
}

void http_config_free(struct http_config *config)
{
    if (config == NULL)
        return;
    http_parts_free(config->parts);
    http_proxies_free(config->proxies);
    free(config);
}

/* ---- Routes ---------------------------------------------------------------------------------- */

static unsigned method_bit(struct span method)
{
    if (span_equals(method, "GET") || span_equals(method, "HEAD"))
        return ROUTE_GET;
    if (span_equals(method, "POST"))
        return ROUTE_POST;
    if (span_equals(method, "PUT"))
        return ROUTE_PUT;
    return span_equals(method, "DELETE") ? ROUTE_DELETE : 0;
}

static bool route_has(const struct http_route *route, struct span path)
{
    size_t len = strlen(route->path);
    if (path.len != len && (!route->is_prefix || path.len < len))
        return false;
    return memcmp(path.ptr, route->path, len) == 0;
}

/* Below a prefix each path has its own methods; for an unknown path, the route replies that. */
static unsigned methods_of(const struct http_routes *group, const struct http_route *route,
                           struct span path, unsigned asked)
{
    unsigned methods = route->is_prefix ? group->methods_below(path) : route->methods;
    return methods != 0 ? methods : route->methods & asked;
}

/* The route, or NULL; *methods gets all methods of the path. */
static const struct http_route *find_route(struct span path, unsigned method, unsigned *methods)
{
    static const struct http_routes *const groups[] = {&http_verb_routes, &http_pool_routes,
                                                       &http_page_routes};
    *methods = 0;
    for (size_t at = 0; at < sizeof(groups) / sizeof(groups[0]); at++) {
        for (size_t i = 0; i < groups[at]->n; i++) {
            const struct http_route *route = &groups[at]->routes[i];
            if (!route_has(route, path))
                continue;
            unsigned these = methods_of(groups[at], route, path, method);
            *methods |= these;
            if (these & (method | ROUTE_ANY))
                return route;
        }
    }
    return NULL;
}

static const char *allow_text(unsigned methods)
{
    static const char *const texts[16] = {
        [ROUTE_GET] = "GET, HEAD, OPTIONS",
        [ROUTE_POST] = "POST, OPTIONS",
        [ROUTE_GET | ROUTE_POST] = "GET, HEAD, POST, OPTIONS",
        [ROUTE_PUT | ROUTE_DELETE] = "PUT, DELETE, OPTIONS",
    };
    const char *text =
        methods & ROUTE_ANY ? "GET, HEAD, POST, PUT, DELETE, OPTIONS" : texts[methods];
    assert(text != NULL);
    return text;
}

static bool says_json(const struct http_message *message)
{
    static const char json[] = "application/json";
    struct span type = http_message_field(message, "Content-Type", 0);
    size_t n = sizeof(json) - 1;
    return type.len >= n && (type.len == n || type.ptr[n] == ';' || type.ptr[n] == ' ') &&
           strncasecmp((const char *)type.ptr, json, n) == 0;
}

/*
 * Whether a page of another origin has sent a request that can change something: all but GET, and
 * /auth, which takes units with any method. A proxy that calls /auth may pass on the fields of its
 * client's browser, and adds fields that no page can send.
 */
static bool refuse_page(struct http_exchange *exchange, const struct http_route *route,
                        unsigned method)
{
    bool is_auth = route->role == HTTP_ROLE_AUTH;
    if ((method == ROUTE_GET && !is_auth) || !http_browser_is_foreign(exchange->message) ||
        (is_auth &&
         http_browser_is_forwarded(exchange->message,
                                   &exchange->frontend->options.config->options.origin_fields)))
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
        methods = ROUTE_ANY; /* "OPTIONS *" is about the whole server */
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
    const char *metrics_path = exchange->frontend->options.config->options.metrics_path;
    if (metrics_path != NULL && span_equals(exchange->target.path, metrics_path))
        exchange->target.path = span_of_text("/metrics");
    unsigned method = method_bit(message->method);
    const struct http_route *route = find_route(exchange->target.path, method, &methods);
    if (route == NULL) {
        refuse_path(exchange, methods);
        return;
    }
    if (refuse_page(exchange, route, method))
        return;
    if (route->role != HTTP_ROLE_NONE && !http_exchange_admit(exchange, route->role))
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

/* ---- Frontends ------------------------------------------------------------------------------- */

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
    limits->header_bytes = conn_limit(limits->header_bytes, HEADER_BYTES_DEFAULT);
    limits->body_bytes = conn_limit(limits->body_bytes, BODY_BYTES_DEFAULT);
    limits->output_bytes = conn_limit(limits->output_bytes, OUTPUT_BYTES_DEFAULT);
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
    frontend->access_generation = UINT64_MAX; /* of no set */
    access_now_renew(options->access, &frontend->access, &frontend->access_generation);
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
    while (frontend->requests != NULL) {
        struct http_request *request = frontend->requests;
        frontend->requests = request->next;
        http_request_deinit(request);
        free(request);
    }
    free(frontend->text);
    free(frontend);
}
