/* SPDX-License-Identifier: MIT */
/* The frontend, and the operations of a connection. */
#include "frontend/grpc/grpc_parts.h"

#include "base/wide_int.h"
#include "service/server_state.h"

#include <assert.h>
#include <stdlib.h>

#define KEPT_BYTES 4096  /* an empty buffer above this size is freed */
#define STREAM_BYTES 384 /* of nghttp2 for each stream: itself, map entries, frames to send */

static struct grpc_conn *grpc_of(struct conn *conn)
{
    return (struct grpc_conn *)(void *)conn;
}

static const struct grpc_conn *grpc_of_const(const struct conn *conn)
{
    return (const struct grpc_conn *)(const void *)conn;
}

static size_t unsent(const struct grpc_conn *conn)
{
    return conn->out.len - conn->sent;
}

/* The limit of unsent or unread bytes; low where all connections together hold much memory. */
static size_t output_max(const struct grpc_conn *conn)
{
    const struct grpc_frontend *frontend = conn->frontend;
    size_t max = frontend->limits.output_bytes;
    bool is_scarce = frontend->held_bytes > GRPC_HELD_TOTAL * frontend->limits.message_bytes;
    return is_scarce && max > GRPC_SCARCE_OUTPUT ? GRPC_SCARCE_OUTPUT : max;
}

bool grpc_conn_is_full(const struct grpc_conn *conn)
{
    return conn->answer_bytes > output_max(conn);
}

bool grpc_conn_turn_is_over(const struct grpc_conn *conn)
{
    return conn->work >= GRPC_TURN || conn_turn_is_over(&conn->conn);
}

bool grpc_bytes_reserve(struct grpc_conn *conn, struct grpc_bytes *bytes, size_t *held, size_t more)
{
    size_t size = bytes->size > 0 ? bytes->size : 256;
    if (bytes->size - bytes->len >= more)
        return true;
    while (size - bytes->len < more)
        size *= 2;
    uint8_t *ptr = realloc(bytes->ptr, size);
    if (ptr == NULL)
        return false;
    *held += size - bytes->size;
    conn->frontend->held_bytes += size - bytes->size;
    bytes->ptr = ptr;
    bytes->size = size;
    return true;
}

void grpc_bytes_release(struct grpc_conn *conn, struct grpc_bytes *bytes, size_t *held)
{
    assert(*held >= bytes->size && conn->frontend->held_bytes >= bytes->size);
    *held -= bytes->size;
    conn->frontend->held_bytes -= bytes->size;
    free(bytes->ptr);
    *bytes = (struct grpc_bytes){0};
}

void grpc_count_malformed(const struct grpc_frontend *frontend)
{
    if (frontend->metrics != NULL)
        metrics_malformed(frontend->metrics, METRICS_GRPC);
}

/* ---- Output ---------------------------------------------------------------------------------- */

static void break_off(struct grpc_conn *conn)
{
    conn->is_broken = true;
    conn->is_over = true;
}

static bool is_unread(const struct grpc_conn *conn)
{
    return unsent(conn) > output_max(conn);
}

static bool is_backpressured(const struct conn *base)
{
    const struct grpc_conn *conn = grpc_of_const(base);
    return is_unread(conn) || conn->rest.len > 0 || conn->asks_wait;
}

static bool has_work(const struct conn *base)
{
    const struct grpc_conn *conn = grpc_of_const(base);
    return !conn->is_over && (conn->rest.len > 0 || conn->asks_wait) && !is_unread(conn);
}

/* False where it stopped at the limit, and has more. */
static bool write_frames(struct grpc_conn *conn)
{
    const uint8_t *frame;
    while (!is_unread(conn)) {
        ssize_t len = nghttp2_session_mem_send(conn->session, &frame);
        if (len == 0)
            return true;
        if (len < 0 || !grpc_bytes_reserve(conn, &conn->out, &conn->buffer_bytes, (size_t)len)) {
            break_off(conn);
            return false;
        }
        memcpy(conn->out.ptr + conn->out.len, frame, (size_t)len);
        conn->out.len += (size_t)len;
    }
    return false;
}

