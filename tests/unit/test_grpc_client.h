/* SPDX-License-Identifier: MIT */
/*
 * For tests that call a gRPC connection, without sockets, in virtual time: nghttp2's client on the
 * other side, and what it heard on each stream.
 */
#ifndef STINT_TESTS_TEST_GRPC_CLIENT_H
#define STINT_TESTS_TEST_GRPC_CLIENT_H

#include "unit/test_protobuf.h"
#include "unit/test_server.h"

#include "frontend/grpc/grpc_conn.h"
#include "proto/grpc/grpc.h"

#include <nghttp2/nghttp2.h>

#define HEARD_MAX 2048
#define SHOULD_RATE_LIMIT "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
#define HEALTH "/grpc.health.v1.Health/"
#define REFLECTION "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"

/* One call, from the client's side. */
struct heard {
    int32_t id;
    unsigned http_status;
    int status; /* grpc-status; -1: none yet */
    char message[512], encoding[32], accepts[64];
    uint8_t *data; /* of the answer */
    size_t len;
    uint8_t *says; /* of the request */
    size_t says_len, said;
    bool says_more; /* the request goes on */
    bool is_closed;
    uint32_t close_code;
};

struct grpc_client {
    struct test_server s;
    struct access_now *access;
    struct grpc_frontend *frontend;
    struct conn *conn;
    nghttp2_session *client;
    struct heard heard[HEARD_MAX];
    size_t n_heard;
    size_t piece;    /* bytes fed at once; 0: all that there are */
    size_t n_writes; /* outputs that were taken */
    bool is_ready;   /* what health says */
    unsigned n_goaways;
    uint32_t goaway_code;
    int32_t goaway_last;
    unsigned n_pongs;
};

static inline struct heard *heard_of(struct grpc_client *grpc, int32_t id)
{
    for (size_t i = grpc->n_heard; i > 0; i--)
        if (grpc->heard[i - 1].id == id)
            return &grpc->heard[i - 1];
    return NULL;
}

/* ---- The client ------------------------------------------------------------------------------ */

static inline void keep_text(char *to, size_t size, const uint8_t *from, size_t len)
{
    assert_true(len < size);
    memcpy(to, from, len);
    to[len] = '\0';
}

static inline int hear_field(nghttp2_session *session, const nghttp2_frame *frame,
                             const uint8_t *name, size_t name_len, const uint8_t *value,
                             size_t value_len, uint8_t flags, void *arg)
{
    struct heard *heard = heard_of(arg, frame->hd.stream_id);
    struct span field = span_of(name, name_len);
    char number[16];
    (void)session, (void)flags;
    assert_non_null(heard);
    if (span_equals(field, ":status") || span_equals(field, "grpc-status")) {
        keep_text(number, sizeof(number), value, value_len);
        if (name[0] == ':')
            heard->http_status = (unsigned)atoi(number);
        else
            heard->status = atoi(number);
    } else if (span_equals(field, "grpc-message"))
        keep_text(heard->message, sizeof(heard->message), value, value_len);
    else if (span_equals(field, "grpc-encoding"))
        keep_text(heard->encoding, sizeof(heard->encoding), value, value_len);
    else if (span_equals(field, "grpc-accept-encoding"))
        keep_text(heard->accepts, sizeof(heard->accepts), value, value_len);
    return 0;
}

static inline int hear_data(nghttp2_session *session, uint8_t flags, int32_t id,
                            const uint8_t *bytes, size_t len, void *arg)
{
    struct heard *heard = heard_of(arg, id);
    (void)session, (void)flags;
    assert_non_null(heard);
    heard->data = realloc(heard->data, heard->len + len);
    assert_non_null(heard->data);
    memcpy(heard->data + heard->len, bytes, len);
    heard->len += len;
    return 0;
}

static inline int hear_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct grpc_client *grpc = arg;
    (void)session;
    if (frame->hd.type == NGHTTP2_PING && (frame->hd.flags & NGHTTP2_FLAG_ACK) != 0)
        grpc->n_pongs++;
    return 0;
}

static inline int hear_close(nghttp2_session *session, int32_t id, uint32_t code, void *arg)
{
    struct heard *heard = heard_of(arg, id);
    (void)session;
    if (heard != NULL) {
        heard->is_closed = true;
        heard->close_code = code;
    }
    return 0;
}

