/* SPDX-License-Identifier: MIT */
/*
 * What each method does with a message. A connection: nghttp2's callbacks, which find the call of a
 * frame and count its cost; the operations for the socket's owner; and the frontend.
 */
#include "frontend/grpc/grpc_call.h"

#include "base/siphash.h"
#include "base/wide_int.h"
#include "proto/grpc/kuadrant.h"
#include "service/server_clock.h"
#include "service/server_state.h"

#include <assert.h>
#include <stdlib.h>

#define KEPT_BYTES 4096  /* an empty buffer above this size is freed */
#define STREAM_BYTES 384 /* of nghttp2 for each stream: itself, map entries, frames to send */
#define BOMB 4           /* a header so many times larger than the limit is an attack */

/* Frames beside a call of a normal client: updates of two windows, a ping, and one to spare. */
#define FRAMES_OF_A_CALL 4

/* ---- Methods of the limiter ------------------------------------------------------------------ */

static const enum grpc_status statuses[REPLY_AHEAD + 1] = {
    [REPLY_BAD_REQUEST] = GRPC_INVALID_ARGUMENT,
    [REPLY_FORBIDDEN] = GRPC_PERMISSION_DENIED,
    [REPLY_GONE] = GRPC_NOT_FOUND,
    [REPLY_CONFLICT] = GRPC_ABORTED,
    [REPLY_FULL] = GRPC_RESOURCE_EXHAUSTED,
    [REPLY_UNAVAILABLE] = GRPC_UNAVAILABLE,
};

/* The codes that mean a failure of the server. */
static bool is_failure(enum grpc_status status)
{
    return status == GRPC_UNAVAILABLE || status == GRPC_INTERNAL;
}

static void end_span(struct trace_span *span, enum grpc_status status,
                     const struct request *request, const struct reply *reply)
{
    if (span == NULL)
        return;
    trace_end(span, &(struct trace_end){.status = (int)status,
                                        .has_failed = is_failure(status),
                                        .error = reply->message,
                                        .request = request,
                                        .reply = reply});
}

static void answer(struct grpc_call *call, const struct request *request)
{
    struct grpc_frontend *frontend = call->conn->frontend;
    const struct reply *reply = &frontend->reply;
    if (reply->error != REPLY_DECIDED) {
        bool is_gone = reply->error == REPLY_GONE && call->method->gone != NULL;
        grpc_answer_fail(call, statuses[reply->error],
                         is_gone ? call->method->gone : reply->message);
        return;
    }
    struct span response =
        call->method->write(frontend->rls, frontend->options.form, request, reply);
    if (response.ptr == NULL)
        grpc_answer_fail(call, GRPC_RESOURCE_EXHAUSTED, "no memory for the answer");
    else
        grpc_answer_once(call, response);
}

static struct caller caller_of(const struct grpc_call *call)
{
    const struct access_token *token = call->token;
    const struct grpc_frontend *frontend = call->conn->frontend;
    return (struct caller){
        .name = token != NULL ? token->name : "",
        .roles = token != NULL ? token->roles : access_now_anonymous(frontend->options.access),
        .frontend = METRICS_GRPC,
    };
}

static struct trace_span *begin_span(struct grpc_call *call)
{
    const struct trace_operation operation = {METRICS_GRPC, NULL, call->method->path};
    return service_begin_span(call->conn->frontend->options.service, call->pending, &operation,
                              call->context, call->begun_ns);
}

static void ask_limiter(struct grpc_call *call, struct span message)
{
    struct grpc_conn *conn = call->conn;
    struct grpc_frontend *frontend = conn->frontend;
    struct trace_span *span = frontend->tracer != NULL ? begin_span(call) : NULL;
    const struct request *request;
    struct stint_error error;
    int code = call->method->read(frontend->rls, message, &request, &error);
    if (code < 0) {
        enum grpc_status status =
            code == STINT_E_SYSTEM ? GRPC_RESOURCE_EXHAUSTED : GRPC_INVALID_ARGUMENT;
        grpc_answer_refuse(call, status, error.message);
        end_span(span, status, NULL, &frontend->reply);
        return;
    }
    struct caller caller = caller_of(call);
    caller.span = span;
    struct request again;
    if (call->pending != NULL) {
        again = *request;
        again.pending = call->pending;
        call->pending = NULL;
        request = &again;
    }
    service_ask(frontend->options.service, request, &caller,
                server_clock_now(frontend->clock, conn->now_ns), &frontend->reply);
    if (frontend->reply.error == REPLY_WAITS) {
        call->pending = frontend->reply.pending;
        return;
    }
    conn->n_answered++;
    answer(call, request);
    end_span(span, statuses[frontend->reply.error], request, &frontend->reply);
}

