/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE /* strdup */
/*
 * Calls. A message that arrives in one piece is read in place; otherwise its pieces are kept until
 * it is complete. A request is decided only after its end, so that a cancelled call charges
 * nothing.
 *
 * A response without a message consists of trailers only. nghttp2 fetches the messages when the
 * peer's windows have space for them.
 */
#include "frontend/grpc/grpc_call.h"

#include "base/err.h"
#include "base/ns.h"

#include <assert.h>
#include <gnutls/gnutls.h>
#include <stdlib.h>
#include <strings.h>

/* ---- Output ---------------------------------------------------------------------------------- */

/* Writes the session's frames; false where it stopped at the limit, and has more. */
static bool write_output(struct grpc_conn *conn)
{
    const uint8_t *frame;
    while (!grpc_output_is_unread(conn)) {
        ssize_t len = nghttp2_session_mem_send(conn->session, &frame);
        if (len == 0)
            return true;
        if (len < 0 ||
            !grpc_keep(conn, &conn->out, &conn->buffer_bytes, span_of(frame, (size_t)len))) {
            conn->is_broken = conn->is_over = true;
            return false;
        }
    }
    return false;
}

void grpc_output_settle(struct grpc_conn *conn)
{
    /* A peer that does not speak HTTP/2 gets no frames. */
    if (conn->is_over || !conn->has_begun || !write_output(conn))
        return;
    if (!nghttp2_session_want_read(conn->session) && !nghttp2_session_want_write(conn->session)) {
        conn->is_over = true;
        if (conn->leaving == GRPC_STAYS && !conn->is_left)
            grpc_count_malformed(conn->frontend);
    } else if (conn->leaving == GRPC_LEAVES && conn->n_calls == 0)
        conn->is_over = true;
}

/* ---- The caller ------------------------------------------------------------------------------ */

/*
 * The caller of a gRPC call: the token of "authorization: Bearer SECRET". A connection remembers
 * its last secret for as long as the tokens stay the same.
 */

static const struct access_token *find(struct grpc_call *call, struct span secret)
{
    struct grpc_conn *conn = call->conn;
    struct grpc_identity *identity = &conn->identity;
    struct access *tokens = conn->frontend->tokens;
    if (identity->tokens == tokens && identity->len == secret.len &&
        gnutls_memcmp(identity->secret, secret.ptr, secret.len) == 0)
        return identity->token;
    const struct access_login login = {
        .secret = secret,
        .peer = span_of(conn->peer, conn->peer_len),
        .frontend = METRICS_GRPC,
        .metrics = conn->frontend->metrics,
        .now_ns = conn->now_ns,
    };
    bool is_slowed;
    const struct access_token *token =
        access_login(conn->frontend->options.access, tokens, &login, &is_slowed);
    if (is_slowed)
        call->said |= GRPC_SAID_TOO_OFTEN;
    if (token == NULL || secret.len > GRPC_SECRET_MAX)
        return token;
    if (identity->tokens != tokens) {
        access_unref(identity->tokens);
        identity->tokens = access_ref(tokens);
    }
    identity->token = token;
    identity->len = secret.len;
    memcpy(identity->secret, secret.ptr, secret.len);
    return token;
}

static void grpc_caller_take(struct grpc_call *call, struct span authorization)
{
    struct grpc_frontend *frontend = call->conn->frontend;
    access_now_renew(frontend->options.access, &frontend->tokens, &frontend->generation);
    struct span secret = access_bearer_secret(authorization);
    /* Only the first one is checked, however many there are. */
    if (frontend->tokens == NULL || secret.ptr == NULL || (call->said & GRPC_SAID_SECRET) != 0)
        return;
    call->said |= GRPC_SAID_SECRET;
    call->token = find(call, secret);
    if (call->token != NULL)
        call->tokens = access_ref(frontend->tokens);
}

/* The set may have changed since: finds the same token in the new one; none if it was removed. */
static void renew_token(struct grpc_call *call)
{
    struct grpc_frontend *frontend = call->conn->frontend;
    access_now_renew(frontend->options.access, &frontend->tokens, &frontend->generation);
    if (call->token == NULL || call->tokens == frontend->tokens)
        return;
    call->token = frontend->tokens != NULL ? access_again(frontend->tokens, call->token) : NULL;
    access_unref(call->tokens);
    call->tokens = call->token != NULL ? access_ref(frontend->tokens) : NULL;
}

