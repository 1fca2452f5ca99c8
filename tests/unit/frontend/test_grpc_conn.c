/* SPDX-License-Identifier: MIT */
/* Calls of a gRPC connection, each in virtual time: what is answered, and what is charged. */
#include "unit/test_access.h"
#include "unit/test_grpc_client.h"

#include "proto/grpc/rls.h"

#define YAML                                                                                       \
    "domain: d\n"                                                                                  \
    "descriptors:\n"                                                                               \
    "  - key: k\n"                                                                                 \
    "    rate_limit: {unit: minute, requests_per_unit: 3}\n"                                       \
    "  - key: many\n"                                                                              \
    "    rate_limit: {unit: hour, requests_per_unit: 100000}\n"

static struct grpc_client *grpc;

SETUP
{
    grpc = grpc_open(YAML, NULL, NULL);
}

TEARDOWN
{
    grpc_close(grpc);
}

static void reopen(const struct grpc_limits *limits, struct access *access)
{
    grpc_close(grpc);
    grpc = grpc_open(YAML, limits, access);
}

TEST(a_call_is_answered)
{
    for (int i = 0; i < 3; i++) {
        struct heard *heard = call_limit(grpc, "k=a", NULL);
        exchange(grpc);
        assert_code(heard, RLS_CODE_OK);
    }
    struct heard *heard = call_limit(grpc, "k=a", NULL);
    exchange(grpc);
    assert_code(heard, RLS_OVER_LIMIT);
    assert_int_equal(left(&grpc->s, "k=a"), 0);
    assert_false(grpc->conn->ops->is_busy(grpc->conn));
    assert_int_equal(grpc->conn->ops->deadline(grpc->conn), STINT_NEVER_NS);
}

TEST(a_burst_is_answered_in_one_output)
{
    exchange(grpc);
    for (int i = 0; i < 100; i++)
        call_limit(grpc, "many=a", NULL);
    say_at_once(grpc);
    grpc->n_writes = 0;
    hear_all(grpc);
    assert_int_equal(grpc->n_writes, 1);
    for (int i = 0; i < 100; i++)
        assert_code(&grpc->heard[i], RLS_CODE_OK);
    assert_int_equal(left(&grpc->s, "many=a"), 100000 - 100);
}

TEST(a_thousand_streams_at_once_are_answered)
{
    exchange(grpc);
    for (int i = 0; i < 1000; i++)
        call_limit(grpc, "many=a", NULL);
    exchange(grpc);
    for (int i = 0; i < 1000; i++)
        assert_code(&grpc->heard[i], RLS_CODE_OK);
    assert_int_equal(left(&grpc->s, "many=a"), 100000 - 1000);
}

TEST(any_pieces_give_the_same_answers)
{
    for (size_t piece = 1; piece <= 64; piece = piece < 16 ? piece + 1 : piece * 2) {
        char key[32];
        reopen(NULL, NULL);
        grpc->piece = piece;
        snprintf(key, sizeof(key), "k=%zu", piece);
        for (int i = 0; i < 4; i++)
            call_limit(grpc, key, NULL);
        call_path(grpc, HEALTH "Check", span_of("", 0));
        call_path(grpc, "/no.such/Method", span_of("", 0));
        exchange(grpc);
        for (int i = 0; i < 3; i++)
            assert_code(&grpc->heard[i], RLS_CODE_OK);
        assert_code(&grpc->heard[3], RLS_OVER_LIMIT);
        assert_code(&grpc->heard[4], 1);
        assert_status(&grpc->heard[5], GRPC_UNIMPLEMENTED, "no such method");
        assert_int_equal(left(&grpc->s, key), 0);
    }
}

