/* SPDX-License-Identifier: MIT */
/*
 * Reflection: a call with any number of requests and answers. A message is answered when the answer
 * before it is read, so that a call holds one answer at most.
 */
#include "frontend/grpc/grpc_parts.h"

#define WORK 2          /* units, of an answer */
#define WORK_BYTES 4096 /* of an answer, for one more unit */

static void answer(struct grpc_call *call, struct span message)
{
    struct grpc_conn *conn = call->conn;
    struct stint_error error;
    struct span answer = {0};
    if (grpc_conn_is_full(conn)) {
        grpc_answer_refuse(call, GRPC_RESOURCE_EXHAUSTED,
                           "the answers of this connection's calls are not read");
        return;
    }
    int code = reflection_answer(message, &conn->frontend->reflection, &answer, &error);
    conn->work += WORK + answer.len / WORK_BYTES;
    if (code < 0 && code != STINT_E_SYSTEM)
        grpc_answer_refuse(call, GRPC_INVALID_ARGUMENT, error.message);
    else if (code < 0 || !grpc_answer_add(call, answer))
        grpc_answer_refuse(call, GRPC_RESOURCE_EXHAUSTED, "no memory for the answer");
}

void grpc_reflection_ask(struct grpc_call *call)
{
    struct grpc_frame frame;
    struct stint_error error;
    struct span plain, rest;
    if (call->is_ended || call->answer.len > 0)
        return;
    if (grpc_conn_turn_is_over(call->conn)) {
        call->conn->asks_wait = true;
        return;
    }
    rest = grpc_bytes_from(&call->input, call->input_at);
    int len = grpc_frame_read(rest, grpc_call_message_max(call), &frame, &error);
    if (len < 0)
        grpc_answer_refuse(call, len == STINT_E_RANGE ? GRPC_RESOURCE_EXHAUSTED : GRPC_INTERNAL,
                           error.message);
    else if (len > 0) {
        call->input_at += (size_t)len;
        if (grpc_call_plain(call, &frame, &plain))
            answer(call, plain);
    } else if (call->is_at_end && rest.len > 0)
        grpc_answer_refuse(call, GRPC_INTERNAL, "the request ends within a message");
    else if (call->is_at_end)
        grpc_answer_end(call, GRPC_OK, NULL);
    if (call->is_ended || call->input_at == call->input.len)
        grpc_call_drop_input(call);
}

void grpc_reflection_next(struct grpc_call *call)
{
    /* The time limit for the next request begins. */
    call->begun_ns = call->conn->now_ns;
    grpc_call_enlist(call, GRPC_TIMED);
    grpc_reflection_ask(call);
}

void grpc_reflection_go_on(struct grpc_conn *conn)
{
    conn->asks_wait = false;
    for (struct grpc_call *call = conn->first[GRPC_TIMED], *next; call != NULL; call = next) {
        next = call->next;
        if (call->is_endless)
            grpc_reflection_ask(call);
    }
}