/* Why the caller is not authenticated; NULL: it is. */
static const char *grpc_caller_refusal(struct grpc_call *call)
{
    renew_token(call);
    if (call->conn->frontend->tokens == NULL || call->token != NULL)
        return NULL;
    if ((call->said & GRPC_SAID_TOO_OFTEN) != 0)
        return "too many wrong secrets came from this address: wait a minute";
    if ((call->said & GRPC_SAID_SECRET) != 0)
        return "no such token";
    return "a token is required: authorization: Bearer SECRET";
}

/* ---- Lists ----------------------------------------------------------------------------------- */

static void unlist(struct grpc_call *call)
{
    struct grpc_conn *conn = call->conn;
    enum grpc_list list = (enum grpc_list)call->list;
    *(call->prev != NULL ? &call->prev->next : &conn->first[list]) = call->next;
    *(call->next != NULL ? &call->next->prev : &conn->last[list]) = call->prev;
    if (list == GRPC_WATCHING && conn->first[list] == NULL)
        conn->watch_at_ns = STINT_NEVER_NS;
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

/* ---- Making and freeing ---------------------------------------------------------------------- */

static const struct grpc_method no_method;

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
    call->method = &no_method;
    call->id = id;
    call->begun_ns = conn->now_ns;
    call->ends_ns = STINT_NEVER_NS;
    append(call, GRPC_TIMED);
    conn->n_calls++;
    conn->work++;
    return call;
}

static void drop_input(struct grpc_call *call)
{
    grpc_release(call->conn, &call->input, &call->conn->held_bytes);
}

static void drop_pending(struct grpc_call *call)
{
    service_drop(call->conn->frontend->options.service, call->pending);
    call->pending = NULL;
}

static void drop_answer(struct grpc_call *call)
{
    if (call->answer.bytes == call->space)
        call->answer = (struct byte_queue){0};
    else
        grpc_release(call->conn, &call->answer, &call->conn->answer_bytes);
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
    drop_pending(call);
    drop_input(call);
    drop_answer(call);
    free(call->message);
    free(call->context);
    access_unref(call->tokens);
    if (frontend->n_free_calls >= GRPC_FREE_CALLS) {
        free(call);
        return;
    }
    call->next = frontend->free_calls;
    frontend->free_calls = call;
    frontend->n_free_calls++;
}

/* ---- Fields of a response -------------------------------------------------------------------- */