void grpc_conn_settle(struct grpc_conn *conn)
{
    /* A peer that does not speak HTTP/2 gets no frames. */
    if (conn->is_over || !conn->has_begun || !write_frames(conn))
        return;
    if (!nghttp2_session_want_read(conn->session) && !nghttp2_session_want_write(conn->session)) {
        conn->is_over = true;
        if (conn->leaving == GRPC_STAYS && !conn->is_left)
            grpc_count_malformed(conn->frontend);
    } else if (conn->leaving == GRPC_LEAVES && conn->n_calls == 0)
        conn->is_over = true;
}

static struct span output(struct conn *base)
{
    struct grpc_conn *conn = grpc_of(base);
    conn->is_fed = false;
    return grpc_bytes_from(&conn->out, conn->sent);
}

static void sent(struct conn *base, size_t len, uint64_t now_ns)
{
    struct grpc_conn *conn = grpc_of(base);
    struct grpc_bytes *out = &conn->out;
    conn->now_ns = now_ns;
    conn->sent += len;
    if (unsent(conn) == 0) {
        out->len = conn->sent = 0;
        if (out->size > KEPT_BYTES)
            grpc_bytes_release(conn, out, &conn->buffer_bytes);
    } else if (conn->sent > unsent(conn)) {
        memmove(out->ptr, out->ptr + conn->sent, unsent(conn));
        out->len = unsent(conn);
        conn->sent = 0;
    }
    grpc_conn_settle(conn);
}

/* ---- Input ----------------------------------------------------------------------------------- */

/*
 * Reads slice by slice and writes the output of each, until the turn is over or the output is full;
 * returns the unread bytes.
 */
static struct span take_turn(struct grpc_conn *conn, struct span bytes)
{
    while (bytes.len > 0 && !conn->is_over && !grpc_conn_turn_is_over(conn) && !is_unread(conn)) {
        size_t len = bytes.len < GRPC_SLICE ? bytes.len : GRPC_SLICE;
        grpc_session_feed(conn, span_of(bytes.ptr, len));
        if (http2_frames_take(&conn->frames, span_of(bytes.ptr, len)))
            conn->frame_since_ns = conn->now_ns;
        bytes = span_of(bytes.ptr + len, bytes.len - len);
        if (conn->has_begun && !conn->is_over)
            write_frames(conn);
    }
    return bytes;
}

/* Keeps bytes for the next turn; the socket is not read meanwhile. */
static void keep_rest(struct grpc_conn *conn, struct span bytes)
{
    if (bytes.len == 0 || conn->is_over)
        return;
    if (!grpc_bytes_reserve(conn, &conn->rest, &conn->buffer_bytes, bytes.len)) {
        break_off(conn);
        return;
    }
    memcpy(conn->rest.ptr + conn->rest.len, bytes.ptr, bytes.len);
    conn->rest.len += bytes.len;
}

static void go_on(struct grpc_conn *conn)
{
    conn->work = 0;
    if (conn->asks_wait)
        grpc_reflection_go_on(conn);
    if (conn->rest.len == 0)
        return;
    struct span rest = take_turn(conn, grpc_bytes_from(&conn->rest, conn->rest_at));
    conn->rest_at = conn->rest.len - rest.len;
    if (conn->rest_at == conn->rest.len || conn->is_over) {
        grpc_bytes_release(conn, &conn->rest, &conn->buffer_bytes);
        conn->rest_at = 0;
    }
}

static void feed(struct conn *base, struct span bytes, uint64_t now_ns)
{
    struct grpc_conn *conn = grpc_of(base);
    if (conn->is_over)
        return;
    if (!conn->is_fed)
        conn->work = 0;
    conn->is_fed = true;
    conn->now_ns = now_ns;
    conn->is_heard = true;
    conn->heard_ns = now_ns;
    conn->is_pinged = false;
    if (conn->rest.len == 0)
        bytes = take_turn(conn, bytes);
    keep_rest(conn, bytes);
    grpc_conn_settle(conn);
}

static bool is_over(const struct conn *base)
{
    return grpc_of_const(base)->is_over;
}

/*
 * An incomplete preface, frame or header block is an incomplete request, too, even if it belongs to
 * no call.
 */
static bool is_busy(const struct conn *base)
{
    const struct grpc_conn *conn = grpc_of_const(base);
    return !conn->is_over &&
           (conn->n_calls > 0 || conn->rest.len > 0 || (conn->is_heard && !conn->has_begun) ||
            http2_frames_are_open(&conn->frames));
}

