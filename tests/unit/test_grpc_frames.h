/* SPDX-License-Identifier: MIT */
/* A gRPC client that makes its frames by hand, and reads the server's one by one. */
#ifndef STINT_TESTS_TEST_GRPC_FRAMES_H
#define STINT_TESTS_TEST_GRPC_FRAMES_H

#include "unit/test_grpc_client.h"

#define YAML                                                                                       \
    "domain: d\n"                                                                                  \
    "descriptors:\n"                                                                               \
    "  - key: k\n"                                                                                 \
    "    rate_limit: {unit: minute, requests_per_unit: 100000}\n"

#define PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

static struct grpc_client *grpc;

/* Frames of the client, by hand. */
static struct {
    uint8_t bytes[1 << 20];
    size_t len;
} frames;

SETUP
{
    grpc = grpc_open(YAML, NULL, NULL);
    frames.len = 0;
}

TEARDOWN
{
    grpc_close(grpc);
}

static inline void reconnect(const struct grpc_limits *limits)
{
    grpc_close(grpc);
    grpc = grpc_open(YAML, limits, NULL);
    frames.len = 0;
}

static inline void put(const void *bytes, size_t len)
{
    assert_true(len <= sizeof(frames.bytes) - frames.len);
    if (len > 0)
        memcpy(frames.bytes + frames.len, bytes, len);
    frames.len += len;
}

static inline void put_frame(uint8_t type, uint8_t flags, uint32_t id, const void *payload,
                             size_t len)
{
    const uint8_t head[9] = {
        (uint8_t)(len >> 16), (uint8_t)(len >> 8), (uint8_t)len,       type,       flags,
        (uint8_t)(id >> 24),  (uint8_t)(id >> 16), (uint8_t)(id >> 8), (uint8_t)id};
    put(head, sizeof(head));
    put(payload, len);
}

static inline void put_preface(void)
{
    put(PREFACE, sizeof(PREFACE) - 1);
    put_frame(NGHTTP2_SETTINGS, 0, 0, NULL, 0);
}

static inline void say_frames(void)
{
    feed_conn(grpc, span_of(frames.bytes, frames.len));
    frames.len = 0;
}

/* Header fields of a call, without a table: all of them literal. */
struct block {
    uint8_t bytes[8192];
    size_t len;
};

static inline void put_field(struct block *block, const char *name, const char *value)
{
    size_t name_len = strlen(name), value_len = strlen(value);
    assert_true(name_len < 127 && value_len < 127);
    block->bytes[block->len++] = 0x10; /* never indexed */
    block->bytes[block->len++] = (uint8_t)name_len;
    memcpy(block->bytes + block->len, name, name_len);
    block->len += name_len;
    block->bytes[block->len++] = (uint8_t)value_len;
    memcpy(block->bytes + block->len, value, value_len);
    block->len += value_len;
}

static inline void put_call(struct block *block)
{
    block->len = 0;
    put_field(block, ":method", "POST");
    put_field(block, ":scheme", "http");
    put_field(block, ":path", SHOULD_RATE_LIMIT);
    put_field(block, ":authority", "stint");
    put_field(block, "content-type", "application/grpc");
}

static inline void put_headers(uint32_t id, uint8_t flags, const struct block *block)
{
    put_frame(NGHTTP2_HEADERS, flags, id, block->bytes, block->len);
}

#define LAST NGHTTP2_FLAG_END_STREAM
#define WHOLE NGHTTP2_FLAG_END_HEADERS

/* ---- What the server says, frame by frame ---------------------------------------------------- */

struct answer {
    unsigned n_goaways, n_resets, n_headers, n_pongs;
    uint32_t goaway_code, reset_code;
};

/* Takes all that waits. */
static inline struct answer take_answer(void)
{
    struct answer answer = {0};
    struct span output;
    while ((output = grpc->conn->ops->output(grpc->conn)).len > 0) {
        size_t total = output.len;
        while (output.len > 0) {
            assert_true(output.len >= 9);
            const uint8_t *head = output.ptr;
            size_t len = 9 + ((size_t)head[0] << 16 | (size_t)head[1] << 8 | head[2]);
            assert_true(len <= output.len);
            if (head[3] == NGHTTP2_GOAWAY) {
                answer.n_goaways++;
                answer.goaway_code = head[16];
            } else if (head[3] == NGHTTP2_RST_STREAM) {
                answer.n_resets++;
                answer.reset_code = head[12];
            }
            answer.n_headers += head[3] == NGHTTP2_HEADERS;
            answer.n_pongs += head[3] == NGHTTP2_PING && head[4] == NGHTTP2_FLAG_ACK;
            output = span_of(output.ptr + len, output.len - len);
        }
        grpc->conn->ops->sent(grpc->conn, total, grpc->s.now_ns);
        let_work(grpc);
    }
    return answer;
}

static inline void assert_sent_unavailable(uint32_t code)
{
    struct answer answer = take_answer();
    assert_int_equal(answer.n_goaways, 1);
    assert_int_equal(answer.goaway_code, code);
    assert_true(is_over(grpc));
}

static inline void put_ping(uint32_t i)
{
    (void)i;
    put_frame(NGHTTP2_PING, 0, 0, "12345678", 8);
}

#endif
