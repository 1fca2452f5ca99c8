/* SPDX-License-Identifier: MIT */
/*
 * libmicrohttpd in a loop of libuv: its epoll descriptor is polled, and it runs when that says so.
 *
 * It has no deadline that a client cannot put off by sending a byte now and then. So each
 * connection has one here, looked at several times a second; one that has taken too long is shut
 * down at its socket, and libmicrohttpd ends it.
 */
#define _GNU_SOURCE
#include "io/http.h"

#include "base/err.h"
#include "base/ns.h"
#include "conn/metrics.h"
#include "io/http_parts.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <gnutls/gnutls.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/un.h>
#include <unistd.h>

#define RUNS_AT_ONCE 8           /* of libmicrohttpd, before others in the loop have their turn */
#define ANSWER_HEADER_BYTES 2048 /* beside the request's fields, in a connection's memory */
#define HEADER_BYTES_MIN 2048
#define PRIORITIES_DEFAULT "NORMAL:-VERS-TLS1.0:-VERS-TLS1.1"

static const struct http_limits default_limits = {
    .connections = 16384,
    .header_bytes = 6144,
    .body_bytes = 262144,
    .idle_ns = 75 * NS_PER_S,
    .request_ns = 10 * NS_PER_S,
    .answer_ns = 30 * NS_PER_S,
};

/* ---- Time ------------------------------------------------------------------------------------ */

void http_peer_enter(struct http_peer *peer, enum peer_state state)
{
    const struct http_limits *limits = &peer->http->limits;
    const uint64_t lengths_ns[] = {
        [PEER_IDLE] = limits->idle_ns,
        [PEER_READING] = limits->request_ns,
        [PEER_WAITING] = STINT_NEVER_NS,
        [PEER_ANSWERING] = limits->answer_ns,
    };
    peer->state = (uint8_t)state;
    peer->until_ms = lengths_ns[state] == STINT_NEVER_NS
                         ? UINT64_MAX
                         : uv_now(peer->http->loop) + lengths_ns[state] / NS_PER_MS;
}

/* Ends the connection: libmicrohttpd finds its socket at an end, and tells of it. */
static void cut_off(struct http_peer *peer)
{
    shutdown(peer->fd, SHUT_RDWR);
}

static void on_again(uv_timer_t *timer);

static void run(struct http *http)
{
    MHD_UNSIGNED_LONG_LONG timeout_ms;
    for (int i = 0; i < RUNS_AT_ONCE; i++) {
        MHD_run(http->daemon);
        if (MHD_get_timeout(http->daemon, &timeout_ms) != MHD_YES || timeout_ms > 0)
            return;
    }
    uv_timer_start(&http->again, on_again, 0, 0);
}

static void on_again(uv_timer_t *timer)
{
    run(timer->data);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    run(poll->data);
}

/* ---- Those who wait -------------------------------------------------------------------------- */

static struct http_visit *visit_of(struct due *due)
{
    return (struct http_visit *)((char *)due - offsetof(struct http_visit, due));
}

static void resume(struct http_visit *visit)
{
    struct http_peer *peer = visit->peer;
    due_set(&peer->http->dues, &visit->due, STINT_NEVER_NS);
    http_peer_enter(peer, PEER_READING);
    MHD_resume_connection(peer->connection);
}

static void on_wake(uv_timer_t *timer);

/* Sets the timer for the first of them. Rounded up: a wake that is too early asks in vain. */
static void set_wake(struct http *http)
{
    const struct due *first = dues_first(&http->dues);
    uint64_t now_ns = stint_now(http->table);
    if (first == NULL || http->is_closing) {
        uv_timer_stop(&http->wake);
        return;
    }
    uint64_t wait_ns = first->at_ns > now_ns ? first->at_ns - now_ns : 0;
    uv_timer_start(&http->wake, on_wake, wait_ns / NS_PER_MS + 1, 0);
}

static void on_wake(uv_timer_t *timer)
{
    struct http *http = timer->data;
    uint64_t now_ns = stint_now(http->table);
    struct due *first;
    while ((first = dues_first(&http->dues)) != NULL && first->at_ns <= now_ns)
        resume(visit_of(first));
    set_wake(http);
    run(http);
}

bool http_suspend(struct http_visit *visit, uint64_t again_at_ns)
{
    struct http *http = visit->peer->http;
    if (http->is_closing || http->is_draining || !dues_reserve(&http->dues, http->n_peers))
        return false;
    due_set(&http->dues, &visit->due, again_at_ns);
    http_peer_enter(visit->peer, PEER_WAITING);
    visit->peer->waiting = visit;
    MHD_suspend_connection(visit->peer->connection);
    if (dues_first(&http->dues) == &visit->due)
        set_wake(http);
    return true;
}

