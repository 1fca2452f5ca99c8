/* SPDX-License-Identifier: MIT */
/* Lines that are JSON objects, with members of the caller's choice. */
#include "unit/test.h"

#include "base/ns.h"
#include "sim/input/jsonl.h"

static struct jsonl jsonl;

static int parse(struct event *event, const char *key, const char *line, struct stint_error *error)
{
    struct jsonl_options options = {.time = "time", .key = key, .cost = "n"};
    *error = (struct stint_error){0};
    assert_int_equal(jsonl_init(&jsonl, &options, error), 0);
    return jsonl_parse(&jsonl, event, span_of_text(line), error);
}

static void expect_event(const char *key_expr, const char *line, uint64_t at_ns, const char *key,
                         uint32_t cost)
{
    struct event event;
    struct stint_error error;
    if (parse(&event, key_expr, line, &error) != EVENT_FOUND)
        fail_msg("%s: %s", line, error.message);
    assert_int_equal(event.at_ns, at_ns);
    assert_true(span_equals(event.key, key));
    assert_int_equal(event.cost, cost);
    jsonl_deinit(&jsonl);
}

static void expect_malformed(const char *line, const char *part_of_message)
{
    struct event event;
    struct stint_error error;
    assert_true(parse(&event, "key", line, &error) < 0);
    if (strstr(error.message, part_of_message) == NULL)
        fail_msg("'%s' gave '%s', without '%s'", line, error.message, part_of_message);
    jsonl_deinit(&jsonl);
}

TEST(test_reads_members)
{
    expect_event("key", "{\"time\":3,\"key\":\"a\",\"n\":2}", 3 * NS_PER_S, "a", 2);
    expect_event("key", " {\"n\":0,\"time\":\"0.5\",\"key\":7} ", NS_PER_S / 2, "7", 0);
    expect_event("key", "{\"time\":\"1970-01-01T01:00:00.5+00:30\",\"key\":true,\"n\":1}",
                 1800 * NS_PER_S + NS_PER_S / 2, "true", 1);
    expect_event("a+b", "{\"time\":0,\"a\":\"x+y\",\"b\":1.5,\"n\":1}", 0, "x\\+y+1.5", 1);
}

/* Decimal fractions are read as they were written, up to 15 digits, although JSON has doubles. */
TEST(test_times_with_decimals_are_exact)
{
    expect_event("key", "{\"time\":0.000000001,\"key\":\"a\",\"n\":1}", 1, "a", 1);
    expect_event("key", "{\"time\":0.1,\"key\":\"a\",\"n\":1}", NS_PER_S / 10, "a", 1);
    expect_event("key", "{\"time\":1431857103.123456,\"key\":\"a\",\"n\":1}",
                 UINT64_C(1431857103123456000), "a", 1);
    expect_event("key", "{\"time\":\"1431857103.123456789\",\"key\":\"a\",\"n\":1}",
                 UINT64_C(1431857103123456789), "a", 1);
}

TEST(test_a_number_as_a_key_has_no_more_digits_than_it_needs)
{
    static const char *const numbers[][2] = {
        {"1.1", "1.1"},
        {"1.10", "1.1"},
        {"0.1", "0.1"},
        {"-0.30000000000000004", "-0.30000000000000004"},
        {"9007199254740993.0", "9007199254740992.0"}, /* there is no nearer one */
        {"1e2", "100.0"},
        {"1.7976931348623157e308", "1.7976931348623157e308"},
        {"-9223372036854775808", "-9223372036854775808"},
    };
    for (size_t i = 0; i < N(numbers); i++) {
        char line[160];
        snprintf(line, sizeof(line), "{\"time\":3,\"key\":%s,\"n\":2}", numbers[i][0]);
        expect_event("key", line, 3 * NS_PER_S, numbers[i][1], 2);
    }
}

/* A client may choose members, such as those of its headers. */
TEST(test_the_last_of_equal_members_counts)
{
    expect_event("key", "{\"time\":1,\"key\":\"a\",\"n\":1,\"h\":{\"x\":1,\"x\":2}}", NS_PER_S, "a",
                 1);
    expect_event("key", "{\"time\":1,\"key\":\"a\",\"n\":1,\"key\":\"b\"}", NS_PER_S, "b", 1);
    expect_event("key", "{\"key\":\"a\",\"time\":1,\"n\":1,\"o\":\"\xff\",\"o\":1}", NS_PER_S, "a",
                 1);
}

