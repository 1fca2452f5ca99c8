/* SPDX-License-Identifier: MIT */
/*
 * The end of a connection: a first GOAWAY that still permits all calls; after the peer has seen it,
 * a second that names the last accepted call; then the end of the calls.
 */
#include "frontend/grpc/grpc_parts.h"

#include "base/siphash.h"

static void end_endless(struct grpc_conn *conn, enum grpc_list list)
{
    for (struct grpc_call *call = conn->first[list], *next; call != NULL; call = next) {
        next = call->next;
        if (call->is_endless)
            grpc_answer_end(call, GRPC_UNAVAILABLE, "the connection ends: retry on another one");
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
    /* These have no end of their own. */
    grpc_watch_look(conn);
    end_endless(conn, GRPC_WATCHING);
    end_endless(conn, GRPC_TIMED);
}

void grpc_leave_begin(struct grpc_conn *conn)
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

/* Connections that were made at the same time should not all be remade at the same time. */
uint64_t grpc_leave_age(struct grpc_frontend *frontend, uint64_t now_ns)
{
    const uint64_t secret[2] = {service_worker(frontend->options.service), frontend->n_opened++};
    uint64_t age_ns = frontend->limits.age_ns;
    if (age_ns == 0)
        return STINT_NEVER_NS;
    uint64_t chance = siphash13_128(secret, now_ns, NULL, 0).lo;
    return now_ns + age_ns - age_ns / 10 + chance % (age_ns / 5 + 1);
}