TEST(methods_are_paths)
{
    static const struct {
        const char *path;
        bool is_known;
    } rows[] = {
        {"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", true},
        {"/kuadrant.service.ratelimit.v1.RateLimitService/CheckRateLimit", true},
        {"/kuadrant.service.ratelimit.v1.RateLimitService/Report", true},
        {"/kuadrant.service.ratelimit.v1.RateLimitService/Reserve", true},
        {"/kuadrant.service.ratelimit.v1.RateLimitService/Commit", true},
        {"/kuadrant.service.ratelimit.v1.RateLimitService/ShouldRateLimit", false},
        {HEALTH "Check", true},
        {HEALTH "List", true},
        {HEALTH "check", false},
        {HEALTH "Check/", false},
        {"/", false},
        {"/envoy.service.ratelimit.v2.RateLimitService/ShouldRateLimit", false},
    };
    for (size_t i = 0; i < N(rows); i++)
        call_path(grpc, rows[i].path, span_of("", 0));
    exchange(grpc);
    for (size_t i = 0; i < N(rows); i++)
        if ((grpc->heard[i].status != GRPC_UNIMPLEMENTED) != rows[i].is_known)
            fail_msg("%s: %d", rows[i].path, grpc->heard[i].status);
}

TEST(a_message_may_span_frames)
{
    struct asked asked;
    struct wire message;
    struct span bytes = framed(wire_of_request(&message, descriptors_of(&asked, "k=a")));
    const struct field fields[] = {{":method", "POST"},
                                   {":scheme", "http"},
                                   {":authority", "stint"},
                                   {":path", SHOULD_RATE_LIMIT},
                                   {"content-type", "application/grpc+proto"}};
    for (size_t cut = 1; cut < bytes.len; cut++) {
        reopen(NULL, NULL);
        struct heard *heard = call_with(grpc, fields, N(fields), bytes, true);
        heard->says_len = cut;
        exchange(grpc);
        assert_int_equal(heard->status, -1);
        assert_true(grpc->conn->ops->is_busy(grpc->conn));
        assert_int_equal(left(&grpc->s, "k=a"), 3);
        heard->says_len = bytes.len;
        heard->says_more = false;
        nghttp2_session_resume_data(grpc->client, heard->id);
        exchange(grpc);
        assert_code(heard, RLS_CODE_OK);
        assert_int_equal(left(&grpc->s, "k=a"), 2);
    }
}

/* ---- What is not as it must be --------------------------------------------------------------- */

TEST(methods_and_types_that_are_not_of_grpc_are_refused_as_http)
{
    static const struct {
        const char *method, *type;
        unsigned status;
    } cases[] = {
        {"GET", "application/grpc", 405},
        {"PUT", "application/grpc", 405},
        {"POST", "application/json", 415},
        {"POST", "application/grpcx", 415},
        {"POST", "application/grpc+json", 415},
        {"POST", "application/grpc-web", 415},
        {"POST", "", 415},
    };
    for (size_t i = 0; i < N(cases); i++) {
        const struct field fields[] = {{":method", cases[i].method},
                                       {":scheme", "http"},
                                       {":authority", "stint"},
                                       {":path", SHOULD_RATE_LIMIT},
                                       {"content-type", cases[i].type}};
        struct heard *heard =
            call_with(grpc, fields, N(fields), framed(span_of("", 0)), i % 2 == 0);
        exchange(grpc);
        assert_int_equal(heard->http_status, cases[i].status);
        assert_true(heard->is_closed);
        assert_int_equal(heard->len, 0);
    }
    assert_false(grpc->conn->ops->is_busy(grpc->conn));
}

TEST(types_may_have_proto_and_parameters)
{
    static const char *const types[] = {"application/grpc", "application/grpc+proto",
                                        "Application/gRPC;charset=utf-8",
                                        "application/grpc+proto; x=y"};
    for (size_t i = 0; i < N(types); i++) {
        const struct field fields[] = {{":method", "POST"},
                                       {":scheme", "http"},
                                       {":authority", "stint"},
                                       {":path", HEALTH "Check"},
                                       {"content-type", types[i]}};
        struct heard *heard = call_with(grpc, fields, N(fields), framed(span_of("", 0)), false);
        exchange(grpc);
        assert_code(heard, 1);
    }
}

