/* SPDX-License-Identifier: MIT */
/* The opening thread sets a worker up, to report errors; the worker's own thread runs it. */
#define _GNU_SOURCE
#include "net/worker.h"

#include "base/buf.h"
#include "base/ns.h"
#include "net/listen/accept.h"
#include "net/server.h"
#include "table/table.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#define BEAT_MS 500
#define STORES_DRAIN_NS (500 * NS_PER_MS) /* to return leased units */
#define GRPC_PROTOCOL "h2"                /* in ALPN */
#define HTTP_PROTOCOL "http/1.1"

struct worker {
    struct worker_options options;
    const struct server_options *server;
    pthread_t thread;
    sem_t may_begin;
    uv_loop_t loop;
    uv_async_t message;
    uv_timer_t beat;
    struct stores *stores; /* NULL: none is configured */
    struct backend_pools *pools[STORES_MAX];
    struct service *service;
    struct resp_frontend *resp;
    struct grpc_frontend *grpc; /* NULL, as its streams: no such port */
    struct http_frontend *http; /* the same */
    struct streams *streams[METRICS_FRONTENDS];
    struct stream_memory memory;
    struct tls *tls;
    struct acceptor **acceptors;
    size_t n_acceptors;
    enum worker_stage stage; /* the stage that the loop has reached */
    uint64_t clock_seen_ns;  /* the time of decisions when the loop last checked */
    /* Release and acquire: a thread that sees a stage or a time also sees the writes before it. */
    _Atomic(enum worker_stage) wanted_stage;
    _Atomic(struct tls *) new_tls; /* exchanged, so that one thread has each reference */
    _Atomic(struct stream_limits *) new_stream_limits; /* the same */
    _Atomic uint64_t beats;
    atomic_bool accepts_no_more, has_ended;
    bool is_open;        /* the handles of the loop are open */
    bool is_giving_back; /* the stores are being drained */
    bool has_given_back;
};

/* ---- Connections ----------------------------------------------------------------------------- */

static struct metrics_worker *metrics_of(const struct worker *worker)
{
    return metrics_worker(server_state_metrics(worker->server->server_state),
                          worker->options.index);
}

static uint64_t io_now(void *arg)
{
    const struct worker *worker = arg;
    return server_clock_io_now(server_state_clock(worker->server->server_state));
}

/* The address without a port, IPv4 over IPv6 as IPv4; empty: a Unix socket. */
static struct span address_text(const struct sockaddr *peer, char text[ENDPOINT_TEXT_SIZE])
{
    char written[INET6_ADDRSTRLEN];
    const void *address = NULL;
    if (peer->sa_family == AF_INET)
        address = &((const struct sockaddr_in *)(const void *)peer)->sin_addr;
    else if (peer->sa_family == AF_INET6)
        address = &((const struct sockaddr_in6 *)(const void *)peer)->sin6_addr;
    if (address == NULL || inet_ntop(peer->sa_family, address, written, sizeof(written)) == NULL)
        return span_of(NULL, 0);
    int len = stint_address_key(text, ENDPOINT_TEXT_SIZE, written, strlen(written), 32, 128);
    return span_of(text, len > 0 ? (size_t)len : 0);
}

static struct conn *new_plain_conn(struct worker *worker, enum metrics_frontend frontend,
                                   const struct sockaddr *peer)
{
    char text[ENDPOINT_TEXT_SIZE];
    struct span address = address_text(peer, text);
    if (frontend == METRICS_RESP)
        return resp_conn_new(worker->resp, address);
    if (frontend == METRICS_GRPC)
        return grpc_conn_new(worker->grpc, address, io_now(worker));
    return http_conn_new(worker->http, address);
}

static struct conn *new_conn(struct worker *worker, enum port port, const struct sockaddr *peer)
{
    static const char *const protocols[METRICS_FRONTENDS] = {
        [METRICS_GRPC] = GRPC_PROTOCOL, [METRICS_HTTP] = HTTP_PROTOCOL};
    enum metrics_frontend frontend = port_frontend(port);
    struct conn *conn = new_plain_conn(worker, frontend, peer);
    if (conn != NULL && port_is_tls(port))
        conn = tls_conn_new(&(struct tls_conn_options){
            .tls = worker->tls,
            .inner = conn,
            .log = worker->server->log,
            .metrics = metrics_of(worker),
            .frontend = frontend,
            .protocol = protocols[frontend],
            .requires_protocol = frontend == METRICS_GRPC,
        });
    return conn;
}

