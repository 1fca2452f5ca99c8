/* SPDX-License-Identifier: MIT */
/* The main thread: its loop serves no connections, so its work delays no request. */
#define _GNU_SOURCE
#include "net/server.h"

#include "base/ns.h"
#include "net/file.h"
#include "net/log/log.h"
#include "net/process/handover.h"
#include "net/process/notify.h"
#include "net/process/privileges.h"
#include "net/worker.h"
#include "table/table.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-daemon.h>
#include <time.h>
#include <unistd.h>

#define SECOND_MS 1000
#define EXPIRE_SLOTS_MAX (UINT64_C(1) << 20) /* of the tickets' ring, each second */
#define STUCK_MS 10000                       /* in which this loop runs and a worker's does not */
#define END_MS 2000                          /* for workers to close what is open */

enum { SIGNAL_TERM, SIGNAL_INT, SIGNAL_HUP, SIGNAL_USR2, SIGNALS };
static const int signal_numbers[SIGNALS] = {SIGTERM, SIGINT, SIGHUP, SIGUSR2};

/*
 * One reload at a time: a request during a reload is answered by the next one. Each has its own
 * thread, not one of a pool: libc keeps memory for each thread that allocates, and consecutive
 * threads reuse the memory of the one before. A response of a control plane takes its turn as a
 * reload of the rules alone.
 */
struct reload {
    uv_async_t message; /* a reload is to begin, or has ended */
    pthread_t thread;   /* of the reload, where has_thread */
    bool has_thread;
    pthread_mutex_t lock; /* of what follows */
    uint64_t asked, began, ended;
    bool is_running, is_loaded, is_closed;
    int code; /* of the last load */
    struct stint_error error;
    int ended_code; /* of the last reload that was no response of a control plane */
    struct stint_error ended_error;
    bool is_offer; /* the running one is of `response` */
    size_t control_plane;
    struct ads_response response;
};

struct server {
    struct server_options options;
    struct server_options next_options; /* read by a reload, not yet in force */
    uint64_t connections_possible;      /* by the limit of descriptors */
    uv_loop_t loop;
    uv_signal_t signals[SIGNALS];
    uv_async_t worker_changed;
    uv_timer_t second, patience;
    struct listeners listeners;
    struct connection_limiter *connection_limiter;
    struct tls *tls;     /* in force */
    struct tls *new_tls; /* read by a reload, not yet in force */
    struct reload reload;
    struct watch *watch;
    struct handover *handover;
    struct control_planes *control_planes; /* NULL: none */
    struct trace_exporter *exporter;       /* NULL: there are no traces */
    bool is_sending_last;                  /* the workers have ended, and the exporter drains */
    struct worker *workers[WORKERS_MAX];
    unsigned n_workers;
    uint64_t beats[WORKERS_MAX], silent_ms[WORKERS_MAX]; /* at the last check; since they changed */
    struct eviction_report evictions;
    uint64_t watchdog_ms;
    enum worker_stage stage;
    bool is_handed_over, owes_ready;
    atomic_bool is_ready; /* relaxed: a hint for /readyz */
};

static struct stint_table *table_of(const struct server *server)
{
    return server_state_table(server->options.server_state);
}

/* ---- The end --------------------------------------------------------------------------------- */

static void on_patience_over(uv_timer_t *timer);
static void close_handles(struct server *server);

static void move_to(struct server *server, enum worker_stage stage, uint64_t patience_ms)
{
    server->stage = stage;
    for (unsigned i = 0; i < server->n_workers; i++)
        worker_move_to(server->workers[i], stage);
    uv_timer_start(&server->patience, on_patience_over, patience_ms, 0);
}

static void drain(struct server *server)
{
    log_line(server->options.log, LOG_DRAINING,
             LOG_NUMBER("connections", connection_limiter_connections(server->connection_limiter)));
    atomic_store_explicit(&server->is_ready, false, memory_order_relaxed);
    if (!server->is_handed_over)
        notify_tell(server->options.log, "STOPPING=1");
    move_to(server, WORKER_DRAINS, server->options.drain_ns / NS_PER_MS);
}