static inline ssize_t say_data(nghttp2_session *session, int32_t id, uint8_t *bytes, size_t size,
                               uint32_t *flags, nghttp2_data_source *source, void *arg)
{
    struct heard *heard = heard_of(arg, id);
    size_t len = heard->says_len - heard->said;
    (void)session, (void)source;
    if (len == 0 && heard->says_more)
        return NGHTTP2_ERR_DEFERRED;
    len = len < size ? len : size;
    if (len > 0)
        memcpy(bytes, heard->says + heard->said, len);
    heard->said += len;
    if (heard->said == heard->says_len && !heard->says_more)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)len;
}

static inline nghttp2_session *client_of(struct grpc_client *grpc)
{
    nghttp2_session_callbacks *callbacks;
    nghttp2_session *client;
    assert_int_equal(nghttp2_session_callbacks_new(&callbacks), 0);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, hear_field);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, hear_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, hear_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, hear_close);
    assert_int_equal(nghttp2_session_client_new(&client, callbacks, grpc), 0);
    nghttp2_session_callbacks_del(callbacks);
    return client;
}

/* ---- Opening and closing --------------------------------------------------------------------- */

static inline bool grpc_client_is_ready(void *arg)
{
    return ((struct grpc_client *)arg)->is_ready;
}

static inline void connect_to(struct grpc_client *grpc)
{
    grpc->conn = grpc_conn_new(grpc->frontend, span_of(NULL, 0), grpc->s.now_ns);
    assert_non_null(grpc->conn);
    grpc->client = client_of(grpc);
}

/* A frontend and one connection, whose client has said nothing yet. To be freed by grpc_close().
 */
static inline struct grpc_client *grpc_open_since(const char *yaml, int64_t epoch_ns,
                                                  const struct grpc_limits *limits,
                                                  struct access *access)
{
    struct grpc_client *grpc = calloc(1, sizeof(*grpc));
    assert_non_null(grpc);
    serve_since(&grpc->s, yaml, epoch_ns);
    stint_table_set_now(grpc->s.table, grpc->s.now_ns);
    grpc->is_ready = true;
    grpc->access = access_now_new(access);
    assert_non_null(grpc->access);
    grpc->frontend =
        grpc_frontend_new(&(struct grpc_frontend_options){.service = grpc->s.service,
                                                          .access = grpc->access,
                                                          .limits = limits,
                                                          .is_ready = grpc_client_is_ready,
                                                          .arg = grpc});
    assert_non_null(grpc->frontend);
    connect_to(grpc);
    nghttp2_submit_settings(grpc->client, NGHTTP2_FLAG_NONE, NULL, 0);
    return grpc;
}

static inline struct grpc_client *grpc_open(const char *yaml, const struct grpc_limits *limits,
                                            struct access *access)
{
    return grpc_open_since(yaml, 0, limits, access);
}

/* All of them have ended. */
static inline void forget_calls(struct grpc_client *grpc)
{
    for (size_t i = 0; i < grpc->n_heard; i++) {
        free(grpc->heard[i].data);
        free(grpc->heard[i].says);
    }
    grpc->n_heard = 0;
}

static inline void hang_up_on(struct grpc_client *grpc)
{
    grpc->conn->ops->free(grpc->conn);
    nghttp2_session_del(grpc->client);
    forget_calls(grpc);
    grpc->n_goaways = 0;
}

static inline void grpc_close(struct grpc_client *grpc)
{
    hang_up_on(grpc);
    grpc_frontend_free(grpc->frontend);
    access_now_free(grpc->access);
    server_close(&grpc->s);
    free(grpc);
}

/* ---- Bytes to and fro ------------------------------------------------------------------------ */

/* As the socket's owner would, where other connections have nothing to do. */
static inline void let_work(struct grpc_client *grpc)
{
    struct conn *conn = grpc->conn;
    while (conn->ops->has_work(conn) || conn->ops->deadline(conn) <= grpc->s.now_ns)
        conn->ops->wake(conn, grpc->s.now_ns);
}