TEST(messages_that_are_not_one_are_refused)
{
    struct asked asked;
    struct wire message;
    uint8_t bytes[512];
    struct span one = framed(wire_of_request(&message, descriptors_of(&asked, "k=a")));
    memcpy(bytes, one.ptr, one.len);
    memcpy(bytes + one.len, one.ptr, one.len);

    struct heard *none = call_bytes(grpc, SHOULD_RATE_LIMIT, span_of("", 0), NULL);
    struct heard *two = call_bytes(grpc, SHOULD_RATE_LIMIT, span_of(bytes, 2 * one.len), NULL);
    struct heard *half = call_bytes(grpc, SHOULD_RATE_LIMIT, span_of(bytes, one.len - 1), NULL);
    struct heard *flag = call_bytes(grpc, SHOULD_RATE_LIMIT, span_of("\2\0\0\0\0", 5), NULL);
    struct heard *packed = call_bytes(grpc, SHOULD_RATE_LIMIT, span_of("\1\0\0\0\0", 5), NULL);
    struct heard *large = call_bytes(grpc, SHOULD_RATE_LIMIT, span_of("\0\0\x10\0\1abc", 8), NULL);
    exchange(grpc);
    assert_status(none, GRPC_UNIMPLEMENTED, "expected one message, and there is none");
    assert_status(two, GRPC_UNIMPLEMENTED, "expected one message, and there are more");
    assert_status(half, GRPC_INTERNAL, "the request ends within its message");
    assert_status(flag, GRPC_INTERNAL, "");
    assert_status(packed, GRPC_INTERNAL, "a compressed message without grpc-encoding");
    assert_status(large, GRPC_RESOURCE_EXHAUSTED, "");
    assert_int_equal(left(&grpc->s, "k=a"), 3);
}

TEST(what_is_no_request_is_an_invalid_argument)
{
    struct heard *no_domain = call_path(grpc, SHOULD_RATE_LIMIT, span_of("", 0));
    struct heard *no_protobuf = call_path(grpc, SHOULD_RATE_LIMIT, span_of("\xff\xff\xff", 3));
    struct heard *health = call_path(grpc, HEALTH "Check", span_of("\x0a\x7f", 2));
    exchange(grpc);
    assert_status(no_domain, GRPC_INVALID_ARGUMENT, "domain");
    assert_status(no_protobuf, GRPC_INVALID_ARGUMENT, "RateLimitRequest");
    assert_status(health, GRPC_INVALID_ARGUMENT, "");
}

TEST(a_message_of_the_limit_is_taken_and_one_byte_more_is_not)
{
    static uint8_t bytes[66001];
    const struct grpc_limits limits = {.message_bytes = 66000};
    reopen(&limits, NULL);
    /* Behind the request one field that nobody knows: 2 bytes are its tag, 3 its length. */
    struct asked asked;
    struct wire message;
    wire_of_request(&message, descriptors_of(&asked, "k=a"));
    size_t rest = 66000 - message.len - 5;
    wire_varint(&message, 100 << 3 | 2);
    wire_varint(&message, rest);
    memcpy(bytes, message.bytes, message.len);
    assert_int_equal(message.len + rest, 66000);
    struct heard *fits = call_path(grpc, SHOULD_RATE_LIMIT, span_of(bytes, 66000));
    exchange(grpc);
    assert_code(fits, RLS_CODE_OK);
    struct heard *too_long = call_path(grpc, SHOULD_RATE_LIMIT, span_of(bytes, 66001));
    exchange(grpc);
    assert_status(too_long, GRPC_RESOURCE_EXHAUSTED, "");
    assert_true(too_long->is_closed);
    assert_true(too_long->said < 66001); /* known from the prefix */
}

TEST(fields_beyond_the_limit_are_refused)
{
    static char text[2000];
    const struct grpc_limits limits = {.header_bytes = 1500};
    reopen(&limits, NULL);
    memset(text, 'x', sizeof(text) - 1);
    const struct field more[] = {{"x-long", text}, {NULL, NULL}};
    struct heard *heard = call_limit(grpc, "k=a", more);
    struct heard *next = call_limit(grpc, "k=a", NULL);
    exchange(grpc);
    assert_status(heard, GRPC_RESOURCE_EXHAUSTED, "the header fields are too long");
    assert_code(next, RLS_CODE_OK);
    assert_int_equal(left(&grpc->s, "k=a"), 2);
}