static void on_answers(void *arg, uint64_t now_ns)
{
    struct http_visit *visit = arg;
    (void)now_ns;
    resume(visit);
    /* With the next turn: others may be answered in this one, too. */
    uv_timer_start(&visit->peer->http->again, on_again, 0, 0);
}

bool http_await(struct http_visit *visit, struct errand *errand)
{
    struct http *http = visit->peer->http;
    if (http->is_closing)
        return false;
    visit->errand = errand;
    service_on_answers(errand, on_answers, visit);
    http_peer_enter(visit->peer, PEER_WAITING);
    visit->peer->waiting = visit;
    MHD_suspend_connection(visit->peer->connection);
    return true;
}

/* Nothing is read from a connection that is suspended: whether its client left is asked here. */
static bool has_left(const struct http_peer *peer)
{
    char byte;
    ssize_t n = recv(peer->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

static void answer_now(struct http_peer *peer)
{
    peer->waiting->is_urgent = true;
    resume(peer->waiting);
}

static void on_sweep(uv_timer_t *timer)
{
    struct http *http = timer->data;
    uint64_t now_ms = uv_now(http->loop);
    for (struct http_peer *peer = http->peers; peer != NULL; peer = peer->next) {
        if (peer->state == PEER_WAITING) {
            /* A store answers soon, or is given up soon, whoever has left: it was asked. */
            if (peer->waiting->errand == NULL && (http->is_draining || has_left(peer)))
                answer_now(peer);
        } else if (now_ms >= peer->until_ms) {
            if (http->metrics != NULL)
                metrics_refused(http->metrics, METRICS_HTTP, METRICS_REFUSED_IDLE);
            cut_off(peer);
        } else if (http->is_draining && peer->state == PEER_IDLE) {
            cut_off(peer);
        }
    }
    set_wake(http);
    run(http);
}

/* ---- Connections ----------------------------------------------------------------------------- */

/* Refuses the handshake where no certificate comes, or one that is not signed as it should be. */
static int verify_client(gnutls_session_t session)
{
    unsigned faults = 0;
    int code = gnutls_certificate_verify_peers2(session, &faults);
    return code == GNUTLS_E_SUCCESS && faults == 0 ? 0 : GNUTLS_E_CERTIFICATE_ERROR;
}

static void demand_certificate(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    if (info == NULL || info->tls_session == NULL)
        return;
    gnutls_certificate_server_set_request(info->tls_session, GNUTLS_CERT_REQUIRE);
    gnutls_session_set_verify_function(info->tls_session, verify_client);
}

static void peer_started(struct http *http, struct MHD_Connection *connection, void **context)
{
    struct http_peer *peer = http->adopting;
    *context = peer;
    peer->connection = connection;
    peer->next = http->peers;
    if (http->peers != NULL)
        http->peers->previous = peer;
    http->peers = peer;
    http->n_peers++;
    http_peer_enter(peer, PEER_IDLE);
    if (http->options.tls != NULL && http->options.tls->client_ca != NULL)
        demand_certificate(connection);
    if (http->metrics != NULL)
        metrics_opened(http->metrics, METRICS_HTTP);
}

static void peer_closed(struct http *http, struct http_peer *peer)
{
    if (peer->previous != NULL)
        peer->previous->next = peer->next;
    else
        http->peers = peer->next;
    if (peer->next != NULL)
        peer->next->previous = peer->previous;
    http->n_peers--;
    if (http->metrics != NULL)
        metrics_closed(http->metrics, METRICS_HTTP);
    if (!peer->is_refused)
        http->options.closed(http->options.closed_arg, peer->owner);
    if (peer != http->adopting)
        free(peer);
}

static void on_connection(void *arg, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode what)
{
    if (what == MHD_CONNECTION_NOTIFY_STARTED)
        peer_started(arg, connection, context);
    else
        peer_closed(arg, *context);
}

static void write_address(struct http_peer *peer, const struct sockaddr *address)
{
    char text[INET6_ADDRSTRLEN];
    const char *written = NULL;
    if (address->sa_family == AF_INET)
        written = inet_ntop(AF_INET, &((const struct sockaddr_in *)address)->sin_addr, text,
                            sizeof(text));
    else if (address->sa_family == AF_INET6)
        written = inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)address)->sin6_addr, text,
                            sizeof(text));
    if (written == NULL)
        return;
    int len = stint_address_key(peer->address, sizeof(peer->address), text, strlen(text), 32, 128);
    peer->address_len = (uint8_t)(len > 0 ? len : 0);
}