static void on_accepted(void *arg, enum port port, int fd, const struct sockaddr *peer,
                        struct connection_slot *slot)
{
    struct worker *worker = arg;
    struct conn *conn = new_conn(worker, port, peer);
    if (conn == NULL) {
        close(fd);
        connection_limiter_leave(worker->options.connection_limiter, slot);
        return;
    }
    streams_add(worker->streams[port_frontend(port)], fd, conn, slot);
}

/* ---- Stages ---------------------------------------------------------------------------------- */

static bool is_empty(const struct worker *worker)
{
    size_t n_streams = 0;
    for (int i = 0; i < METRICS_FRONTENDS; i++)
        n_streams += streams_count(worker->streams[i]);
    return n_streams == 0;
}

static void close_acceptors(struct worker *worker, bool empties_queues)
{
    for (size_t i = 0; i < worker->n_acceptors; i++) {
        if (empties_queues)
            acceptor_empty_queue(worker->acceptors[i]);
        acceptor_close(worker->acceptors[i]);
    }
    worker->n_acceptors = 0;
}

/* Afterwards the loop has no handle left, and returns. */
static void close_handles(struct worker *worker)
{
    worker->is_open = false;
    close_acceptors(worker, false);
    for (int i = 0; i < METRICS_FRONTENDS; i++)
        streams_end(worker->streams[i]);
    service_stop_expiring(worker->service);
    stores_close(worker->stores); /* no user of them is left */
    worker->stores = NULL;
    uv_close((uv_handle_t *)&worker->message, NULL);
    uv_close((uv_handle_t *)&worker->beat, NULL);
}

static void end_if_empty(void *arg)
{
    struct worker *worker = arg;
    if (worker->is_open && worker->stage >= WORKER_LINGERS && is_empty(worker))
        worker->stage = WORKER_ENDS; /* the handles are closed from the loop, not from a callback */
    if (worker->stage == WORKER_ENDS && worker->is_open)
        uv_async_send(&worker->message);
}

/* gRPC connections do not end by themselves; after GOAWAY their clients open new ones. */
static void drain_grpc(struct worker *worker)
{
    if (worker->grpc == NULL)
        return;
    grpc_frontend_drain(worker->grpc);
    streams_drain(worker->streams[METRICS_GRPC]);
}

static void stop_accepting(struct worker *worker, bool empties_queues)
{
    close_acceptors(worker, empties_queues);
    atomic_store_explicit(&worker->accepts_no_more, true, memory_order_release);
    worker->options.changed(worker->options.arg);
}

static void linger(struct worker *worker)
{
    stop_accepting(worker, false);
    drain_grpc(worker);
    if (worker->http != NULL)
        http_frontend_drain(worker->http);
}

static void drain(struct worker *worker, bool empties_queues)
{
    /* The kernel has already accepted the connections in the queue. */
    stop_accepting(worker, empties_queues);
    streams_drain(worker->streams[METRICS_RESP]);
    drain_grpc(worker);
    if (worker->http != NULL)
        http_frontend_drain(worker->http);
    streams_drain(worker->streams[METRICS_HTTP]);
}

static void on_given_back(void *arg)
{
    struct worker *worker = arg;
    worker->has_given_back = true;
    uv_async_send(&worker->message);
}

/* Whether it may close; if not, it is called again when it may. */
static bool has_given_back(struct worker *worker)
{
    if (worker->stores == NULL || worker->has_given_back)
        return true;
    if (!worker->is_giving_back) {
        worker->is_giving_back = true;
        stores_drain(worker->stores, io_now(worker) + STORES_DRAIN_NS, on_given_back, worker);
    }
    return worker->has_given_back;
}

static void move_on(struct worker *worker)
{
    enum worker_stage from = worker->stage;
    enum worker_stage to = atomic_load_explicit(&worker->wanted_stage, memory_order_acquire);
    if (to > from) {
        worker->stage = to;
        if (to == WORKER_LINGERS)
            linger(worker);
        else if (to == WORKER_DRAINS)
            drain(worker, from == WORKER_SERVES);
    }
    end_if_empty(worker);
    if (worker->stage == WORKER_ENDS && worker->is_open && has_given_back(worker))
        close_handles(worker);
}

