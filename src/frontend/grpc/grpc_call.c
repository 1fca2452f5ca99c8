/* SPDX-License-Identifier: MIT */
/*
 * The input of calls. A message that arrives in one piece is read in place; otherwise its pieces
 * are kept until it is complete. A request is decided only after its end, so that a cancelled call
 * charges nothing.
 */
#include "frontend/grpc/grpc_parts.h"

#include <assert.h>
#include <stdlib.h>

#define WORK_BYTES 64 /* of a message, for one unit of work */

/* ---- Lists ----------------------------------------------------------------------------------- */

static void unlist(struct grpc_call *call)
{
    struct grpc_conn *conn = call->conn;
    enum grpc_list list = (enum grpc_list)call->list;
    *(call->prev != NULL ? &call->prev->next : &conn->first[list]) = call->next;
    *(call->next != NULL ? &call->next->prev : &conn->last[list]) = call->prev;
    if (list == GRPC_WATCHING)
        grpc_watch_leave(conn);
}

static void append(struct grpc_call *call, enum grpc_list list)
{
    struct grpc_conn *conn = call->conn;
    call->list = (uint8_t)list;
    call->next = NULL;
    call->prev = conn->last[list];
    *(call->prev != NULL ? &call->prev->next : &conn->first[list]) = call;
    conn->last[list] = call;
}

void grpc_call_enlist(struct grpc_call *call, enum grpc_list list)
{
    unlist(call);
    append(call, list);
}

void grpc_call_cut(struct grpc_call *call)
{
    /* The call waits for nothing more, even if its stream stays open until all is sent. */
    grpc_call_enlist(call, GRPC_CLOSING);
    nghttp2_submit_rst_stream(call->conn->session, NGHTTP2_FLAG_NONE, call->id, NGHTTP2_CANCEL);
}

struct grpc_call *grpc_call_new(struct grpc_conn *conn, int32_t id)
{
    struct grpc_frontend *frontend = conn->frontend;
    struct grpc_call *call = frontend->free_calls;
    if (call != NULL) {
        frontend->free_calls = call->next;
        frontend->n_free_calls--;
    } else {
        call = malloc(sizeof(*call));
        if (call == NULL)
            return NULL;
    }
    /* `space` is not cleared: it is written before it is read. */
    memset(call, 0, offsetof(struct grpc_call, space));
    call->conn = conn;
    call->id = id;
    call->begun_ns = conn->now_ns;
    call->ends_ns = STINT_NEVER_NS;
    append(call, GRPC_TIMED);
    conn->n_calls++;
    conn->work++;
    return call;
}

void grpc_call_drop_input(struct grpc_call *call)
{
    grpc_bytes_release(call->conn, &call->input, &call->conn->held_bytes);
    call->input_at = 0;
}

void grpc_call_free(struct grpc_call *call)
{
    struct grpc_conn *conn = call->conn;
    struct grpc_frontend *frontend = conn->frontend;
    if (conn->recent == call)
        conn->recent = NULL;
    if (conn->current == call)
        conn->current = NULL;
    if (conn->lender == call)
        conn->lender = NULL;
    unlist(call);
    conn->n_calls--;
    conn->n_endless -= call->is_endless;
    grpc_wait_drop(call);
    grpc_call_drop_input(call);
    grpc_answer_drop(call);
    free(call->message);
    access_unref(call->tokens);
    if (frontend->n_free_calls >= GRPC_FREE_CALLS) {
        free(call);
        return;
    }
    call->next = frontend->free_calls;
    frontend->free_calls = call;
    frontend->n_free_calls++;
}

/* ---- Messages -------------------------------------------------------------------------------- */

static void refuse_frame(struct grpc_call *call, int code, const struct stint_error *error)
{
    grpc_answer_refuse(call, code == STINT_E_RANGE ? GRPC_RESOURCE_EXHAUSTED : GRPC_INTERNAL,
                       error->message);
}

size_t grpc_call_message_max(const struct grpc_call *call)
{
    size_t max = call->conn->frontend->limits.message_bytes;
    bool is_small = !grpc_method_asks(call->method) && max > GRPC_SMALL_MESSAGE;
    return is_small ? GRPC_SMALL_MESSAGE : max;
}

static bool asks_once(const struct grpc_call *call)
{
    return call->method != GRPC_REFLECTION && call->method != GRPC_REFLECTION_ALPHA;
}

/* Checks a message's first bytes as soon as they come; the memory kept is bounded. */
static void look_at_input(struct grpc_call *call)
{
    struct grpc_frame frame;
    struct stint_error error;
    int len = grpc_frame_read(span_of(call->input.ptr, call->input.len),
                              grpc_call_message_max(call), &frame, &error);
    if (len < 0)
        refuse_frame(call, len, &error);
    else if (len > 0 && (size_t)len < call->input.len)
        grpc_answer_refuse(call, GRPC_UNIMPLEMENTED, "expected one message, and there are more");
}

/* A low limit where all connections together hold much memory. */
static size_t held_max(const struct grpc_conn *conn)
{
    size_t message_bytes = conn->frontend->limits.message_bytes;
    if (conn->frontend->held_bytes > GRPC_HELD_TOTAL * message_bytes)
        return GRPC_SMALL_MESSAGE;
    return GRPC_HELD_MESSAGES * message_bytes;
}