/* ---- Deadlines ------------------------------------------------------------------------------- */

static uint64_t call_ends_ns(const struct grpc_conn *conn)
{
    const struct grpc_call *oldest = conn->first[GRPC_TIMED];
    return oldest != NULL ? oldest->begun_ns + conn->frontend->limits.call_ns : STINT_NEVER_NS;
}

/* While input waits for its turn, or for space for its replies, the peer may have sent the rest. */
static uint64_t frame_ends_ns(const struct grpc_conn *conn)
{
    bool is_late = http2_frames_are_open(&conn->frames) && conn->rest.len == 0;
    return is_late ? conn->frame_since_ns + conn->frontend->limits.call_ns : STINT_NEVER_NS;
}

static uint64_t deadline(const struct conn *base)
{
    const struct grpc_conn *conn = grpc_of_const(base);
    if (conn->is_over)
        return STINT_NEVER_NS;
    return min_u64(min_u64(min_u64(conn->age_at_ns, conn->grace_at_ns),
                           min_u64(conn->notice_at_ns, conn->watch_at_ns)),
                   min_u64(min_u64(conn->waits_end_ns, call_ends_ns(conn)), frame_ends_ns(conn)));
}

/* Input after an incomplete frame cannot be read. */
static void end_late_frame(struct grpc_conn *conn)
{
    if (frame_ends_ns(conn) > conn->now_ns)
        return;
    if (conn->has_begun)
        grpc_abuse_end(conn);
    else
        conn->is_over = true;
    conn->frames = (struct http2_frames){.preface_len = HTTP2_PREFACE};
}

static void end_late_calls(struct grpc_conn *conn)
{
    while (call_ends_ns(conn) <= conn->now_ns) {
        struct grpc_call *call = conn->first[GRPC_TIMED];
        grpc_call_enlist(call, GRPC_CLOSING);
        if (call->is_ended || call->answer.len > 0)
            grpc_call_cut(call);
        else if (call->pending != NULL)
            grpc_wait_fail(call);
        else
            grpc_answer_refuse(call, GRPC_DEADLINE_EXCEEDED, "the request does not end");
    }
}

static void wake(struct conn *base, uint64_t now_ns)
{
    struct grpc_conn *conn = grpc_of(base);
    if (conn->is_over)
        return;
    conn->now_ns = now_ns;
    go_on(conn);
    if (conn->is_over)
        return;
    end_late_calls(conn);
    end_late_frame(conn);
    if (conn->waits_end_ns <= now_ns)
        grpc_wait_end_late(conn);
    if (conn->watch_at_ns <= now_ns)
        grpc_watch_look(conn);
    if (conn->notice_at_ns <= now_ns)
        grpc_leave_now(conn);
    if (conn->age_at_ns <= now_ns) {
        uint64_t grace_ns = conn->frontend->limits.age_grace_ns;
        conn->age_at_ns = STINT_NEVER_NS;
        conn->grace_at_ns = grace_ns > 0 ? now_ns + grace_ns : STINT_NEVER_NS;
        grpc_leave_begin(conn);
    }
    if (conn->grace_at_ns <= now_ns) {
        conn->grace_at_ns = STINT_NEVER_NS;
        nghttp2_session_terminate_session(conn->session, NGHTTP2_NO_ERROR);
    }
    grpc_conn_settle(conn);
}

static void drain(struct conn *base, uint64_t now_ns)
{
    struct grpc_conn *conn = grpc_of(base);
    if (conn->is_over)
        return;
    conn->now_ns = now_ns;
    if (conn->leaving == GRPC_STAYS && !conn->is_left)
        grpc_leave_begin(conn);
    else
        grpc_leave_now(conn);
    grpc_conn_settle(conn);
}

/* ---- Opening and closing --------------------------------------------------------------------- */

static size_t held(const struct conn *base)
{
    const struct grpc_conn *conn = grpc_of_const(base);
    return conn->held_bytes + conn->answer_bytes + conn->buffer_bytes +
           conn->n_calls * (sizeof(struct grpc_call) + STREAM_BYTES);
}

