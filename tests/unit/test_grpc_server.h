/* SPDX-License-Identifier: MIT */
/*
 * For tests of a client of gRPC, without sockets, in virtual time: nghttp2's server on the other
 * side of a link, which sends what a good one sends and what a hostile one may.
 */
#ifndef STINT_TESTS_TEST_GRPC_SERVER_H
#define STINT_TESTS_TEST_GRPC_SERVER_H

#include "unit/test_protobuf.h"

#include "proto/grpc/grpc.h"
#include "rpc/grpc_link.h"

#include <nghttp2/nghttp2.h>

struct grpc_server {
    struct link *link;
    uint64_t now_ns;
    nghttp2_session *session;
    int32_t stream;
    void (*hear)(struct span message); /* each message of the client */
    uint8_t in[1 << 18];
    size_t in_len;
    bool has_all; /* the client's side of the stream has ended */
    unsigned n_pings, n_window_updates, n_resets;
    const uint8_t *data; /* to be sent on the stream */
    size_t data_left;
    bool ends;    /* the stream ends with that data; `trailers` come after it */
    bool is_mute; /* its bytes are lost */
    nghttp2_nv trailers[3];
    size_t n_trailers;
};

#define FIELD(name, value)                                                                         \
    {                                                                                              \
        (uint8_t *)(uintptr_t)(name), (uint8_t *)(uintptr_t)(value), sizeof(name) - 1,             \
            sizeof(value) - 1, NGHTTP2_NV_FLAG_NONE                                                \
    }

/* ---- Callbacks of nghttp2 -------------------------------------------------------------------- */

static inline int hear_data(nghttp2_session *session, uint8_t flags, int32_t id,
                            const uint8_t *bytes, size_t len, void *arg)
{
    struct grpc_server *server = arg;
    struct grpc_frame frame;
    struct stint_error error;
    int used;
    (void)session, (void)flags;
    server->stream = id;
    assert_true(server->in_len + len <= sizeof(server->in));
    memcpy(server->in + server->in_len, bytes, len);
    server->in_len += len;
    while ((used = grpc_frame_read(span_of(server->in, server->in_len), sizeof(server->in), &frame,
                                   &error)) > 0) {
        server->hear(frame.message);
        server->in_len -= (size_t)used;
        memmove(server->in, server->in + used, server->in_len);
    }
    assert_int_equal(used, 0);
    return 0;
}

static inline int hear_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct grpc_server *server = arg;
    const nghttp2_frame_hd *head = &frame->hd;
    (void)session;
    server->n_pings += head->type == NGHTTP2_PING && (head->flags & NGHTTP2_FLAG_ACK) == 0;
    server->n_window_updates += head->type == NGHTTP2_WINDOW_UPDATE;
    server->n_resets += head->type == NGHTTP2_RST_STREAM;
    if (head->type == NGHTTP2_HEADERS) {
        server->stream = head->stream_id;
        server->has_all = false;
    }
    server->has_all |= head->type == NGHTTP2_DATA && (head->flags & NGHTTP2_FLAG_END_STREAM) != 0;
    return 0;
}

static inline ssize_t say_data(nghttp2_session *session, int32_t id, uint8_t *to, size_t size,
                               uint32_t *flags, nghttp2_data_source *source, void *arg)
{
    struct grpc_server *server = arg;
    size_t len = server->data_left < size ? server->data_left : size;
    (void)source;
    if (len == 0 && !server->ends)
        return NGHTTP2_ERR_DEFERRED;
    if (len > 0) {
        memcpy(to, server->data, len);
        server->data += len;
        server->data_left -= len;
    }
    if (server->data_left > 0 || !server->ends)
        return (ssize_t)len;
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (server->n_trailers > 0) {
        *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
        nghttp2_submit_trailer(session, id, server->trailers, server->n_trailers);
    }
    return (ssize_t)len;
}

