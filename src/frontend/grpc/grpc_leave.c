/* SPDX-License-Identifier: MIT */
/*
 * How a connection ends: one GOAWAY that forbids nothing yet, then, when the peer has seen it, one
 * that names the last call that is taken, then the end of the calls.
 */
#include "frontend/grpc/grpc_parts.h"

#include "base/siphash.h"

static void end_endless(struct grpc_conn *conn, enum grpc_list list)
{
    for (struct grpc_call *call = conn->first[list], *next; call != NULL; call = next) {
        next = call->next;
        if (call->is_endless)
            grpc_answer_end(call, GRPC_UNAVAILABLE, "the connection ends: ask on another one");
    }
}

void grpc_leave_now(struct grpc_conn *conn)
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
    /* These would go on for as long as somebody wants to know. */
    grpc_watch_look(conn);
    end_endless(conn, GRPC_WATCHING);
    end_endless(conn, GRPC_TIMED);
}

void grpc_leave_begin(struct grpc_conn *conn)
{
    if (conn->leaving != GRPC_STAYS || conn->is_broken)
        return;
    /*
     * Who has just connected is told behind our first frames, once his are there: cut off before
     * them he would take it for a server that is out of order, and fail what he wanted to ask.
     */
    conn->leaving = GRPC_NOTICED;
    conn->notice_at_ns = conn->now_ns + GRPC_NOTICE_NS;
    nghttp2_submit_shutdown_notice(conn->session);
    nghttp2_submit_ping(conn->session, NGHTTP2_FLAG_NONE, NULL);
}

/* Connections that were made at once are not to be made anew at once. */
uint64_t grpc_leave_age(struct grpc_frontend *frontend, uint64_t now_ns)
{
    const uint64_t secret[2] = {service_worker(frontend->options.service), frontend->n_opened++};
    uint64_t age_ns = frontend->limits.age_ns;
    if (age_ns == 0)
        return STINT_NEVER_NS;
    uint64_t chance = siphash13_128(secret, now_ns, NULL, 0).lo;
    return now_ns + age_ns - age_ns / 10 + chance % (age_ns / 5 + 1);
}