/* ---- Watched health: a message at once, then after every change ------------------------------ */

static enum health_status health_of(const struct grpc_frontend *frontend)
{
    const struct grpc_frontend_options *options = &frontend->options;
    bool is_ready =
        !frontend->is_drained && server_state_is_ready(service_server_state(options->service),
                                                       options->is_ready, options->arg);
    return is_ready ? HEALTH_SERVING : HEALTH_NOT_SERVING;
}

/*
 * Adds a message if the health has changed since the last one; changes between two messages that
 * the peer's window has space for are sent as one. If there is no memory for it, the next check
 * sends it.
 */
static void watch_next(struct grpc_call *call)
{
    struct grpc_conn *conn = call->conn;
    uint8_t message[HEALTH_MESSAGE_MAX];
    enum health_status status =
        call->watches_known ? health_of(conn->frontend) : HEALTH_SERVICE_UNKNOWN;
    if (call->is_ended || call->answer.end > 0 || call->last_sent == (int8_t)status)
        return;
    if (!grpc_answer_add(call, health_write(message, status)))
        return;
    call->last_sent = (int8_t)status;
    call->begun_ns = conn->now_ns;
}

/* After this time without reading, the call ends. */
static bool is_unread(const struct grpc_call *call)
{
    return !call->is_ended && call->answer.end > 0 &&
           call->begun_ns + call->conn->frontend->limits.call_ns <= call->conn->now_ns;
}

static void look_again(const struct grpc_call *call)
{
    struct grpc_conn *conn = call->conn;
    uint64_t at_ns = min_u64(conn->now_ns + GRPC_WATCH_NS, call->ends_ns);
    conn->watch_at_ns = min_u64(conn->watch_at_ns, at_ns);
}

static void end_as_leaving(struct grpc_call *call)
{
    grpc_answer_end(call, GRPC_UNAVAILABLE, "the connection ends: retry on another one");
}

static void begin_watch(struct grpc_call *call, bool is_known)
{
    grpc_call_enlist(call, GRPC_WATCHING);
    call->watches_known = is_known;
    call->last_sent = -1;
    watch_next(call);
    look_again(call);
    if (call->conn->leaving == GRPC_LEAVES)
        end_as_leaving(call);
}

/* Checks that a silent peer is still connected: it must answer a PING with any frame. */
static void look_for_peer(struct grpc_conn *conn)
{
    uint64_t silent_ns = conn->now_ns - conn->heard_ns;
    if (silent_ns >= 2 * GRPC_SILENCE_NS)
        nghttp2_session_terminate_session(conn->session, NGHTTP2_NO_ERROR);
    else if (silent_ns >= GRPC_SILENCE_NS && !conn->is_pinged) {
        conn->is_pinged = true;
        nghttp2_submit_ping(conn->session, NGHTTP2_FLAG_NONE, NULL);
    }
}

static void look(struct grpc_conn *conn)
{
    conn->watch_at_ns = STINT_NEVER_NS;
    if (conn->first[GRPC_WATCHING] != NULL)
        look_for_peer(conn);
    for (struct grpc_call *call = conn->first[GRPC_WATCHING], *next; call != NULL; call = next) {
        next = call->next;
        if (call->ends_ns <= conn->now_ns)
            grpc_answer_end(call, GRPC_DEADLINE_EXCEEDED, NULL);
        watch_next(call);
        if (is_unread(call))
            grpc_call_cut(call);
        else if (!call->is_ended)
            look_again(call);
    }
}

