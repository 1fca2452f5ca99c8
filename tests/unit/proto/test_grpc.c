/* SPDX-License-Identifier: MIT */
/* What gRPC adds to HTTP/2: frames, compression, deadlines and statuses as text. */
#include "unit/test_quota.h"

#include "base/ns.h"
#include "proto/grpc/grpc.h"

#include <zlib.h>

static struct stint_error error;

/* ---- Frames ---------------------------------------------------------------------------------- */

TEST(test_a_frame_is_taken_when_it_is_whole)
{
    static const uint8_t bytes[] = {0, 0, 0, 0, 3, 'a', 'b', 'c', 1, 0, 0, 0, 0, 0};
    struct grpc_frame frame;
    for (size_t len = 0; len < 8; len++)
        assert_int_equal(grpc_frame_read(span_of(bytes, len), 3, &frame, &error), 0);
    assert_int_equal(grpc_frame_read(span_of(bytes, sizeof(bytes)), 3, &frame, &error), 8);
    assert_false(frame.is_compressed);
    assert_int_equal(frame.message.len, 3);
    assert_ptr_equal(frame.message.ptr, bytes + 5);
    assert_int_equal(grpc_frame_read(span_of(bytes + 8, 6), 0, &frame, &error), 5);
    assert_true(frame.is_compressed);
    assert_int_equal(frame.message.len, 0);
}

/* Before any of the message has come. */
TEST(test_a_frame_too_long_is_refused_by_its_prefix)
{
    static const struct {
        uint8_t prefix[GRPC_PREFIX];
        size_t max;
        const char *message;
    } rows[] = {
        {{0, 0, 0, 1, 1}, 256, "expected a message of at most 256 bytes, not 257"},
        {{1, 0, 0, 1, 1}, 256, "expected a message of at most 256 bytes, not 257"},
        {{0, 0xff, 0xff, 0xff, 0xff},
         1048576,
         "expected a message of at most 1048576 bytes, not 4294967295"},
    };
    struct grpc_frame frame;
    for (size_t i = 0; i < N(rows); i++) {
        assert_int_equal(
            grpc_frame_read(span_of(rows[i].prefix, GRPC_PREFIX), rows[i].max, &frame, &error),
            STINT_E_RANGE);
        assert_string_equal(error.message, rows[i].message);
    }
    /* No count of bytes is negative, whatever is allowed. */
    assert_int_equal(
        grpc_frame_read(span_of(rows[2].prefix, GRPC_PREFIX), SIZE_MAX, &frame, &error),
        STINT_E_RANGE);
}

TEST(test_a_flag_that_is_none_is_refused_at_once)
{
    struct grpc_frame frame;
    for (unsigned flag = 2; flag < 256; flag++) {
        uint8_t byte = (uint8_t)flag;
        assert_int_equal(grpc_frame_read(span_of(&byte, 1), 100, &frame, &error), STINT_E_SYNTAX);
    }
}

TEST(test_a_prefix_has_the_length_in_its_order)
{
    static const uint8_t expected[] = {1, 0x12, 0x34, 0x56, 0x78};
    uint8_t prefix[GRPC_PREFIX];
    grpc_frame_write(prefix, true, 0x12345678);
    assert_memory_equal(prefix, expected, GRPC_PREFIX);
    grpc_frame_write(prefix, false, 0);
    assert_memory_equal(prefix, "\0\0\0\0\0", GRPC_PREFIX);
}

/* ---- Deadlines ------------------------------------------------------------------------------- */

/* A preface, SETTINGS, DATA of three bytes and HEADERS of two: slices of each length from each
 * place. A slice grows to twice its length at most. */
TEST(test_a_slice_does_not_cut_the_end_of_data)
{
    enum { DATA = HTTP2_PREFACE + 18, DATA_END = DATA + 3 };
    static const uint8_t bytes[DATA_END + 11] = {[HTTP2_PREFACE + 3] = 4,
                                                 [DATA - 7] = 3,
                                                 [DATA_END + 2] = 2,
                                                 [DATA_END + 3] = 1,
                                                 [DATA_END + 4] = 4};
    for (size_t from = 0; from < sizeof(bytes); from++)
        for (size_t most = 1; from + most <= sizeof(bytes); most++)
            for (size_t end = from + most; end <= sizeof(bytes); end++) {
                struct http2_frames frames = {0};
                for (size_t i = 0, one = 1; i < from; i++, one = 1)
                    http2_frames_take(&frames, span_of(&bytes[i], 1), &one);
                size_t len = most, to = from + most;
                http2_frames_take(&frames, span_of(bytes + from, end - from), &len);
                bool is_cut = to >= DATA && to < DATA_END && end >= DATA_END;
                bool is_near = DATA_END - to <= most;
                assert_int_equal(from + len, is_cut && is_near ? DATA_END : to);
                assert_true(from + len != sizeof(bytes) || !http2_frames_are_open(&frames));
            }
}