/* ---- Deadlines ------------------------------------------------------------------------------- */

TEST(a_call_that_comes_too_late_is_not_charged)
{
    struct asked asked;
    struct wire message;
    struct span bytes = framed(wire_of_request(&message, descriptors_of(&asked, "k=a")));
    const struct field fields[] = {{":method", "POST"},
                                   {":scheme", "http"},
                                   {":authority", "stint"},
                                   {":path", SHOULD_RATE_LIMIT},
                                   {"content-type", "application/grpc"},
                                   {"grpc-timeout", "20m"}};
    static const uint64_t after_ms[] = {19, 20};
    for (size_t i = 0; i < N(after_ms); i++) {
        struct heard *heard = call_with(grpc, fields, N(fields), bytes, true);
        exchange(grpc);
        pass(grpc, after_ms[i] * MS);
        heard->says_more = false;
        nghttp2_session_resume_data(grpc->client, heard->id);
        exchange(grpc);
        if (after_ms[i] < 20)
            assert_code(heard, RLS_CODE_OK);
        else
            assert_status(heard, GRPC_DEADLINE_EXCEEDED, "");
        assert_int_equal(left(&grpc->s, "k=a"), 2);
    }
}

TEST(a_deadline_that_is_over_on_arrival_charges_nothing)
{
    static const char *const timeouts[] = {"0n", "0H", "1n", "999n"};
    for (size_t i = 0; i < N(timeouts); i++) {
        const struct field more[] = {{"grpc-timeout", timeouts[i]}, {NULL, NULL}};
        struct heard *heard = call_limit(grpc, "k=a", more);
        exchange(grpc);
        assert_status(heard, GRPC_DEADLINE_EXCEEDED, "too late");
    }
    assert_int_equal(left(&grpc->s, "k=a"), 3);
}

TEST(timeouts_that_cannot_be_read_are_refused)
{
    static const char *const timeouts[] = {"", "1", "m", "123456789m", "-1m", "1x", "1 m"};
    for (size_t i = 0; i < N(timeouts); i++) {
        const struct field more[] = {{"grpc-timeout", timeouts[i]}, {NULL, NULL}};
        struct heard *heard = call_limit(grpc, "k=a", more);
        exchange(grpc);
        assert_status(heard, GRPC_INVALID_ARGUMENT, "grpc-timeout");
    }
    const struct field longest[] = {{"grpc-timeout", "99999999H"}, {NULL, NULL}};
    struct heard *heard = call_limit(grpc, "k=a", longest);
    exchange(grpc);
    assert_code(heard, RLS_CODE_OK);
    assert_int_equal(left(&grpc->s, "k=a"), 2);
}

TEST(a_call_that_is_taken_back_is_not_charged)
{
    struct asked asked;
    struct wire message;
    struct span bytes = framed(wire_of_request(&message, descriptors_of(&asked, "k=a")));
    const struct field fields[] = {{":method", "POST"},
                                   {":scheme", "http"},
                                   {":authority", "stint"},
                                   {":path", SHOULD_RATE_LIMIT},
                                   {"content-type", "application/grpc"}};
    struct heard *heard = call_with(grpc, fields, N(fields), bytes, true);
    exchange(grpc);
    assert_true(grpc->conn->ops->is_busy(grpc->conn));
    nghttp2_submit_rst_stream(grpc->client, NGHTTP2_FLAG_NONE, heard->id, NGHTTP2_CANCEL);
    exchange(grpc);
    assert_false(grpc->conn->ops->is_busy(grpc->conn));
    assert_int_equal(left(&grpc->s, "k=a"), 3);
}

