/* SPDX-License-Identifier: MIT */
/*
 * Bytes in, bytes out. Commands are read directly from the fed bytes; unanswered bytes (the start
 * of a command, or complete ones after one that waits) are kept in the input.
 */
#include "frontend/resp/resp_conn.h"

#include "base/buf.h"
#include "base/byte_queue.h"
#include "frontend/resp/resp_call.h"
#include "proto/resp/resp_reply.h"

#include <stddef.h>
#include <stdlib.h>

#define REQUEST_BYTES_DEFAULT ((size_t)1 << 20)
#define ARGUMENT_BYTES_DEFAULT ((size_t)128 << 10)
#define OUTPUT_BYTES_DEFAULT ((size_t)256 << 10)

/* Limits for an unauthenticated client, so that it cannot make the server hold much memory. */
#define UNAUTHENTICATED_ARGUMENTS 10
#define UNAUTHENTICATED_ARGUMENT_BYTES 4096
#define UNAUTHENTICATED_REQUEST_BYTES 16384

#define TURN_COMMANDS 16 /* between two checks whether the turn is over */
#define KEPT_BYTES 4096  /* an empty buffer above this size is freed */

struct resp_conn {
    struct conn conn;
    struct resp_state state;
    struct resp_reader reader;
    struct byte_queue input;         /* an incomplete command, or complete ones that wait */
    size_t ahead_bytes;              /* of the commands that have a pending request */
    struct resp_reader ahead_reader; /* of the command after them */
    bool has_yielded;                /* its turn was over with complete commands left */
};

static size_t unsent(const struct resp_conn *conn)
{
    return byte_queue_len(&conn->state.out.queue);
}

static size_t waiting(const struct resp_conn *conn)
{
    return byte_queue_len(&conn->input);
}

static bool may_answer(const struct resp_conn *conn)
{
    return !conn->state.is_over && !resp_state_is_suspended(&conn->state) &&
           unsent(conn) <= conn->state.frontend->output_bytes;
}

/* Checks whether the tokens in force still include the client's token. */
static void renew(struct resp_state *state)
{
    struct resp_frontend *frontend = state->frontend;
    if (frontend->access == NULL)
        return;
    access_now_renew(frontend->access, &frontend->tokens, &frontend->generation);
    if (state->tokens == frontend->tokens)
        return;
    const struct access_token *token = NULL;
    if (state->token != NULL && frontend->tokens != NULL)
        token = access_again(frontend->tokens, state->token);
    resp_state_become(state, token);
}

/* ---- Replies --------------------------------------------------------------------------------- */

static void answer_call(struct resp_call *call)
{
    struct resp_state *state = call->state;
    call->command = resp_command_find(call->args[0]);
    if (call->command == NULL) {
        resp_reply_unknown(&state->out, call->args[0]);
    } else if (!resp_command_takes(call->command, call->n_args)) {
        resp_reply_arity(&state->out, call->command);
    } else if (!state->is_known && (call->command->flags & RESP_FLAG_NO_AUTH) == 0) {
        resp_write_error(&state->out, "NOAUTH", "Authentication required.");
    } else {
        resp_answers[resp_command_id(call->command)](call);
    }
    /* For example, the caller's roles have changed: units may have been charged. */
    service_drop(state->frontend->service, call->pending);
    if (!resp_state_is_suspended(state)) {
        state->was_asked = false;
        state->keys_done = 0;
        state->keys_found = 0;
    }
    if (state->out.failed)
        state->is_over = true;
}

static void end_with_fault(struct resp_conn *conn, long fault)
{
    char message[STINT_ERROR_MAX];
    if (conn->state.frontend->metrics != NULL)
        metrics_count(conn->state.frontend->metrics, METRICS_RESP, METRICS_MALFORMED, 1);
    struct buf buf = buf_of(message, sizeof(message));
    buf_add(&buf, "Protocol error: %s", resp_error_message(fault));
    resp_write_error(&conn->state.out, "ERR", message);
    conn->state.is_over = true;
}

/* ---- Commands that wait for stores ----------------------------------------------------------- */

/*
 * Replies are sent in the order of the commands, but the commands of a pipeline do not wait for
 * each other's stores: while the first waits, those after it are begun if they need stores as
 * well. Each is read and decided again when it is the first.
 */