TEST(test_timeouts)
{
    static const struct {
        const char *text;
        uint64_t ns;
    } rows[] = {
        {"1H", NS_PER_HOUR},       {"1M", NS_PER_MIN},
        {"10S", 10 * NS_PER_S},    {"250m", 250 * NS_PER_MS},
        {"7u", 7 * NS_PER_US},     {"99999999n", 99999999},
        {"00000001S", NS_PER_S},   {"0n", 0},
        {"99999999H", UINT64_MAX}, {"99999999M", 99999999 * NS_PER_MIN},
    };
    uint64_t ns;
    for (size_t i = 0; i < N(rows); i++) {
        assert_true(grpc_timeout_read(span_of_text(rows[i].text), &ns));
        assert_true(ns == rows[i].ns);
    }
}

TEST(test_what_is_no_timeout)
{
    static const char *const texts[] = {"",    "1",    "S",   "1s",         "1h",  "-1S",
                                        "+1S", "1.5S", " 1S", "100000000S", "1S ", "1SS",
                                        "1 S", "0x1S", "m",   "99999999"};
    uint64_t ns;
    for (size_t i = 0; i < N(texts); i++)
        if (grpc_timeout_read(span_of_text(texts[i]), &ns))
            fail_msg("\"%s\" is taken for %llu ns", texts[i], (unsigned long long)ns);
}

/* ---- Text ------------------------------------------------------------------------------------ */

static void assert_message(const char *message, size_t len, size_t size, const char *expected)
{
    char text[64];
    memset(text, '#', sizeof(text));
    size_t written = grpc_message_write(text, size, span_of(message, len));
    assert_int_equal(written, strlen(expected));
    assert_memory_equal(text, expected, written);
    assert_true(text[written] == '#');
}

TEST(test_messages_are_percent_encoded)
{
    assert_message("all is fine ~", 13, 60, "all is fine ~");
    assert_message("100 %", 5, 60, "100 %25");
    assert_message("a\r\nb\0c\x7f", 7, 60, "a%0D%0Ab%00c%7F");
    assert_message("\xe2\x82\xac", 3, 60, "%E2%82%AC");
    assert_message("", 0, 0, "");
}

/* A part of %XX would be another text. */
TEST(test_a_message_that_does_not_fit_is_cut)
{
    assert_message("abc", 3, 2, "ab");
    assert_message("ab\n", 3, 4, "ab");
    assert_message("ab\n", 3, 5, "ab%0A");
}

TEST(test_statuses_have_names)
{
    static const struct {
        int status;
        const char *name;
    } rows[] = {
        {0, "OK"},
        {3, "INVALID_ARGUMENT"},
        {4, "DEADLINE_EXCEEDED"},
        {5, "NOT_FOUND"},
        {7, "PERMISSION_DENIED"},
        {8, "RESOURCE_EXHAUSTED"},
        {12, "UNIMPLEMENTED"},
        {13, "INTERNAL"},
        {14, "UNAVAILABLE"},
        {16, "UNAUTHENTICATED"},
        {6, ""},
        {17, ""},
        {-1, ""},
    };
    for (size_t i = 0; i < N(rows); i++)
        assert_string_equal(grpc_status_name(rows[i].status), rows[i].name);
}

/* ---- Compression ----------------------------------------------------------------------------- */

TEST(test_encodings_have_names)
{
    assert_int_equal(grpc_encoding_of(span_of_text("identity")), GRPC_IDENTITY);
    assert_int_equal(grpc_encoding_of(span_of_text("gzip")), GRPC_GZIP);
    assert_int_equal(grpc_encoding_of(span_of_text("deflate")), GRPC_ENCODING_UNKNOWN);
    assert_int_equal(grpc_encoding_of(span_of_text("")), GRPC_ENCODING_UNKNOWN);
    static const char *const with[] = {"gzip", "identity,gzip", "identity, deflate, gzip",
                                       "  gzip\t, x", ",gzip"};
    for (size_t i = 0; i < N(with); i++)
        assert_true(grpc_accepts_gzip(span_of_text(with[i])));
    static const char *const without[] = {"", "identity", "gzipped", "x-gzip", "g zip", ",,", "gz"};
    for (size_t i = 0; i < N(without); i++)
        assert_false(grpc_accepts_gzip(span_of_text(without[i])));
}