TEST(a_request_that_does_not_end_is_ended)
{
    const struct grpc_limits limits = {.call_ns = 5 * S};
    const struct field fields[] = {{":method", "POST"},
                                   {":scheme", "http"},
                                   {":authority", "stint"},
                                   {":path", SHOULD_RATE_LIMIT},
                                   {"content-type", "application/grpc"}};
    reopen(&limits, NULL);
    struct heard *heard = call_with(grpc, fields, N(fields), span_of("\0\0", 2), true);
    exchange(grpc);
    pass(grpc, 5 * S - 1);
    exchange(grpc);
    assert_false(heard->is_closed);
    pass(grpc, 1);
    exchange(grpc);
    assert_status(heard, GRPC_DEADLINE_EXCEEDED, "the request does not end");
    assert_true(heard->is_closed);
    assert_false(is_over(grpc));
    assert_false(grpc->conn->ops->is_busy(grpc->conn));
    assert_int_equal(grpc->conn->ops->deadline(grpc->conn), STINT_NEVER_NS);

    grpc_frontend_set_call_time(grpc->frontend, 2 * S);
    heard = call_with(grpc, fields, N(fields), span_of("\0\0", 2), true);
    exchange(grpc);
    pass(grpc, 2 * S);
    exchange(grpc);
    assert_status(heard, GRPC_DEADLINE_EXCEEDED, "the request does not end");
}

/* ---- Compression ----------------------------------------------------------------------------- */

/* ShouldRateLimit, in gzip. */
static struct heard *call_packed(const char *text, const struct field *more)
{
    static uint8_t bytes[4096];
    struct asked asked;
    struct wire message;
    struct span packed;
    struct grpc_zip *zip = grpc_zip_new();
    assert_non_null(zip);
    assert_true(
        grpc_zip_write(zip, wire_of_request(&message, descriptors_of(&asked, text)), &packed));
    grpc_frame_write(bytes, true, packed.len);
    memcpy(bytes + GRPC_PREFIX, packed.ptr, packed.len);
    grpc_zip_free(zip);
    return call_bytes(grpc, SHOULD_RATE_LIMIT, span_of(bytes, GRPC_PREFIX + packed.len), more);
}

TEST(gzip_is_read_and_answered_where_it_is_accepted)
{
    const struct field both[] = {{"grpc-encoding", "gzip"},
                                 {"grpc-accept-encoding", "identity, deflate, gzip"},
                                 {NULL, NULL}};
    const struct field one[] = {{"grpc-encoding", "gzip"}, {NULL, NULL}};
    struct heard *packed = call_packed("k=a", both);
    struct heard *plain = call_packed("k=a", one);
    /* Whoever accepts it and does not speak it is answered as he speaks. */
    struct heard *spoken = call_limit(grpc, "k=a", both);
    exchange(grpc);
    assert_string_equal(packed->encoding, "gzip");
    struct grpc_frame frame;
    struct stint_error error;
    struct span message;
    assert_int_equal(grpc_frame_read(span_of(packed->data, packed->len), 4096, &frame, &error),
                     packed->len);
    assert_true(frame.is_compressed);
    struct grpc_zip *zip = grpc_zip_new();
    assert_int_equal(grpc_zip_read(zip, frame.message, 4096, &message, &error), 0);
    assert_int_equal(wire_number_of(message, 1), RLS_CODE_OK);
    grpc_zip_free(zip);
    assert_string_equal(plain->encoding, "");
    assert_code(plain, RLS_CODE_OK);
    assert_string_equal(spoken->encoding, "");
    assert_code(spoken, RLS_CODE_OK);
    assert_int_equal(left(&grpc->s, "k=a"), 0);
}

TEST(other_encodings_are_refused_with_those_that_there_are)
{
    const struct field snappy[] = {{"grpc-encoding", "snappy"}, {NULL, NULL}};
    struct heard *heard = call_limit(grpc, "k=a", snappy);
    exchange(grpc);
    assert_status(heard, GRPC_UNIMPLEMENTED, "grpc-encoding");
    assert_string_equal(heard->accepts, "identity,gzip");
    assert_int_equal(left(&grpc->s, "k=a"), 3);
}