/* The pending request of the command at the head, which can continue; NULL: it has none. */
static struct pending *take_pending(struct resp_conn *conn, size_t command_len)
{
    struct resp_pending_requests *pending_requests = &conn->state.pending_requests;
    bool lacks_first = pending_requests->lacks_first;
    pending_requests->lacks_first = false;
    if (pending_requests->n == 0 || lacks_first)
        return NULL;
    struct pending *pending = *resp_pending_at(pending_requests, 0);
    pending_requests->first = (pending_requests->first + 1) % RESP_PENDING_MAX;
    pending_requests->n--;
    conn->ahead_bytes -= command_len;
    if (pending_requests->n == 0)
        conn->ahead_reader = (struct resp_reader){0};
    return pending;
}

/* False: the command is handled when it is the first. */
static bool begin_ahead(struct resp_conn *conn, uint64_t now_ns)
{
    struct resp_frontend *frontend = conn->state.frontend;
    const struct resp_argv *argv = &frontend->argv;
    struct resp_call call = {.state = &conn->state,
                             .command = argv->n > 0 ? resp_command_find(argv->args[0]) : NULL,
                             .args = argv->args,
                             .n_args = argv->n,
                             .now_ns = server_clock_now(frontend->clock, now_ns),
                             .io_now_ns = now_ns,
                             .is_ahead = true};
    if (call.command == NULL || !resp_command_takes(call.command, argv->n) ||
        !conn->state.is_known || call.command->verb >= REQUEST_VERBS ||
        !request_verbs[call.command->verb].may_be_ahead)
        return false;
    resp_answers[resp_command_id(call.command)](&call);
    return call.has_waited;
}

/* Begins those commands after a waiting one that can be begun. */
static void look_ahead(struct resp_conn *conn, uint64_t now_ns)
{
    const struct resp_state *state = &conn->state;
    const struct byte_queue *input = &conn->input;
    while (resp_state_waits(state) && !state->is_over &&
           state->pending_requests.n < RESP_PENDING_MAX) {
        size_t at = input->start + conn->ahead_bytes;
        if (at >= input->end)
            return;
        long len =
            resp_reader_next(&conn->ahead_reader, span_of(input->bytes + at, input->end - at),
                             state->bounds, &state->frontend->argv);
        if (len < 0)
            conn->ahead_reader = (struct resp_reader){0}; /* the error is replied later */
        if (len <= 0 || !begin_ahead(conn, now_ns))
            return;
        conn->ahead_bytes += (size_t)len;
    }
}

/* ---- Serving --------------------------------------------------------------------------------- */

/* Answers these bytes, which begin at a command, as far as possible; returns how many it used. */
static size_t serve(struct resp_conn *conn, struct span bytes, uint64_t now_ns)
{
    struct resp_argv *argv = &conn->state.frontend->argv;
    size_t done = 0;
    conn->has_yielded = false;
    for (unsigned n = 1; may_answer(conn); n++) {
        if (n % TURN_COMMANDS == 0 && done < bytes.len && conn_turn_is_over(&conn->conn)) {
            conn->has_yielded = true;
            break;
        }
        struct span rest = span_of(bytes.ptr + done, bytes.len - done);
        long len = resp_reader_next(&conn->reader, rest, conn->state.bounds, argv);
        if (len == 0)
            break;
        if (len < 0) {
            end_with_fault(conn, len);
            break;
        }
        struct resp_call call = {.state = &conn->state,
                                 .args = argv->args,
                                 .n_args = argv->n,
                                 .now_ns = server_clock_now(conn->state.frontend->clock, now_ns),
                                 .io_now_ns = now_ns,
                                 .pending = take_pending(conn, (size_t)len)};
        if (argv->n > 0)
            answer_call(&call);
        if (call.has_waited)
            conn->ahead_bytes += (size_t)len;
        else if (conn->state.retry_at_ns == STINT_NEVER_NS)
            done += (size_t)len;
    }
    return done;
}

/* ---- Buffers --------------------------------------------------------------------------------- */

static void keep(struct resp_conn *conn, struct span bytes)
{
    if (!conn->state.is_over && !byte_queue_append(&conn->input, bytes))
        conn->state.is_over = true;
}

