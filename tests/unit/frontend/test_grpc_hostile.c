/* SPDX-License-Identifier: MIT */
/* Floods, bombs and unread answers on a gRPC connection: all of it is bounded. */
#include "unit/test_grpc_frames.h"

#include "proto/grpc/rls.h"

#include <malloc.h>

/* What a connection may hold for a peer that sends much and reads nothing. */
#define HOSTILE_HELD_MAX (768u << 10)

extern size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

/* ---- Floods ---------------------------------------------------------------------------------- */

#define FLOOD 4000

static void put_settings(uint32_t i)
{
    (void)i;
    put_frame(NGHTTP2_SETTINGS, 0, 0, NULL, 0);
}

static void put_window(uint32_t i)
{
    (void)i;
    put_frame(NGHTTP2_WINDOW_UPDATE, 0, 0, "\0\0\0\1", 4);
}

static void put_priority(uint32_t i)
{
    put_frame(NGHTTP2_PRIORITY, 0, 2 * i + 1, "\0\0\0\0\1", 5);
}

static void put_reset_of_call(uint32_t i)
{
    struct block block;
    put_call(&block);
    put_headers(2 * i + 1, WHOLE, &block);
    put_frame(NGHTTP2_RST_STREAM, 0, 2 * i + 1, "\0\0\0\x8", 4);
}

static void put_empty_data(uint32_t i)
{
    struct block block;
    put_call(&block);
    if (i == 0)
        put_headers(1, WHOLE, &block);
    put_frame(NGHTTP2_DATA, 0, 1, NULL, 0);
}

static void put_padding(uint32_t i)
{
    struct block block;
    put_call(&block);
    if (i == 0)
        put_headers(1, WHOLE, &block);
    put_frame(NGHTTP2_DATA, NGHTTP2_FLAG_PADDED, 1, "\3\0\0\0", 4);
}

static void put_malformed_call(uint32_t i)
{
    struct block block;
    put_call(&block);
    put_field(&block, "Upper-Case", "x");
    put_headers(2 * i + 1, WHOLE | LAST, &block);
}

static void put_pong(uint32_t i)
{
    (void)i;
    put_frame(NGHTTP2_PING, NGHTTP2_FLAG_ACK, 0, "12345678", 8);
}

TEST(floods_are_sent_unavailable)
{
    static void (*const floods[])(uint32_t i) = {put_ping,     put_settings,       put_window,
                                                 put_priority, put_reset_of_call,  put_empty_data,
                                                 put_padding,  put_malformed_call, put_pong};
    for (size_t flood = 0; flood < N(floods); flood++) {
        reconnect(NULL);
        put_preface();
        uint32_t n = 0;
        while (!is_over(grpc) && n < FLOOD) {
            floods[flood](n++);
            say_frames();
        }
        if (n < 900 || n > 1001)
            fail_msg("flood %zu ended after %u frames", flood, n);
        assert_sent_unavailable(NGHTTP2_ENHANCE_YOUR_CALM);
        assert_int_equal(left(&grpc->s, "k=a"), 100000);
    }
}

TEST(the_same_in_one_piece_is_sent_unavailable_too)
{
    static void (*const floods[])(uint32_t i) = {put_ping, put_settings, put_reset_of_call};
    for (size_t flood = 0; flood < N(floods); flood++) {
        reconnect(NULL);
        put_preface();
        for (uint32_t i = 0; i < FLOOD; i++)
            floods[flood](i);
        say_frames();
        assert_sent_unavailable(NGHTTP2_ENHANCE_YOUR_CALM);
    }
}

TEST(what_comes_slowly_or_beside_calls_is_no_flood)
{
    exchange(grpc);
    for (int i = 0; i < 3000; i++) {
        nghttp2_submit_ping(grpc->client, NGHTTP2_FLAG_NONE, NULL);
        exchange(grpc);
        pass(grpc, 10 * MS);
    }
    assert_int_equal(grpc->n_pongs, 3000);
    for (int i = 0; i < 1900; i++) {
        struct heard *heard = call_limit(grpc, "k=a", NULL);
        nghttp2_submit_ping(grpc->client, NGHTTP2_FLAG_NONE, NULL);
        exchange(grpc);
        assert_code(heard, RLS_CODE_OK);
    }
    assert_false(is_over(grpc));
}

TEST(calls_that_are_cancelled_when_they_are_answered_are_no_flood)
{
    exchange(grpc);
    for (int i = 0; i < 2000; i++) {
        struct heard *heard = call_limit(grpc, "k=a", NULL);
        say_all(grpc);
        nghttp2_submit_rst_stream(grpc->client, NGHTTP2_FLAG_NONE, heard->id, NGHTTP2_CANCEL);
        exchange(grpc);
    }
    assert_false(is_over(grpc));
    assert_int_equal(left(&grpc->s, "k=a"), 98000);
}

