/* SPDX-License-Identifier: MIT */
/*
 * Calls that wait for a store. Each keeps the bytes of its message, as they are parsed again when
 * the store has answered: the parsed request is in memory that all calls share.
 */
#include "frontend/grpc/grpc_parts.h"

void grpc_wait_drop(struct grpc_call *call)
{
    service_drop(call->conn->frontend->options.service, call->pending);
    call->pending = NULL;
}

static void on_answers(void *arg, uint64_t now_ns)
{
    struct grpc_call *call = arg;
    struct grpc_conn *conn = call->conn;
    if (conn->is_over) {
        grpc_wait_drop(call);
        return;
    }
    if (now_ns > conn->now_ns)
        conn->now_ns = now_ns;
    grpc_call_ask(call, span_of(call->input.ptr, call->input.len));
    grpc_conn_settle(conn);
    conn_wake(&conn->conn, conn->now_ns);
}

void grpc_wait_begin(struct grpc_call *call, struct span bytes)
{
    struct grpc_conn *conn = call->conn;
    if (call->input.len == 0 && !grpc_call_keep(call, bytes)) {
        grpc_wait_drop(call);
        return;
    }
    if (call->ends_ns < conn->waits_end_ns)
        conn->waits_end_ns = call->ends_ns;
    service_on_answers(call->pending, on_answers, call);
}

void grpc_wait_fail(struct grpc_call *call)
{
    grpc_wait_drop(call);
    grpc_call_drop_input(call);
    grpc_answer_fail(call, GRPC_DEADLINE_EXCEEDED, "the store has not answered in time");
}

void grpc_wait_end_late(struct grpc_conn *conn)
{
    conn->waits_end_ns = STINT_NEVER_NS;
    for (struct grpc_call *call = conn->first[GRPC_TIMED]; call != NULL; call = call->next) {
        if (call->pending == NULL)
            continue;
        if (call->ends_ns <= conn->now_ns)
            grpc_wait_fail(call);
        else if (call->ends_ns < conn->waits_end_ns)
            conn->waits_end_ns = call->ends_ns;
    }
}
