/* SPDX-License-Identifier: MIT */
/* Each call is a struct of the session's, taken up again when the next one begins. */
#define _GNU_SOURCE
#include "cmd/rls/rls_session.h"

#include "base/buf.h"
#include "base/wide_int.h"
#include "proto/grpc/grpc.h"

#include <assert.h>
#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>

#define WINDOW_SIZE (1 << 24)
#define FIELDS_MAX 10

struct call {
    struct call *next; /* of those that are free */
    struct call *next_open, *previous_open;
    struct rls_answer answer;
    uint8_t *asked, *told;
    size_t asked_len, asked_size, asked_sent;
    size_t told_len, told_size;
};

struct rls_session {
    struct rls_session_options options;
    nghttp2_session *http2;
    struct call *free_calls, *open_calls;
    size_t n_pending;
    uint8_t *out;
    size_t out_len, out_sent, out_size;
    char bearer[8192];
};

static bool reserve(uint8_t **bytes, size_t *size, size_t needed)
{
    if (needed <= *size)
        return true;
    size_t larger = max_u64(needed, *size * 2);
    uint8_t *grown = realloc(*bytes, larger);
    if (grown == NULL)
        return false;
    *bytes = grown;
    *size = larger;
    return true;
}

static void free_calls(struct call *call)
{
    while (call != NULL) {
        struct call *next = call->next;
        free(call->asked);
        free(call->told);
        free(call);
        call = next;
    }
}

/* ---- What the server says -------------------------------------------------------------------- */

static struct call *call_of(nghttp2_session *http2, int32_t stream)
{
    return nghttp2_session_get_stream_user_data(http2, stream);
}

/* %XX as they were meant; what cannot be printed is shown as `?` when it is said. */
static void read_status_message(char status_message[STINT_ERROR_MAX], const uint8_t *value,
                                size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len && n + 1 < STINT_ERROR_MAX; i++) {
        char digits[3] = {0};
        char *end = digits;
        if (value[i] == '%' && i + 2 < len) {
            memcpy(digits, value + i + 1, 2);
            status_message[n] = (char)strtoul(digits, &end, 16);
        }
        if (end == digits + 2)
            i += 2;
        else
            status_message[n] = (char)value[i];
        n++;
    }
    status_message[n] = '\0';
}

static int number_of(const uint8_t *value, size_t len)
{
    int number = 0;
    for (size_t i = 0; i < len && i < 4; i++) {
        if (value[i] < '0' || value[i] > '9')
            return -1;
        number = number * 10 + (value[i] - '0');
    }
    return len > 0 ? number : -1;
}

static int on_header(nghttp2_session *http2, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *arg)
{
    struct call *call = call_of(http2, frame->hd.stream_id);
    struct span field = span_of(name, name_len);
    (void)flags;
    (void)arg;
    if (call == NULL)
        return 0;
    if (span_equals(field, ":status"))
        call->answer.http_status = number_of(value, value_len);
    else if (span_equals(field, "grpc-status"))
        call->answer.grpc_status = number_of(value, value_len);
    else if (span_equals(field, "grpc-message"))
        read_status_message(call->answer.status_message, value, value_len);
    return 0;
}

static int on_data(nghttp2_session *http2, uint8_t flags, int32_t stream, const uint8_t *bytes,
                   size_t len, void *arg)
{
    struct call *call = call_of(http2, stream);
    (void)flags;
    (void)arg;
    if (call == NULL)
        return 0;
    if (len > RLS_ANSWER_MAX - call->told_len ||
        !reserve(&call->told, &call->told_size, call->told_len + len))
        return nghttp2_submit_rst_stream(http2, NGHTTP2_FLAG_NONE, stream, NGHTTP2_CANCEL);
    memcpy(call->told + call->told_len, bytes, len);
    call->told_len += len;
    return 0;
}

/* The one message of an answer; what is none is an error of the server's. */
static void read_message(struct call *call)
{
    struct grpc_frame frame = {.is_compressed = false};
    struct stint_error error;
    int len = grpc_frame_read(span_of(call->told, call->told_len), RLS_ANSWER_MAX, &frame, &error);
    if (len > 0 && (size_t)len == call->told_len && !frame.is_compressed) {
        call->answer.message = frame.message;
        return;
    }
    call->answer.grpc_status = GRPC_INTERNAL;
    snprintf(call->answer.status_message, sizeof(call->answer.status_message),
             "the answer is not one message that was not compressed");
}

