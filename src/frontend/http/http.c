/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE /* gmtime_r */
/*
 * The frontend and its settings: finds the route of a message, checks its sender's rights, and
 * calls the route's function.
 *
 * Requests are read directly from the fed bytes. Bytes that cannot be read yet (an earlier request
 * waits, the output is full, or the turn is over) are kept, and no more are fed meanwhile. A
 * request that is read or waits has memory of its own; an idle connection has none.
 */
#include "frontend/http/http.h"

#include "base/byte_queue.h"
#include "base/err.h"
#include "base/wide_int.h"
#include "frontend/http/http_exchange.h"

#include <assert.h>
#include <llhttp/llhttp.h>
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
        config->options.deny_status = HTTP_DENY_STATUS;
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

/* ---- Traces ---------------------------------------------------------------------------------- */

/* Decisions have spans; pages have none, and neither has what an unauthenticated client sends. */
static bool is_traced(const struct http_exchange *exchange, const struct http_route *route)
{
    const struct http_routes *verbs = &http_verb_routes;
    return exchange->frontend->tracer != NULL && route >= verbs->routes &&
           route < verbs->routes + verbs->n;
}

static void read_context(const struct http_message *message, struct trace_context *context)
{
    struct span value;
    for (size_t n = 0; (value = http_message_field(message, "traceparent", n)).ptr != NULL; n++)
        trace_context_parent(context, value);
    for (size_t n = 0; (value = http_message_field(message, "tracestate", n)).ptr != NULL; n++)
        trace_context_state(context, value);
}

/* A request that waits for its time is decided anew, and has one span, from its beginning. */
static void begin_span(struct http_exchange *exchange, const struct http_route *route)
{
    struct http_frontend *frontend = exchange->frontend;
    struct trace_context context = {.is_valid = false};
    const struct trace_operation operation = {
        METRICS_HTTP, trace_http_method(exchange->message->method), route->path};
    if (exchange->pending == NULL)
        read_context(exchange->message, &context);
    uint64_t begin_ns = frontend->clock->is_virtual ? exchange->io_now_ns : exchange->asked_ns;
    exchange->caller.span = service_begin_span(frontend->options.service, exchange->pending,
                                               &operation, &context, begin_ns);
}

static void end_span(struct http_exchange *exchange)
{
    const struct http_answer *answer = exchange->answer;
    const struct http_frontend *frontend = exchange->frontend;
    if (exchange->caller.span == NULL || answer->pending != NULL)
        return;
    if (answer->again_at_ns > 0)
        trace_forget(exchange->caller.span);
    else
        trace_end(exchange->caller.span,
                  &(struct trace_end){
                      .status = (int)answer->status,
                      .has_failed = answer->status >= 500,
                      .error = exchange->was_decided ? frontend->reply.message : "",
                      .request = exchange->was_decided ? &frontend->call.request : NULL,
                      .reply = &frontend->reply,
                  });
}

/* ---- Messages -------------------------------------------------------------------------------- */

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
    if (is_traced(exchange, route))
        begin_span(exchange, route);
    route->answer(exchange);
    end_span(exchange);
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
    answer->again_at_ns = answer->look_at_ns = answer->reload = 0;
    answer->pending = NULL;
    answer_message(&exchange);
    /* Not used by this call, since tokens or routes have changed. */
    service_drop(frontend->options.service, exchange.pending);
}