/* ---- Bytes to and fro ------------------------------------------------------------------------ */

/* Moves what one side has to send; false: neither has anything. */
static inline bool exchange_once(struct grpc_server *server)
{
    const uint8_t *bytes;
    uint8_t copy[16384];
    struct span output = link_output(server->link);
    size_t len = output.len < sizeof(copy) ? output.len : sizeof(copy);
    if (len > 0) {
        memcpy(copy, output.ptr, len);
        link_sent(server->link, len);
        if (!server->is_mute)
            assert_int_equal(nghttp2_session_mem_recv(server->session, copy, len), len);
    }
    ssize_t said = server->is_mute ? 0 : nghttp2_session_mem_send(server->session, &bytes);
    assert_true(said >= 0);
    if (said > 0)
        link_feed(server->link, span_of(bytes, (size_t)said), server->now_ns);
    return len > 0 || said > 0;
}

static inline void exchange(struct grpc_server *server)
{
    while (exchange_once(server))
        ;
}

/* ---- Connections ----------------------------------------------------------------------------- */

/* A new connection, until both sides have said all. */
static inline void server_open_link(struct grpc_server *server)
{
    nghttp2_session_callbacks *callbacks;
    static const nghttp2_settings_entry settings[] = {{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 9}};
    nghttp2_session_del(server->session);
    assert_int_equal(nghttp2_session_callbacks_new(&callbacks), 0);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, hear_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, hear_frame);
    assert_int_equal(nghttp2_session_server_new(&server->session, callbacks, server), 0);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_submit_settings(server->session, NGHTTP2_FLAG_NONE, settings, 1);
    server->in_len = server->data_left = 0;
    assert_int_equal(link_wants(server->link), LINK_WANTS_SOCKET);
    link_dialling(server->link, server->now_ns);
    link_connected(server->link, server->now_ns);
    exchange(server);
    assert_true(link_is_ready(server->link));
}

/* A response of these fields, whose data comes later. */
static inline void respond(struct grpc_server *server, const nghttp2_nv *fields, size_t n)
{
    const nghttp2_data_provider provider = {.read_callback = say_data};
    assert_int_equal(nghttp2_submit_response(server->session, server->stream, fields, n, &provider),
                     0);
    exchange(server);
}

/* A response that ends with these fields. */
static inline void respond_without_data(struct grpc_server *server, const nghttp2_nv *fields,
                                        size_t n)
{
    assert_int_equal(nghttp2_submit_response(server->session, server->stream, fields, n, NULL), 0);
    exchange(server);
}

static inline void send_bytes(struct grpc_server *server, struct span bytes)
{
    server->data = bytes.ptr;
    server->data_left = bytes.len;
    nghttp2_session_resume_data(server->session, server->stream);
    exchange(server);
}

/* Bytes that are nothing that nghttp2 would send. */
static inline void feed_raw(struct grpc_server *server, const void *bytes, size_t len)
{
    link_feed(server->link, span_of(bytes, len), server->now_ns);
    link_sent(server->link, link_output(server->link).len);
}

static inline void wait_for(struct grpc_server *server, uint64_t ns)
{
    server->now_ns += ns;
    link_wake(server->link, server->now_ns);
    exchange(server);
}

static inline void assert_given_up(struct grpc_server *server, const char *why)
{
    assert_int_equal(link_wants(server->link), LINK_WANTS_CLOSE);
    if (strstr(link_fault(server->link), why) == NULL)
        fail_msg("%s, expected %s", link_fault(server->link), why);
}

/* The bytes of a message behind its prefix. */
static inline struct span framed(struct wire *wire, const struct wire *message)
{
    uint8_t prefix[GRPC_PREFIX];
    grpc_frame_write(prefix, false, message->len);
    wire->len = 0;
    wire_bytes(wire, span_of(prefix, GRPC_PREFIX));
    wire_bytes(wire, wired(message));
    return wired(wire);
}

#endif
