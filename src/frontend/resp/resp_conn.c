/* SPDX-License-Identifier: MIT */
/*
 * Bytes in, bytes out. Commands are read directly from the fed bytes; unanswered bytes (the start
 * of a command, or complete ones after one that waits) are kept in the input.
 */
#include "frontend/resp/resp_parts.h"

#include "proto/resp/resp_about.h"

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

static struct resp_conn *resp_of(struct conn *conn)
{
    return (struct resp_conn *)(void *)conn;
}

static const struct resp_conn *resp_of_const(const struct conn *conn)
{
    return (const struct resp_conn *)(const void *)conn;
}

static size_t unsent(const struct resp_conn *conn)
{
    return conn->out.len - conn->sent;
}

static size_t waiting(const struct resp_conn *conn)
{
    return byte_queue_len(&conn->input);
}

static bool may_answer(const struct resp_conn *conn)
{
    return !conn->is_over && !resp_conn_is_suspended(conn) &&
           unsent(conn) <= conn->frontend->output_bytes;
}

/* ---- Replies --------------------------------------------------------------------------------- */

static void (*const answers[RESP_COMMANDS])(struct resp_call *call);

static void answer_call(struct resp_call *call)
{
    struct resp_conn *conn = call->conn;
    call->command = resp_command_find(call->args[0]);
    if (call->command == NULL) {
        resp_about_unknown(&conn->out, call->args[0]);
    } else if (!resp_command_takes(call->command, call->n_args)) {
        resp_about_arity(&conn->out, call->command);
    } else if (!conn->is_known && (call->command->flags & RESP_FLAG_NO_AUTH) == 0) {
        resp_write_error(&conn->out, "NOAUTH", "Authentication required.");
    } else {
        answers[resp_command_id(call->command)](call);
    }
    /* For example, the caller's roles have changed: units may have been charged. */
    service_drop(conn->frontend->service, call->pending);
    if (!call->is_ahead && !resp_conn_is_suspended(conn))
        conn->was_asked = false;
    if (conn->out.failed)
        conn->is_over = true;
}

static void count_malformed(const struct service *service)
{
    struct metrics *metrics = server_state_metrics(service_server_state(service));
    if (metrics != NULL)
        metrics_malformed(metrics_worker(metrics, service_worker(service)), METRICS_RESP);
}

static void end_with_fault(struct resp_conn *conn, long fault)
{
    char message[STINT_ERROR_MAX];
    count_malformed(conn->frontend->service);
    struct buf buf = buf_of(message, sizeof(message));
    buf_add(&buf, "Protocol error: %s", resp_error_message(fault));
    resp_write_error(&conn->out, "ERR", message);
    conn->is_over = true;
}

/* Answers these bytes, which begin at a command, as far as possible; returns how many it used. */
static size_t serve(struct resp_conn *conn, struct span bytes, uint64_t now_ns)
{
    struct resp_argv *argv = &conn->frontend->argv;
    size_t done = 0;
    conn->has_yielded = false;
    for (unsigned n = 1; may_answer(conn); n++) {
        if (n % TURN_COMMANDS == 0 && done < bytes.len && conn_turn_is_over(&conn->conn)) {
            conn->has_yielded = true;
            break;
        }
        struct span rest = span_of(bytes.ptr + done, bytes.len - done);
        long len = resp_reader_next(&conn->reader, rest, conn->bounds, argv);
        if (len == 0)
            break;
        if (len < 0) {
            end_with_fault(conn, len);
            break;
        }
        struct resp_call call = {.conn = conn,
                                 .args = argv->args,
                                 .n_args = argv->n,
                                 .now_ns = server_clock_now(conn->frontend->clock, now_ns),
                                 .io_now_ns = now_ns,
                                 .pending = resp_prefetch_take(conn, (size_t)len)};
        if (argv->n > 0)
            answer_call(&call);
        if (call.has_waited)
            conn->pending_requests.bytes += (size_t)len;
        else if (conn->retry_at_ns == STINT_NEVER_NS)
            done += (size_t)len;
    }
    return done;
}

bool resp_call_park(struct resp_call *call, uint64_t retry_at_ns)
{
    struct resp_conn *conn = call->conn;
    if (retry_at_ns == 0 || conn->is_draining || call->is_ahead)
        return false;
    conn->retry_at_ns = retry_at_ns;
    conn->pending_requests.lacks_first = true;
    return true;
}