static inline void feed_conn(struct grpc_client *grpc, struct span bytes)
{
    while (bytes.len > 0) {
        size_t len = grpc->piece > 0 && grpc->piece < bytes.len ? grpc->piece : bytes.len;
        /* In memory of its own: what is read beyond it, or later, is seen. */
        uint8_t *copy = malloc(len);
        assert_non_null(copy);
        memcpy(copy, bytes.ptr, len);
        grpc->conn->ops->feed(grpc->conn, span_of(copy, len), grpc->s.now_ns);
        free(copy);
        let_work(grpc);
        bytes = span_of(bytes.ptr + len, bytes.len - len);
    }
}

/* The client says what it has to say. */
static inline bool say_all(struct grpc_client *grpc)
{
    const uint8_t *bytes;
    ssize_t len;
    bool any = false;
    while ((len = nghttp2_session_mem_send(grpc->client, &bytes)) > 0) {
        feed_conn(grpc, span_of(bytes, (size_t)len));
        any = true;
    }
    assert_int_equal(len, 0);
    return any;
}

/* The same, in one feed. */
static inline void say_at_once(struct grpc_client *grpc)
{
    static uint8_t all[1 << 20];
    const uint8_t *bytes;
    ssize_t len;
    size_t n = 0;
    while ((len = nghttp2_session_mem_send(grpc->client, &bytes)) > 0) {
        assert_true(n + (size_t)len <= sizeof(all));
        memcpy(all + n, bytes, (size_t)len);
        n += (size_t)len;
    }
    feed_conn(grpc, span_of(all, n));
}

/* nghttp2's client is deaf to what follows a GOAWAY while it has no calls: these are counted here.
 */
static inline void look_for_goaways(struct grpc_client *grpc, struct span frames)
{
    while (frames.len > 0) {
        assert_true(frames.len >= 9);
        size_t len = 9 + ((size_t)frames.ptr[0] << 16 | (size_t)frames.ptr[1] << 8 | frames.ptr[2]);
        assert_true(frames.len >= len);
        if (frames.ptr[3] == NGHTTP2_GOAWAY) {
            const uint8_t *last = frames.ptr + 9;
            grpc->n_goaways++;
            grpc->goaway_last = last[0] << 24 | last[1] << 16 | last[2] << 8 | last[3];
            grpc->goaway_code = last[7];
        }
        frames = span_of(frames.ptr + len, frames.len - len);
    }
}

/* The client hears what waits. */
static inline bool hear_all(struct grpc_client *grpc)
{
    struct span output;
    bool any = false;
    while ((output = grpc->conn->ops->output(grpc->conn)).len > 0) {
        look_for_goaways(grpc, output);
        ssize_t len = nghttp2_session_mem_recv(grpc->client, output.ptr, output.len);
        assert_int_equal(len, output.len);
        grpc->conn->ops->sent(grpc->conn, output.len, grpc->s.now_ns);
        let_work(grpc);
        grpc->n_writes++;
        any = true;
    }
    return any;
}

/* Until both have said all. */
static inline void exchange(struct grpc_client *grpc)
{
    bool any;
    do {
        any = say_all(grpc);
        any |= hear_all(grpc);
    } while (any);
}

static inline void set_now(struct grpc_client *grpc, uint64_t now_ns)
{
    grpc->s.now_ns = now_ns;
    stint_table_set_now(grpc->s.table, now_ns);
}

/* As the socket's owner would: wakes it when it is time, and no sooner. */
static inline void pass(struct grpc_client *grpc, uint64_t ns)
{
    uint64_t until_ns = grpc->s.now_ns + ns;
    for (;;) {
        uint64_t at_ns = grpc->conn->ops->deadline(grpc->conn);
        if (at_ns > until_ns)
            break;
        assert_true(at_ns > grpc->s.now_ns || ns == 0);
        set_now(grpc, at_ns);
        grpc->conn->ops->wake(grpc->conn, at_ns);
        assert_true(grpc->conn->ops->deadline(grpc->conn) > at_ns);
    }
    set_now(grpc, until_ns);
}

static inline bool is_over(const struct grpc_client *grpc)
{
    return grpc->conn->ops->is_over(grpc->conn);
}

/* ---- Calls ----------------------------------------------------------------------------------- */