static void complete(struct rls_session *session, struct call *call, uint32_t why)
{
    struct rls_answer *answer = &call->answer;
    if (answer->grpc_status == GRPC_OK)
        read_message(call);
    else if (answer->grpc_status < 0 && answer->http_status > 0)
        snprintf(answer->status_message, sizeof(answer->status_message),
                 "HTTP status %d, and none of gRPC", answer->http_status);
    else if (answer->grpc_status < 0)
        snprintf(answer->status_message, sizeof(answer->status_message),
                 "the call was broken off: %s", nghttp2_http2_strerror(why));
    session->n_pending--;
    session->options.answered(session->options.arg, answer);
}

static int on_close(nghttp2_session *http2, int32_t stream, uint32_t why, void *arg)
{
    struct rls_session *session = arg;
    struct call *call = call_of(http2, stream);
    if (call == NULL)
        return 0;
    complete(session, call, why);
    if (call->next_open != NULL)
        call->next_open->previous_open = call->previous_open;
    *(call->previous_open != NULL ? &call->previous_open->next_open : &session->open_calls) =
        call->next_open;
    call->next = session->free_calls;
    session->free_calls = call;
    return 0;
}

/* ---- Asking ---------------------------------------------------------------------------------- */

static ssize_t read_asked(nghttp2_session *http2, int32_t stream, uint8_t *bytes, size_t size,
                          uint32_t *flags, nghttp2_data_source *source, void *arg)
{
    struct call *call = source->ptr;
    size_t len = min_u64(size, call->asked_len - call->asked_sent);
    (void)http2;
    (void)stream;
    (void)arg;
    memcpy(bytes, call->asked + call->asked_sent, len);
    call->asked_sent += len;
    if (call->asked_sent == call->asked_len)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)len;
}

static struct call *call_new(struct rls_session *session, struct span message, uint64_t tag)
{
    struct call *call = session->free_calls;
    if (call == NULL)
        call = calloc(1, sizeof(*call));
    else
        session->free_calls = call->next;
    if (call == NULL)
        return NULL;
    call->asked_len = GRPC_PREFIX + message.len;
    if (!reserve(&call->asked, &call->asked_size, call->asked_len)) {
        call->next = session->free_calls;
        session->free_calls = call;
        return NULL;
    }
    assert(call->asked != NULL);
    grpc_frame_write(call->asked, false, message.len);
    if (message.len > 0)
        memcpy(call->asked + GRPC_PREFIX, message.ptr, message.len);
    call->asked_sent = 0;
    call->told_len = 0;
    call->answer.tag = tag;
    call->answer.http_status = 0;
    call->answer.grpc_status = -1;
    call->answer.status_message[0] = '\0';
    call->answer.message = (struct span){NULL, 0};
    return call;
}