/* ---- Buffers --------------------------------------------------------------------------------- */

static void keep(struct resp_conn *conn, struct span bytes)
{
    if (!conn->is_over && !byte_queue_append(&conn->input, bytes))
        conn->is_over = true;
}

static void serve_input(struct resp_conn *conn, uint64_t now_ns)
{
    if (waiting(conn) > 0)
        byte_queue_take(&conn->input, serve(conn, byte_queue_span(&conn->input), now_ns),
                        KEPT_BYTES);
    /* A connection that drains has now answered all commands, unless something else delays it. */
    if (conn->is_draining && may_answer(conn) && !conn->has_yielded)
        conn->is_over = true;
    if (conn->is_over)
        byte_queue_clear(&conn->input, KEPT_BYTES);
    else if (waiting(conn) > 0)
        resp_prefetch_look(conn, now_ns);
}

void resp_conn_go_on(struct resp_conn *conn, uint64_t now_ns)
{
    resp_caller_renew(conn);
    serve_input(conn, now_ns);
    conn_wake(&conn->conn, now_ns);
}

/* ---- Operations ------------------------------------------------------------------------------ */

static void feed(struct conn *base, struct span bytes, uint64_t now_ns)
{
    struct resp_conn *conn = resp_of(base);
    if (conn->is_over)
        return;
    resp_caller_renew(conn);
    if (waiting(conn) == 0) {
        size_t done = serve(conn, bytes, now_ns);
        keep(conn, span_of(bytes.ptr + done, bytes.len - done));
        resp_prefetch_look(conn, now_ns);
    } else {
        keep(conn, bytes);
        serve_input(conn, now_ns);
    }
}

static struct span output(struct conn *base)
{
    const struct resp_conn *conn = resp_of(base);
    if (unsent(conn) == 0)
        return span_of(NULL, 0);
    return span_of(conn->out.bytes + conn->sent, unsent(conn));
}

static void sent(struct conn *base, size_t len, uint64_t now_ns)
{
    struct resp_conn *conn = resp_of(base);
    conn->sent += len;
    if (unsent(conn) == 0) {
        conn->out.len = conn->sent = 0;
        if (conn->out.size > KEPT_BYTES)
            resp_writer_deinit(&conn->out);
    } else if (conn->sent > unsent(conn)) {
        memmove(conn->out.bytes, conn->out.bytes + conn->sent, unsent(conn));
        conn->out.len = unsent(conn);
        conn->sent = 0;
    }
    if (waiting(conn) > 0 && may_answer(conn) && conn_turn_is_over(base)) {
        conn->has_yielded = true;
    } else if (waiting(conn) > 0 || conn->is_draining) {
        resp_caller_renew(conn);
        serve_input(conn, now_ns);
    }
}

/* Also while a command waits and many follow it: they must not fill the memory. */
static bool is_backpressured(const struct conn *base)
{
    const struct resp_conn *conn = resp_of_const(base);
    return unsent(conn) > conn->frontend->output_bytes || conn->has_yielded ||
           (resp_conn_is_suspended(conn) && waiting(conn) > conn->bounds->request_bytes);
}

static bool has_work(const struct conn *base)
{
    const struct resp_conn *conn = resp_of_const(base);
    return conn->has_yielded && may_answer(conn);
}

static uint64_t deadline(const struct conn *base)
{
    const struct resp_conn *conn = resp_of_const(base);
    return server_clock_io_deadline(conn->frontend->clock, conn->retry_at_ns);
}

static void wake(struct conn *base, uint64_t now_ns)
{
    struct resp_conn *conn = resp_of(base);
    if (server_clock_now(conn->frontend->clock, now_ns) >= conn->retry_at_ns)
        conn->retry_at_ns = STINT_NEVER_NS;
    else if (!has_work(base))
        return;
    resp_caller_renew(conn);
    serve_input(conn, now_ns);
}

static void expire(struct conn *base, uint64_t now_ns)
{
    struct resp_conn *conn = resp_of(base);
    (void)now_ns;
    if (!conn->is_over && !resp_conn_is_suspended(conn))
        resp_write_error(&conn->out, "ERR",
                         "Protocol error: the command did not arrive within request_time");
    conn->is_over = true;
}