static void end_endless(struct grpc_conn *conn, enum grpc_list list)
{
    for (struct grpc_call *call = conn->first[list], *next; call != NULL; call = next) {
        next = call->next;
        if (call->is_endless)
            end_as_leaving(call);
    }
}

static void leave(struct grpc_conn *conn)
{
    look(conn);
    end_endless(conn, GRPC_WATCHING);
    end_endless(conn, GRPC_TIMED);
}

/* ---- Health and reflection ------------------------------------------------------------------- */

static void ask_health(struct grpc_call *call, struct span message)
{
    uint8_t response[HEALTH_MESSAGE_MAX];
    enum health_status status = health_of(call->conn->frontend);
    struct span service;
    struct stint_error error;
    if (health_read(message, &service, &error) < 0)
        grpc_answer_refuse(call, GRPC_INVALID_ARGUMENT, error.message);
    else if (call->method->is_endless)
        begin_watch(call, health_knows(service));
    else if (!health_knows(service))
        grpc_answer_fail(call, GRPC_NOT_FOUND, "no such service");
    else
        grpc_answer_once(call, health_write(response, status));
    call->conn->n_answered++;
}

static void ask_health_list(struct grpc_call *call, struct span message)
{
    uint8_t response[HEALTH_MESSAGE_MAX];
    (void)message;
    grpc_answer_once(call, health_write_list(response, health_of(call->conn->frontend)));
    call->conn->n_answered++;
}

#define REFLECTION_WORK 2          /* units, of an answer */
#define REFLECTION_WORK_BYTES 4096 /* of an answer, for one more unit */

static void ask_reflection(struct grpc_call *call, struct span message)
{
    struct grpc_conn *conn = call->conn;
    struct stint_error error;
    struct span answer = {0};
    int code = reflection_answer(message, &conn->frontend->reflection, &answer, &error);
    conn->work += REFLECTION_WORK + answer.len / REFLECTION_WORK_BYTES;
    if (code < 0 && code != STINT_E_SYSTEM)
        grpc_answer_refuse(call, GRPC_INVALID_ARGUMENT, error.message);
    else if (code < 0 || !grpc_answer_add(call, answer))
        grpc_answer_refuse(call, GRPC_RESOURCE_EXHAUSTED, "no memory for the answer");
}

/* ---- The table ------------------------------------------------------------------------------- */

#define ENVOY "/envoy.service.ratelimit.v3.RateLimitService/"
#define KUADRANT "/kuadrant.service.ratelimit.v1.RateLimitService/"
#define HEALTH "/grpc.health.v1.Health/"
#define REFLECTION(version) "/grpc.reflection." version ".ServerReflection/ServerReflectionInfo"
#define LIMITER .ask = ask_limiter, .needs_token = true
#define REFLECTS .ask = ask_reflection, .is_endless = true, .takes_many = true

/* clang-format off */
static const struct grpc_method methods[] = {
    {ENVOY "ShouldRateLimit", LIMITER, .read = rls_read, .write = rls_write},
    {KUADRANT "CheckRateLimit", LIMITER, .read = kuadrant_read_check, .write = rls_write},
    {KUADRANT "Report", LIMITER, .read = kuadrant_read_report, .write = rls_write},
    {KUADRANT "Reserve", LIMITER, .read = kuadrant_read_reserve, .write = kuadrant_write_reserve},
    {KUADRANT "Commit", LIMITER, .read = kuadrant_read_commit, .write = kuadrant_write_commit,
     .gone = "the reservation was committed, has ended, or never was; nothing was charged. To "
             "record use that no reservation covers, leave reservation_id empty"},
    {HEALTH "Check", .ask = ask_health},
    {HEALTH "Watch", .ask = ask_health, .on_read = watch_next, .is_endless = true},
    {HEALTH "List", .ask = ask_health_list},
    {REFLECTION("v1"), REFLECTS},
    {REFLECTION("v1alpha"), REFLECTS},
    {.path = NULL},
};
/* clang-format on */

/* ---- The end of a connection ----------------------------------------------------------------- */

/*
 * A first GOAWAY that still permits all calls; after the peer has seen it, a second that names the
 * last accepted call; then the end of the calls.
 */