static nghttp2_nv field_of(const char *name, const char *value)
{
    return (nghttp2_nv){(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, strlen(name),
                        strlen(value), NGHTTP2_NV_FLAG_NO_COPY_NAME};
}

int rls_session_ask(struct rls_session *session, const char *path, struct span message,
                    uint64_t timeout_ns, uint64_t tag, struct stint_error *error)
{
    if (nghttp2_session_check_request_allowed(session->http2) == 0)
        return err_set(error, STINT_E_GONE, "the server takes no more calls on this connection");
    struct call *call = call_new(session, message, tag);
    if (call == NULL)
        return err_set(error, STINT_E_SYSTEM, "out of memory");
    char timeout[16];
    nghttp2_nv fields[FIELDS_MAX] = {
        field_of(":method", "POST"),
        field_of(":scheme", session->options.is_tls ? "https" : "http"),
        field_of(":path", path),
        field_of(":authority", session->options.authority),
        field_of("content-type", "application/grpc"),
        field_of("te", "trailers"),
    };
    size_t n_fields = 6;
    if (timeout_ns > 0) { /* at most eight digits: in ms that is more than a day */
        uint64_t ms = timeout_ns / 1000000 + (timeout_ns % 1000000 != 0);
        snprintf(timeout, sizeof(timeout), "%llum", (unsigned long long)min_u64(ms, 99999999));
        fields[n_fields++] = field_of("grpc-timeout", timeout);
    }
    if (session->options.token != NULL)
        fields[n_fields++] = field_of("authorization", session->bearer);
    const nghttp2_data_provider provider = {.source = {.ptr = call}, .read_callback = read_asked};
    if (nghttp2_submit_request(session->http2, NULL, fields, n_fields, &provider, call) < 0) {
        call->next = session->free_calls;
        session->free_calls = call;
        return err_set(error, STINT_E_SYSTEM, "out of memory");
    }
    call->previous_open = NULL;
    call->next_open = session->open_calls;
    if (call->next_open != NULL)
        call->next_open->previous_open = call;
    session->open_calls = call;
    session->n_pending++;
    return 0;
}

size_t rls_session_pending(const struct rls_session *session)
{
    return session->n_pending;
}

/* ---- Bytes ----------------------------------------------------------------------------------- */

int rls_session_feed(struct rls_session *session, struct span bytes, struct stint_error *error)
{
    ssize_t used = nghttp2_session_mem_recv(session->http2, bytes.ptr, bytes.len);
    if (used >= 0 && nghttp2_session_want_read(session->http2) != 0)
        return 0;
    if (used >= 0 && session->n_pending == 0)
        return 0; /* it was said that this is the end */
    return err_set(error, STINT_E_SYNTAX, "what the server says is not HTTP/2%s%s",
                   used < 0 ? ": " : "", used < 0 ? nghttp2_strerror((int)used) : "");
}

struct span rls_session_output(struct rls_session *session)
{
    const uint8_t *bytes;
    ssize_t len;
    if (session->out_sent == session->out_len)
        session->out_sent = session->out_len = 0;
    while ((len = nghttp2_session_mem_send(session->http2, &bytes)) > 0) {
        if (!reserve(&session->out, &session->out_size, session->out_len + (size_t)len))
            break;
        memcpy(session->out + session->out_len, bytes, (size_t)len);
        session->out_len += (size_t)len;
    }
    return span_of(session->out + session->out_sent, session->out_len - session->out_sent);
}

void rls_session_sent(struct rls_session *session, size_t len)
{
    session->out_sent += len;
}

/* ---- Life ------------------------------------------------------------------------------------ */

static bool begin(struct rls_session *session)
{
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WINDOW_SIZE},
    };
    nghttp2_session_callbacks *callbacks;
    if (nghttp2_session_callbacks_new(&callbacks) != 0)
        return false;
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    int code = nghttp2_session_client_new(&session->http2, callbacks, session);
    nghttp2_session_callbacks_del(callbacks);
    return code == 0 &&
           nghttp2_submit_settings(session->http2, NGHTTP2_FLAG_NONE, settings, 2) == 0 &&
           nghttp2_session_set_local_window_size(session->http2, NGHTTP2_FLAG_NONE, 0,
                                                 WINDOW_SIZE) == 0;
}

struct rls_session *rls_session_new(const struct rls_session_options *options)
{
    struct rls_session *session = calloc(1, sizeof(*session));
    if (session == NULL)
        return NULL;
    session->options = *options;
    if (options->token != NULL) {
        struct buf buf = buf_of(session->bearer, sizeof(session->bearer));
        buf_add(&buf, "Bearer %s", options->token);
    }
    if (begin(session))
        return session;
    rls_session_free(session);
    return NULL;
}

void rls_session_free(struct rls_session *session)
{
    if (session == NULL)
        return;
    nghttp2_session_del(session->http2);
    while (session->open_calls != NULL) {
        struct call *call = session->open_calls;
        session->open_calls = call->next_open;
        call->next = session->free_calls;
        session->free_calls = call;
    }
    free_calls(session->free_calls);
    free(session->out);
    explicit_bzero(session->bearer, sizeof(session->bearer));
    free(session);
}