static void renew_tls(struct worker *worker)
{
    struct tls *tls = atomic_exchange_explicit(&worker->new_tls, NULL, memory_order_acq_rel);
    if (tls == NULL)
        return;
    tls_unref(worker->tls);
    worker->tls = tls;
}

/* A call of gRPC is not a request of its connection: many are open at a time. */
static void set_call_time(struct grpc_frontend *grpc, const struct stream_limits *limits)
{
    grpc_frontend_set_call_time(grpc, limits->request_ns > 0 ? limits->request_ns : NS_PER_YEAR);
}

static void renew_stream_limits(struct worker *worker)
{
    struct stream_limits *limits =
        atomic_exchange_explicit(&worker->new_stream_limits, NULL, memory_order_acq_rel);
    if (limits == NULL)
        return;
    streams_set_limits(worker->streams[METRICS_RESP], limits);
    streams_set_limits(worker->streams[METRICS_GRPC], limits);
    if (worker->grpc != NULL)
        set_call_time(worker->grpc, limits);
    free(limits);
}

/* Also called between two messages: another process with the same table may move its clock. */
static void look_at_clock(struct worker *worker)
{
    uint64_t now_ns = server_clock_now(server_state_clock(worker->server->server_state), 0);
    if (now_ns == worker->clock_seen_ns)
        return;
    worker->clock_seen_ns = now_ns;
    streams_clock_moved(worker->streams[METRICS_RESP]);
    streams_clock_moved(worker->streams[METRICS_HTTP]);
}

static void on_message(uv_async_t *message)
{
    struct worker *worker = message->data;
    if (!worker->is_open)
        return;
    renew_tls(worker);
    renew_stream_limits(worker);
    service_renew_rules(worker->service); /* rules that are no longer in force can be freed */
    look_at_clock(worker);
    move_on(worker);
}

static void on_beat(uv_timer_t *beat)
{
    struct worker *worker = beat->data;
    uint64_t now_ns = io_now(worker);
    atomic_fetch_add_explicit(&worker->beats, 1, memory_order_release);
    if (worker->service != NULL) {
        service_renew_rules(worker->service);
        if (worker->stage < WORKER_DRAINS) /* its stores are about to be closed */
            service_expire(worker->service, now_ns);
    }
    if (worker->http != NULL)
        http_frontend_set_date(worker->http, time(NULL));
    look_at_clock(worker);
}

/* ---- Opening and closing --------------------------------------------------------------------- */

static bool has_port(const struct worker *worker, enum port port)
{
    const struct listeners *listeners = worker->options.listeners;
    for (size_t i = 0; i < listeners->n_all; i++)
        if (listeners->all[i].port == port)
            return true;
    return false;
}

static bool open_acceptors(struct worker *worker)
{
    const struct worker_options *options = &worker->options;
    worker->acceptors = calloc(options->listeners->n_all + 1, sizeof(struct acceptor *));
    for (size_t i = 0; worker->acceptors != NULL && i < options->listeners->n_all; i++) {
        const struct listener *listener = &options->listeners->all[i];
        if (listener->worker != LISTENER_ALL_WORKERS && listener->worker != options->index)
            continue;
        struct acceptor *acceptor = acceptor_new(&(struct acceptor_options){
            .loop = &worker->loop,
            .listener = listener,
            .connection_limiter = options->connection_limiter,
            .metrics = metrics_of(worker),
            .log = worker->server->log,
            .accepted = on_accepted,
            .arg = worker,
        });
        if (acceptor == NULL)
            return false;
        worker->acceptors[worker->n_acceptors++] = acceptor;
    }
    return worker->acceptors != NULL;
}

static int reload(void *arg, uint64_t *number, struct stint_error *error)
{
    struct worker *worker = arg;
    return worker->options.reload(worker->options.arg, number, error);
}

static bool is_ready(void *arg)
{
    struct worker *worker = arg;
    return worker->stage == WORKER_SERVES && worker->options.is_ready(worker->options.arg);
}

static bool open_streams(struct worker *worker, enum metrics_frontend frontend)
{
    const struct server_options *options = worker->server;
    worker->streams[frontend] = streams_new(&(struct streams_options){
        .loop = &worker->loop,
        .clock = server_state_clock(worker->server->server_state),
        .connection_limiter = worker->options.connection_limiter,
        .metrics = metrics_of(worker),
        .frontend = frontend,
        .limits = frontend == METRICS_HTTP ? options->http_stream_limits : options->stream_limits,
        .memory = &worker->memory,
        .emptied = end_if_empty,
        .arg = worker,
    });
    return worker->streams[frontend] != NULL;
}

