/* SPDX-License-Identifier: MIT */
/*
 * A leaky bucket for frames that cost their sender little and the server something: each frame adds
 * time to a debt; passing time and answered calls reduce it.
 */
#include "frontend/grpc/grpc_parts.h"

/* Frames beside a call of a normal client: updates of two windows, a ping, and one to spare. */
#define FRAMES_OF_A_CALL 4

static uint64_t cost_ns(const struct grpc_conn *conn)
{
    return GRPC_ABUSE_NS / conn->frontend->limits.idle_frames;
}

void grpc_abuse_end(struct grpc_conn *conn)
{
    /* Input after this frame is ignored. */
    nghttp2_session_terminate_session(conn->session, NGHTTP2_ENHANCE_YOUR_CALM);
}

void grpc_abuse_count(struct grpc_conn *conn)
{
    uint64_t leaked_ns = conn->now_ns - conn->idle_seen_ns;
    conn->idle_debt_ns -= leaked_ns < conn->idle_debt_ns ? leaked_ns : conn->idle_debt_ns;
    conn->idle_seen_ns = conn->now_ns;
    conn->idle_debt_ns += cost_ns(conn);
    if (conn->idle_debt_ns > GRPC_ABUSE_NS)
        grpc_abuse_end(conn);
}

void grpc_abuse_forgive(struct grpc_conn *conn)
{
    if (conn->idle_debt_ns == 0)
        return;
    uint64_t forgiven_ns = FRAMES_OF_A_CALL * cost_ns(conn);
    conn->idle_debt_ns -= forgiven_ns < conn->idle_debt_ns ? forgiven_ns : conn->idle_debt_ns;
}