static void serve_input(struct resp_conn *conn, uint64_t now_ns)
{
    if (waiting(conn) > 0)
        byte_queue_take(&conn->input, serve(conn, byte_queue_span(&conn->input), now_ns),
                        KEPT_BYTES);
    /* A connection that drains has now answered all commands, unless something else delays it. */
    if (conn->state.is_draining && may_answer(conn) && !conn->has_yielded)
        conn->state.is_over = true;
    if (conn->state.is_over)
        byte_queue_clear(&conn->input, KEPT_BYTES);
    else if (waiting(conn) > 0)
        look_ahead(conn, now_ns);
}

static void on_answers(void *state, uint64_t now_ns)
{
    struct resp_conn *conn =
        (struct resp_conn *)(void *)((uint8_t *)state - offsetof(struct resp_conn, state));
    if (resp_state_is_suspended(state))
        return;
    renew(state);
    serve_input(conn, now_ns);
    conn_wake(&conn->conn, now_ns);
}

/* ---- Operations ------------------------------------------------------------------------------ */

static void feed(struct conn *base, struct span bytes, uint64_t now_ns)
{
    struct resp_conn *conn = (void *)base;
    if (conn->state.is_over)
        return;
    renew(&conn->state);
    if (waiting(conn) == 0) {
        size_t done = serve(conn, bytes, now_ns);
        keep(conn, span_of(bytes.ptr + done, bytes.len - done));
        look_ahead(conn, now_ns);
    } else {
        keep(conn, bytes);
        serve_input(conn, now_ns);
    }
}

static struct span output(struct conn *base)
{
    const struct resp_conn *conn = (void *)base;
    return byte_queue_span(&conn->state.out.queue);
}

static void sent(struct conn *base, size_t len, uint64_t now_ns)
{
    struct resp_conn *conn = (void *)base;
    byte_queue_take(&conn->state.out.queue, len, KEPT_BYTES);
    if (waiting(conn) > 0 && may_answer(conn) && conn_turn_is_over(base)) {
        conn->has_yielded = true;
    } else if (waiting(conn) > 0 || conn->state.is_draining) {
        renew(&conn->state);
        serve_input(conn, now_ns);
    }
}

/* Also while a command waits and many follow it: they must not fill the memory. */
static bool is_backpressured(const struct conn *base)
{
    const struct resp_conn *conn = (const void *)base;
    return unsent(conn) > conn->state.frontend->output_bytes || conn->has_yielded ||
           (resp_state_is_suspended(&conn->state) &&
            waiting(conn) > conn->state.bounds->request_bytes);
}

static bool has_work(const struct conn *base)
{
    const struct resp_conn *conn = (const void *)base;
    return conn->has_yielded && may_answer(conn);
}

static uint64_t deadline(const struct conn *base)
{
    const struct resp_conn *conn = (const void *)base;
    return server_clock_io_deadline(conn->state.frontend->clock, conn->state.retry_at_ns);
}

static void wake(struct conn *base, uint64_t now_ns)
{
    struct resp_conn *conn = (void *)base;
    if (server_clock_now(conn->state.frontend->clock, now_ns) >= conn->state.retry_at_ns)
        conn->state.retry_at_ns = STINT_NEVER_NS;
    else if (!has_work(base))
        return;
    renew(&conn->state);
    serve_input(conn, now_ns);
}

static void expire(struct conn *base, uint64_t now_ns)
{
    struct resp_conn *conn = (void *)base;
    (void)now_ns;
    if (!conn->state.is_over && !resp_state_is_suspended(&conn->state))
        resp_write_error(&conn->state.out, "ERR",
                         "Protocol error: the command did not arrive within request_time");
    conn->state.is_over = true;
}

static bool is_over(const struct conn *base)
{
    const struct resp_conn *conn = (const void *)base;
    return conn->state.is_over;
}

/* A command that waits gets the best reply possible now. */
static void drain(struct conn *base, uint64_t now_ns)
{
    struct resp_conn *conn = (void *)base;
    conn->state.is_draining = true;
    conn->state.retry_at_ns = STINT_NEVER_NS;
    serve_input(conn, now_ns);
}

static bool is_busy(const struct conn *base)
{
    return waiting((const void *)base) > 0;
}

static size_t held(const struct conn *base)
{
    const struct resp_conn *conn = (const void *)base;
    return conn->input.size + conn->state.out.queue.size;
}