static void leave_begin(struct grpc_conn *conn)
{
    if (conn->leaving != GRPC_STAYS || conn->is_broken)
        return;
    /*
     * A new peer gets GOAWAY after our first frames, once its own have come: a client that is cut
     * off earlier treats the server as broken, and fails its calls.
     */
    conn->leaving = GRPC_NOTICED;
    conn->notice_at_ns = conn->now_ns + GRPC_NOTICE_NS;
    nghttp2_submit_shutdown_notice(conn->session);
    nghttp2_submit_ping(conn->session, NGHTTP2_FLAG_NONE, NULL);
}

/* The peer has answered the first GOAWAY, or its time is over. */
static void leave_now(struct grpc_conn *conn)
{
    if (conn->leaving == GRPC_LEAVES || conn->is_broken)
        return;
    if (!conn->has_begun) {
        conn->is_over = true;
        return;
    }
    conn->leaving = GRPC_LEAVES;
    conn->notice_at_ns = STINT_NEVER_NS;
    nghttp2_submit_goaway(conn->session, NGHTTP2_FLAG_NONE,
                          nghttp2_session_get_last_proc_stream_id(conn->session), NGHTTP2_NO_ERROR,
                          NULL, 0);
    leave(conn);
}

/* Connections that were made at the same time should not all be remade at the same time. */
static uint64_t leave_age(struct grpc_frontend *frontend, uint64_t now_ns)
{
    const uint64_t secret[2] = {service_worker(frontend->options.service), frontend->n_opened++};
    uint64_t age_ns = frontend->limits.age_ns;
    if (age_ns == 0)
        return STINT_NEVER_NS;
    uint64_t chance = siphash13_128(secret, now_ns, NULL, 0).lo;
    return now_ns + age_ns - age_ns / 10 + chance % (age_ns / 5 + 1);
}

/* ---- Frames that cost their sender little ---------------------------------------------------- */

static void end_abuse(struct grpc_conn *conn)
{
    /* Input after this frame is ignored. */
    nghttp2_session_terminate_session(conn->session, NGHTTP2_ENHANCE_YOUR_CALM);
}

/*
 * A leaky bucket: each such frame adds time to a debt; passing time and answered calls reduce it.
 * As many calls as the bucket has frames empty it.
 */
static void count_cheap(struct grpc_conn *conn)
{
    uint64_t frames = conn->frontend->limits.idle_frames, cost_ns = GRPC_ABUSE_NS / frames;
    uint64_t forgiven_ns = min_u64(conn->n_answered, frames) * FRAMES_OF_A_CALL * cost_ns;
    uint64_t leaked_ns = conn->now_ns - conn->idle_seen_ns;
    conn->idle_debt_ns -= min_u64(conn->idle_debt_ns, forgiven_ns);
    conn->idle_debt_ns -= min_u64(conn->idle_debt_ns, leaked_ns);
    conn->idle_seen_ns = conn->now_ns;
    conn->n_answered = 0;
    conn->idle_debt_ns += cost_ns;
    if (conn->idle_debt_ns > GRPC_ABUSE_NS)
        end_abuse(conn);
}

/* ---- The session: callbacks of nghttp2 ------------------------------------------------------- */

static struct grpc_call *find_call(struct grpc_conn *conn, int32_t id)
{
    if (conn->recent == NULL || conn->recent->id != id)
        conn->recent = nghttp2_session_get_stream_user_data(conn->session, id);
    return conn->recent;
}

static bool is_cheap(const nghttp2_frame_hd *head)
{
    if (head->type == NGHTTP2_DATA)
        return head->length == 0 && (head->flags & NGHTTP2_FLAG_END_STREAM) == 0;
    return head->type != NGHTTP2_HEADERS;
}

static int begin_frame(nghttp2_session *session, const nghttp2_frame_hd *head, void *arg)
{
    struct grpc_conn *conn = arg;
    (void)session;
    conn->has_begun = true;
    if (is_cheap(head))
        count_cheap(conn);
    return 0;
}