struct field {
    const char *name, *value;
};

static inline nghttp2_nv nv_of(const struct field *field)
{
    return (nghttp2_nv){(uint8_t *)(uintptr_t)field->name, (uint8_t *)(uintptr_t)field->value,
                        strlen(field->name), strlen(field->value), NGHTTP2_NV_FLAG_NONE};
}

/* A request of these fields, and these bytes as they are. */
static inline struct heard *call_with(struct grpc_client *grpc, const struct field *fields,
                                      size_t n_fields, struct span bytes, bool says_more)
{
    nghttp2_nv list[16];
    const nghttp2_data_provider provider = {.read_callback = say_data};
    struct heard *heard = &grpc->heard[grpc->n_heard];
    assert_true(grpc->n_heard < HEARD_MAX && n_fields <= N(list));
    for (size_t i = 0; i < n_fields; i++)
        list[i] = nv_of(&fields[i]);
    *heard = (struct heard){.status = -1, .says_more = says_more, .says_len = bytes.len};
    heard->says = malloc(bytes.len + 1);
    assert_non_null(heard->says);
    if (bytes.len > 0)
        memcpy(heard->says, bytes.ptr, bytes.len);
    heard->id = nghttp2_submit_request(grpc->client, NULL, list, n_fields,
                                       bytes.len > 0 || says_more ? &provider : NULL, NULL);
    assert_true(heard->id > 0);
    grpc->n_heard++;
    return heard;
}

/* A message behind its prefix; static memory. */
static inline struct span framed(struct span message)
{
    static uint8_t bytes[(4 << 20) + GRPC_PREFIX];
    assert_true(message.len <= sizeof(bytes) - GRPC_PREFIX);
    grpc_frame_write(bytes, false, message.len);
    if (message.len > 0)
        memcpy(bytes + GRPC_PREFIX, message.ptr, message.len);
    return span_of(bytes, GRPC_PREFIX + message.len);
}

/* With up to three fields more than every call has. */
static inline struct heard *call_bytes(struct grpc_client *grpc, const char *path,
                                       struct span bytes, const struct field *more)
{
    struct field fields[9] = {{":method", "POST"},
                              {":scheme", "http"},
                              {":path", path},
                              {":authority", "stint"},
                              {"content-type", "application/grpc"},
                              {"te", "trailers"}};
    size_t n = 6;
    for (; more != NULL && more->name != NULL; more++) {
        assert_true(n < N(fields));
        fields[n++] = *more;
    }
    return call_with(grpc, fields, n, bytes, false);
}

static inline struct heard *call_path(struct grpc_client *grpc, const char *path,
                                      struct span message)
{
    return call_bytes(grpc, path, framed(message), NULL);
}

/* ShouldRateLimit of descriptors as text, in domain "d". */
static inline struct heard *call_limit(struct grpc_client *grpc, const char *text,
                                       const struct field *more)
{
    struct asked asked;
    struct wire message;
    struct span request = wire_of_request(&message, descriptors_of(&asked, text));
    return call_bytes(grpc, SHOULD_RATE_LIMIT, framed(request), more);
}

/* The message of an answer that has one. */
static inline struct span message_of(const struct heard *heard)
{
    struct grpc_frame frame;
    struct stint_error error;
    int len = grpc_frame_read(span_of(heard->data, heard->len), 1 << 24, &frame, &error);
    assert_int_equal(len, heard->len);
    assert_false(frame.is_compressed);
    return frame.message;
}

static inline void assert_status(const struct heard *heard, int status, const char *message)
{
    if (heard->status != status || strstr(heard->message, message) == NULL)
        fail_msg("stream %d: HTTP %u, status %d, %s", heard->id, heard->http_status, heard->status,
                 heard->message);
}

/* OK as gRPC has it, and RLS_CODE_OK or RLS_OVER_LIMIT in it. */
static inline void assert_code(const struct heard *heard, unsigned code)
{
    assert_status(heard, GRPC_OK, "");
    assert_int_equal(heard->http_status, 200);
    assert_true(heard->is_closed);
    assert_int_equal(heard->close_code, NGHTTP2_NO_ERROR);
    assert_int_equal(wire_number_of(message_of(heard), 1), code);
}

#endif