/* By zlib itself, with a compressor of the test's own. */
static size_t pack(uint8_t *packed, size_t size, const uint8_t *plain, size_t len)
{
    z_stream stream = {0};
    assert_int_equal(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    uint8_t *copy = malloc(len + 1);
    memcpy(copy, plain, len);
    stream.next_in = copy;
    stream.avail_in = (uInt)len;
    stream.next_out = packed;
    stream.avail_out = (uInt)size;
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    deflateEnd(&stream);
    free(copy);
    return size - stream.avail_out;
}

static struct grpc_zip *zip;

SETUP
{
    zip = grpc_zip_new();
    assert_false(zip == NULL);
}

TEARDOWN
{
    grpc_zip_free(zip);
}

enum { BIG = 1 << 20 };
static uint8_t plain_bytes[BIG + 1], packed_bytes[BIG + 4096];

TEST(test_gzip_goes_both_ways)
{
    static const size_t lens[] = {0, 1, 5, 4095, 4096, 4097, 65536, 65537, BIG};
    for (size_t i = 0; i < BIG; i++)
        plain_bytes[i] = (uint8_t)(i * i >> 7);
    for (size_t round = 0; round < 2; round++) {
        for (size_t i = 0; i < N(lens); i++) {
            struct span packed, plain;
            size_t len = pack(packed_bytes, sizeof(packed_bytes), plain_bytes, lens[i]);
            assert_int_equal(
                grpc_zip_read(zip, span_of(packed_bytes, len), lens[i], &plain, &error), 0);
            assert_int_equal(plain.len, lens[i]);
            assert_memory_equal(plain.ptr, plain_bytes, lens[i]);
            assert_true(grpc_zip_write(zip, span_of(plain_bytes, lens[i]), &packed));
            assert_true(packed.len >= 18 && packed.ptr[0] == 0x1f && packed.ptr[1] == 0x8b);
            assert_int_equal(grpc_zip_read(zip, packed, lens[i], &plain, &error), 0);
            assert_int_equal(plain.len, lens[i]);
            assert_memory_equal(plain.ptr, plain_bytes, lens[i]);
        }
    }
}

TEST(test_a_bomb_costs_no_more_than_it_may_hold)
{
    static const size_t limits[] = {0, 1, 4095, 4096, 65536, BIG - 1};
    struct span plain;
    memset(plain_bytes, 0, sizeof(plain_bytes));
    size_t len = pack(packed_bytes, sizeof(packed_bytes), plain_bytes, BIG);
    assert_true(len < 2048);
    for (size_t i = 0; i < N(limits); i++) {
        char message[100];
        snprintf(message, sizeof(message),
                 "expected a message of at most %zu bytes when it is inflated", limits[i]);
        assert_int_equal(grpc_zip_read(zip, span_of(packed_bytes, len), limits[i], &plain, &error),
                         STINT_E_RANGE);
        assert_string_equal(error.message, message);
    }
    assert_int_equal(grpc_zip_read(zip, span_of(packed_bytes, len), BIG, &plain, &error), 0);
    assert_int_equal(plain.len, BIG);
}

TEST(test_what_is_no_gzip_is_refused)
{
    struct span plain;
    memset(plain_bytes, 'x', 1000);
    size_t len = pack(packed_bytes, sizeof(packed_bytes), plain_bytes, 1000);
    for (size_t cut = 0; cut < len; cut++) {
        assert_int_equal(grpc_zip_read(zip, span_of(packed_bytes, cut), 1000, &plain, &error),
                         STINT_E_SYNTAX);
        assert_string_equal(error.message, "expected one gzip member that is whole");
    }
    packed_bytes[len] = 'x'; /* more behind it */
    assert_int_equal(grpc_zip_read(zip, span_of(packed_bytes, len + 1), 1000, &plain, &error),
                     STINT_E_SYNTAX);
    packed_bytes[len - 5] ^= 1; /* another checksum */
    assert_int_equal(grpc_zip_read(zip, span_of(packed_bytes, len), 1000, &plain, &error),
                     STINT_E_SYNTAX);
    assert_int_equal(
        grpc_zip_read(zip, span_of("\x78\x9c\x03\x00\x00\x00\x00\x01", 8), 1000, &plain, &error),
        STINT_E_SYNTAX); /* zlib's own form */
    packed_bytes[len - 5] ^= 1;
    assert_int_equal(grpc_zip_read(zip, span_of(packed_bytes, len), 1000, &plain, &error), 0);
}