static bool is_over(const struct conn *base)
{
    return resp_of_const(base)->is_over;
}

/* A command that waits gets the best reply possible now. */
static void drain(struct conn *base, uint64_t now_ns)
{
    struct resp_conn *conn = resp_of(base);
    conn->is_draining = true;
    conn->retry_at_ns = STINT_NEVER_NS;
    serve_input(conn, now_ns);
}

static bool is_busy(const struct conn *base)
{
    return waiting(resp_of_const(base)) > 0;
}

static size_t held(const struct conn *base)
{
    const struct resp_conn *conn = resp_of_const(base);
    return conn->input.size + conn->out.size;
}

static void free_conn(struct conn *base)
{
    struct resp_conn *conn = resp_of(base);
    resp_prefetch_free(conn);
    byte_queue_deinit(&conn->input);
    resp_writer_deinit(&conn->out);
    access_unref(conn->tokens);
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
    conn->frontend = frontend;
    conn->peer_len = access_keep_peer(conn->peer, peer);
    conn->out.version = 2;
    conn->retry_at_ns = STINT_NEVER_NS;
    conn->id = frontend->n_opened++ * WORKERS_MAX + service_worker(frontend->service) + 1;
    conn->caller.frontend = METRICS_RESP;
    resp_caller_renew(conn);
    resp_caller_forget(conn);
    return &conn->conn;
}

/* ---- Frontends ------------------------------------------------------------------------------- */

static size_t or_default(size_t limit, size_t otherwise)
{
    return limit > 0 ? limit : otherwise;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void set_bounds(struct resp_frontend *frontend, const struct resp_limits *limits)
{
    struct resp_bounds *bounds = &frontend->bounds;
    bounds->request_bytes = or_default(limits->request_bytes, REQUEST_BYTES_DEFAULT);
    bounds->argument_bytes = or_default(limits->argument_bytes, ARGUMENT_BYTES_DEFAULT);
    bounds->arguments =
        least(or_default(limits->arguments, RESP_ARGUMENTS_MAX), RESP_ARGUMENTS_MAX);
    frontend->output_bytes = or_default(limits->output_bytes, OUTPUT_BYTES_DEFAULT);
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
    frontend->throttle.verb = REQUEST_THROTTLE;
    frontend->access = access;
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

/* ---- The command table ----------------------------------------------------------------------- */

static void command(struct resp_call *call)
{
    resp_about_commands(&call->conn->out, call->args, call->n_args, &call->conn->frontend->lists);
}

static void (*const answers[RESP_COMMANDS])(struct resp_call *call) = {
    [RESP_DEL] = resp_forget_keys,
    [RESP_TTL] = resp_key_time,
    [RESP_AUTH] = resp_auth,
    [RESP_ECHO] = resp_echo,
    [RESP_INFO] = resp_info,
    [RESP_PING] = resp_ping,
    [RESP_PTTL] = resp_key_time,
    [RESP_QUIT] = resp_quit,
    [RESP_HELLO] = resp_hello,
    [RESP_RESET_CONNECTION] = resp_reset,
    [RESP_CLIENT] = resp_client,
    [RESP_CONFIG] = resp_config,
    [RESP_EXISTS] = resp_count_keys,
    [RESP_SELECT] = resp_select,
    [RESP_UNLINK] = resp_forget_keys,
    [RESP_COMMAND] = command,
    [RESP_TOP] = resp_top,
    [RESP_BOOK] = resp_verb,
    [RESP_PEEK] = resp_verb,
    [RESP_POOL] = resp_pool,
    [RESP_TAKE] = resp_verb,
    [RESP_THROTTLE] = resp_throttle,
    [RESP_BLOCK] = resp_verb,
    [RESP_CLOCK] = resp_clock,
    [RESP_RENEW] = resp_verb,
    [RESP_RESET] = resp_verb,
    [RESP_CANCEL] = resp_verb,
    [RESP_CHARGE] = resp_verb,
    [RESP_REFUND] = resp_verb,
    [RESP_SETTLE] = resp_verb,
    [RESP_EXPLAIN] = resp_verb,
    [RESP_RESERVE] = resp_verb,
    [RESP_SETQUOTA] = resp_verb,
    [RESP_TAKEUPTO] = resp_verb,
};
