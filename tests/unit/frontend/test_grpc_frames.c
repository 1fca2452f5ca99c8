/* SPDX-License-Identifier: MIT */
/*
 * Bytes that are not HTTP/2, or frames at fault, on a gRPC connection: what is answered follows RFC
 * 9113, and the connection ends where it says so.
 */
#include "unit/test_grpc_frames.h"

/* ---- What is not HTTP/2 ---------------------------------------------------------------------- */

TEST(other_protocols_are_left_without_a_word)
{
    static const char *const texts[] = {"GET / HTTP/1.1\r\nHost: stint\r\n\r\n",
                                        "*1\r\n$4\r\nPING\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\r",
                                        "\x16\x03\x01\x02\x00\x01"};
    for (size_t i = 0; i < N(texts); i++)
        for (size_t piece = 0; piece < 2; piece++) {
            reconnect(NULL);
            grpc->piece = piece;
            put(texts[i], strlen(texts[i]));
            say_frames();
            assert_true(is_over(grpc));
            assert_int_equal(grpc->conn->ops->output(grpc->conn).len, 0);
        }
}

TEST(half_a_preface_is_busy_and_unanswered)
{
    assert_false(grpc->conn->ops->is_busy(grpc->conn));
    put(PREFACE, 10);
    say_frames();
    assert_true(grpc->conn->ops->is_busy(grpc->conn));
    assert_false(is_over(grpc));
    assert_int_equal(grpc->conn->ops->output(grpc->conn).len, 0);
    put(&PREFACE[10], sizeof(PREFACE) - 11);
    put_frame(NGHTTP2_SETTINGS, 0, 0, NULL, 0);
    say_frames();
    assert_false(grpc->conn->ops->is_busy(grpc->conn));
    assert_true(grpc->conn->ops->output(grpc->conn).len > 0);
}

TEST(frames_that_break_the_protocol_end_the_connection)
{
    static const struct {
        const char *what;
        uint8_t type, flags;
        uint32_t id;
        const char *payload;
        size_t len;
        uint32_t code;
    } cases[] = {
        {"DATA of no stream", NGHTTP2_DATA, 0, 0, "x", 1, NGHTTP2_PROTOCOL_ERROR},
        {"DATA of an idle stream", NGHTTP2_DATA, 0, 5, "x", 1, NGHTTP2_PROTOCOL_ERROR},
        {"HEADERS of no stream", NGHTTP2_HEADERS, WHOLE, 0, "\x82", 1, NGHTTP2_PROTOCOL_ERROR},
        {"HEADERS of an even stream", NGHTTP2_HEADERS, WHOLE, 2, "\x82", 1, NGHTTP2_PROTOCOL_ERROR},
        {"CONTINUATION of nothing", NGHTTP2_CONTINUATION, WHOLE, 1, "\x82", 1,
         NGHTTP2_PROTOCOL_ERROR},
        {"RST_STREAM of no stream", NGHTTP2_RST_STREAM, 0, 0, "\0\0\0\x8", 4,
         NGHTTP2_PROTOCOL_ERROR},
        {"RST_STREAM of an idle stream", NGHTTP2_RST_STREAM, 0, 1, "\0\0\0\x8", 4,
         NGHTTP2_PROTOCOL_ERROR},
        {"a short RST_STREAM", NGHTTP2_RST_STREAM, 0, 1, "\0\0\0", 3, NGHTTP2_FRAME_SIZE_ERROR},
        {"SETTINGS of a stream", NGHTTP2_SETTINGS, 0, 1, "", 0, NGHTTP2_PROTOCOL_ERROR},
        {"SETTINGS of 5 bytes", NGHTTP2_SETTINGS, 0, 0, "\0\3\0\0\0", 5, NGHTTP2_FRAME_SIZE_ERROR},
        {"an ACK with settings", NGHTTP2_SETTINGS, NGHTTP2_FLAG_ACK, 0, "\0\3\0\0\0\1", 6,
         NGHTTP2_FRAME_SIZE_ERROR},
        {"a window of more than 2^31", NGHTTP2_SETTINGS, 0, 0, "\0\4\x80\0\0\0", 6,
         NGHTTP2_FLOW_CONTROL_ERROR},
        {"a frame size of less than 2^14", NGHTTP2_SETTINGS, 0, 0, "\0\5\0\0\0\1", 6,
         NGHTTP2_PROTOCOL_ERROR},
        {"PUSH_PROMISE", NGHTTP2_PUSH_PROMISE, WHOLE, 1, "\0\0\0\2\x82", 5, NGHTTP2_PROTOCOL_ERROR},
        {"a PING of 6 bytes", NGHTTP2_PING, 0, 0, "123456", 6, NGHTTP2_FRAME_SIZE_ERROR},
        {"a PING of a stream", NGHTTP2_PING, 0, 1, "12345678", 8, NGHTTP2_PROTOCOL_ERROR},
        {"GOAWAY of a stream", NGHTTP2_GOAWAY, 0, 1, "\0\0\0\0\0\0\0\0", 8, NGHTTP2_PROTOCOL_ERROR},
        {"WINDOW_UPDATE by nothing", NGHTTP2_WINDOW_UPDATE, 0, 0, "\0\0\0\0", 4,
         NGHTTP2_PROTOCOL_ERROR},
        {"WINDOW_UPDATE by too much", NGHTTP2_WINDOW_UPDATE, 0, 0, "\x7f\xff\xff\xff", 4,
         NGHTTP2_FLOW_CONTROL_ERROR},
        {"a short WINDOW_UPDATE", NGHTTP2_WINDOW_UPDATE, 0, 0, "\0\0\1", 3,
         NGHTTP2_FRAME_SIZE_ERROR},
        {"fields that are none", NGHTTP2_HEADERS, WHOLE | LAST, 1, "\x80", 1,
         NGHTTP2_COMPRESSION_ERROR},
        {"a table beyond the limit", NGHTTP2_HEADERS, WHOLE | LAST, 1, "\x3f\xe1\xff\x7f", 4,
         NGHTTP2_COMPRESSION_ERROR},
        {"padding beyond the frame", NGHTTP2_HEADERS, WHOLE | LAST | NGHTTP2_FLAG_PADDED, 1,
         "\x9\x82", 2, NGHTTP2_PROTOCOL_ERROR},
    };
    for (size_t i = 0; i < N(cases); i++) {
        reconnect(NULL);
        grpc->piece = i % 2;
        put_preface();
        put_frame(cases[i].type, cases[i].flags, cases[i].id, cases[i].payload, cases[i].len);
        say_frames();
        struct answer answer = take_answer();
        if (answer.n_goaways != 1 || answer.goaway_code != cases[i].code || !is_over(grpc))
            fail_msg("%s: %u GOAWAYs, code %u, %s", cases[i].what, answer.n_goaways,
                     answer.goaway_code, is_over(grpc) ? "over" : "not over");
    }
}

