/* SPDX-License-Identifier: MIT */
/* The lines of a trace and the three ways of writing a time. */
#include "unit/test.h"

#include "base/ns.h"
#include "sim/input/event.h"
#include "sim/input/timestamp.h"

static int parse(struct event *event, const char *line, struct stint_error *error)
{
    *event = (struct event){0};
    *error = (struct stint_error){0};
    return trace_parse(event, span_of_text(line), error);
}

static void expect_event(const char *line, uint64_t at_ns, const char *key, uint32_t cost,
                         uint8_t decimals)
{
    struct event event;
    struct stint_error error;
    assert_int_equal(parse(&event, line, &error), EVENT_FOUND);
    assert_int_equal(event.at_ns, at_ns);
    assert_true(span_equals(event.key, key));
    assert_int_equal(event.cost, cost);
    assert_int_equal(event.decimals, decimals);
}

static void expect_malformed(const char *line, const char *part_of_message)
{
    struct event event;
    struct stint_error error;
    assert_true(parse(&event, line, &error) < 0);
    if (strstr(error.message, part_of_message) == NULL)
        fail_msg("'%s' gave '%s', without '%s'", line, error.message, part_of_message);
}

/* A line is TIME KEY [COST], separated by any blanks; the cost is 1 if it is left out. */
TEST(test_reads_time_key_and_cost)
{
    expect_event("0 a", 0, "a", 1, 0);
    expect_event("12.5 203.0.113.9 7", 12 * NS_PER_S + NS_PER_S / 2, "203.0.113.9", 7, 1);
    expect_event("  1.000000001\tk\t4294967295  ", NS_PER_S + 1, "k", UINT32_MAX, 9);
    expect_event("3.10 k 0", 3 * NS_PER_S + NS_PER_S / 10, "k", 0, 2);
}

/* Comments stand alone or after the last field; a hash within a key belongs to the key. */
TEST(test_leaves_out_comments_and_blank_lines)
{
    struct event event;
    struct stint_error error;
    assert_int_equal(parse(&event, "", &error), EVENT_NONE);
    assert_int_equal(parse(&event, " \t ", &error), EVENT_NONE);
    assert_int_equal(parse(&event, "# 1 a", &error), EVENT_NONE);
    expect_event("1 a#b # note", NS_PER_S, "a#b", 1, 0);
    expect_event("1 #tag 2 # note", NS_PER_S, "#tag", 2, 0);
}

/* Every malformed line says what was expected. */
TEST(test_refuses_what_is_no_event)
{
    expect_malformed("x a", "is no time");
    expect_malformed("-1 a", "is no time");
    expect_malformed("1. a", "is no time");
    expect_malformed(".5 a", "is no time");
    expect_malformed("1e3 a", "is no time");
    expect_malformed("1.0000000001 a", "at most 9 decimals");
    expect_malformed("99999999999999999999 a", "too far");
    expect_malformed("1", "no KEY");
    expect_malformed("1 a -1", "is no cost");
    expect_malformed("1 a 1.5", "is no cost");
    expect_malformed("1 a 4294967296", "count in larger units");
    expect_malformed("1 a 18446744073709551617", "count in larger units");
    expect_malformed("1 a 1 b", "after COST");
}

/* A key is bytes: a NUL is one of them. */
TEST(test_keeps_nul_bytes_of_a_key)
{
    struct event event;
    static const char line[] = "1 a\0b 2";
    assert_int_equal(trace_parse(&event, span_of(line, sizeof(line) - 1), NULL), EVENT_FOUND);
    assert_int_equal(event.key.len, 3);
    assert_memory_equal(event.key.ptr, "a\0b", 3);
    assert_int_equal(event.cost, 2);
}

static void expect_rfc3339(const char *text, uint64_t ns, uint8_t decimals)
{
    struct timestamp timestamp;
    assert_int_equal(timestamp_parse_rfc3339(&timestamp, span_of_text(text), NULL), 0);
    assert_int_equal(timestamp.ns, ns);
    assert_int_equal(timestamp.decimals, decimals);
}

