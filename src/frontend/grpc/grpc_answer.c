/* SPDX-License-Identifier: MIT */
/*
 * The response to a call: fields, messages, trailers. A response without a message consists of
 * trailers only. nghttp2 fetches the messages when the peer's windows have space for them.
 */
#include "frontend/grpc/grpc_parts.h"

#include <stdlib.h>

#define LASTING (NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE)
#define FIELD(name, value) FIELD_AS(name, value, LASTING)
#define FIELD_AS(name, value, flags)                                                               \
    {                                                                                              \
        (uint8_t *)(uintptr_t)(name), (uint8_t *)(uintptr_t)(value), sizeof(name) - 1,             \
            sizeof(value) - 1, (flags)                                                             \
    }
#define MESSAGE_MAX 1024 /* bytes of grpc-message */

/* Fields with text that does not repeat are not added to the peer's table. */
static nghttp2_nv field_of(const char *name, const char *value)
{
    return (nghttp2_nv){(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, strlen(name),
                        strlen(value), NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_INDEX};
}

static nghttp2_nv status_field(int status)
{
    static const char *const numbers[] = {"0", "1",  "2",  "3",  "4",  "5",  "6",  "7", "8",
                                          "9", "10", "11", "12", "13", "14", "15", "16"};
    const char *number = numbers[status];
    return (nghttp2_nv){(uint8_t *)(uintptr_t) "grpc-status", (uint8_t *)(uintptr_t)number, 11,
                        strlen(number), LASTING};
}

/* grpc-status, and grpc-message where there is a message. */
static size_t status_fields(nghttp2_nv fields[2], char text[MESSAGE_MAX], int status,
                            const char *message)
{
    fields[0] = status_field(status);
    if (message == NULL || message[0] == '\0')
        return 1;
    size_t len = grpc_message_write(text, MESSAGE_MAX - 1, span_of_text(message));
    text[len] = '\0';
    fields[1] = field_of("grpc-message", text);
    return 2;
}

/* ---- Messages -------------------------------------------------------------------------------- */

static bool reserve(struct grpc_call *call, struct grpc_bytes *answer, size_t more)
{
    return grpc_bytes_reserve(call->conn, answer, &call->conn->answer_bytes, more);
}

void grpc_answer_drop(struct grpc_call *call)
{
    if (call->answer.ptr != call->space)
        grpc_bytes_release(call->conn, &call->answer, &call->conn->answer_bytes);
    call->answer.len = call->answer_sent = 0;
}

static bool add_message(struct grpc_call *call, struct span message, bool is_compressed)
{
    struct grpc_bytes *answer = &call->answer;
    if (answer->ptr == NULL && message.len + GRPC_PREFIX <= GRPC_ANSWER_SPACE) {
        answer->ptr = call->space;
        answer->size = GRPC_ANSWER_SPACE;
    } else if (answer->ptr == call->space &&
               answer->size - answer->len < message.len + GRPC_PREFIX) {
        struct grpc_bytes larger = {0};
        if (!reserve(call, &larger, answer->len + message.len + GRPC_PREFIX))
            return false;
        memcpy(larger.ptr, answer->ptr, answer->len);
        larger.len = answer->len;
        *answer = larger;
    } else if (answer->ptr != call->space && !reserve(call, answer, message.len + GRPC_PREFIX))
        return false;
    grpc_frame_write(answer->ptr + answer->len, is_compressed, message.len);
    if (message.len > 0)
        memcpy(answer->ptr + answer->len + GRPC_PREFIX, message.ptr, message.len);
    answer->len += GRPC_PREFIX + message.len;
    return true;
}

static void submit_trailers(struct grpc_call *call)
{
    char text[MESSAGE_MAX];
    nghttp2_nv fields[2];
    size_t n = status_fields(fields, text, call->status, call->message);
    nghttp2_submit_trailer(call->conn->session, call->id, fields, n);
    call->conn->answers_early |= !call->is_at_end;
}

/* Called by nghttp2 for the next bytes to send. */
static ssize_t read_answer(nghttp2_session *session, int32_t id, uint8_t *bytes, size_t size,
                           uint32_t *flags, nghttp2_data_source *source, void *arg)
{
    struct grpc_call *call = source->ptr;
    struct grpc_bytes *answer = &call->answer;
    size_t len = answer->len - call->answer_sent;
    (void)session, (void)id, (void)arg;
    if (len == 0 && !call->is_ended)
        return NGHTTP2_ERR_DEFERRED;
    len = len < size ? len : size;
    if (len > 0)
        memcpy(bytes, answer->ptr + call->answer_sent, len);
    call->answer_sent += len;
    if (call->answer_sent < answer->len)
        return (ssize_t)len;
    grpc_answer_drop(call);
    if (call->list == GRPC_WATCHING)
        grpc_watch_next(call);
    else if (call->is_endless && call->list == GRPC_TIMED && !call->is_ended)
        grpc_reflection_next(call);
    if (call->is_ended && answer->len == 0) {
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        submit_trailers(call);
    }
    return (ssize_t)len;
}

static void submit_fields(struct grpc_call *call, bool is_compressed)
{
    static const nghttp2_nv fields[] = {
        FIELD(":status", "200"),
        FIELD("content-type", "application/grpc"),
        FIELD("grpc-encoding", "gzip"),
    };
    const nghttp2_data_provider provider = {.source.ptr = call, .read_callback = read_answer};
    call->is_begun = true;
    nghttp2_submit_response(call->conn->session, call->id, fields, is_compressed ? 3 : 2,
                            &provider);
}

/* Without memory for compression, the message is sent uncompressed. */
static bool compress(struct grpc_frontend *frontend, struct span *message)
{
    if (frontend->zip == NULL)
        frontend->zip = grpc_zip_new();
    return frontend->zip != NULL && grpc_zip_write(frontend->zip, *message, message);
}

void grpc_answer_once(struct grpc_call *call, struct span message)
{
    bool is_compressed = call->wants_gzip && compress(call->conn->frontend, &message);
    if (!add_message(call, message, is_compressed)) {
        grpc_answer_fail(call, GRPC_RESOURCE_EXHAUSTED, "no memory for the answer");
        return;
    }
    call->is_ended = true;
    submit_fields(call, is_compressed);
}

bool grpc_answer_add(struct grpc_call *call, struct span message)
{
    if (!add_message(call, message, false))
        return false;
    if (call->is_begun)
        nghttp2_session_resume_data(call->conn->session, call->id);
    else
        submit_fields(call, false);
    return true;
}

/* NULL where there is no message, or no memory for it. */
static char *copy_of(const char *message)
{
    size_t size = message != NULL ? strlen(message) + 1 : 0;
    char *copy = size > 1 ? malloc(size) : NULL;
    if (copy != NULL)
        memcpy(copy, message, size);
    return copy;
}

void grpc_answer_end(struct grpc_call *call, enum grpc_status status, const char *message)
{
    if (call->is_ended)
        return;
    call->is_ended = true;
    /* Watch and reflection calls had no time limit: one begins now, for reading the rest. */
    if (call->list != GRPC_TIMED) {
        call->begun_ns = call->conn->now_ns;
        grpc_call_enlist(call, GRPC_TIMED);
    }
    call->status = (uint8_t)status;
    call->message = copy_of(message);
    if (call->is_begun)
        nghttp2_session_resume_data(call->conn->session, call->id);
    else
        submit_fields(call, false);
}

/* ---- Errors ---------------------------------------------------------------------------------- */

static void submit_error(struct grpc_call *call, const nghttp2_nv *fields, size_t n)
{
    call->is_ended = true;
    nghttp2_submit_response(call->conn->session, call->id, fields, n, NULL);
    call->conn->answers_early |= !call->is_at_end;
}

void grpc_answer_fail(struct grpc_call *call, enum grpc_status status, const char *message)
{
    char text[MESSAGE_MAX];
    nghttp2_nv fields[5] = {
        FIELD(":status", "200"),
        FIELD("content-type", "application/grpc"),
    };
    if (call->is_begun) {
        grpc_answer_end(call, status, message);
        return;
    }
    size_t n = 2 + status_fields(fields + 2, text, (int)status, message);
    if (call->encoding == GRPC_ENCODING_UNKNOWN)
        fields[n++] = field_of("grpc-accept-encoding", "identity,gzip");
    submit_error(call, fields, n);
}

void grpc_answer_refuse(struct grpc_call *call, enum grpc_status status, const char *message)
{
    grpc_count_malformed(call->conn->frontend);
    grpc_answer_fail(call, status, message);
}

void grpc_answer_refuse_http(struct grpc_call *call, unsigned http_status)
{
    static const nghttp2_nv not_post[] = {FIELD(":status", "405"), FIELD("allow", "POST")};
    static const nghttp2_nv not_grpc[] = {FIELD(":status", "415")};
    grpc_count_malformed(call->conn->frontend);
    if (http_status == 405)
        submit_error(call, not_post, 2);
    else
        submit_error(call, not_grpc, 1);
}