void http_frontend_refuse(struct http_frontend *frontend, unsigned status, const char *detail,
                          struct http_answer *answer)
{
    struct http_exchange exchange = {.frontend = frontend, .answer = answer};
    *answer = (struct http_answer){.ends_connection = true};
    http_exchange_refuse(&exchange, status, detail);
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
    frontend->tracer = service_tracer(options->service);
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

/* ---- Connections ----------------------------------------------------------------------------- */

#define SIZE_KEPT 1024 /* bytes of memory that an empty queue keeps */
#define REQUEST_SIZE_KEPT 4096
#define REQUESTS_KEPT 8         /* by a worker, for the next requests */
#define WAITING_INPUT_MAX 16384 /* bytes after a request that waits; then no more are read */

struct http_conn {
    struct conn conn;
    struct http_frontend *frontend;
    struct http_reader reader;
    struct http_request *request; /* being read, or waiting. NULL: none */
    struct byte_queue input;      /* bytes that were not read yet */
    struct byte_queue out;
    struct pending *pending; /* of a request that waits for a store; NULL: none */
    uint64_t reload;         /* number of the reload that the request waits for; 0: none */
    /* By the time of decisions. */
    uint64_t asked_ns; /* time of the first call for the request that waits */
    uint64_t again_ns; /* time of the next; STINT_NEVER_NS: no set time */
    uint64_t look_ns;  /* the same by the time of I/O */
    bool was_asked;    /* asked_ns is set */
    bool is_draining, is_over;
    uint8_t peer_len;
    char peer[ACCESS_PEER_MAX]; /* its address; empty: a Unix socket */
};

/* ---- Memory of requests ---------------------------------------------------------------------- */

static bool take_request(struct http_conn *conn)
{
    struct http_frontend *frontend = conn->frontend;
    conn->request = frontend->requests;
    if (conn->request == NULL)
        conn->request = calloc(1, sizeof(*conn->request));
    else {
        frontend->requests = conn->request->next;
        frontend->n_requests--;
    }
    conn->reader.request = conn->request;
    return conn->request != NULL;
}

static void drop_request(struct http_conn *conn)
{
    struct http_frontend *frontend = conn->frontend;
    struct http_request *request = conn->request;
    conn->request = conn->reader.request = NULL;
    conn->was_asked = false;
    conn->reload = 0;
    if (request == NULL)
        return;
    if (frontend->n_requests >= REQUESTS_KEPT) {
        http_request_deinit(request);
        free(request);
        return;
    }
    http_request_clear(request, REQUEST_SIZE_KEPT);
    request->next = frontend->requests;
    frontend->requests = request;
    frontend->n_requests++;
}

/* ---- Answering ------------------------------------------------------------------------------- */

static bool waits(const struct http_conn *conn)
{
    return conn->pending != NULL || conn->again_ns != STINT_NEVER_NS ||
           conn->look_ns != STINT_NEVER_NS;
}

static bool is_full(const struct http_conn *conn)
{
    return byte_queue_len(&conn->out) > conn->frontend->options.limits.output_bytes;
}

static void send_answer(struct http_conn *conn, unsigned method, const struct http_answer *answer)
{
    const struct http_request *request = conn->request;
    bool is_1_0 = request == NULL || request->minor == 0;
    bool ends = answer->ends_connection || request == NULL || !request->keeps_alive;
    struct http_framing framing = {
        .date = conn->frontend->date[0] != '\0' ? conn->frontend->date : NULL,
        .is_head = method == HTTP_HEAD,
        .ends_connection = ends,
        .names_keep_alive = is_1_0 && !ends,
    };
    if (!http_writer_answer(&conn->out, answer, &framing) || ends)
        conn->is_over = true;
    drop_request(conn);
}

/* The answer to input that is no valid request, or that took too long to come. */
static void refuse(struct http_conn *conn, unsigned status, const char *detail)
{
    struct http_answer answer;
    http_frontend_refuse(conn->frontend, status, detail, &answer);
    send_answer(conn, conn->reader.parser.method, &answer);
}

static void on_answers(void *arg, uint64_t now_ns);

/* False: there is no answer yet. */
static bool ask(struct http_conn *conn, const struct http_message *message, uint64_t now_ns,
                struct http_answer *answer)
{
    http_frontend_ask(conn->frontend, message, conn->asked_ns, now_ns, answer);
    conn->reload = answer->reload;
    if (answer->pending != NULL) {
        conn->pending = answer->pending;
        service_on_answers(answer->pending, on_answers, conn);
        return false;
    }
    conn->again_ns = answer->again_at_ns > 0 ? answer->again_at_ns : STINT_NEVER_NS;
    conn->look_ns = answer->look_at_ns > 0 ? answer->look_at_ns : STINT_NEVER_NS;
    return !waits(conn);
}

/* Answers the request, or lets it wait. */
static void answer(struct http_conn *conn, uint64_t now_ns)
{
    struct http_answer answer;
    struct http_message message = {
        .peer = span_of(conn->peer, conn->peer_len),
        .is_urgent = conn->is_draining,
        .pending = conn->pending,
        .reload = conn->reload,
    };
    if (!conn->was_asked)
        conn->asked_ns = server_clock_now(conn->frontend->clock, now_ns);
    conn->was_asked = true;
    conn->pending = NULL;
    conn->again_ns = conn->look_ns = STINT_NEVER_NS;
    http_request_message(conn->request, &message);
    if (ask(conn, &message, now_ns, &answer))
        send_answer(conn, conn->request->method, &answer);
}

/* ---- Reading --------------------------------------------------------------------------------- */

static bool may_read(const struct http_conn *conn)
{
    return !conn->is_over && !waits(conn) && !is_full(conn);
}

/* Handles the reader's event; `is_last`: no byte follows it. */
static void handle(struct http_conn *conn, enum http_event event, bool is_last, uint64_t now_ns)
{
    switch (event) {
    case HTTP_EVENT_NONE:
        break;
    case HTTP_EVENT_HEAD:
        /* The client sends the body without waiting for 100 Continue. */
        if (conn->request->wants_continue && is_last && !http_writer_continue(&conn->out))
            conn->is_over = true;
        break;
    case HTTP_EVENT_MESSAGE:
        answer(conn, now_ns);
        break;
    case HTTP_EVENT_REFUSED:
        refuse(conn, conn->reader.status, conn->reader.detail);
        break;
    }
}

/* Reads and answers these bytes as far as possible; returns how many it used. */
static size_t serve(struct http_conn *conn, struct span bytes, uint64_t now_ns)
{
    size_t done = 0;
    while (done < bytes.len && may_read(conn) && !(done > 0 && conn_turn_is_over(&conn->conn))) {
        size_t used;
        if (conn->request == NULL && !take_request(conn)) {
            conn->is_over = true;
            break;
        }
        enum http_event event =
            http_reader_read(&conn->reader, span_of(bytes.ptr + done, bytes.len - done), &used);
        done += used;
        handle(conn, event, done == bytes.len, now_ns);
    }
    return done;
}

/* After every step: checks whether the connection is over, and frees memory. */
static void settle(struct http_conn *conn)
{
    /* A connection that drains has now answered all requests that it may. */
    if (conn->is_draining && byte_queue_len(&conn->input) == 0 && !waits(conn))
        conn->is_over = true;
    if (conn->is_over)
        byte_queue_clear(&conn->input, 0);
    if (conn->request != NULL && !waits(conn) && !http_reader_is_within(&conn->reader))
        drop_request(conn);
}

static void serve_input(struct http_conn *conn, uint64_t now_ns)
{
    size_t done = serve(conn, byte_queue_span(&conn->input), now_ns);
    byte_queue_take(&conn->input, done, SIZE_KEPT);
    settle(conn);
}

/* A store has answered. */
static void on_answers(void *arg, uint64_t now_ns)
{
    struct http_conn *conn = arg;
    answer(conn, now_ns);
    serve_input(conn, now_ns);
    conn_wake(&conn->conn, now_ns);
}

/* ---- Operations ------------------------------------------------------------------------------ */

static void feed(struct conn *base, struct span bytes, uint64_t now_ns)
{
    struct http_conn *conn = (void *)base;
    if (conn->is_over)
        return;
    size_t done = byte_queue_len(&conn->input) == 0 ? serve(conn, bytes, now_ns) : 0;
    if (!conn->is_over &&
        !byte_queue_append(&conn->input, span_of(bytes.ptr + done, bytes.len - done)))
        conn->is_over = true;
    settle(conn);
}

static struct span output(struct conn *base)
{
    const struct http_conn *conn = (void *)base;
    return byte_queue_span(&conn->out);
}

static void sent(struct conn *base, size_t len, uint64_t now_ns)
{
    struct http_conn *conn = (void *)base;
    byte_queue_take(&conn->out, len, SIZE_KEPT);
    if (byte_queue_len(&conn->input) > 0 && !conn_turn_is_over(base))
        serve_input(conn, now_ns);
}

static bool has_work(const struct conn *base)
{
    const struct http_conn *conn = (const void *)base;
    return byte_queue_len(&conn->input) > 0 && may_read(conn);
}

/* While a request waits, bytes are still read, up to a limit, to notice that the client closes. */
static bool is_backpressured(const struct conn *base)
{
    const struct http_conn *conn = (const void *)base;
    return is_full(conn) || byte_queue_len(&conn->input) > (waits(conn) ? WAITING_INPUT_MAX : 0);
}

static uint64_t deadline(const struct conn *base)
{
    const struct http_conn *conn = (const void *)base;
    return min_u64(server_clock_io_deadline(conn->frontend->clock, conn->again_ns), conn->look_ns);
}

static void wake(struct conn *base, uint64_t now_ns)
{
    struct http_conn *conn = (void *)base;
    if (deadline(base) <= now_ns)
        answer(conn, now_ns);
    serve_input(conn, now_ns);
}

static void expire(struct conn *base, uint64_t now_ns)
{
    struct http_conn *conn = (void *)base;
    (void)now_ns;
    if (!conn->is_over && !waits(conn))
        refuse(conn, 408, "the request did not arrive within http_request_time");
    conn->is_over = true;
}

static bool is_over(const struct conn *base)
{
    const struct http_conn *conn = (const void *)base;
    return conn->is_over;
}

static void drain(struct conn *base, uint64_t now_ns)
{
    struct http_conn *conn = (void *)base;
    conn->is_draining = true;
    if (conn->again_ns != STINT_NEVER_NS)
        answer(conn, now_ns);
    serve_input(conn, now_ns);
}

static bool is_busy(const struct conn *base)
{
    const struct http_conn *conn = (const void *)base;
    return waits(conn) || byte_queue_len(&conn->input) > 0 || http_reader_is_within(&conn->reader);
}

static size_t held(const struct conn *base)
{
    const struct http_conn *conn = (const void *)base;
    return conn->input.size + conn->out.size +
           (conn->request != NULL ? conn->request->text.size : 0);
}

static void free_conn(struct conn *base)
{
    struct http_conn *conn = (void *)base;
    service_drop(conn->frontend->options.service, conn->pending);
    drop_request(conn);
    byte_queue_deinit(&conn->input);
    byte_queue_deinit(&conn->out);
    free(conn);
}

static const struct conn_ops ops = {
    .feed = feed,
    .output = output,
    .sent = sent,
    .has_work = has_work,
    .is_backpressured = is_backpressured,
    .deadline = deadline,
    .wake = wake,
    .expire = expire,
    .is_over = is_over,
    .drain = drain,
    .is_busy = is_busy,
    .held = held,
    .free = free_conn,
};

struct conn *http_conn_new(struct http_frontend *frontend, struct span peer)
{
    struct http_conn *conn = calloc(1, sizeof(*conn));
    if (conn == NULL)
        return NULL;
    conn->conn.ops = &ops;
    conn->frontend = frontend;
    conn->again_ns = conn->look_ns = STINT_NEVER_NS;
    conn->peer_len = access_keep_peer(conn->peer, peer);
    http_reader_init(&conn->reader, &frontend->reader_limits);
    return &conn->conn;
}