static bool open_grpc(struct worker *worker)
{
    const struct server_options *options = worker->server;
    if (!has_port(worker, PORT_GRPC) && !has_port(worker, PORT_GRPC_TLS))
        return true;
    worker->grpc = grpc_frontend_new(&(struct grpc_frontend_options){
        .service = worker->service,
        .access = options->access,
        .limits = &options->grpc_limits,
        .form = &options->grpc_form,
        .is_ready = is_ready,
        .arg = worker,
    });
    if (worker->grpc == NULL)
        return false;
    set_call_time(worker->grpc, &options->stream_limits);
    return open_streams(worker, METRICS_GRPC);
}

static bool open_http(struct worker *worker)
{
    const struct server_options *options = worker->server;
    if (!has_port(worker, PORT_HTTP) && !has_port(worker, PORT_HTTP_TLS))
        return true;
    worker->http = http_frontend_new(&(struct http_frontend_options){
        .service = worker->service,
        .limits = options->http_limits,
        .config = options->http_config,
        .rls_form = &options->grpc_form,
        .access = options->access,
        .reload = reload,
        .is_ready = is_ready,
        .arg = worker,
    });
    if (worker->http == NULL || !open_streams(worker, METRICS_HTTP))
        return false;
    http_frontend_set_date(worker->http, time(NULL));
    return true;
}

static bool open_frontends(struct worker *worker)
{
    const struct server_options *options = worker->server;
    worker->resp = resp_frontend_new(worker->service, options->access, &options->resp_limits);
    return worker->resp != NULL && open_streams(worker, METRICS_RESP) && open_grpc(worker) &&
           open_http(worker);
}

static int no_memory(struct stint_error *error)
{
    return err_set(error, STINT_E_SYSTEM, "no memory or no descriptor for a worker");
}

static void log_skew(void *arg, uint64_t skew_ns)
{
    const struct worker *worker = arg;
    log_line(worker->server->log, LOG_CLOCK_AHEAD, LOG_NUMBER("ahead_ms", skew_ns / NS_PER_MS));
}

/* Each worker has connections of its own; only the first logs, to avoid repeated lines. */
static void log_damage(void *arg, uint64_t states)
{
    struct worker *worker = arg;
    log_line(worker->server->log, LOG_STATE_DAMAGED, LOG_NUMBER("states", states));
}

static void log_unavailable(void *arg, size_t index, const char *why)
{
    const struct worker *worker = arg;
    const char *name = worker->server->store_configs[index].name;
    if (why != NULL)
        log_line(worker->server->log, LOG_STORE_AWAY, LOG_TEXT("store", name),
                 LOG_TEXT("reason", why));
    else
        log_line(worker->server->log, LOG_STORE_BACK, LOG_TEXT("store", name));
}

static int open_stores(struct worker *worker, struct stint_error *error)
{
    const struct server_options *options = worker->server;
    unsigned index = worker->options.index;
    if (options->n_store_configs == 0)
        return 0;
    const uint64_t *secret = server_state_table(options->server_state)->region.fixed.hash_key;
    struct stores_options of_stores = {
        .loop = &worker->loop,
        .configs = options->store_configs,
        .n_configs = options->n_store_configs,
        .now = io_now,
        .now_arg = worker,
        .skewed = log_skew,
        .damaged = log_damage,
        .skewed_arg = worker,
        .unavailable = index == 0 ? log_unavailable : NULL,
        .unavailable_arg = worker,
        .seed = io_now(worker) + index,
        .secret = {secret[0], secret[1]},
    };
    for (size_t i = 0; i < options->n_store_configs; i++)
        of_stores.metrics[i] = metrics_store(server_state_metrics(options->server_state), i, index);
    int code = stores_open(&worker->stores, &of_stores, error);
    if (code != 0)
        return code;
    struct evaluation_stores stores = options->evaluation_stores;
    stores.stores = stores_all(worker->stores);
    stores.n_stores = options->n_store_configs;
    for (size_t i = 0; i < stores.n_stores; i++)
        worker->pools[i] = stores_pools(worker->stores, i);
    stores.pools = worker->pools;
    service_set_stores(worker->service, &stores);
    return 0;
}

