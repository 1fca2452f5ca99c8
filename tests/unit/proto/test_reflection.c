/* SPDX-License-Identifier: MIT */
/* Server reflection: each question that clients ask, and what is told of our own messages. */
#include "unit/test_protobuf.h"

#include "proto/grpc/grpc.h"
#include "proto/grpc/reflection.h"

/* Numbers of ServerReflectionRequest … */
enum { BY_NAME = 3, BY_SYMBOL = 4, BY_EXTENSION = 5, EXTENSIONS_OF = 6, LIST = 7 };
/* … and of ServerReflectionResponse. */
enum { HOST = 1, ORIGINAL = 2, FILES = 4, NUMBERS = 5, SERVICES = 6, FAULT = 7 };

static uint8_t *space;
static struct stint_error error;

TEARDOWN
{
    free(space);
    space = NULL;
}

static struct span answer_to(const struct wire *wire)
{
    struct span answer;
    uint8_t *copy = malloc(wire->len + 1);
    memcpy(copy, wire->bytes, wire->len);
    if (reflection_answer(span_of(copy, wire->len), &space, &answer, &error) != 0)
        fail_msg("%s", error.message);
    free(copy);
    return answer;
}

static struct span ask_for(unsigned field, const char *text)
{
    struct wire wire = {.len = 0};
    wire_text(&wire, HOST, "host");
    wire_text(&wire, field, text);
    struct span answer = answer_to(&wire);
    assert_true(wire_bytes_of(answer, HOST, 0).len == 4);
    struct span original = wire_bytes_of(answer, ORIGINAL, 0);
    assert_int_equal(original.len, wire.len);
    assert_memory_equal(original.ptr, wire.bytes, wire.len);
    return answer;
}

static void assert_fault(struct span answer, unsigned code)
{
    assert_int_equal(wire_count(answer, FAULT), 1);
    assert_int_equal(wire_number_of(wire_bytes_of(answer, FAULT, 0), 1), code);
    assert_true(wire_bytes_of(wire_bytes_of(answer, FAULT, 0), 2, 0).len > 0);
    assert_int_equal(wire_count(answer, FILES), 0);
}

/* The first file of an answer, by the name that is field 1 of a FileDescriptorProto. */
static void assert_file(struct span answer, const char *name)
{
    struct span file = wire_bytes_of(wire_bytes_of(answer, FILES, 0), 1, 0);
    struct span found = wire_bytes_of(file, 1, 0);
    if (!span_equals(found, name))
        fail_msg("%.*s, not %s", (int)found.len, (const char *)found.ptr, name);
}

TEST(test_services_are_listed)
{
    static const char *const names[] = {
        "envoy.service.ratelimit.v3.RateLimitService",
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
        "kuadrant.service.ratelimit.v1.RateLimitService",
    };
    struct span list = wire_bytes_of(ask_for(LIST, ""), SERVICES, 0);
    assert_int_equal(wire_count(list, 1), N(names));
    for (size_t i = 0; i < N(names); i++) {
        size_t n_found = 0;
        for (size_t k = 0; k < N(names); k++)
            n_found +=
                (size_t)span_equals(wire_bytes_of(wire_bytes_of(list, 1, k), 1, 0), names[i]);
        assert_int_equal(n_found, 1);
    }
    assert_int_equal(wire_count(wire_bytes_of(ask_for(LIST, "*"), SERVICES, 0), 1), N(names));
}

#define RLS "envoy/service/ratelimit/v3/rls.proto"
#define KUADRANT "kuadrant/service/ratelimit/v1/reservation.proto"
#define STRUCT "google/protobuf/struct.proto"

TEST(test_a_symbol_has_a_file)
{
    static const struct {
        const char *symbol, *file;
    } rows[] = {
        {"envoy.service.ratelimit.v3.RateLimitService", RLS},
        {"envoy.service.ratelimit.v3.RateLimitService.ShouldRateLimit", RLS},
        {"envoy.service.ratelimit.v3.RateLimitRequest", RLS},
        {"envoy.service.ratelimit.v3.RateLimitRequest.domain", RLS},
        {"envoy.service.ratelimit.v3.RateLimitResponse.RateLimit", RLS},
        {"envoy.service.ratelimit.v3.RateLimitResponse.RateLimit.Unit", RLS},
        {"envoy.service.ratelimit.v3.RateLimitResponse.RateLimit.WEEK", RLS},
        {"envoy.service.ratelimit.v3.RateLimitResponse.OVER_LIMIT", RLS},
        {"envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.Entry",
         "envoy/extensions/common/ratelimit/v3/ratelimit.proto"},
        {"envoy.config.core.v3.HeaderValue", "envoy/config/core/v3/base.proto"},
        {"envoy.type.v3.RateLimitUnit", "envoy/type/v3/ratelimit_unit.proto"},
        {"envoy.type.v3.SECOND", "envoy/type/v3/ratelimit_unit.proto"},
        {"google.protobuf.UInt64Value", "google/protobuf/wrappers.proto"},
        {"google.protobuf.Duration", "google/protobuf/duration.proto"},
        {"google.protobuf.Timestamp.nanos", "google/protobuf/timestamp.proto"},
        {"google.protobuf.Struct.FieldsEntry.key", STRUCT},
        {"google.protobuf.NULL_VALUE", STRUCT},
        {"grpc.health.v1.Health.Watch", "grpc/health/v1/health.proto"},
        {"grpc.reflection.v1.ServerReflection", "grpc/reflection/v1/reflection.proto"},
        {"grpc.reflection.v1alpha.ServerReflection", "grpc/reflection/v1alpha/reflection.proto"},
        {"kuadrant.service.ratelimit.v1.RateLimitService.Reserve", KUADRANT},
        {"kuadrant.service.ratelimit.v1.CommitRequest.actual_amount", KUADRANT},
    };
    for (size_t i = 0; i < N(rows); i++) {
        assert_file(ask_for(BY_SYMBOL, rows[i].symbol), rows[i].file);
        assert_file(ask_for(BY_NAME, rows[i].file), rows[i].file);
    }
}