static int invalid_frame(nghttp2_session *session, const nghttp2_frame *frame, int code, void *arg)
{
    struct grpc_conn *conn = arg;
    (void)session, (void)frame, (void)code;
    grpc_count_malformed(conn->frontend);
    count_cheap(conn);
    return 0;
}

static int begin_fields(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct grpc_conn *conn = arg;
    conn->field_bytes = 0;
    conn->current = NULL;
    if (frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    struct grpc_call *call = grpc_call_new(conn, frame->hd.stream_id);
    if (call == NULL)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, call);
    conn->current = conn->recent = call;
    return 0;
}

static int take_field(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                      size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                      void *arg)
{
    struct grpc_conn *conn = arg;
    size_t limit = conn->frontend->limits.header_bytes;
    (void)session, (void)frame, (void)flags;
    /* RFC 9113, 6.5.2: the size of a field is that of its name and value, and 32. */
    conn->field_bytes += name_len + value_len + 32;
    if (conn->field_bytes > BOMB * limit)
        end_abuse(conn);
    if (conn->current == NULL)
        return 0;
    if (conn->field_bytes > limit)
        conn->current->said |= GRPC_SAID_TOO_MUCH;
    else
        grpc_call_take_field(conn->current, span_of(name, name_len), span_of(value, value_len));
    return 0;
}

static int take_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes,
                     size_t len, void *arg)
{
    struct grpc_call *call = find_call(arg, id);
    (void)session;
    if (call != NULL)
        grpc_call_take_data(call, span_of(bytes, len), (flags & NGHTTP2_FLAG_END_STREAM) != 0);
    return 0;
}

static void end_of_call(struct grpc_conn *conn, const nghttp2_frame *frame)
{
    struct grpc_call *call = find_call(conn, frame->hd.stream_id);
    if (call != NULL)
        grpc_call_end(call);
}

static void take_fields(struct grpc_conn *conn, const nghttp2_frame *frame)
{
    struct grpc_call *call = conn->current;
    bool is_last = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    conn->current = NULL;
    if (call != NULL) {
        call->is_at_end = is_last;
        grpc_call_end_fields(call);
    }
    if (is_last)
        end_of_call(conn, frame);
}

static int take_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct grpc_conn *conn = arg;
    (void)session;
    switch (frame->hd.type) {
    case NGHTTP2_DATA:
        if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0)
            end_of_call(conn, frame);
        else if (frame->hd.length > 0 && frame->hd.length == frame->data.padlen)
            count_cheap(conn); /* empty, despite its length */
        break;
    case NGHTTP2_HEADERS:
        take_fields(conn, frame);
        break;
    case NGHTTP2_PING:
        if ((frame->hd.flags & NGHTTP2_FLAG_ACK) != 0 && conn->leaving == GRPC_NOTICED)
            leave_now(conn);
        break;
    case NGHTTP2_GOAWAY:
        /* The peer makes no more calls: there is nothing to wait for. */
        if (conn->leaving == GRPC_NOTICED)
            leave_now(conn);
        conn->is_left = true;
        break;
    default:
        break;
    }
    return 0;
}

/* A whole answer was sent: tells the peer to stop the rest of its request. */
static int sent_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct grpc_conn *conn = arg;
    if (!conn->answers_early || frame->hd.type != NGHTTP2_HEADERS ||
        (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) == 0)
        return 0;
    const struct grpc_call *call = find_call(conn, frame->hd.stream_id);
    if (call != NULL && !call->is_at_end)
        nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, call->id, NGHTTP2_NO_ERROR);
    return 0;
}

static int close_stream(nghttp2_session *session, int32_t id, uint32_t code, void *arg)
{
    struct grpc_call *call = find_call(arg, id);
    (void)session, (void)code;
    if (call != NULL)
        grpc_call_free(call);
    return 0;
}