static void free_conn(struct conn *base)
{
    struct resp_conn *conn = (void *)base;
    struct resp_pending_requests *pending_requests = &conn->state.pending_requests;
    for (unsigned i = 0; i < pending_requests->n; i++)
        service_drop(conn->state.frontend->service, *resp_pending_at(pending_requests, i));
    free(pending_requests->ring);
    byte_queue_deinit(&conn->input);
    byte_queue_deinit(&conn->state.out.queue);
    access_unref(conn->state.tokens);
    free(conn);
}

static const struct conn_ops ops = {
    .feed = feed,
    .output = output,
    .sent = sent,
    .is_backpressured = is_backpressured,
    .has_work = has_work,
    .deadline = deadline,
    .wake = wake,
    .expire = expire,
    .is_over = is_over,
    .drain = drain,
    .is_busy = is_busy,
    .held = held,
    .free = free_conn,
};

struct conn *resp_conn_new(struct resp_frontend *frontend, struct span peer)
{
    struct resp_conn *conn = calloc(1, sizeof(*conn));
    if (conn == NULL)
        return NULL;
    conn->conn.ops = &ops;
    conn->state.frontend = frontend;
    conn->state.peer_len = access_keep_peer(conn->state.peer, peer);
    conn->state.out.version = 2;
    conn->state.retry_at_ns = STINT_NEVER_NS;
    conn->state.id = frontend->n_opened++ * WORKERS_MAX + service_worker(frontend->service) + 1;
    conn->state.caller.frontend = METRICS_RESP;
    renew(&conn->state);
    resp_state_become(&conn->state, NULL);
    return &conn->conn;
}

/* ---- Frontends ------------------------------------------------------------------------------- */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void set_bounds(struct resp_frontend *frontend, const struct resp_limits *limits)
{
    struct resp_bounds *bounds = &frontend->bounds;
    bounds->request_bytes = conn_limit(limits->request_bytes, REQUEST_BYTES_DEFAULT);
    bounds->argument_bytes = conn_limit(limits->argument_bytes, ARGUMENT_BYTES_DEFAULT);
    bounds->arguments =
        least(conn_limit(limits->arguments, RESP_ARGUMENTS_MAX), RESP_ARGUMENTS_MAX);
    frontend->output_bytes = conn_limit(limits->output_bytes, OUTPUT_BYTES_DEFAULT);
    frontend->unauthenticated_bounds = (struct resp_bounds){
        .request_bytes = least(bounds->request_bytes, UNAUTHENTICATED_REQUEST_BYTES),
        .argument_bytes = least(bounds->argument_bytes, UNAUTHENTICATED_ARGUMENT_BYTES),
        .arguments = least(bounds->arguments, UNAUTHENTICATED_ARGUMENTS),
    };
}

struct resp_frontend *resp_frontend_new(struct service *service, struct access_now *access,
                                        const struct resp_limits *limits)
{
    static const struct resp_limits defaults;
    struct resp_frontend *frontend = calloc(1, sizeof(*frontend));
    if (frontend == NULL)
        return NULL;
    frontend->service = service;
    frontend->clock = server_state_clock(service_server_state(service));
    frontend->tracer = service_tracer(service);
    frontend->throttle.verb = REQUEST_THROTTLE;
    frontend->on_answers = on_answers;
    frontend->access = access;
    struct metrics *metrics = server_state_metrics(service_server_state(service));
    if (metrics != NULL)
        frontend->metrics = metrics_worker(metrics, service_worker(service));
    frontend->generation = UINT64_MAX; /* of no set: the first check gets the tokens */
    set_bounds(frontend, limits != NULL ? limits : &defaults);
    frontend->argv.args = calloc(frontend->bounds.arguments, sizeof(*frontend->argv.args));
    frontend->argv.space = malloc(RESP_LINE_MAX);
    if (frontend->argv.args == NULL || frontend->argv.space == NULL) {
        resp_frontend_free(frontend);
        return NULL;
    }
    return frontend;
}

void resp_frontend_free(struct resp_frontend *frontend)
{
    if (frontend == NULL)
        return;
    free(frontend->argv.args);
    free(frontend->argv.space);
    access_unref(frontend->tokens);
    free(frontend);
}
