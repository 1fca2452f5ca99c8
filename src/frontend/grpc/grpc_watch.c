/* SPDX-License-Identifier: MIT */
/*
 * Watched health: a message at once, then after every change. Changes between two messages that the
 * peer's window has space for are sent as one.
 */
#include "frontend/grpc/grpc_parts.h"

enum health_status grpc_health(const struct grpc_frontend *frontend)
{
    const struct grpc_frontend_options *options = &frontend->options;
    bool is_ready =
        !frontend->is_drained && server_state_is_ready(service_server_state(options->service),
                                                       options->is_ready, options->arg);
    return is_ready ? HEALTH_SERVING : HEALTH_NOT_SERVING;
}

static enum health_status health_of(const struct grpc_call *call)
{
    return call->watches_known ? grpc_health(call->conn->frontend) : HEALTH_SERVICE_UNKNOWN;
}

/* If there is no memory for a message, the next check sends it. */
bool grpc_watch_next(struct grpc_call *call)
{
    uint8_t message[HEALTH_MESSAGE_MAX];
    enum health_status status = health_of(call);
    if (call->is_ended || call->answer.len > 0 || call->told == (int8_t)status)
        return false;
    size_t len = health_write(message, status);
    if (!grpc_answer_add(call, span_of(message, len)))
        return false;
    call->told = (int8_t)status;
    call->begun_ns = call->conn->now_ns;
    return true;
}

/* After this time without reading, the call ends. */
static bool is_unread(const struct grpc_call *call)
{
    return !call->is_ended && call->answer.len > 0 &&
           call->begun_ns + call->conn->frontend->limits.call_ns <= call->conn->now_ns;
}

static void look_again(struct grpc_conn *conn, uint64_t at_ns)
{
    if (at_ns < conn->watch_at_ns)
        conn->watch_at_ns = at_ns;
}

static void enter(struct grpc_conn *conn)
{
    struct grpc_frontend *frontend = conn->frontend;
    conn->next_watching = frontend->watching;
    conn->prev_watching = NULL;
    if (frontend->watching != NULL)
        frontend->watching->prev_watching = conn;
    frontend->watching = conn;
}

void grpc_watch_leave(struct grpc_conn *conn)
{
    if (conn->first[GRPC_WATCHING] != NULL)
        return;
    conn->watch_at_ns = STINT_NEVER_NS;
    *(conn->prev_watching != NULL ? &conn->prev_watching->next_watching
                                  : &conn->frontend->watching) = conn->next_watching;
    if (conn->next_watching != NULL)
        conn->next_watching->prev_watching = conn->prev_watching;
}

void grpc_watch_begin(struct grpc_call *call, bool is_known)
{
    struct grpc_conn *conn = call->conn;
    if (conn->first[GRPC_WATCHING] == NULL)
        enter(conn);
    grpc_call_enlist(call, GRPC_WATCHING);
    call->watches_known = is_known;
    call->told = -1;
    grpc_watch_next(call);
    look_again(conn, conn->now_ns + GRPC_WATCH_NS);
    look_again(conn, call->ends_ns);
    if (conn->leaving == GRPC_LEAVES)
        grpc_answer_end(call, GRPC_UNAVAILABLE, "the connection ends: retry on another one");
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

void grpc_watch_look(struct grpc_conn *conn)
{
    conn->watch_at_ns = STINT_NEVER_NS;
    if (conn->first[GRPC_WATCHING] != NULL)
        look_for_peer(conn);
    for (struct grpc_call *call = conn->first[GRPC_WATCHING], *next; call != NULL; call = next) {
        next = call->next;
        if (call->ends_ns <= conn->now_ns)
            grpc_answer_end(call, GRPC_DEADLINE_EXCEEDED, NULL);
        if (!grpc_watch_next(call) && is_unread(call))
            grpc_call_cut(call);
        else if (!call->is_ended) {
            look_again(conn, conn->now_ns + GRPC_WATCH_NS);
            look_again(conn, call->ends_ns);
        }
    }
}