static void free_conn(struct conn *base)
{
    struct grpc_conn *conn = grpc_of(base);
    nghttp2_session_del(conn->session);
    for (int list = 0; list < GRPC_LISTS; list++)
        while (conn->first[list] != NULL)
            grpc_call_free(conn->first[list]);
    access_unref(conn->identity.tokens);
    grpc_bytes_release(conn, &conn->out, &conn->buffer_bytes);
    grpc_bytes_release(conn, &conn->rest, &conn->buffer_bytes);
    assert(conn->held_bytes == 0 && conn->answer_bytes == 0 && conn->buffer_bytes == 0);
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
    .is_over = is_over,
    .drain = drain,
    .is_busy = is_busy,
    .held = held,
    .free = free_conn,
};

struct conn *grpc_conn_new(struct grpc_frontend *frontend, struct span peer, uint64_t now_ns)
{
    struct grpc_conn *conn = calloc(1, sizeof(*conn));
    if (conn == NULL)
        return NULL;
    conn->conn.ops = &ops;
    conn->frontend = frontend;
    conn->peer_len = access_keep_peer(conn->peer, peer);
    conn->now_ns = conn->idle_seen_ns = conn->heard_ns = now_ns;
    conn->age_at_ns = grpc_leave_age(frontend, now_ns);
    conn->grace_at_ns = conn->notice_at_ns = conn->watch_at_ns = STINT_NEVER_NS;
    conn->waits_end_ns = STINT_NEVER_NS;
    if (!grpc_session_open(conn)) {
        free_conn(&conn->conn);
        return NULL;
    }
    return &conn->conn;
}

/* ---- The frontend ---------------------------------------------------------------------------- */

static size_t or_default(size_t limit, size_t otherwise)
{
    return limit > 0 ? limit : otherwise;
}

static struct grpc_limits limits_of(const struct grpc_limits *limits)
{
    struct grpc_limits all = limits != NULL ? *limits : (struct grpc_limits){0};
    all.message_bytes = or_default(all.message_bytes, (size_t)1 << 20);
    all.header_bytes = or_default(all.header_bytes, (size_t)16 << 10);
    all.streams = or_default(all.streams, 1000);
    all.output_bytes = or_default(all.output_bytes, (size_t)256 << 10);
    all.idle_frames = or_default(all.idle_frames, 1000);
    all.call_ns = all.call_ns > 0 ? all.call_ns : 30 * NS_PER_S;
    return all;
}

struct grpc_frontend *grpc_frontend_new(const struct grpc_frontend_options *options)
{
    static const struct rls_form plain;
    struct grpc_frontend *frontend = calloc(1, sizeof(*frontend));
    if (frontend == NULL)
        return NULL;
    frontend->options = *options;
    frontend->clock = server_state_clock(service_server_state(options->service));
    frontend->limits = limits_of(options->limits);
    if (options->form == NULL)
        frontend->options.form = &plain;
    struct metrics *metrics = server_state_metrics(service_server_state(options->service));
    if (metrics != NULL)
        frontend->metrics = metrics_worker(metrics, service_worker(options->service));
    frontend->generation = UINT64_MAX; /* of no set: the first check gets the tokens */
    frontend->rls = rls_call_new();
    if (frontend->rls == NULL || !grpc_session_prepare(frontend)) {
        grpc_frontend_free(frontend);
        return NULL;
    }
    return frontend;
}

void grpc_frontend_free(struct grpc_frontend *frontend)
{
    if (frontend == NULL)
        return;
    while (frontend->free_calls != NULL) {
        struct grpc_call *call = frontend->free_calls;
        frontend->free_calls = call->next;
        free(call);
    }
    nghttp2_session_callbacks_del(frontend->callbacks);
    nghttp2_option_del(frontend->options_of_session);
    rls_call_free(frontend->rls);
    grpc_zip_free(frontend->zip);
    reflection_space_free(&frontend->reflection);
    access_unref(frontend->tokens);
    free(frontend);
}

void grpc_frontend_drain(struct grpc_frontend *frontend)
{
    frontend->is_drained = true;
    for (struct grpc_conn *conn = frontend->watching, *next; conn != NULL; conn = next) {
        next = conn->next_watching;
        grpc_watch_look(conn);
        grpc_conn_settle(conn);
    }
}