bool grpc_call_keep(struct grpc_call *call, struct span bytes)
{
    struct grpc_conn *conn = call->conn;
    struct grpc_bytes *input = &call->input;
    if (conn->held_bytes + bytes.len > held_max(conn)) {
        grpc_answer_refuse(call, GRPC_RESOURCE_EXHAUSTED,
                           "the incomplete calls of this connection hold too much memory");
        grpc_call_drop_input(call);
        return false;
    }
    if (call->input_at > input->len / 2) {
        input->len -= call->input_at;
        memmove(input->ptr, input->ptr + call->input_at, input->len);
        call->input_at = 0;
    }
    if (!grpc_bytes_reserve(conn, input, &conn->held_bytes, bytes.len)) {
        grpc_answer_fail(call, GRPC_RESOURCE_EXHAUSTED, "no memory for the request");
        return false;
    }
    memcpy(input->ptr + input->len, bytes.ptr, bytes.len);
    input->len += bytes.len;
    return true;
}

static void keep(struct grpc_call *call, struct span bytes)
{
    if (!grpc_call_keep(call, bytes))
        return;
    if (asks_once(call))
        look_at_input(call);
    else if (call->input.len - call->input_at > 2 * (size_t)GRPC_SMALL_MESSAGE)
        grpc_answer_refuse(call, GRPC_RESOURCE_EXHAUSTED, "the answers are not read");
    else
        grpc_reflection_ask(call);
    if (call->is_ended)
        grpc_call_drop_input(call);
}

void grpc_call_keep_borrowed(struct grpc_call *call)
{
    struct span borrowed = call->borrowed;
    call->conn->lender = NULL;
    call->borrowed = span_of(NULL, 0);
    keep(call, borrowed);
}

void grpc_call_data(struct grpc_call *call, struct span bytes, bool is_last)
{
    struct grpc_conn *conn = call->conn;
    if (call->is_ended)
        return;
    if (conn->lender == NULL && is_last && call->input.len == 0 && asks_once(call)) {
        conn->lender = call;
        call->borrowed = bytes;
        return;
    }
    if (conn->lender == call)
        grpc_call_keep_borrowed(call);
    if (!call->is_ended)
        keep(call, bytes);
}

bool grpc_call_plain(struct grpc_call *call, const struct grpc_frame *frame, struct span *plain)
{
    struct grpc_frontend *frontend = call->conn->frontend;
    struct stint_error error;
    *plain = frame->message;
    if (!frame->is_compressed)
        return true;
    if (call->encoding != GRPC_GZIP) {
        grpc_answer_refuse(call, GRPC_INTERNAL, "a compressed message without grpc-encoding");
        return false;
    }
    if (frontend->zip == NULL)
        frontend->zip = grpc_zip_new();
    if (frontend->zip == NULL) {
        grpc_answer_fail(call, GRPC_RESOURCE_EXHAUSTED, "no memory to inflate the request");
        return false;
    }
    int code =
        grpc_zip_read(frontend->zip, frame->message, grpc_call_message_max(call), plain, &error);
    if (code < 0)
        refuse_frame(call, code, &error);
    call->wants_gzip = (call->said & GRPC_SAID_ACCEPTS_GZIP) != 0;
    return code >= 0;
}

/* The only message of a call after its end; false: the call was rejected. */
static bool read_message(struct grpc_call *call, struct span bytes, struct span *message)
{
    call->conn->work += 1 + bytes.len / WORK_BYTES;
    struct grpc_frame frame;
    struct stint_error error;
    int len = grpc_frame_read(bytes, grpc_call_message_max(call), &frame, &error);
    if (len < 0)
        refuse_frame(call, len, &error);
    else if (bytes.len == 0)
        grpc_answer_refuse(call, GRPC_UNIMPLEMENTED, "expected one message, and there is none");
    else if (len == 0)
        grpc_answer_refuse(call, GRPC_INTERNAL, "the request ends within its message");
    else if ((size_t)len < bytes.len)
        grpc_answer_refuse(call, GRPC_UNIMPLEMENTED, "expected one message, and there are more");
    else
        return grpc_call_plain(call, &frame, message);
    return false;
}

void grpc_call_ask(struct grpc_call *call, struct span bytes)
{
    struct span message;
    if (!read_message(call, bytes, &message))
        ;
    else if (call->ends_ns <= call->conn->now_ns)
        grpc_answer_fail(call, GRPC_DEADLINE_EXCEEDED, "the request came too late to be decided");
    else if (grpc_conn_is_full(call->conn))
        grpc_answer_refuse(call, GRPC_RESOURCE_EXHAUSTED,
                           "the answers of this connection's calls are not read");
    else
        grpc_method_ask(call, message);
    if (call->pending != NULL && !call->is_ended) {
        grpc_wait_begin(call, bytes);
        return;
    }
    grpc_wait_drop(call);
    grpc_call_drop_input(call);
}

void grpc_call_end(struct grpc_call *call)
{
    struct span bytes = call->borrowed;
    if (call->conn->lender == call)
        call->conn->lender = NULL;
    else
        bytes = span_of(call->input.ptr, call->input.len);
    call->borrowed = span_of(NULL, 0);
    call->is_at_end = true;
    if (call->is_ended)
        return;
    if (asks_once(call)) {
        grpc_call_ask(call, bytes);
        return;
    }
    grpc_reflection_ask(call);
}