TEST(a_frame_of_more_than_is_allowed_ends_the_connection)
{
    static uint8_t zeros[16385];
    struct block block;
    put_preface();
    put_call(&block);
    put_headers(1, WHOLE, &block);
    put_frame(NGHTTP2_DATA, 0, 1, zeros, sizeof(zeros));
    say_frames();
    assert_sent_unavailable(NGHTTP2_FRAME_SIZE_ERROR);
}

TEST(frames_between_headers_end_the_connection)
{
    struct block block;
    put_preface();
    put_call(&block);
    put_headers(1, 0, &block);
    put_frame(NGHTTP2_PING, 0, 0, "12345678", 8);
    say_frames();
    assert_sent_unavailable(NGHTTP2_PROTOCOL_ERROR);
}

TEST(data_behind_the_end_is_an_error)
{
    struct block block;
    const struct grpc_limits limits = {.output_bytes = 1};
    reconnect(&limits); /* the answer is not all gone: the stream is still there */
    put_preface();
    put_call(&block);
    put_headers(1, WHOLE | LAST, &block);
    put_frame(NGHTTP2_DATA, 0, 1, "x", 1);
    say_frames();
    assert_sent_unavailable(NGHTTP2_STREAM_CLOSED);
}

TEST(ids_that_go_back_are_an_error)
{
    struct block block;
    put_preface();
    put_call(&block);
    put_headers(5, WHOLE | LAST, &block);
    put_headers(3, WHOLE | LAST, &block);
    say_frames();
    struct answer answer = take_answer();
    assert_int_equal(answer.n_headers, 1); /* of 5 alone */
}