static bool prepare_sessions(struct grpc_frontend *frontend)
{
    if (nghttp2_session_callbacks_new(&frontend->callbacks) != 0 ||
        nghttp2_option_new(&frontend->options_of_session) != 0)
        return false;
    nghttp2_session_callbacks *callbacks = frontend->callbacks;
    nghttp2_session_callbacks_set_on_begin_frame_callback(callbacks, begin_frame);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(callbacks, invalid_frame);
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, begin_fields);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, take_field);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, take_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, take_frame);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, sent_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, close_stream);
    nghttp2_option *options = frontend->options_of_session;
    nghttp2_option_set_no_closed_streams(options, 1);
    nghttp2_option_set_max_reserved_remote_streams(options, 0);
    /* The frontend enforces both limits itself; nghttp2 must not do it first. */
    nghttp2_option_set_max_outbound_ack(options, 2 * frontend->limits.idle_frames + 16);
    nghttp2_option_set_stream_reset_rate_limit(options, UINT64_MAX, UINT64_MAX);
    return true;
}

static bool open_session(struct grpc_conn *conn)
{
    const struct grpc_frontend *frontend = conn->frontend;
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, (uint32_t)frontend->limits.streams},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, (uint32_t)frontend->limits.header_bytes},
        {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
    };
    return nghttp2_session_server_new2(&conn->session, frontend->callbacks, conn,
                                       frontend->options_of_session) == 0 &&
           nghttp2_submit_settings(conn->session, NGHTTP2_FLAG_NONE, settings,
                                   sizeof(settings) / sizeof(settings[0])) == 0 &&
           nghttp2_session_set_local_window_size(conn->session, NGHTTP2_FLAG_NONE, 0,
                                                 GRPC_WINDOW) == 0;
}

/* Writes GOAWAY for a session that must not be used any more. */
static void send_goaway(struct grpc_conn *conn, uint8_t code)
{
    const uint8_t frame[17] = {0, 0, 8, NGHTTP2_GOAWAY, [16] = code};
    if (conn->has_begun)
        grpc_keep(conn, &conn->out, &conn->buffer_bytes, span_of(frame, sizeof(frame)));
}

static void feed_session(struct grpc_conn *conn, struct span bytes)
{
    ssize_t done = nghttp2_session_mem_recv(conn->session, bytes.ptr, bytes.len);
    if (conn->lender != NULL)
        grpc_call_keep_borrowed(conn->lender);
    if (done >= 0)
        return;
    grpc_count_malformed(conn->frontend);
    send_goaway(conn, done == NGHTTP2_ERR_FLOODED || done == NGHTTP2_ERR_TOO_MANY_CONTINUATIONS
                          ? NGHTTP2_ENHANCE_YOUR_CALM
                          : NGHTTP2_INTERNAL_ERROR);
    conn->is_broken = conn->is_over = true;
}

/* ---- Output ---------------------------------------------------------------------------------- */

static bool is_backpressured(const struct conn *base)
{
    const struct grpc_conn *conn = (const void *)base;
    return grpc_output_is_unread(conn) || conn->rest.end > 0 || conn->asks_wait;
}

static bool has_work(const struct conn *base)
{
    const struct grpc_conn *conn = (const void *)base;
    return !conn->is_over && (conn->rest.end > 0 || conn->asks_wait) &&
           !grpc_output_is_unread(conn);
}

static struct span output(struct conn *base)
{
    struct grpc_conn *conn = (void *)base;
    conn->is_fed = false;
    return byte_queue_span(&conn->out);
}

static void sent(struct conn *base, size_t len, uint64_t now_ns)
{
    struct grpc_conn *conn = (void *)base;
    size_t size = conn->out.size;
    conn->now_ns = now_ns;
    byte_queue_take(&conn->out, len, KEPT_BYTES);
    grpc_count_held(conn, &conn->buffer_bytes, conn->out.size - size);
    grpc_output_settle(conn);
}

/* ---- Input ----------------------------------------------------------------------------------- */

/*
 * Reads slice by slice and writes the output of each, until the turn is over or the output is full;
 * returns the unread bytes.
 */
static struct span take_turn(struct grpc_conn *conn, struct span bytes)
{
    while (bytes.len > 0 && !conn->is_over && !grpc_turn_is_over(conn) &&
           !grpc_output_is_unread(conn)) {
        size_t len = GRPC_SLICE;
        if (http2_frames_take(&conn->frames, bytes, &len))
            conn->frame_since_ns = conn->now_ns;
        feed_session(conn, span_of(bytes.ptr, len));
        bytes = span_of(bytes.ptr + len, bytes.len - len);
        if (conn->has_begun && !conn->is_over)
            grpc_output_settle(conn);
    }
    return bytes;
}