/* Offsets, leap days and fractions; the expected figures are those of GNU date. */
TEST(test_reads_rfc3339)
{
    expect_rfc3339("1970-01-01T00:00:00Z", 0, 0);
    expect_rfc3339("2000-02-29T12:00:00Z", 951825600 * NS_PER_S, 0);
    expect_rfc3339("2024-03-01T00:00:00+01:00", 1709247600 * NS_PER_S, 0);
    expect_rfc3339("2015-05-17 10:05:03.25-07:30", 1431884103 * NS_PER_S + NS_PER_S / 4, 2);
    expect_rfc3339("2100-12-31T23:59:59.1234567899z", 4133980799 * NS_PER_S + 123456789, 9);
    static const char *const wrong[] = {
        "",
        "2024",
        "2023-02-29T00:00:00Z",
        "2100-02-29T00:00:00Z",
        "2024-13-01T00:00:00Z",
        "2024-01-01T24:00:00Z",
        "2024-01-01T00:60:00Z",
        "2024-01-01T00:00:00",
        "1969-12-31T23:59:59Z",
        "2024-01-01T00:00:00.Z",
        "2024-01-01T00:00:00+0100",
        "2024-01-01T00:00:00Zx",
        "2024-01-01T00:00:00.5",
        "9999-01-01T00:00:00Z",
        "2024-01-01T00-00-00Z",
    };
    for (size_t i = 0; i < N(wrong); i++) {
        struct timestamp timestamp;
        if (timestamp_parse_rfc3339(&timestamp, span_of_text(wrong[i]), NULL) == 0)
            fail_msg("'%s' was read", wrong[i]);
    }
}

/* The cache of the last date changes no result, whatever came before. */
TEST(test_reads_log_dates_with_and_without_the_cache)
{
    static const struct {
        const char *text;
        uint64_t since_1970_s;
    } dates[] = {
        {"17/May/2015:10:05:03 +0000", 1431857103}, {"17/May/2015:10:05:03 +0000", 1431857103},
        {"17/May/2015:10:05:04 +0000", 1431857104}, {"17/May/2015:10:05:04 -0130", 1431862504},
        {"18/May/2015:00:00:00 -0130", 1431912600}, {"29/Feb/2024:23:59:59 +1400", 1709200799},
        {"01/Jan/1970:00:00:00 +0000", 0},
    };
    struct timestamp_clf_cache kept = {0};
    for (size_t i = 0; i < N(dates); i++) {
        struct timestamp_clf_cache fresh = {0};
        const uint8_t *text = (const uint8_t *)dates[i].text;
        uint64_t with_ns, without_ns;
        assert_true(timestamp_parse_clf(&with_ns, text, &kept));
        assert_true(timestamp_parse_clf(&without_ns, text, &fresh));
        assert_int_equal(with_ns, dates[i].since_1970_s * NS_PER_S);
        assert_int_equal(without_ns, with_ns);
    }
    static const char *const wrong[] = {
        "32/May/2015:10:05:03 +0000",
        "17/Mai/2015:10:05:03 +0000",
        "17/May/2015:24:05:03 +0000",
        "17/May/2015 10:05:03 +0000",
        "17/May/2015:10:05:03 00000",
        "01/Jan/1970:00:00:00 +0001",
        "29/Feb/2023:10:05:03 +0000",
        "17/May/2015:10:05:6x +0000",
        "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        "\0\0\0\0\0\0\0\0\0\0\0\00010:05:03\0\0\0\0\0\0",
    };
    for (size_t i = 0; i < N(wrong); i++) {
        uint64_t ns;
        struct timestamp_clf_cache fresh = {0};
        if (timestamp_parse_clf(&ns, (const uint8_t *)wrong[i], &fresh))
            fail_msg("'%s' was read", wrong[i]);
    }
}
