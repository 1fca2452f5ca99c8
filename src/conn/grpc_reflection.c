/* SPDX-License-Identifier: MIT */
/* Reflection: a call that asks and is answered as often as the peer likes. */
#include "conn/grpc_parts.h"

/* False: the call has ended. */
static bool answer(struct grpc_call *call, struct span message)
{
    struct grpc_door *door = call->conn->door;
    struct stint_error error;
    struct span answer;
    int code = reflection_answer(message, &door->reflection, &answer, &error);
    if (code < 0 && code != STINT_E_SYSTEM)
        grpc_answer_refuse(call, GRPC_INVALID_ARGUMENT, error.sentence);
    else if (call->answer.len - call->answer_sent > door->limits.message_bytes)
        grpc_answer_refuse(call, GRPC_RESOURCE_EXHAUSTED, "the answers are not read");
    else if (code == 0 && grpc_answer_add(call, answer))
        return true;
    else
        grpc_answer_refuse(call, GRPC_RESOURCE_EXHAUSTED, "no memory for the answer");
    return false;
}

void grpc_reflection_ask(struct grpc_call *call)
{
    size_t max = call->conn->door->limits.message_bytes, done = 0;
    struct grpc_frame frame;
    struct stint_error error;
    struct span plain;
    while (!call->is_ended && done < call->input.len) {
        struct span rest = span_of(call->input.ptr + done, call->input.len - done);
        int len = grpc_frame_read(rest, max, &frame, &error);
        if (len == 0)
            break;
        if (len < 0) {
            grpc_answer_refuse(call, len == STINT_E_RANGE ? GRPC_RESOURCE_EXHAUSTED : GRPC_INTERNAL,
                               error.sentence);
            return;
        }
        done += (size_t)len;
        if (!grpc_call_plain(call, &frame, &plain) || !answer(call, plain))
            return;
    }
    if (done > 0 && done < call->input.len)
        memmove(call->input.ptr, call->input.ptr + done, call->input.len - done);
    call->input.len -= done;
}

void grpc_reflection_end(struct grpc_call *call)
{
    if (call->input.len > 0)
        grpc_answer_refuse(call, GRPC_INTERNAL, "the request ends within a message");
    else
        grpc_answer_end(call, GRPC_OK, NULL);
}