TEST(headers_without_an_end_are_sent_unavailable)
{
    struct block block;
    put_preface();
    put_call(&block);
    put_headers(1, 0, &block);
    for (int i = 0; i < 3000; i++)
        put_frame(NGHTTP2_CONTINUATION, 0, 1, NULL, 0);
    say_frames();
    assert_sent_unavailable(NGHTTP2_ENHANCE_YOUR_CALM);
}

/* One long field in the peer's table, told again and again by one byte each. */
TEST(a_bomb_of_fields_is_sent_unavailable)
{
    struct block block;
    uint8_t bomb[8000];
    put_preface();
    put_call(&block);
    block.bytes[block.len++] = 0x40; /* indexed from now on: x-bomb, 3,900 bytes */
    block.bytes[block.len++] = 6;
    memcpy(block.bytes + block.len, "x-bomb", 6);
    block.len += 6;
    block.bytes[block.len++] = 0x7f;
    block.bytes[block.len++] = (uint8_t)((3900 - 127) & 0x7f) | 0x80;
    block.bytes[block.len++] = (uint8_t)((3900 - 127) >> 7);
    memset(block.bytes + block.len, 'x', 3900);
    block.len += 3900;
    put_headers(1, 0, &block);
    memset(bomb, 0x80 | 62, sizeof(bomb));
    put_frame(NGHTTP2_CONTINUATION, WHOLE, 1, bomb, sizeof(bomb));
    say_frames();
    assert_sent_unavailable(NGHTTP2_ENHANCE_YOUR_CALM);
}

TEST(unfinished_messages_are_bounded)
{
    static uint8_t part[15000];
    const struct grpc_limits limits = {.message_bytes = 100000};
    struct block block;
    unsigned n_refused = 0;
    reconnect(&limits);
    put_preface();
    put_call(&block);
    grpc_frame_write(part, false, 50000);
    for (uint32_t i = 0; i < 60; i++) {
        put_headers(2 * i + 1, WHOLE, &block);
        put_frame(NGHTTP2_DATA, 0, 2 * i + 1, part, sizeof(part));
        say_frames();
        struct answer answer = take_answer();
        n_refused += answer.n_headers;
    }
    assert_in_range(n_refused, 60 - 400000 / 15000 - 1, 60 - 5);
    assert_false(is_over(grpc));
}

TEST(more_streams_than_are_allowed_are_refused)
{
    const struct grpc_limits limits = {.streams = 10};
    struct block block;
    reconnect(&limits);
    put_preface();
    put_call(&block);
    for (uint32_t i = 0; i < 11; i++)
        put_headers(2 * i + 1, WHOLE, &block);
    say_frames();
    struct answer answer = take_answer();
    assert_int_equal(answer.n_resets, 1);
    assert_int_equal(answer.reset_code, NGHTTP2_REFUSED_STREAM);
    assert_false(is_over(grpc));
}

/* ---- What one connection holds --------------------------------------------------------------- */