int http_adopt(struct http *http, int fd, const struct sockaddr *address, socklen_t address_len,
               void *owner)
{
    struct http_peer *peer = NULL;
    if (!http->is_draining && !http->is_closing && http->n_peers < http->limits.connections)
        peer = calloc(1, sizeof(*peer));
    if (peer == NULL) {
        close(fd);
        return STINT_E_FULL;
    }
    peer->http = http;
    peer->owner = owner;
    peer->fd = fd;
    write_address(peer, address);
    http->adopting = peer;
    peer->is_refused = true; /* until libmicrohttpd has it: it may tell of its end at once */
    enum MHD_Result result = MHD_add_connection(http->daemon, fd, address, address_len);
    peer->is_refused = false;
    http->adopting = NULL;
    if (result == MHD_YES) {
        /* What it may do at once it does with the next turn: here its owner is not yet ready. */
        uv_timer_start(&http->again, on_again, 0, 0);
        return 0;
    }
    free(peer);
    return STINT_E_SYSTEM;
}

size_t http_connections(const struct http *http)
{
    return http->n_peers;
}

/* ---- Opening --------------------------------------------------------------------------------- */

static size_t or_default(size_t value, size_t preset)
{
    return value != 0 ? value : preset;
}

static int set_limits(struct http *http, const struct http_limits *given, struct stint_error *error)
{
    const struct http_limits *presets = &default_limits;
    http->limits = (struct http_limits){
        .connections = or_default(given->connections, presets->connections),
        .header_bytes = or_default(given->header_bytes, presets->header_bytes),
        .body_bytes = or_default(given->body_bytes, presets->body_bytes),
        .idle_ns = or_default(given->idle_ns, presets->idle_ns),
        .request_ns = or_default(given->request_ns, presets->request_ns),
        .answer_ns = or_default(given->answer_ns, presets->answer_ns),
    };
    if (http->limits.header_bytes < HEADER_BYTES_MIN)
        return err_set(error, STINT_E_RANGE, "HTTP: %zu bytes of header fields: at least %d",
                       http->limits.header_bytes, HEADER_BYTES_MIN);
    if (http->limits.connections > UINT32_MAX)
        return err_set(error, STINT_E_RANGE, "HTTP: more connections than there can be");
    return 0;
}

/* What libmicrohttpd has to say is of use while it starts; later it speaks of its clients. */
ERR_PRINTF(2, 0)
static void keep_fault(void *arg, const char *format, va_list args)
{
    struct http *http = arg;
    if (http->daemon == NULL && http->fault[0] == '\0')
        vsnprintf(http->fault, sizeof(http->fault), format, args);
}

/* Targets stay as they came: their parts are read by proto/http_target.h. */
static size_t keep_escapes(void *arg, struct MHD_Connection *connection, char *text)
{
    (void)arg;
    (void)connection;
    return strlen(text);
}

static int start_daemon(struct http *http, struct stint_error *error)
{
    const struct http_tls *tls = http->options.tls;
    unsigned flags = MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME |
                     MHD_USE_TURBO | MHD_USE_ERROR_LOG;
    struct MHD_OptionItem tls_items[5] = {{MHD_OPTION_END, 0, NULL}};
    size_t n = 0;
    if (tls != NULL) {
        const char *priorities = tls->priorities != NULL ? tls->priorities : PRIORITIES_DEFAULT;
        const struct {
            enum MHD_OPTION option;
            const char *text;
        } texts[] = {
            {MHD_OPTION_HTTPS_MEM_CERT, tls->certificate},
            {MHD_OPTION_HTTPS_MEM_KEY, tls->key},
            {MHD_OPTION_HTTPS_PRIORITIES, priorities},
            {MHD_OPTION_HTTPS_MEM_TRUST, tls->client_ca},
        };
        flags |= MHD_USE_TLS;
        for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
            if (texts[i].text != NULL)
                tls_items[n++] =
                    (struct MHD_OptionItem){texts[i].option, 0, (void *)(uintptr_t)texts[i].text};
        tls_items[n] = (struct MHD_OptionItem){MHD_OPTION_END, 0, NULL};
    }
    http->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, http_visit_go_on, http, MHD_OPTION_EXTERNAL_LOGGER, keep_fault, http,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)http->limits.connections,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, http->limits.header_bytes + ANSWER_HEADER_BYTES,
        MHD_OPTION_CONNECTION_TIMEOUT, 0u, MHD_OPTION_STRICT_FOR_CLIENT, 1,
        MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, http, MHD_OPTION_URI_LOG_CALLBACK,
        http_visit_begin, http, MHD_OPTION_NOTIFY_COMPLETED, http_visit_end, http,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, http, MHD_OPTION_ARRAY, tls_items,
        MHD_OPTION_END);
    if (http->daemon != NULL)
        return 0;
    http->fault[strcspn(http->fault, "\n")] = '\0';
    return err_set(error, STINT_E_SYSTEM, "HTTP: %s",
                   http->fault[0] != '\0' ? http->fault : "libmicrohttpd does not start");
}

