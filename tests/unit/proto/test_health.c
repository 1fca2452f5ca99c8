/* SPDX-License-Identifier: MIT */
/* Health, against bytes from the published numbers. */
#include "unit/test_protobuf.h"

#include "proto/grpc/grpc.h"

static struct stint_error error;
static struct span service;

static void assert_service(const void *bytes, size_t len, const char *expected)
{
    assert_int_equal(health_read(span_of(bytes, len), &service, &error), 0);
    assert_int_equal(service.len, strlen(expected));
    assert_memory_equal(service.ptr, expected, service.len);
}

TEST(test_a_request_names_a_service)
{
    assert_service("", 0, "");
    assert_service("\x0a\x00", 2, "");
    assert_service("\x0a\x09ratelimit", 11, "ratelimit");
    assert_service("\x10\x07\x0a\x01x\x1a\x01y", 8, "x"); /* and fields that are unknown */
}

TEST(test_what_is_no_request_is_refused)
{
    assert_int_equal(health_read(span_of("\x0a\x09rate", 6), &service, &error), STINT_E_SYNTAX);
    assert_string_equal(error.message, "expected a HealthCheckRequest in protobuf");
}

TEST(test_services_that_have_a_health)
{
    static const char *const known[] = {"", "ratelimit",
                                        "envoy.service.ratelimit.v3.RateLimitService",
                                        "kuadrant.service.ratelimit.v1.RateLimitService"};
    static const char *const unknown[] = {"x", "RateLimit", "grpc.health.v1.Health", "ratelimit "};
    for (size_t i = 0; i < N(known); i++)
        assert_true(health_knows(span_of_text(known[i])));
    for (size_t i = 0; i < N(unknown); i++)
        assert_false(health_knows(span_of_text(unknown[i])));
}

TEST(test_a_name_of_any_length_is_read)
{
    struct wire wire = {.len = 0};
    char text[1000];
    memset(text, 'x', sizeof(text));
    wire_span(&wire, 1, span_of(text, sizeof(text)));
    assert_int_equal(health_read(wired(&wire), &service, &error), 0);
    assert_int_equal(service.len, sizeof(text));
    assert_false(health_knows(service));
    wire.len = 0;
    wire_span(&wire, 1, span_of("ratelimit\0", 10));
    assert_int_equal(health_read(wired(&wire), &service, &error), 0);
    assert_false(health_knows(service));
}

TEST(test_an_answer_is_a_number)
{
    uint8_t bytes[HEALTH_MESSAGE_MAX];
    assert_true(span_equals(health_write(bytes, HEALTH_SERVING), "\x08\x01"));
    assert_true(span_equals(health_write(bytes, HEALTH_NOT_SERVING), "\x08\x02"));
    assert_true(span_equals(health_write(bytes, HEALTH_SERVICE_UNKNOWN), "\x08\x03"));
    assert_int_equal(health_write(bytes, HEALTH_UNKNOWN).len, 0);
}

TEST(test_a_list_has_every_service)
{
    uint8_t bytes[HEALTH_MESSAGE_MAX];
    struct span list = health_write_list(bytes, HEALTH_NOT_SERVING);
    assert_int_equal(wire_count(list, 1), 4);
    for (size_t i = 0; i < 4; i++) {
        struct span entry = wire_bytes_of(list, 1, i);
        assert_true(health_knows(wire_bytes_of(entry, 1, 0)));
        assert_int_equal(wire_number_of(wire_bytes_of(entry, 2, 0), 1), HEALTH_NOT_SERVING);
    }
}