TEST(what_inflates_beyond_the_limit_is_refused)
{
    static uint8_t zeros[2 << 20], bytes[1 << 16];
    const struct field gzip[] = {{"grpc-encoding", "gzip"}, {NULL, NULL}};
    struct span packed;
    struct grpc_zip *zip = grpc_zip_new();
    assert_true(grpc_zip_write(zip, span_of(zeros, sizeof(zeros)), &packed));
    assert_true(packed.len < sizeof(bytes) - GRPC_PREFIX);
    grpc_frame_write(bytes, true, packed.len);
    memcpy(bytes + GRPC_PREFIX, packed.ptr, packed.len);
    struct heard *bomb =
        call_bytes(grpc, SHOULD_RATE_LIMIT, span_of(bytes, GRPC_PREFIX + packed.len), gzip);
    struct heard *junk = call_bytes(grpc, SHOULD_RATE_LIMIT, span_of("\1\0\0\0\4junk", 9), gzip);
    grpc_zip_free(zip);
    exchange(grpc);
    assert_status(bomb, GRPC_RESOURCE_EXHAUSTED, "");
    assert_status(junk, GRPC_INTERNAL, "");
}

/* ---- Who asks -------------------------------------------------------------------------------- */

#define SECRET_A "secret-of-a-secret-of-a-secret-of-a"
#define SECRET_M "secret-of-m-secret-of-m-secret-of-m"

static struct heard *call_as(const char *authorization)
{
    const struct field more[] = {{"authorization", authorization}, {NULL, NULL}};
    struct heard *heard = call_limit(grpc, "k=a", authorization != NULL ? more : NULL);
    exchange(grpc);
    return heard;
}

TEST(tokens_say_who_may_ask)
{
    reopen(NULL, access_of("a ask " SECRET_A "\nm metrics " SECRET_M));
    assert_status(call_as(NULL), GRPC_UNAUTHENTICATED, "a token is required");
    assert_status(call_as("Basic YTpi"), GRPC_UNAUTHENTICATED, "a token is required");
    assert_status(call_as("Bearer nobody"), GRPC_UNAUTHENTICATED, "no such token");
    assert_status(call_as("Bearer " SECRET_M), GRPC_PERMISSION_DENIED, "roles");
    assert_int_equal(left(&grpc->s, "k=a"), 3);
    assert_code(call_as("Bearer " SECRET_A), RLS_CODE_OK);
    assert_code(call_as("bearer  " SECRET_A), RLS_CODE_OK);
    assert_status(call_as("Bearer " SECRET_M), GRPC_PERMISSION_DENIED, "roles");
    assert_int_equal(left(&grpc->s, "k=a"), 1);
    struct heard *health = call_path(grpc, HEALTH "Check", span_of("", 0));
    exchange(grpc);
    assert_code(health, 1);
}

TEST(tokens_that_are_taken_unavailable_are_gone_at_once)
{
    struct asked asked;
    struct wire message;
    const struct field fields[] = {{":method", "POST"},
                                   {":scheme", "http"},
                                   {":authority", "stint"},
                                   {":path", SHOULD_RATE_LIMIT},
                                   {"content-type", "application/grpc"},
                                   {"authorization", "Bearer " SECRET_A}};
    reopen(NULL, access_of("a ask " SECRET_A "\nm metrics " SECRET_M));
    assert_code(call_as("Bearer " SECRET_A), RLS_CODE_OK);
    struct heard *half =
        call_with(grpc, fields, N(fields),
                  framed(wire_of_request(&message, descriptors_of(&asked, "k=a"))), true);
    exchange(grpc);
    access_now_set(grpc->access, access_of("a metrics " SECRET_A "\nm metrics " SECRET_M));
    half->says_more = false;
    nghttp2_session_resume_data(grpc->client, half->id);
    exchange(grpc);
    assert_status(half, GRPC_PERMISSION_DENIED, "roles");
    assert_status(call_as("Bearer " SECRET_A), GRPC_PERMISSION_DENIED, "roles");
    access_now_set(grpc->access, access_of("a ask " SECRET_A "\nm metrics " SECRET_M));
    assert_code(call_as("Bearer " SECRET_A), RLS_CODE_OK);
    assert_int_equal(left(&grpc->s, "k=a"), 1);
}