/* Keeps bytes for the next turn; the socket is not read meanwhile. */
static void keep_rest(struct grpc_conn *conn, struct span bytes)
{
    if (bytes.len == 0 || conn->is_over)
        return;
    if (!grpc_keep(conn, &conn->rest, &conn->buffer_bytes, bytes))
        conn->is_broken = conn->is_over = true;
}

static void go_on(struct grpc_conn *conn)
{
    conn->work = 0;
    if (conn->asks_wait)
        grpc_calls_go_on(conn);
    if (conn->rest.end == 0)
        return;
    struct span rest = take_turn(conn, byte_queue_span(&conn->rest));
    conn->rest.start = conn->rest.end - rest.len;
    if (rest.len == 0 || conn->is_over)
        grpc_release(conn, &conn->rest, &conn->buffer_bytes);
}

static void feed(struct conn *base, struct span bytes, uint64_t now_ns)
{
    struct grpc_conn *conn = (void *)base;
    if (conn->is_over)
        return;
    conn->work = conn->is_fed ? conn->work : 0;
    conn->is_fed = true;
    conn->now_ns = conn->heard_ns = now_ns;
    conn->is_pinged = false;
    if (conn->rest.end == 0)
        bytes = take_turn(conn, bytes);
    keep_rest(conn, bytes);
    grpc_output_settle(conn);
}

static bool is_over(const struct conn *base)
{
    const struct grpc_conn *conn = (const void *)base;
    return conn->is_over;
}

/*
 * An incomplete preface, frame or header block is an incomplete request, too, even if it belongs to
 * no call.
 */
static bool is_busy(const struct conn *base)
{
    const struct grpc_conn *conn = (const void *)base;
    return !conn->is_over && (conn->n_calls > 0 || conn->rest.end > 0 ||
                              (conn->frames.preface_len > 0 && !conn->has_begun) ||
                              http2_frames_are_open(&conn->frames));
}

/* ---- Deadlines ------------------------------------------------------------------------------- */

/* While input waits for its turn, or for space for its replies, the peer may have sent the rest. */
static uint64_t frame_ends_ns(const struct grpc_conn *conn)
{
    bool is_late = http2_frames_are_open(&conn->frames) && conn->rest.end == 0;
    return is_late ? conn->frame_since_ns + conn->frontend->limits.call_ns : STINT_NEVER_NS;
}

static uint64_t deadline(const struct conn *base)
{
    const struct grpc_conn *conn = (const void *)base;
    if (conn->is_over)
        return STINT_NEVER_NS;
    return min_u64(
        min_u64(min_u64(conn->age_at_ns, conn->grace_at_ns),
                min_u64(conn->notice_at_ns, conn->watch_at_ns)),
        min_u64(min_u64(conn->waits_end_ns, grpc_calls_end_ns(conn)), frame_ends_ns(conn)));
}

/* Input after an incomplete frame cannot be read. */
static void end_late_frame(struct grpc_conn *conn)
{
    if (frame_ends_ns(conn) > conn->now_ns)
        return;
    if (conn->has_begun)
        end_abuse(conn);
    else
        conn->is_over = true;
    conn->frames = (struct http2_frames){.preface_len = HTTP2_PREFACE};
}

static void wake(struct conn *base, uint64_t now_ns)
{
    struct grpc_conn *conn = (void *)base;
    if (conn->is_over)
        return;
    conn->now_ns = now_ns;
    go_on(conn);
    if (conn->is_over)
        return;
    grpc_calls_end_late(conn);
    end_late_frame(conn);
    if (conn->watch_at_ns <= now_ns)
        look(conn);
    if (conn->notice_at_ns <= now_ns)
        leave_now(conn);
    if (conn->age_at_ns <= now_ns) {
        uint64_t grace_ns = conn->frontend->limits.age_grace_ns;
        conn->age_at_ns = STINT_NEVER_NS;
        conn->grace_at_ns = grace_ns > 0 ? now_ns + grace_ns : STINT_NEVER_NS;
        leave_begin(conn);
    }
    if (conn->grace_at_ns <= now_ns) {
        conn->grace_at_ns = STINT_NEVER_NS;
        nghttp2_session_terminate_session(conn->session, NGHTTP2_NO_ERROR);
    }
    grpc_output_settle(conn);
}