TEST(malformed_calls_are_reset_and_the_connection_goes_on)
{
    static const char *const fields[][2] = {
        {"Upper-Case", "x"},     {":status", "200"},
        {":method", "POST"},     {"connection", "close"},
        {"te", "gzip"},          {"x y", "z"},
        {"x", "a\rb"},           {":unknown", "x"},
        {"content-length", "5"}, {"transfer-encoding", "chunked"},
    };
    uint32_t id = 1;
    struct block block;
    put_preface();
    for (size_t i = 0; i < N(fields); i++, id += 2) {
        put_call(&block);
        put_field(&block, fields[i][0], fields[i][1]);
        put_headers(id, WHOLE | LAST, &block);
        say_frames();
        struct answer answer = take_answer();
        if (answer.n_resets != 1 || answer.reset_code != NGHTTP2_PROTOCOL_ERROR || is_over(grpc))
            fail_msg("%s: %u resets, code %u", fields[i][0], answer.n_resets, answer.reset_code);
    }
    /* What has to be there is not. */
    for (size_t without = 0; without < 4; without++, id += 2) {
        static const char *const needed[][2] = {
            {":method", "POST"}, {":scheme", "http"}, {":path", "/x"}, {":authority", "stint"}};
        block.len = 0;
        for (size_t i = 0; i < N(needed); i++)
            if (i != without)
                put_field(&block, needed[i][0], needed[i][1]);
        put_headers(id, WHOLE | LAST, &block);
        say_frames();
        struct answer answer = take_answer();
        assert_int_equal(answer.n_resets, 1);
        assert_int_equal(answer.reset_code, NGHTTP2_PROTOCOL_ERROR);
    }
    assert_int_equal(left(&grpc->s, "k=a"), 100000);
    assert_false(grpc->conn->ops->is_busy(grpc->conn));
    put_call(&block);
    put_headers(id, WHOLE | LAST, &block);
    say_frames();
    assert_int_equal(take_answer().n_headers, 1);
}

TEST(frames_that_nobody_knows_are_ignored)
{
    put_preface();
    put_frame(0x77, 0xff, 0, "whatever", 8);
    put_frame(0x77, 0xff, 9, "whatever", 8);
    put_frame(NGHTTP2_SETTINGS, 0, 0, "\x77\x77\0\0\0\1", 6);
    put_ping(0);
    say_frames();
    assert_int_equal(take_answer().n_pongs, 1);
    assert_false(is_over(grpc));
}

/* ---- Frames that do not end ------------------------------------------------------------------ */

/* Each leaves something open that belongs to no call. The last bytes are fed after some time. */
static void put_half_preface(void)
{
    put(PREFACE, 10);
}

static void put_half_a_head(void)
{
    put_preface();
    put("\0\0\x08\x06", 4);
}

static void put_half_a_ping(void)
{
    put_preface();
    put_ping(0);
    frames.len -= 3;
}

static void put_half_an_unknown_frame(void)
{
    put_preface();
    put_frame(0x77, 0, 0, "12345678", 8);
    frames.len -= 8;
}

static void put_half_a_block(void)
{
    struct block block;
    put_preface();
    put_call(&block);
    put_headers(1, 0, &block);
    frames.len -= 20;
}

/* nghttp2 knows no call of it, and skips it. */
static void put_half_a_block_of_a_closed_stream(void)
{
    struct block block;
    put_preface();
    put_call(&block);
    put_headers(1, WHOLE | LAST, &block);
    put_frame(NGHTTP2_RST_STREAM, 0, 1, "\0\0\0\x08", 4);
    put_headers(1, LAST, &block);
}

static void (*const halves[])(void) = {put_half_preface, put_half_a_head,
                                       put_half_a_ping,  put_half_an_unknown_frame,
                                       put_half_a_block, put_half_a_block_of_a_closed_stream};

/* Also where the connection has a deadline of its own, as that of its age. */
TEST(frames_that_do_not_end_are_sent_unavailable_with_their_time)
{
    for (size_t i = 0; i < N(halves); i++)
        for (uint64_t age_ns = 0; age_ns <= 1000 * S; age_ns += 1000 * S) {
            const struct grpc_limits limits = {.call_ns = 10 * S, .age_ns = age_ns};
            reconnect(&limits);
            halves[i]();
            say_frames();
            take_answer();
            assert_false(is_over(grpc));
            assert_true(grpc->conn->ops->is_busy(grpc->conn));
            pass(grpc, 10 * S - 1);
            assert_int_equal(take_answer().n_goaways, 0);
            assert_false(is_over(grpc));
            pass(grpc, 1);
            struct answer answer = take_answer();
            assert_int_equal(answer.n_goaways, halves[i] == put_half_preface ? 0 : 1);
            assert_true(is_over(grpc));
        }
}

/* The time is that of one frame: of two that each take less, the second has its own. */
TEST(frames_that_end_in_time_are_read)
{
    const struct grpc_limits limits = {.call_ns = 10 * S};
    reconnect(&limits);
    put_preface();
    say_frames();
    take_answer();
    for (int i = 0; i < 5; i++) {
        put_ping(0);
        put_ping(0);
        frames.len -= 8;
        say_frames();
        pass(grpc, 6 * S);
        put("12345678", 8);
        put("\0\0\x08\x06\0", 5);
        say_frames();
        pass(grpc, 6 * S);
        put("\0\0\0\0"
            "12345678",
            12);
        say_frames();
        assert_int_equal(take_answer().n_pongs, 3);
        assert_false(is_over(grpc));
        assert_false(grpc->conn->ops->is_busy(grpc->conn));
    }
}