/* Several times in the shortest of the limits, and at least once a second. */
static uint64_t sweep_ms(const struct http_limits *limits)
{
    uint64_t shortest_ns = limits->idle_ns;
    if (limits->request_ns < shortest_ns)
        shortest_ns = limits->request_ns;
    if (limits->answer_ns < shortest_ns)
        shortest_ns = limits->answer_ns;
    uint64_t ms = shortest_ns / NS_PER_MS / 4;
    return ms < 20 ? 20 : ms > 1000 ? 1000 : ms;
}

static int start_handles(struct http *http, struct stint_error *error)
{
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    uint64_t every_ms = sweep_ms(&http->limits);
    uv_timer_init(http->loop, &http->wake);
    uv_timer_init(http->loop, &http->again);
    uv_timer_init(http->loop, &http->sweep);
    http->wake.data = http->again.data = http->sweep.data = http->poll.data = http;
    http->n_handles = 3;
    int code = info == NULL ? UV_EINVAL : uv_poll_init(http->loop, &http->poll, info->epoll_fd);
    if (code == 0) {
        http->n_handles = 4;
        code = uv_poll_start(&http->poll, UV_READABLE, on_readable);
    }
    if (code == 0)
        code = uv_timer_start(&http->sweep, on_sweep, every_ms, every_ms);
    return code == 0 ? 0 : err_set(error, STINT_E_SYSTEM, "HTTP: %s", uv_strerror(code));
}

/* ---- Closing --------------------------------------------------------------------------------- */

static void http_free(struct http *http)
{
    if (http->daemon != NULL)
        MHD_stop_daemon(http->daemon);
    assert(http->peers == NULL);
    http_visits_free(http);
    dues_deinit(&http->dues);
    http_door_free(http->door);
    free(http);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct http *http = handle->data;
    if (--http->n_handles > 0)
        return;
    void (*closed)(void *arg) = http->closed;
    void *arg = http->closed_arg;
    http_free(http);
    if (closed != NULL)
        closed(arg);
}

/* The poll goes before the descriptor that it polls; the rest of `http` when the loop is done. */
static void close_handles(struct http *http)
{
    bool has_poll = http->n_handles > 3;
    if (has_poll)
        uv_close((uv_handle_t *)&http->poll, on_handle_closed);
    MHD_stop_daemon(http->daemon);
    http->daemon = NULL;
    uv_close((uv_handle_t *)&http->wake, on_handle_closed);
    uv_close((uv_handle_t *)&http->again, on_handle_closed);
    uv_close((uv_handle_t *)&http->sweep, on_handle_closed);
}

static void resume_all(struct http *http)
{
    for (struct http_peer *peer = http->peers; peer != NULL; peer = peer->next)
        if (peer->state == PEER_WAITING)
            answer_now(peer);
}

void http_close(struct http *http, void (*closed)(void *arg), void *arg)
{
    http->closed = closed;
    http->closed_arg = arg;
    http->is_closing = true;
    /* libmicrohttpd does not stop while a connection is suspended. */
    resume_all(http);
    MHD_run(http->daemon);
    close_handles(http);
}

void http_linger(struct http *http)
{
    http_door_drain(http->door);
}

void http_drain(struct http *http)
{
    http->is_draining = true;
    http_door_drain(http->door);
    on_sweep(&http->sweep);
}

int http_open(struct http **http, uv_loop_t *loop, const struct http_options *options,
              struct stint_error *error)
{
    struct http *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for HTTP");
    struct hub *hub = service_hub(options->door.service);
    struct metrics *metrics = hub_metrics(hub);
    made->loop = loop;
    made->options = *options;
    made->table = hub_table(hub);
    if (metrics != NULL)
        made->metrics = metrics_worker(metrics, service_worker(options->door.service));
    made->door = http_door_new(&options->door);
    int code = made->door == NULL ? err_set(error, STINT_E_SYSTEM, "no memory for HTTP")
                                  : set_limits(made, &options->limits, error);
    if (code == 0)
        code = start_daemon(made, error);
    if (code < 0) {
        http_free(made);
        return code;
    }
    code = start_handles(made, error);
    if (code < 0) {
        close_handles(made);
        return code;
    }
    *http = made;
    return 0;
}