static void end_now(struct server *server)
{
    move_to(server, WORKER_ENDS, END_MS);
}

static void on_patience_over(uv_timer_t *timer)
{
    struct server *server = timer->data;
    if (server->is_sending_last) {
        close_handles(server);
        return;
    }
    if (server->stage == WORKER_ENDS)
        _exit(1); /* a worker is stuck: do not wait any longer */
    if (server->stage == WORKER_LINGERS) {
        drain(server);
        return;
    }
    log_line(server->options.log, LOG_DRAIN_LATE,
             LOG_NUMBER("connections", connection_limiter_connections(server->connection_limiter)));
    end_now(server);
}

static bool have_workers_ended(const struct server *server)
{
    for (unsigned i = 0; i < server->n_workers; i++)
        if (!worker_has_ended(server->workers[i]))
            return false;
    return true;
}

static void close_if_open(uv_handle_t *handle)
{
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

/* A second signal must not kill a process that is ending normally. */
static void ignore_signals(void)
{
    sigset_t ends;
    sigemptyset(&ends);
    for (int i = 0; i < SIGNALS; i++)
        sigaddset(&ends, signal_numbers[i]);
    pthread_sigmask(SIG_BLOCK, &ends, NULL);
}

/* No more requests are accepted. The loop waits for a running reload, whose end closes it. */
static void close_reload(struct reload *reload)
{
    pthread_mutex_lock(&reload->lock);
    bool closes = !reload->is_closed && !reload->is_running;
    reload->is_closed = true;
    pthread_mutex_unlock(&reload->lock);
    if (closes)
        uv_close((uv_handle_t *)&reload->message, NULL);
}

/* Afterwards the loop returns. */
static void close_handles(struct server *server)
{
    ignore_signals();
    for (int i = 0; i < SIGNALS; i++)
        close_if_open((uv_handle_t *)&server->signals[i]);
    close_if_open((uv_handle_t *)&server->worker_changed);
    close_if_open((uv_handle_t *)&server->second);
    close_if_open((uv_handle_t *)&server->patience);
    close_reload(&server->reload);
    control_planes_close(server->control_planes);
    server->control_planes = NULL;
    watch_close(server->watch);
    trace_exporter_close(server->exporter);
    if (server->handover != NULL && handover_is_under_way(server->handover))
        listeners_own_paths(&server->listeners, false);
    handover_close(server->handover);
    server->watch = NULL;
    server->handover = NULL;
    server->exporter = NULL;
}

static void on_traces_sent(void *arg)
{
    close_handles(arg);
}

/* The last spans are sent while the time to drain is not over. */
static void end_after_workers(struct server *server)
{
    if (server->exporter == NULL)
        close_handles(server);
    else if (!server->is_sending_last) {
        server->is_sending_last = true;
        trace_exporter_drain(server->exporter, on_traces_sent, server);
    }
}

/*
 * Once no worker accepts, the kernel must not either: clients would wait in queues that no process
 * accepts from, until our last connections have ended. A successor that is about to serve gets
 * copies of the sockets first.
 */
static void stop_listening(struct server *server)
{
    bool accepts = server->stage == WORKER_SERVES || handover_is_under_way(server->handover);
    for (unsigned i = 0; i < server->n_workers; i++)
        accepts = accepts || worker_accepts(server->workers[i]);
    if (!accepts)
        listeners_close(&server->listeners);
}

static void on_worker_changed(uv_async_t *message)
{
    struct server *server = message->data;
    stop_listening(server);
    if (have_workers_ended(server))
        end_after_workers(server);
}

static void tell_worker_changed(void *arg)
{
    struct server *server = arg;
    uv_async_send(&server->worker_changed);
}

/* ---- Reloading ------------------------------------------------------------------------------- */

/* Steps that can fail come first; certificates are set last. */
static int load_files(struct server *server, struct stint_error *error)
{
    struct server_options *next = &server->next_options;
    struct tls *tls = NULL;
    *next = server->options;
    server_state_free_retired(server->options.server_state); /* before more are added */
    int code = server->options.load(server->options.arg, next, error);
    if (code == 0 && next->tls != NULL)
        code = tls_load(&tls, next->tls, error);
    if (code == 0)
        code = server->options.use(server->options.arg, error);
    if (code == 0)
        server->new_tls = tls;
    else
        tls_unref(tls);
    return code;
}

static void end_load(struct reload *reload, int code, const struct stint_error *error)
{
    pthread_mutex_lock(&reload->lock);
    reload->code = code;
    reload->error = *error;
    reload->is_loaded = true;
    pthread_mutex_unlock(&reload->lock);
    uv_async_send(&reload->message);
}

static int load_offer(struct server *server, struct stint_error *error)
{
    const struct server_options *options = &server->options;
    const struct reload *reload = &server->reload;
    server_state_free_retired(options->server_state);
    return options->offer(options->arg, reload->control_plane, reload->response.message, error);
}

/* In a thread of its own, so that no loop waits for it. */
static void *load(void *arg)
{
    struct server *server = arg;
    struct stint_error error = {0};
    int code = server->reload.is_offer ? load_offer(server, &error) : load_files(server, &error);
    end_load(&server->reload, code, &error);
    return NULL;
}

/* Returns a number, which identifies the result of a reload that begins later. Any thread. */
static uint64_t ask_reload(struct reload *reload)
{
    pthread_mutex_lock(&reload->lock);
    uint64_t asked = ++reload->asked;
    if (!reload->is_closed)
        uv_async_send(&reload->message);
    pthread_mutex_unlock(&reload->lock);
    return asked;
}

static void on_file_changed(void *arg)
{
    struct server *server = arg;
    ask_reload(&server->reload);
}

/* In the loop of the main thread, from within a connection: the response is taken later. */
static void on_offer(void *arg)
{
    struct server *server = arg;
    uv_async_send(&server->reload.message);
}

static void use_new_tls(struct server *server)
{
    if (server->new_tls == NULL)
        return;
    for (unsigned i = 0; i < server->n_workers; i++)
        worker_set_tls(server->workers[i], tls_ref(server->new_tls));
    tls_unref(server->tls);
    server->tls = server->new_tls;
    server->new_tls = NULL;
}

static void begin_watching(struct server *server)
{
    const struct server_options *options = &server->options;
    if (options->watch_ns == 0 || options->n_watched == 0)
        return;
    server->watch = watch_new(&(struct watch_options){
        .loop = &server->loop,
        .paths = options->watched,
        .n_paths = options->n_watched,
        .every_ns = options->watch_ns,
        .log = options->log,
        .changed = on_file_changed,
        .arg = server,
    });
}

/*
 * The watch remembers the files as they were before the reload. Files that were not watched then
 * may have changed while they were read: they are read once more.
 */
static void watch_again(struct server *server)
{
    const struct server_options *options = &server->options;
    if (server->watch != NULL &&
        watch_is_of(server->watch, options->watched, options->n_watched, options->watch_ns))
        return;
    watch_close(server->watch);
    server->watch = NULL;
    begin_watching(server);
    if (server->watch != NULL)
        ask_reload(&server->reload);
}

/* Copies the options that may change; the next load frees what they point to. */
static void use_next_options(struct server *server)
{
    const struct server_options *next = &server->next_options;
    struct server_options *options = &server->options;
    struct connection_limits connection_limiter = next->connection_limits;
    if (connection_limiter.connections > server->connections_possible)
        connection_limiter.connections = server->connections_possible;
    connection_limiter_set_limits(server->connection_limiter, &connection_limiter);
    for (unsigned i = 0; i < server->n_workers; i++)
        worker_set_stream_limits(server->workers[i], &next->stream_limits);
    options->tls = next->tls;
    options->drain_ns = next->drain_ns;
    options->watched = next->watched;
    options->n_watched = next->n_watched;
    options->watch_ns = next->watch_ns;
    if (server->stage == WORKER_SERVES)
        watch_again(server);
}

/* Systemd waits for it, and ends the service if it does not come: again until it is taken. */
static void tell_ready(struct server *server)
{
    server->owes_ready = !notify_tell(server->options.log, "READY=1");
}

/* Where there were never any rules, no generation of them is in force. */
static void tell_reloaded(const struct server *server)
{
    uint64_t generation = server_state_generation(server->options.server_state);
    log_write(server->options.log, LOG_RELOADED, &LOG_NUMBER("generation", generation),
              generation > 0);
}

static void use_loaded(struct server *server, int code, const char *reason)
{
    struct server_state *server_state = server->options.server_state;
    metrics_reloaded(server_state_metrics(server_state), code == 0, code == 0 ? "" : reason,
                     server_clock_io_now(server_state_clock(server_state)));
    if (code == 0) {
        use_new_tls(server);
        use_next_options(server);
        tell_reloaded(server);
    } else
        log_line(server->options.log, LOG_RELOAD_FAILED, LOG_TEXT("reason", reason));
    tell_ready(server);
}

/* A server that is ending has no control planes any more. */
static void answer_offer(struct server *server)
{
    struct reload *reload = &server->reload;
    const char *refusal = reload->code == 0 ? NULL : reload->error.message;
    if (server->control_planes != NULL)
        control_planes_answer(server->control_planes, reload->control_plane, &reload->response,
                              refusal);
    else
        ads_response_free(&reload->response);
}

static void end_if_loaded(struct server *server)
{
    struct reload *reload = &server->reload;
    pthread_mutex_lock(&reload->lock);
    bool ends = reload->is_loaded;
    reload->is_loaded = false;
    pthread_mutex_unlock(&reload->lock);
    if (!ends)
        return;
    if (reload->has_thread)
        pthread_join(reload->thread, NULL);
    if (reload->is_offer)
        answer_offer(server);
    else
        use_loaded(server, reload->code, reload->error.message);
    pthread_mutex_lock(&reload->lock);
    if (!reload->is_offer) {
        reload->ended = reload->began;
        reload->ended_code = reload->code;
        reload->ended_error = reload->error;
    }
    reload->is_running = false;
    bool closes = reload->is_closed;
    pthread_mutex_unlock(&reload->lock);
    if (closes)
        uv_close((uv_handle_t *)&reload->message, NULL);
}

static void begin_load(struct server *server, bool is_offer)
{
    struct reload *reload = &server->reload;
    struct stint_error error;
    reload->is_offer = is_offer;
    reload->has_thread = pthread_create(&reload->thread, NULL, load, server) == 0;
    if (!reload->has_thread)
        end_load(reload, err_set(&error, STINT_E_SYSTEM, "cannot start a thread to read files"),
                 &error);
}

static void tell_reloading(struct server *server)
{
    struct timespec now;
    char text[64];
    clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(text, sizeof(text), "RELOADING=1\nMONOTONIC_USEC=%" PRId64,
             (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000);
    notify_tell(server->options.log, text);
}

/* Files and control planes take turns, so that neither waits for ever. */
static void begin_if_asked(struct server *server)
{
    struct reload *reload = &server->reload;
    pthread_mutex_lock(&reload->lock);
    bool may_begin = !reload->is_running && !reload->is_closed;
    bool files_wait = reload->asked > reload->began;
    bool is_offer =
        may_begin && !(files_wait && reload->is_offer) && server->control_planes != NULL &&
        control_planes_take(server->control_planes, &reload->control_plane, &reload->response);
    bool is_asked = may_begin && !is_offer && files_wait;
    if (is_asked)
        reload->began = reload->asked;
    reload->is_running = reload->is_running || is_asked || is_offer;
    pthread_mutex_unlock(&reload->lock);
    if (is_asked) {
        watch_mark(server->watch);
        tell_reloading(server);
    }
    if (is_asked || is_offer)
        begin_load(server, is_offer);
}

static void on_reload(uv_async_t *message)
{
    end_if_loaded(message->data);
    begin_if_asked(message->data);
}

/* A worker must not wait for a file: STINT_E_BUSY means that it is to call again soon. */
static int reload_for_worker(void *arg, uint64_t *number, struct stint_error *error)
{
    struct server *server = arg;
    struct reload *reload = &server->reload;
    int code = STINT_E_GONE;
    if (*number == 0)
        *number = ask_reload(reload);
    pthread_mutex_lock(&reload->lock);
    bool has_ended = reload->ended >= *number, is_closed = reload->is_closed;
    if (has_ended) {
        code = reload->ended_code;
        *error = reload->ended_error;
    }
    pthread_mutex_unlock(&reload->lock);
    if (!has_ended && !is_closed)
        return err_set(error, STINT_E_BUSY, "the files are being read");
    return has_ended ? code : err_set(error, code, "the server ends");
}

/* ---- Control planes -------------------------------------------------------------------------- */

static uint64_t io_now(void *arg)
{
    const struct server *server = arg;
    return server_clock_io_now(server_state_clock(server->options.server_state));
}

static int open_control_planes(struct server *server, struct stint_error *error)
{
    const struct server_options *options = &server->options;
    if (options->n_control_planes == 0)
        return 0;
    server->control_planes = control_planes_open(&(struct control_planes_options){
        .loop = &server->loop,
        .configs = options->control_planes,
        .n_configs = options->n_control_planes,
        .seed = uv_hrtime() ^ (uint64_t)getpid() << 32,
        .metrics = server_state_metrics(options->server_state),
        .now = io_now,
        .now_arg = server,
        .log = options->log,
        .received = on_offer,
        .arg = server,
    });
    return server->control_planes != NULL
               ? 0
               : err_set(error, STINT_E_SYSTEM, "no memory for control planes");
}

/* ---- Signals and timers ---------------------------------------------------------------------- */

static void on_end_signal(struct server *server)
{
    if (server->stage < WORKER_DRAINS)
        drain(server);
    else
        end_now(server);
}

static void on_signal(uv_signal_t *signal, int number)
{
    struct server *server = signal->data;
    struct stint_error error;
    if (number == SIGHUP)
        ask_reload(&server->reload);
    else if (number != SIGUSR2)
        on_end_signal(server);
    else if (handover_start_successor(server->handover, &error) != 0)
        log_line(server->options.log, LOG_HANDOVER_FAILED, LOG_TEXT("reason", error.message));
}

/* Counts turns of this loop: a clock also runs while the whole machine stands. */
static bool are_workers_alive(struct server *server)
{
    uint64_t turn_ms = uv_timer_get_repeat(&server->second);
    bool are_alive = true;
    for (unsigned i = 0; i < server->n_workers; i++) {
        uint64_t beats = worker_beats(server->workers[i]), silent_ms = server->silent_ms[i];
        bool is_silent = beats == server->beats[i] && !worker_has_ended(server->workers[i]);
        server->beats[i] = beats;
        server->silent_ms[i] = is_silent ? silent_ms + turn_ms : 0;
        if (silent_ms < STUCK_MS && server->silent_ms[i] >= STUCK_MS)
            log_line(server->options.log, LOG_WORKER_STUCK, LOG_NUMBER("worker", i));
        are_alive = are_alive && server->silent_ms[i] < STUCK_MS;
    }
    return are_alive;
}

/* Also advances the table's time while no request comes: it is stored for the case of a crash. */
static void on_second(uv_timer_t *timer)
{
    struct server *server = timer->data;
    struct server_clock *clock = server_state_clock(server->options.server_state);
    uint64_t now_ns = server_clock_io_now(clock);
    bool are_alive = are_workers_alive(server);
    metrics_tick(server_state_metrics(server->options.server_state), now_ns);
    server_clock_expire(clock, EXPIRE_SLOTS_MAX);
    eviction_report(&server->evictions, table_of(server), now_ns, server->options.log);
    unmatched_report(server->options.server_state, server->options.log);
    log_flush(server->options.log);
    server_state_free_retired(server->options.server_state);
    if (server->stage == WORKER_SERVES)
        atomic_store_explicit(&server->is_ready, are_alive, memory_order_relaxed);
    if (are_alive && server->watchdog_ms > 0)
        notify_tell(server->options.log, "WATCHDOG=1");
    if (server->owes_ready && server->stage == WORKER_SERVES)
        tell_ready(server);
}

static bool has_rules(struct server_state *server_state)
{
    struct rules *rules = server_state_rules(server_state);
    bool has_domain = rules != NULL && rules_domain(rules, 0) != NULL;
    rules_unref(rules);
    return has_domain;
}

static bool is_ready(void *arg)
{
    struct server *server = arg;
    return atomic_load_explicit(&server->is_ready, memory_order_relaxed) &&
           (!server->options.needs_rules || has_rules(server->options.server_state));
}

/* ---- Handover to another process ------------------------------------------------------------- */

static void on_handed_over(void *arg, int successor)
{
    struct server *server = arg;
    log_line(server->options.log, LOG_HANDED_OVER, LOG_NUMBER("to", (uint64_t)successor));
    server->is_handed_over = true;
    listeners_own_paths(&server->listeners, false);
    atomic_store_explicit(&server->is_ready, false, memory_order_relaxed);
    char text[32];
    snprintf(text, sizeof(text), "MAINPID=%d", successor);
    notify_tell(server->options.log, text);
    control_planes_close(server->control_planes); /* its rules are now the successor's */
    server->control_planes = NULL;
    if (server->stage == WORKER_SERVES)
        move_to(server, WORKER_LINGERS, server->options.drain_ns / NS_PER_MS);
    else
        stop_listening(server);
}

/* ---- Start ----------------------------------------------------------------------------------- */

/* Lowers the number of connections if there are not enough descriptors. */
static void limit_connections(struct server *server)
{
    struct connection_limits *connection_limiter = &server->options.connection_limits;
    uint64_t possible = rlimits_connections(server->options.workers);
    server->connections_possible = possible;
    if (connection_limiter->connections <= possible)
        return;
    connection_limiter->connections = possible;
    log_line(server->options.log, LOG_DESCRIPTORS_FEW, LOG_NUMBER("connections", possible));
}

static int open_listeners(struct server *server, struct stint_error *error)
{
    const struct server_options *options = &server->options;
    struct listener_given given[LISTENERS_MAX];
    struct listeners_wanted wanted = {.workers = options->workers, .given = given};
    memcpy(wanted.endpoints, options->endpoints, sizeof(wanted.endpoints));
    memcpy(wanted.n_endpoints, options->n_endpoints, sizeof(wanted.n_endpoints));
    int code = notify_given(given, LISTENERS_MAX, &wanted.n_given, error);
    if (code == 0 && options->replaces)
        code = handover_take(server->handover, given, LISTENERS_MAX, &wanted.n_given, error);
    if (code == 0)
        code = listeners_open(&server->listeners, &wanted, error);
    const struct exposure_options reach = {.has_tokens = options->has_tokens,
                                           .is_insecure = options->is_insecure,
                                           .has_tls = server->tls != NULL,
                                           .log = options->log};
    return code != 0 ? code : exposure_check(&server->listeners, &reach, error);
}

static void tell_listeners(const struct server *server)
{
    char text[ENDPOINT_TEXT_SIZE], last[ENDPOINT_TEXT_SIZE] = "";
    for (size_t i = 0; i < server->listeners.n_all; i++) {
        const struct listener *listener = &server->listeners.all[i];
        endpoint_text((const void *)&listener->address, text);
        if (strcmp(text, last) != 0) /* once for all workers */
            log_line(server->options.log, LOG_LISTENS,
                     LOG_TEXT("frontend", port_name(listener->port)), LOG_TEXT("address", text));
        memcpy(last, text, sizeof(last));
    }
}

static void log_wrong_secret(void *arg, const char *address, const char *frontend)
{
    log_line(arg, LOG_AUTH_FAILED, LOG_TEXT("address", address), LOG_TEXT("frontend", frontend));
}

static int count_guesses(const struct server_options *options, struct stint_error *error)
{
    const struct access_guess_options guesses = {
        .per_minute = options->auth_guesses, .refused = log_wrong_secret, .arg = options->log};
    return access_now_count_guesses(options->access, &guesses)
               ? 0
               : err_set(error, STINT_E_SYSTEM, "no memory to count wrong secrets");
}

static int open_workers(struct server *server, struct stint_error *error)
{
    const struct server_options *options = &server->options;
    if (count_guesses(options, error) != 0)
        return STINT_E_SYSTEM;
    struct worker_options worker = {
        .server = options,
        .listeners = &server->listeners,
        .connection_limiter = server->connection_limiter,
        .tls = server->tls,
        .reload = reload_for_worker,
        .is_ready = is_ready,
        .changed = tell_worker_changed,
        .arg = server,
    };
    for (; server->n_workers < options->workers; server->n_workers++) {
        worker.index = server->n_workers;
        int code = worker_open(&server->workers[server->n_workers], &worker, error);
        if (code != 0)
            return code;
    }
    return 0;
}

/* Called in the thread of the worker whose client moved the clock. */
static void tell_clock_moved(void *arg)
{
    struct server *server = arg;
    for (unsigned i = 0; i < server->n_workers; i++)
        worker_wake(server->workers[i]);
}

static void open_handles(struct server *server)
{
    uv_async_init(&server->loop, &server->worker_changed, on_worker_changed);
    uv_async_init(&server->loop, &server->reload.message, on_reload);
    uv_timer_init(&server->loop, &server->second);
    uv_timer_init(&server->loop, &server->patience);
    server->worker_changed.data = server->reload.message.data = server;
    server->second.data = server->patience.data = server;
    pthread_mutex_init(&server->reload.lock, NULL);
    for (int i = 0; i < SIGNALS; i++) {
        uv_signal_init(&server->loop, &server->signals[i]);
        server->signals[i].data = server;
        uv_signal_start(&server->signals[i], on_signal, signal_numbers[i]);
    }
}

static int open_parts(struct server *server, struct stint_error *error)
{
    const struct server_options *options = &server->options;
    server->connection_limiter = connection_limiter_new(&options->connection_limits);
    server->handover = handover_new(&(struct handover_options){
        .loop = &server->loop,
        .path = options->control,
        .listeners = &server->listeners,
        .state_fd = table_of(server)->region.fd,
        .respawn_helper = options->respawn_helper,
        .log = options->log,
        .handed_over = on_handed_over,
        .arg = server,
    });
    if (options->collector != NULL)
        server->exporter = trace_exporter_new(&(struct trace_exporter_options){
            .loop = &server->loop,
            .collector = options->collector,
            .traces = server_state_traces(options->server_state),
            .metrics = server_state_metrics(options->server_state),
            .log = options->log,
        });
    if (server->connection_limiter == NULL || server->handover == NULL ||
        (options->collector != NULL && server->exporter == NULL))
        return err_set(error, STINT_E_SYSTEM, "no memory for the server");
    if (options->tls == NULL)
        return 0;
    return tls_load(&server->tls, options->tls, error);
}

static struct sandbox_options sandbox_options(const struct server *server)
{
    const struct server_options *options = &server->options;
    return (struct sandbox_options){
        .mode = options->sandbox,
        .read_paths = options->watched,
        .n_read_paths = options->n_watched,
        .control = options->control,
        .listeners = &server->listeners,
        .connects = options->n_store_configs > 0 || options->n_control_planes > 0 ||
                    options->collector != NULL,
        .log = options->log,
    };
}

/* Drops the capability for low ports, and access to files: before there are other threads. */
static int give_up_rights(struct server *server, struct stint_error *error)
{
    struct sandbox_options sandbox = sandbox_options(server);
    int code = user_settle(error);
    if (code == 0 && geteuid() == 0)
        log_line(server->options.log, LOG_RUNS_AS_ROOT, LOG_NUMBER("pid", (uint64_t)getpid()));
    return code != 0 ? code : sandbox_enter_files(&sandbox, error);
}

static void begin_workers(struct server *server)
{
    for (unsigned i = 0; i < server->n_workers; i++)
        worker_begin(server->workers[i]);
}

/*
 * Everything is open. A predecessor accepts until this process serves: all steps that can fail come
 * before that, and a kill at any time leaves one of the two.
 */
static int begin(struct server *server, struct stint_error *error)
{
    int code = handover_prepare(server->handover, error);
    if (code != 0)
        return code;
    code = open_control_planes(server, error);
    if (code != 0)
        return code;
    begin_watching(server);
    struct sandbox_options sandbox = sandbox_options(server);
    code = sandbox_enter_calls(&sandbox, error);
    if (code != 0)
        return code;
    eviction_report_init(&server->evictions, table_of(server));
    atomic_store_explicit(&server->is_ready, true, memory_order_relaxed);
    begin_workers(server);
    code = handover_commit(server->handover, error);
    if (code != 0)
        return code;
    listeners_own_paths(&server->listeners, true);
    uint64_t watchdog_us = 0;
    server->watchdog_ms = sd_watchdog_enabled(0, &watchdog_us) > 0 ? watchdog_us / 1000 / 2 : 0;
    uint64_t every_ms = server->watchdog_ms > 0 && server->watchdog_ms < SECOND_MS
                            ? server->watchdog_ms
                            : SECOND_MS;
    uv_timer_start(&server->second, on_second, every_ms, every_ms);
    tell_listeners(server);
    log_line(server->options.log, LOG_STARTED, LOG_NUMBER("pid", (uint64_t)getpid()),
             LOG_NUMBER("workers", server->n_workers));
    notify_store(server->options.log, &server->listeners);
    tell_ready(server);
    return 0;
}

static int open_all(struct server *server, struct stint_error *error)
{
    int code = open_parts(server, error);
    if (code == 0)
        code = open_listeners(server, error);
    if (code == 0)
        code = give_up_rights(server, error);
    if (code == 0)
        code = open_workers(server, error);
    server_clock_on_move(server_state_clock(server->options.server_state), tell_clock_moved,
                         server);
    return code != 0 ? code : begin(server, error);
}

static void free_all(struct server *server)
{
    for (unsigned i = 0; i < server->n_workers; i++)
        worker_close(server->workers[i]);
    uv_loop_close(&server->loop);
    pthread_mutex_destroy(&server->reload.lock);
    listeners_close(&server->listeners);
    connection_limiter_free(server->connection_limiter);
    tls_unref(server->tls);
    tls_unref(server->new_tls);
}

int server_run(const struct server_options *options, struct stint_error *error)
{
    struct server *server = calloc(1, sizeof(*server));
    if (server == NULL || uv_loop_init(&server->loop) != 0) {
        free(server);
        return err_set(error, STINT_E_SYSTEM, "no memory for the server");
    }
    server->options = *options;
    signal(SIGPIPE, SIG_IGN);
    limit_connections(server);
    open_handles(server);
    int code = open_all(server, error);
    if (code != 0) {
        begin_workers(server);
        move_to(server, WORKER_ENDS, END_MS);
        if (server->n_workers == 0)
            close_handles(server);
    }
    uv_run(&server->loop, UV_RUN_DEFAULT);
    free_all(server);
    if (code == 0)
        log_line(options->log, LOG_STOPPED, LOG_NUMBER("pid", (uint64_t)getpid()));
    free(server);
    return code;
}