#define LASTING (NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE)
#define FIELD(name, value)                                                                         \
    {                                                                                              \
        (uint8_t *)(uintptr_t)(name), (uint8_t *)(uintptr_t)(value), sizeof(name) - 1,             \
            sizeof(value) - 1, LASTING                                                             \
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

/* ---- Messages of a response ------------------------------------------------------------------ */

/* The one before it was read. False: no memory. */
static bool add_message(struct grpc_call *call, struct span message, bool is_compressed)
{
    struct byte_queue *answer = &call->answer;
    uint8_t prefix[GRPC_PREFIX];
    size_t *held = &call->conn->answer_bytes;
    assert(answer->bytes == NULL);
    if (GRPC_PREFIX + message.len <= GRPC_ANSWER_SPACE)
        *answer = (struct byte_queue){.bytes = call->space, .size = GRPC_ANSWER_SPACE};
    grpc_frame_write(prefix, is_compressed, message.len);
    if (grpc_keep(call->conn, answer, held, span_of(prefix, GRPC_PREFIX)) &&
        grpc_keep(call->conn, answer, held, message))
        return true;
    drop_answer(call);
    return false;
}

static void submit_trailers(struct grpc_call *call)
{
    char text[MESSAGE_MAX];
    nghttp2_nv fields[2];
    size_t n = status_fields(fields, text, call->status, call->message);
    nghttp2_submit_trailer(call->conn->session, call->id, fields, n);
    call->conn->answers_early |= !call->is_at_end;
}

static void ask_next(struct grpc_call *call);

/* The peer has read all answers so far. */
static void go_on(struct grpc_call *call)
{
    const struct grpc_method *method = call->method;
    if (method->takes_many) {
        /* The time limit for the next request begins. */
        call->begun_ns = call->conn->now_ns;
        grpc_call_enlist(call, GRPC_TIMED);
        ask_next(call);
    } else if (method->on_read != NULL)
        method->on_read(call);
}

/* Called by nghttp2 for the next bytes to send. */
static ssize_t read_answer(nghttp2_session *session, int32_t id, uint8_t *bytes, size_t size,
                           uint32_t *flags, nghttp2_data_source *source, void *arg)
{
    struct grpc_call *call = source->ptr;
    struct byte_queue *answer = &call->answer;
    size_t len = byte_queue_len(answer);
    (void)session, (void)id, (void)arg;
    if (len == 0 && !call->is_ended)
        return NGHTTP2_ERR_DEFERRED;
    len = len < size ? len : size;
    if (len > 0)
        memcpy(bytes, answer->bytes + answer->start, len);
    answer->start += len;
    if (answer->start < answer->end)
        return (ssize_t)len;
    drop_answer(call);
    if (!call->is_ended && call->list != GRPC_CLOSING)
        go_on(call);
    if (call->is_ended && answer->end == 0) {
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

/* NULL: no memory. */
static struct grpc_zip *zip_of(struct grpc_frontend *frontend)
{
    if (frontend->zip == NULL)
        frontend->zip = grpc_zip_new();
    return frontend->zip;
}

/* Without memory for compression, the message is sent uncompressed. */
static bool compress(struct grpc_frontend *frontend, struct span *message)
{
    return zip_of(frontend) != NULL && grpc_zip_write(frontend->zip, *message, message);
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

/* There is more to read. */
static void resume(struct grpc_call *call)
{
    if (call->is_begun)
        nghttp2_session_resume_data(call->conn->session, call->id);
    else
        submit_fields(call, false);
}

bool grpc_answer_add(struct grpc_call *call, struct span message)
{
    bool is_added = add_message(call, message, false);
    if (is_added)
        resume(call);
    return is_added;
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
    call->message = message != NULL ? strdup(message) : NULL; /* NULL also without memory */
    resume(call);
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

static void refuse_http(struct grpc_call *call, unsigned http_status)
{
    static const nghttp2_nv not_post[] = {FIELD(":status", "405"), FIELD("allow", "POST")};
    static const nghttp2_nv not_grpc[] = {FIELD(":status", "415")};
    grpc_count_malformed(call->conn->frontend);
    if (http_status == 405)
        submit_error(call, not_post, 2);
    else
        submit_error(call, not_grpc, 1);
}

/* ---- Header fields --------------------------------------------------------------------------- */

/* Each is parsed when it comes; fields that gRPC does not know are not kept. */

/* application/grpc, with +proto or parameters; other message encodings are not supported. */
static bool is_grpc(struct span type)
{
    static const char name[] = "application/grpc", proto[] = "+proto";
    size_t len = sizeof(name) - 1, proto_len = sizeof(proto) - 1;
    if (type.len < len || strncasecmp((const char *)type.ptr, name, len) != 0)
        return false;
    if (type.len >= len + proto_len && memcmp(type.ptr + len, proto, proto_len) == 0)
        len += proto_len;
    return type.len == len || type.ptr[len] == ';' || type.ptr[len] == ' ';
}

/*
 * Some clients send 1n for a deadline that is over. Time is read once for many calls, so that less
 * than this would be taken as still to come; no answer is that fast.
 */
#define TIMEOUT_MIN_NS NS_PER_US

static void take_timeout(struct grpc_call *call, struct span value)
{
    uint64_t timeout_ns;
    if (!grpc_timeout_read(value, &timeout_ns)) {
        call->said |= GRPC_SAID_NO_TIMEOUT;
        return;
    }
    if (timeout_ns < TIMEOUT_MIN_NS)
        timeout_ns = 0;
    uint64_t left_ns = STINT_NEVER_NS - call->begun_ns;
    call->ends_ns = timeout_ns < left_ns ? call->begun_ns + timeout_ns : STINT_NEVER_NS;
}

/* Without memory the call counts as one without a context. */
static void take_context(struct grpc_call *call, struct span value,
                         void (*take)(struct trace_context *context, struct span value))
{
    if (call->conn->frontend->tracer == NULL)
        return;
    if (call->context == NULL)
        call->context = calloc(1, sizeof(*call->context));
    if (call->context != NULL)
        take(call->context, value);
}

static bool is_named(struct span name, const char *text)
{
    return memcmp(name.ptr, text, name.len) == 0;
}

static const struct grpc_method *find_method(const struct grpc_method *methods, struct span path)
{
    while (methods->path != NULL && !span_equals(path, methods->path))
        methods++;
    return methods;
}

void grpc_call_take_field(struct grpc_call *call, struct span name, struct span value)
{
    switch (name.len) {
    case 5:
        if (is_named(name, ":path"))
            call->method = find_method(call->conn->frontend->methods, value);
        break;
    case 7:
        if (is_named(name, ":method") && span_equals(value, "POST"))
            call->said |= GRPC_SAID_POST;
        break;
    case 10:
        if (is_named(name, "tracestate"))
            take_context(call, value, trace_context_state);
        break;
    case 11:
        if (is_named(name, "traceparent"))
            take_context(call, value, trace_context_parent);
        break;
    case 12:
        if (is_named(name, "content-type") && is_grpc(value))
            call->said |= GRPC_SAID_GRPC;
        else if (is_named(name, "grpc-timeout"))
            take_timeout(call, value);
        break;
    case 13:
        if (is_named(name, "authorization"))
            grpc_caller_take(call, value);
        else if (is_named(name, "grpc-encoding"))
            call->encoding = (uint8_t)grpc_encoding_of(value);
        break;
    case 20:
        if (is_named(name, "grpc-accept-encoding") && grpc_accepts_gzip(value))
            call->said |= GRPC_SAID_ACCEPTS_GZIP;
        break;
    default:
        break;
    }
}

/* Whether the caller is authenticated; otherwise the call is rejected. */
static bool admit(struct grpc_call *call)
{
    const char *why = grpc_caller_refusal(call);
    if (why != NULL)
        grpc_answer_refuse(call, GRPC_UNAUTHENTICATED, why);
    return why == NULL;
}

static void count_endless(struct grpc_call *call)
{
    struct grpc_conn *conn = call->conn;
    if (conn->n_endless >= GRPC_ENDLESS_CALLS) {
        grpc_answer_refuse(call, GRPC_RESOURCE_EXHAUSTED,
                           "too many calls of Watch and reflection: end one of them first");
        return;
    }
    call->is_endless = true;
    conn->n_endless++;
}

void grpc_call_end_fields(struct grpc_call *call)
{
    if ((call->said & GRPC_SAID_POST) == 0)
        refuse_http(call, 405);
    else if ((call->said & GRPC_SAID_GRPC) == 0)
        refuse_http(call, 415);
    else if ((call->said & GRPC_SAID_TOO_MUCH) != 0)
        grpc_answer_refuse(call, GRPC_RESOURCE_EXHAUSTED, "the header fields are too long");
    else if (call->method->path == NULL)
        grpc_answer_refuse(call, GRPC_UNIMPLEMENTED, "no such method");
    else if (call->encoding == GRPC_ENCODING_UNKNOWN)
        grpc_answer_refuse(call, GRPC_UNIMPLEMENTED, "grpc-encoding: expected identity or gzip");
    else if ((call->said & GRPC_SAID_NO_TIMEOUT) != 0)
        grpc_answer_refuse(call, GRPC_INVALID_ARGUMENT,
                           "grpc-timeout: expected up to eight digits and one of H M S m u n");
    else if (call->method->needs_token)
        admit(call);
    else if (call->method->is_endless)
        count_endless(call);
}

/* ---- Messages of a request ------------------------------------------------------------------- */

#define WORK_BYTES 64 /* of a message, for one unit of work */

static void refuse_frame(struct grpc_call *call, int code, const struct stint_error *error)
{
    grpc_answer_refuse(call, code == STINT_E_RANGE ? GRPC_RESOURCE_EXHAUSTED : GRPC_INTERNAL,
                       error->message);
}

static size_t message_max(const struct grpc_call *call)
{
    size_t max = call->conn->frontend->limits.message_bytes;
    bool is_small = !call->method->needs_token && max > GRPC_SMALL_MESSAGE;
    return is_small ? GRPC_SMALL_MESSAGE : max;
}

/* Checks a message's first bytes as soon as they come; the memory kept is bounded. */
static void look_at_input(struct grpc_call *call)
{
    struct grpc_frame frame;
    struct stint_error error;
    struct span input = byte_queue_span(&call->input);
    int len = grpc_frame_read(input, message_max(call), &frame, &error);
    if (len < 0)
        refuse_frame(call, len, &error);
    else if (len > 0 && (size_t)len < input.len)
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

static bool keep(struct grpc_call *call, struct span bytes)
{
    struct grpc_conn *conn = call->conn;
    if (conn->held_bytes + bytes.len > held_max(conn)) {
        grpc_answer_refuse(call, GRPC_RESOURCE_EXHAUSTED,
                           "the incomplete calls of this connection hold too much memory");
        drop_input(call);
        return false;
    }
    if (grpc_keep(conn, &call->input, &conn->held_bytes, bytes))
        return true;
    grpc_answer_fail(call, GRPC_RESOURCE_EXHAUSTED, "no memory for the request");
    return false;
}

static void take_input(struct grpc_call *call, struct span bytes)
{
    if (!keep(call, bytes))
        return;
    if (!call->method->takes_many)
        look_at_input(call);
    else if (byte_queue_len(&call->input) > 2 * (size_t)GRPC_SMALL_MESSAGE)
        grpc_answer_refuse(call, GRPC_RESOURCE_EXHAUSTED, "the answers are not read");
    else
        ask_next(call);
    if (call->is_ended)
        drop_input(call);
}

void grpc_call_keep_borrowed(struct grpc_call *call)
{
    struct span borrowed = call->borrowed;
    call->conn->lender = NULL;
    call->borrowed = span_of(NULL, 0);
    take_input(call, borrowed);
}

void grpc_call_take_data(struct grpc_call *call, struct span bytes, bool is_last)
{
    struct grpc_conn *conn = call->conn;
    if (call->is_ended)
        return;
    if (conn->lender == NULL && is_last && call->input.end == 0 && !call->method->takes_many) {
        conn->lender = call;
        call->borrowed = bytes;
        return;
    }
    if (conn->lender == call)
        grpc_call_keep_borrowed(call);
    if (!call->is_ended)
        take_input(call, bytes);
}

static bool plain_of(struct grpc_call *call, const struct grpc_frame *frame, struct span *plain)
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
    if (zip_of(frontend) == NULL) {
        grpc_answer_fail(call, GRPC_RESOURCE_EXHAUSTED, "no memory to inflate the request");
        return false;
    }
    int code = grpc_zip_read(frontend->zip, frame->message, message_max(call), plain, &error);
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
    int len = grpc_frame_read(bytes, message_max(call), &frame, &error);
    if (len < 0)
        refuse_frame(call, len, &error);
    else if (bytes.len == 0)
        grpc_answer_refuse(call, GRPC_UNIMPLEMENTED, "expected one message, and there is none");
    else if (len == 0)
        grpc_answer_refuse(call, GRPC_INTERNAL, "the request ends within its message");
    else if ((size_t)len < bytes.len)
        grpc_answer_refuse(call, GRPC_UNIMPLEMENTED, "expected one message, and there are more");
    else
        return plain_of(call, &frame, message);
    return false;
}

static void ask(struct grpc_call *call, struct span message)
{
    const struct grpc_method *method = call->method;
    if (call->conn->answer_bytes > grpc_output_max(call->conn))
        grpc_answer_refuse(call, GRPC_RESOURCE_EXHAUSTED,
                           "the answers of this connection's calls are not read");
    else if (!method->needs_token || admit(call))
        method->ask(call, message);
}

/* Answers the next complete message, unless an answer is still unread; ends with the last. */
static void ask_next(struct grpc_call *call)
{
    struct grpc_frame frame;
    struct stint_error error;
    struct span message;
    if (call->is_ended || call->answer.end > 0)
        return;
    if (grpc_turn_is_over(call->conn)) {
        call->conn->asks_wait = true;
        return;
    }
    struct span rest = byte_queue_span(&call->input);
    int len = grpc_frame_read(rest, message_max(call), &frame, &error);
    if (len < 0)
        refuse_frame(call, len, &error);
    else if (len > 0) {
        call->input.start += (size_t)len;
        if (plain_of(call, &frame, &message))
            ask(call, message);
    } else if (call->is_at_end && rest.len > 0)
        grpc_answer_refuse(call, GRPC_INTERNAL, "the request ends within a message");
    else if (call->is_at_end)
        grpc_answer_end(call, GRPC_OK, NULL);
    if (call->is_ended || byte_queue_len(&call->input) == 0)
        drop_input(call);
}

static void wait_for_store(struct grpc_call *call, struct span bytes);

/* Reads the only message of a call after its end, and answers it, or waits for a store. */
static void ask_once(struct grpc_call *call, struct span bytes)
{
    struct span message;
    if (read_message(call, bytes, &message)) {
        if (call->ends_ns <= call->conn->now_ns)
            grpc_answer_fail(call, GRPC_DEADLINE_EXCEEDED,
                             "the request came too late to be decided");
        else
            ask(call, message);
    }
    if (call->pending != NULL && !call->is_ended) {
        wait_for_store(call, bytes);
        return;
    }
    drop_pending(call);
    drop_input(call);
}

void grpc_call_end(struct grpc_call *call)
{
    struct span bytes = call->borrowed;
    if (call->conn->lender == call)
        call->conn->lender = NULL;
    else
        bytes = byte_queue_span(&call->input);
    call->borrowed = span_of(NULL, 0);
    call->is_at_end = true;
    if (call->is_ended)
        return;
    if (call->method->takes_many)
        ask_next(call);
    else
        ask_once(call, bytes);
}

/* ---- Waiting for a store --------------------------------------------------------------------- */

static void on_answers(void *arg, uint64_t now_ns)
{
    struct grpc_call *call = arg;
    struct grpc_conn *conn = call->conn;
    if (conn->is_over) {
        drop_pending(call);
        return;
    }
    if (now_ns > conn->now_ns)
        conn->now_ns = now_ns;
    ask_once(call, byte_queue_span(&call->input));
    grpc_output_settle(conn);
    conn_wake(&conn->conn, conn->now_ns);
}

/*
 * Keeps the bytes of the message, unless they are kept: they are parsed again when the store has
 * answered, as the parsed request is in memory that all calls share.
 */
static void wait_for_store(struct grpc_call *call, struct span bytes)
{
    struct grpc_conn *conn = call->conn;
    if (call->input.end == 0 && !keep(call, bytes)) {
        drop_pending(call);
        return;
    }
    if (call->ends_ns < conn->waits_end_ns)
        conn->waits_end_ns = call->ends_ns;
    service_on_answers(call->pending, on_answers, call);
}

/* The time limit is over. */
static void fail_wait(struct grpc_call *call)
{
    drop_pending(call);
    drop_input(call);
    grpc_answer_fail(call, GRPC_DEADLINE_EXCEEDED, "the store has not answered in time");
}

/* ---- All calls of a connection --------------------------------------------------------------- */

/* Fails those that wait for a store, and whose grpc-timeout has expired. */
static void end_waits(struct grpc_conn *conn)
{
    conn->waits_end_ns = STINT_NEVER_NS;
    for (struct grpc_call *call = conn->first[GRPC_TIMED]; call != NULL; call = call->next) {
        if (call->pending == NULL)
            continue;
        if (call->ends_ns <= conn->now_ns)
            fail_wait(call);
        else if (call->ends_ns < conn->waits_end_ns)
            conn->waits_end_ns = call->ends_ns;
    }
}

void grpc_calls_end_late(struct grpc_conn *conn)
{
    while (grpc_calls_end_ns(conn) <= conn->now_ns) {
        struct grpc_call *call = conn->first[GRPC_TIMED];
        grpc_call_enlist(call, GRPC_CLOSING);
        if (call->is_ended || call->answer.end > 0)
            grpc_call_cut(call);
        else if (call->pending != NULL)
            fail_wait(call);
        else
            grpc_answer_refuse(call, GRPC_DEADLINE_EXCEEDED, "the request does not end");
    }
    if (conn->waits_end_ns <= conn->now_ns)
        end_waits(conn);
}

void grpc_calls_go_on(struct grpc_conn *conn)
{
    conn->asks_wait = false;
    for (struct grpc_call *call = conn->first[GRPC_TIMED], *next; call != NULL; call = next) {
        next = call->next;
        if (call->method->takes_many)
            ask_next(call);
    }
}