TEST(test_what_is_not_there_is_not_found)
{
    static const char *const symbols[] = {"",
                                          ".",
                                          "envoy",
                                          "envoy.service.ratelimit.v3",
                                          "envoy.service.ratelimit.v3.",
                                          "envoy.service.ratelimit.v3.RateLimitServic",
                                          "envoy.service.ratelimit.v3.RateLimitService.",
                                          "envoy.service.ratelimit.v3.RateLimitRequest.domain.x",
                                          "grpc.health.v1.Health.check",
                                          "described.File",
                                          "pb.RateLimitRequest",
                                          "google.protobuf.NullValue.NULL_VALUE"};
    static const char *const files[] = {"", "rls.proto", "described.proto",
                                        "/envoy/service/ratelimit/v3/rls.proto", "../messages"};
    for (size_t i = 0; i < N(symbols); i++)
        assert_fault(ask_for(BY_SYMBOL, symbols[i]), GRPC_NOT_FOUND);
    for (size_t i = 0; i < N(files); i++)
        assert_fault(ask_for(BY_NAME, files[i]), GRPC_NOT_FOUND);
    assert_fault(ask_for(EXTENSIONS_OF, "google.protobuf.Duration"), GRPC_NOT_FOUND);
    assert_fault(ask_for(BY_EXTENSION, ""), GRPC_NOT_FOUND);
}

/* A client asks once: what a file imports comes with it, each file once. */
TEST(test_a_file_comes_with_what_it_imports)
{
    static const char *const imports[] = {
        RLS,
        "envoy/config/core/v3/base.proto",
        "envoy/extensions/common/ratelimit/v3/ratelimit.proto",
        "google/protobuf/duration.proto",
        STRUCT,
        "google/protobuf/timestamp.proto",
        "google/protobuf/wrappers.proto",
        "envoy/type/v3/ratelimit_unit.proto",
    };
    struct span files = wire_bytes_of(ask_for(BY_NAME, RLS), FILES, 0);
    assert_int_equal(wire_count(files, 1), N(imports));
    for (size_t i = 0; i < N(imports); i++) {
        size_t n_found = 0;
        for (size_t k = 0; k < N(imports); k++)
            n_found +=
                (size_t)span_equals(wire_bytes_of(wire_bytes_of(files, 1, k), 1, 0), imports[i]);
        assert_int_equal(n_found, 1);
    }
    files = wire_bytes_of(ask_for(BY_NAME, "google/protobuf/duration.proto"), FILES, 0);
    assert_int_equal(wire_count(files, 1), 1);
}

/* Text is text to clients, whatever our own code takes it for. */
TEST(test_strings_are_described_as_strings)
{
    enum { MESSAGE_TYPE = 4, FIELD = 2, NAME = 1, TYPE = 5, TYPE_STRING = 9, TYPE_BYTES = 12 };
    struct span file = wire_bytes_of(wire_bytes_of(ask_for(BY_NAME, RLS), FILES, 0), 1, 0);
    struct span domain = wire_bytes_of(wire_bytes_of(file, MESSAGE_TYPE, 0), FIELD, 0);
    assert_true(span_equals(wire_bytes_of(domain, NAME, 0), "domain"));
    assert_int_equal(wire_number_of(domain, TYPE), TYPE_STRING);
}

TEST(test_what_is_no_evaluation_is_told_so)
{
    static const uint8_t long_one[REFLECTION_REQUEST_MAX + 1];
    struct wire empty = {.len = 0};
    struct span answer;
    assert_fault(answer_to(&empty), GRPC_INVALID_ARGUMENT);
    assert_int_equal(reflection_answer(span_of("\x3a\x7f", 2), &space, &answer, &error),
                     STINT_E_SYNTAX);
    assert_int_equal(
        reflection_answer(span_of(long_one, sizeof(long_one)), &space, &answer, &error),
        STINT_E_RANGE);
}

/* Of two questions in one message the last is asked, as proto3 has it. */
TEST(test_the_last_evaluation_counts)
{
    struct wire wire = {.len = 0};
    for (int i = 0; i < 100; i++) {
        wire_text(&wire, BY_NAME, "x");
        wire_text(&wire, BY_EXTENSION, "");
    }
    wire_text(&wire, LIST, "");
    assert_int_equal(wire_count(answer_to(&wire), SERVICES), 1);
}