/* All handles opened here are in a loop that has not run; worker_open() lets it run to its end. */
static int set_up(struct worker *worker, struct stint_error *error)
{
    uv_async_init(&worker->loop, &worker->message, on_message);
    uv_timer_init(&worker->loop, &worker->beat);
    worker->message.data = worker->beat.data = worker;
    worker->is_open = true;
    on_beat(&worker->beat);
    uv_timer_start(&worker->beat, on_beat, BEAT_MS, BEAT_MS);
    worker->memory.most = worker->server->memory_most / worker->server->workers;
    worker->service = service_new(worker->server->server_state, worker->options.index);
    if (worker->service == NULL || !open_frontends(worker))
        return no_memory(error);
    int code = open_stores(worker, error);
    if (code == 0 && !open_acceptors(worker))
        code = no_memory(error);
    return code;
}

static void tear_down(struct worker *worker)
{
    for (int i = 0; i < METRICS_FRONTENDS; i++)
        streams_free(worker->streams[i]);
    http_frontend_free(worker->http);
    resp_frontend_free(worker->resp);
    grpc_frontend_free(worker->grpc);
    service_free(worker->service);
    uv_loop_close(&worker->loop);
    tls_unref(worker->tls);
    tls_unref(atomic_exchange(&worker->new_tls, NULL));
    free(atomic_exchange(&worker->new_stream_limits, NULL));
    sem_destroy(&worker->may_begin);
    free(worker->acceptors);
    free(worker);
}

static void *run(void *arg)
{
    struct worker *worker = arg;
    char name[16]; /* as shown by top and debuggers */
    struct buf buf = buf_of(name, sizeof(name));
    buf_add(&buf, "worker %u", worker->options.index);
    pthread_setname_np(pthread_self(), name);
    while (sem_wait(&worker->may_begin) != 0 && errno == EINTR)
        ;
    uv_run(&worker->loop, UV_RUN_DEFAULT);
    atomic_store_explicit(&worker->has_ended, true, memory_order_release);
    worker->options.changed(worker->options.arg);
    return NULL;
}

int worker_open(struct worker **worker, const struct worker_options *options,
                struct stint_error *error)
{
    struct worker *made = calloc(1, sizeof(*made));
    if (made == NULL || uv_loop_init(&made->loop) != 0) {
        free(made);
        return no_memory(error);
    }
    sem_init(&made->may_begin, 0, 0);
    made->options = *options;
    made->server = options->server;
    made->tls = tls_ref(options->tls);
    int code = set_up(made, error);
    if (code == 0 && pthread_create(&made->thread, NULL, run, made) != 0)
        code = err_set(error, STINT_E_SYSTEM, "cannot start a thread for a worker");
    if (code != 0) {
        close_handles(made);
        uv_run(&made->loop, UV_RUN_DEFAULT);
        tear_down(made);
        return code;
    }
    *worker = made;
    return 0;
}

void worker_begin(struct worker *worker)
{
    sem_post(&worker->may_begin);
}

void worker_close(struct worker *worker)
{
    if (worker == NULL)
        return;
    pthread_join(worker->thread, NULL);
    tear_down(worker);
}

void worker_wake(struct worker *worker)
{
    if (!worker_has_ended(worker))
        uv_async_send(&worker->message);
}

void worker_move_to(struct worker *worker, enum worker_stage stage)
{
    atomic_store_explicit(&worker->wanted_stage, stage, memory_order_release);
    worker_wake(worker);
}

void worker_set_tls(struct worker *worker, struct tls *tls)
{
    tls_unref(atomic_exchange_explicit(&worker->new_tls, tls, memory_order_acq_rel));
    worker_wake(worker);
}

void worker_set_stream_limits(struct worker *worker, const struct stream_limits *limits)
{
    struct stream_limits *copy = malloc(sizeof(*copy));
    if (copy == NULL)
        return; /* the current ones stay in force */
    *copy = *limits;
    free(atomic_exchange_explicit(&worker->new_stream_limits, copy, memory_order_acq_rel));
    worker_wake(worker);
}

bool worker_accepts(const struct worker *worker)
{
    return !atomic_load_explicit(&worker->accepts_no_more, memory_order_acquire) &&
           !worker_has_ended(worker);
}

bool worker_has_ended(const struct worker *worker)
{
    return atomic_load_explicit(&worker->has_ended, memory_order_acquire);
}

uint64_t worker_beats(const struct worker *worker)
{
    return atomic_load_explicit(&worker->beats, memory_order_acquire);
}