static void end_calls(struct grpc_conn *conn, bool waits, uint64_t now_ns)
{
    if (conn->is_over)
        return;
    conn->now_ns = now_ns;
    look(conn);
    (waits ? leave_begin : leave_now)(conn);
    grpc_output_settle(conn);
}

static void drain(struct conn *base, uint64_t now_ns)
{
    struct grpc_conn *conn = (void *)base;
    end_calls(conn, conn->leaving == GRPC_STAYS && !conn->is_left, now_ns);
}

/* Open calls have the time of a drain, whose second GOAWAY finds out that the peer has gone. */
static void end_input(struct conn *base, uint64_t now_ns)
{
    struct grpc_conn *conn = (void *)base;
    end_calls(conn, conn->rest.end > 0 || conn->n_calls > 0, now_ns);
}

/* ---- Opening and closing --------------------------------------------------------------------- */

static size_t held(const struct conn *base)
{
    const struct grpc_conn *conn = (const void *)base;
    return conn->held_bytes + conn->answer_bytes + conn->buffer_bytes +
           conn->n_calls * (sizeof(struct grpc_call) + STREAM_BYTES);
}

static void free_conn(struct conn *base)
{
    struct grpc_conn *conn = (void *)base;
    nghttp2_session_del(conn->session);
    for (int list = 0; list < GRPC_LISTS; list++)
        while (conn->first[list] != NULL)
            grpc_call_free(conn->first[list]);
    access_unref(conn->identity.tokens);
    grpc_release(conn, &conn->out, &conn->buffer_bytes);
    grpc_release(conn, &conn->rest, &conn->buffer_bytes);
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
    .end_input = end_input,
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
    conn->age_at_ns = leave_age(frontend, now_ns);
    conn->grace_at_ns = conn->notice_at_ns = STINT_NEVER_NS;
    conn->watch_at_ns = conn->waits_end_ns = STINT_NEVER_NS;
    if (!open_session(conn)) {
        free_conn(&conn->conn);
        return NULL;
    }
    return &conn->conn;
}

/* ---- The frontend ---------------------------------------------------------------------------- */

static struct grpc_limits limits_of(const struct grpc_limits *limits)
{
    struct grpc_limits all = limits != NULL ? *limits : (struct grpc_limits){0};
    all.message_bytes = conn_limit(all.message_bytes, (size_t)1 << 20);
    all.header_bytes = conn_limit(all.header_bytes, (size_t)16 << 10);
    all.streams = conn_limit(all.streams, 1000);
    all.output_bytes = conn_limit(all.output_bytes, (size_t)256 << 10);
    all.idle_frames = conn_limit(all.idle_frames, 1000);
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
    frontend->methods = methods;
    frontend->clock = server_state_clock(service_server_state(options->service));
    frontend->tracer = service_tracer(options->service);
    frontend->limits = limits_of(options->limits);
    frontend->options.form = options->form != NULL ? options->form : &plain;
    struct metrics *metrics = server_state_metrics(service_server_state(options->service));
    if (metrics != NULL)
        frontend->metrics = metrics_worker(metrics, service_worker(options->service));
    frontend->generation = UINT64_MAX; /* of no set: the first check gets the tokens */
    frontend->rls = rls_call_new();
    if (frontend->rls == NULL || !prepare_sessions(frontend)) {
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
    free(frontend->reflection);
    access_unref(frontend->tokens);
    free(frontend);
}

void grpc_frontend_set_call_time(struct grpc_frontend *frontend, uint64_t call_ns)
{
    frontend->limits.call_ns = call_ns;
}

void grpc_frontend_drain(struct grpc_frontend *frontend)
{
    frontend->is_drained = true;
}