/* Bytes of the heap in use. */
static size_t heap_bytes(void)
{
    if (__sanitizer_get_current_allocated_bytes != NULL)
        return __sanitizer_get_current_allocated_bytes();
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

/* The peer's window of each stream: none. */
static void put_shut_windows(void)
{
    put_frame(NGHTTP2_SETTINGS, 0, 0, "\0\4\0\0\0\0", 6);
}

static void put_path(struct block *block, const char *path)
{
    block->len = 0;
    put_field(block, ":method", "POST");
    put_field(block, ":scheme", "http");
    put_field(block, ":path", path);
    put_field(block, ":authority", "stint");
    put_field(block, "content-type", "application/grpc");
}

/* Requests for a file with all that it imports, as many as fit; how many bytes they have. */
static size_t reflection_requests(uint8_t *bytes, size_t size)
{
    struct wire message = {.len = 0};
    wire_span(&message, 4, span_of_text("envoy.service.ratelimit.v3.RateLimitService"));
    struct span once = framed(wired(&message));
    size_t len = 0;
    for (; len + once.len <= size; len += once.len)
        memcpy(bytes + len, once.ptr, once.len);
    return len;
}

/* A stream for each of 1,000, and each full of requests whose answers are not read. */
TEST(reflection_whose_answers_are_not_read_holds_little)
{
    static uint8_t requests[15000];
    size_t len = reflection_requests(requests, sizeof(requests)), most = 0, total = 0;
    size_t before = heap_bytes();
    struct block block;
    put_preface();
    put_shut_windows();
    put_path(&block, REFLECTION);
    for (uint32_t i = 0; i < 1000; i++) {
        put_headers(2 * i + 1, WHOLE, &block);
        put_frame(NGHTTP2_DATA, 0, 2 * i + 1, requests, len);
        total += frames.len;
        say_frames();
        take_answer();
        size_t held = heap_bytes() - before;
        most = held > most ? held : most;
    }
    assert_false(is_over(grpc));
    print_message("sent %zu bytes, held at most %zu\n", total, most);
    assert_true(most < HOSTILE_HELD_MAX);
}

/* The same of calls that are answered once: their answers are longer than what asks for them. */
TEST(decisions_that_are_not_read_hold_little)
{
    struct asked asked;
    struct wire message;
    char text[32 * 8] = "";
    for (int i = 0; i < 31; i++)
        strcat(text, "k=a; ");
    strcat(text, "k=b");
    struct span request = framed(wire_of_request(&message, descriptors_of(&asked, text)));
    size_t before = heap_bytes(), most = 0;
    unsigned n_answered = 0;
    struct block block;
    put_preface();
    put_shut_windows();
    put_call(&block);
    for (uint32_t i = 0; i < 3000; i++) {
        put_headers(2 * i + 1, WHOLE, &block);
        put_frame(NGHTTP2_DATA, LAST, 2 * i + 1, request.ptr, request.len);
        say_frames();
        n_answered += take_answer().n_headers;
        size_t held = heap_bytes() - before;
        most = held > most ? held : most;
    }
    print_message("%u were answered, held at most %zu\n", n_answered, most);
    assert_int_equal(n_answered, 3000); /* refused, at the last */
    assert_true(most < HOSTILE_HELD_MAX);
    assert_in_range(left(&grpc->s, "k=b"), 100000 - 999, 100000 - 50);
}

/* Half messages on many connections: each still has its small share when all is held. */
TEST(many_connections_hold_little_together)
{
    static uint8_t part[14000];
    struct conn *conns[200];
    const struct grpc_limits limits = {.message_bytes = 30000};
    struct block block;
    reconnect(&limits);
    size_t before = heap_bytes();
    grpc_frame_write(part, false, 30000);
    for (size_t k = 0; k < N(conns); k++) {
        conns[k] = grpc_conn_new(grpc->frontend, span_of(NULL, 0), grpc->s.now_ns);
        frames.len = 0;
        put_preface();
        put_call(&block);
        for (uint32_t i = 0; i < 6; i++) {
            put_headers(2 * i + 1, WHOLE, &block);
            put_frame(NGHTTP2_DATA, 0, 2 * i + 1, part, sizeof(part));
        }
        conns[k]->ops->feed(conns[k], span_of(frames.bytes, frames.len), grpc->s.now_ns);
        conns[k]->ops->sent(conns[k], conns[k]->ops->output(conns[k]).len, grpc->s.now_ns);
    }
    size_t held = heap_bytes() - before;
    print_message("%zu connections hold %zu bytes\n", N(conns), held);
    assert_in_range(held, 64 * 30000, 64 * 30000 + N(conns) * 50000);
    for (size_t k = 0; k < N(conns); k++)
        conns[k]->ops->free(conns[k]);
}

TEST(watchers_of_one_connection_are_bounded)
{
    struct block block;
    unsigned n_headers = 0;
    put_preface();
    put_path(&block, HEALTH "Watch");
    for (uint32_t i = 0; i < 1000; i++) {
        put_headers(2 * i + 1, WHOLE, &block);
        put_frame(NGHTTP2_DATA, LAST, 2 * i + 1, "\0\0\0\0\0", 5);
        say_frames();
        struct answer answer = take_answer();
        n_headers += answer.n_headers;
    }
    assert_int_equal(n_headers, 1000); /* of which most are refusals */
    assert_false(is_over(grpc));
}

/* What a call that needs no token may send is no longer than its messages are. */
TEST(messages_of_calls_without_a_token_are_short)
{
    static const char *const paths[] = {HEALTH "Check", HEALTH "Watch", HEALTH "List", REFLECTION};
    struct block block;
    uint8_t head[GRPC_PREFIX];
    grpc_frame_write(head, false, 16385);
    put_preface();
    for (uint32_t i = 0; i < N(paths); i++) {
        put_path(&block, paths[i]);
        put_headers(2 * i + 1, WHOLE, &block);
        put_frame(NGHTTP2_DATA, 0, 2 * i + 1, head, sizeof(head));
        say_frames();
        assert_int_equal(take_answer().n_headers, 1);
    }
}

/* A peer that opens its windows byte by byte, so that something moves all the time. */
TEST(answers_that_are_read_byte_by_byte_end_with_their_time)
{
    struct asked asked;
    struct wire message;
    struct span request = framed(wire_of_request(&message, descriptors_of(&asked, "k=a")));
    static const char *const paths[] = {SHOULD_RATE_LIMIT, HEALTH "Watch", REFLECTION};
    struct block block;
    unsigned n_resets = 0;
    put_preface();
    put_shut_windows();
    for (uint32_t i = 0; i < N(paths); i++) {
        put_path(&block, paths[i]);
        put_headers(2 * i + 1, WHOLE, &block);
        if (i == 0)
            put_frame(NGHTTP2_DATA, LAST, 1, request.ptr, request.len);
        else
            put_frame(NGHTTP2_DATA, 0, 2 * i + 1, "\0\0\0\0\2\x3a\0", 7);
        if (i == 1)
            put_frame(NGHTTP2_DATA, LAST, 3, NULL, 0);
    }
    say_frames();
    take_answer();
    for (int i = 0; i < 6; i++) {
        assert_int_equal(n_resets, 0);
        for (uint32_t k = 0; k < N(paths); k++)
            put_frame(NGHTTP2_WINDOW_UPDATE, 0, 2 * k + 1, "\0\0\0\1", 4);
        say_frames();
        pass(grpc, 5 * S);
        n_resets += take_answer().n_resets;
    }
    assert_int_equal(n_resets, N(paths));
    assert_false(is_over(grpc));
    assert_false(grpc->conn->ops->is_busy(grpc->conn));
}

/* ---- Turns ----------------------------------------------------------------------------------- */

static void feed_raw(void)
{
    grpc->conn->ops->feed(grpc->conn, span_of(frames.bytes, frames.len), grpc->s.now_ns);
    frames.len = 0;
}

/* Turns until all is read and answered; the most that one of them wrote. */
static size_t turns_until_read(unsigned *n_turns)
{
    const struct conn_ops *does = grpc->conn->ops;
    size_t most = 0, len;
    *n_turns = 1;
    while (does->is_backpressured(grpc->conn) || does->output(grpc->conn).len > 0) {
        if ((len = does->output(grpc->conn).len) > 0)
            does->sent(grpc->conn, len, grpc->s.now_ns);
        most = len > most ? len : most;
        if (does->has_work(grpc->conn)) {
            does->wake(grpc->conn, grpc->s.now_ns);
            ++*n_turns;
        }
    }
    return most;
}

TEST(cheap_calls_in_one_piece_take_several_turns)
{
    struct asked asked;
    struct wire message;
    struct span request = framed(wire_of_request(&message, descriptors_of(&asked, "k=a")));
    struct block block;
    unsigned n_turns;
    const uint32_t n_calls = 600;
    put_preface();
    put_call(&block);
    for (uint32_t i = 0; i < n_calls; i++) {
        put_headers(2 * i + 1, WHOLE, &block);
        put_frame(NGHTTP2_DATA, LAST, 2 * i + 1, request.ptr, request.len);
    }
    feed_raw();
    assert_in_range(left(&grpc->s, "k=a"), 100000 - 300, 100000 - 150);
    turns_until_read(&n_turns);
    assert_in_range(n_turns, 3, 6);
    assert_int_equal(left(&grpc->s, "k=a"), 100000 - n_calls);
}

TEST(reflection_in_one_piece_takes_several_turns)
{
    static uint8_t requests[15000];
    size_t len = reflection_requests(requests, sizeof(requests));
    struct block block;
    unsigned n_turns;
    put_preface();
    put_frame(NGHTTP2_SETTINGS, 0, 0, "\0\4\x7f\xff\xff\xff", 6);
    put_frame(NGHTTP2_WINDOW_UPDATE, 0, 0, "\x7f\0\0\0", 4);
    put_path(&block, REFLECTION);
    put_headers(1, WHOLE, &block);
    for (int i = 0; i < 4; i++)
        put_frame(NGHTTP2_DATA, 0, 1, requests, len);
    feed_raw();
    assert_in_range(turns_until_read(&n_turns), 1000, (512 << 10));
    assert_in_range(n_turns, 10, 200);
}

/* The rest of what was fed waits until the output is read, and its peer's time runs meanwhile. */
TEST(what_is_not_written_is_not_read)
{
    const struct grpc_limits limits = {.output_bytes = 2000};
    struct block block;
    reconnect(&limits);
    put_preface();
    put_path(&block, HEALTH "List");
    for (uint32_t i = 0; i < 300; i++) {
        put_headers(2 * i + 1, WHOLE, &block);
        put_frame(NGHTTP2_DATA, LAST, 2 * i + 1, "\0\0\0\0\0", 5);
    }
    feed_raw();
    assert_true(grpc->conn->ops->is_backpressured(grpc->conn));
    assert_true(grpc->conn->ops->is_busy(grpc->conn));
    assert_true(grpc->conn->ops->deadline(grpc->conn) > grpc->s.now_ns);
    assert_in_range(grpc->conn->ops->output(grpc->conn).len, 2001, 6000);
    assert_int_equal(take_answer().n_headers, 2 * 300);
    assert_false(grpc->conn->ops->is_backpressured(grpc->conn));
}