/* What a client chooses, or another program writes, does not take an event out of a log. */
TEST(test_reads_what_is_not_quite_json)
{
    static const char *const others[] = {"18446744073709551615",
                                         "-9223372036854775809",
                                         "[1e999,-1e999]",
                                         "\"\xff\"",
                                         "\"\xed\xa0\x80 \xc3\"",
                                         "\"\\ud800\"",
                                         "\"\\udc00\\ud800x\"",
                                         "\"\\\\\xff\\\"\"",
                                         "{\"a\":[\"\xe2\x82\",1e400]}"};
    for (size_t i = 0; i < N(others); i++) {
        char line[160];
        snprintf(line, sizeof(line), "{\"other\":%s,\"time\":3,\"key\":\"a\",\"n\":2}", others[i]);
        expect_event("key", line, 3 * NS_PER_S, "a", 2);
    }
    expect_event("key", "{\"time\":3,\"key\":18446744073709551615,\"n\":2}", 3 * NS_PER_S,
                 "18446744073709551615", 2);
    expect_event("key", "{\"time\":3,\"key\":\"a\xff\\ud800\\ud83d\\ude00\",\"n\":2}", 3 * NS_PER_S,
                 "a\xef\xbf\xbd\xef\xbf\xbd\xf0\x9f\x98\x80", 2);
    expect_event("key", "{\"time\":3,\"key\":\"\xc3\xa4\",\"n\":2,\"o\":\"\xff\"}", 3 * NS_PER_S,
                 "\xc3\xa4", 2);
    expect_malformed("{\"time\":3,\"key\":\"a\",\"n\":2,\"o\":\"\xff\",}", "unable to decode");
    expect_malformed("{\"time\":3,\"key\":\"a\",\"n\":2,\"o\":\xff}", "unable to decode");
    expect_malformed("{\"time\":3,\"key\":\"a\",\"n\":18446744073709551616}", "\"n\"");
}

TEST(test_refuses_what_is_no_event)
{
    struct event event;
    struct stint_error error;
    assert_int_equal(parse(&event, "key", "  ", &error), EVENT_NONE);
    jsonl_deinit(&jsonl);
    expect_malformed("{\"time\":1,\"key\":\"a\",\"n\":1", "expected a JSON object");
    expect_malformed("[1]", "found another value");
    expect_malformed("{\"key\":\"a\",\"n\":1}", "\"time\"");
    expect_malformed("{\"time\":-1,\"key\":\"a\",\"n\":1}", "is no time");
    expect_malformed("{\"time\":-0.5,\"key\":\"a\",\"n\":1}", "is no time");
    expect_malformed("{\"time\":1e300,\"key\":\"a\",\"n\":1}", "is no time");
    expect_malformed("{\"time\":\"soon\",\"key\":\"a\",\"n\":1}", "is no time");
    expect_malformed("{\"time\":1,\"n\":1}", "\"key\"");
    expect_malformed("{\"time\":1,\"key\":null,\"n\":1}", "\"key\"");
    expect_malformed("{\"time\":1,\"key\":{},\"n\":1}", "\"key\"");
    expect_malformed("{\"time\":1,\"key\":\"a\"}", "\"n\"");
    expect_malformed("{\"time\":1,\"key\":\"a\",\"n\":-1}", "\"n\"");
    expect_malformed("{\"time\":1,\"key\":\"a\",\"n\":4294967296}", "\"n\"");
}

TEST(test_key_expressions_that_are_none)
{
    static const char *const wrong[] = {"", "a+", "+a", "a++b", "a+b+c+d+e+f+g+h+i"};
    for (size_t i = 0; i < N(wrong); i++) {
        struct jsonl_options options = {.time = "time", .key = wrong[i]};
        assert_int_equal(jsonl_init(&jsonl, &options, NULL), STINT_E_SYNTAX);
    }
}
