/* SPDX-License-Identifier: MIT */
/* What each method does with a message. */
#include "frontend/grpc/grpc_call.h"
#include "proto/grpc/grpc.h"
#include "proto/grpc/kuadrant.h"
#include "service/server_clock.h"

#define RESERVATION_GONE                                                                           \
    "the reservation was committed, has ended, or never was; nothing was charged. To record use "  \
    "that no reservation covers, leave reservation_id empty"

/* ---- Methods of the limiter ------------------------------------------------------------------ */

static const enum grpc_status statuses[REPLY_AHEAD + 1] = {
    [REPLY_BAD_REQUEST] = GRPC_INVALID_ARGUMENT,
    [REPLY_FORBIDDEN] = GRPC_PERMISSION_DENIED,
    [REPLY_GONE] = GRPC_NOT_FOUND,
    [REPLY_CONFLICT] = GRPC_ABORTED,
    [REPLY_FULL] = GRPC_RESOURCE_EXHAUSTED,
    [REPLY_UNAVAILABLE] = GRPC_UNAVAILABLE,
};

static struct span write_envoy(struct grpc_frontend *frontend, const struct request *request)
{
    return rls_write(frontend->rls, frontend->options.form, request, &frontend->reply);
}

static struct span write_reserve(struct grpc_frontend *frontend, const struct request *request)
{
    return kuadrant_write_reserve(frontend->rls, request, &frontend->reply);
}

static struct span write_commit(struct grpc_frontend *frontend, const struct request *request)
{
    return kuadrant_write_commit(frontend->rls, request);
}

static const struct {
    int (*read)(struct rls_call *call, struct span message, const struct request **request,
                struct stint_error *error);
    struct span (*write)(struct grpc_frontend *frontend, const struct request *request);
} limiter_methods[] = {
    [GRPC_SHOULD_RATE_LIMIT] = {rls_read, write_envoy},
    [GRPC_CHECK_RATE_LIMIT] = {kuadrant_read_check, write_envoy},
    [GRPC_REPORT] = {kuadrant_read_report, write_envoy},
    [GRPC_RESERVE] = {kuadrant_read_reserve, write_reserve},
    [GRPC_COMMIT] = {kuadrant_read_commit, write_commit},
};

static void answer(struct grpc_call *call, const struct request *request)
{
    struct grpc_frontend *frontend = call->conn->frontend;
    const struct reply *reply = &frontend->reply;
    if (reply->error != REPLY_DECIDED) {
        const char *message = reply->message;
        if (call->method == GRPC_COMMIT && reply->error == REPLY_GONE)
            message = RESERVATION_GONE;
        grpc_answer_fail(call, statuses[reply->error], message);
        return;
    }
    struct span response = limiter_methods[call->method].write(frontend, request);
    if (response.ptr == NULL)
        grpc_answer_fail(call, GRPC_RESOURCE_EXHAUSTED, "no memory for the answer");
    else
        grpc_answer_once(call, response);
}

static struct caller caller_of(const struct grpc_call *call)
{
    const struct access_token *token = call->token;
    return (struct caller){
        .name = token != NULL ? token->name : "",
        .roles = token != NULL ? token->roles : ACCESS_ALL,
        .frontend = METRICS_GRPC,
    };
}

static void ask_limiter(struct grpc_call *call, struct span message)
{
    struct grpc_conn *conn = call->conn;
    struct grpc_frontend *frontend = conn->frontend;
    const struct request *request;
    struct stint_error error;
    int code = limiter_methods[call->method].read(frontend->rls, message, &request, &error);
    if (code < 0) {
        grpc_answer_refuse(call,
                           code == STINT_E_SYSTEM ? GRPC_RESOURCE_EXHAUSTED : GRPC_INVALID_ARGUMENT,
                           error.message);
        return;
    }
    struct caller caller = caller_of(call);
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
    if (call->is_ended || call->answer.len > 0 || call->last_sent == (int8_t)status)
        return;
    size_t len = health_write(message, status);
    if (!grpc_answer_add(call, span_of(message, len)))
        return;
    call->last_sent = (int8_t)status;
    call->begun_ns = conn->now_ns;
}

/* After this time without reading, the call ends. */
static bool is_unread(const struct grpc_call *call)
{
    return !call->is_ended && call->answer.len > 0 &&
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

void grpc_methods_look(struct grpc_conn *conn)
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

void grpc_methods_leave(struct grpc_conn *conn)
{
    grpc_methods_look(conn);
    end_endless(conn, GRPC_WATCHING);
    end_endless(conn, GRPC_TIMED);
}

/* ---- Health and reflection ------------------------------------------------------------------- */

static void ask_health(struct grpc_call *call, struct span message)
{
    uint8_t response[HEALTH_MESSAGE_MAX], name[HEALTH_NAME_MAX];
    enum health_status status = health_of(call->conn->frontend);
    struct span service;
    struct stint_error error;
    if (call->method == GRPC_HEALTH_LIST)
        grpc_answer_once(call, span_of(response, health_write_list(response, status)));
    else if (health_read(message, name, &service, &error) < 0)
        grpc_answer_refuse(call, GRPC_INVALID_ARGUMENT, error.message);
    else if (call->method == GRPC_HEALTH_WATCH)
        begin_watch(call, health_knows(service));
    else if (!health_knows(service))
        grpc_answer_fail(call, GRPC_NOT_FOUND, "no such service");
    else
        grpc_answer_once(call, span_of(response, health_write(response, status)));
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

#define LIMITER                                                                                    \
    {                                                                                              \
        .ask = ask_limiter, .needs_token = true                                                    \
    }
#define REFLECTION                                                                                 \
    {                                                                                              \
        .ask = ask_reflection, .is_endless = true, .takes_many = true                              \
    }

const struct grpc_handler grpc_methods[] = {
    [GRPC_SHOULD_RATE_LIMIT] = LIMITER,
    [GRPC_CHECK_RATE_LIMIT] = LIMITER,
    [GRPC_REPORT] = LIMITER,
    [GRPC_RESERVE] = LIMITER,
    [GRPC_COMMIT] = LIMITER,
    [GRPC_HEALTH_CHECK] = {.ask = ask_health},
    [GRPC_HEALTH_WATCH] = {.ask = ask_health, .on_read = watch_next, .is_endless = true},
    [GRPC_HEALTH_LIST] = {.ask = ask_health},
    [GRPC_REFLECTION] = REFLECTION,
    [GRPC_REFLECTION_ALPHA] = REFLECTION,
};
